//! Raw JSON, kept unchanged: unknown content is stored and passed on byte for byte.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// One valid JSON value, as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Box<str>);

impl Json {
    pub fn raw(value: &RawValue) -> Self {
        Self(value.get().into())
    }

    /// Serializes a value that always serializes (our own structures: string keys, no odd floats).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self(serde_json::to_string(value).expect("our own structures serialise").into_boxed_str())
    }

    /// Wraps text that is known to be valid JSON: from the store or from a parser.
    pub fn trusted(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the raw items of a list of objects; `None` if this is anything else.
    pub fn objects(&self) -> Option<Vec<&RawValue>> {
        let items: Vec<&RawValue> = serde_json::from_str(&self.0).ok()?;
        items.iter().all(|item| item.get().starts_with('{')).then_some(items)
    }

    /// Removes line breaks, which JSON has only between its tokens, for protocols with one message per line.
    #[must_use]
    pub fn on_one_line(&self) -> Self {
        Self(self.0.replace(['\n', '\r'], " ").into_boxed_str())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        <&RawValue>::deserialize(&mut serde_json::Deserializer::from_str(&self.0))
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self::raw(&raw))
    }
}

impl schemars::JsonSchema for Json {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Json".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}

/// The id of an agent's request: a JSON string or number, echoed with its type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// Parses an id; `None` if the value is neither a string nor a number.
    pub fn parse(raw: &str) -> Option<Self> {
        match raw.as_bytes().first()? {
            // Two spellings of one string are the same id.
            b'"' => serde_json::from_str::<String>(raw).ok().map(|text| Self::text(&text)),
            b'-' | b'0'..=b'9' => {
                serde_json::from_str::<&RawValue>(raw).ok().map(|number| Self(number.get().into()))
            }
            _ => None,
        }
    }

    pub fn text(text: &str) -> Self {
        Self(serde_json::Value::from(text).to_string().into_boxed_str())
    }

    pub fn number(number: u64) -> Self {
        Self(number.to_string().into_boxed_str())
    }

    /// Returns the id as JSON: a string has its quotes.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl schemars::JsonSchema for RequestId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RequestId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "number"] })
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Json::trusted(self.0.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        Self::parse(json.as_str()).ok_or_else(|| D::Error::custom("a request id is a string or a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_keeps_its_type() {
        assert_eq!(RequestId::parse("7").unwrap().as_json(), "7");
        assert_eq!(RequestId::parse("\"7\"").unwrap().as_json(), "\"7\"");
        assert_eq!(RequestId::parse("1.50").unwrap().as_json(), "1.50");
        assert_eq!(RequestId::parse("98765432109876543210987").unwrap().as_json(), "98765432109876543210987");
        assert_ne!(RequestId::parse("7"), RequestId::parse("\"7\""));
    }

    #[test]
    fn two_spellings_of_a_string_are_one_id() {
        assert_eq!(RequestId::parse(r#""\u0061""#), RequestId::parse(r#""a""#));
    }

    #[test]
    fn other_values_are_not_ids() {
        for raw in ["true", "null", "{}", "[1]", "", "\"open", "-", "1 2"] {
            assert_eq!(RequestId::parse(raw), None, "{raw}");
        }
    }

    #[test]
    fn json_is_kept_byte_for_byte() {
        let text = r#"{"a":  1.0,"b":[ ]}"#;
        let json: Json = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
    }
}
