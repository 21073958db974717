//! Copies of the database: the request, the result, and how far one is.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    pub path: PathBuf,
    /// Replace a file that exists, once the new one is complete.
    #[serde(default)]
    pub replace: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BackedUp")]
pub struct BackupResult {
    pub path: PathBuf,
    pub bytes: u64,
    /// How much the write-ahead log grew during the copy.
    pub log_growth_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupState {
    /// The backup that is being made.
    pub running: Option<BackupProgress>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupProgress {
    pub path: PathBuf,
    pub copied_bytes: u64,
    /// 0 until it is known.
    pub total_bytes: u64,
}
