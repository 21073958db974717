//! What ACP agents tell while they work, as people read it.

use serde_json::Value;

use super::{AGENT, Data, PLAN, Shown, THOUGHT, TOOL, USER};
use crate::answers::Event;
use crate::cli::terminal::Style;
use crate::fold::{Fold, Speaker, fold};

pub(super) fn event(kind: &str, data: &Data) -> Option<Shown> {
    let by = data.part(" by ", "by", "");
    Some(match kind {
        "agent.set" => {
            let what = data.part("mode ", "mode", "")
                + &data.part("model ", "model", "")
                + &data.part("", "option", " = ")
                + &data.part("", "value", "");
            Shown::new(Style::Cyan, format!("set{by}: {what}"))
        }
        "agent.set_done" => Shown::new(Style::Dim, "the agent has set it"),
        "agent.not_set" => {
            Shown::new(Style::Red, format!("that could not be set{}", data.said(": ", "reason")))
        }
        "spend.capped" => Shown::new(Style::Red, format!("no new turn begins{}", data.part(": ", "why", ""))),
        _ => return None,
    })
}

/// Columns of a topic: agents invent names of any length.
const MAX_TOPIC: usize = 100;

/// The mark and the style of a speaker.
pub(in crate::cli) fn voice(speaker: Speaker) -> (&'static str, Style) {
    match speaker {
        Speaker::Agent => (AGENT, Style::Plain),
        Speaker::Thought => (THOUGHT, Style::Dim),
        Speaker::User => (USER, Style::Dim),
    }
}

/// The id of a tool call, and its title and status where the event says them.
pub(in crate::cli) fn call(event: &Event) -> Option<(String, Option<String>, Option<String>)> {
    let update = update_of(event)?;
    if !matches!(update.get("sessionUpdate")?.as_str()?, "tool_call" | "tool_call_update") {
        return None;
    }
    let update = Data(update);
    Some((update.get("toolCallId")?, update.get("title"), update.get("status")))
}

pub(in crate::cli) fn call_line(title: &str, status: &str) -> Shown {
    let style = if status == "failed" { Style::Red } else { Style::Dim };
    Shown::said(TOOL, style, &format!("{} ({})", super::clean(title), super::clean(status)))
}

/// Counters that change with every word; `show` has them.
pub(in crate::cli) fn is_quiet(event: &Event) -> bool {
    update_of(event).and_then(|update| update.get("sessionUpdate")?.as_str()) == Some("usage_update")
}

/// The subject of an event that repeats what the agent told before, if it has one: its plan, its mode, a message that
/// we do not know.
pub(in crate::cli) fn topic(event: &Event) -> Option<String> {
    match update_of(event) {
        Some(update) => Some(super::cut(update.get("sessionUpdate")?.as_str()?, MAX_TOPIC)),
        None if event.kind == "unknown" => Some(super::cut(&super::unknown(&event.data), MAX_TOPIC)),
        None => None,
    }
}

fn update_of(event: &Event) -> Option<&Value> {
    event.data.get("update").filter(|_| event.kind == "update")
}

pub(super) fn update(data: &Data) -> Option<Shown> {
    if let Fold::Piece(piece) = fold("update", data.0) {
        let (mark, style) = voice(piece.speaker);
        return Some(Shown::said(mark, style, &piece.text));
    }
    let update = Data(data.0.get("update")?);
    let kind = update.get("sessionUpdate").unwrap_or_else(|| "update".to_owned());
    let tells = |text: String| Shown::said(AGENT, Style::Dim, &text);
    Some(match kind.as_str() {
        "tool_call" | "tool_call_update" => {
            let title = update.get("title").or_else(|| update.get("toolCallId")).unwrap_or_default();
            Shown::said(TOOL, Style::Dim, &format!("{title}{}", update.part(" (", "status", ")")))
        }
        "plan" => {
            let steps = super::progress(update.0.get("entries"), "content");
            Shown::said(PLAN, Style::Dim, steps.trim_start_matches(": "))
        }
        "current_mode_update" => tells(format!("mode{}", update.part(": ", "currentModeId", ""))),
        "session_info_update" => tells(format!("title{}", update.part(": ", "title", ""))),
        "available_commands_update" => {
            let commands = update.0.get("availableCommands").and_then(Value::as_array).map_or(0, Vec::len);
            tells(format!("offers {}", crate::text::plural(commands, "command")))
        }
        "config_option_update" => tells("options changed".to_owned()),
        "usage_update" => {
            tells(format!("context{}{}", update.part(": ", "used", ""), update.part(" of ", "size", "")))
        }
        other => tells(format!("update {}", super::said(other))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::show;

    #[test]
    fn updates_are_told_for_people() {
        let update =
            |update: serde_json::Value| show("update", json!({ "sessionId": "s", "update": update }));
        let told = [
            update(
                json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hi\nthere\u{1b}"}}),
            ),
            update(
                json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "x"}}),
            ),
            update(json!({"sessionUpdate": "tool_call", "title": "cargo test", "status": "pending"})),
            update(json!({"sessionUpdate": "tool_call_update", "toolCallId": "t1"})),
            update(
                json!({"sessionUpdate": "plan", "entries": [{"status": "completed"}, {"status": "pending"}]}),
            ),
            update(json!({"sessionUpdate": "usage_update", "used": 5})),
            update(json!({"new": "x"})),
            show("agent.set", json!({"mode": "plan", "by": "ana"})),
            show("agent.set", json!({"option": "effort", "value": "high", "by": "ana"})),
            show("agent.not_set", json!({"reason": "no such mode"})),
            show("spend.capped", json!({"why": "5.01 of 5.00 USD are spent today"})),
        ];
        insta::assert_snapshot!(told.concat(), @r"
        agent> Hi
        agent> there<U+001B>
        agent> [image]
        tool>  cargo test (pending)
        tool>  t1
        plan>  [x] , [ ]
        agent> context: 5
        agent> update update
        set by ana: mode plan
        set by ana: effort = high
        that could not be set: “no such mode”
        no new turn begins: 5.01 of 5.00 USD are spent today
        ");
    }
}
