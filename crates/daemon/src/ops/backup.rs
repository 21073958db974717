//! Copies of the database: one at a time, and only while the caller waits.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Caller, ErrorKind, OpError, OperationKind, Operations};
use intercom_store::BackupJob;
use intercom_types::{BackupProgress, BackupRequest, BackupResult, BackupState, Json as Raw};

/// The running backup. Each keeps a read transaction open, so there is at most one. Locked only for one lookup.
#[derive(Debug, Default)]
pub(super) struct RunningBackup(Mutex<Weak<BackupJob>>);

impl RunningBackup {
    fn get(&self) -> Option<Arc<BackupJob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    fn begin(&self, job: BackupJob) -> Result<Arc<BackupJob>, OpError> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = running.upgrade() {
            let message = format!("another backup is being written to {}", other.to.display());
            return Err(OpError::conflict("backup_running", message).hint("try again when it is done"));
        }
        let job = Arc::new(job);
        *running = Arc::downgrade(&job);
        Ok(job)
    }
}

impl Operations {
    /// Copies the database. A caller that hangs up drops this future, and a stop of the daemon cancels it; both end the
    /// copy.
    pub async fn backup(
        &self,
        caller: &Caller,
        request: BackupRequest,
        closing: &CancellationToken,
    ) -> Result<BackupResult, OpError> {
        self.admit(caller, OperationKind::Backup)?;
        let BackupRequest { path, replace } = request;
        if !path.is_absolute() {
            return Err(OpError::bad_request("path must be absolute"));
        }
        if path.exists() && !replace {
            return Err(OpError::conflict("exists", format!("{} already exists", path.display())));
        }
        let keep_free = self.supervisor().config().limits.min_free_disk_bytes();
        let job = self.0.backup.begin(BackupJob::new(path.clone(), replace, keep_free))?;
        let waiting = HangUpLogger(&path);
        let done = closing.run_until_cancelled(self.store().backup(job)).await;
        std::mem::forget(waiting);
        let Some(done) = done else {
            let message = "the daemon is stopping; no backup was made";
            return Err(OpError::new(ErrorKind::Unavailable, "stopping", message));
        };
        let done = done.map_err(|error| {
            let message = format!("{} could not be written: {error}", path.display());
            OpError::unprocessable("backup_failed", message)
        })?;
        self.record("backup", &caller.name, None, Raw::of(&json!({ "path": path }))).await;
        Ok(BackupResult { path, bytes: done.bytes, log_growth_bytes: done.log_growth })
    }

    /// Returns the progress of the running backup.
    pub fn backup_state(&self, caller: &Caller) -> Result<BackupState, OpError> {
        self.admit(caller, OperationKind::Backup)?;
        let running = self.0.backup.get().map(|job| {
            let (copied_bytes, total_bytes) = job.progress();
            BackupProgress { path: job.to.clone(), copied_bytes, total_bytes }
        });
        Ok(BackupState { running })
    }
}

/// A guard for a waiting caller. Dropped before the end, it logs that the caller has hung up.
struct HangUpLogger<'a>(&'a Path);

impl Drop for HangUpLogger<'_> {
    fn drop(&mut self) {
        tracing::info!(path = %self.0.display(), "the caller of a backup has hung up; the backup is cancelled");
    }
}
