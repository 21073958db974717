//! The meaning of colours.

use super::terminal::TerminalStyle;
use intercom_types::Session;

pub(super) fn phase_style(session: &Session) -> TerminalStyle {
    match session.phase_word() {
        "waiting" => TerminalStyle::Yellow,
        "working" => TerminalStyle::Green,
        Session::FAILED | Session::STUCK | Session::ORPHAN | "stopping" | "parked" => TerminalStyle::Red,
        "ended" => TerminalStyle::Dim,
        _ => TerminalStyle::Plain,
    }
}

pub(super) fn risk_style(risk: &str) -> TerminalStyle {
    match risk {
        "low" => TerminalStyle::Green,
        "medium" => TerminalStyle::Yellow,
        _ => TerminalStyle::Red,
    }
}

pub(super) fn status_style(status: &str) -> TerminalStyle {
    match status {
        "pending" | "queued" => TerminalStyle::Yellow,
        "approved" | "answered" | "delivered" => TerminalStyle::Green,
        "denied" | "failed" => TerminalStyle::Red,
        _ => TerminalStyle::Dim,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_failure_is_red_until_it_was_seen_or_the_agent_works_again() {
        let styled = |phase: &str, failed: Value| {
            let session: Session = serde_json::from_value(
                json!({ "id": "ses_0123456789abcdef", "phase": phase, "failed": failed }),
            )
            .unwrap();
            (session.phase_word().to_owned(), phase_style(&session))
        };
        let failed = json!({ "reason": "no log-in", "at": "2026-03-04T11:58:00Z", "hint": "log in" });
        for phase in ["idle", "ended", "starting"] {
            assert_eq!(styled(phase, failed.clone()), ("failed".to_owned(), TerminalStyle::Red));
        }
        assert_eq!(styled("parked", failed.clone()), ("parked".to_owned(), TerminalStyle::Red));
        assert_eq!(styled("working", failed), ("working".to_owned(), TerminalStyle::Green));
        assert_eq!(styled("ended", Value::Null), ("ended".to_owned(), TerminalStyle::Dim));
    }
}
