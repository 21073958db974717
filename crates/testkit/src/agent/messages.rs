//! The messages that are a step each.

use serde_json::{Value, json};

use crate::script::{parse_id, split};

/// The message of a step that is just that.
pub(super) fn compose(name: &str, rest: &str) -> Result<Option<Value>, String> {
    Ok(Some(match name {
        "status" => message("status/update", None, &params(rest, "message")?),
        "clearance" => {
            let (id, rest) = split(rest);
            message("clearance/request", Some(&parse_id(id)), &params(rest, "title")?)
        }
        "question" => {
            let (id, rest) = split(rest);
            message("prompt/forward", Some(&parse_id(id)), &params(rest, "text")?)
        }
        "heartbeat" if rest.is_empty() => message("heartbeat", None, &json!({})),
        "heartbeat" => message("heartbeat", None, &json!({ "progress": progress(rest)? })),
        "done" => {
            let all = rest.split(',').map(|label| json!({ "label": label, "status": "completed" }));
            message("heartbeat", None, &json!({ "progress": all.collect::<Value>() }))
        }
        "turn-end" => {
            let reason = if rest.is_empty() { "end_turn" } else { rest };
            message("turn/end", None, &json!({ "stop_reason": reason }))
        }
        "notify" => {
            let (method, rest) = split(rest);
            message(method, None, &params(rest, "message")?)
        }
        "request" => {
            let (method, rest) = split(rest);
            let (id, rest) = split(rest);
            message(method, Some(&parse_id(id)), &params(rest, "message")?)
        }
        _ => return Ok(None),
    }))
}

pub(super) fn message(method: &str, id: Option<&Value>, params: &Value) -> Value {
    let mut message = json!({ "method": method, "params": params });
    if let Some(id) = id {
        message["id"] = id.clone();
    }
    message
}

/// A JSON object as it is, or plain text as the value of `key`.
pub(super) fn params(text: &str, key: &str) -> Result<Value, String> {
    match text {
        "" => Ok(json!({})),
        _ if text.starts_with('{') => serde_json::from_str(text).map_err(|error| format!("params: {error}")),
        _ => Ok(json!({ key: text })),
    }
}

pub(super) fn progress(text: &str) -> Result<Value, String> {
    if text.starts_with('[') {
        return serde_json::from_str(text).map_err(|error| format!("progress: {error}"));
    }
    let entry = |entry: &str| match entry.split_once('=') {
        Some((label, status)) => Ok(json!({ "label": label, "status": status })),
        None => Err(format!("{entry:?} is not LABEL=STATUS")),
    };
    text.split(',').map(entry).collect()
}
