//! The home of the app: what waits for you, then everything else.

use std::cmp::Reverse;

use super::super::kit::{Blocks, View, Words};
use super::clearance::{allow, badge, deny, details, is_grave, risk_words};
use super::standing::{State, why};
use super::status::pending;
use super::{agent, at, id, options, project, question};
use intercom_types::{Clearance, ClearanceStatus, Question, QuestionStatus, Session, SessionId, Time};

// Together with what stands around them, fewer than the hundred blocks that a view may have.
const MOST_CLEARANCES: usize = 16;
const MOST_QUESTIONS: usize = 8;
const MOST_SESSIONS: usize = 35;
const MOST_ENDED: usize = 5;

const TITLE_CHARS: usize = 200;
const COMMAND_CHARS: usize = 300;
/// The command or the path, then the title.
const LINE_CHARS: usize = COMMAND_CHARS + TITLE_CHARS + 20;

/// `me` is the name and role of who looks; nobody in particular sees nothing of what is going on.
pub(in crate::slack) fn home(
    sessions: &[Session],
    clearances: &[Clearance],
    questions: &[Question],
    me: Option<(&str, &str)>,
) -> View {
    let Some((name, role)) = me else {
        return View::home(Blocks::keyless().section(
            "👋 Hello! This app shows coding agents to the people who run them; ask one of these to add you as an operator.",
        ));
    };
    let may = May::of(role);
    let greeting =
        Words::new("You are ").and(Words::said(name).cut(80)).and(", ").and(Words::said(role).cut(40));
    let blocks = Blocks::keyless().context(vec![greeting]);
    let blocks = waiting(blocks, sessions, clearances, questions, may);
    let blocks = running(blocks, sessions);
    View::home(
        blocks
            .divider()
            .section(
                "*Start one:* `/intercom start &lt;agent&gt; [in &lt;workspace&gt;] &lt;prompt&gt;`\n`/intercom help` tells the rest.",
            ),
    )
}

/// A person's permissions here. The daemon checks again; this only spares buttons that would be refused.
#[derive(Debug, Clone, Copy)]
struct May {
    answer: bool,
    decide: bool,
}

impl May {
    fn of(role: &str) -> Self {
        let decide = matches!(role, "approver" | "admin");
        Self { answer: decide || role == "operator", decide }
    }
}

fn waiting(
    blocks: Blocks,
    sessions: &[Session],
    clearances: &[Clearance],
    questions: &[Question],
    may: May,
) -> Blocks {
    let mut clearances: Vec<&Clearance> =
        clearances.iter().filter(|one| one.status == ClearanceStatus::Pending).collect();
    clearances.sort_by(|one, other| Clearance::order(one, other));
    let mut questions: Vec<&Question> =
        questions.iter().filter(|one| one.status == QuestionStatus::Pending).collect();
    questions.sort_by(|one, other| Question::order(one, other));
    let blocks = blocks.header("Waiting for you");
    if clearances.is_empty() && questions.is_empty() {
        return blocks.section("Nothing. 🎉");
    }
    let whose = |session: &SessionId| {
        let found = sessions.iter().find(|one| *one.id == **session);
        found.map_or_else(
            || id(session),
            |found| Words::said(&project(found)).cut(60).and(" · ").and(Words::said(&found.label()).cut(60)),
        )
    };
    let blocks = clearances.iter().take(MOST_CLEARANCES).fold(blocks, |blocks, one| {
        // What the first line says already is not said again.
        let code = |text: &Option<String>| match text {
            Some(text) if one.action.as_ref() != Some(text) => Words::said(text).cut(COMMAND_CHARS).code(),
            _ => Words::default(),
        };
        let what = Words::join([code(&one.command), code(&one.file_path)], "\n");
        let head = Words::new(badge(one))
            .and(" ")
            .and(Words::said(&intercom_types::action::line_of(one)).cut(LINE_CHARS).bold());
        let about = Words::join([whose(&one.session), risk_words(one), asked(one.requested_at)], " · ");
        let complete = is_shown_whole(one);
        let rest = if complete { "" } else { "Not shown in full: open Details, and decide in the thread." };
        let buttons = if may.decide && complete && !is_grave(one) && options::own(one).is_empty() {
            vec![allow(one), deny(one), details(one)]
        } else {
            vec![details(one)]
        };
        blocks.section(Words::join([head, what, rest.into(), about], "\n")).actions(buttons)
    });
    let blocks = blocks.section(more(clearances.len(), MOST_CLEARANCES, "more clearance"));
    let blocks = questions.iter().take(MOST_QUESTIONS).fold(blocks, |blocks, one| {
        let head = Words::new("❓ ").and(Words::said(&one.text).cut(400));
        let about = Words::join([whose(&one.session), asked(one.asked_at)], " · ");
        let buttons = if may.answer { question::buttons(one) } else { Vec::new() };
        blocks.section(Words::join([head, about], "\n")).actions(buttons)
    });
    blocks.section(more(questions.len(), MOST_QUESTIONS, "more question"))
}

