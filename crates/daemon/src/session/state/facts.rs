//! Facts about the agent itself, by its own word.

use serde::{Deserialize, Serialize};

use intercom_types::{AgentInfo, Json};

/// The facts that the agent told about itself, and the state that its driver has to remember.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentFacts {
    pub(super) told: AgentInfo,
    pub(super) driver: Option<Json>,
    /// Takes words during a turn.
    pub(super) steers: bool,
    /// Tells which sessions it remembers.
    pub(super) lists: bool,
    /// The number of settings so far; the last one has this number.
    pub(super) sets: u64,
}
