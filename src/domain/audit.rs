//! The audit: who did what, in a chain that shows where it was changed.

use super::{Json, SessionId, Time};

/// Something that goes into the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    pub at: Time,
    /// `clearance.decided`, `token.created`, …
    pub action: String,
    pub by: String,
    pub session: Option<SessionId>,
    pub data: Json,
}

/// A row of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub n: u64,
    pub at: Time,
    pub action: String,
    pub by: String,
    pub session: Option<String>,
    pub data: Json,
    /// Of this row and, through the one before, of all before it.
    pub hash: String,
}
