//! What is known of the agent itself, by its own word.

use serde::{Deserialize, Serialize};

use crate::domain::{Json, Told};

/// What the agent told about itself, and what its driver has to remember of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentFacts {
    pub(super) told: Told,
    pub(super) driver: Option<Json>,
    /// Takes words during a turn.
    pub(super) steers: bool,
    /// Tells which sessions it remembers.
    pub(super) lists: bool,
    /// How often something of it was set; the last one has this number.
    pub(super) sets: u64,
}
