//! Which agents can be started.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::error::ApiError;
use super::extract::{Query, ShortList, limit};
use super::view::List;
use crate::config::DEMO_AGENT;
use crate::supervisor::Agent;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AgentView {
    name: String,
    description: Option<String>,
    command: String,
    protocol: &'static str,
    /// `built_in`, `installed`, `on_demand` (fetched when it is started) or `missing`.
    availability: &'static str,
}

/// All of them, whatever the limit: there are never many.
pub(super) async fn list(
    State(api): State<Api>,
    Query(query): Query<ShortList>,
) -> Result<Json<List<AgentView>>, ApiError> {
    limit(query.limit)?;
    let agents =
        api.supervisor().agents().into_iter().map(|Agent { name, profile, availability }| AgentView {
            command: if name == DEMO_AGENT { "(built in)".to_owned() } else { profile.command },
            name,
            description: profile.description,
            protocol: profile.protocol.as_str(),
            availability: availability.as_str(),
        });
    Ok(Json(List::whole(agents.collect())))
}
