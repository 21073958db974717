//! The summary of a turn, collected from its events. Pure, and bounded for any length of output.

use intercom_redact::redact;
use intercom_types::Event;
use intercom_types::event::{AgentUpdate, Speaker};
use intercom_types::fold::{FoldEffect, OpenMessage, fold};

/// The character limit of the agent's last message.
const MAX_SAID: usize = 6000;
/// The character limit of streamed text in one message of ours.
const MAX_TALK: usize = 2800;
/// The limit on characters that a full message leaves for the next one, so that no word is split.
const MAX_CARRIED: usize = 2000;

/// The sign that text was left out.
const OMITTED: &str = "[…] ";

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TurnSummary {
    /// The last message of the agent, from its beginning.
    said: String,
    /// Its length. Counted along, because a message has very many small pieces.
    chars: usize,
    /// The open message of any speaker.
    open: Option<OpenMessage>,
    /// True while the agent's last message may continue.
    speaking: bool,
    pub(super) tools: usize,
    /// True if events of the turn were left out: there may be more tools.
    pub(super) is_partial: bool,
    /// True until the next text, which may continue a message whose beginning was left out.
    is_cut: bool,
    pub(super) talk: Option<StreamedText>,
}

/// Streamed text: one message of ours, until it is full.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StreamedText {
    /// The event that it began with, and the number of the piece of that event.
    seq: u64,
    piece: usize,
    text: String,
    chars: usize,
    /// True if it has grown since it was last rendered.
    pub(super) fresh: bool,
}

impl StreamedText {
    /// Returns a name that is unique within the session.
    pub(super) fn name(&self) -> String {
        match self.piece {
            0 => self.seq.to_string(),
            piece => format!("{}.{piece}", self.seq),
        }
    }

    pub(super) fn text(&self) -> String {
        redact(&self.text).text.into_owned()
    }

    /// Ends this message when it is full; its last, incomplete word moves to the next one, which is returned.
    fn next(&mut self, seq: u64) -> Self {
        let near = self.text.char_indices().rev().nth(MAX_CARRIED - 1).map_or(0, |(at, _)| at);
        let tail = &self.text[near..];
        let word = tail.rfind(char::is_whitespace).map(|at| at + 1);
        let carried = word.map_or(String::new(), |at| self.text.split_off(near + at));
        let piece = if self.seq == seq { self.piece + 1 } else { 0 };
        let (chars, fresh) = (carried.chars().count(), !carried.is_empty());
        Self { seq, piece, text: carried, chars, fresh }
    }
}

impl TurnSummary {
    /// Returns the last message, redacted.
    pub(super) fn said(&self) -> String {
        redact(self.said.trim()).text.into_owned()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.said.trim().is_empty() && self.tools == 0
    }

    /// Notes that events were left out here.
    pub(super) fn skip(&mut self) {
        self.end_message();
        (self.is_partial, self.is_cut) = (true, true);
    }

    /// Returns the streamed text so far. Text that could be half of a secret has not arrived here yet: see
    /// `viewer_log`.
    pub(super) fn take_streamed(&mut self) -> Option<(String, String)> {
        let talk = self.talk.as_mut().filter(|talk| talk.fresh)?;
        talk.fresh = false;
        Some((talk.name(), talk.text()))
    }

