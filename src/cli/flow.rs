//! The log as people read it: what an agent says piece by piece is one message, and what it says twice is said once.
//!
//! A message is open until something else happens. Its words are printed as they come; a word is held back until it is
//! whole, or until [`Flow::pause`].

use std::collections::VecDeque;

use super::gutter::Column;
use super::render::{self, Chunk, Shown};
use super::terminal::{Paint, Style};
use crate::answers::Event;
use crate::text::columns;

/// Tool calls that are remembered for their titles.
const MAX_CALLS: usize = 1000;

#[derive(Debug)]
pub(super) struct Flow {
    paint: Paint,
    width: Option<usize>,
    open: Option<Open>,
    calls: VecDeque<Call>,
    /// The last plan that was shown, and its session.
    plan: Option<(String, Shown)>,
}

/// A message whose end has not come yet.
#[derive(Debug)]
struct Open {
    session: String,
    mark: &'static str,
    message: Option<String>,
    column: Column,
}

#[derive(Debug)]
struct Call {
    session: String,
    id: String,
    title: String,
    status: String,
}

impl Flow {
    pub(super) fn new(paint: Paint, width: Option<usize>) -> Self {
        Self { paint, width, open: None, calls: VecDeque::new(), plan: None }
    }

    /// One event, behind its time. The result is printed as it is: a message that may go on has no line feed yet.
    pub(super) fn push(&mut self, event: &Event, lead: &str) -> String {
        if let Some(chunk) = render::chunk(event) {
            return self.chunk(event, &chunk, lead);
        }
        match self.shown(event) {
            Some(shown) => self.end() + &shown.lines(lead, self.width, self.paint),
            None => String::new(),
        }
    }

    /// Nothing has come for a while: what was held back is printed.
    pub(super) fn pause(&mut self) -> String {
        self.open.as_mut().map(|open| open.column.pause()).unwrap_or_default()
    }

    /// Ends the message that is open.
    pub(super) fn end(&mut self) -> String {
        self.open.take().map(|mut open| open.column.pause() + "\n").unwrap_or_default()
    }

    /// Whether this event begins an entry: it is shown, and does not go on with a message.
    pub(super) fn begins(&mut self, event: &Event) -> bool {
        let goes_on = render::chunk(event).is_some_and(|chunk| self.goes_on(event, &chunk));
        !self.push(event, "").is_empty() && !goes_on
    }

    fn goes_on(&self, event: &Event, chunk: &Chunk) -> bool {
        self.open.as_ref().is_some_and(|open| {
            open.session == event.session
                && open.mark == chunk.mark
                && (open.message.is_none() || chunk.message.is_none() || open.message == chunk.message)
        })
    }

    fn chunk(&mut self, event: &Event, chunk: &Chunk, lead: &str) -> String {
        let goes_on = self.goes_on(event, chunk);
        let mut out = String::new();
        if !goes_on {
            if chunk.text.trim().is_empty() {
                return out;
            }
            out = self.end();
            let mark = self.paint.style(Style::Dim, chunk.mark);
            let blank = " ".repeat(columns(lead));
            out.push_str(&self.paint.style(Style::Dim, lead));
            out.push_str(&mark);
            let indent = columns(lead) + columns(chunk.mark);
            let column = Column::new(format!("{blank}{mark}"), indent, self.width, chunk.style, self.paint);
            let (session, message) = (event.session.clone(), chunk.message.clone());
            self.open = Some(Open { session, mark: chunk.mark, message, column });
        }
        let text = if goes_on { chunk.text.as_str() } else { chunk.text.trim_start_matches('\n') };
        if let Some(open) = &mut self.open {
            out.push_str(&open.column.write(text));
        }
        out
    }

    /// `None` where an event says nothing that was not said before.
    fn shown(&mut self, event: &Event) -> Option<Shown> {
        if let Some((id, title, status)) = render::call(event) {
            return self.call(&event.session, id, title, status);
        }
        let shown = render::event(event);
        if render::is_quiet(event) {
            return None;
        }
        if shown.mark == render::PLAN {
            let plan = Some((event.session.clone(), shown.clone()));
            if self.plan == plan {
                return None;
            }
            self.plan = plan;
        }
        Some(shown)
    }

