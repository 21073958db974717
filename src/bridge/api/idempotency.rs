//! `Idempotency-Key`: a POST that is repeated with the same key gets the first answer and does nothing again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Api;
use super::access::Caller;
use super::error::ApiError;
use super::extract::whole;
use crate::domain::Time;
use crate::store::Remembered;

const MAX_KEY: usize = 255;
/// Answers are small; one that is not is not remembered.
const MAX_ANSWER: usize = 8 << 20;

/// Keys whose first request is being worked on: a second one waits for it.
#[derive(Debug, Default)]
pub(super) struct Keys(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Keys {
    fn turn(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(keys.entry(key.to_owned()).or_default())
    }
}

pub(super) async fn honour(State(api): State<Api>, request: Request, next: Next) -> Response {
    let Some(key) = request.headers().get("idempotency-key").cloned() else { return next.run(request).await };
    // A caller who hangs up is the one who will try again: what was begun is finished and remembered without it.
    let tasks = api.0.tasks.clone();
    match tasks.spawn(async move { honoured(&api, &key, request, next).await }).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => error.into_response(),
        Err(_) => ApiError::internal("the request failed").into_response(),
    }
}

async fn honoured(api: &Api, key: &HeaderValue, request: Request, next: Next) -> Result<Response, ApiError> {
    let key = key.to_str().ok().filter(|key| (1..=MAX_KEY).contains(&key.len()));
    let key =
        key.ok_or_else(|| ApiError::bad_request("Idempotency-Key must have 1 to 255 visible characters"))?;
    let limit = api.supervisor().config().limits.max_body_bytes;
    let (parts, body) = request.into_parts();
    let body = whole(body, limit).await?;
    let fingerprint = format!("{} {:016x}", parts.uri.path(), fnv1a(&body));

    // Keys are each caller's own: nobody gets an answer that was given to somebody else.
    let whose = request_by(&parts);
    let key = &format!("{whose}\n{key}");
    let turn = api.0.idempotency.turn(key);
    let _turn = turn.lock().await;
    if let Some(first) = api.store().recall(key.to_owned(), Time::now()).await? {
        if first.fingerprint != fingerprint {
            let message = "this Idempotency-Key was used for another request";
            return Err(ApiError::unprocessable("idempotency_key_reused", message));
        }
        return Ok(answer(first.status, first.body));
    }
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    let status = response.status();
    let body = to_bytes(response.into_body(), MAX_ANSWER)
        .await
        .map_err(|_| ApiError::internal("the answer could not be read"))?;
    let body = String::from_utf8_lossy(&body).into_owned();
    // A fault of ours is no answer: the next try may do better.
    if !status.is_server_error() {
        let remembered = Remembered { fingerprint, status: status.as_u16(), body: body.clone() };
        // What was done stays done: whoever has this answer does not ask again.
        if let Err(error) = api.store().remember(key.to_owned(), remembered, Time::now()).await {
            tracing::warn!(%error, "an answer could not be remembered");
        }
    }
    Ok(answer(status.as_u16(), body))
}

fn request_by(parts: &axum::http::request::Parts) -> String {
    parts.extensions.get::<Caller>().map(|caller| caller.name.clone()).unwrap_or_default()
}

fn answer(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The same in every version of this program: a request may be repeated after an upgrade.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
