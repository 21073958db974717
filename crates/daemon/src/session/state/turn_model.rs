//! The rule by which turns begin and end, and prompts leave for the agent.

use serde::{Deserialize, Serialize};

use super::SessionState;

/// The division of labour between us and the agent in its turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "TurnFlags", into = "TurnFlags")]
pub(crate) enum TurnModel {
    /// The agent is ready as soon as it runs. A prompt leaves at once, also during a turn. A turn begins with a prompt or with the
    /// agent's first words, and ends when the agent says so, with a heartbeat whose steps are all completed, or after an
    /// interrupt and a silence. A nudge is a message of its own, and open requests outlive their turn.
    #[default]
    Immediate,
    /// The same, but prompts stay in the queue: one leaves with each heartbeat.
    OnHeartbeat,
    /// ACP. The agent is ready once it has answered our handshake. It takes one prompt at a time: the next waits until the agent has
    /// answered the last, which alone ends a turn. Requests end with their turn. A nudge cancels the turn
    /// and follows as a prompt, unless the agent can be steered. An approval needs one of the agent's own options.
    AgentOwned,
}

/// The stored form, which has not changed since these were two switches: an older release reads it, too.
#[derive(Serialize, Deserialize)]
struct TurnFlags {
    prompts_on_heartbeat: bool,
    #[serde(default)]
    strict: bool,
}

impl From<TurnFlags> for TurnModel {
    fn from(flags: TurnFlags) -> Self {
        match flags {
            TurnFlags { strict: true, .. } => Self::AgentOwned,
            TurnFlags { prompts_on_heartbeat: true, .. } => Self::OnHeartbeat,
            TurnFlags { .. } => Self::Immediate,
        }
    }
}

impl From<TurnModel> for TurnFlags {
    fn from(model: TurnModel) -> Self {
        Self { prompts_on_heartbeat: model == TurnModel::OnHeartbeat, strict: model == TurnModel::AgentOwned }
    }
}

impl SessionState {
    pub(super) fn agent_owns_turns(&self) -> bool {
        self.spec.turn_model == TurnModel::AgentOwned
    }
}
