//! The health of the daemon.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    pub status: String,
    pub version: String,
    /// For callers with a role.
    #[serde(flatten)]
    pub more: Option<HealthDetails>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthDetails {
    pub sessions: SessionCounts,
    #[serde(default)]
    #[schemars(!default)]
    pub bridges: BTreeMap<String, String>,
    #[serde(default)]
    #[schemars(!default)]
    pub last_seq: u64,
    /// Conditions that need a person: a broken audit chain, a database that cannot be written.
    #[serde(default)]
    #[schemars(!default)]
    pub warnings: Vec<String>,
    /// Lines of agents at which the daemon has failed since its start, and which it has rejected for that. More than none
    /// is a bug in intercom.
    #[serde(default)]
    #[schemars(!default)]
    pub quarantined_lines: u64,
    /// Who you are here.
    pub you: HealthCaller,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Sessions")]
pub struct SessionCounts {
    pub live: i64,
    pub total: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "You")]
pub struct HealthCaller {
    pub name: String,
    pub role: String,
    /// Whether you may start and resume agents.
    #[serde(default)]
    #[schemars(!default)]
    pub may_start: bool,
}
