//! Forms that people fill in before an action.

use super::super::block_kit::{BlockBuilder, InputElement, MrkdwnText, PlainText, SelectOption, SlackView};
use super::clearance::{is_grave, risk_words};
use super::display_state::DisplayState;
use super::{agent, is_live, project};
use intercom_types::{Clearance, Question, Session};

/// The choices for a rule's lifetime: the label, and the API's value. Without an end, nothing is sent.
const LASTS: &[(&str, &str)] = &[
    ("1 hour", "1h"),
    ("8 hours", "8h"),
    ("1 day", "1d"),
    ("7 days", "7d"),
    ("until it is revoked", "until_revoked"),
];
/// Eight hours: a day's work.
const USUALLY: usize = 1;
/// The most sessions that a list holds.
const MOST_SESSIONS: usize = 100;

/// "Always": the rule as it would be stored. The digest tells later that it still is that one.
pub(in crate::slack) fn always(clearance: &Clearance, sentence: &str, digest: &str) -> SlackView {
    let warning = if is_grave(clearance) {
        MrkdwnText::new("⚠ What is asked for now is of ").and(risk_words(clearance).bold()).and(".")
    } else {
        MrkdwnText::default()
    };
    let lasts = LASTS.iter().map(|(text, value)| SelectOption::new(PlainText::new(text), *value)).collect();
    let blocks = BlockBuilder::keyless()
        .section("This request is allowed, and this rule is added:")
        .code(sentence)
        .section(
            "It holds for whatever it describes, in this session and in later ones, and for nothing else.",
        )
        .section(warning)
        .input("duration", "How long", InputElement::Select { options: lasts, initial: Some(USUALLY) });
    let metadata = format!("{} {digest}", clearance.id);
    SlackView::modal("always", "Always allow", blocks).submit("Allow always").metadata(&metadata)
}

pub(in crate::slack) fn deny_reason(clearance: &Clearance) -> SlackView {
    let blocks = BlockBuilder::keyless()
        .section(MrkdwnText::untrusted(&intercom_types::action::line_of(clearance)).cut(300).bold())
        .input("reason", "Why not? The agent reads it.", lines("what it should do instead"));
    SlackView::modal("deny_reason", "Deny with reason", blocks).submit("Deny").metadata(&clearance.id)
}

pub(in crate::slack) fn refine(question: &Question) -> SlackView {
    let blocks = BlockBuilder::keyless()
        .prose(&super::super::block_kit::cut(question.text.trim(), 1_500))
        .input("instruction", "What should it do?", lines("go on, but …"));
    SlackView::modal("refine", "Refine", blocks).submit("Send").metadata(&question.id)
}

pub(in crate::slack) fn nudge_with(session: &Session) -> SlackView {
    let blocks = BlockBuilder::keyless().section(MrkdwnText::new("To ").and(super::who(session))).input(
        "message",
        "What should it be told?",
        lines("are you stuck? …"),
    );
    SlackView::modal("nudge_with", "Nudge", blocks).submit("Nudge").metadata(&session.id)
}

fn lines(placeholder: &'static str) -> InputElement {
    InputElement::Lines { initial: String::new(), placeholder: placeholder.into() }
}

/// A message that becomes a prompt.
pub(in crate::slack) fn send_to_agent(sessions: &[Session], text: &str) -> SlackView {
    let mut live: Vec<&Session> = sessions.iter().filter(|session| is_live(session)).collect();
    live.sort_by_key(|session| DisplayState::of(session));
    if live.is_empty() {
        let blocks = BlockBuilder::keyless().section("No session is running: there is nobody to send it to.");
        return SlackView::modal("send", "Send to agent", blocks);
    }
    let option = |session: &&Session| {
        let text = PlainText::untrusted(&project(session))
            .cut(25)
            .and(" · ")
            .and(PlainText::untrusted(&session.label()).cut(25));
        SelectOption::new(
            text.and(" · ").and(PlainText::untrusted(agent(session)).cut(15)),
            session.id.to_string(),
        )
    };
    let more = match live.len().saturating_sub(MOST_SESSIONS) {
        0 => MrkdwnText::default(),
        more => MrkdwnText::new("… and ")
            .and(MrkdwnText::number(more as u64))
            .and(" more, which are not in this list"),
    };
    let options: Vec<SelectOption> = live.iter().take(MOST_SESSIONS).map(option).collect();
    let initial = (options.len() == 1).then_some(0);
    let blocks = BlockBuilder::keyless()
        .input("session", "To which session?", InputElement::Select { options, initial })
        .section(more)
        .input(
            "text",
            "What?",
            InputElement::Lines { initial: text.to_owned(), placeholder: "a prompt".into() },
        );
    SlackView::modal("send", "Send to agent", blocks).submit("Send")
}
