//! The outcome of a request.

use super::super::kit::Words;
use super::{People, at, delivery, options};
use intercom_types::{Clearance, Delivery};

/// `✅ Allowed by ana at … · delivered · ran`.
pub(super) fn decided(clearance: &Clearance, people: &People) -> Words {
    let by = by(clearance, people);
    let when = at(clearance.decided_at);
    let reason = reason(clearance);
    let head = match clearance.status.as_str() {
        "approved" => Words::new("✅ Allowed").and(by).and(when).and(option(clearance)).and(reason),
        "denied" => Words::new("⛔ Denied").and(by).and(when).and(option(clearance)).and(reason),
        // Nobody decided these; what is said is why.
        "withdrawn" => Words::new("⚪ Withdrawn").and(when).and(reason),
        "expired" => Words::new("⌛ Expired").and(when).and(reason),
        other => Words::new("⚪ ").and(Words::said(other).cut(40)).and(by).and(when).and(reason),
    };
    let arrived = &clearance.delivery;
    let answered = matches!(clearance.status.as_str(), "approved" | "denied");
    let arrived =
        if answered || matches!(arrived, Delivery::Failed(_)) { delivery(arrived) } else { Words::default() };
    let outcome =
        clearance.outcome.as_deref().map(|outcome| Words::said(outcome).cut(200)).unwrap_or_default();
    Words::join([head, arrived, outcome], " · ")
}

fn by(clearance: &Clearance, people: &People) -> Words {
    let Some(by) = clearance.decided_by.as_deref().filter(|by| !by.is_empty()) else {
        return Words::default();
    };
    match clearance.decided_via.as_deref() {
        Some("policy") => Words::new(" by the rule ").and(Words::said(by).cut(80)),
        _ => Words::new(" by ").and(people.show(by)),
    }
}

/// Which of the agent's own options it was, where that says more than our own word.
fn option(clearance: &Clearance) -> Words {
    let Some(chosen) = clearance.option.as_deref() else { return Words::default() };
    let own = options::own(clearance).iter().find(|option| option.id == chosen);
    own.map(|option| Words::new(" (").and(Words::said(options::name(option)).cut(75)).and(")"))
        .unwrap_or_default()
}

fn reason(clearance: &Clearance) -> Words {
    let reason = clearance.reason.as_deref().filter(|reason| !reason.trim().is_empty());
    reason.map(|reason| Words::new(": ").and(Words::said(reason).cut(500))).unwrap_or_default()
}
