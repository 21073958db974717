//! How far an answer has come on its way into the agent's pipe.

use serde::{Deserialize, Serialize};

/// `Delivered` means wholly in the agent's pipe, not that the agent has acted on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Nothing is to be delivered (yet).
    None,
    Pending,
    Delivered,
    /// It will never arrive, and why.
    Failed(String),
}

impl Delivery {
    /// Why a message did not arrive: the agent had closed its stdin, or was gone.
    pub const STREAM_CLOSED: &str = "write failed: stream closed";

    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed(_) => "failed",
        }
    }

    pub fn cause(&self) -> Option<&str> {
        match self {
            Self::Failed(cause) => Some(cause),
            _ => None,
        }
    }

    /// The two columns of the store back into one value.
    pub fn from_parts(name: &str, cause: Option<String>) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "pending" => Self::Pending,
            "delivered" => Self::Delivered,
            "failed" => Self::Failed(cause.unwrap_or_default()),
            _ => return None,
        })
    }
}
