//! Copies of the database: one at a time, and only while the caller waits.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ApiBridge;
use super::access::KnownCaller;
use super::error::ApiError;
use super::extract::{JsonBody, NoFields, StrictQuery};
use intercom_store::BackupJob;
use intercom_types::Json as Raw;

/// The running backup. Each keeps a read transaction open, so there is at most one. Locked only for one lookup.
#[derive(Debug, Default)]
pub(super) struct RunningBackup(Mutex<Weak<BackupJob>>);

impl RunningBackup {
    fn get(&self) -> Option<Arc<BackupJob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    fn begin(&self, job: BackupJob) -> Result<Arc<BackupJob>, ApiError> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = running.upgrade() {
            let message = format!("another backup is being written to {}", other.to.display());
            return Err(ApiError::conflict("backup_running", message).hint("try again when it is done"));
        }
        let job = Arc::new(job);
        *running = Arc::downgrade(&job);
        Ok(job)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BackupRequest {
    path: PathBuf,
    /// Replaces an existing file, once the new one is complete.
    #[serde(default)]
    replace: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "BackedUp")]
pub(super) struct BackupResult {
    path: PathBuf,
    bytes: u64,
    /// The growth of the write-ahead log during the copy, in bytes.
    log_growth_bytes: u64,
}

pub(super) async fn backup(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    JsonBody(request): JsonBody<BackupRequest>,
) -> Result<Json<BackupResult>, ApiError> {
    let BackupRequest { path, replace } = request;
    if !path.is_absolute() {
        return Err(ApiError::bad_request("path must be absolute"));
    }
    if path.exists() && !replace {
        return Err(ApiError::conflict("exists", format!("{} already exists", path.display())));
    }
    let keep_free = api.supervisor().config().limits.min_free_disk_bytes();
    let job = api.0.backup.begin(BackupJob::new(path.clone(), replace, keep_free))?;
    let waiting = HangUpLogger(&path);
    // A caller that hangs up drops this future, and a stop of the daemon cancels it; both end the copy.
    let done = api.0.closing.run_until_cancelled(api.store().backup(job)).await;
    std::mem::forget(waiting);
    let Some(done) = done else {
        let message = "the daemon is stopping; no backup was made";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message));
    };
    let done = done.map_err(|error| {
        let message = format!("{} could not be written: {error}", path.display());
        ApiError::unprocessable("backup_failed", message)
    })?;
    api.ops().record("backup", &caller.name, None, Raw::of(&json!({ "path": path }))).await;
    Ok(Json(BackupResult { path, bytes: done.bytes, log_growth_bytes: done.log_growth }))
}

/// A guard for a waiting caller. Dropped before the end, it logs that the caller has hung up.
struct HangUpLogger<'a>(&'a std::path::Path);

impl Drop for HangUpLogger<'_> {
    fn drop(&mut self) {
        tracing::info!(path = %self.0.display(), "the caller of a backup has hung up; the backup is cancelled");
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BackupState {
    /// The running backup.
    running: Option<BackupProgress>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct BackupProgress {
    path: PathBuf,
    copied_bytes: u64,
    /// The total; 0 until it is known.
    total_bytes: u64,
}

pub(super) async fn progress(
    State(api): State<ApiBridge>,
    StrictQuery(NoFields {}): StrictQuery<NoFields>,
) -> Json<BackupState> {
    let running = api.0.backup.get().map(|job| {
        let (copied_bytes, total_bytes) = job.progress();
        BackupProgress { path: job.to.clone(), copied_bytes, total_bytes }
    });
    Json(BackupState { running })
}
