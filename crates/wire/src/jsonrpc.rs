//! JSON-RPC 2.0, one message at a time and in both directions. Batches are refused: no agent sends them, and one bad
//! part would cost the others.
//!
//! Ids are scoped to the side that made the request: both may number their requests from 0.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{ParsedText, to_text, trim_json, unquote};
use intercom_types::{Json, RequestId};

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const METHOD_NOT_FOUND: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL_ERROR: i64 = -32603;
/// ACP's code for a missing resource.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// The code for a cancelled request.
pub(crate) const REQUEST_CANCELLED: i64 = -32800;

#[derive(Debug)]
pub enum RpcMessage<'a> {
    Request {
        id: RequestId,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// `id` is `None` if the other side could not parse ours.
    Answer {
        id: Option<RequestId>,
        result: Result<&'a RawValue, &'a RawValue>,
    },
}

/// The reason why a line is not a message. Such a line is never answered: it may be a banner, whose author reads no
/// answers.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRpcMessage {
    #[error("malformed JSON: {0}")]
    Malformed(String),
    #[error("not a JSON object")]
    NotAnObject,
    #[error("a batch of messages, which the protocol does not have")]
    Batch,
    #[error("field `{field}` must be {wanted}")]
    Invalid { field: &'static str, wanted: &'static str },
    #[error("neither a method nor an answer")]
    Neither,
    #[error("both a method and an answer")]
    Both,
    #[error("an answer without an id")]
    NoId,
}

#[derive(Deserialize)]
struct RpcEnvelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    /// `null` is a result like any other.
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Parses a message. The version field is ignored: some agents omit it.
pub fn parse(line: &str) -> Result<RpcMessage<'_>, InvalidRpcMessage> {
    parse_whole(line).map(|(message, _)| message)
}

/// Parses a message and returns it with its text.
pub fn parse_whole(line: &str) -> Result<(RpcMessage<'_>, ParsedText<'_>), InvalidRpcMessage> {
    let line = trim_json(line);
    message(line).map(|message| (message, ParsedText(line)))
}

fn message(line: &str) -> Result<RpcMessage<'_>, InvalidRpcMessage> {
    let malformed = |error: serde_json::Error| InvalidRpcMessage::Malformed(error.to_string());
    if !line.starts_with('{') {
        serde_json::from_str::<&RawValue>(line).map_err(malformed)?;
        return Err(if line.starts_with('[') {
            InvalidRpcMessage::Batch
        } else {
            InvalidRpcMessage::NotAnObject
        });
    }
    let RpcEnvelope { id, method, params, result, error } = serde_json::from_str(line).map_err(malformed)?;
    let id = id.map(|raw| RequestId::parse(raw.get()).ok_or(invalid("id", "a string or a number")));
    let id = id.transpose()?;
    let Some(method) = method else {
        return match (result, error) {
            (_, Some(error)) => Ok(RpcMessage::Answer { id, result: Err(error) }),
            (Some(result), None) if id.is_some() => Ok(RpcMessage::Answer { id, result: Ok(result) }),
            (Some(_), None) => Err(InvalidRpcMessage::NoId),
            (None, None) => Err(InvalidRpcMessage::Neither),
        };
    };
    if result.is_some() || error.is_some() {
        return Err(InvalidRpcMessage::Both);
    }
    let method = unquote(method.get()).ok_or(invalid("method", "a string"))?;
    Ok(match id {
        Some(id) => RpcMessage::Request { id, method, params },
        None => RpcMessage::Notification { method, params },
    })
}

const fn invalid(field: &'static str, wanted: &'static str) -> InvalidRpcMessage {
    InvalidRpcMessage::Invalid { field, wanted }
}

#[derive(Serialize)]
struct OutgoingCall<'a, P: ?Sized> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct OutgoingAnswer<'a, R: ?Sized> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorObject<'a>>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: i64,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a Json>,
}

pub fn request(id: &RequestId, method: &str, params: &(impl Serialize + ?Sized)) -> String {
    to_text(&OutgoingCall { jsonrpc: "2.0", id: Some(id), method, params })
}

pub fn notification(method: &str, params: &(impl Serialize + ?Sized)) -> String {
    to_text(&OutgoingCall { jsonrpc: "2.0", id: None, method, params })
}

pub fn result(id: &RequestId, result: &(impl Serialize + ?Sized)) -> String {
    to_text(&OutgoingAnswer { jsonrpc: "2.0", id, result: Some(result), error: None })
}

pub fn error(id: &RequestId, code: i64, message: &str, data: Option<&Json>) -> String {
    let error = Some(ErrorObject { code, message, data });
    to_text(&OutgoingAnswer::<()> { jsonrpc: "2.0", id, result: None, error })
}

/// Encodes the error object of an answer.
pub(crate) fn error_object(code: i64, message: &str) -> String {
    to_text(&ErrorObject { code, message, data: None })
}

/// Finds the id of an invalid message, if it has one: its sender may wait for an answer.
pub fn find_id(text: &str) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct RpcIdField<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let text = trim_json(text);
    // The members of a batch are not fields of a message.
    let id = text.starts_with('{').then(|| serde_json::from_str::<RpcIdField<'_>>(text).ok())??.id?;
    RequestId::parse(id.get())
}

/// Encodes the answer to an unreadable message, or to a request with an unreadable id.
pub fn error_without_id(code: i64, message: &str) -> String {
    let error = ErrorObject { code, message, data: None };
    to_text(&serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error }))
}

