//! The root of a session's thread: how it stands.

use super::super::kit::{Blocks, Button, Confirm, Message, Plain, Style, Words};
use super::standing::{State, why};
use super::{agent, at, field, id, is_live, project};
use intercom_types::{Session, Step, Time, Usage};

/// Steps shown of a long plan, and how many of them come before the one that is being done.
const STEPS: usize = 8;
const BEFORE: usize = 3;
const BAR: usize = 10;

pub(in crate::slack) fn status(key: &str, session: &Session) -> Message {
    let state = State::of(session);
    let header = Plain::said(&project(session)).cut(70).and(" · ").and(Plain::said(agent(session)).cut(60));
    let named = Words::said(session.name.as_deref().unwrap_or_default()).cut(100);
    let head = Words::join([state.show(), why(session, state)], " · ");
    let text = Words::said(&project(session)).cut(60).and(": ").and(state.show());
    let blocks = Blocks::new(key).header(header).section(head).section(plan(&session.progress));
    let blocks = blocks.fields(vec![
        field("Name", named),
        field("Waiting for you", pending(session)),
        field("Queue", queue(session)),
        field("Policy", unenforced(session)),
        field("Spent", session.spent.as_ref().map(spent).unwrap_or_default()),
    ]);
    let blocks = if is_live(session) && state != State::Stopping {
        blocks.actions(vec![Button::new("interrupt", "Interrupt", &session.id), stop(session)])
    } else {
        blocks
    };
    let moment = |what: &'static str, time: Option<Time>| {
        time.map(|time| Words::new(what).and(at(Some(time)))).unwrap_or_default()
    };
    blocks
        .context(vec![
            id(&session.id),
            Words::said(session.workspace.as_str()).cut(200),
            moment("started", session.started_at),
            moment("ended", session.ended_at),
        ])
        .message(text)
}

fn stop(session: &Session) -> Button {
    Button::new("stop", "Stop", &session.id).style(Style::Danger).confirm(Confirm {
        title: "Stop this session?".into(),
        text: Words::new("Its agent is asked to end, and ended if it does not."),
        yes: "Stop it".into(),
        danger: true,
    })
}

/// `2 clearances, 1 question`.
pub(super) fn pending(session: &Session) -> Words {
    let count = |number, noun| if number > 0 { Words::count(number, noun) } else { Words::default() };
    let (clearances, questions) = (session.pending.clearances, session.pending.questions);
    Words::join([count(clearances, "clearance"), count(questions, "question")], ", ")
}

fn queue(session: &Session) -> Words {
    if session.queue > 0 { Words::count(session.queue, "prompt").and(" queued") } else { Words::default() }
}

fn unenforced(session: &Session) -> Words {
    let why = session.unenforced.as_deref();
    why.map(|why| Words::new("⚠ unenforced: ").and(Words::said(why).cut(300))).unwrap_or_default()
}

fn spent(spent: &Usage) -> Words {
    let tokens = if spent.total_tokens > 0 {
        Words::number(spent.total_tokens).and(" tokens")
    } else {
        Words::default()
    };
    let known = spent.cost.is_finite() && spent.cost > 0.0 && spent.cost < 1e12;
    let currency = Words::said(spent.currency.as_deref().unwrap_or_default()).cut(10);
    let cost = if known { Words::decimal(spent.cost, 2).and(" ").and(currency) } else { Words::default() };
    Words::join([tokens, cost], ", ")
}

/// `3 of 7` with a bar, and the steps around the one that is being done.
pub(super) fn plan(steps: &[Step]) -> Words {
    if steps.is_empty() {
        return Words::default();
    }
    let is_done = |step: &Step| matches!(step.status.as_str(), "completed" | "done");
    let is_now = |step: &Step| matches!(step.status.as_str(), "in_progress" | "now");
    let done = steps.iter().filter(|step| is_done(step)).count();
    let full = done * BAR / steps.len();
    let bar = (0..BAR).map(|cell| Words::new(if cell < full { "▓" } else { "░" }));
    let head = Words::join(bar, "").and(" ").and(Words::number(done as u64)).and(" of ");
    let head = head.and(Words::number(steps.len() as u64));
    let now = steps.iter().position(is_now).or_else(|| steps.iter().position(|step| !is_done(step)));
    let most = steps.len().saturating_sub(STEPS);
    let first = now.unwrap_or(most).saturating_sub(BEFORE).min(most);
    let line = |step: &Step| {
        let mark = if is_done(step) {
            "✔ "
        } else if is_now(step) {
            "▶ "
        } else {
            "○ "
        };
        Words::new(mark).and(Words::said(&step.text).cut(150))
    };
    let more = |count: usize, place: &'static str| match count {
        0 => Words::default(),
        count => Words::new("… ").and(Words::number(count as u64)).and(place),
    };
    let shown = steps.iter().skip(first).take(STEPS).map(line);
    let below = steps.len().saturating_sub(first + STEPS);
    let lines =
        [head, more(first, " more above")].into_iter().chain(shown).chain([more(below, " more below")]);
    Words::join(lines, "\n")
}
