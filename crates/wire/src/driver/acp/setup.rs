//! The settings of the driver, made before its agent starts.

use crate::acp::send::OfferedCapabilities;
use intercom_types::Json;

/// The settings that do not change while a session lives.
#[derive(Debug, Clone, Default)]
pub struct DriverSetup {
    /// The agent's name, as people know it.
    pub agent: String,
    pub workspace: String,
    pub offer: OfferedCapabilities,
    /// The authentication method, where one works without a person.
    pub auth_method: Option<String>,
    /// The mode to set whenever the agent's process starts.
    pub mode: Option<String>,
    /// The way for people to log in, where that is known; else the agent's own words are used.
    pub login: Option<String>,
    /// The key that the agent got, if its name is known.
    pub key: Option<AgentKey>,
    /// A session of the agent's own to go on with.
    pub resume: Option<String>,
    /// For the agent to connect to, as they were listed.
    pub mcp_servers: Option<Json>,
}

/// A key in the environment of an agent, by the names of its variables.
#[derive(Debug, Clone)]
pub struct AgentKey {
    pub names: String,
    /// The way to set another one, in a sentence.
    pub how_to_replace: String,
}
