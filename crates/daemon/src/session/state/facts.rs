//! Facts about the agent itself, by its own word.

use serde::{Deserialize, Serialize};

use intercom_types::{AgentInfo, Json};

/// The facts that the agent told about itself, and the state that its driver has to remember.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentFacts {
    #[serde(rename = "told")]
    pub(super) info: AgentInfo,
    pub(super) driver: Option<Json>,
    /// It takes words during a turn.
    #[serde(rename = "steers")]
    pub(super) supports_steering: bool,
    /// It tells which sessions it remembers.
    #[serde(rename = "lists")]
    pub(super) supports_session_list: bool,
    /// The number of settings so far; the last one has this number.
    #[serde(rename = "sets")]
    pub(super) settings_sent: u64,
}
