//! Events as the API sends them and clients receive them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::summary::Tone;
use super::{Event, Json};

/// An event as the API sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EventView", description = "")]
pub struct EventBody {
    pub seq: u64,
    pub session: String,
    pub at: String,
    pub kind: String,
    #[serde(default = "absent")]
    #[schemars(with = "serde_json::Value", !default)]
    pub data: Json,
    /// The event in English. Text of an agent begins with a mark such as `agent> `; times are RFC 3339 in UTC.
    // Our own clients write their summaries themselves, with local times.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    #[schemars(!skip_deserializing)]
    pub summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    #[schemars(!skip_deserializing)]
    pub tone: Option<Tone>,
}

fn absent() -> Json {
    Json::trusted("null")
}

/// A page of the log, oldest first.
// Serialised directly: a detour over `Value` would change the agent's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EventPage")]
pub struct EventPage<E = EventBody> {
    pub items: Vec<E>,
    pub next: Option<u64>,
}

/// An event as a client receives it, with its original JSON.
#[derive(Debug, Clone)]
pub struct ReceivedEvent {
    pub seq: u64,
    pub session: String,
    pub at: String,
    pub event: Event,
    /// The payload, including parts that this version does not know.
    pub data: Json,
    pub raw: String,
}

impl ReceivedEvent {
    pub fn parse(raw: &str) -> Result<Self, serde_json::Error> {
        let EventBody { seq, session, at, kind, data, .. } = serde_json::from_str(raw)?;
        let event = Event::parse(&kind, &data);
        // Between JSON tokens, a line feed is only whitespace, and strings contain none.
        Ok(Self { seq, session, at, event, data, raw: raw.trim().replace(['\n', '\r'], " ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_its_json_on_one_line() {
        let raw =
            "{\n \"seq\": 7, \"session\": \"ses_1\",\n \"at\": \"\", \"kind\": \"new\", \"more\": 1.10}";
        let event = ReceivedEvent::parse(raw).unwrap();
        assert_eq!(event.seq, 7);
        assert!(!event.raw.contains('\n') && event.raw.contains("1.10"));
    }
}
