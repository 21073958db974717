//! Figures about the human loop: how long decisions take, how long agents wait for them, how much is said.

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
    /// Clearances that people decided.
    pub decided: usize,
    /// Half of them took no longer than this.
    pub median_seconds: Option<f64>,
    /// Nine of ten.
    pub ninetieth_seconds: Option<f64>,
    /// How long agents waited for people, together.
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
