//! The relay's own messages, and the fields that it reads of others. Everything else passes through unchanged.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use intercom_types::{Json, PromptId, RequestId};
use intercom_wire::jsonrpc;

/// The kind of a request. It decides what the relay learns from the answer, and what it does if the daemon goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientRequestKind {
    Initialize,
    /// Creates a session.
    New,
    /// Attaches to a session; safe to repeat.
    Attach,
    /// Sends a prompt; safe to repeat, because the daemon recognises it by an id of ours.
    Prompt,
    /// Changes nothing; safe to repeat.
    Read,
    /// Leaves a session.
    Leave,
    Other,
}

impl ClientRequestKind {
    pub(super) fn of(method: &str) -> Self {
        match method {
            "initialize" => Self::Initialize,
            "session/new" | "session/fork" => Self::New,
            "session/load" | "session/resume" => Self::Attach,
            "session/prompt" => Self::Prompt,
            "session/list" | "authenticate" => Self::Read,
            "session/close" | "session/delete" => Self::Leave,
            _ => Self::Other,
        }
    }

    /// Returns true if its text may be needed a second time.
    pub(super) fn is_resendable(self) -> bool {
        matches!(self, Self::Initialize | Self::Attach | Self::Prompt | Self::Read)
    }
}

/// The fields that are read of params and results. A missing or invalid field is `None`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RelayedFields {
    pub(super) session_id: Option<String>,
    pub(super) request_id: Option<RequestId>,
    pub(super) cwd: Option<Json>,
    pub(super) mcp_servers: Option<Json>,
    pub(super) additional_directories: Option<Json>,
}

impl RelayedFields {
    pub(super) fn of(raw: Option<&RawValue>) -> Self {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

/// Splits a frame into the session and number of the event that it belongs to, and the message. Not every message has
/// such a line before it.
pub(super) fn split(frame: &str) -> (Option<(u64, &str)>, &str) {
    let read = || {
        let (head, text) = frame.strip_prefix('@')?.split_once('\n')?;
        let (seq, session) = head.split_once(' ')?;
        Some(((seq.parse().ok()?, session), text))
    };
    read().map_or((None, frame), |(place, text)| (Some(place), text))
}

/// Returns a `session/prompt` with this id in `params._meta.intercom.prompt`; all other bytes are unchanged. A message
/// without parameters has no place for the id, and is not a valid prompt either.
pub(super) fn with_prompt_id(text: String, id: PromptId) -> String {
    type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;
    const PATH: [&str; 4] = ["params", "_meta", "intercom", "prompt"];
    let mut object = text.as_str();
    for (depth, name) in PATH.iter().enumerate() {
        let Ok(members) = serde_json::from_str::<Members<'_>>(object) else { return text };
        let (found, inner) = (members.get(*name).map(|raw| raw.get()), &PATH[depth + 1..]);
        if let Some(found) = found.filter(|found| found.starts_with('{') && !inner.is_empty()) {
            object = found;
            continue;
        }
        if depth == 0 {
            break;
        }
        let value = inner.iter().rev().fold(json!(id), |value, name| json!({ *name: value }));
        // Both are parts of the text.
        let offset = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
        let (from, length, new) = if let Some(old) = found {
            (offset(old), old.len(), value.to_string())
        } else {
            let comma = if members.is_empty() { "" } else { "," };
            (offset(object) + 1, 0, format!("\"{name}\":{value}{comma}"))
        };
        return [&text[..from], &new, &text[from + length..]].concat();
    }
    text
}

/// The params of `session/resume`: those of the client, and the event after which the updates begin.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RelayedResumeParams<'a> {
    pub(super) session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cwd: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mcp_servers: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) additional_directories: Option<&'a Json>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub(super) meta: Option<Value>,
}

#[derive(Serialize)]
struct RelayMessage<'a> {
    jsonrpc: &'static str,
    id: Option<&'a RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawValue>,
}

const EMPTY: RelayMessage<'static> =
    RelayMessage { jsonrpc: "2.0", id: None, method: None, params: None, result: None, error: None };

/// Returns the same request under another id.
pub(super) fn request(id: &RequestId, method: &str, params: Option<&RawValue>) -> String {
    render(&RelayMessage { id: Some(id), method: Some(method), params, ..EMPTY })
}

