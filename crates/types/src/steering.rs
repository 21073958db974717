//! Requests of operators about a session other than prompts, and their answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Delivery, Json, OpenEnum, Phase, SessionId, SettingValue};

/// A session to start: exactly one of `agent` and `command`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    pub workspace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The ladder for a stuck agent: `on` (as configured), `off`, or its own steps, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ladder: Option<String>,
    /// An ACP agent's own session to resume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    /// The session has no process until its first prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub defer: bool,
    /// MCP servers for an ACP agent to connect to, in the format of the Agent Client Protocol: passed on unchanged,
    /// also to its later processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<serde_json::Map<String, serde_json::Value>>>")]
    pub mcp_servers: Option<Json>,
    /// For a session that an ACP client starts: `close` ends it some time after that client has left, unless another
    /// client uses it; `keep` does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_client_left: Option<String>,
    /// The limit of its permissions: `full` (the default), `read-only`, `safe` or `sandbox`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
}

/// The confirmation that an operator has seen a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureSeen {
    /// The `failed.at` that was shown: a later failure stays. Without it, the current failure is confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentChange {
    pub agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PresetChange {
    /// `full`, `read-only`, `safe` or `sandbox`.
    pub preset: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SnoozeRequest {
    /// A duration such as `30m`; `off` ends the snooze.
    pub r#for: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LadderChange {
    /// `on` (as configured), `off`, or steps separated by commas: `alert,nudge,escalate`.
    pub ladder: String,
}

/// Exactly one of `mode`, `model`, and `option` with its `value`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// The value; for a switch, a boolean is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<SettingValue>,
    /// Waits for the agent's answer, instead of for its delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<SettingWait>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SettingWait {
    Agent,
}

/// A setting on its way to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SettingSent {
    pub session: SessionId,
    /// The number that identifies the agent's answer in the log.
    pub set: Option<u64>,
    #[serde(flatten)]
    pub delivery: Delivery,
}

/// A setting that the agent has accepted. It holds raw JSON: a `Value` would change the agent's answer.
// Serialized directly: a `Value` in between would change the agent's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SettingAgreed {
    pub session: SessionId,
    pub set: u64,
    /// The agent's answer, unchanged.
    pub answer: Json,
}

/// The end of a session's processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StopResult {
    pub session: SessionId,
    pub phase: OpenEnum<Phase>,
    /// The steps that were needed.
    #[serde(default)]
    pub steps: Vec<String>,
    /// The number of processes that had to be killed.
    #[serde(default)]
    pub killed: u32,
    /// False if the database could not be written yet.
    #[serde(default = "recorded")]
    pub recorded: bool,
}

const fn recorded() -> bool {
    true
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NudgeRequest {
    /// The text; by default the configured `nudge_text` of the agent.
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
    /// Waits a moment for the delivery, unless this is `false`.
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
