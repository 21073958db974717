//! Prompts: what operators tell an agent to do.

use serde::{Deserialize, Serialize};

use super::{Content, PromptId, SessionId, Time};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptState {
    /// Waiting on our side: it can still be taken back.
    Queued,
    /// On its way into the agent's pipe: too late to take it back, too early to call it delivered.
    Sending,
    Delivered,
    Withdrawn,
    Failed(String),
}

impl PromptState {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sending => "sending",
            Self::Delivered => "delivered",
            Self::Withdrawn => "withdrawn",
            Self::Failed(_) => "failed",
        }
    }

    pub fn cause(&self) -> Option<&str> {
        match self {
            Self::Failed(cause) => Some(cause),
            _ => None,
        }
    }

    pub fn from_parts(name: &str, cause: Option<String>) -> Option<Self> {
        Some(match name {
            "queued" => Self::Queued,
            "sending" => Self::Sending,
            "delivered" => Self::Delivered,
            "withdrawn" => Self::Withdrawn,
            "failed" => Self::Failed(cause.unwrap_or_default()),
            _ => return None,
        })
    }
}

/// What a prompt says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wording {
    pub text: String,
    /// All of it, for agents that take more than words.
    pub content: Option<Content>,
}

impl From<String> for Wording {
    fn from(text: String) -> Self {
        Self { text, content: None }
    }
}

impl From<&str> for Wording {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A row of the prompt list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub id: PromptId,
    pub session: SessionId,
    pub text: String,
    pub state: PromptState,
    pub by: String,
    pub at: Time,
    pub delivered_at: Option<Time>,
    /// Where it stands in the queue, once somebody has put it in another order; the others follow in theirs.
    pub place: Option<u32>,
}
