//! Payloads of events about clearances.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::rfc3339;
use crate::{Choice, ClearanceId, ClearanceStatus, Json, RequestId, Risk, Ruling, Time, Verdict};

/// The agent's request, unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRequest {
    pub id: RequestId,
    pub params: Json,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClearanceRequested {
    pub clearance: ClearanceId,
    /// The command or change, on one line.
    #[serde(default)]
    pub action: Option<String>,
    pub title: String,
    pub description: Option<String>,
    pub diff: Option<String>,
    pub file_path: Option<String>,
    #[serde(default)]
    pub more_paths: Vec<String>,
    #[serde(default)]
    pub tool: Option<String>,
    #[serde(default)]
    pub command: Option<String>,
    pub risk: Risk,
    pub claimed_risk: Option<String>,
    #[serde(default)]
    pub computed_risk: Option<Risk>,
    #[serde(default)]
    pub risk_why: Vec<String>,
    #[serde(default)]
    pub ruling: Option<Ruling>,
    #[serde(default = "one")]
    pub needed: u32,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub expires_at: Option<Time>,
    #[serde(default)]
    pub options: Vec<Choice>,
    pub request: AgentRequest,
    /// The generation of the process that asked. Earlier releases did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
}

const fn one() -> u32 {
    1
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClearanceApproved {
    pub clearance: ClearanceId,
    #[serde(default)]
    pub action: Option<String>,
    #[serde(default)]
    pub title: String,
    pub by: String,
    pub via: String,
    pub reason: Option<String>,
    pub option: Option<String>,
    /// The number of approvals so far.
    pub approvals: usize,
    pub needed: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClearanceDecided {
    pub clearance: ClearanceId,
    #[serde(default)]
    pub action: Option<String>,
    #[serde(default)]
    pub title: String,
    pub status: ClearanceStatus,
    pub by: String,
    #[serde(default)]
    pub via: String,
    pub reason: Option<String>,
    pub option: Option<String>,
    #[serde(default)]
    pub approvals: Vec<String>,
    /// A ruling that replaces the one of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClearanceDelivered {
    pub clearance: ClearanceId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClearanceUndelivered {
    pub clearance: ClearanceId,
    pub cause: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClearanceOutcome {
    /// `null` if the agent refers to a request that is no longer known.
    pub clearance: Option<ClearanceId>,
    pub outcome: String,
    pub params: Json,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClearanceClosed {
    pub clearance: ClearanceId,
    #[serde(default)]
    pub action: Option<String>,
    #[serde(default)]
    pub title: String,
    /// `withdrawn` or `expired`.
    pub status: ClearanceStatus,
    /// The answer that an expiry sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Verdict>,
    pub reason: String,
    /// The agent's own option that this answer selects. Earlier releases did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
}
