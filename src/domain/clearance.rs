//! Clearances: an agent asks to be allowed something, and waits until somebody decides.

use serde::{Deserialize, Serialize};

use super::{ClearanceId, Delivery, RequestId, SessionId, Time};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    Low,
    Medium,
    High,
    Critical,
}

impl Risk {
    /// From the lowest to the highest.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// What an agent claims; a missing or unknown claim counts as high.
    pub fn of_claim(claim: Option<&str>) -> Self {
        claim.and_then(Self::parse).unwrap_or(Self::High)
    }

    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "low" => Self::Low,
            "medium" => Self::Medium,
            "high" => Self::High,
            "critical" => Self::Critical,
            _ => return None,
        })
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// `pending`, then exactly one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClearanceStatus {
    Pending,
    Approved,
    Denied,
    Withdrawn,
    Expired,
}

impl ClearanceStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Withdrawn => "withdrawn",
            Self::Expired => "expired",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "pending" => Self::Pending,
            "approved" => Self::Approved,
            "denied" => Self::Denied,
            "withdrawn" => Self::Withdrawn,
            "expired" => Self::Expired,
            _ => return None,
        })
    }
}

/// What an operator decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Approve,
    Deny,
}

impl Verdict {
    pub const fn status(self) -> ClearanceStatus {
        match self {
            Self::Approve => ClearanceStatus::Approved,
            Self::Deny => ClearanceStatus::Denied,
        }
    }
}

/// What policy made of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Ruling {
    pub outcome: Outcome,
    /// The rule that said so, by name or number; none did if people are asked by default.
    pub rule: Option<String>,
    /// In a sentence for people.
    pub why: String,
    /// Who is to be asked; everybody who may decide, if empty.
    #[serde(default)]
    pub whom: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Allow,
    Deny,
    Ask,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
        }
    }
}

/// One of the answers an agent offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Choice {
    pub id: String,
    pub name: String,
    pub kind: String,
}

/// A row of the clearance ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clearance {
    pub id: ClearanceId,
    pub session: SessionId,
    pub session_name: Option<String>,
    pub generation: u32,
    pub request: RequestId,
    pub title: String,
    pub description: Option<String>,
    pub diff: Option<String>,
    pub file_path: Option<String>,
    /// Other files that it is about.
    pub more_paths: Vec<String>,
    /// `edit`, `execute`, …, where the agent says so.
    pub tool: Option<String>,
    /// What would be run, where the agent says so.
    pub command: Option<String>,
    /// The higher of what we see and what the agent claims.
    pub risk: Risk,
    /// What we see.
    pub computed_risk: Risk,
    /// Why, in a few words each.
    pub risk_why: Vec<String>,
    /// As the agent said it.
    pub claimed_risk: Option<String>,
    pub options: Vec<Choice>,
    pub status: ClearanceStatus,
    pub delivery: Delivery,
    pub requested_at: Time,
    pub expires_at: Option<Time>,
    /// What policy said.
    pub ruling: Option<Ruling>,
    /// How many different people have to approve it.
    pub needed: u32,
    /// Who has, while it waits for more.
    pub approvals: Vec<String>,
    pub decided_by: Option<String>,
    /// From where: the socket, a network address, a rule, the clock.
    pub decided_via: Option<String>,
    pub decided_at: Option<Time>,
    pub reason: Option<String>,
    pub option: Option<String>,
    pub delivered_at: Option<Time>,
    pub outcome: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_unknown_risk_counts_as_high() {
        assert_eq!(Risk::of_claim(None), Risk::High);
        assert_eq!(Risk::of_claim(Some("none at all")), Risk::High);
        assert_eq!(Risk::of_claim(Some("low")), Risk::Low);
        assert!(Risk::Critical > Risk::High);
    }
}
