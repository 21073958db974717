//! Refusals of a client's requests, as JSON-RPC errors.

use serde_json::{Value, json};

use intercom_daemon::ops::{ErrorKind, OpError};
use intercom_types::ErrorAttachment;
use intercom_types::{Json, RequestId};
use intercom_wire::jsonrpc::{self, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, RESOURCE_NOT_FOUND};

/// The code for a missing permission. It is not one of the protocol's codes: -32000 would make clients ask for a
/// log-in.
pub(super) const FORBIDDEN: i64 = -32001;
/// The code that an older profile of the protocol has where newer ones have specific codes.
const SERVER_ERROR: i64 = -32000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RpcRefusal {
    pub(super) code: i64,
    message: String,
    data: Option<Json>,
}

impl RpcRefusal {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(super) fn with(self, data: &Value) -> Self {
        Self { data: Some(Json::of(data)), ..self }
    }

    pub(super) fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub(super) fn request(message: impl Into<String>) -> Self {
        Self::new(INVALID_REQUEST, message)
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, message)
    }

    pub(super) fn no_session(id: &str) -> Self {
        Self::new(RESOURCE_NOT_FOUND, format!("there is no session `{id}`")).with(&json!({ "sessionId": id }))
    }

    pub(super) fn is_no_session(&self) -> bool {
        self.code == RESOURCE_NOT_FOUND
    }

    /// Converts an error of an agent; code, message and data stay unchanged if they can be read.
    pub(super) fn of_agent(error: &Json) -> Self {
        let Ok(read) = serde_json::from_str::<Value>(error.as_str()) else {
            return Self::internal("the agent failed");
        };
        let message = read["message"].as_str().unwrap_or("the agent failed").to_owned();
        let data = read.get("data").map(Json::of);
        Self { code: read["code"].as_i64().unwrap_or(INTERNAL_ERROR), message, data }
    }

    /// Returns the refusal with the codes that a client without a connection expects.
    pub(super) fn with_legacy_codes(self) -> Self {
        let code = match self.code {
            FORBIDDEN | RESOURCE_NOT_FOUND => SERVER_ERROR,
            INTERNAL_ERROR if self.is_too_many() => SERVER_ERROR,
            code => code,
        };
        Self { code, ..self }
    }

    fn is_too_many(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.as_str().contains("too_many"))
    }

    pub(super) fn line(&self, request: &RequestId) -> String {
        jsonrpc::error(request, self.code, &self.message, self.data.as_ref())
    }
}

impl From<OpError> for RpcRefusal {
    fn from(error: OpError) -> Self {
        if let Some(ErrorAttachment::AgentError(theirs)) = error.attached.as_deref()
            && theirs.is_object()
        {
            return Self::of_agent(&Json::of(theirs));
        }
        let code = match error.kind {
            // The request was valid; the agent's program failed.
            ErrorKind::Unprocessable if error.code == "spawn_failed" => INTERNAL_ERROR,
            ErrorKind::Invalid | ErrorKind::Unprocessable => INVALID_PARAMS,
            ErrorKind::Forbidden => FORBIDDEN,
            ErrorKind::NotFound | ErrorKind::Removed => RESOURCE_NOT_FOUND,
            ErrorKind::Conflict => INVALID_REQUEST,
            ErrorKind::TooMany | ErrorKind::Internal | ErrorKind::Unavailable | ErrorKind::NoAnswer => {
                INTERNAL_ERROR
            }
        };
        Self::new(code, error.sentence()).with(&json!({ "code": error.code }))
    }
}