    fn call(
        &mut self,
        session: &str,
        id: String,
        title: Option<String>,
        status: Option<String>,
    ) -> Option<Shown> {
        let known = self.calls.iter_mut().find(|call| call.session == session && call.id == id);
        let call = if let Some(known) = known {
            let before = (known.title.clone(), known.status.clone());
            known.title = title.unwrap_or_else(|| known.title.clone());
            known.status = status.unwrap_or_else(|| known.status.clone());
            if before == (known.title.clone(), known.status.clone()) {
                return None;
            }
            known
        } else {
            if self.calls.len() >= MAX_CALLS {
                self.calls.pop_front();
            }
            let title = title.unwrap_or_else(|| id.clone());
            let status = status.unwrap_or_else(|| "pending".to_owned());
            self.calls.push_back(Call { session: session.to_owned(), id, title, status });
            self.calls.back_mut()?
        };
        Some(render::call_line(&call.title, &call.status))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::text::most_columns;

    const LEAD: &str = "14:02:11  ";
    const MARKS: [&str; 5] = [render::AGENT, render::THOUGHT, render::TOOL, render::PLAN, render::USER];

    fn event(kind: &str, data: Value) -> Event {
        let (session, at) = ("ses_1".to_owned(), String::new());
        Event { seq: 1, session, at, kind: kind.to_owned(), data, raw: String::new() }
    }

    fn update(update: &Value) -> Event {
        event("update", json!({ "sessionId": "s", "update": update }))
    }

    fn says(kind: &str, text: &str) -> Event {
        update(&json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } }))
    }

    fn tool(kind: &str, more: &Value) -> Event {
        let mut call = json!({ "sessionUpdate": kind, "toolCallId": "t1" });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        update(&call)
    }

    fn told(events: &[Event], width: Option<usize>) -> String {
        let mut flow = Flow::new(Paint::OFF, width);
        let told: String = events.iter().map(|event| flow.push(event, LEAD)).collect();
        told + &flow.end()
    }

    #[test]
    fn the_pieces_of_a_message_are_one_message() {
        let plan = |status: &str| {
            update(&json!({ "sessionUpdate": "plan", "entries": [
                { "content": "look", "status": "completed" }, { "content": "fix", "status": status }] }))
        };
        let events = [
            event("turn.started", json!({ "cause": "prompt" })),
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
            event("turn.ended", json!({ "stop_reason": "end_turn" })),
        ];
        insta::assert_snapshot!(told(&events, Some(60)), @r"
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
    fn a_word_is_held_back_until_it_is_whole_or_nothing_follows() {
        let mut flow = Flow::new(Paint::OFF, Some(80));
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
            let events: Vec<Event> = texts.iter().map(|text| match which {
                0 => says("agent_message_chunk", text),
                1 => says("agent_thought_chunk", text),
                2 => event("status", json!({ "message": format!("x{text}") })),
                3 => tool("tool_call", &json!({ "title": format!("x{text}"), "status": text })),
                4 => update(&json!({ "sessionUpdate": "plan", "entries": [{ "content": text, "status": text }] })),
                _ => event("heartbeat", json!({ "progress": [{ "label": text, "status": text }] })),
            }).collect();
            let told = told(&events, width);
            for line in told.lines() {
                let rest = line.strip_prefix(LEAD).or_else(|| line.strip_prefix("          "));
                let marked = rest.is_some_and(|rest| MARKS.iter().any(|mark| rest.starts_with(mark.trim_end())));
                prop_assert!(marked, "{line:?} of {told:?}");
                let wide: usize = line.chars().map(most_columns).sum();
                prop_assert!(width.is_none_or(|width| wide <= width), "{line:?} is wider than {width:?}");
            }
        }

        #[test]
        fn what_a_line_of_ours_quotes_stays_in_quotes_or_below(
            text in "(\\PC|\\n|\\r| |\"|”|approved by ana){0,60}", width in prop::option::of(30_usize..100),
        ) {
            let events = [
                event("question.asked", json!({ "question": "qst_1", "text": text })),
                event("clearance.outcome", json!({ "clearance": "clr_1", "outcome": text })),
                event("agent.exited", json!({ "code": 1, "stderr_tail": text })),
                event("line.rejected", json!({ "reason": "malformed", "excerpt": text })),
            ];
            for event in events {
                let told = told(&[event], width);
                for line in told.lines().skip(1) {
                    prop_assert!(line.starts_with("    │") || line.starts_with("              "), "{line:?} of {told:?}");
                }
            }
        }
    }
}
