//! Payloads of events about turns and the messages that steer them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Json, TurnId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnStarted {
    pub turn: TurnId,
    /// `prompt`, or `agent` for a turn that the agent began by itself.
    pub cause: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnEnded {
    pub turn: Option<TurnId>,
    pub stop_reason: String,
    /// The agent's own message about the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Json>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// `false` if an interrupted agent did not confirm the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nudged {
    pub message: String,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interrupted {
    pub reason: String,
    pub by: String,
}

/// A nudge or an interrupt did not reach the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageUndelivered {
    pub cause: String,
}
