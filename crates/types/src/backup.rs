//! Copies of the database: the request, the result and the progress.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    pub path: PathBuf,
    /// Replaces an existing file, once the new one is complete.
    #[serde(default)]
    pub replace: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BackedUp")]
pub struct BackupResult {
    pub path: PathBuf,
    pub bytes: u64,
    /// The growth of the write-ahead log during the copy, in bytes.
    pub log_growth_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupState {
    /// The running backup.
    pub running: Option<BackupProgress>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupProgress {
    pub path: PathBuf,
    pub copied_bytes: u64,
    /// The total; 0 until it is known.
    pub total_bytes: u64,
}
