//! How the daemon is, and a copy of all it knows.

use std::fmt::Write as _;
use std::path::PathBuf;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Api;
use super::error::ApiError;
use super::extract::{Body, Nothing, Query};
use crate::store::{ClearanceFilter, QuestionFilter};

pub(super) async fn health(
    State(api): State<Api>,
    Query(Nothing {}): Query<Nothing>,
) -> Result<Json<Value>, ApiError> {
    let (live, total) = api.store().count_sessions().await?;
    Ok(Json(json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "sessions": { "live": live, "total": total },
        "bridges": { "api": "ok" },
        "last_seq": api.bell().listen().newest(),
    })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackupRequest {
    path: PathBuf,
}

pub(super) async fn backup(
    State(api): State<Api>,
    Body(request): Body<BackupRequest>,
) -> Result<Json<Value>, ApiError> {
    let path = request.path;
    if !path.is_absolute() {
        return Err(ApiError::bad_request("path must be absolute"));
    }
    if path.exists() {
        return Err(ApiError::conflict("exists", format!("{} exists already", path.display())));
    }
    let bytes = api.store().backup(&path).await.map_err(|error| {
        let message = format!("{} could not be written: {error}", path.display());
        ApiError::unprocessable("backup_failed", message)
    })?;
    Ok(Json(json!({ "path": path, "bytes": bytes })))
}

/// Prometheus text.
pub(super) async fn metrics(State(api): State<Api>) -> Result<impl IntoResponse, ApiError> {
    let store = api.store();
    let (live, total) = store.count_sessions().await?;
    let pending = ClearanceFilter { status: Some(crate::domain::ClearanceStatus::Pending), session: None };
    let clearances = store.clearances(pending, None, 1000).await?.items.len();
    let pending = QuestionFilter { status: Some(crate::domain::QuestionStatus::Pending), session: None };
    let questions = store.questions(pending, None, 1000).await?.items.len();
    let events = api.bell().listen().newest();
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: String| {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}")
            .expect("a String takes any text");
    };
    metric("intercom_sessions_live", "gauge", "Sessions that have not ended.", live.to_string());
    metric("intercom_sessions", "gauge", "Sessions in the database.", total.to_string());
    metric(
        "intercom_clearances_pending",
        "gauge",
        "Clearances that wait for a decision.",
        clearances.to_string(),
    );
    metric(
        "intercom_questions_pending",
        "gauge",
        "Questions that wait for an answer.",
        questions.to_string(),
    );
    metric("intercom_events_total", "counter", "Events ever written to the log.", events.to_string());
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}