    /// Applies an event. `full` receives the messages that became full with it.
    pub(super) fn apply_event(&mut self, seq: u64, event: &Event, full: &mut Vec<StreamedText>) {
        match fold(event) {
            FoldEffect::Aside => {}
            FoldEffect::End => {
                self.end_message();
                self.is_cut = false;
            }
            FoldEffect::Chunk(chunk) if self.open.as_mut().is_some_and(|open| open.take(&chunk)) => {
                if chunk.speaker == Speaker::Agent {
                    self.append_text(seq, &chunk.text, full);
                }
            }
            FoldEffect::Chunk(chunk) => {
                let Some(begun) = OpenMessage::begin(&chunk) else { return };
                self.end_message();
                self.open = Some(begun);
                if chunk.speaker == Speaker::Agent {
                    // The piece may be in the middle of its message.
                    let cut = if std::mem::take(&mut self.is_cut) { OMITTED } else { "" };
                    self.append_text(seq, cut, full);
                    self.append_text(seq, &chunk.text, full);
                }
            }
        }
        match event {
            Event::Status(message) => {
                self.is_cut = false;
                self.append_text(seq, &message.status_text().unwrap_or_default(), full);
                self.speaking = false;
            }
            Event::Update(message) => match message.update() {
                Some(AgentUpdate::ToolCall { begins: true, .. }) => self.tools += 1,
                // Our own protocol reports a tool at its beginning and at its end: count the end.
                Some(AgentUpdate::Tool { status, .. })
                    if !matches!(status.as_deref(), Some("pending" | "in_progress")) =>
                {
                    self.tools += 1;
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Marks the current message as complete.
    fn end_message(&mut self) {
        self.open = None;
        if let Some(talk) = self.talk.as_mut().filter(|_| self.speaking) {
            talk.fresh = true;
        }
        self.speaking = false;
    }

    fn append_text(&mut self, seq: u64, text: &str, full: &mut Vec<StreamedText>) {
        if text.is_empty() {
            return;
        }
        if !self.speaking {
            self.said.clear();
            self.chars = 0;
        }
        // Beyond the bound the beginning stays: a summary shows what the message says first.
        let room = MAX_SAID - self.chars;
        self.chars += push(&mut self.said, &mut text.chars(), room);
        let talk = self.talk.get_or_insert_with(|| StreamedText { seq, ..StreamedText::default() });
        if !self.speaking && !talk.text.is_empty() {
            talk.text.push('\n');
            talk.chars += 1;
        }
        self.speaking = true;
        let mut rest = text.chars();
        loop {
            let room = MAX_TALK.saturating_sub(talk.chars);
            let pushed = push(&mut talk.text, &mut rest, room);
            talk.chars += pushed;
            talk.fresh |= pushed > 0;
            if talk.chars < MAX_TALK {
                return;
            }
            let next = talk.next(seq);
            full.push(std::mem::replace(talk, next));
            if full.len() > 20 {
                return; // a message of this length can be read in the log
            }
        }
    }
}

/// Appends at most `room` characters and returns their number.
fn push(text: &mut String, more: &mut std::str::Chars<'_>, room: usize) -> usize {
    more.take(room).map(|c| text.push(c)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use intercom_types::EventKind;
    use intercom_types::samples::fold_cases;
    use intercom_types::samples::sample;
    use serde_json::{Value, json};

    fn update(update: &Value) -> Event {
        sample(EventKind::Update, &json!({ "update": update })).event()
    }

    fn chunk(text: &str) -> Event {
        update(
            &json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } }),
        )
    }

    fn status(message: &str) -> Event {
        sample(EventKind::Status, &json!({ "message": message })).event()
    }

    #[test]
    fn the_last_message_is_what_counts() {
        let (mut turn, mut full) = (TurnSummary::default(), Vec::new());
        turn.apply_event(1, &chunk("I will "), &mut full);
        turn.apply_event(2, &chunk("look."), &mut full);
        turn.apply_event(3, &update(&json!({ "sessionUpdate": "tool_call" })), &mut full);
        turn.apply_event(4, &update(&json!({ "sessionUpdate": "tool_call_update" })), &mut full);
        turn.apply_event(5, &chunk("It is "), &mut full);
        turn.apply_event(6, &chunk("done."), &mut full);
        assert_eq!((turn.said().as_str(), turn.tools), ("It is done.", 1));
        assert_eq!(turn.talk.as_ref().unwrap().text(), "I will look.\nIt is done.");
        turn.apply_event(7, &status("bye"), &mut full);
        assert_eq!(turn.said(), "bye");
        assert!(full.is_empty());
    }

    #[test]
    fn a_message_whose_beginning_was_left_out_says_so() {
        let (mut turn, mut full) = (TurnSummary::default(), Vec::new());
        turn.apply_event(1, &chunk("It begins "), &mut full);
        turn.skip();
        turn.apply_event(900, &chunk("and ends."), &mut full);
        assert_eq!((turn.said().as_str(), turn.is_partial), ("[…] and ends.", true));
        turn.skip();
        turn.apply_event(1900, &status("a message of its own"), &mut full);
        assert_eq!(turn.said(), "a message of its own");
    }

    #[test]
    fn a_turn_is_folded_like_every_other_view() {
        for case in fold_cases() {
            let (mut turn, mut full) = (TurnSummary::default(), Vec::new());
            for (seq, event) in (1..).zip(case.events()) {
                turn.apply_event(seq, &event, &mut full);
            }
            let said =
                case.messages.iter().filter(|(speaker, _)| speaker == "agent").map(|(_, text)| text.as_str());
            let said: Vec<&str> = said.collect();
            assert_eq!(turn.said(), said.last().copied().unwrap_or_default(), "{}", case.name);
            assert_eq!(
                turn.talk.map(|talk| talk.text()).unwrap_or_default(),
                said.join("\n"),
                "{}",
                case.name
            );
        }
    }

    #[test]
    fn a_long_speech_is_told_in_pieces_and_kept_short() {
        let (mut turn, mut full) = (TurnSummary::default(), Vec::new());
        turn.apply_event(1, &chunk(&"ä".repeat(MAX_TALK * 2 + 10)), &mut full);
        assert_eq!(full.len(), 2);
        assert_eq!(turn.talk.as_ref().unwrap().text().chars().count(), 10);
        assert_eq!(turn.said().chars().count(), MAX_TALK * 2 + 10);
        for _ in 0..1000 {
            turn.apply_event(2, &chunk(&"x".repeat(1000)), &mut full);
            full.clear();
        }
        assert!(turn.said().chars().count() <= MAX_SAID);
    }

    #[test]
    fn pieces_of_one_message_have_names_of_their_own_and_tear_no_word() {
        let (mut turn, mut full) = (TurnSummary::default(), Vec::new());
        let speech = (0..2000).map(|n| format!("word{n} ")).collect::<Vec<_>>().concat();
        turn.apply_event(7, &status(&speech), &mut full);
        full.extend(turn.talk.take());
        let names: Vec<String> = full.iter().map(StreamedText::name).collect();
        assert_eq!(names, ["7", "7.1", "7.2", "7.3", "7.4", "7.5", "7.6"]);
        assert_eq!(full.iter().map(StreamedText::text).collect::<String>(), speech);
        assert!(full.iter().all(|talk| talk.text.ends_with(' ') && talk.text.starts_with("word")));
    }

    #[test]
    fn secrets_are_hidden() {
        let (mut turn, mut full) = (TurnSummary::default(), Vec::new());
        let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
        turn.apply_event(1, &status(&format!("token {secret}")), &mut full);
        assert!(!turn.said().contains(secret) && !turn.talk.unwrap().text().contains(secret));
    }
}
