//! Events as clients receive them.

use serde::Deserialize;

use super::{Event, Json};

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
        #[derive(Deserialize)]
        struct ReceivedFields {
            seq: u64,
            session: String,
            at: String,
            kind: String,
            #[serde(default)]
            data: Option<Json>,
        }
        let ReceivedFields { seq, session, at, kind, data } = serde_json::from_str(raw)?;
        let data = data.unwrap_or_else(|| Json::trusted("null"));
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
