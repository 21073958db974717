//! The one rule that folds the pieces of an agent's messages: `logs`, `watch` and Slack use it, and the console's
//! `fold.js` is the same rule, tested with the same cases (`tests/console/fold-cases.json`).
//!
//! A message is open until its agent does something else. A piece continues the open message of its session if the
//! same speaker speaks and the message ids, where the agent gives them, do not differ. Events that are no part of the
//! conversation are asides: an acknowledgement or a counter may come between two halves of a word, and must not part
//! them.

use std::borrow::Cow;

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    Agent,
    Thought,
    User,
}

/// A piece of a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub speaker: Speaker,
    /// The agent's id of the message, if it gives one.
    pub message: Option<&'a str>,
    pub text: Cow<'a, str>,
}

/// The meaning of an event for the message that is open in its session.
#[derive(Debug, PartialEq, Eq)]
pub enum Fold<'a> {
    Piece(Piece<'a>),
    /// The message stays open.
    Aside,
    /// The message is over.
    End,
}

/// Reads an event of the log.
pub fn fold<'a>(kind: &str, data: &'a Value) -> Fold<'a> {
    let update = data.get("update").filter(|update| kind == "update" && update.is_object());
    match update {
        Some(update) => fold_update(update),
        None if is_aside(kind) => Fold::Aside,
        None => Fold::End,
    }
}

fn fold_update(update: &Value) -> Fold<'_> {
    let speaker = match update.get("sessionUpdate").and_then(Value::as_str) {
        Some("agent_message_chunk") => Speaker::Agent,
        Some("agent_thought_chunk") => Speaker::Thought,
        Some("user_message_chunk") => Speaker::User,
        Some("tool_call" | "tool_call_update" | "plan") => return Fold::End,
        // The agent tells about itself, or something that we do not know.
        _ => return Fold::Aside,
    };
    let content = update.get("content");
    let field = |name: &str| content.and_then(|content| content.get(name)).and_then(Value::as_str);
    let text = field("text")
        .map_or_else(|| Cow::Owned(format!("[{}]", field("type").unwrap_or("no text"))), Cow::Borrowed);
    Fold::Piece(Piece { speaker, message: update.get("messageId").and_then(Value::as_str), text })
}

fn is_aside(kind: &str) -> bool {
    kind.starts_with("stall.")
        || matches!(
            kind,
            "unknown"
                | "line.rejected"
                | "prompt.delivered"
                | "clearance.delivered"
                | "question.delivered"
                | "session.kept"
                | "session.seen"
                | "session.unenforced"
        )
}

/// A message whose end has not come yet.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenMessage {
    pub speaker: Speaker,
    message: Option<String>,
}

impl OpenMessage {
    /// The message that a piece begins. A blank piece begins none.
    pub fn begin(piece: &Piece<'_>) -> Option<Self> {
        let message = piece.message.map(str::to_owned);
        (!piece.text.trim().is_empty()).then_some(Self { speaker: piece.speaker, message })
    }

    /// Returns whether the piece continues this message, which then takes over its id.
    pub fn take(&mut self, piece: &Piece<'_>) -> bool {
        let continues = self.continues(piece);
        if let (true, None, Some(message)) = (continues, &self.message, piece.message) {
            self.message = Some(message.to_owned());
        }
        continues
    }

    pub fn continues(&self, piece: &Piece<'_>) -> bool {
        let same_id =
            self.message.as_deref().zip(piece.message).is_none_or(|(message, next)| message == next);
        self.speaker == piece.speaker && same_id
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde::Deserialize;

    use super::*;

    /// A case that every view of the log folds in the same way.
    #[derive(Debug, Deserialize)]
    pub(crate) struct FoldCase {
        pub(crate) name: String,
        pub(crate) events: Vec<(String, Value)>,
        /// The speaker and the text of each message.
        pub(crate) messages: Vec<(String, String)>,
    }

    pub(crate) fn fold_cases() -> Vec<FoldCase> {
        serde_json::from_str(include_str!("../tests/console/fold-cases.json")).unwrap()
    }

    #[test]
    fn the_pieces_of_each_case_become_its_messages() {
        for case in fold_cases() {
            let (mut messages, mut open) = (Vec::new(), None::<OpenMessage>);
            for (kind, data) in &case.events {
                match fold(kind, data) {
                    Fold::Aside => {}
                    Fold::End => open = None,
                    Fold::Piece(piece) if open.as_mut().is_some_and(|open| open.take(&piece)) => {
                        let (_, text): &mut (String, String) = messages.last_mut().unwrap();
                        text.push_str(&piece.text);
                    }
                    Fold::Piece(piece) => {
                        if let Some(begun) = OpenMessage::begin(&piece) {
                            let speaker = format!("{:?}", begun.speaker).to_lowercase();
                            messages.push((speaker, piece.text.into_owned()));
                            open = Some(begun);
                        }
                    }
                }
            }
            assert_eq!(messages, case.messages, "{}", case.name);
        }
    }
}
