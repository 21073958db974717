//! `Idempotency-Key`: a POST that is repeated with the same key gets the first answer and does nothing again.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::ApiBridge;
use super::error::ApiError;
use super::extract::whole;
use intercom_daemon::ops::{Caller, OpError, StoredAnswer};

const MAX_KEY: usize = 255;
/// The size limit of remembered answers.
const MAX_ANSWER: usize = 8 << 20;

pub(super) async fn honour(State(api): State<ApiBridge>, request: Request, next: Next) -> Response {
    let Some(key) = request.headers().get("idempotency-key").cloned() else { return next.run(request).await };
    honoured(&api, &key, request, next).await.unwrap_or_else(IntoResponse::into_response)
}

async fn honoured(
    api: &ApiBridge,
    key: &HeaderValue,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let key = key.to_str().ok().filter(|key| (1..=MAX_KEY).contains(&key.len()));
    let key =
        key.ok_or_else(|| ApiError::bad_request("Idempotency-Key must have 1 to 255 visible characters"))?;
    let limit = api.supervisor().config().limits.max_body_bytes;
    let (parts, body) = request.into_parts();
    let body = whole(body, limit).await?;
    let caller = parts.extensions.get::<Caller>().map(|caller| caller.name.clone()).unwrap_or_default();
    let (path, content) = (parts.uri.path().to_owned(), body.clone());
    let work = async move {
        let response = next.run(Request::from_parts(parts, Body::from(content))).await;
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), MAX_ANSWER)
            .await
            .map_err(|_| OpError::internal("the answer could not be read"))?;
        Ok(StoredAnswer { status, body: String::from_utf8_lossy(&body).into_owned() })
    };
    let StoredAnswer { status, body } = api.ops().once(&caller, key, (&path, &body), work).await?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}
