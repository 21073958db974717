//! The live overview of `watch`: running sessions, pending requests, latest events. Pure: state in, frame out.

use std::collections::VecDeque;

use jiff::Timestamp;

use super::event_summarizer::EventSummarizer;
use super::ls::why;
use super::render;
use super::session_names::SessionNames;
use super::style::{phase_style, risk_style};
use super::table::{TerminalCell, TerminalColumnFit, TerminalTable};
use super::terminal::{Paint, TerminalSize, TerminalStyle};
use super::time::{age, clock, clock_zone};
use intercom_types::event::MessageChunk;
use intercom_types::fold::{FoldEffect, OpenMessage, fold};
use intercom_types::summary::Summary;
use intercom_types::text::{clean_block, columns, cut, cut_words, plural, quoted, short};
use intercom_types::{Clearance, Question, ReceivedEvent, Session};

/// The maximum number of remembered entries; more do not fit on any screen.
pub(super) const LATEST: usize = 200;
/// The number of characters kept from the end of a message, whose last line is shown.
const MAX_MESSAGE: usize = 2000;
/// The width below which a screen has no room for whole names.
const NARROW: usize = 60;

#[derive(Debug, Default)]
pub(super) struct Overview {
    pub(super) sessions: Vec<Session>,
    pub(super) clearances: Vec<Clearance>,
    pub(super) questions: Vec<Question>,
    pub(super) names: SessionNames,
    latest: VecDeque<OverviewEntry>,
    story: EventSummarizer,
    /// True while the daemon does not answer.
    pub(super) away: bool,
}

/// An event, or a message with all of its pieces.
#[derive(Debug)]
struct OverviewEntry {
    session: String,
    at: String,
    summary: Summary,
    message: Option<OpenMessage>,
}

impl Overview {
    pub(super) fn new(names: SessionNames) -> Self {
        Self { names, ..Self::default() }
    }

    pub(super) fn push(&mut self, event: ReceivedEvent) {
        self.names.hear(&event);
        let fold = fold(&event.event);
        let open = self
            .latest
            .iter_mut()
            .rev()
            .find(|entry| entry.session == event.session && entry.message.is_some());
        let (summary, message) = match fold {
            FoldEffect::Chunk(chunk) => {
                if open.is_some_and(|open| open.take(&chunk, &event.at)) {
                    return;
                }
                let Some(message) = OpenMessage::begin(&chunk) else { return };
                let (speaker, tone) = (Some(chunk.speaker), chunk.speaker.tone());
                // Not trimmed: the next piece may continue in the middle of a line.
                let text = clean_block(&chunk.text);
                (Summary { tone, speaker, text, detail: String::new() }, Some(message))
            }
            fold => {
                if let (FoldEffect::End, Some(open)) = (fold, open) {
                    open.message = None;
                }
                let Some(summary) = self.story.entry(&event) else { return };
                (summary, None)
            }
        };
        if message.is_some() {
            self.end_message(&event.session);
        }
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        let ReceivedEvent { session, at, .. } = event;
        self.latest.push_back(OverviewEntry { session, at, summary, message });
    }

    fn end_message(&mut self, session: &str) {
        let own = self.latest.iter_mut().filter(|entry| entry.session == session);
        own.for_each(|entry| entry.message = None);
    }

    /// Returns one whole screen, drawn over the last one without flicker. A line is erased before it is written: after
    /// a line that fills the screen, the cursor stands on its last character, which would be erased.
    pub(super) fn frame(&self, size: TerminalSize, paint: Paint, now: Timestamp) -> String {
        let lines = self.lines(size, paint, now);
        let rest = if lines.len() < size.rows { "\n\x1b[J" } else { "" };
        format!("\x1b[H\x1b[2K{}{rest}", lines.join("\n\x1b[2K"))
    }

    fn lines(&self, size: TerminalSize, paint: Paint, now: Timestamp) -> Vec<String> {
        let third = size.rows.saturating_sub(6) / 3;
        let mut lines = vec![self.title(size.columns, paint, now)];
        section(
            &mut lines,
            self.session_table(size.columns, now).lines(Some(size.columns), paint),
            third,
            size.columns,
        );
        let waiting = self.waiting_table(size.columns, now);
        if !waiting.is_empty() {
            section(&mut lines, waiting.lines(Some(size.columns), paint), third, size.columns);
            lines.push(paint.style(TerminalStyle::Dim, &cut(&self.advice(), size.columns)));
        }
        lines.push(String::new());
        let room = size.rows.saturating_sub(lines.len());
        let skip = self.latest.len().saturating_sub(room);
        lines.extend(self.latest.iter().skip(skip).map(|entry| self.latest_line(entry, size.columns, paint)));
        lines.truncate(size.rows);
        lines
    }

