//! An agent that is stuck, and what is done about it. One card, edited as the ladder climbs.

use super::super::kit::{Blocks, Button, Confirm, Message, Style, Words};
use super::standing::{State, stuck_for, timeless};
use super::{People, id, project, title, who};
use intercom_types::{Session, Time};

/// The last ones are what matters.
const STEPS: usize = 10;
/// The daemon's suffix for a stall that it will not act on.
const LADDER_OFF: &str = "; its ladder is off";

pub(in crate::slack) fn stall(
    key: &str,
    session: &Session,
    steps: &[String],
    over: Option<&str>,
    people: &People,
    ping: &[String],
) -> Message {
    let said = |text: &str| Words::said(text).cut(300);
    let project = Words::said(&project(session)).cut(60);
    let blocks = Blocks::new(key);
    let (blocks, text) = if let Some(over) = over {
        let over = Words::new("It is over: ").and(said(over));
        (blocks.header(title("✅ No longer stalled", session)).section(over.clone()), over)
    } else {
        let stalled = stalled(session);
        let blocks = blocks.header(title("🔴 Stalled", session)).section(people.told(ping));
        (blocks.section(stalled.clone()), stalled)
    };
    let before = steps.len().saturating_sub(STEPS);
    let more = match before {
        0 => Words::default(),
        before => Words::new("… ").and(Words::count(before, "step")).and(" before"),
    };
    let taken = steps.iter().skip(before).map(|step| Words::new("• ").and(said(step)));
    let blocks = blocks.section(Words::join([more].into_iter().chain(taken), "\n"));
    let blocks = if over.is_none() { blocks.actions(buttons(session)) } else { blocks };
    blocks.context(vec![who(session), id(&session.id)]).message(project.and(": ").and(text))
}

/// `Stalled 7 min (since …); last: cargo test running, no CPU`. The length is that of the moment when the card was
/// written; the date beside it stays true.
fn stalled(session: &Session) -> Words {
    let standing = session.standing.as_ref();
    let dated = |what: &'static str, at: Option<Time>, end: &'static str| {
        at.map(|at| Words::new(what).and(Words::date(at)).and(end)).unwrap_or_default()
    };
    let state = if State::of(session) == State::Gone { "Gone" } else { "Stalled" };
    let long = stuck_for(session).map(|long| Words::new(" ").and(long)).unwrap_or_default();
    let since = standing.and_then(|standing| standing.since);
    let head = Words::new(state).and(long).bold().and(dated(" (since ", since, ")"));

    let why = timeless(session.why.as_str());
    let why = why.strip_prefix("stuck").or_else(|| why.strip_prefix("gone")).unwrap_or(&why);
    let (why, off) = why.strip_suffix(LADDER_OFF).map_or((why, ""), |why| (why, "its ladder is off"));
    // What was done about it is in the list of steps.
    let done = standing.and_then(|standing| standing.done.as_deref()).map(|done| format!("; {done}"));
    let why =
        done.and_then(|done| why.strip_suffix(&done)).unwrap_or(why).trim_start_matches([':', ';', ' ']);
    let last = if why.trim().is_empty() { Words::new("nothing is known") } else { Words::said(why).cut(400) };
    let running = standing.and_then(|standing| Some(standing.running.as_ref()?.since));
    let last = Words::new("last: ").and(last).and(dated(" (it runs since ", running, ")"));
    let snoozed = dated("snoozed until ", session.snoozed_until(), "");
    Words::join([head, last, Words::new(off), snoozed], "; ")
}

fn buttons(session: &Session) -> Vec<Button> {
    let button = |action, text: &'static str| Button::new(action, text, &session.id);
    let kill = Confirm {
        title: "Kill this agent?".into(),
        text: Words::new("Its process and all that it started end at once. What it has not saved is lost."),
        yes: "Kill it".into(),
        danger: true,
    };
    vec![
        button("nudge", "Nudge").style(Style::Primary),
        button("nudge_with", "Nudge with…"),
        button("interrupt", "Interrupt"),
        button("kill", "Kill").style(Style::Danger).confirm(kill),
        button("snooze", "Snooze 30 m"),
    ]
}
