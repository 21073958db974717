//! Requests without a connection: each is answered where it was asked, a prompt with what happens until its answer.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;

use super::super::{Inlet, Manner, Outlet};
use super::heard::{Heard, Kind};
use super::http::gone;
use super::hub::{ascii, sse};
use super::{ConnectionSlot, Door};
use crate::api::ApiError;
use crate::api::KnownCaller;
use intercom_daemon::ops::Caller;
use intercom_types::RequestId;
use intercom_wire::jsonrpc::{self, Message};

/// The longest wait for a message that gets no answer.
const UNANSWERED: Duration = Duration::from_secs(30);

pub(super) async fn ask(
    door: &Door,
    caller: Caller,
    manner: Manner,
    heard: Heard,
) -> Result<Response, ApiError> {
    if heard.kind == Kind::Answer {
        return Err(ApiError::bad_request("nothing was asked without a connection"));
    }
    let slot = door.slot()?;
    let (inlet, mut outlet) = door.acp.connect(caller, Manner { connectionless: true, ..manner });
    inlet.put(heard.text).await.map_err(|_| gone())?;
    door.acp.0.figures.heard();
    match heard.kind {
        Kind::Request { id, method } if method == "session/prompt" => {
            Ok(until_answered(Asked { outlet, id, is_answered: false, inlet, slot }))
        }
        Kind::Request { id, .. } => {
            let answer = answer_to(&id, &mut outlet).await.ok_or_else(gone)?;
            door.acp.0.figures.told();
            Ok(([(header::CONTENT_TYPE, "application/json")], answer).into_response())
        }
        Kind::Notification { .. } | Kind::Answer => {
            drop(inlet); // that was all
            let done = async { while outlet.next().await.is_some() {} };
            tokio::time::timeout(UNANSWERED, done).await.ok(); // it goes on without us
            Ok(StatusCode::ACCEPTED.into_response())
        }
    }
}

async fn answer_to(id: &RequestId, outlet: &mut Outlet) -> Option<String> {
    loop {
        let told = outlet.next().await?;
        if told.answers.is_some_and(|(answered, _)| answered == *id) {
            return Some(told.text);
        }
    }
}

/// One request, for as long as anybody listens.
struct Asked {
    outlet: Outlet,
    id: RequestId,
    is_answered: bool,
    /// The connection lasts as long as they.
    #[expect(dead_code, reason = "dropping it is its use")]
    inlet: Inlet,
    slot: ConnectionSlot,
}

fn until_answered(asked: Asked) -> Response {
    sse(stream::unfold(asked, |mut asked| async move {
        if asked.is_answered {
            return None;
        }
        let told = asked.outlet.next().await?;
        asked.slot.0.told();
        asked.is_answered = told.answers.is_some_and(|(answered, _)| answered == asked.id);
        Some((Ok(Event::default().data(ascii(told.text))), asked))
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Of {
    session: String,
}

/// Streams the news of a session, from now on.
pub(super) async fn events(
    State(door): State<Door>,
    KnownCaller(caller): KnownCaller,
    of: Result<Query<Of>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(Of { session }) = of.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    if !door.seats().connectionless {
        return Err(ApiError::bad_request("requests without a connection are not taken here")
            .hint("see connectionless under [seats] in the configuration"));
    }
    let slot = door.slot()?;
    let manner = Manner { connectionless: true, ..Manner::default() };
    let (inlet, mut outlet) = door.acp.connect(caller, manner);
    let id = RequestId::number(0);
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    inlet.put(jsonrpc::request(&id, "session/resume", &params)).await.map_err(|_| gone())?;
    let answer = answer_to(&id, &mut outlet).await.ok_or_else(gone)?;
    if let Ok(Message::Answer { result: Err(error), .. }) = jsonrpc::parse(&answer) {
        let error: serde_json::Value = serde_json::from_str(error.get()).unwrap_or_default();
        let message = error["message"].as_str().unwrap_or("the session cannot be followed").to_owned();
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message));
    }
    let asked = Asked { outlet, id, is_answered: true, inlet, slot };
    Ok(sse(stream::unfold(asked, |mut asked| async move {
        loop {
            let told = asked.outlet.next().await?;
            // Nobody here could answer.
            if matches!(jsonrpc::parse(&told.text), Ok(Message::Notification { .. })) {
                asked.slot.0.told();
                return Some((Ok(Event::default().data(ascii(told.text))), asked));
            }
        }
    })))
}
