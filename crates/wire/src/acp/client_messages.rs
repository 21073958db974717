//! Our messages to clients, when we are the agent: each as one line of text. An agent's own messages pass
//! unchanged, except for the id of the session.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::method;
use crate::jsonrpc::{notification, request};
use intercom_types::{Json, RequestId};

/// The key under which every message names its session.
const SESSION: &str = "sessionId";

/// Encodes an update of our own.
pub fn update(session: &str, update: &impl Serialize) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ClientUpdateParams<'a, U> {
        session_id: &'a str,
        update: &'a U,
    }
    notification(method::SESSION_UPDATE, &ClientUpdateParams { session_id: session, update })
}

/// Encodes a forwarded notification of the agent, with these parameters.
pub fn forwarded_notification(name: &str, params: &Json, session: &str) -> String {
    match RenamedParams::of(params, session) {
        Some(params) => notification(name, &params),
        None => notification(name, params),
    }
}

/// Encodes a request of ours, or one of the agent that we forward.
pub fn session_request(id: &RequestId, name: &str, params: &Json, session: &str) -> String {
    match RenamedParams::of(params, session) {
        Some(params) => request(id, name, &params),
        None => request(id, name, params),
    }
}

/// The parameters of an agent's message, with the session replaced by ours.
struct RenamedParams<'a> {
    fields: Vec<(String, &'a RawValue)>,
    session: &'a str,
}

impl<'a> RenamedParams<'a> {
    /// Wraps parameters; `None` if they are not an object.
    fn of(params: &'a Json, session: &'a str) -> Option<Self> {
        let text = params.as_str();
        let mut from = serde_json::Deserializer::from_str(text);
        let fields =
            text.trim_start().starts_with('{').then(|| from.deserialize_map(ParamsVisitor).ok()).flatten()?;
        Some(Self { fields, session })
    }
}

impl Serialize for RenamedParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(SESSION, self.session)?;
        for (name, value) in self.fields.iter().filter(|(name, _)| name != SESSION) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

struct ParamsVisitor;

impl<'de> Visitor<'de> for ParamsVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_session_is_another() {
        let cases = [
            (
                r#"{"sessionId":"theirs","update":{"sessionUpdate":"odd", "n":1.0},"_meta":{"a": 1e400}}"#,
                r#"{"sessionId":"ses_1","update":{"sessionUpdate":"odd", "n":1.0},"_meta":{"a": 1e400}}"#,
            ),
            (r#"{ "update" : 1 , "sessionId" : 7 }"#, r#"{"sessionId":"ses_1","update":1}"#),
            (r#"{"session\u0049d":"x","é\n":null}"#, r#"{"sessionId":"ses_1","é\n":null}"#),
            ("[1, 2]", "[1, 2]"),
            ("7", "7"),
        ];
        for (params, expected) in cases {
            let line = forwarded_notification("session/update", &Json::trusted(params), "ses_1");
            let expected = format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{expected}}}"#);
            assert_eq!(line, expected);
        }
    }
}
