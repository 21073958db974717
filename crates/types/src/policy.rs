//! Requests about policy: explanations of rulings, trials of other rules, reloads.

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
    /// The reason why there is no proposal.
    pub no_proposal: Option<String>,
    /// The reason why the caller may not approve it; `null` if the caller may.
    pub may_not_approve: Option<String>,
}

/// The policy in force; `R` is a rule in the form of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "PolicyView", description = "")]
pub struct PolicySummary<R = Value> {
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub loaded_at: Time,
    /// The rules as configured, in order.
    pub rules: Vec<R>,
    /// The end of each rule with `until` or `for`, in the same order; null for a rule without an end.
    #[serde(default)]
    #[schemars(!default)]
    pub ends_at: Vec<Option<String>>,
    pub grants: usize,
}

/// One rule, compared with a clearance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleExplanation {
    /// The number of the rule, counted from 1.
    pub n: usize,
    pub name: String,
    pub then: String,
    pub matches: bool,
    /// It is the first rule that matches.
    pub decides: bool,
    /// The first criterion that does not hold.
    pub unmet: Option<String>,
    pub why: Option<String>,
}

/// Other rules to try on past requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RulesTest {
    /// The text of a configuration file; only its `[[rule]]`s are used.
    pub rules: String,
    /// The name of the file in errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The earliest time of a request, RFC 3339; without it, all requests are used.
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
    /// The number of requests with another decision.
    pub different: usize,
    /// These requests, riskiest first; at most a thousand.
    pub differences: Vec<RulesDifference>,
}

/// A request that other rules would have decided differently.
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

/// A configuration that was reloaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConfigReload {
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub loaded_at: Time,
    pub rules: usize,
    /// The changed tables that need a restart of the daemon.
    #[serde(default)]
    pub needs_restart: Vec<String>,
}
