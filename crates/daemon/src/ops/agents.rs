//! The agents that can be started.

use super::{Caller, OpError, OperationKind, Operations, limit};
use crate::config::{Config, DEMO_AGENT};
use crate::supervisor::{self, NamedAgent};
use intercom_types::{Json, List, ListedAgent};

impl Operations {
    /// Returns all agents, whatever the limit: there are never many.
    pub async fn agents(&self, caller: &Caller, most: Option<usize>) -> Result<List<ListedAgent>, OpError> {
        self.admit(caller, OperationKind::Read)?;
        limit(most)?;
        let agents = self.supervisor().known_agents().await?;
        let agents =
            agents.into_iter().map(|(agent, capabilities)| view(agent, capabilities.as_ref())).collect();
        self.shown(caller, List::whole(agents)).await
    }
}

/// Returns the same list as JSON, as a daemon with this configuration would return it without any cached capabilities.
pub fn agents_of(config: &Config) -> serde_json::Value {
    let agents = supervisor::agents(config).into_iter().map(|agent| view(agent, None));
    serde_json::json!(List::whole(agents.collect()))
}

fn view(NamedAgent { name, profile, availability }: NamedAgent, capabilities: Option<&Json>) -> ListedAgent {
    ListedAgent {
        command: if name == DEMO_AGENT { "(built in)".to_owned() } else { profile.command },
        name,
        description: profile.description,
        protocol: profile.protocol.to_string(),
        availability: availability.to_string(),
        known: capabilities.and_then(|known| serde_json::from_str(known.as_str()).ok()),
    }
}
