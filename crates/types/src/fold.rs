//! The one rule that folds the pieces of an agent's messages: `logs`, `watch` and Slack use it, and the console's
//! `fold.js` is the same rule, tested with the same cases (`tests/console/fold-cases.json`).
//!
//! A message is open until its agent does something else. A piece continues the open message of its session if the
//! speaker is the same and the message ids, if given, do not differ. Events outside of the conversation are asides: an
//! acknowledgement or a counter may arrive between two halves of a word, and must not split them.

use crate::event::{AgentUpdate, MessageChunk, Speaker};
use crate::{Event, EventKind};

/// The effect of an event on the open message of its session.
#[derive(Debug, PartialEq, Eq)]
pub enum FoldEffect {
    Chunk(MessageChunk),
    /// The message stays open.
    Aside,
    /// The message is over.
    End,
}

/// Classifies an event of the log.
pub fn fold(event: &Event) -> FoldEffect {
    match event {
        Event::Update(message) => match message.update() {
            Some(AgentUpdate::Chunk(chunk)) => FoldEffect::Chunk(chunk),
            Some(AgentUpdate::ToolCall { .. } | AgentUpdate::Tool { .. } | AgentUpdate::Plan(_)) | None => {
                FoldEffect::End
            }
            // The agent reports about itself, or an unknown kind.
            Some(_) => FoldEffect::Aside,
        },
        // For an event with an unreadable payload, the name is sufficient.
        Event::Other { kind, .. } if EventKind::parse(kind).is_some_and(is_aside) => FoldEffect::Aside,
        event if event.kind().is_some_and(is_aside) => FoldEffect::Aside,
        _ => FoldEffect::End,
    }
}

fn is_aside(kind: EventKind) -> bool {
    kind.is_of_stall()
        || matches!(
            kind,
            EventKind::UnknownMessage
                | EventKind::LineRejected
                | EventKind::PromptDelivered
                | EventKind::ClearanceDelivered
                | EventKind::QuestionDelivered
                | EventKind::SessionKept
                | EventKind::SessionSeen
                | EventKind::SessionUnenforced
        )
}

/// A message that is not complete yet.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenMessage {
    pub(crate) speaker: Speaker,
    message: Option<String>,
}

impl OpenMessage {
    /// Starts a message from a piece. A blank piece starts none.
    pub fn begin(chunk: &MessageChunk) -> Option<Self> {
        let message = chunk.message.clone();
        (!chunk.text.trim().is_empty()).then_some(Self { speaker: chunk.speaker, message })
    }

    /// Reports whether the piece continues this message, which then takes over its id.
    pub fn take(&mut self, chunk: &MessageChunk) -> bool {
        let continues = self.continues(chunk);
        if let (true, None, Some(message)) = (continues, &self.message, &chunk.message) {
            self.message = Some(message.clone());
        }
        continues
    }

    pub fn continues(&self, chunk: &MessageChunk) -> bool {
        let same_id =
            self.message.as_ref().zip(chunk.message.as_ref()).is_none_or(|(message, next)| message == next);
        self.speaker == chunk.speaker && same_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::fold_cases;

    #[test]
    fn the_pieces_of_each_case_become_its_messages() {
        for case in fold_cases() {
            let (mut messages, mut open) = (Vec::new(), None::<OpenMessage>);
            for event in case.events() {
                match fold(&event) {
                    FoldEffect::Aside => {}
                    FoldEffect::End => open = None,
                    FoldEffect::Chunk(chunk) if open.as_mut().is_some_and(|open| open.take(&chunk)) => {
                        let (_, text): &mut (String, String) = messages.last_mut().unwrap();
                        text.push_str(&chunk.text);
                    }
                    FoldEffect::Chunk(chunk) => {
                        if let Some(begun) = OpenMessage::begin(&chunk) {
                            let speaker = format!("{:?}", begun.speaker).to_lowercase();
                            messages.push((speaker, chunk.text));
                            open = Some(begun);
                        }
                    }
                }
            }
            assert_eq!(messages, case.messages, "{}", case.name);
        }
    }
}
