//! Clearances and questions in English.

use super::{Summary, Tone, by, clean_suffix, clearance, colon, question, subject, undelivered, word_suffix};
use crate::action;
use crate::text::short;
use crate::{ClearanceStatus, Event};

pub(super) fn summary(event: &Event) -> Option<Summary> {
    Some(match event {
        Event::ClearanceRequested(requested) => {
            let (id, risk) = (clearance(requested.clearance), requested.risk);
            let sentence = format!("asks for clearance{id} [{}]: {}", risk.as_str(), subject(requested));
            Summary::new(Tone::of_risk(risk), sentence)
        }
        Event::ClearanceDecided(decided) => {
            let (id, status) = (clearance(decided.clearance), decided.status.as_str());
            let option =
                decided.option.as_deref().map(|option| word_suffix(", option ", option)).unwrap_or_default();
            // The agent's text comes last, so that nothing in it can be mistaken for our reason.
            let why = decided.reason.as_deref().map(in_brackets).unwrap_or_default();
            let about = about(decided.action.as_deref(), &decided.title);
            let tone = match decided.status {
                ClearanceStatus::Approved => Tone::Good,
                ClearanceStatus::Denied => Tone::Bad,
                _ => Tone::Quiet,
            };
            let by = decider(&decided.by);
            Summary::new(tone, format!("clearance{id} {status}{by}{option}{why}{about}"))
        }
        Event::ClearanceApproved(approved) => {
            let (id, by) = (clearance(approved.clearance), by(&approved.by));
            let of = format!("({} of {} approvals)", approved.approvals, approved.needed);
            let about = about(approved.action.as_deref(), &approved.title);
            Summary::new(Tone::Good, format!("clearance{id} approved{by} {of}{about}"))
        }
        Event::ClearanceOutcome(outcome) => {
            let id = outcome.clearance.map(clearance).unwrap_or_default();
            Summary::with_quote(Tone::Plain, &format!("clearance{id}:"), &outcome.outcome)
        }
        Event::ClearanceDelivered(delivered) => {
            let id = clearance(delivered.clearance);
            Summary::new(Tone::Quiet, format!("the decision on clearance{id} was delivered"))
        }
        Event::ClearanceUndelivered(lost) => {
            undelivered(&format!("the decision on clearance{}", clearance(lost.clearance)), &lost.cause)
        }
        Event::ClearanceClosed(closed) => {
            let (id, status) = (clearance(closed.clearance), closed.status.as_str());
            let (why, about) = (in_brackets(&closed.reason), about(closed.action.as_deref(), &closed.title));
            Summary::new(Tone::Quiet, format!("clearance{id} {status}{why}{about}"))
        }
        Event::QuestionAsked(asked) => {
            Summary::with_quote(Tone::Warning, &format!("asks{}:", question(asked.question)), &asked.text)
        }
        Event::QuestionAnswered(answered) => {
            let (id, by) = (question(answered.question), by(&answered.by));
            let instruction = answered.instruction.as_deref().unwrap_or_default();
            let decision = answered.decision.as_str();
            let sentence = format!("question{id} answered{by}: {decision}{}", colon(instruction));
            Summary::with_text(Tone::Good, &sentence, instruction)
        }
        Event::QuestionDelivered(delivered) => {
            let id = question(delivered.question);
            Summary::new(Tone::Quiet, format!("the answer to question{id} was delivered"))
        }
        Event::QuestionUndelivered(lost) => {
            undelivered(&format!("the answer to question{}", question(lost.question)), &lost.cause)
        }
        Event::QuestionClosed(closed) => {
            let (id, status) = (question(closed.question), closed.status.as_str());
            Summary::new(Tone::Quiet, format!("question{id} {status}{}", clean_suffix(": ", &closed.reason)))
        }
        _ => return None,
    })
}

fn in_brackets(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!("{})", clean_suffix(" (", reason)) }
}

/// Names the decider: ` by ana`, ` by tests`, or the grant.
fn decider(name: &str) -> String {
    if name.starts_with("grt_") { format!(" by grant {}", short(name)) } else { by(name) }
}

/// Returns `: cargo test “Check it”`, or nothing if an older daemon did not log it.
fn about(action: Option<&str>, title: &str) -> String {
    if title.is_empty() { String::new() } else { format!(": {}", action::line(action, title)) }
}
