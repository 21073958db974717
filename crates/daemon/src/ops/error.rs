//! Refusals and faults of operations. Their HTTP status is a table at the HTTP edge.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::session::{CommandError, CommandRefusal};
use crate::supervisor::StartRefusal;
use intercom_store::StoreError;
use intercom_types::text::short;
use intercom_types::{ErrorAttachment, SessionRecord};

/// The reason why an operation was not carried out, or not completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpError {
    pub kind: ErrorKind,
    pub code: Cow<'static, str>,
    pub message: String,
    pub hint: Option<String>,
    pub attached: Option<Box<ErrorAttachment>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    Invalid,
    Forbidden,
    NotFound,
    Conflict,
    /// It existed and was removed.
    Removed,
    Unprocessable,
    TooMany,
    Internal,
    Unavailable,
    NoAnswer,
}

impl ErrorKind {
    /// Returns true if nothing was done and a retry may succeed.
    pub fn is_fault(self) -> bool {
        matches!(self, Self::Internal | Self::Unavailable | Self::NoAnswer)
    }
}

impl OpError {
    pub(crate) fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind, code: code.into(), message: message.into(), hint: None, attached: None }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, "bad_request", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, "forbidden", message)
    }

    /// Returns an error for a fault of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, "internal", message)
    }

    pub fn unprocessable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unprocessable, code, message)
    }

    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, code, message)
    }

    pub(crate) fn not_found(what: &str, typed: &str) -> Self {
        let message = format!("no {what} matches `{typed}`");
        let error = Self::new(ErrorKind::NotFound, "not_found", message);
        let list = match what {
            "session" => "`intercom ls --all` lists the sessions",
            "clearance" => "`intercom clearances --all` lists the clearances",
            "question" => "`intercom questions --all` lists the questions",
            "prompt" => "`intercom prompts SES` lists the prompts of a session",
            "token" => "`intercom token list` lists the tokens",
            _ => return error,
        };
        error.hint(list)
    }

    pub(crate) fn ambiguous(what: &str, typed: &str, ids: &[String]) -> Self {
        let message = format!("`{typed}` matches several {what}s");
        Self::conflict("ambiguous_id", message).hint(format!("use a longer prefix: {}", ids.join(", ")))
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the message and the hint in one sentence.
    pub fn sentence(&self) -> String {
        let message = &self.message;
        self.hint.as_ref().map_or_else(|| message.clone(), |hint| format!("{message}: {hint}"))
    }

    /// Replaces `SES` in the hint by the session's own name.
    #[must_use]
    pub(super) fn naming(mut self, session: &SessionRecord) -> Self {
        let label = session.name.clone().unwrap_or_else(|| short(&session.id.to_string()));
        self.hint = self.hint.map(|hint| hint.replace(" SES", &format!(" {label}")));
        self
    }

    pub(super) fn with(mut self, attached: ErrorAttachment) -> Self {
        self.attached = Some(Box::new(attached));
        self
    }
}

/// The conversion for readers that only need to know that the store cannot be read now.
impl From<OpError> for StoreError {
    fn from(error: OpError) -> Self {
        Self::Unavailable(error.sentence())
    }
}

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a request failed");
        match error {
            StoreError::Corrupt { .. } => Self::internal(error.to_string()),
            StoreError::Removed => Self::conflict("ended", error.to_string()),
            _ => Self::new(ErrorKind::Unavailable, "store_unavailable", error.to_string())
                .hint("nothing was changed; check the free disk space and try again"),
        }
    }
}

impl From<CommandError> for OpError {
    fn from(error: CommandError) -> Self {
        let message = error.to_string();
        match error {
            CommandError::Store(error) => error.into(),
            CommandError::Failed(_) => Self::internal(message),
            CommandError::Overloaded => Self::new(ErrorKind::TooMany, "overloaded", message),
            CommandError::Refused(refused) => match refused {
                CommandRefusal::Ended | CommandRefusal::Parked => {
                    Self::conflict("ended", message).hint("`intercom resume SES` starts it again")
                }
                CommandRefusal::Stopping => Self::conflict("ended", message),
                CommandRefusal::Approved(_) => Self::conflict("already_approved", message),
                CommandRefusal::OptionRequired(_) => Self::unprocessable("option_required", message),
                CommandRefusal::NothingToList => Self::unprocessable("nothing_to_list", message),
                CommandRefusal::NothingToSet => Self::unprocessable("nothing_to_set", message),
                CommandRefusal::OtherOption(_) => Self::conflict("other_option", message),
                CommandRefusal::NotStarted => Self::conflict("not_started", message).hint(
                    "`intercom send SES TEXT` starts it with a prompt, `intercom resume SES` without one",
                ),
                CommandRefusal::Started => Self::conflict("started", message),
                CommandRefusal::Widens { .. } => Self::new(ErrorKind::Forbidden, "forbidden", message),
                CommandRefusal::Starting => Self::conflict("starting", message),
                CommandRefusal::Unread(_) => Self::new(ErrorKind::TooMany, "agent_not_reading", message),
                CommandRefusal::Left => Self::new(ErrorKind::Unavailable, "stopping", message),
                CommandRefusal::Running => Self::conflict("running", message),
                CommandRefusal::Orphan => Self::conflict("orphan", message)
                    .hint("`intercom stop SES && intercom resume SES` ends it and starts it again"),
                CommandRefusal::NotOpen => Self::conflict("already_decided", message),
                CommandRefusal::NotQueued => Self::conflict("already_sent", message),
                CommandRefusal::QueueFull(_) => Self::new(ErrorKind::TooMany, "queue_full", message)
                    .hint("take prompts back with `intercom prompts SESSION --remove PROMPT`"),
            },
        }
    }
}

impl From<StartRefusal> for OpError {
    fn from(refused: StartRefusal) -> Self {
        let message = refused.to_string();
        match refused {
            StartRefusal::Invalid(_) => Self::bad_request(message),
            StartRefusal::TooMany(_) => Self::new(ErrorKind::TooMany, "too_many_sessions", message)
                .hint("stop one, or raise max_sessions under [limits] in the configuration"),
            StartRefusal::LowMemory { .. } => Self::new(ErrorKind::Unavailable, "low_memory", message)
                .hint("stop a session, or lower min_free_memory_mib under [limits]"),
            StartRefusal::UsedUp { advice, .. } => {
                Self::new(ErrorKind::Unavailable, "machine_limit", message).hint(advice)
            }
            StartRefusal::NameTaken(_) => Self::conflict("name_taken", message),
            StartRefusal::Closing => Self::new(ErrorKind::Unavailable, "stopping", message),
            StartRefusal::SpawnFailed { id, cause } => {
                let refused = Self::unprocessable("spawn_failed", message).with(ErrorAttachment::Session(id));
                match missing_program_hint(&cause) {
                    Some(hint) => refused.hint(hint),
                    None => refused,
                }
            }
            StartRefusal::Command(error) => error.into(),
            StartRefusal::Store(error) => error.into(),
        }
    }
}

/// Returns the advice for a missing program, unless the cause has one.
fn missing_program_hint(cause: &str) -> Option<&'static str> {
    if cause.contains("; install it: ") {
        None
    } else if cause.starts_with("command not found: ") && cause.contains('/') {
        Some("install the program there, or correct the path")
    } else if cause.starts_with("command not found: ") {
        Some(
            "install it, or give the full path of the program; the daemon looks on the PATH that it was started with: \
             `intercom daemon restart` gives it the one of your shell",
        )
    } else if cause.starts_with("not an executable file: ") {
        Some("make it executable with `chmod +x`, or name the program that runs it")
    } else {
        None
    }
}
