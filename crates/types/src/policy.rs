//! Policy as people ask about it: explanations of rulings, trials of other rules, reloads.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::time::rfc3339;
use super::{Clearance, ClearanceId, ClearanceStatus, OpenEnum, Risk, Ruling, SessionId, Time};

/// A clearance with the rules that decide about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClearanceExplanation {
    pub clearance: Clearance,
    /// The ruling of today's rules; `clearance.ruling` is that of the rules at the time.
    pub now: Ruling,
    pub rules: Vec<RuleExplanation>,
    /// The rule that "always allow" would add.
    pub proposal: Option<Value>,
    /// Why there is none.
    pub no_proposal: Option<String>,
    /// Why the caller may not approve it; `null` if nothing is in the way.
    pub may_not_approve: Option<String>,
}

/// The policy in force; `R` is a rule in the form of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "PolicyView", description = "")]
pub struct PolicySummary<R = Value> {
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub loaded_at: Time,
    /// As they stand in the configuration, in order.
    pub rules: Vec<R>,
    /// When each of them ends by `until` or `for`, in the same order; null for one without an end.
    #[serde(default)]
    #[schemars(!default)]
    pub ends_at: Vec<Option<String>>,
    pub grants: usize,
}

/// One rule, held against a clearance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleExplanation {
    /// Counted from 1.
    pub n: usize,
    pub name: String,
    pub then: String,
    pub matches: bool,
    /// It matches and none before it does.
    pub decides: bool,
    /// The first criterion that does not hold.
    pub unmet: Option<String>,
    pub why: Option<String>,
}

/// Other rules, to be tried on past requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RulesTest {
    /// The text of a configuration file; only its `[[rule]]`s are looked at.
    pub rules: String,
    /// Its name in errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Not before this time, RFC 3339; everything if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// The decisions that other rules would have made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RulesTestResult {
    pub requests: usize,
    pub allowed: usize,
    pub denied: usize,
    pub asked: usize,
    /// The number of requests that would have gone another way.
    pub different: usize,
    /// These requests, riskiest first; at most a thousand.
    pub differences: Vec<RulesDifference>,
}

/// A request that other rules would have decided in another way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RulesDifference {
    pub clearance: ClearanceId,
    pub session: SessionId,
    pub action: Option<String>,
    pub title: String,
    pub file_path: Option<String>,
    pub command: Option<String>,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub requested_at: Time,
    pub risk: OpenEnum<Risk>,
    /// `allowed` or `denied` by a rule, or `asked`.
    pub was: String,
    /// The decision of people or of the clock.
    pub status: OpenEnum<ClearanceStatus>,
    pub would: Ruling,
}

/// A configuration that was read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConfigReload {
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub loaded_at: Time,
    pub rules: usize,
    /// The tables whose change needs a new start of the daemon.
    #[serde(default)]
    pub needs_restart: Vec<String>,
}
