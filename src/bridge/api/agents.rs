//! Which agents can be started.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Api;
use super::error::ApiError;
use super::extract::{Query, ShortList, limit};
use crate::config::{Config, DEMO_AGENT};
use crate::domain::List;
use crate::supervisor::{self, Agent};

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AgentView {
    name: String,
    description: Option<String>,
    command: String,
    protocol: &'static str,
    /// `built_in`, `installed`, `on_demand` (fetched when it is started) or `missing`.
    availability: &'static str,
    /// What one of them told when it was ready last; `null` before that, and after its command line has changed.
    known: Option<KnownView>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct KnownView {
    /// Its answer to `initialize`, as it came.
    #[schemars(with = "serde_json::Value")]
    initialize: crate::domain::Json,
    /// Its answer to `session/new`, as it came.
    #[schemars(with = "serde_json::Value")]
    session: crate::domain::Json,
}

/// All of them, whatever the limit: there are never many.
pub(super) async fn list(
    State(api): State<Api>,
    Query(query): Query<ShortList>,
) -> Result<Json<List<AgentView>>, ApiError> {
    limit(query.limit)?;
    let agents = api.supervisor().known_agents().await?;
    Ok(Json(List::whole(agents.into_iter().map(|(agent, told)| view(agent, told.as_ref())).collect())))
}

/// The same list as JSON, as a daemon with this configuration would give it that has seen none of them run.
pub fn agents_of(config: &Config) -> serde_json::Value {
    let agents = supervisor::agents(config).into_iter().map(|agent| view(agent, None));
    serde_json::json!(List::whole(agents.collect()))
}

fn view(Agent { name, profile, availability }: Agent, told: Option<&crate::domain::Json>) -> AgentView {
    AgentView {
        command: if name == DEMO_AGENT { "(built in)".to_owned() } else { profile.command },
        name,
        description: profile.description,
        protocol: profile.protocol.as_str(),
        availability: availability.as_str(),
        known: told.and_then(|told| serde_json::from_str(told.as_str()).ok()),
    }
}
