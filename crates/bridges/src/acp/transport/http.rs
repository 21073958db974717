//! Streamable HTTP. The answer to `initialize` is the answer to its POST and opens a connection; every other POST gets
//! a 202, and its answer comes on the stream of the connection or of a session.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::http_connection::HttpConnection;
use super::inbound::{InboundKind, InboundMessage, is_json, read_message};
use super::stream_queues::{StreamKey, StreamRefusal};
use super::{
    CONNECTION, ConnectOptions, ConnectionKey, SESSION, TransportState, connect_options, new_name, stateless,
};
use crate::api::ApiError;
use crate::api::KnownCaller;
use intercom_daemon::ops::Caller;

/// The time limit for the answer to `initialize`.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for a message to be accepted. Earlier messages of the client go first, and the connection accepts
/// them only as fast as the client reads its answers.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const MAX_NAME_LENGTH: usize = 200;

pub(super) async fn post(
    State(state): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    request: Request,
) -> Result<Response, ApiError> {
    is_json(request.headers())?;
    let limit = state.settings().max_message_bytes;
    let Some(name) = header_value(request.headers(), CONNECTION)? else {
        let (parts, body) = request.into_parts();
        let message = read_message(body, limit).await?;
        let options = connect_options(&parts.uri)?;
        // The relay's line with the position in the log exists on WebSockets only.
        if options.relay {
            return Err(ApiError::bad_request("relay is for WebSockets"));
        }
        if message.is_initialize() {
            let options = ConnectOptions { streamable: true, ..options };
            return initialize(state, caller, options, message).await;
        }
        if state.settings().connectionless {
            return stateless::answer_request(&state, caller, options, message).await;
        }
        return Err(ApiError::bad_request("the Acp-Connection-Id header is missing")
            .hint("the answer to `initialize` has it"));
    };
    let connection = state.find(&ConnectionKey::Given(name), &caller)?;
    let session = header_value(request.headers(), SESSION)?;
    accept_message(&connection, request, session.as_deref(), limit).await
}

/// Accepts a message for an existing connection.
pub(super) async fn accept_message(
    connection: &HttpConnection,
    request: Request,
    session: Option<&str>,
    limit: usize,
) -> Result<Response, ApiError> {
    // Counts as a use from the first byte: a connection must not time out while a body arrives.
    let _used = connection.used();
    // A client may post many bodies at once; only a few of them are in memory.
    let _turn = connection.bodies.acquire().await.map_err(|_| connection_closed())?;
    let message = read_message(request.into_body(), limit).await?;
    message.agrees_with(session)?;
    let accepted = tokio::time::timeout(ACCEPT_TIMEOUT, connection.put(message.text)).await;
    accepted.map_err(|_| overloaded())?.map_err(|_| connection_closed())?;
    Ok(StatusCode::ACCEPTED.into_response())
}

async fn initialize(
    state: TransportState,
    caller: Caller,
    options: ConnectOptions,
    message: InboundMessage,
) -> Result<Response, ApiError> {
    let InboundKind::Request { id, .. } = message.kind else { return Err(connection_closed()) };
    let slot = state.slot()?;
    let (inlet, mut outlet) = state.acp.connect(caller.clone(), options);
    let connection = HttpConnection::new(&caller, inlet, Arc::clone(&state.acp.0.metrics), false);
    connection.put(message.text).await.map_err(|_| connection_closed())?;
    // The streams do not exist yet, so the answer is taken from the outlet here. Other messages, such as news of a
    // session, wait in the queues for the streams.
    let answering = async {
        loop {
            let outgoing = outlet.next().await?;
            if outgoing.answers.as_ref().is_some_and(|(answered, _)| *answered == id) {
                return Some(outgoing.text);
            }
            connection.enqueue(outgoing).await;
        }
    };
    let answer = tokio::time::timeout(FIRST_ANSWER_TIMEOUT, answering).await;
    let Ok(Some(answer)) = answer else { return Err(connection_closed()) };
    let json = [(header::CONTENT_TYPE, "application/json")];
    // A refused client gets no connection: dropping it here ends its task.
    let refused =
        serde_json::from_str::<serde_json::Value>(&answer).is_ok_and(|answer| answer.get("error").is_some());
    if refused {
        return Ok((json, answer).into_response());
    }
    let name = new_name();
    state.register(ConnectionKey::Given(name.clone()), connection, outlet, slot);
    Ok(([(CONNECTION, name)], json, answer).into_response())
}

pub(super) fn listen(
    state: &TransportState,
    caller: Caller,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    if !accepted.into_iter().any(|accept| accept.contains("text/event-stream")) {
        let message = "Accept must include text/event-stream";
        return Err(ApiError::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message));
    }
    let name = header_value(headers, CONNECTION)?
        .ok_or_else(|| ApiError::bad_request("the Acp-Connection-Id header is missing"))?;
    let session = header_value(headers, SESSION)?;
    let connection = state.find(&ConnectionKey::Given(name.clone()), &caller)?;
    let key: StreamKey = session.as_deref().map(Into::into);
    let mut response = connection.listen(caller, key, last_id(headers)?).map_err(refusal_error)?;
    let mut set_header = |header: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(HeaderName::from_static(header), value);
        }
    };
    set_header(CONNECTION, &name);
    if let Some(session) = session {
        set_header(SESSION, &session);
    }
    Ok(response)
}

pub(super) async fn delete(
    State(state): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let name = header_value(&headers, CONNECTION)?
        .ok_or_else(|| ApiError::bad_request("the Acp-Connection-Id header is missing"))?;
    let name = ConnectionKey::Given(name);
    // Removed at once, not by the ending task: the next request with this id must get a 404.
    state.find(&name, &caller)?.close();
    state.forget(&name);
    Ok(StatusCode::ACCEPTED)
}

/// Returns the value of a header that may occur once.
fn header_value(headers: &HeaderMap, header: &'static str) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let value = value.to_str().ok().filter(|value| !value.is_empty() && value.len() <= MAX_NAME_LENGTH);
    match (value, values.next()) {
        (Some(value), None) => Ok(Some(value.to_owned())),
        _ => Err(ApiError::bad_request(format!("{header} must have exactly one value"))),
    }
}

pub(super) fn last_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let id = value.to_str().ok().and_then(|value| value.trim().parse().ok());
    id.map(Some).ok_or_else(|| ApiError::bad_request("Last-Event-ID must be the id of an event"))
}

pub(super) fn refusal_error(why: StreamRefusal) -> ApiError {
    match why {
        StreamRefusal::TooOld => {
            ApiError::new(StatusCode::GONE, "too_old", "the events after that id are no longer kept")
                .hint("open the stream without Last-Event-ID, then send session/load or session/resume")
        }
        StreamRefusal::NoSuchId => ApiError::bad_request("Last-Event-ID: there was no such event"),
        StreamRefusal::Unknown => {
            ApiError::new(StatusCode::NOT_FOUND, "not_found", "this connection has no such session").hint(
                "too many streams wait for sessions already; load or resume one of these sessions first",
            )
        }
    }
}

fn overloaded() -> ApiError {
    let message = "too many of your messages are waiting for an answer";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message)
        .hint("read the streams of this connection, then try again")
}

pub(super) fn connection_closed() -> ApiError {
    let message = "the connection is closed";
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message).hint("begin with `initialize`")
}
