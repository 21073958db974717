//! Payloads of events about prompts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Content, PromptId, TurnId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptQueued {
    pub prompt: PromptId,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptSending {
    pub prompt: PromptId,
    pub turn: Option<TurnId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptDelivered {
    pub prompt: PromptId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptUndelivered {
    pub prompt: PromptId,
    pub cause: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptRequeued {
    pub prompt: PromptId,
    pub cause: String,
    /// The queue from then on, if there is more in it. Earlier releases did not record it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<PromptId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptWithdrawn {
    pub prompt: PromptId,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptAmended {
    pub prompt: PromptId,
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    pub place: Option<usize>,
    pub by: String,
    /// The queue from then on, if the prompt has another place in it. Earlier releases did not record it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<PromptId>,
}
