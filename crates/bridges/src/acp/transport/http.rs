//! Streamable HTTP: `initialize` opens a connection and is answered at once; all else is taken, and answered on the
//! connection's stream or on one of its sessions'.

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

/// The time limit for the first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(30);
/// The time limit for a message to be accepted: earlier messages of its client go first.
const TAKEN: Duration = Duration::from_secs(30);
pub(super) const LONGEST_NAME: usize = 200;

pub(super) async fn post(
    State(door): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    request: Request,
) -> Result<Response, ApiError> {
    is_json(request.headers())?;
    let most = door.settings().max_message_bytes;
    let Some(name) = named(request.headers(), CONNECTION)? else {
        let (parts, body) = request.into_parts();
        let heard = read_message(body, most).await?;
        let manner = connect_options(&parts.uri)?;
        if manner.relay {
            return Err(ApiError::bad_request("relay is for WebSockets"));
        }
        if heard.is_initialize() {
            let manner = ConnectOptions { streamable: true, ..manner };
            return initialize(door, caller, manner, heard).await;
        }
        if door.settings().connectionless {
            return stateless::answer_request(&door, caller, manner, heard).await;
        }
        return Err(ApiError::bad_request("the Acp-Connection-Id header is missing")
            .hint("the answer to `initialize` has it"));
    };
    let hub = door.find(&ConnectionKey::Given(name), &caller)?;
    let session = named(request.headers(), SESSION)?;
    take(&hub, request, session.as_deref(), most).await
}

/// A message for a connection that there is.
pub(super) async fn take(
    hub: &HttpConnection,
    request: Request,
    session: Option<&str>,
    most: usize,
) -> Result<Response, ApiError> {
    let _used = hub.used();
    let _turn = hub.bodies.acquire().await.map_err(|_| gone())?;
    let heard = read_message(request.into_body(), most).await?;
    heard.agrees_with(session)?;
    let taken = tokio::time::timeout(TAKEN, hub.put(heard.text)).await;
    taken.map_err(|_| not_reading())?.map_err(|_| gone())?;
    Ok(StatusCode::ACCEPTED.into_response())
}

async fn initialize(
    door: TransportState,
    caller: Caller,
    manner: ConnectOptions,
    heard: InboundMessage,
) -> Result<Response, ApiError> {
    let InboundKind::Request { id, .. } = heard.kind else { return Err(gone()) };
    let slot = door.slot()?;
    let (inlet, mut outlet) = door.acp.connect(caller.clone(), manner);
    let hub = HttpConnection::new(&caller, inlet, Arc::clone(&door.acp.0.metrics), false);
    hub.put(heard.text).await.map_err(|_| gone())?;
    let answering = async {
        loop {
            let told = outlet.next().await?;
            if told.answers.as_ref().is_some_and(|(answered, _)| *answered == id) {
                return Some(told.text);
            }
            hub.enqueue(told).await;
        }
    };
    let answer = tokio::time::timeout(FIRST_ANSWER, answering).await;
    let Ok(Some(answer)) = answer else { return Err(gone()) };
    let json = [(header::CONTENT_TYPE, "application/json")];
    // Whoever was refused has no connection.
    let refused =
        serde_json::from_str::<serde_json::Value>(&answer).is_ok_and(|answer| answer.get("error").is_some());
    if refused {
        return Ok((json, answer).into_response());
    }
    let name = new_name();
    door.register(ConnectionKey::Given(name.clone()), hub, outlet, slot);
    Ok(([(CONNECTION, name)], json, answer).into_response())
}

pub(super) fn listen(
    door: &TransportState,
    caller: Caller,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    if !accepted.into_iter().any(|accept| accept.contains("text/event-stream")) {
        let message = "Accept must have text/event-stream";
        return Err(ApiError::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", message));
    }
    let name = named(headers, CONNECTION)?
        .ok_or_else(|| ApiError::bad_request("the Acp-Connection-Id header is missing"))?;
    let session = named(headers, SESSION)?;
    let hub = door.find(&ConnectionKey::Given(name.clone()), &caller)?;
    let lane: StreamKey = session.as_deref().map(Into::into);
    let mut response = hub.listen(caller, lane, last_id(headers)?).map_err(closed)?;
    let mut tell = |header: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(HeaderName::from_static(header), value);
        }
    };
    tell(CONNECTION, &name);
    if let Some(session) = session {
        tell(SESSION, &session);
    }
    Ok(response)
}

pub(super) async fn delete(
    State(door): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let name = named(&headers, CONNECTION)?
        .ok_or_else(|| ApiError::bad_request("the Acp-Connection-Id header is missing"))?;
    let name = ConnectionKey::Given(name);
    door.find(&name, &caller)?.close();
    door.forget(&name);
    Ok(StatusCode::ACCEPTED)
}

/// Returns the value of a header, if it is there.
fn named(headers: &HeaderMap, header: &'static str) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let value = value.to_str().ok().filter(|value| !value.is_empty() && value.len() <= LONGEST_NAME);
    match (value, values.next()) {
        (Some(value), None) => Ok(Some(value.to_owned())),
        _ => Err(ApiError::bad_request(format!("{header}: one name is needed"))),
    }
}

pub(super) fn last_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let id = value.to_str().ok().and_then(|value| value.trim().parse().ok());
    id.map(Some).ok_or_else(|| ApiError::bad_request("Last-Event-ID must be the id of an event"))
}

pub(super) fn closed(why: StreamRefusal) -> ApiError {
    match why {
        StreamRefusal::TooOld => ApiError::new(StatusCode::GONE, "too_old", "what followed that event is not kept")
            .hint("open the stream without Last-Event-ID, and ask for the session with session/load or session/resume"),
        StreamRefusal::NoSuchId => ApiError::bad_request("Last-Event-ID: there was no such event"),
        StreamRefusal::Unknown => ApiError::new(StatusCode::NOT_FOUND, "not_found", "no such session is of this connection")
            .hint("there are streams for others already; load or resume one of them first"),
    }
}

fn not_reading() -> ApiError {
    let message = "too many of your messages wait to be answered";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message)
        .hint("read the streams of this connection, and try again")
}

pub(super) fn gone() -> ApiError {
    let message = "the connection is closed";
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message).hint("begin with `initialize`")
}
