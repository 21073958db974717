//! Requests without a connection: each is answered where it was asked, a prompt with what happens until its answer.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;

use super::super::{ClientInlet, ClientOutlet, ConnectOptions};
use super::http::gone;
use super::http_connection::{ascii, sse};
use super::inbound::{InboundKind, InboundMessage};
use super::{ConnectionSlot, TransportState};
use crate::api::ApiError;
use crate::api::KnownCaller;
use intercom_daemon::ops::Caller;
use intercom_types::RequestId;
use intercom_wire::jsonrpc::{self, RpcMessage};

/// The longest wait for a message that gets no answer.
const UNANSWERED: Duration = Duration::from_secs(30);

pub(super) async fn answer_request(
    door: &TransportState,
    caller: Caller,
    manner: ConnectOptions,
    heard: InboundMessage,
) -> Result<Response, ApiError> {
    if heard.kind == InboundKind::Answer {
        return Err(ApiError::bad_request("nothing was asked without a connection"));
    }
    let slot = door.slot()?;
    let (inlet, mut outlet) = door.acp.connect(caller, ConnectOptions { connectionless: true, ..manner });
    inlet.put(heard.text).await.map_err(|_| gone())?;
    door.acp.0.metrics.count_received();
    match heard.kind {
        InboundKind::Request { id, method } if method == "session/prompt" => {
            Ok(until_answered(StatelessRequest { outlet, id, is_answered: false, inlet, slot }))
        }
        InboundKind::Request { id, .. } => {
            let answer = answer_to(&id, &mut outlet).await.ok_or_else(gone)?;
            door.acp.0.metrics.count_sent();
            Ok(([(header::CONTENT_TYPE, "application/json")], answer).into_response())
        }
        InboundKind::Notification { .. } | InboundKind::Answer => {
            drop(inlet); // that was all
            let done = async { while outlet.next().await.is_some() {} };
            tokio::time::timeout(UNANSWERED, done).await.ok(); // it goes on without us
            Ok(StatusCode::ACCEPTED.into_response())
        }
    }
}

async fn answer_to(id: &RequestId, outlet: &mut ClientOutlet) -> Option<String> {
    loop {
        let told = outlet.next().await?;
        if told.answers.is_some_and(|(answered, _)| answered == *id) {
            return Some(told.text);
        }
    }
}

/// One request, for as long as anybody listens.
struct StatelessRequest {
    outlet: ClientOutlet,
    id: RequestId,
    is_answered: bool,
    /// The connection lasts as long as they.
    #[expect(dead_code, reason = "dropping it is its use")]
    inlet: ClientInlet,
    slot: ConnectionSlot,
}

fn until_answered(asked: StatelessRequest) -> Response {
    sse(stream::unfold(asked, |mut asked| async move {
        if asked.is_answered {
            return None;
        }
        let told = asked.outlet.next().await?;
        asked.slot.0.count_sent();
        asked.is_answered = told.answers.is_some_and(|(answered, _)| answered == asked.id);
        Some((Ok(Event::default().data(ascii(told.text))), asked))
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatelessEventsQuery {
    session: String,
}

/// Streams the news of a session, from now on.
pub(super) async fn events(
    State(door): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    of: Result<Query<StatelessEventsQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(StatelessEventsQuery { session }) =
        of.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    if !door.settings().connectionless {
        return Err(ApiError::bad_request("requests without a connection are not taken here")
            .hint("see connectionless under [seats] in the configuration"));
    }
    let slot = door.slot()?;
    let manner = ConnectOptions { connectionless: true, ..ConnectOptions::default() };
    let (inlet, mut outlet) = door.acp.connect(caller, manner);
    let id = RequestId::number(0);
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    inlet.put(jsonrpc::request(&id, "session/resume", &params)).await.map_err(|_| gone())?;
    let answer = answer_to(&id, &mut outlet).await.ok_or_else(gone)?;
    if let Ok(RpcMessage::Answer { result: Err(error), .. }) = jsonrpc::parse(&answer) {
        let error: serde_json::Value = serde_json::from_str(error.get()).unwrap_or_default();
        let message = error["message"].as_str().unwrap_or("the session cannot be followed").to_owned();
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message));
    }
    let asked = StatelessRequest { outlet, id, is_answered: true, inlet, slot };
    Ok(sse(stream::unfold(asked, |mut asked| async move {
        loop {
            let told = asked.outlet.next().await?;
            // Nobody here could answer.
            if matches!(jsonrpc::parse(&told.text), Ok(RpcMessage::Notification { .. })) {
                asked.slot.0.count_sent();
                return Some((Ok(Event::default().data(ascii(told.text))), asked));
            }
        }
    })))
}
