//! Words and JSON.

use serde_json::{Value, json};

use crate::script::{number, split};

pub(super) fn notification(method: &str, params: &Value) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":{},\"params\":{params}}}", Value::from(method))
}

pub(super) fn chunk(kind: &str, text: &str) -> Value {
    json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } })
}

pub(super) fn error(code: i64, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

/// The error of a step or switch.
pub(super) fn failure(text: &str) -> Result<Value, String> {
    Ok(match text {
        "rate-limit" => json!({ "code": 429, "message": "rate limit reached, try again later",
                                "data": { "status": 429, "retryAfter": 30 } }),
        "usage-limit" => json!({ "code": -32603, "message": "usage limit reached, resets at 15:00",
                                 "data": { "errorKind": "usage_limit" } }),
        "internal" => {
            json!({ "code": -32603, "message": "internal error", "data": { "details": "for tests" } })
        }
        "auth" => error(-32000, "authentication required"),
        _ if text.starts_with('{') => parse(text)?,
        _ => {
            let (code, message) = split(text);
            error(number(code)?, message)
        }
    })
}

/// The steps of a text.
pub(super) fn script(text: &str) -> Vec<String> {
    serde_json::from_str(text)
        .unwrap_or_else(|_| text.split(';').map(|step| step.trim().to_owned()).collect())
}

pub(super) fn entries(text: &str) -> Result<Value, String> {
    let entry = |entry: &str| match entry.split_once('=') {
        Some((content, status)) => Ok(json!({ "content": content, "priority": "medium", "status": status })),
        None => Err(format!("{entry:?} is not TEXT=STATUS")),
    };
    text.split(',').map(entry).collect()
}

pub(super) fn names(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|known| known == name)
}

pub(super) fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("JSON: {error}"))
}

pub(super) fn params(text: &str) -> Result<Value, String> {
    if text.is_empty() { Ok(json!({})) } else { parse(text) }
}

/// A JSON object as it is, or plain text as the value of `key`.
pub(super) fn object(text: &str, key: &str) -> Result<Value, String> {
    if text.starts_with('{') { parse(text) } else { Ok(json!({ key: text })) }
}

/// Puts the patch over the value, key by key; `null` removes a key that was there.
pub(super) fn merge(value: &mut Value, patch: &Value) {
    let (Value::Object(value), Value::Object(patch)) = (&mut *value, patch) else {
        *value = patch.clone();
        return;
    };
    for (key, patch) in patch {
        if patch.is_null() && value.remove(key).is_some() {
            continue;
        }
        merge(value.entry(key).or_insert(Value::Null), patch);
    }
}
