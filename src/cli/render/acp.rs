//! What ACP agents tell while they work, as people read it.

use serde_json::Value;

use super::{AGENT, Data, PLAN, Shown, THOUGHT, TOOL, USER};
use crate::answers::Event;
use crate::cli::terminal::Style;

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

/// Bytes of a message that a line of the overview is made of.
const MAX_JOINED: usize = 2000;

/// A piece of a message.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) struct Chunk {
    pub(in crate::cli) mark: &'static str,
    pub(in crate::cli) style: Style,
    pub(in crate::cli) message: Option<String>,
    pub(in crate::cli) text: String,
}

/// What an event adds to a message of its agent, if that is what it does.
pub(in crate::cli) fn chunk(event: &Event) -> Option<Chunk> {
    chunk_of(update_of(event)?)
}

fn chunk_of(update: &Value) -> Option<Chunk> {
    let (mark, style) = match update.get("sessionUpdate")?.as_str()? {
        "agent_message_chunk" => (AGENT, Style::Plain),
        "agent_thought_chunk" => (THOUGHT, Style::Dim),
        "user_message_chunk" => (USER, Style::Dim),
        _ => return None,
    };
    let text = update.get("content").and_then(|content| content.get("text")).and_then(Value::as_str);
    let text = text.map_or_else(|| format!("[{}]", content_type(update)), str::to_owned);
    let message = update.get("messageId").and_then(Value::as_str).map(str::to_owned);
    Some(Chunk { mark, style, message, text })
}

/// Adds the text of `next` to the message that `last` is a piece of, if it goes on there. Only its end is kept.
pub(in crate::cli) fn join(last: &mut Event, next: &Event) -> bool {
    let (Some(before), Some(after)) = (chunk(last), chunk(next)) else { return false };
    if last.session != next.session || before.mark != after.mark || before.message != after.message {
        return false;
    }
    let text = before.text + &after.text;
    let from = text.len().saturating_sub(MAX_JOINED);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    if let Some(content) = last.data.pointer_mut("/update/content") {
        *content = serde_json::json!({ "type": "text", "text": &text[from..] });
    }
    last.at.clone_from(&next.at);
    true
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

fn update_of(event: &Event) -> Option<&Value> {
    event.data.get("update").filter(|_| event.kind == "update")
}

pub(super) fn update(data: &Data) -> Option<Shown> {
    let update = Data(data.0.get("update")?);
    if let Some(chunk) = chunk_of(update.0) {
        return Some(Shown::said(chunk.mark, chunk.style, &chunk.text));
    }
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

fn content_type(update: &Value) -> String {
    let sort = update.get("content").and_then(|content| content.get("type")).and_then(Value::as_str);
    super::clean(sort.unwrap_or("no text"))
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
