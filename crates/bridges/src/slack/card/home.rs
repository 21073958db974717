//! The home tab of the app: requests that wait for the reader, then sessions.

use std::cmp::Reverse;

use super::super::block_kit::{BlockBuilder, MrkdwnText, SlackView};
use super::clearance::{allow, badge, deny, details, is_grave, risk_words};
use super::display_state::{DisplayState, why};
use super::status::pending;
use super::{agent, at, id, options, project, question};
use intercom_types::{Clearance, ClearanceStatus, Question, QuestionStatus, Session, SessionId, Time};

// With headers and dividers, all of them are fewer than the hundred blocks of a view.
const MOST_CLEARANCES: usize = 16;
const MOST_QUESTIONS: usize = 8;
const MOST_SESSIONS: usize = 35;
const MOST_ENDED: usize = 5;

const TITLE_CHARS: usize = 200;
const COMMAND_CHARS: usize = 300;
/// The limit of a request's line: the command or the path, then the title.
const LINE_CHARS: usize = COMMAND_CHARS + TITLE_CHARS + 20;

/// `me` is the name and role of the reader. A reader who is not an operator sees no sessions.
pub(in crate::slack) fn home(
    sessions: &[Session],
    clearances: &[Clearance],
    questions: &[Question],
    me: Option<(&str, &str)>,
) -> SlackView {
    let Some((name, role)) = me else {
        return SlackView::home(BlockBuilder::keyless().section(
            "👋 This app shows coding agents to the people who run them. To use it, ask one of them to add you as an operator.",
        ));
    };
    let may = HomePermissions::of(role);
    let greeting = MrkdwnText::new("You are ")
        .and(MrkdwnText::untrusted(name).cut(80))
        .and(", ")
        .and(MrkdwnText::untrusted(role).cut(40));
    let blocks = BlockBuilder::keyless().context(vec![greeting]);
    let blocks = waiting(blocks, sessions, clearances, questions, may);
    let blocks = running(blocks, sessions);
    SlackView::home(
        blocks
            .divider()
            .section(
                "*Start a session:* `/intercom start &lt;agent&gt; [in &lt;workspace&gt;] &lt;prompt&gt;`\n`/intercom help` lists all commands.",
            ),
    )
}

/// A person's permissions. The daemon checks them again; here they only hide buttons whose click would be refused.
#[derive(Debug, Clone, Copy)]
struct HomePermissions {
    answer: bool,
    decide: bool,
}

impl HomePermissions {
    fn of(role: &str) -> Self {
        let decide = matches!(role, "approver" | "admin");
        Self { answer: decide || role == "operator", decide }
    }
}

fn waiting(
    blocks: BlockBuilder,
    sessions: &[Session],
    clearances: &[Clearance],
    questions: &[Question],
    may: HomePermissions,
) -> BlockBuilder {
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
            |found| {
                MrkdwnText::untrusted(&project(found))
                    .cut(60)
                    .and(" · ")
                    .and(MrkdwnText::untrusted(&found.label()).cut(60))
            },
        )
    };
    let blocks = clearances.iter().take(MOST_CLEARANCES).fold(blocks, |blocks, one| {
        // Not repeated if the first line has it.
        let code = |text: &Option<String>| match text {
            Some(text) if one.action.as_ref() != Some(text) => {
                MrkdwnText::untrusted(text).cut(COMMAND_CHARS).code()
            }
            _ => MrkdwnText::default(),
        };
        let what = MrkdwnText::join([code(&one.command), code(&one.file_path)], "\n");
        let head = MrkdwnText::new(badge(one))
            .and(" ")
            .and(MrkdwnText::untrusted(&intercom_types::action::line_of(one)).cut(LINE_CHARS).bold());
        let about = MrkdwnText::join([whose(&one.session), risk_words(one), asked(one.requested_at)], " · ");
        let complete = is_shown_whole(one);
        let rest = if complete { "" } else { "Not shown in full: open Details, then decide in the thread." };
        let buttons = if may.decide && complete && !is_grave(one) && options::own(one).is_empty() {
            vec![allow(one), deny(one), details(one)]
        } else {
            vec![details(one)]
        };
        blocks.section(MrkdwnText::join([head, what, rest.into(), about], "\n")).actions(buttons)
    });
    let blocks = blocks.section(more(clearances.len(), MOST_CLEARANCES, "more clearance"));
    let blocks = questions.iter().take(MOST_QUESTIONS).fold(blocks, |blocks, one| {
        let head = MrkdwnText::new("❓ ").and(MrkdwnText::untrusted(&one.text).cut(400));
        let about = MrkdwnText::join([whose(&one.session), asked(one.asked_at)], " · ");
        let buttons = if may.answer { question::buttons(one) } else { Vec::new() };
        blocks.section(MrkdwnText::join([head, about], "\n")).actions(buttons)
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
    // Without a command or a path, the description may contain the substance of the request.
    let told = all.into_iter().any(filled) || !filled(&clearance.description);
    fits(&clearance.title, TITLE_CHARS)
        && all.into_iter().flatten().all(|text| fits(text, COMMAND_CHARS))
        && !hidden
        && told
}

fn asked(time: Time) -> MrkdwnText {
    MrkdwnText::new("asked").and(at(Some(time)))
}

fn more(all: usize, most: usize, noun: &'static str) -> MrkdwnText {
    match all.saturating_sub(most) {
        0 => MrkdwnText::default(),
        over => MrkdwnText::new("… and ").and(MrkdwnText::count(over, noun)),
    }
}

fn running(blocks: BlockBuilder, sessions: &[Session]) -> BlockBuilder {
    let (mut ended, mut live): (Vec<&Session>, Vec<&Session>) =
        sessions.iter().partition(|session| DisplayState::of(session) == DisplayState::Ended);
    live.sort_by_key(|session| DisplayState::of(session));
    ended.sort_by_key(|session| Reverse(session.ended_at));
    let blocks = blocks.header("Sessions");
    let blocks = if sessions.is_empty() { blocks.section("None.") } else { blocks };
    let add = |blocks: BlockBuilder, session: &&Session| blocks.section(one(session));
    let blocks = live.iter().take(MOST_SESSIONS).fold(blocks, add);
    let blocks = blocks.section(more(live.len(), MOST_SESSIONS, "more session"));
    let blocks = ended.iter().take(MOST_ENDED).fold(blocks, add);
    blocks.section(more(ended.len(), MOST_ENDED, "more session").and(if ended.len() > MOST_ENDED {
        " that ended before"
    } else {
        ""
    }))
}

fn one(session: &Session) -> MrkdwnText {
    let state = DisplayState::of(session);
    let name = MrkdwnText::untrusted(&project(session))
        .cut(60)
        .bold()
        .and(" · ")
        .and(MrkdwnText::untrusted(agent(session)).cut(60));
    let name = name.and(" · ").and(MrkdwnText::untrusted(&session.label()).cut(60));
    // "Waiting for you" is already the state.
    let pending = if state == DisplayState::WaitingForYou { MrkdwnText::default() } else { pending(session) };
    let ended = session.ended_at.filter(|_| state == DisplayState::Ended);
    let ended = ended.map(MrkdwnText::date).unwrap_or_default();
    let unenforced = if session.unenforced.is_some() { "⚠ unenforced" } else { "" };
    let below = MrkdwnText::join(
        [state.show(), pending, why(session, state).cut(300), ended, unenforced.into()],
        " · ",
    );
    MrkdwnText::join([name, below], "\n")
}
