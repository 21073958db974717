//! Which colour means what.

use super::terminal::Style;
use crate::answers::Session;

pub(super) fn phase_style(session: &Session) -> Style {
    let stalled = session.standing.as_ref().and_then(|standing| standing.state.as_deref());
    match session.phase.as_str() {
        "working" | "idle" if matches!(stalled, Some("stuck" | "gone")) => Style::Red,
        "waiting" => Style::Yellow,
        "working" => Style::Green,
        "stopping" | "parked" => Style::Red,
        "ended" => Style::Dim,
        _ => Style::Plain,
    }
}

pub(super) fn risk_style(risk: &str) -> Style {
    match risk {
        "low" => Style::Green,
        "medium" => Style::Yellow,
        _ => Style::Red,
    }
}

pub(super) fn status_style(status: &str) -> Style {
    match status {
        "pending" | "queued" => Style::Yellow,
        "approved" | "answered" | "delivered" => Style::Green,
        "denied" | "failed" => Style::Red,
        _ => Style::Dim,
    }
}
