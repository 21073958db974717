//! Nudges and interrupts: what operators say to an agent beside its prompts.

use serde::{Deserialize, Serialize};

use super::{Delivery, SessionId};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NudgeRequest {
    /// The configured `nudge_text` of its agent if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NudgeAnswer {
    pub session: SessionId,
    pub message: String,
    #[serde(flatten)]
    pub delivery: Delivery,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterruptRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether to wait a moment for its delivery; it is waited for unless this is `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InterruptAnswer {
    pub session: SessionId,
    pub reason: String,
    #[serde(flatten)]
    pub delivery: Delivery,
}
