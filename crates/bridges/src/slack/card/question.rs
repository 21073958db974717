//! The card of a question, and later of its answer.

use super::super::kit::{Blocks, Button, Confirm, Message, Style, Words, cut};
use super::{People, at, delivery, id, project, title, who};
use intercom_types::{Delivery, Question, QuestionStatus, Session};

const TEXT_CHARS: usize = 6_000;

pub(in crate::slack) fn question(
    key: &str,
    question: &Question,
    session: &Session,
    people: &People,
    ping: &[String],
) -> Message {
    let open = question.status == QuestionStatus::Pending;
    let told = if open { people.asked(ping) } else { answered(question, people) };
    let text = Words::said(&project(session)).cut(60);
    let text = if open { text.and(" asks: ") } else { text.and(": ").and(told.clone().cut(200)).and(": ") };
    let blocks = Blocks::new(key)
        .header(title("❓ Question", session))
        .section(told)
        .prose(&cut(question.text.trim(), TEXT_CHARS));
    let blocks = if open { blocks.actions(buttons(question)) } else { blocks };
    let asked = Words::new("asked").and(at(Some(question.asked_at)));
    let sort = question.sort.as_deref().map(|sort| Words::said(sort).cut(60)).unwrap_or_default();
    blocks
        .context(vec![who(session), sort, asked, id(&question.id)])
        .message(text.and(Words::said(&question.text).cut(400)))
}

pub(super) fn buttons(question: &Question) -> Vec<Button> {
    let stop = Confirm {
        title: "Stop here?".into(),
        text: Words::new("The agent is told to stop what it asks about."),
        yes: "Stop".into(),
        danger: true,
    };
    vec![
        Button::new("continue", "Continue", &question.id).style(Style::Primary),
        Button::new("refine", "Refine…", &question.id),
        Button::new("stop_question", "Stop", &question.id).style(Style::Danger).confirm(stop),
    ]
}

/// `✅ Continued by ana at … · delivered`.
fn answered(question: &Question, people: &People) -> Words {
    let what = match (question.status.as_str(), question.decision.as_deref()) {
        ("answered", Some("continue")) => Words::new("✅ Continued"),
        ("answered", Some("refine")) => Words::new("✏ Refined"),
        ("answered", Some("stop")) => Words::new("⛔ Stopped"),
        ("answered", Some(other)) => Words::new("✅ Answered ").and(Words::said(other).cut(40)),
        ("answered", None) => Words::new("✅ Answered"),
        ("withdrawn", _) => Words::new("⚪ Withdrawn"),
        ("expired", _) => Words::new("⌛ Expired"),
        (other, _) => Words::new("⚪ ").and(Words::said(other).cut(40)),
    };
    let by = question.answered_by.as_deref().filter(|by| !by.is_empty());
    let by = by.map(|by| Words::new(" by ").and(people.show(by))).unwrap_or_default();
    let with = question.instruction.as_deref().filter(|text| !text.trim().is_empty());
    let with = with.map(|text| Words::new(": ").and(Words::said(text).cut(1_000))).unwrap_or_default();
    let arrived = &question.delivery;
    let told = question.status == QuestionStatus::Answered || matches!(arrived, Delivery::Failed(_));
    let arrived = if told { delivery(arrived) } else { Words::default() };
    Words::join([what.and(by).and(at(question.answered_at)).and(with), arrived], " · ")
}
