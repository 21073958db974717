//! The log for people: the pieces of a message are joined, and nothing is repeated.
//!
//! A message is open until another event ends it ([`intercom_types::fold`] has the rule). Its words are printed as they
//! arrive; a word is held back until it is complete, or until [`LogFormatter::pause`]. Other entries of the same
//! session wait for the end of the message, because their lines would split it.

use super::event_summarizer::EventSummarizer;
use super::gutter::TextColumn;
use super::render;
use super::terminal::{Paint, TerminalStyle};
use intercom_types::ReceivedEvent;
use intercom_types::event::MessageChunk;
use intercom_types::fold::{FoldEffect, OpenMessage, fold};
use intercom_types::text::columns;

/// The maximum number of lines that wait for the end of a message. A further one ends the message: an agent that never
/// ends one must not hide anything.
const MAX_HELD: usize = 50;

#[derive(Debug)]
pub(super) struct LogFormatter {
    paint: Paint,
    width: Option<usize>,
    open: Option<MessageInProgress>,
    story: EventSummarizer,
}

/// The message on the last line.
#[derive(Debug)]
struct MessageInProgress {
    session: String,
    message: OpenMessage,
    column: TextColumn,
    held: Vec<String>,
}

impl LogFormatter {
    pub(super) fn new(paint: Paint, width: Option<usize>) -> Self {
        Self { paint, width, open: None, story: EventSummarizer::default() }
    }

    /// Adds an event behind its time. The result is printed unchanged: an open message has no line feed yet.
    pub(super) fn push(&mut self, event: &ReceivedEvent, lead: &str) -> String {
        self.take(event, lead).0
    }

    /// Returns true if this event begins an entry: it is shown, and is not part of an earlier message.
    pub(super) fn begins(&mut self, event: &ReceivedEvent) -> bool {
        self.take(event, "").1
    }

    /// Returns the text of an event, and whether it begins an entry.
    fn take(&mut self, event: &ReceivedEvent, lead: &str) -> (String, bool) {
        let fold = fold(&event.event);
        if let FoldEffect::Chunk(chunk) = fold {
            return self.chunk(event, &chunk, lead);
        }
        let open = self.open.as_mut().filter(|open| open.session == event.session);
        match (self.story.entry(event), open) {
            (Some(summary), Some(open)) if fold == FoldEffect::Aside && open.held.len() < MAX_HELD => {
                open.held.push(render::lines(&summary, lead, self.width, self.paint));
                (String::new(), false)
            }
            (Some(summary), _) => (self.end() + &render::lines(&summary, lead, self.width, self.paint), true),
            // An event that is not shown may still end the message.
            (None, Some(_)) if fold == FoldEffect::End => (self.end(), false),
            (None, _) => (String::new(), false),
        }
    }

    /// Returns the text that was held back, after a time without events.
    pub(super) fn pause(&mut self) -> String {
        self.open.as_mut().map(|open| open.column.pause()).unwrap_or_default()
    }

    /// Ends the open message.
    pub(super) fn end(&mut self) -> String {
        self.open.take().map(|mut open| open.column.pause() + "\n" + &open.held.concat()).unwrap_or_default()
    }

