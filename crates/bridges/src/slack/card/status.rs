//! The status card of a session, which is the root of its thread.

use super::super::block_kit::{
    BlockBuilder, Button, ButtonStyle, CardMessage, ConfirmDialog, MrkdwnText, PlainText,
};
use super::display_state::{DisplayState, why};
use super::{agent, at, field, id, is_live, project};
use intercom_types::{ProgressStep, Session, Time, Usage};

/// The limit on shown steps of a plan, and the number of them before the current one.
const STEPS: usize = 8;
const BEFORE: usize = 3;
const BAR: usize = 10;

pub(in crate::slack) fn status(key: &str, session: &Session) -> CardMessage {
    let state = DisplayState::of(session);
    let header = PlainText::untrusted(&project(session))
        .cut(70)
        .and(" · ")
        .and(PlainText::untrusted(agent(session)).cut(60));
    let named = MrkdwnText::untrusted(session.name.as_deref().unwrap_or_default()).cut(100);
    let head = MrkdwnText::join([state.show(), why(session, state)], " · ");
    let text = MrkdwnText::untrusted(&project(session)).cut(60).and(": ").and(state.show());
    let blocks = BlockBuilder::new(key).header(header).section(head).section(plan(&session.progress));
    let blocks = blocks.fields(vec![
        field("Name", named),
        field("Waiting for you", pending(session)),
        field("Queue", queue(session)),
        field("Policy", unenforced(session)),
        field("Spent", session.spent.as_ref().map(spent).unwrap_or_default()),
    ]);
    let blocks = if is_live(session) && state != DisplayState::Stopping {
        blocks.actions(vec![Button::new("interrupt", "Interrupt", &session.id), stop(session)])
    } else {
        blocks
    };
    let moment = |what: &'static str, time: Option<Time>| {
        time.map(|time| MrkdwnText::new(what).and(at(Some(time)))).unwrap_or_default()
    };
    blocks
        .context(vec![
            id(&session.id),
            MrkdwnText::untrusted(session.workspace.as_str()).cut(200),
            moment("started", session.started_at),
            moment("ended", session.ended_at),
        ])
        .message(text)
}

fn stop(session: &Session) -> Button {
    Button::new("stop", "Stop", &session.id).style(ButtonStyle::Danger).confirm(ConfirmDialog {
        title: "Stop this session?".into(),
        text: MrkdwnText::new("Its agent is asked to exit, and killed if it does not."),
        yes: "Stop it".into(),
        danger: true,
    })
}

/// `2 clearances, 1 question`.
pub(super) fn pending(session: &Session) -> MrkdwnText {
    let count =
        |number, noun| if number > 0 { MrkdwnText::count(number, noun) } else { MrkdwnText::default() };
    let (clearances, questions) = (session.pending.clearances, session.pending.questions);
    MrkdwnText::join([count(clearances, "clearance"), count(questions, "question")], ", ")
}

fn queue(session: &Session) -> MrkdwnText {
    if session.queue > 0 {
        MrkdwnText::count(session.queue, "prompt").and(" queued")
    } else {
        MrkdwnText::default()
    }
}

fn unenforced(session: &Session) -> MrkdwnText {
    let why = session.unenforced.as_deref();
    why.map(|why| MrkdwnText::new("⚠ unenforced: ").and(MrkdwnText::untrusted(why).cut(300)))
        .unwrap_or_default()
}

fn spent(spent: &Usage) -> MrkdwnText {
    let tokens = if spent.total_tokens > 0 {
        MrkdwnText::number(spent.total_tokens).and(" tokens")
    } else {
        MrkdwnText::default()
    };
    let known = spent.cost.is_finite() && spent.cost > 0.0 && spent.cost < 1e12;
    let currency = MrkdwnText::untrusted(spent.currency.as_deref().unwrap_or_default()).cut(10);
    let cost =
        if known { MrkdwnText::decimal(spent.cost, 2).and(" ").and(currency) } else { MrkdwnText::default() };
    MrkdwnText::join([tokens, cost], ", ")
}

/// `3 of 7` with a bar, and the steps around the current one.
pub(super) fn plan(steps: &[ProgressStep]) -> MrkdwnText {
    if steps.is_empty() {
        return MrkdwnText::default();
    }
    let is_done = |step: &ProgressStep| matches!(step.status.as_str(), "completed" | "done");
    let is_now = |step: &ProgressStep| matches!(step.status.as_str(), "in_progress" | "now");
    let done = steps.iter().filter(|step| is_done(step)).count();
    let full = done * BAR / steps.len();
    let bar = (0..BAR).map(|cell| MrkdwnText::new(if cell < full { "▓" } else { "░" }));
    let head = MrkdwnText::join(bar, "").and(" ").and(MrkdwnText::number(done as u64)).and(" of ");
    let head = head.and(MrkdwnText::number(steps.len() as u64));
    let now = steps.iter().position(is_now).or_else(|| steps.iter().position(|step| !is_done(step)));
    let most = steps.len().saturating_sub(STEPS);
    let first = now.unwrap_or(most).saturating_sub(BEFORE).min(most);
    let line = |step: &ProgressStep| {
        let mark = if is_done(step) {
            "✔ "
        } else if is_now(step) {
            "▶ "
        } else {
            "○ "
        };
        MrkdwnText::new(mark).and(MrkdwnText::untrusted(&step.text).cut(150))
    };
    let more = |count: usize, place: &'static str| match count {
        0 => MrkdwnText::default(),
        count => MrkdwnText::new("… ").and(MrkdwnText::number(count as u64)).and(place),
    };
    let shown = steps.iter().skip(first).take(STEPS).map(line);
    let below = steps.len().saturating_sub(first + STEPS);
    let lines =
        [head, more(first, " more above")].into_iter().chain(shown).chain([more(below, " more below")]);
    MrkdwnText::join(lines, "\n")
}
