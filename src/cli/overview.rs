//! The live overview of `watch`: what runs, what waits for somebody, what happened last. Pure: state in, frame out.

use std::collections::VecDeque;

use jiff::Timestamp;

use super::render;
use super::style::{phase_style, risk_style};
use super::table::{Cell, Table};
use super::terminal::{Paint, Size, Style};
use super::time::{age, clock, clock_zone};
use crate::answers::{Clearance, Event, Question, Session};
use crate::text::{columns, cut, plural, short};

/// So many events are remembered; more do not fit on any screen.
pub(super) const LATEST: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Overview {
    pub(super) sessions: Vec<Session>,
    pub(super) clearances: Vec<Clearance>,
    pub(super) questions: Vec<Question>,
    pub(super) latest: VecDeque<Event>,
    /// The daemon does not answer at the moment.
    pub(super) away: bool,
}

impl Overview {
    pub(super) fn push(&mut self, event: Event) {
        if render::is_quiet(&event) || self.latest.back_mut().is_some_and(|last| render::join(last, &event)) {
            return;
        }
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(event);
    }

    /// One whole screen, drawn over the last one without flicker.
    pub(super) fn frame(&self, size: Size, paint: Paint, now: Timestamp) -> String {
        format!("\x1b[H{}\x1b[K\x1b[J", self.lines(size, paint, now).join("\x1b[K\n"))
    }

    fn lines(&self, size: Size, paint: Paint, now: Timestamp) -> Vec<String> {
        let third = size.rows.saturating_sub(6) / 3;
        let mut lines = vec![self.title(size.columns, paint, now)];
        section(&mut lines, self.session_table(now).lines(Some(size.columns), paint), third, size.columns);
        let waiting = self.waiting_table(now);
        if !waiting.is_empty() {
            section(&mut lines, waiting.lines(Some(size.columns), paint), third, size.columns);
            lines.push(paint.style(Style::Dim, &cut(&self.advice(), size.columns)));
        }
        lines.push(String::new());
        let room = size.rows.saturating_sub(lines.len());
        let skip = self.latest.len().saturating_sub(room);
        lines.extend(self.latest.iter().skip(skip).map(|event| self.latest_line(event, size.columns, paint)));
        lines.truncate(size.rows);
        lines
    }

    fn title(&self, width: usize, paint: Paint, now: Timestamp) -> String {
        let (style, state) = match (self.away, self.clearances.len() + self.questions.len()) {
            (true, _) => (Style::Red, "the daemon is away; waiting for it to come back".to_owned()),
            (false, 0) => (Style::Plain, "nothing waits for you".to_owned()),
            (false, count) => (Style::Yellow, format!("{count} waiting for you")),
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
            paint.style(Style::Bold, &left),
            paint.style(style, &state),
            " ".repeat(gap),
            paint.style(Style::Dim, &right)
        )
    }

    fn session_table(&self, now: Timestamp) -> Table {
        let mut table = Table::new(&["SESSION", "AGENT", "PHASE", "AGE", "WHY"]);
        for session in &self.sessions {
            table.row([
                Cell::new(&session.label()),
                Cell::new(session.agent.as_deref().unwrap_or("-")),
                Cell::styled(phase_style(session), session.phase_word()),
                Cell::new(&age(session.started_at.as_deref(), now)),
                Cell::new(session.why.as_deref().unwrap_or_default()),
            ]);
        }
        table
    }

    fn waiting_table(&self, now: Timestamp) -> Table {
        let mut table = Table::new(&["WAITING", "SESSION", "RISK", "AGE", "WHAT"]);
        for clearance in &self.clearances {
            table.row([
                Cell::new(&short(&clearance.id)),
                Cell::new(&self.label(&clearance.session)),
                Cell::styled(risk_style(clearance.risk()), clearance.risk()),
                Cell::new(&age(clearance.requested_at.as_deref(), now)),
                Cell::new(&clearance.line()),
            ]);
        }
        for question in &self.questions {
            table.row([
                Cell::new(&short(&question.id)),
                Cell::new(&self.label(&question.session)),
                Cell::new("-"),
                Cell::new(&age(question.asked_at.as_deref(), now)),
                Cell::new(&question.text),
            ]);
        }
        table
    }