    fn chunk(&mut self, event: &ReceivedEvent, chunk: &MessageChunk, lead: &str) -> (String, bool) {
        let open = self.open.as_mut().filter(|open| open.session == event.session);
        if let Some(open) = open.filter(|open| open.message.continues(chunk)) {
            open.message.take(chunk);
            return (open.column.write(&chunk.text), false);
        }
        let Some(message) = OpenMessage::begin(chunk) else { return (String::new(), false) };
        let mut out = self.end();
        let (mark, style) = (chunk.speaker.mark(), render::style(chunk.speaker.tone()));
        let painted = self.paint.style(TerminalStyle::Dim, mark);
        let blank = " ".repeat(columns(lead));
        out.push_str(&self.paint.style(TerminalStyle::Dim, lead));
        out.push_str(&painted);
        let indent = columns(lead) + columns(mark);
        let mut column = TextColumn::new(format!("{blank}{painted}"), indent, self.width, style, self.paint);
        out.push_str(&column.write(chunk.text.trim_start_matches('\n')));
        self.open =
            Some(MessageInProgress { session: event.session.clone(), message, column, held: Vec::new() });
        (out, true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::render::tests::received;
    use super::*;
    use intercom_types::event::Speaker;
    use intercom_types::samples::fold_cases;
    use intercom_types::text::most_columns;
    use intercom_types::{Event, EventKind, Json};

    const LEAD: &str = "14:02:11  ";
    const AGENT: &str = Speaker::Agent.mark();
    const THOUGHT: &str = Speaker::Thought.mark();
    const USER: &str = Speaker::User.mark();
    const MARKS: [&str; 5] = [AGENT, THOUGHT, Speaker::Tool.mark(), Speaker::Plan.mark(), USER];

    fn event(kind: EventKind, fields: &Value) -> ReceivedEvent {
        received("ses_1", kind, fields)
    }

    fn update(update: &Value) -> ReceivedEvent {
        event(EventKind::Update, &json!({ "sessionId": "s", "update": update }))
    }

    fn says(kind: &str, text: &str) -> ReceivedEvent {
        update(&json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } }))
    }

    fn tool(kind: &str, more: &Value) -> ReceivedEvent {
        let mut call = json!({ "sessionUpdate": kind, "toolCallId": "t1" });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update(&call)
    }

    fn printed(events: &[ReceivedEvent], width: Option<usize>) -> String {
        let mut flow = LogFormatter::new(Paint::OFF, width);
        let printed: String = events.iter().map(|event| flow.push(event, LEAD)).collect();
        printed + &flow.end()
    }

    #[test]
    fn the_pieces_of_a_message_are_one_message() {
        let plan = |status: &str| {
            update(&json!({ "sessionUpdate": "plan", "entries": [
                { "content": "look", "status": "completed" }, { "content": "fix", "status": status }] }))
        };
        let events = [
            event(EventKind::TurnStarted, &json!({ "cause": "prompt" })),
            says("agent_thought_chunk", "The test fails be"),
            says("agent_thought_chunk", "cause of a wrong path."),
            says("agent_message_chunk", "I will look at the tests first, then change wh"),
            update(&json!({ "sessionUpdate": "usage_update", "used": 5 })),
            says("agent_message_chunk", "at is wrong.\n\nThen I run them"),
            says("agent_message_chunk", " again:\n    cargo test\n"),
            plan("pending"),
            plan("pending"),
            tool("tool_call", &json!({ "title": "cargo test", "status": "pending" })),
            tool("tool_call_update", &json!({ "status": "in_progress" })),
            tool("tool_call_update", &json!({ "content": [] })),
            tool("tool_call_update", &json!({ "status": "completed" })),
            plan("completed"),
            says("agent_message_chunk", "2026-03-04 14:02:12  clearance clr_01234567 approved by ana"),
            event(EventKind::TurnEnded, &json!({ "stop_reason": "end_turn" })),
        ];
        insta::assert_snapshot!(printed(&events, Some(60)), @r"
        14:02:11  turn started: prompt
        14:02:11  think> The test fails because of a wrong path.
        14:02:11  agent> I will look at the tests first, then change
                  agent> what is wrong.
                  agent>
                  agent> Then I run them again:
                  agent>     cargo test
        14:02:11  plan>  [x] look, [ ] fix
        14:02:11  tool>  cargo test (pending)
        14:02:11  tool>  cargo test (in_progress)
        14:02:11  tool>  cargo test (completed)
        14:02:11  plan>  [x] look, [x] fix
        14:02:11  agent> 2026-03-04 14:02:12  clearance clr_01234567
                  agent> approved by ana
        14:02:11  turn ended: end_turn
        ");
    }

    #[test]
    fn asides_wait_for_the_end_of_a_message_and_unknown_ones_are_told_once() {
        let unknown = || {
            event(
                EventKind::UnknownMessage,
                &json!({ "message": { "method": "_auth/status_update", "params": { "a": [1] } } }),
            )
        };
        let events = [
            unknown(),
            says("agent_message_chunk", "Hel"),
            event(EventKind::PromptDelivered, &json!({ "prompt": "prm_0123456789abcdef" })),
            unknown(),
            update(&json!({ "sessionUpdate": "brand_new", "x": { "y": 1 } })),
            says("agent_message_chunk", "lo"),
            update(&json!({ "sessionUpdate": "brand_new", "x": { "y": 2 } })),
            update(&json!({ "sessionUpdate": "available_commands_update", "availableCommands": [1, 2] })),
            event(EventKind::TurnEnded, &json!({ "stop_reason": "end_turn" })),
            unknown(),
        ];
        insta::assert_snapshot!(printed(&events, Some(80)), @r"
        14:02:11  unknown message _auth/status_update
        14:02:11  agent> Hello
        14:02:11  prompt prm_01234567 delivered
        14:02:11  agent> update brand_new
        14:02:11  agent> offers 2 commands
        14:02:11  turn ended: end_turn
        ");
        let mut flow = LogFormatter::new(Paint::OFF, None);
        let begins: Vec<bool> = events.iter().map(|event| flow.begins(event)).collect();
        assert_eq!(begins, [true, true, false, false, false, false, false, false, true, false]);
    }

    #[test]
    fn a_log_is_folded_like_every_other_view() {
        for case in fold_cases() {
            let from = |(kind, data): &(String, Value)| {
                let data = Json::of(data);
                ReceivedEvent { event: Event::parse(kind, &data), data, ..update(&json!({})) }
            };
            let events: Vec<ReceivedEvent> = case.events.iter().map(from).collect();
            let printed = printed(&events, None);
            let spoken = |line: &&str| [AGENT, THOUGHT, USER].iter().any(|mark| line.starts_with(*mark));
            let lines = printed.lines().filter_map(|line| line.strip_prefix(LEAD)).filter(spoken);
            let told_about = ["agent> update", "agent> offers", "agent> title"];
            let lines = lines.filter(|line| !told_about.iter().any(|prefix| line.starts_with(prefix)));
            let expected = case.messages.iter().map(|(speaker, text)| {
                let mark = match speaker.as_str() {
                    "agent" => AGENT,
                    "thought" => THOUGHT,
                    _ => USER,
                };
                format!("{mark}{text}")
            });
            assert_eq!(lines.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{}", case.name);
        }
    }

    #[test]
    fn a_word_is_held_back_until_it_is_whole_or_nothing_follows() {
        let mut flow = LogFormatter::new(Paint::OFF, Some(80));
        assert_eq!(flow.push(&says("agent_message_chunk", "Hel"), LEAD), "14:02:11  agent> ");
        assert_eq!(flow.push(&says("agent_message_chunk", "lo wor"), LEAD), "Hello");
        assert_eq!(flow.pause(), " wor");
        assert_eq!(flow.push(&says("agent_message_chunk", "ld. "), LEAD), "ld.");
        assert_eq!(flow.end(), "\n");
    }

    proptest! {
        #[test]
        fn no_line_of_an_agent_begins_like_one_of_ours(
            texts in prop::collection::vec("(\\PC|\\n|\\r|\\t| |世|clearance clr_1 approved by ana|14:02:11  ){0,40}", 1..5),
            width in prop::option::of(30_usize..100), which in 0_usize..6,
        ) {
            let events: Vec<ReceivedEvent> = texts.iter().map(|text| match which {
                0 => says("agent_message_chunk", text),
                1 => says("agent_thought_chunk", text),
                2 => event(EventKind::Status, &json!({ "message": format!("x{text}") })),
                3 => tool("tool_call", &json!({ "title": format!("x{text}"), "status": text })),
                4 => update(&json!({ "sessionUpdate": "plan", "entries": [{ "content": text, "status": text }] })),
                _ => event(EventKind::Heartbeat, &json!({ "progress": [{ "label": text, "status": text }] })),
            }).collect();
            let printed = printed(&events, width);
            for line in printed.lines() {
                let rest = line.strip_prefix(LEAD).or_else(|| line.strip_prefix("          "));
                let marked = rest.is_some_and(|rest| MARKS.iter().any(|mark| rest.starts_with(mark.trim_end())));
                prop_assert!(marked, "{line:?} of {printed:?}");
                let wide: usize = line.chars().map(most_columns).sum();
                prop_assert!(width.is_none_or(|width| wide <= width), "{line:?} is wider than {width:?}");
            }
        }

        #[test]
        fn what_a_line_of_ours_quotes_stays_in_quotes_or_below(
            text in "(\\PC|\\n|\\r| |\"|”|approved by ana){0,60}", width in prop::option::of(30_usize..100),
        ) {
            let events = [
                event(EventKind::QuestionAsked, &json!({ "text": text })),
                event(EventKind::ClearanceOutcome, &json!({ "outcome": text })),
                event(EventKind::AgentExited, &json!({ "code": 1, "stderr_tail": text })),
                event(EventKind::LineRejected, &json!({ "reason": "malformed", "excerpt": text })),
            ];
            for event in events {
                let printed = printed(&[event], width);
                for line in printed.lines().skip(1) {
                    prop_assert!(line.starts_with("    │") || line.starts_with("              "), "{line:?} of {printed:?}");
                }
            }
        }
    }
}
