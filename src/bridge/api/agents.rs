//! Which agents can be started.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::Api;
use super::extract::{Nothing, Query};
use super::view::List;

#[derive(Debug, Serialize)]
pub(super) struct AgentView {
    name: String,
    description: Option<String>,
    command: String,
    protocol: &'static str,
}

pub(super) async fn list(State(api): State<Api>, Query(Nothing {}): Query<Nothing>) -> Json<List<AgentView>> {
    let agents = api.supervisor().agents().into_iter().map(|(name, profile)| AgentView {
        name,
        description: profile.description,
        command: profile.command,
        protocol: profile.protocol.as_str(),
    });
    Json(List::whole(agents.collect()))
}