    /// Lines that can be typed as they are, for the first of what waits.
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

    fn latest_line(&self, event: &Event, width: usize, paint: Paint) -> String {
        let lead = cut(
            &format!("{}  {}  ", clock(&event.at), crate::text::clean(&self.label(&event.session))),
            width,
        );
        let shown = render::event(event);
        let head = cut(&shown.last_line(), width - columns(&lead).min(width));
        format!("{}{}", paint.style(Style::Dim, &lead), paint.style(shown.style, &head))
    }

    fn label(&self, id: &str) -> String {
        self.sessions.iter().find(|session| session.id == id).map_or_else(|| short(id), Session::label)
    }
}

/// A table below an empty line; if it is too long, its last line tells how much is missing.
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
    use serde_json::json;

    use super::*;

    fn overview() -> Overview {
        let session = |id: &str, name: Option<&str>, phase: &str| {
            serde_json::from_value(
                json!({"id": id, "name": name, "agent": "demo", "phase": phase, "why": "because",
                "started_at": "2026-03-04T11:57:00.000Z"}),
            )
            .unwrap()
        };
        let mut view = Overview {
            sessions: vec![session("ses_0123456789", Some("shop"), "waiting"), session("ses_abcdefghij", None, "idle")],
            clearances: serde_json::from_value(json!([{"id": "clr_0123456789", "session": "ses_0123456789",
                "title": "Edit\u{1b}[2J", "risk": "high", "status": "pending", "requested_at": "2026-03-04T11:59:00.000Z"}]))
            .unwrap(),
            questions: serde_json::from_value(json!([{"id": "qst_0123456789", "session": "ses_abcdefghij",
                "text": "Go on?\nReally?", "status": "pending", "asked_at": "2026-03-04T11:59:30.000Z"}]))
            .unwrap(),
            ..Overview::default()
        };
        for seq in 1..=20 {
            let raw = format!(
                r#"{{"seq":{seq},"session":"ses_0123456789","at":"2026-03-04T11:59:{seq:02}.000Z","kind":"status","data":{{"message":"step {seq}"}}}}"#
            );
            view.push(Event::parse(&raw).unwrap());
        }
        view
    }

    fn now() -> Timestamp {
        "2026-03-04T12:00:00.000Z".parse().unwrap()
    }

    #[test]
    fn the_overview_shows_what_runs_what_waits_and_what_happened() {
        let lines = overview().lines(Size { columns: 80, rows: 15 }, Paint::OFF, now());
        insta::assert_snapshot!(lines.join("\n"), @r"
        intercom  2 sessions  2 waiting for you               12:00:00 UTC  Ctrl-C quits

        SESSION       AGENT  PHASE    AGE  WHY
        shop          demo   waiting  3m   because
        ses_abcdefgh  demo   idle     3m   because

        WAITING       SESSION       RISK  AGE  WHAT
        clr_01234567  shop          high  1m   “Edit<U+001B>[2J”
        qst_01234567  ses_abcdefgh  -     30s  Go on?⏎Really?
        intercom clearances clr_01234567 · intercom approve clr_01234567

        11:59:17  shop  agent> step 17
        11:59:18  shop  agent> step 18
        11:59:19  shop  agent> step 19
        11:59:20  shop  agent> step 20
        ");
    }

    #[test]
    fn it_fits_every_screen() {
        for columns_ in 1..100 {
            for rows in 1..30 {
                let lines = overview().lines(Size { columns: columns_, rows }, Paint::OFF, now());
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
            view.lines(Size { columns: 100, rows: 20 }, Paint::OFF, now())[0].contains("the daemon is away")
        );
    }
}
