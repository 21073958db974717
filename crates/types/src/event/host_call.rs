//! Payloads of events about files and terminals that an agent has the host use for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClearanceId, Json, RequestId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileRead {
    pub path: String,
    /// The path inside of the workspace.
    pub at: String,
    pub request: RequestId,
    pub clearance: Option<ClearanceId>,
    pub bytes: u64,
    pub missing: bool,
    pub line: Option<u64>,
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileWritten {
    pub path: String,
    /// The path inside of the workspace.
    pub at: String,
    pub request: RequestId,
    pub clearance: Option<ClearanceId>,
    pub bytes: u64,
    pub created: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminalStarted {
    pub terminal: String,
    pub command: String,
    pub cwd: String,
    pub request: RequestId,
    pub clearance: Option<ClearanceId>,
    pub pid: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminalOutput {
    pub terminal: String,
    pub request: RequestId,
    pub clearance: Option<ClearanceId>,
    pub bytes: usize,
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminalKilled {
    pub terminal: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminalReleased {
    pub terminal: String,
    pub request: RequestId,
    pub clearance: Option<ClearanceId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminalEnded {
    pub terminal: String,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostCallFailed {
    pub request: RequestId,
    pub method: String,
    pub clearance: Option<ClearanceId>,
    pub reason: String,
    /// The path, command or terminal, or the parameters of a refused call.
    pub about: Option<Json>,
}
