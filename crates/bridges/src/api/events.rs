//! The log over HTTP: a live stream, pages, or a file.

use std::convert::Infallible;
use std::io;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::ApiBridge;
use super::access::KnownCaller;
use super::error::ApiError;
use super::extract::StrictQuery;
use intercom_daemon::ops::{EventsQuery, LogFileQuery};

pub(super) async fn events(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    headers: HeaderMap,
    StrictQuery(mut query): StrictQuery<EventsQuery>,
) -> Result<Response, ApiError> {
    if let Some(last) = headers.get("last-event-id") {
        let seq = last.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
        query.after = Some(seq.ok_or_else(|| ApiError::bad_request("Last-Event-ID must be a seq"))?);
    }
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if query.before.is_some() || accept.contains("application/json") {
        return Ok(Json(api.ops().event_page(&caller, query).await?).into_response());
    }
    let follower = api.ops().follow_events(&caller, query, api.0.closing.clone()).await?;
    let frames = stream::unfold(follower, |mut follower| async move {
        let frames = follower.next().await?;
        Some((Ok::<_, Infallible>(frames), follower))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(frames)).into_response())
}

/// Streams a session's log to now, one event per line.
pub(super) async fn download(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    Path(id): Path<String>,
    StrictQuery(query): StrictQuery<LogFileQuery>,
) -> Result<Response, ApiError> {
    let log = api.ops().session_log(&caller, &id, query).await?;
    let name = format!("attachment; filename=\"{}.jsonl\"", log.session());
    let lines = stream::try_unfold(log, |mut log| async move {
        let lines = log.next().await.map_err(io::Error::other)?;
        Ok::<_, io::Error>(lines.map(|lines| (lines, log)))
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CONTENT_DISPOSITION, &name)];
    Ok((headers, Body::from_stream(lines)).into_response())
}
