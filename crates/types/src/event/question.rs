//! Payloads of events about questions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AgentRequest;
use crate::{Answer, QuestionId, QuestionStatus};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionAsked {
    pub question: QuestionId,
    pub text: String,
    pub r#type: Option<String>,
    pub request: AgentRequest,
    /// The generation of the process that asked. Earlier releases did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionAnswered {
    pub question: QuestionId,
    pub decision: Answer,
    pub instruction: Option<String>,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionDelivered {
    pub question: QuestionId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionUndelivered {
    pub question: QuestionId,
    pub cause: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionClosed {
    pub question: QuestionId,
    pub status: QuestionStatus,
    pub reason: String,
}