/// Reports whether a message declares JSON-RPC version 2.
pub fn is_version_2(line: &str) -> bool {
    #[derive(Deserialize)]
    struct RpcVersionField<'a> {
        #[serde(borrow)]
        jsonrpc: Option<&'a RawValue>,
    }
    serde_json::from_str::<RpcVersionField<'_>>(line)
        .is_ok_and(|version| version.jsonrpc.is_some_and(|version| version.get() == "\"2.0\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message as a line of its own, to compare with.
    fn seen(line: &str) -> String {
        let raw = |raw: Option<&RawValue>| raw.map_or("-", RawValue::get).to_owned();
        match parse(line) {
            Ok(RpcMessage::Request { id, method, params }) => {
                format!("request {id} {method} {}", raw(params))
            }
            Ok(RpcMessage::Notification { method, params }) => {
                format!("notification {method} {}", raw(params))
            }
            Ok(RpcMessage::Answer { id, result: Ok(result) }) => format!("result {id:?} {result}"),
            Ok(RpcMessage::Answer { id, result: Err(error) }) => format!("error {id:?} {error}"),
            Err(bad) => format!("bad: {bad}"),
        }
    }

    #[test]
    fn messages_are_told_apart() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":0,"method":"a/b","params":{"x": 1.0}}"#, r#"request 0 a/b {"x": 1.0}"#),
            (r#"{"params":[],"method":"m","id":"u-1"}"#, r#"request "u-1" m []"#),
            (r#"{"method":"m"}"#, "notification m -"),
            (r#"{"method":"m","id":null,"params":null}"#, "notification m -"),
            (r#"{"method":"$\/cancel_request"}"#, "notification $/cancel_request -"),
            (r#"{"id":7,"result":null}"#, "result Some(7) null"),
            (r#" {"id":7,"result":{"a":1},"error":null,"future":1} "#, r#"result Some(7) {"a":1}"#),
            (
                r#"{"id":7,"result":null,"error":{"code":-1,"message":"no"}}"#,
                r#"error Some(7) {"code":-1,"message":"no"}"#,
            ),
            (r#"{"id":null,"error":{"code":-32700}}"#, r#"error None {"code":-32700}"#),
            (r#"{"error":"odd"}"#, r#"error None "odd""#),
            (r#"{"id":7}"#, "bad: neither a method nor an answer"),
            (r#"{"id":null,"result":1}"#, "bad: an answer without an id"),
            (r#"{"id":1,"method":"m","result":1}"#, "bad: both a method and an answer"),
            (r#"{"id":true,"method":"m"}"#, "bad: field `id` must be a string or a number"),
            (r#"{"id":1,"method":7}"#, "bad: field `method` must be a string"),
            (
                r#"{"id":1,"id":2,"method":"m"}"#,
                "bad: malformed JSON: duplicate field `id` at line 1 column 12",
            ),
            (r#"[{"id":1,"method":"m"}]"#, "bad: a batch of messages, which the protocol does not have"),
            ("7", "bad: not a JSON object"),
            ("Welcome!", "bad: malformed JSON: expected value at line 1 column 1"),
            ("[server] listening", "bad: malformed JSON: expected value at line 1 column 2"),
            ("", "bad: malformed JSON: EOF while parsing a value at line 1 column 0"),
        ];
        for (line, expected) in cases {
            assert_eq!(seen(line), expected, "{line}");
        }
    }

    #[test]
    fn depth_does_not_matter() {
        let deep = format!(r#"{{"method":"m","params":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(parse(&deep), Ok(RpcMessage::Notification { .. })));
    }

    #[test]
    fn what_we_send_is_one_line_in_a_fixed_order() {
        let id = RequestId::parse("10000000000000000000000001").unwrap();
        let raw = Json::trusted(r#"{"b": 1.0,"a":2}"#);
        let cases = [
            (
                request(&id, "m", &raw),
                r#"{"jsonrpc":"2.0","id":10000000000000000000000001,"method":"m","params":{"b": 1.0,"a":2}}"#,
            ),
            (notification("m", &raw), r#"{"jsonrpc":"2.0","method":"m","params":{"b": 1.0,"a":2}}"#),
            (result(&RequestId::number(3), &()), r#"{"jsonrpc":"2.0","id":3,"result":null}"#),
            (
                error(&RequestId::text("x"), METHOD_NOT_FOUND, "no\nsuch", None),
                r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"no\nsuch"}}"#,
            ),
            (
                error(&RequestId::number(0), INVALID_PARAMS, "", Some(&raw)),
                r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"","data":{"b": 1.0,"a":2}}}"#,
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(line, expected);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            parse(&text).ok();
        }

        #[test]
        fn ids_come_back_as_they_went(
            text in any::<String>(), number in any::<i128>(), float in "-?[1-9][0-9]{0,20}(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?"
        ) {
            let number = RequestId::parse(&number.to_string()).unwrap();
            for id in [RequestId::text(&text), number, RequestId::parse(&float).unwrap()] {
                let line = request(&id, "m", &());
                let Ok(RpcMessage::Request { id: back, .. }) = parse(&line) else { panic!("{line}") };
                prop_assert_eq!(&back, &id);
                let line = result(&id, "x");
                let Ok(RpcMessage::Answer { id: back, result: Ok(_) }) = parse(&line) else { panic!("{line}") };
                prop_assert_eq!(back.as_ref(), Some(&id));
                let line = error(&id, -1, &text, None);
                let Ok(RpcMessage::Answer { id: back, result: Err(_) }) = parse(&line) else { panic!("{line}") };
                prop_assert_eq!(back.as_ref(), Some(&id));
            }
        }
    }
}