    fn title(&self, width: usize, paint: Paint, now: Timestamp) -> String {
        let (style, state) = match (self.away, self.clearances.len() + self.questions.len()) {
            (true, _) => (TerminalStyle::Red, "the daemon is away; waiting for it to come back".to_owned()),
            (false, 0) => (TerminalStyle::Plain, "nothing waits for you".to_owned()),
            (false, count) => (TerminalStyle::Yellow, format!("{count} waiting for you")),
        };
        let left = format!("intercom  {}  ", plural(self.sessions.len(), "session"));
        let right = format!("{}  Ctrl-C quits", clock_zone(now));
        let used = columns(&left) + columns(&state);
        let gap = width.saturating_sub(used + columns(&right));
        if gap < 2 {
            return paint.style(style, &cut(&format!("{left}{state}"), width));
        }
        format!(
            "{}{}{}{}",
            paint.style(TerminalStyle::Bold, &left),
            paint.style(style, &state),
            " ".repeat(gap),
            paint.style(TerminalStyle::Dim, &right)
        )
    }

    fn session_table(&self, width: usize, now: Timestamp) -> TerminalTable {
        let mut table = TerminalTable::new(&["SESSION", "AGENT", "PHASE", "AGE", "TITLE", "WHY"])
            .fit(&["SESSION", "PHASE", "AGE"], fit_of_names(width));
        for session in &self.sessions {
            table.row([
                TerminalCell::new(&session.label()),
                TerminalCell::new(session.agent.as_deref().unwrap_or("-")),
                TerminalCell::styled(phase_style(session), session.phase_word()),
                TerminalCell::new(&age(session.began_at(), now)),
                TerminalCell::new(session.own_title().unwrap_or_default()),
                why(session),
            ]);
        }
        table.without_empty()
    }

    fn waiting_table(&self, width: usize, now: Timestamp) -> TerminalTable {
        let mut table = TerminalTable::new(&["WAITING", "SESSION", "RISK", "AGE", "WHAT"])
            .fit(&["WAITING", "SESSION", "RISK", "AGE"], fit_of_names(width));
        for clearance in &self.clearances {
            table.row([
                TerminalCell::new(&short(&clearance.id)),
                TerminalCell::new(&self.names.label(&clearance.session)),
                TerminalCell::styled(risk_style(&clearance.risk), &clearance.risk),
                TerminalCell::new(&age(Some(clearance.requested_at), now)),
                TerminalCell::new(&intercom_types::action::line_of(clearance)),
            ]);
        }
        for question in &self.questions {
            table.row([
                TerminalCell::new(&short(&question.id)),
                TerminalCell::new(&self.names.label(&question.session)),
                TerminalCell::new("-"),
                TerminalCell::new(&age(Some(question.asked_at), now)),
                TerminalCell::new(&quoted(question.text.trim())),
            ]);
        }
        table
    }

    /// Returns commands for the first pending request, which can be typed unchanged.
    fn advice(&self) -> String {
        match (self.clearances.first(), self.questions.first()) {
            (Some(clearance), _) => {
                let id = short(&clearance.id);
                format!("intercom clearances {id} · intercom approve {id}")
            }
            (None, Some(question)) => format!("intercom answer {} continue", short(&question.id)),
            (None, None) => String::new(),
        }
    }

    fn latest_line(&self, entry: &OverviewEntry, width: usize, paint: Paint) -> String {
        let label = self.names.label(&entry.session);
        let lead = cut(&format!("{}  {label}  ", clock(&entry.at)), width);
        let head = cut_words(&render::last_line(&entry.summary), width - columns(&lead).min(width));
        format!(
            "{}{}",
            paint.style(TerminalStyle::Dim, &lead),
            paint.style(render::style(entry.summary.tone), &head)
        )
    }
}

