//! Facts that the agent reports about itself.

use serde::{Deserialize, Serialize};

use intercom_types::{AgentInfo, Json};

/// The facts that the agent reported about itself, and the saved state of its driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentFacts {
    pub(super) told: AgentInfo,
    pub(super) driver: Option<Json>,
    /// True if it takes messages during a turn.
    pub(super) steers: bool,
    /// True if it can list its own sessions.
    pub(super) lists: bool,
    /// The number of settings so far; the last one has this number.
    pub(super) sets: u64,
}
