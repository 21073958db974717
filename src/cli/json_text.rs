//! JSON values as words.

use serde_json::Value;

use intercom_types::text::clean;

/// Returns the elements of a list of words, or of any list.
pub(super) fn list(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Value::Null => None,
        other => Some(plain(other)),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => clean(text),
        other => clean(&other.to_string()),
    }
}
