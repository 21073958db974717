//! The filter for updates that clients do not receive: echoes of prompts, and messages of an abandoned turn. Pure.

use serde::Deserialize;
use serde_json::Value;

use intercom_types::event::RawMessage;
use intercom_types::{Event, Json};

/// The limit on the remembered text of prompts, for recognising echoes; beyond it, only the newest prompt counts.
const MAX_ASKED: usize = 1 << 20;

/// The state of the running or last turn.
#[derive(Debug, Default)]
pub(super) struct TurnFilter {
    /// The text of its prompts without whitespace, because agents join and split blocks in their own ways.
    asked: String,
    /// The types of its prompts' other blocks.
    attached: Vec<String>,
    /// True if it was interrupted and ended without a confirmation of the agent: messages before the next turn belong
    /// to none.
    abandoned: bool,
}

#[derive(Debug, Deserialize)]
struct TurnUpdateParams {
    update: TurnUpdate,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TurnUpdate {
    session_update: String,
    #[serde(default)]
    content: Value,
}

impl TurnFilter {
    pub(super) fn apply_event(&mut self, event: &Event) {
        match event {
            Event::TurnStarted(_) => *self = Self::default(),
            Event::TurnEnded(ended) => self.abandoned = ended.confirmed == Some(false),
            _ => {}
        }
    }

    /// Notes a prompt that the agent may echo.
    pub(super) fn add_prompt(&mut self, content: &Json) {
        let blocks: Vec<Value> = serde_json::from_str(content.as_str()).unwrap_or_default();
        if self.asked.len() > MAX_ASKED {
            self.asked.clear();
        }
        for block in &blocks {
            match (block["type"].as_str(), block["text"].as_str()) {
                (Some("text"), Some(text)) => self.asked.extend(squeezed(text)),
                (Some(kind), _) => self.attached.push(kind.to_owned()),
                (None, _) => {}
            }
        }
    }

    /// Returns true if clients do not receive this update of an agent that speaks the protocol itself.
    pub(super) fn is_suppressed(&self, RawMessage(params): &RawMessage) -> bool {
        let text = params.as_str();
        if !self.abandoned && !text.contains("user_message_chunk") {
            return false;
        }
        let Ok(TurnUpdateParams { update }) = serde_json::from_str::<TurnUpdateParams>(text) else {
            return false;
        };
        match update.session_update.as_str() {
            "user_message_chunk" => self.abandoned || self.is_echo(&update.content),
            "agent_message_chunk" | "agent_thought_chunk" | "tool_call" | "tool_call_update" | "plan" => {
                self.abandoned
            }
            _ => false,
        }
    }

    /// Returns true if messages of an agent of our own protocol belong to no turn.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    fn is_echo(&self, content: &Value) -> bool {
        match (content["type"].as_str(), content["text"].as_str()) {
            (Some("text"), Some(text)) => {
                let text: String = squeezed(text).collect();
                // A piece of the prompt, or the prompt with additions of the agent.
                !self.asked.is_empty() && (self.asked.contains(&text) || text.contains(&self.asked))
            }
            (Some(kind), _) => self.attached.iter().any(|attached| attached == kind),
            (None, _) => false,
        }
    }
}

fn squeezed(text: &str) -> impl Iterator<Item = char> + use<'_> {
    text.chars().filter(|c| !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use intercom_types::EventKind;
    use intercom_types::samples::sample;

    fn event(kind: EventKind, fields: &Value) -> Event {
        sample(kind, fields).event()
    }

    fn chunk(kind: &str, content: &Value) -> RawMessage {
        let update = json!({ "sessionUpdate": kind, "content": content });
        RawMessage(Json::of(&json!({ "sessionId": "s", "update": update })))
    }

    fn says(text: &str) -> RawMessage {
        chunk("user_message_chunk", &json!({ "type": "text", "text": text }))
    }

    #[test]
    fn an_echo_is_known_in_pieces_joined_and_with_more() {
        let mut turn = TurnFilter::default();
        assert!(!turn.is_suppressed(&says("Fix the tests")), "nobody asked for that");
        turn.add_prompt(&Json::of(&json!([
            { "type": "text", "text": "Fix the tests" }, { "type": "image", "data": "AA==", "mimeType": "image/png" },
            { "type": "text", "text": "all of them" },
        ])));
        for echo in
            ["Fix the tests", "Fix ", "the\ntests\n\nall of them", "Fix the tests\nall of them\n[image]"]
        {
            assert!(turn.is_suppressed(&says(echo)), "{echo}");
        }
        assert!(
            turn.is_suppressed(&chunk("user_message_chunk", &json!({ "type": "image", "data": "AA==" })))
        );
        assert!(!turn.is_suppressed(&says("Something else")));
        assert!(
            !turn.is_suppressed(&chunk("user_message_chunk", &json!({ "type": "audio", "data": "AA==" })))
        );
        assert!(!turn.is_suppressed(&chunk(
            "agent_message_chunk",
            &json!({ "type": "text", "text": "Fix the tests" })
        )));
        turn.apply_event(&event(EventKind::TurnStarted, &json!({})));
        assert!(!turn.is_suppressed(&says("Fix the tests")), "that was the turn before");
    }

    #[test]
    fn an_abandoned_turn_has_no_more_updates_until_the_next_one_begins() {
        let mut turn = TurnFilter::default();
        let late = chunk("agent_message_chunk", &json!({ "type": "text", "text": "late" }));
        turn.apply_event(&event(EventKind::TurnEnded, &json!({ "stop_reason": "interrupted" })));
        assert!(!turn.is_suppressed(&late) && !turn.is_abandoned(), "the agent has ended it itself");
        turn.apply_event(&event(
            EventKind::TurnEnded,
            &json!({ "stop_reason": "interrupted", "confirmed": false }),
        ));
        assert!(turn.is_suppressed(&late) && turn.is_abandoned());
        assert!(!turn.is_suppressed(&chunk("current_mode_update", &Value::Null)));
        turn.apply_event(&event(EventKind::TurnStarted, &json!({})));
        assert!(!turn.is_suppressed(&late) && !turn.is_abandoned());
    }
}
