//! A message that a client posts, parsed just enough to route it.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::ApiError;
use intercom_types::RequestId;
use intercom_wire::jsonrpc::{self, InvalidRpcMessage, RpcMessage};

/// The time limit for a message to arrive.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct InboundMessage {
    pub(super) text: String,
    pub(super) kind: InboundKind,
    /// The session in `params.sessionId`.
    pub(super) session: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum InboundKind {
    Request { id: RequestId, method: String },
    Notification { method: String },
    Answer,
}

impl InboundMessage {
    pub(super) fn is_initialize(&self) -> bool {
        matches!(&self.kind, InboundKind::Request { method, .. } if method == "initialize")
    }

    fn method(&self) -> Option<&str> {
        match &self.kind {
            InboundKind::Request { method, .. } | InboundKind::Notification { method } => Some(method),
            InboundKind::Answer => None,
        }
    }

    /// Checks that a message about a session names it, and that the header, if there is one, names the same.
    pub(super) fn agrees_with(&self, header: Option<&str>) -> Result<(), ApiError> {
        // `$/` messages are about a request, so the header need not match.
        match (self.method(), header, self.session.as_deref()) {
            (Some(method), Some(header), Some(session)) if header != session && !method.starts_with("$/") => {
                Err(ApiError::bad_request("Acp-Session-Id and params.sessionId differ"))
            }
            (Some(method), _, None) if is_about_a_session(method) => {
                Err(ApiError::bad_request(format!("{method}: params.sessionId is missing")))
            }
            _ => Ok(()),
        }
    }
}

/// Returns true for known methods about a session. The connection answers unknown methods.
fn is_about_a_session(method: &str) -> bool {
    let about = [
        "load",
        "resume",
        "prompt",
        "cancel",
        "set_mode",
        "set_config_option",
        "set_model",
        "close",
        "delete",
    ];
    method.strip_prefix("session/").is_some_and(|rest| about.contains(&rest))
}

pub(super) fn is_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "Content-Type must be application/json";
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message))
}

pub(super) async fn read_message(body: Body, limit: usize) -> Result<InboundMessage, ApiError> {
    // `to_bytes` counts what arrives, so a wrong Content-Length does not matter. The time limit frees the place of a
    // client that stops in the middle of a body.
    let arriving = tokio::time::timeout(ARRIVAL_TIMEOUT, axum::body::to_bytes(body, limit));
    let bytes = arriving.await.map_err(|_| {
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the message did not arrive in time")
    })?;
    let bytes = bytes.map_err(|_| {
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the message is over max_message_bytes")
    })?;
    let text = String::from_utf8(bytes.into())
        .map_err(|_| ApiError::new(StatusCode::BAD_REQUEST, "bad_json", "the message is not UTF-8"))?;
    parse_message(text)
}

fn parse_message(text: String) -> Result<InboundMessage, ApiError> {
    // Only for routing. The connection parses the text again: it is the one place that decides its meaning, for every
    // transport.
    let (kind, params) = match jsonrpc::parse(&text) {
        Ok(RpcMessage::Request { id, method, params }) => {
            (InboundKind::Request { id, method: method.into_owned() }, params)
        }
        Ok(RpcMessage::Notification { method, params }) => {
            (InboundKind::Notification { method: method.into_owned() }, params)
        }
        Ok(RpcMessage::Answer { .. }) => (InboundKind::Answer, None),
        Err(InvalidRpcMessage::Batch) => {
            let message = "JSON-RPC batches are not supported";
            return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "batch", message)
                .hint("send one message per request"));
        }
        Err(invalid @ InvalidRpcMessage::Malformed(_)) => {
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_json", invalid.to_string()));
        }
        Err(invalid) => return Err(ApiError::bad_request(invalid.to_string())),
    };
    let session = params.and_then(session_in);
    Ok(InboundMessage { text, kind, session })
}

fn session_in(params: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct SessionParam {
        #[serde(rename = "sessionId")]
        session: Option<String>,
    }
    serde_json::from_str::<SessionParam>(params.get()).ok()?.session
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;

    fn status(text: &str, header: Option<&str>) -> u16 {
        let agreed = parse_message(text.to_owned()).and_then(|message| message.agrees_with(header));
        agreed.map_or_else(|error| error.into_response().status().as_u16(), |()| 202)
    }

    #[test]
    fn a_message_about_a_session_names_it_and_the_header_says_the_same() {
        let prompt = r#"{"id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#;
        for (text, header, expected) in [
            (prompt, None, 202),
            (prompt, Some("a"), 202),
            (prompt, Some("b"), 400),
            (r#"{"id":1,"method":"session/prompt","params":{}}"#, Some("a"), 400),
            (r#"{"id":1,"method":"session/prompt"}"#, None, 400),
            (r#"{"id":1,"method":"session/prompt","params":{"sessionId":7}}"#, None, 400),
            (r#"{"method":"session/cancel","params":[]}"#, None, 400),
            (r#"{"id":1,"method":"session/new","params":{}}"#, None, 202),
            (r#"{"id":1,"method":"session/list"}"#, None, 202),
            (r#"{"id":1,"result":{}}"#, Some("a"), 202),
            (r#"{"method":"$/cancel_request","params":{"requestId":1}}"#, Some("a"), 202),
            (r#"{"id":1,"method":"_my/own","params":{"sessionId":"a"}}"#, None, 202),
            (r#"[{"id":1,"method":"initialize"}]"#, None, 501),
            ("[]", None, 501),
            ("{", None, 400),
            ("", None, 400),
            ("7", None, 400),
            (r#"{"id":1}"#, None, 400),
        ] {
            assert_eq!(status(text, header), expected, "{text} {header:?}");
        }
    }
}
