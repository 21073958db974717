//! The errors of commands: the cause, the remedy, and the exit code.

use std::fmt;
use std::process::ExitCode;

use serde_json::json;

use super::ctrl_c::{self, InterruptedByUser};
use super::gutter::advice_lines;
use super::output::{self, StdoutClosed};
use super::terminal::{Paint, TerminalStyle, stderr_columns};
use super::time::local_times;
use super::{CliContext, shell_variables};
use intercom_types::text::clean;
use intercom_types::{ErrorAttachment, ErrorBody, ErrorDetail, Session};

/// An error that we found ourselves.
#[derive(Debug)]
pub(super) struct CliFailure {
    message: String,
    hint: Option<String>,
    exit: u8,
    /// True if the answer on stdout contains the error already.
    answered: bool,
}

impl CliFailure {
    /// Returns a failure: exit 1.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit: 1, answered: false }
    }

    /// Returns the failure of an agent, with advice: exit 1.
    pub(super) fn of_agent(session: &Session, reason: &str, cx: &CliContext) -> Self {
        let failure = Self::failed(format!("{} failed: {reason}", session.label()));
        let hint = || session.failed.as_ref().and_then(|failed| failed.hint.clone());
        match shell_variables::log_in_hint(session, cx).or_else(hint) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// Returns the failure for a wrong command line or configuration: exit 2.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit: 2, answered: false }
    }

    /// Marks the output on stdout as the answer: with `--json` no second document follows.
    pub(super) fn answered(self) -> Self {
        Self { answered: true, ..self }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CliFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliFailure {}

/// The daemon's refusal. The whole body is kept, because some refusals contain more than the error.
#[derive(Debug)]
pub(super) struct DaemonRefusal {
    pub(super) status: u16,
    pub(super) code: String,
    /// The data that belongs to the refusal, as far as this version knows it.
    pub(super) attached: Option<ErrorAttachment>,
    pub(super) body: String,
    message: String,
    hint: Option<String>,
}

impl DaemonRefusal {
    /// Reads `{"error": {code, message, hint}}`; any other body becomes the message, as far as possible.
    pub(super) fn new(status: u16, body: String) -> Self {
        if let Ok(ErrorBody { attached, error: ErrorDetail { code, message, hint } }) =
            serde_json::from_str(&body)
        {
            return Self {
                status,
                code: code.into_owned(),
                attached: attached.map(|attached| *attached),
                body,
                message,
                hint,
            };
        }
        let mut message = format!("the daemon answered with status {status}");
        let reason = clean(body.trim());
        if !reason.is_empty() {
            message = format!("{message}: {reason}");
        }
        Self { status, code: String::new(), attached: None, body, message, hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the remedy in the daemon's hint.
    pub(super) fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for DaemonRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DaemonRefusal {}

/// Returns `{"error": {code, message, hint}}`: the daemon's error unchanged, or ours in the same form.
pub(super) fn as_json(error: &anyhow::Error) -> String {
    let (code, hint) = match (error.downcast_ref::<DaemonRefusal>(), error.downcast_ref::<CliFailure>()) {
        (Some(refusal), _) if !refusal.code.is_empty() => return refusal.body.clone(),
        (_, Some(failure)) => (if failure.exit == 2 { "usage" } else { "failed" }, failure.hint.as_deref()),
        _ => ("failed", None),
    };
    json!({ "error": { "code": code, "message": format!("{error:#}"), "hint": hint } }).to_string()
}

/// Returns true if stdout has an answer already.
pub(super) fn is_answered(error: &anyhow::Error) -> bool {
    error.is::<StdoutClosed>()
        || error.is::<InterruptedByUser>()
        || error.downcast_ref::<CliFailure>().is_some_and(|failure| failure.answered)
}

/// Reports the error and returns the exit code. A closed stdout is not a failure.
pub(super) fn report(error: &anyhow::Error, paint: Paint) -> ExitCode {
    if error.is::<StdoutClosed>() {
        return ExitCode::SUCCESS;
    }
    if error.is::<InterruptedByUser>() {
        return ExitCode::from(ctrl_c::EXIT);
    }
    let (hint, exit) = if let Some(failure) = error.downcast_ref::<CliFailure>() {
        (failure.hint.as_deref(), failure.exit)
    } else if let Some(refusal) = error.downcast_ref::<DaemonRefusal>() {
        (refusal.hint.as_deref(), 1)
    } else {
        (None, 1)
    };
    say("error:", TerminalStyle::Red, &format!("{error:#}"), paint);
    if let Some(hint) = hint {
        say("hint:", TerminalStyle::Cyan, hint, paint);
    }
    ExitCode::from(exit)
}

fn say(label: &str, style: TerminalStyle, text: &str, paint: Paint) {
    let lines = advice_lines(&format!("{label} {}", clean(&local_times(text))), stderr_columns());
    let text = lines.join("\n");
    output::print_note(&format!("{}{}", paint.style(style, label), &text[label.len()..]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_from_the_error_body() {
        let body = r#"{"error":{"code":"ended","message":"it ended","hint":null},"session":1}"#;
        let refusal = DaemonRefusal::new(409, body.to_owned());
        assert_eq!((refusal.code.as_str(), refusal.to_string().as_str()), ("ended", "it ended"));
        assert_eq!(refusal.body, body);
    }

    #[test]
    fn an_unexpected_error_body_is_shown_cleaned() {
        let refusal = DaemonRefusal::new(500, "oh\u{1b}[2J".to_owned());
        assert_eq!(refusal.to_string(), "the daemon answered with status 500: oh<U+001B>[2J");
        assert_eq!(
            DaemonRefusal::new(502, " ".to_owned()).to_string(),
            "the daemon answered with status 502"
        );
    }

    #[test]
    fn an_error_is_json_in_the_daemons_form_whoever_found_it() {
        let body = r#"{"error":{"code":"ended","message":"it ended","hint":null},"session":1}"#;
        assert_eq!(as_json(&DaemonRefusal::new(409, body.to_owned()).into()), body);
        let ours = as_json(&CliFailure::usage("no").hint("yes").into());
        assert_eq!(ours, r#"{"error":{"code":"usage","message":"no","hint":"yes"}}"#);
        let odd = as_json(&DaemonRefusal::new(502, "oh".to_owned()).into());
        assert!(odd.contains(r#""code":"failed""#) && odd.contains("status 502: oh"), "{odd}");
    }

    #[test]
    fn a_reader_that_went_away_is_a_quiet_success() {
        let code = report(&anyhow::Error::new(StdoutClosed), Paint::OFF);
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
    }
}
