//! The agents that can be started.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Caller, OpError, OperationKind, Operations, limit};
use crate::config::{Config, DEMO_AGENT};
use crate::supervisor::{self, NamedAgent};
use intercom_types::List;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AgentView {
    pub name: String,
    pub description: Option<String>,
    pub command: String,
    pub protocol: String,
    /// `built_in`, `installed`, `on_demand` (downloaded when it is started) or `missing`.
    pub availability: String,
    /// The capabilities that it reported when it was last ready; `null` before, and after its command line has changed.
    pub known: Option<AgentCapabilitiesView>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "KnownView")]
pub struct AgentCapabilitiesView {
    /// Its answer to `initialize`, unchanged.
    #[schemars(with = "serde_json::Value")]
    pub initialize: intercom_types::Json,
    /// Its answer to `session/new`, unchanged.
    #[schemars(with = "serde_json::Value")]
    pub session: intercom_types::Json,
}

impl Operations {
    /// Returns all agents, whatever the limit: there are never many.
    pub async fn agents(&self, caller: &Caller, most: Option<usize>) -> Result<List<AgentView>, OpError> {
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

fn view(
    NamedAgent { name, profile, availability }: NamedAgent,
    capabilities: Option<&intercom_types::Json>,
) -> AgentView {
    AgentView {
        command: if name == DEMO_AGENT { "(built in)".to_owned() } else { profile.command },
        name,
        description: profile.description,
        protocol: profile.protocol.to_string(),
        availability: availability.to_string(),
        known: capabilities.and_then(|known| serde_json::from_str(known.as_str()).ok()),
    }
}
