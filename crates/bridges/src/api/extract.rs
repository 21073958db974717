//! Strict extractors of bodies and queries: an unknown field is a 400 that names it.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request, rejection::BytesRejection};
use axum::http::{StatusCode, request::Parts};
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// The time limit for a body to arrive.
const BODY: Duration = Duration::from_secs(30);

/// A JSON body; an empty one counts as `{}`.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let reading = tokio::time::timeout(BODY, Bytes::from_request(request, state));
        let bytes = reading.await.map_err(|_| too_slow())?.map_err(|rejection| unreadable(&rejection))?;
        let bytes: &[u8] = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes };
        // serde would read a list as the struct's fields in order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(ApiError::bad_request("the body must be a JSON object"));
        }
        serde_json::from_slice(bytes)
            .map(Self)
            .map_err(|error| ApiError::bad_request(format!("body: {error}")))
    }
}

fn too_slow() -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not arrive in time")
}

/// A body of any type, up to a size.
pub(super) async fn whole(body: axum::body::Body, limit: usize) -> Result<Bytes, ApiError> {
    let reading = tokio::time::timeout(BODY, axum::body::to_bytes(body, limit));
    reading.await.map_err(|_| too_slow())?.map_err(|_| {
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is over max_body_bytes")
    })
}

/// Returns the error of an unreadable body; an oversized body has its own status.
fn unreadable(rejection: &BytesRejection) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is over max_body_bytes")
    } else {
        ApiError::bad_request(rejection.body_text())
    }
}

/// A body or query without fields.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoFields {}

/// A query string.
pub(super) struct StrictQuery<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(value)| Self(value))
            .map_err(|rejection| ApiError::bad_request(rejection.body_text()))
    }
}

/// The query of a list that is always complete, because it is short.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShortList {
    pub(super) limit: Option<usize>,
}
