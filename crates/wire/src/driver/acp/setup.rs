//! The settings of the driver, made before its agent starts.

use crate::acp::send::OfferedCapabilities;
use intercom_types::Json;

/// The settings that stay the same for the life of a session.
#[derive(Debug, Clone, Default)]
pub struct DriverSetup {
    /// The agent's name, as people know it.
    pub agent: String,
    pub workspace: String,
    pub offer: OfferedCapabilities,
    /// The authentication method, if one works without a person.
    pub auth_method: Option<String>,
    /// The mode to set whenever the agent's process starts.
    pub mode: Option<String>,
    /// The way for people to log in, if known; else the agent's own text is used.
    pub login: Option<String>,
    /// The key that the agent received, if its name is known.
    pub key: Option<AgentKey>,
    /// The agent's own session to resume.
    pub resume: Option<String>,
    /// The MCP servers for the agent, in their original format.
    pub mcp_servers: Option<Json>,
}

/// A key in the environment of an agent, by the names of its variables.
#[derive(Debug, Clone)]
pub struct AgentKey {
    pub names: String,
    /// The way to replace it, in a sentence.
    pub how_to_replace: String,
}
