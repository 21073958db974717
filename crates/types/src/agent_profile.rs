//! Agent profiles as lists show them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Json;

/// An agent that can be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentView", description = "")]
pub struct ListedAgent {
    pub name: String,
    pub description: Option<String>,
    pub command: String,
    pub protocol: String,
    /// `built_in`, `installed`, `on_demand` (downloaded when it is started) or `missing`.
    #[serde(default)]
    #[schemars(!default)]
    pub availability: String,
    /// The capabilities that it reported when it was last ready; `null` before, and after its command line has changed.
    pub known: Option<KnownCapabilities>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "KnownView")]
pub struct KnownCapabilities {
    /// Its answer to `initialize`, unchanged.
    #[schemars(with = "serde_json::Value")]
    pub(crate) initialize: Json,
    /// Its answer to `session/new`, unchanged.
    #[schemars(with = "serde_json::Value")]
    pub(crate) session: Json,
}