impl OverviewEntry {
    /// Adds the piece if it belongs to this message. Returns true if it does.
    fn take(&mut self, chunk: &MessageChunk, at: &str) -> bool {
        if !self.message.as_mut().is_some_and(|message| message.take(chunk)) {
            return false;
        }
        let text = format!("{}{}", self.summary.text, clean_block(&chunk.text));
        let from = text.char_indices().rev().nth(MAX_MESSAGE - 1).map_or(0, |(at, _)| at);
        text[from..].clone_into(&mut self.summary.text);
        at.clone_into(&mut self.at);
        true
    }
}

/// Returns the treatment of names. People type them again, so they are whole unless the screen is very narrow.
fn fit_of_names(width: usize) -> TerminalColumnFit {
    if width < NARROW { TerminalColumnFit::CutEnd } else { TerminalColumnFit::Whole }
}

/// Adds a table below an empty line; if it is too long, its last line shows the number of missing rows.
fn section(lines: &mut Vec<String>, mut table: Vec<String>, room: usize, width: usize) {
    let room = room.max(3);
    if table.len() > room {
        let missing = table.len() - room + 1;
        table.truncate(room - 1);
        table.push(cut(&format!("… and {missing} more"), width));
    }
    lines.push(String::new());
    lines.extend(table);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use intercom_types::event::Speaker;
    use intercom_types::samples::fold_cases;

    fn overview() -> Overview {
        let session = |id: &str, name: Option<&str>, phase: &str| {
            serde_json::from_value(
                json!({"id": id, "name": name, "agent": "demo", "phase": phase, "why": "because",
                "title": "Fix the rounding of prices in the basket of the shop", "started_at": "2026-03-04T11:57:00.000Z"}),
            )
            .unwrap()
        };
        let mut view = Overview {
            sessions: vec![session("ses_0123456789abcdef", Some("shop"), "waiting"), session("ses_abcdefghjkmnpqrs", None, "idle")],
            clearances: serde_json::from_value(json!([{"id": "clr_0123456789abcdef", "session": "ses_0123456789abcdef",
                "title": "Edit\u{1b}[2J", "risk": "high", "status": "pending", "requested_at": "2026-03-04T11:59:00.000Z"}]))
            .unwrap(),
            questions: serde_json::from_value(json!([{"id": "qst_0123456789abcdef", "session": "ses_abcdefghjkmnpqrs",
                "text": "Go on?\nReally?", "status": "pending", "asked_at": "2026-03-04T11:59:30.000Z"}]))
            .unwrap(),
            ..Overview::default()
        };
        for session in view.sessions.clone() {
            view.names.learn(&session);
        }
        for seq in 1..=20 {
            let raw = format!(
                r#"{{"seq":{seq},"session":"ses_0123456789abcdef","at":"2026-03-04T11:59:{seq:02}.000Z","kind":"status","data":{{"message":"step {seq}"}}}}"#
            );
            view.push(ReceivedEvent::parse(&raw).unwrap());
        }
        view
    }

    fn now() -> Timestamp {
        "2026-03-04T12:00:00.000Z".parse().unwrap()
    }

    #[test]
    fn the_overview_shows_what_runs_what_waits_and_what_happened() {
        let lines = overview().lines(TerminalSize { columns: 80, rows: 15 }, Paint::OFF, now());
        insta::assert_snapshot!(lines.join("\n"), @r"
        intercom  2 sessions  2 waiting for you               12:00:00 UTC  Ctrl-C quits

        SESSION       AGENT  PHASE    AGE  TITLE
        shop          demo   waiting  3m   Fix the rounding of prices in the basket of…
        ses_abcdefgh  demo   idle     3m   Fix the rounding of prices in the basket of…

        WAITING       SESSION       RISK  AGE  WHAT
        clr_01234567  shop          high  1m   “Edit<U+001B>[2J”
        qst_01234567  ses_abcdefgh  -     30s  “Go on?⏎Really?”
        intercom clearances clr_01234567 · intercom approve clr_01234567

        11:59:17  shop  agent> step 17
        11:59:18  shop  agent> step 18
        11:59:19  shop  agent> step 19
        11:59:20  shop  agent> step 20
        ");
    }

    fn event(seq: u64, session: &str, kind: &str, data: &Value) -> ReceivedEvent {
        let raw = json!({ "seq": seq, "session": session, "at": format!("2026-03-04T11:59:{seq:02}.000Z"),
                          "kind": kind, "data": data });
        ReceivedEvent::parse(&raw.to_string()).unwrap()
    }

    #[test]
    fn the_latest_events_are_folded_like_every_other_view() {
        for case in fold_cases() {
            let mut view = Overview::default();
            for (seq, (kind, data)) in (1..).zip(&case.events) {
                view.push(event(seq, "ses_1", kind, data));
                // Another agent that speaks at the same time parts nothing.
                let other = json!({ "update": { "sessionUpdate": "agent_message_chunk", "content": { "text": "x" } } });
                view.push(event(seq, "ses_2", "update", &other));
            }
            let told_about = ["update ", "offers ", "title"];
            let entries = view.latest.iter().filter(|entry| {
                entry.summary.speaker.is_some_and(|speaker| {
                    [Speaker::Agent, Speaker::Thought, Speaker::User].contains(&speaker)
                }) && !told_about.iter().any(|start| entry.summary.text.starts_with(start))
            });
            let (own, other): (Vec<&OverviewEntry>, Vec<&OverviewEntry>) =
                entries.partition(|entry| entry.session == "ses_1");
            let own: Vec<&str> = own.iter().map(|entry| entry.summary.text.as_str()).collect();
            let expected: Vec<&str> = case.messages.iter().map(|(_, text)| text.as_str()).collect();
            assert_eq!(own, expected, "{}", case.name);
            let other: Vec<&str> = other.iter().map(|entry| entry.summary.text.as_str()).collect();
            assert_eq!(other, ["x".repeat(case.events.len())], "{}", case.name);
        }
    }

    #[test]
    fn ended_sessions_keep_their_names_and_tools_their_titles() {
        let mut view = Overview::default();
        view.push(event(1, "ses_0123456789abcdef", "session.created", &json!({ "name": "shop", "agent": "demo", "protocol": "intercom", "workspace": "/w", "command": "demo", "by": "ana" })));
        let tool =
            |more: &str| serde_json::from_str::<Value>(&format!(r#"{{"update": {{{more}}}}}"#)).unwrap();
        view.push(event(
            2,
            "ses_0123456789abcdef",
            "update",
            &tool(r#""sessionUpdate": "tool_call", "toolCallId": "t1", "title": "make test""#),
        ));
        view.push(event(
            3,
            "ses_0123456789abcdef",
            "update",
            &tool(r#""sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "completed""#),
        ));
        let lines = view.lines(TerminalSize { columns: 80, rows: 15 }, Paint::OFF, now());
        insta::assert_snapshot!(lines[lines.len() - 3..].join("\n"), @r"
        11:59:01  shop  session shop created: demo in /w, by ana
        11:59:02  shop  tool>  make test (pending)
        11:59:03  shop  tool>  make test (completed)
        ");
    }

    #[test]
    fn nothing_is_erased_behind_a_line_that_fills_the_screen() {
        let size = TerminalSize { columns: 40, rows: 12 };
        let frame = overview().frame(size, Paint::OFF, now());
        assert_eq!(frame.matches("\x1b[2K").count(), 12);
        for line in frame.trim_start_matches("\x1b[H").split('\n') {
            assert!(line.starts_with("\x1b[2K") && line.matches('\x1b').count() == 1, "{line:?}");
        }
        assert!(
            overview().frame(TerminalSize { columns: 40, rows: 40 }, Paint::OFF, now()).ends_with("\n\x1b[J")
        );
    }

    #[test]
    fn it_fits_every_screen() {
        for columns_ in 1..100 {
            for rows in 1..30 {
                let lines = overview().lines(TerminalSize { columns: columns_, rows }, Paint::OFF, now());
                assert!(lines.len() <= rows);
                assert!(lines.iter().all(|line| columns(line) <= columns_), "{columns_}x{rows}: {lines:#?}");
            }
        }
    }

    #[test]
    fn a_long_table_tells_how_much_is_missing() {
        let mut lines = Vec::new();
        section(&mut lines, (0..10).map(|n| n.to_string()).collect(), 4, 80);
        assert_eq!(lines, ["", "0", "1", "2", "… and 7 more"]);
    }

    #[test]
    fn a_daemon_that_is_away_is_said_first() {
        let mut view = overview();
        view.away = true;
        assert!(
            view.lines(TerminalSize { columns: 100, rows: 20 }, Paint::OFF, now())[0]
                .contains("the daemon is away")
        );
    }
}
