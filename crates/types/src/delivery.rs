//! The delivery state of a message to an agent.

use serde::{Deserialize, Serialize};

/// `Delivered` means completely in the agent's pipe, not that the agent has acted on it. In JSON it is two fields of
/// the object that it belongs to, `delivery` and `delivery_cause`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(from = "DeliveryFields", into = "DeliveryFields")]
pub enum Delivery {
    /// There is nothing to deliver (yet).
    None,
    Pending,
    Delivered,
    /// The message will never arrive, for this reason.
    Failed(String),
    /// A state of a newer daemon.
    Other(String),
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
struct DeliveryFields {
    /// The state of the delivery: `none`, `pending`, `delivered` or `failed`.
    #[serde(default = "nothing")]
    delivery: String,
    delivery_cause: Option<String>,
}

fn nothing() -> String {
    Delivery::None.as_str().to_owned()
}

impl From<DeliveryFields> for Delivery {
    fn from(DeliveryFields { delivery, delivery_cause }: DeliveryFields) -> Self {
        Self::from_parts(&delivery, delivery_cause).unwrap_or(Self::Other(delivery))
    }
}

impl From<Delivery> for DeliveryFields {
    fn from(delivery: Delivery) -> Self {
        Self {
            delivery: delivery.as_str().to_owned(),
            delivery_cause: match delivery {
                Delivery::Failed(cause) => Some(cause),
                _ => None,
            },
        }
    }
}

impl Delivery {
    /// The cause of a failed delivery: the agent had closed its stdin, or had exited.
    pub const STREAM_CLOSED: &str = "write failed: stream closed";

    pub fn as_str(&self) -> &str {
        match self {
            Self::None => "none",
            Self::Pending => "pending",
            Self::Delivered => "delivered",
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

    /// Combines a state and its cause into one value; `None` if there is no such state.
    pub fn from_parts(name: &str, cause: Option<String>) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "pending" => Self::Pending,
            "delivered" => Self::Delivered,
            "failed" => Self::Failed(cause.unwrap_or_else(|| "the daemon does not say why".to_owned())),
            _ => return None,
        })
    }

    pub fn describe(&self) -> String {
        match self {
            Self::Failed(cause) => format!("not delivered: {cause}"),
            Self::Pending => "not delivered yet".to_owned(),
            other => other.as_str().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_failed_delivery_says_why() {
        let read = |json| serde_json::from_value::<Delivery>(json).unwrap();
        let failed = read(json!({ "delivery": "failed", "delivery_cause": "stream closed" }));
        assert_eq!(failed.describe(), "not delivered: stream closed");
        assert_eq!(read(json!({ "delivery": "pending" })).describe(), "not delivered yet");
        assert_eq!(read(json!({ "delivery": "delivered" })), Delivery::Delivered);
        assert_eq!(read(json!({})).describe(), "none");
        assert_eq!(read(json!({ "delivery": "read" })).describe(), "read");
    }
}
