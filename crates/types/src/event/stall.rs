//! Payloads of events about stalls, the ladder, and limits of the agent's service.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::rfc3339;
use crate::{Json, Rung, Situation, Time};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StallStepTaken {
    pub step: Rung,
    /// The rung with its attempt: `nudge 2`.
    pub name: String,
    pub number: usize,
    pub of: usize,
    pub state: Situation,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub quiet_since: Time,
    pub quiet_seconds: u64,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StallStepFailed {
    pub step: Rung,
    pub name: String,
    pub seconds: u64,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StallRecovered {
    /// The last step that was taken.
    pub after: String,
    pub seconds: u64,
    /// The sign of life: `output`, `heartbeat` or `activity`.
    pub by: String,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub quiet_since: Time,
    pub summary: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StallReset {
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StallSnoozed {
    /// `null` ends the snooze.
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Time>,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LadderChanged {
    /// `on`, `off`, or the rungs with commas between them.
    pub ladder: String,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StallReminder {
    /// The open requests in words: `1 clearance`.
    pub waiting_for: String,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub since: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitReached {
    pub limit: String,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub until: Time,
    /// intercom tells the agent to continue when the limit is over.
    pub resumes: bool,
    pub params: Json,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitOver {
    pub limit: String,
    pub resumed: bool,
}
