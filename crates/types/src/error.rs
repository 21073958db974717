//! Errors as callers of the API see them: `{"error": {code, message, hint}}`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Clearance, Question, SessionId};

/// The body of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The object that belongs to the error, beside it and under its own name.
    #[serde(flatten)]
    pub attached: Option<Box<ErrorAttachment>>,
    pub error: ErrorDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    pub code: Cow<'static, str>,
    pub message: String,
    pub hint: Option<String>,
}

/// Data that belongs to an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorAttachment {
    Clearance(Box<Clearance>),
    Question(Box<Question>),
    /// The rule that would be stored now.
    Proposal(Value),
    Session(SessionId),
    /// The oldest event that is still in the log.
    Oldest(u64),
    /// The agent's own error.
    AgentError(Value),
}