/// Returns the same answer under another id.
pub(super) fn answer(id: &RequestId, result: Result<&RawValue, &RawValue>) -> String {
    render(&RelayMessage { id: Some(id), result: result.ok(), error: result.err(), ..EMPTY })
}

/// Returns an error of our own; without an id if it answers a message that has none.
pub(super) fn error(id: Option<&RequestId>, code: i64, message: &str) -> String {
    match id {
        Some(id) => jsonrpc::error(id, code, message, None),
        None => jsonrpc::error_without_id(code, message),
    }
}

fn render(message: &RelayMessage<'_>) -> String {
    serde_json::to_string(message).expect("messages have string keys and valid parts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_is_put_where_it_belongs_and_nothing_else_is_touched() {
        let id = PromptId::mint();
        for (before, after) in [
            (r#"{"params":{}}"#, r#"{"params":{"_meta":{"intercom":{"prompt":ID}}}}"#),
            (
                r#" {"id": 1.0, "params" : { "x":1e2, "x2":"\u00e9"}, "y":[ ]} "#,
                r#" {"id": 1.0, "params" : {"_meta":{"intercom":{"prompt":ID}}, "x":1e2, "x2":"\u00e9"}, "y":[ ]} "#,
            ),
            (
                r#"{"params":{"a":1,"_meta":{ "trace":7}}}"#,
                r#"{"params":{"a":1,"_meta":{"intercom":{"prompt":ID}, "trace":7}}}"#,
            ),
            (
                r#"{"params":{"_meta":{"intercom":{ "after" : 1 }}}}"#,
                r#"{"params":{"_meta":{"intercom":{"prompt":ID, "after" : 1 }}}}"#,
            ),
            (r#"{"params":{"_meta":null}}"#, r#"{"params":{"_meta":{"intercom":{"prompt":ID}}}}"#),
            (r#"{"params":{"_meta":{"intercom":7}}}"#, r#"{"params":{"_meta":{"intercom":{"prompt":ID}}}}"#),
            (
                r#"{"params":{"_meta":{"intercom":{"prompt":{ },"b":2}}}}"#,
                r#"{"params":{"_meta":{"intercom":{"prompt":ID,"b":2}}}}"#,
            ),
            (
                r#"{"params":{"\u005fmeta":{}},"_meta":{}}"#,
                r#"{"params":{"\u005fmeta":{"intercom":{"prompt":ID}}},"_meta":{}}"#,
            ),
            (r#"{"params":[1]}"#, r#"{"params":[1]}"#),
            (r#"{"method":"session/prompt"}"#, r#"{"method":"session/prompt"}"#),
        ] {
            let expected = after.replace("ID", &json!(id).to_string());
            assert_eq!(with_prompt_id(before.to_owned(), id), expected);
        }
    }

    #[test]
    fn what_the_daemon_puts_before_a_message_is_taken_off() {
        assert_eq!(split("@7 ses_1\n{\n}"), (Some((7, "ses_1")), "{\n}"));
        for plain in ["{}", "", "@7 ses_1", "@-7 ses_1\n{}", "@7\n{}", " @7 ses_1\n{}"] {
            assert_eq!(split(plain), (None, plain));
        }
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<u32>().prop_map(Value::from), ".*".prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let name = prop_oneof![Just("_meta"), Just("intercom"), Just("prompt"), Just("a b")];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map(name.prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_the_client_says_is_kept(params in json_value(), pretty in any::<bool>()) {
            let message = json!({ "id": 1, "method": "session/prompt", "params": params });
            let text = if pretty { format!("{message:#}") } else { message.to_string() };
            let id = PromptId::mint();
            let sent: Value = serde_json::from_str(&with_prompt_id(text, id)).unwrap();
            let mut expected = message;
            if expected["params"].is_object() {
                for path in ["/params/_meta", "/params/_meta/intercom"] {
                    let (inside, name) = path.rsplit_once('/').unwrap();
                    let inside = &mut expected.pointer_mut(inside).unwrap()[name];
                    if !inside.is_object() {
                        *inside = json!({});
                    }
                }
                expected["params"]["_meta"]["intercom"]["prompt"] = json!(id);
            }
            prop_assert_eq!(sent, expected);
        }
    }
}
