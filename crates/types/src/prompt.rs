//! Prompts: instructions of operators to an agent.

use serde::{Deserialize, Serialize};

use super::time::rfc3339;
use super::{Content, Json, PromptId, SessionId, Time};

/// The state of a prompt. In JSON it is two fields of the prompt, `state` and `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(from = "PromptStateFields", into = "PromptStateFields")]
pub enum PromptState {
    /// Waiting in our queue: it can still be withdrawn.
    Queued,
    /// On its way into the agent's pipe: too late to withdraw it, too early to call it delivered.
    Sending,
    Delivered,
    Withdrawn,
    Failed(String),
    /// A state of a newer daemon.
    Other(String),
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
struct PromptStateFields {
    /// `queued`, `delivered`, `withdrawn` or `failed`.
    state: String,
    /// The reason why it did not arrive.
    error: Option<String>,
}

impl From<PromptStateFields> for PromptState {
    fn from(PromptStateFields { state, error }: PromptStateFields) -> Self {
        Self::from_parts(&state, error).unwrap_or(Self::Other(state))
    }
}

impl From<PromptState> for PromptStateFields {
    fn from(state: PromptState) -> Self {
        // To callers, a prompt that is not in the agent's pipe yet is queued; DELETE decides whether it can be
        // withdrawn.
        let shown = if state == PromptState::Sending { &PromptState::Queued } else { &state };
        Self { state: shown.as_str().to_owned(), error: state.cause().map(str::to_owned) }
    }
}

impl PromptState {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Queued => "queued",
            Self::Sending => "sending",
            Self::Delivered => "delivered",
            Self::Withdrawn => "withdrawn",
            Self::Failed(_) => "failed",
            Self::Other(state) => state,
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

/// The content of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptBody {
    pub text: String,
    /// The complete content, for agents that accept more than text.
    pub content: Option<Content>,
}

impl From<String> for PromptBody {
    fn from(text: String) -> Self {
        Self { text, content: None }
    }
}

impl From<&str> for PromptBody {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A prompt in the list of its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Prompt {
    pub id: PromptId,
    pub session: SessionId,
    pub text: String,
    #[serde(flatten)]
    pub state: PromptState,
    pub by: String,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub at: Time,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub delivered_at: Option<Time>,
    /// The place among waiting prompts after a reordering: first those with a place, then the others.
    pub place: Option<u32>,
}

/// A prompt of an operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPrompt {
    /// An id that the caller has generated, `prm_` and 16 characters: sent again, it is the same prompt and not another
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The text. Without it, it is derived from the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The complete content as blocks of the Agent Client Protocol, passed unchanged to agents that use that protocol.
    /// Other agents receive the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<serde_json::Map<String, serde_json::Value>>>")]
    pub content: Option<Json>,
    /// Waits a moment for the delivery, unless this is `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
}

impl NewPrompt {
    pub fn of(text: &str) -> Self {
        Self { text: Some(text.to_owned()), ..Self::default() }
    }
}

/// A change of a waiting prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptChange {
    /// The new text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The new place in the queue; 0 is the next to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
}
