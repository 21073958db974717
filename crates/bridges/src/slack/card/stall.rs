//! The card of a stall: the agent's state and the steps taken. It is edited with each step of the ladder.

use super::super::block_kit::{BlockBuilder, Button, ButtonStyle, CardMessage, ConfirmDialog, MrkdwnText};
use super::display_state::{DisplayState, stuck_for, timeless};
use super::{OperatorDirectory, id, project, title, who};
use intercom_types::{Session, Time};

/// The limit on shown steps; the last ones matter.
const STEPS: usize = 10;
/// The daemon's suffix for a stall that it will not act on.
const LADDER_OFF: &str = "; its ladder is off";

pub(in crate::slack) fn stall(
    key: &str,
    session: &Session,
    steps: &[String],
    over: Option<&str>,
    people: &OperatorDirectory,
    ping: &[String],
) -> CardMessage {
    let said = |text: &str| MrkdwnText::untrusted(text).cut(300);
    let project = MrkdwnText::untrusted(&project(session)).cut(60);
    let blocks = BlockBuilder::new(key);
    let (blocks, text) = if let Some(over) = over {
        let over = MrkdwnText::new("Resolved: ").and(said(over));
        (blocks.header(title("✅ No longer stalled", session)).section(over.clone()), over)
    } else {
        let stalled = stalled(session);
        let blocks = blocks.header(title("🔴 Stalled", session)).section(people.notice_line(ping));
        (blocks.section(stalled.clone()), stalled)
    };
    let before = steps.len().saturating_sub(STEPS);
    let more = match before {
        0 => MrkdwnText::default(),
        before => MrkdwnText::new("… ").and(MrkdwnText::count(before, "step")).and(" before"),
    };
    let taken = steps.iter().skip(before).map(|step| MrkdwnText::new("• ").and(said(step)));
    let blocks = blocks.section(MrkdwnText::join([more].into_iter().chain(taken), "\n"));
    let blocks = if over.is_none() { blocks.actions(buttons(session)) } else { blocks };
    blocks.context(vec![who(session), id(&session.id)]).message(project.and(": ").and(text))
}

/// `Stalled 7 min (since …); last: cargo test running, no CPU`. The duration is that of the last edit; the date stays
/// true.
fn stalled(session: &Session) -> MrkdwnText {
    let standing = session.standing.as_ref();
    let dated = |what: &'static str, at: Option<Time>, end: &'static str| {
        at.map(|at| MrkdwnText::new(what).and(MrkdwnText::date(at)).and(end)).unwrap_or_default()
    };
    let state = if DisplayState::of(session) == DisplayState::Gone { "Suspended" } else { "Stalled" };
    let long = stuck_for(session).map(|long| MrkdwnText::new(" ").and(long)).unwrap_or_default();
    let since = standing.and_then(|standing| standing.since);
    let head = MrkdwnText::new(state).and(long).bold().and(dated(" (since ", since, ")"));

    let why = timeless(session.why.as_str());
    let why = why.strip_prefix("stuck").or_else(|| why.strip_prefix("gone")).unwrap_or(&why);
    let (why, off) = why.strip_suffix(LADDER_OFF).map_or((why, ""), |why| (why, "its ladder is off"));
    // The list of steps has it already.
    let done = standing.and_then(|standing| standing.done.as_deref()).map(|done| format!("; {done}"));
    let why =
        done.and_then(|done| why.strip_suffix(&done)).unwrap_or(why).trim_start_matches([':', ';', ' ']);
    let last =
        if why.trim().is_empty() { MrkdwnText::new("unknown") } else { MrkdwnText::untrusted(why).cut(400) };
    let running = standing.and_then(|standing| Some(standing.running.as_ref()?.since));
    let last = MrkdwnText::new("last: ").and(last).and(dated(" (running since ", running, ")"));
    let snoozed = dated("snoozed until ", session.snoozed_until(), "");
    MrkdwnText::join([head, last, MrkdwnText::new(off), snoozed], "; ")
}

fn buttons(session: &Session) -> Vec<Button> {
    let button = |action, text: &'static str| Button::new(action, text, &session.id);
    let kill = ConfirmDialog {
        title: "Kill this agent?".into(),
        text: MrkdwnText::new(
            "Its process and all processes that it started are killed at once. Unsaved work is lost.",
        ),
        yes: "Kill it".into(),
        danger: true,
    };
    vec![
        button("nudge", "Nudge").style(ButtonStyle::Primary),
        button("nudge_with", "Nudge with…"),
        button("interrupt", "Interrupt"),
        button("kill", "Kill").style(ButtonStyle::Danger).confirm(kill),
        button("snooze", "Snooze 30 m"),
    ]
}
