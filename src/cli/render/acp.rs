//! What ACP agents tell while they work, as people read it.

use serde_json::Value;

use super::{Data, Shown};
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
            Shown::new(Style::Red, format!("that could not be set{}", data.part(": ", "reason", "")))
        }
        "spend.capped" => Shown::new(Style::Red, format!("no new turn begins{}", data.part(": ", "why", ""))),
        _ => return None,
    })
}

pub(super) fn update(data: &Data) -> Option<Shown> {
    let update = Data(data.0.get("update")?);
    let kind = update.get("sessionUpdate").unwrap_or_else(|| "update".to_owned());
    Some(match kind.as_str() {
        "agent_message_chunk" | "user_message_chunk" | "agent_thought_chunk" => {
            let style = if kind == "agent_message_chunk" { Style::Plain } else { Style::Dim };
            match update.0.get("content").and_then(|content| content.get("text")).and_then(Value::as_str) {
                Some(text) => Shown::with_text(style, "", text),
                None => Shown::new(style, format!("({})", content_type(update.0))),
            }
        }
        "tool_call" | "tool_call_update" => {
            let title = update.get("title").or_else(|| update.get("toolCallId")).unwrap_or_default();
            Shown::new(Style::Dim, format!("tool: {title}{}", update.part(" (", "status", ")")))
        }
        "plan" => {
            let entries =
                update.0.get("entries").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let done = |entry: &&Value| entry.get("status").and_then(Value::as_str) == Some("completed");
            let count = entries.iter().filter(done).count();
            Shown::new(Style::Dim, format!("plan: {count} of {} done", entries.len()))
        }
        _ => Shown::new(Style::Dim, format!("{kind} {}", super::clean(&update.0.to_string()))),
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
        insta::assert_snapshot!(told.concat(), @r#"
        Hi
            │ there<U+001B>
        (image)
        tool: cargo test (pending)
        tool: t1
        plan: 1 of 2 done
        usage_update {"sessionUpdate":"usage_update","used":5}
        update {"new":"x"}
        set by ana: mode plan
        set by ana: effort = high
        that could not be set: no such mode
        no new turn begins: 5.01 of 5.00 USD are spent today
        "#);
    }
}
