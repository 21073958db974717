//! Requests without a connection. Each POST gets its answer as its response; a prompt gets a stream with the updates
//! until its answer.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;

use super::super::{ClientInlet, ClientOutlet, ConnectOptions};
use super::http::connection_closed;
use super::http_connection::{ascii, sse};
use super::inbound::{InboundKind, InboundMessage};
use super::{ConnectionSlot, TransportState};
use crate::api::ApiError;
use crate::api::KnownCaller;
use intercom_daemon::ops::Caller;
use intercom_types::RequestId;
use intercom_wire::jsonrpc::{self, RpcMessage};

/// The time limit for a notification to be processed.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn answer_request(
    state: &TransportState,
    caller: Caller,
    options: ConnectOptions,
    message: InboundMessage,
) -> Result<Response, ApiError> {
    if message.kind == InboundKind::Answer {
        return Err(ApiError::bad_request(
            "an answer needs a connection: without one there are no requests to you",
        ));
    }
    // Counted like a connection: otherwise requests would be a way around `max_connections`.
    let slot = state.slot()?;
    let (inlet, mut outlet) = state.acp.connect(caller, ConnectOptions { connectionless: true, ..options });
    inlet.put(message.text).await.map_err(|_| connection_closed())?;
    state.acp.0.metrics.count_received();
    match message.kind {
        InboundKind::Request { id, method } if method == "session/prompt" => {
            Ok(stream_until_answered(StatelessRequest { outlet, id, is_answered: false, inlet, slot }))
        }
        InboundKind::Request { id, .. } => {
            let answer = await_answer(&id, &mut outlet).await.ok_or_else(connection_closed)?;
            state.acp.0.metrics.count_sent();
            Ok(([(header::CONTENT_TYPE, "application/json")], answer).into_response())
        }
        InboundKind::Notification { .. } | InboundKind::Answer => {
            drop(inlet); // the connection ends when the message is processed
            let done = async { while outlet.next().await.is_some() {} };
            tokio::time::timeout(NOTIFICATION_TIMEOUT, done).await.ok(); // it continues without the caller
            Ok(StatusCode::ACCEPTED.into_response())
        }
    }
}

async fn await_answer(id: &RequestId, outlet: &mut ClientOutlet) -> Option<String> {
    loop {
        // Everything but the answer is dropped: without a connection there is no stream for it.
        let outgoing = outlet.next().await?;
        if outgoing.answers.is_some_and(|(answered, _)| answered == *id) {
            return Some(outgoing.text);
        }
    }
}

/// One request; the state of its response body, dropped when the client disconnects.
struct StatelessRequest {
    outlet: ClientOutlet,
    id: RequestId,
    is_answered: bool,
    /// Keeps the connection open for as long as the response.
    #[expect(dead_code, reason = "dropping it is its use")]
    inlet: ClientInlet,
    slot: ConnectionSlot,
}

fn stream_until_answered(request: StatelessRequest) -> Response {
    sse(stream::unfold(request, |mut request| async move {
        if request.is_answered {
            return None;
        }
        let outgoing = request.outlet.next().await?;
        request.slot.0.count_sent();
        request.is_answered = outgoing.answers.is_some_and(|(answered, _)| answered == request.id);
        Some((Ok(Event::default().data(ascii(outgoing.text))), request))
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatelessEventsQuery {
    session: String,
}

/// Streams the news of a session, from now on.
pub(super) async fn events(
    State(state): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    query: Result<Query<StatelessEventsQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(StatelessEventsQuery { session }) =
        query.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    if !state.settings().connectionless {
        return Err(ApiError::bad_request("requests without a connection are turned off")
            .hint("see connectionless under [acp_server] in the configuration"));
    }
    let slot = state.slot()?;
    let options = ConnectOptions { connectionless: true, ..ConnectOptions::default() };
    let (inlet, mut outlet) = state.acp.connect(caller, options);
    let id = RequestId::number(0);
    // The protocol requires `cwd` and `mcpServers`; for an existing session they have no effect.
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    inlet.put(jsonrpc::request(&id, "session/resume", &params)).await.map_err(|_| connection_closed())?;
    let answer = await_answer(&id, &mut outlet).await.ok_or_else(connection_closed)?;
    if let Ok(RpcMessage::Answer { result: Err(error), .. }) = jsonrpc::parse(&answer) {
        let error: serde_json::Value = serde_json::from_str(error.get()).unwrap_or_default();
        let message = error["message"].as_str().unwrap_or("the session cannot be opened").to_owned();
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message));
    }
    let request = StatelessRequest { outlet, id, is_answered: true, inlet, slot };
    Ok(sse(stream::unfold(request, |mut request| async move {
        loop {
            let outgoing = request.outlet.next().await?;
            // Only notifications: a one-way stream cannot answer requests.
            if matches!(jsonrpc::parse(&outgoing.text), Ok(RpcMessage::Notification { .. })) {
                request.slot.0.count_sent();
                return Some((Ok(Event::default().data(ascii(outgoing.text))), request));
            }
        }
    })))
}
