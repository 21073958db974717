//! Questions: an agent asks how to go on and waits for `continue`, `refine` or `stop`.

use serde::{Deserialize, Serialize};

use super::{Delivery, QuestionId, RequestId, SessionId, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Continue,
    Refine,
    Stop,
}

impl Answer {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Refine => "refine",
            Self::Stop => "stop",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "continue" => Self::Continue,
            "refine" => Self::Refine,
            "stop" => Self::Stop,
            _ => return None,
        })
    }
}

/// `pending`, then exactly one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuestionStatus {
    Pending,
    Answered,
    Withdrawn,
    Expired,
}

impl QuestionStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Answered => "answered",
            Self::Withdrawn => "withdrawn",
            Self::Expired => "expired",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "pending" => Self::Pending,
            "answered" => Self::Answered,
            "withdrawn" => Self::Withdrawn,
            "expired" => Self::Expired,
            _ => return None,
        })
    }
}

/// A row of the question ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub id: QuestionId,
    pub session: SessionId,
    pub session_name: Option<String>,
    pub generation: u32,
    pub request: RequestId,
    pub text: String,
    /// What the agent calls this sort of question (`continuation`, …).
    pub sort: Option<String>,
    pub status: QuestionStatus,
    pub decision: Option<Answer>,
    pub instruction: Option<String>,
    pub asked_at: Time,
    pub answered_by: Option<String>,
    pub answered_at: Option<Time>,
    pub reason: Option<String>,
    pub delivery: Delivery,
    pub delivered_at: Option<Time>,
}
