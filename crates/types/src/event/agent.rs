//! Payloads of events about an agent's process and its reports about itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::rfc3339;
use crate::{Json, LineRejection, SettingValue, Time};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentSpawned {
    pub pid: i32,
    pub generation: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentReady {
    pub generation: u32,
    /// The agent's own description of itself; our own protocol has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Json>,
    /// A hash of the command line, if the agent's description of itself holds for every new session of its profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_fingerprint: Option<String>,
}

impl AgentReady {
    /// Returns the mode that the agent's profile has set.
    pub(crate) fn profile_mode(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct ReadyAgentFields {
            mode: Option<String>,
        }
        serde_json::from_str::<ReadyAgentFields>(self.agent.as_ref()?.as_str()).ok()?.mode
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputIncomplete {
    /// The bytes that were read from the pipe after all.
    pub rescued_bytes: u64,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentExited {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The rungs of the stop ladder that were needed.
    pub steps: Vec<String>,
    /// The number of processes that were killed.
    pub killed: u32,
    pub stderr_tail: String,
    pub generation: u32,
    /// The exit in a sentence, unless it was requested.
    #[serde(default)]
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRestarting {
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub at: Time,
    pub wait_ms: u64,
    pub attempt: u32,
    pub of: u32,
    pub reason: String,
    /// The exit in a sentence.
    #[serde(default)]
    pub why: Option<String>,
    pub generation: u32,
}

/// A message of the agent, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RawMessage(pub Json);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnknownMessage {
    pub message: Json,
    /// The reason why a request of a known method cannot be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A line that is not a usable message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct LineRejected(pub LineRejection);

/// A change that an operator requests from the agent: exactly one of `mode`, `model` and `option` is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentSetting {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<SettingValue>,
    pub by: String,
    /// The number that `agent.set_done` and `agent.not_set` repeat.
    pub set: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingAccepted {
    pub set: Option<u64>,
    pub result: Json,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingRefused {
    pub set: Option<u64>,
    pub reason: String,
    pub error: Json,
}
