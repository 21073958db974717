//! Statistics of the human loop: time to decisions, agents' waiting time, number of events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Time;
use super::time::rfc3339;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Figures")]
pub struct DecisionStats {
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub since: Time,
    pub stretch_seconds: i64,
    pub stretches: Vec<StatsInterval>,
    /// The number of clearances that people decided.
    pub decided: usize,
    /// The median time to a decision, in seconds.
    pub median_seconds: Option<f64>,
    /// The 90th percentile of the time to a decision, in seconds.
    pub ninetieth_seconds: Option<f64>,
    /// The total time that agents waited for people, in seconds.
    pub blocked_seconds: f64,
    pub events: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Stretch")]
pub struct StatsInterval {
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub at: Time,
    pub events: i64,
    pub decided: usize,
    pub median_seconds: Option<f64>,
    pub blocked_seconds: f64,
}
