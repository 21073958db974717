//! The outcome of a request.

use super::super::block_kit::MrkdwnText;
use super::{OperatorDirectory, at, delivery, options};
use intercom_types::{Clearance, Delivery};

/// `✅ Allowed by ana at … · delivered · ran`.
pub(super) fn decided(clearance: &Clearance, people: &OperatorDirectory) -> MrkdwnText {
    let by = by(clearance, people);
    let when = at(clearance.decided_at);
    let reason = reason(clearance);
    let head = match clearance.status.as_str() {
        "approved" => MrkdwnText::new("✅ Allowed").and(by).and(when).and(option(clearance)).and(reason),
        "denied" => MrkdwnText::new("⛔ Denied").and(by).and(when).and(option(clearance)).and(reason),
        // Nobody decided these, so only the reason is shown.
        "withdrawn" => MrkdwnText::new("⚪ Withdrawn").and(when).and(reason),
        "expired" => MrkdwnText::new("⌛ Expired").and(when).and(reason),
        other => {
            MrkdwnText::new("⚪ ").and(MrkdwnText::untrusted(other).cut(40)).and(by).and(when).and(reason)
        }
    };
    let arrived = &clearance.delivery;
    let answered = matches!(clearance.status.as_str(), "approved" | "denied");
    let arrived = if answered || matches!(arrived, Delivery::Failed(_)) {
        delivery(arrived)
    } else {
        MrkdwnText::default()
    };
    let outcome = clearance
        .outcome
        .as_deref()
        .map(|outcome| MrkdwnText::untrusted(outcome).cut(200))
        .unwrap_or_default();
    MrkdwnText::join([head, arrived, outcome], " · ")
}

fn by(clearance: &Clearance, people: &OperatorDirectory) -> MrkdwnText {
    let Some(by) = clearance.decided_by.as_deref().filter(|by| !by.is_empty()) else {
        return MrkdwnText::default();
    };
    match clearance.decided_via.as_deref() {
        Some("policy") => MrkdwnText::new(" by the rule ").and(MrkdwnText::untrusted(by).cut(80)),
        _ => MrkdwnText::new(" by ").and(people.show(by)),
    }
}

/// Returns the agent's option that was chosen, if it says more than our own verb.
fn option(clearance: &Clearance) -> MrkdwnText {
    let Some(chosen) = clearance.option.as_deref() else { return MrkdwnText::default() };
    let own = options::own(clearance).iter().find(|option| option.id == chosen);
    own.map(|option| MrkdwnText::new(" (").and(MrkdwnText::untrusted(options::name(option)).cut(75)).and(")"))
        .unwrap_or_default()
}

fn reason(clearance: &Clearance) -> MrkdwnText {
    let reason = clearance.reason.as_deref().filter(|reason| !reason.trim().is_empty());
    reason.map(|reason| MrkdwnText::new(": ").and(MrkdwnText::untrusted(reason).cut(500))).unwrap_or_default()
}
