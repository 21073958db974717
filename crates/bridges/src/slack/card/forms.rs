//! The forms that precede an action.

use super::super::block_kit::{BlockBuilder, InputElement, MrkdwnText, PlainText, SelectOption, SlackView};
use super::clearance::{is_grave, risk_words};
use super::display_state::DisplayState;
use super::{agent, is_live, project};
use intercom_types::{Clearance, Question, Session};

/// The lifetimes of a rule: the label and the API's value. For a rule without an end, no value is sent.
const LASTS: &[(&str, &str)] = &[
    ("1 hour", "1h"),
    ("8 hours", "8h"),
    ("1 day", "1d"),
    ("7 days", "7d"),
    ("until revoked", "until_revoked"),
];
/// Eight hours: a day's work.
const USUALLY: usize = 1;
/// The limit on sessions in a menu.
const MOST_SESSIONS: usize = 100;

/// The form of "Always…": the rule as it would be stored. Its digest shows later whether it is still the same rule.
pub(in crate::slack) fn always(clearance: &Clearance, sentence: &str, digest: &str) -> SlackView {
    let warning = if is_grave(clearance) {
        MrkdwnText::new("⚠ The current request is of ").and(risk_words(clearance).bold()).and(".")
    } else {
        MrkdwnText::default()
    };
    let lasts = LASTS.iter().map(|(text, value)| SelectOption::new(PlainText::new(text), *value)).collect();
    let blocks = BlockBuilder::keyless()
        .section("This request is allowed, and this rule is added:")
        .code(sentence)
        .section("The rule allows every request that it describes, in this session and in later ones.")
        .section(warning)
        .input("duration", "How long", InputElement::Select { options: lasts, initial: Some(USUALLY) });
    let metadata = format!("{} {digest}", clearance.id);
    SlackView::modal("always", "Always allow", blocks).submit("Allow always").metadata(&metadata)
}

pub(in crate::slack) fn deny_reason(clearance: &Clearance) -> SlackView {
    let blocks = BlockBuilder::keyless()
        .section(MrkdwnText::untrusted(&intercom_types::action::line_of(clearance)).cut(300).bold())
        .input("reason", "Reason, for the agent", lines("what it should do instead"));
    SlackView::modal("deny_reason", "Deny with reason", blocks).submit("Deny").metadata(&clearance.id)
}

pub(in crate::slack) fn refine(question: &Question) -> SlackView {
    let blocks = BlockBuilder::keyless()
        .prose(&super::super::block_kit::cut(question.text.trim(), 1_500))
        .input("instruction", "What should it do?", lines("continue, but …"));
    SlackView::modal("refine", "Refine", blocks).submit("Send").metadata(&question.id)
}

pub(in crate::slack) fn nudge_with(session: &Session) -> SlackView {
    let blocks = BlockBuilder::keyless().section(MrkdwnText::new("To ").and(super::who(session))).input(
        "message",
        "Message to the agent",
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
        let blocks = BlockBuilder::keyless().section("No session is running.");
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
        .input("session", "Session", InputElement::Select { options, initial })
        .section(more)
        .input(
            "text",
            "Prompt",
            InputElement::Lines { initial: text.to_owned(), placeholder: "a prompt".into() },
        );
    SlackView::modal("send", "Send to agent", blocks).submit("Send")
}
