//! The health of the daemon.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    pub status: String,
    pub version: String,
    /// Only for callers with a role.
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
    /// Problems that need a person, such as a broken audit chain or a database that cannot be written.
    #[serde(default)]
    #[schemars(!default)]
    pub warnings: Vec<String>,
    /// Lines of agents that the daemon rejected since its start because it failed at them. Any is a bug in intercom.
    #[serde(default)]
    #[schemars(!default)]
    pub quarantined_lines: u64,
    /// The migration of a log of an earlier release, which runs beside everything else; absent when it is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_migration: Option<LogMigration>,
    /// The caller's name and role.
    pub you: HealthCaller,
}

/// The progress of a migration, in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogMigration {
    pub done: u64,
    pub total: u64,
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
    /// True if the caller may start and resume agents.
    #[serde(default)]
    #[schemars(!default)]
    pub may_start: bool,
}
