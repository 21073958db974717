//! The content of an `update` event: the agent sends text, uses a tool, or reports about itself.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::RawMessage;

/// The speaker of a text in the log, if it is not intercom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    Agent,
    Thought,
    Tool,
    Plan,
    User,
}

/// A piece of a message. Agents that speak ACP send messages word by word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageChunk {
    pub speaker: Speaker,
    /// The agent's id of the message, if it gives one.
    pub message: Option<String>,
    pub text: String,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PlanStep {
    #[serde(default, alias = "content")]
    pub label: Option<String>,
    #[serde(default)]
    pub status: Option<String>,
}

/// The content of an update, whichever protocol its agent speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentUpdate {
    Chunk(MessageChunk),
    /// A tool call of ACP begins, or has changed.
    ToolCall {
        id: String,
        title: Option<String>,
        status: Option<String>,
        begins: bool,
    },
    /// A tool call of our own protocol.
    Tool {
        tool: Option<String>,
        title: String,
        status: Option<String>,
    },
    Plan(Vec<PlanStep>),
    Mode(Option<String>),
    Title(Option<String>),
    /// The number of commands that the agent offers.
    Commands(usize),
    Options,
    /// The used part of the agent's context, and its size.
    Usage {
        used: Option<u64>,
        size: Option<u64>,
    },
    /// A kind that this version does not know.
    Other(String),
}

impl RawMessage {
    /// Parses the content of an `update`; `None` if it has neither an update nor a title.
    pub fn update(&self) -> Option<AgentUpdate> {
        let params: UpdateParams = serde_json::from_str(self.0.as_str()).ok()?;
        if let Some(update) = params.update {
            return Some(update.read());
        }
        let title = params.title.filter(|title| !title.is_empty())?;
        Some(AgentUpdate::Tool { title, tool: params.tool, status: params.status })
    }

    /// Returns the steps of a heartbeat's progress; empty if they do not follow the protocol.
    pub fn progress(&self) -> Vec<PlanStep> {
        serde_json::from_str::<UpdateParams>(self.0.as_str())
            .ok()
            .and_then(|params| params.progress)
            .unwrap_or_default()
    }

    /// Returns the text of a status.
    pub fn status_text(&self) -> Option<String> {
        serde_json::from_str::<UpdateParams>(self.0.as_str()).ok()?.message
    }
}

/// The parameters of a status, a heartbeat or an update, as far as they are displayed. A field of the wrong type counts
/// as absent: one invalid field must not hide the others.
#[derive(Deserialize)]
struct UpdateParams {
    #[serde(default, deserialize_with = "lenient")]
    update: Option<AcpUpdate>,
    #[serde(default, deserialize_with = "lenient")]
    title: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    tool: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    status: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    message: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    progress: Option<Vec<PlanStep>>,
}

/// An update of ACP.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AcpUpdate {
    #[serde(default, deserialize_with = "lenient")]
    session_update: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    content: Option<ChunkContent>,
    #[serde(default, deserialize_with = "lenient")]
    message_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    tool_call_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    title: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    status: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    entries: Option<Vec<PlanStep>>,
    #[serde(default, deserialize_with = "lenient")]
    current_mode_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    available_commands: Option<Vec<IgnoredAny>>,
    #[serde(default, deserialize_with = "lenient")]
    used: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    size: Option<u64>,
}

#[derive(Deserialize)]
struct ChunkContent {
    #[serde(default, deserialize_with = "lenient")]
    r#type: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    text: Option<String>,
}

impl AcpUpdate {
    fn read(self) -> AgentUpdate {
        let kind = self.session_update.as_deref().unwrap_or("update");
        match kind {
            "agent_message_chunk" => self.chunk(Speaker::Agent),
            "agent_thought_chunk" => self.chunk(Speaker::Thought),
            "user_message_chunk" => self.chunk(Speaker::User),
            "tool_call" | "tool_call_update" => AgentUpdate::ToolCall {
                begins: kind == "tool_call",
                id: self.tool_call_id.unwrap_or_default(),
                title: self.title,
                status: self.status,
            },
            "plan" => AgentUpdate::Plan(self.entries.unwrap_or_default()),
            "current_mode_update" => AgentUpdate::Mode(self.current_mode_id),
            "session_info_update" => AgentUpdate::Title(self.title),
            "available_commands_update" => {
                AgentUpdate::Commands(self.available_commands.map_or(0, |commands| commands.len()))
            }
            "config_option_update" => AgentUpdate::Options,
            "usage_update" => AgentUpdate::Usage { used: self.used, size: self.size },
            other => AgentUpdate::Other(other.to_owned()),
        }
    }

    fn chunk(self, speaker: Speaker) -> AgentUpdate {
        let (kind, text) = self.content.map_or((None, None), |content| (content.r#type, content.text));
        let text = text.unwrap_or_else(|| format!("[{}]", kind.as_deref().unwrap_or("no text")));
        AgentUpdate::Chunk(MessageChunk { speaker, message: self.message_id, text })
    }
}

fn lenient<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_str(<&RawValue>::deserialize(deserializer)?.get()).ok())
}
