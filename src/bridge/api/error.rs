//! Errors as callers see them: `{"error": {code, message, hint}}`.

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::domain::SessionRecord;
use crate::session::{CommandError, Refused};
use crate::store::StoreError;
use crate::supervisor::StartRefused;
use crate::text::short;

#[derive(Debug)]
pub(in crate::bridge) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
    /// Beside `error` in the body.
    extra: Option<(&'static str, Box<Value>)>,
}

impl ApiError {
    pub(in crate::bridge) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: None, extra: None }
    }

    pub(in crate::bridge) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// A fault of ours.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(super) fn unprocessable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    pub(super) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    pub(super) fn not_found(what: &str, typed: &str) -> Self {
        let message = format!("no {what} is known as `{typed}`");
        let error = Self::new(StatusCode::NOT_FOUND, "not_found", message);
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

    pub(super) fn ambiguous(what: &str, typed: &str, ids: &[String]) -> Self {
        let message = format!("`{typed}` could be several {what}s");
        Self::conflict("ambiguous_id", message).hint(format!("type more of it: {}", ids.join(", ")))
    }

    pub(super) fn is_too_many(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }

    pub(super) fn into_message(self) -> String {
        self.message
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    pub(in crate::bridge) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with the session's own name where its hint says `SES`.
    pub(super) fn naming(mut self, session: &SessionRecord) -> Self {
        let label = session.name.clone().unwrap_or_else(|| short(&session.id.to_string()));
        self.hint = self.hint.map(|hint| hint.replace(" SES", &format!(" {label}")));
        self
    }

    pub(super) fn with(mut self, key: &'static str, value: Value) -> Self {
        self.extra = Some((key, Box::new(value)));
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = json!({ "code": self.code, "message": self.message, "hint": self.hint });
        let mut body = json!({ "error": error });
        if let Some((key, value)) = self.extra {
            body[key] = *value;
        }
        (self.status, Json(body)).into_response()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a request failed");
        match error {
            StoreError::Corrupt { .. } => Self::internal(error.to_string()),
            StoreError::Removed => Self::conflict("ended", error.to_string()),
            _ => Self::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", error.to_string())
                .hint("nothing was changed; look at the free disk space and try again"),
        }
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        let message = error.to_string();
        match error {
            CommandError::Store(error) => error.into(),
            CommandError::Failed(_) => Self::internal(message),
            CommandError::Overloaded => Self::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", message),
            CommandError::Refused(refused) => match refused {
                Refused::Ended | Refused::Parked => {
                    Self::conflict("ended", message).hint("`intercom resume SES` starts it again")
                }
                Refused::Stopping => Self::conflict("ended", message),
                Refused::Approved(_) => Self::conflict("already_approved", message),
                Refused::OptionRequired(_) => Self::unprocessable("option_required", message),
                Refused::NothingToList => Self::unprocessable("nothing_to_list", message),
                Refused::NothingToSet => Self::unprocessable("nothing_to_set", message),
                Refused::OtherOption(_) => Self::conflict("other_option", message),
                Refused::NotStarted => Self::conflict("not_started", message).hint(
                    "`intercom send SES TEXT` starts it with a prompt, `intercom resume SES` without one",
                ),
                Refused::Started => Self::conflict("started", message),
                Refused::Widens { .. } => Self::new(StatusCode::FORBIDDEN, "forbidden", message),
                Refused::Starting => Self::conflict("starting", message),
                Refused::Unread(_) => Self::new(StatusCode::TOO_MANY_REQUESTS, "agent_not_reading", message),
                Refused::Left => Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message),
                Refused::Running => Self::conflict("running", message),
                Refused::Orphan => Self::conflict("orphan", message)
                    .hint("`intercom stop SES && intercom resume SES` ends it and starts it again"),
                Refused::NotOpen => Self::conflict("already_decided", message),
                Refused::NotQueued => Self::conflict("already_sent", message),
                Refused::QueueFull(_) => Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
                    .hint("take prompts back with `intercom prompts SESSION --remove PROMPT`"),
            },
        }
    }
}

impl From<StartRefused> for ApiError {
    fn from(refused: StartRefused) -> Self {
        let message = refused.to_string();
        match refused {
            StartRefused::Invalid(_) => Self::bad_request(message),
            StartRefused::TooMany(_) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sessions", message)
                    .hint("stop one, or raise max_sessions under [limits] in the configuration")
            }
            StartRefused::LowMemory { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "low_memory", message)
                    .hint("stop a session, or lower min_free_memory_mib under [limits]")
            }
            StartRefused::NameTaken(_) => Self::conflict("name_taken", message),
            StartRefused::Closing => Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message),
            StartRefused::SpawnFailed { id, cause } => {
                let refused = Self::unprocessable("spawn_failed", message).with("session", json!(id));
                match missing_program_hint(&cause) {
                    Some(hint) => refused.hint(hint),
                    None => refused,
                }
            }
            StartRefused::Command(error) => error.into(),
            StartRefused::Store(error) => error.into(),
        }
    }
}

/// Returns what to do about a program that is missing, unless the cause says it.
fn missing_program_hint(cause: &str) -> Option<&'static str> {
    if cause.contains("; install it: ") {
        None
    } else if cause.starts_with("command not found: ") && cause.contains('/') {
        Some("put the program there, or give its right path")
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

pub(in crate::bridge) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("there is nothing at {}", uri.path()))
}

pub(in crate::bridge) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
