//! Periodic tasks: retention, and the check of the free disk.

use std::collections::hash_map::Entry;
use std::time::Duration;

use super::{Slot, SlotGuard, Supervisor};
use intercom_store::StoreError;
use intercom_types::{Phase, SessionRecord, Time};

const LOOK_AT_DISK: Duration = Duration::from_secs(5);
const SWEEP: Duration = Duration::from_hours(1);

impl Supervisor {
    /// Runs the periodic tasks until the daemon stops.
    pub fn keep_house(&self) {
        let supervisor = self.clone();
        self.0.tasks.spawn(async move {
            let closing = supervisor.0.closing.clone();
            closing.run_until_cancelled(supervisor.chores()).await;
        });
    }

    async fn chores(&self) {
        let mut disk = tokio::time::interval(LOOK_AT_DISK);
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                _ = disk.tick() => self.look_at_disk(),
                _ = sweep.tick() => self.sweep().await,
            }
        }
    }

    /// Pauses reading from agents while there is too little free disk, so that nothing is read that cannot be stored.
    fn look_at_disk(&self) {
        let Some(dir) = self.store().path().parent() else { return };
        let Ok(stat) = nix::sys::statvfs::statvfs(dir) else { return };
        let free = stat.blocks_available().saturating_mul(stat.fragment_size());
        let low = free < self.config().limits.min_free_disk_bytes();
        let changed = self.0.paused.send_if_modified(|paused| std::mem::replace(paused, low) != low);
        if changed && low {
            tracing::error!(free.bytes = free, "too little free disk: reading from agents is paused");
        } else if changed {
            tracing::info!(free.bytes = free, "enough free disk again: reading from agents continues");
        }
    }

    /// Removes an ended session with its log. Returns false if it has not ended, or is about to be resumed.
    pub(crate) async fn remove(&self, record: &SessionRecord, by: String) -> Result<bool, StoreError> {
        let id = record.id;
        if record.phase != Phase::Ended {
            return Ok(false);
        }
        // Its task may be about to end.
        while let Some(handle) = self.find(id).filter(|handle| handle.generation <= record.generation) {
            handle.closed().await;
            tokio::task::yield_now().await;
        }
        // Nobody may resume the session meanwhile.
        let amending = self.0.amending.lock().await;
        match self.sessions().entry(id) {
            Entry::Occupied(_) => return Ok(false),
            Entry::Vacant(place) => place.insert(Slot::default()),
        };
        drop(amending);
        let _place = SlotGuard { supervisor: self, id };
        self.store().remove(id, by, Time::now()).await
    }

    async fn sweep(&self) {
        let config = self.config();
        let retention = &config.retention;
        let max_bytes = retention.max_bytes().unwrap_or(0);
        match self.store().sweep(retention.days, max_bytes, Time::now()).await {
            Ok(swept) if swept.sessions > 0 => {
                tracing::info!(sessions = swept.sessions, events = swept.events, "old sessions were removed");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "old sessions could not be removed"),
        }
    }
}
