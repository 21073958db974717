//! Payloads of events about a session as a whole.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::rfc3339;
use crate::{Json, OnClientLeft, Preset, StopMode, Time};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionCreated {
    pub name: Option<String>,
    pub agent: Option<String>,
    pub protocol: String,
    pub workspace: PathBuf,
    pub command: String,
    pub by: String,
    /// The first prompt starts its process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deferred: bool,
    /// Omitted for `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_client_left: Option<OnClientLeft>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionAgentChanged {
    pub agent: Option<String>,
    pub protocol: String,
    pub command: String,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionPresetChanged {
    pub preset: Preset,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionKept {
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionAdopted {
    pub generation: u32,
    /// `null` if its shim has not reported it yet.
    pub pid: Option<i32>,
    /// The knowledge that the database lacks.
    pub why: String,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionUnenforced {
    /// The agent's report of what it did.
    pub tool: Json,
    /// The reason and what to do about it, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionStopping {
    #[serde(rename = "how")]
    pub mode: StopMode,
    pub by: String,
    /// The process will be restarted.
    #[serde(default, rename = "again", skip_serializing_if = "std::ops::Not::not")]
    pub to_restart: bool,
    /// The reason, unless the end was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionResumed {
    pub generation: u32,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionEnded {
    /// Short, for programs: `stream closed`, `stopped by NAME`.
    pub reason: String,
    /// The exit in a sentence, unless it was requested.
    #[serde(default)]
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionSeen {
    pub reason: String,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub failed_at: Time,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionParked {
    pub reason: String,
    #[serde(default)]
    pub why: Option<String>,
    pub stderr_tail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpendCapped {
    pub why: String,
}