/// Returns true if the home tab shows everything that would run or change. Nobody should allow a request that
/// is not fully visible.
fn is_shown_whole(clearance: &Clearance) -> bool {
    let fits =
        |text: &str, most: usize| text.chars().count() <= most && intercom_types::text::clean(text) == text;
    let filled = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
    let all = [&clearance.command, &clearance.file_path];
    let hidden = filled(&clearance.diff) || !clearance.more_paths.is_empty();
    // Without a command or a path, what it is about may stand in the description.
    let told = all.into_iter().any(filled) || !filled(&clearance.description);
    fits(&clearance.title, TITLE_CHARS)
        && all.into_iter().flatten().all(|text| fits(text, COMMAND_CHARS))
        && !hidden
        && told
}

fn asked(time: Time) -> Words {
    Words::new("asked").and(at(Some(time)))
}

fn more(all: usize, most: usize, noun: &'static str) -> Words {
    match all.saturating_sub(most) {
        0 => Words::default(),
        over => Words::new("… and ").and(Words::count(over, noun)),
    }
}

fn running(blocks: Blocks, sessions: &[Session]) -> Blocks {
    let (mut ended, mut live): (Vec<&Session>, Vec<&Session>) =
        sessions.iter().partition(|session| State::of(session) == State::Ended);
    live.sort_by_key(|session| State::of(session));
    ended.sort_by_key(|session| Reverse(session.ended_at));
    let blocks = blocks.header("Sessions");
    let blocks = if sessions.is_empty() { blocks.section("None.") } else { blocks };
    let add = |blocks: Blocks, session: &&Session| blocks.section(one(session));
    let blocks = live.iter().take(MOST_SESSIONS).fold(blocks, add);
    let blocks = blocks.section(more(live.len(), MOST_SESSIONS, "more session"));
    let blocks = ended.iter().take(MOST_ENDED).fold(blocks, add);
    blocks.section(more(ended.len(), MOST_ENDED, "more session").and(if ended.len() > MOST_ENDED {
        " that ended before"
    } else {
        ""
    }))
}

fn one(session: &Session) -> Words {
    let state = State::of(session);
    let name =
        Words::said(&project(session)).cut(60).bold().and(" · ").and(Words::said(agent(session)).cut(60));
    let name = name.and(" · ").and(Words::said(&session.label()).cut(60));
    // Who waits for you says so already.
    let pending = if state == State::WaitingForYou { Words::default() } else { pending(session) };
    let ended = session.ended_at.filter(|_| state == State::Ended);
    let ended = ended.map(Words::date).unwrap_or_default();
    let unenforced = if session.unenforced.is_some() { "⚠ unenforced" } else { "" };
    let below =
        Words::join([state.show(), pending, why(session, state).cut(300), ended, unenforced.into()], " · ");
    Words::join([name, below], "\n")
}
