//! Facts that the agent reports about itself.

use serde::{Deserialize, Serialize};

use intercom_types::{AgentInfo, Json};

/// The facts that the agent reported about itself, and the saved state of its driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentFacts {
    #[serde(rename = "told")]
    pub(super) info: AgentInfo,
    pub(super) driver: Option<Json>,
    /// True if it takes messages during a turn.
    #[serde(rename = "steers")]
    pub(super) supports_steering: bool,
    /// True if it can list its own sessions.
    #[serde(rename = "lists")]
    pub(super) supports_session_list: bool,
    /// The number of settings so far; the last one has this number.
    #[serde(rename = "sets")]
    pub(super) settings_sent: u64,
}
