//! The card of a question: it asks for an answer, and later shows it.

use super::super::block_kit::{
    BlockBuilder, Button, ButtonStyle, CardMessage, ConfirmDialog, MrkdwnText, cut,
};
use super::{OperatorDirectory, at, delivery, id, project, title, who};
use intercom_types::{Delivery, Question, QuestionStatus, Session};

const TEXT_CHARS: usize = 6_000;

pub(in crate::slack) fn question(
    key: &str,
    question: &Question,
    session: &Session,
    people: &OperatorDirectory,
    ping: &[String],
) -> CardMessage {
    let open = question.status == QuestionStatus::Pending;
    let status_line = if open { people.asked_line(ping) } else { answered(question, people) };
    let text = MrkdwnText::untrusted(&project(session)).cut(60);
    let text =
        if open { text.and(" asks: ") } else { text.and(": ").and(status_line.clone().cut(200)).and(": ") };
    let blocks = BlockBuilder::new(key)
        .header(title("❓ Question", session))
        .section(status_line)
        .prose(&cut(question.text.trim(), TEXT_CHARS));
    let blocks = if open { blocks.actions(buttons(question)) } else { blocks };
    let asked = MrkdwnText::new("asked").and(at(Some(question.asked_at)));
    let sort = question.sort.as_deref().map(|sort| MrkdwnText::untrusted(sort).cut(60)).unwrap_or_default();
    blocks
        .context(vec![who(session), sort, asked, id(&question.id)])
        .message(text.and(MrkdwnText::untrusted(&question.text).cut(400)))
}

pub(super) fn buttons(question: &Question) -> Vec<Button> {
    let stop = ConfirmDialog {
        title: "Stop here?".into(),
        text: MrkdwnText::new("The agent is told to stop."),
        yes: "Stop".into(),
        danger: true,
    };
    vec![
        Button::new("continue", "Continue", &question.id).style(ButtonStyle::Primary),
        Button::new("refine", "Refine…", &question.id),
        Button::new("stop_question", "Stop", &question.id).style(ButtonStyle::Danger).confirm(stop),
    ]
}

/// `✅ Continued by ana at … · delivered`.
fn answered(question: &Question, people: &OperatorDirectory) -> MrkdwnText {
    let what = match (question.status.as_str(), question.decision.as_deref()) {
        ("answered", Some("continue")) => MrkdwnText::new("✅ Continued"),
        ("answered", Some("refine")) => MrkdwnText::new("✏ Refined"),
        ("answered", Some("stop")) => MrkdwnText::new("⛔ Stopped"),
        ("answered", Some(other)) => {
            MrkdwnText::new("✅ Answered ").and(MrkdwnText::untrusted(other).cut(40))
        }
        ("answered", None) => MrkdwnText::new("✅ Answered"),
        ("withdrawn", _) => MrkdwnText::new("⚪ Withdrawn"),
        ("expired", _) => MrkdwnText::new("⌛ Expired"),
        (other, _) => MrkdwnText::new("⚪ ").and(MrkdwnText::untrusted(other).cut(40)),
    };
    let by = question.answered_by.as_deref().filter(|by| !by.is_empty());
    let by = by.map(|by| MrkdwnText::new(" by ").and(people.show(by))).unwrap_or_default();
    let with = question.instruction.as_deref().filter(|text| !text.trim().is_empty());
    let with = with
        .map(|text| MrkdwnText::new(": ").and(MrkdwnText::untrusted(text).cut(1_000)))
        .unwrap_or_default();
    let arrived = &question.delivery;
    let is_settled = question.status == QuestionStatus::Answered || matches!(arrived, Delivery::Failed(_));
    let arrived = if is_settled { delivery(arrived) } else { MrkdwnText::default() };
    MrkdwnText::join([what.and(by).and(at(question.answered_at)).and(with), arrived], " · ")
}
