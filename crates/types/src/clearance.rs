//! Clearances: an agent requests permission for an action and waits for the decision.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::question::waiting_first;
use super::time::rfc3339;
use super::{ClearanceId, Delivery, OpenEnum, SessionId, Time};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[derive(EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Risk {
    Low,
    Medium,
    High,
    Critical,
}

impl Risk {
    /// All risks, from the lowest to the highest.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// Returns the risk that an agent claims; a missing or unknown claim counts as high.
    pub fn of_claim(claim: Option<&str>) -> Self {
        claim.and_then(Self::parse).unwrap_or(Self::High)
    }
}

/// `pending`, then exactly one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum ClearanceStatus {
    Pending,
    Approved,
    Denied,
    Withdrawn,
    Expired,
}

/// The decision of an operator.
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

/// The decision of policy about a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Ruling {
    pub outcome: Outcome,
    /// The rule that decided, by name or number; `None` if people are asked by default.
    pub rule: Option<String>,
    /// The reason, in a sentence for people.
    pub why: String,
    /// The names of the people to ask; if empty, everybody who may decide.
    #[serde(default)]
    pub whom: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Outcome {
    Allow,
    Deny,
    Ask,
}

/// One of the answers an agent offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Choice {
    pub id: String,
    pub name: String,
    pub kind: String,
}

/// A request of an agent for permission, and its decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Clearance {
    pub id: ClearanceId,
    pub session: SessionId,
    pub session_name: Option<String>,
    /// The command or change on one line and without secrets: the command, else the files with the size of the diff.
    /// `null` if the agent names neither. Show it before the title wherever there is one line.
    pub action: Option<String>,
    pub title: String,
    pub description: Option<String>,
    pub diff: Option<String>,
    pub file_path: Option<String>,
    /// Other files that it concerns.
    #[serde(default)]
    pub more_paths: Vec<String>,
    /// The kind of tool, such as `edit` or `execute`, if the agent names one.
    pub tool: Option<String>,
    /// The command to run, if the agent names one.
    pub command: Option<String>,
    /// The higher of the computed risk and the agent's claim.
    pub risk: OpenEnum<Risk>,
    /// The risk that the agent claims, unchanged.
    pub claimed_risk: Option<String>,
    /// The risk that intercom computes.
    #[serde(default = "unseen")]
    pub computed_risk: OpenEnum<Risk>,
    /// The reasons for the risk, in a few words each.
    #[serde(default)]
    pub risk_why: Vec<String>,
    #[serde(default)]
    pub options: Vec<Choice>,
    pub status: OpenEnum<ClearanceStatus>,
    #[serde(flatten)]
    pub delivery: Delivery,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub requested_at: Time,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub expires_at: Option<Time>,
    /// The decision of policy; `null` for requests of older releases.
    pub ruling: Option<Ruling>,
    /// The number of different people who have to approve it.
    #[serde(default = "one")]
    pub needed: u32,
    /// The people who have approved it so far, while more approvals are needed.
    #[serde(default)]
    pub approvals: Vec<String>,
    pub decided_by: Option<String>,
    /// The origin of the decision: the socket, a network address, a rule, the clock.
    pub decided_via: Option<String>,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub decided_at: Option<Time>,
    pub reason: Option<String>,
    pub option: Option<String>,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub delivered_at: Option<Time>,
    pub outcome: Option<String>,
    /// The fields that were redacted for you; empty if none were.
    #[serde(default)]
    pub hidden: Vec<String>,
}

fn one() -> u32 {
    1
}

/// Older daemons did not compute a risk.
fn unseen() -> OpenEnum<Risk> {
    OpenEnum::Unknown("none".into())
}

impl OpenEnum<Risk> {
    /// Returns the risk; an unknown risk counts as high, like a missing claim.
    pub fn level(&self) -> Risk {
        self.known().unwrap_or(Risk::High)
    }
}

impl Clearance {
    /// The name of its session, if it has one.
    pub fn session_label(&self) -> String {
        self.session_name.clone().unwrap_or_else(|| self.session.short())
    }

    /// Returns the clearance without its long fields.
    #[must_use]
    pub fn in_brief(self) -> Self {
        Self { description: None, diff: None, ..self }
    }

    /// Sorts a list of the API, which is newest first; of two from the same moment, the later one is the newer.
    pub fn sort(clearances: &mut [Self]) {
        clearances.reverse();
        clearances.sort_by(Self::order);
    }

    /// The order of every list: pending ones first, of these the riskiest, of these the oldest; settled ones newest first.
    pub fn order(one: &Self, other: &Self) -> Ordering {
        let pending = |clearance: &Self| clearance.status == ClearanceStatus::Pending;
        let urgent = other.risk.level().cmp(&one.risk.level());
        waiting_first((pending(one), one.requested_at), (pending(other), other.requested_at), urgent)
    }
}

/// The decision of an operator about a clearance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    #[serde(rename = "decision")]
    pub verdict: Verdict,
    /// The reason, which the agent receives, with an approval as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// Also creates a grant; `false` is the same as leaving it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remember: Option<RememberChoice>,
}

impl From<Verdict> for Decision {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, reason: None, option: None, remember: None }
    }
}

impl Decision {
    /// Creates a decision that selects one of the agent's own options.
    pub fn with_option(verdict: Verdict, option: &str) -> Self {
        Self { option: Some(option.to_owned()), ..verdict.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum RememberChoice {
    Plain(bool),
    Rule(RememberedRule),
}

/// A rule to create with an approval, as proposed in the clearance's explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RememberedRule {
    /// The `proposal` of the clearance's explanation.
    pub rule: serde_json::Value,
    /// The lifetime of the grant, such as `8h`; without it, the grant lasts until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#for: Option<String>,
}

/// One approval of several that are needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Quorum {
    pub approvals: Vec<String>,
    pub needed: u32,
    pub clearance: Clearance,
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
