//! The checkpoint thread: moves committed pages from the write-ahead log into the database file, in parallel with the
//! writer, so that no commit waits for it.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::{StoreError, schema};

/// The cost of the writes from one checkpoint to the next, in rows: some megabytes of log.
const MAX_COST: usize = 4000;
/// The fixed cost of a commit: it writes some pages regardless of its rows.
const COST_OF_A_COMMIT: usize = 4;

pub(super) struct CheckpointThread {
    /// Dropped to end the thread.
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    cost: usize,
}

impl CheckpointThread {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let connection = schema::connect(path)?;
        let (wake, woken) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || run(&connection, &woken))
            .expect("the system can start one thread");
        Ok(Self { wake: Some(wake), thread: Some(thread), cost: 0 })
    }

    /// Adds the cost of a commit and wakes the thread when it is time.
    pub(super) fn committed(&mut self, cost: usize) {
        self.cost += cost + COST_OF_A_COMMIT;
        if let Some(wake) = self.wake.as_ref().filter(|_| self.cost >= MAX_COST) {
            wake.try_send(()).ok(); // it is awake already, or will see this when it wakes
            self.cost = 0;
        }
    }
}

impl Drop for CheckpointThread {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok(); // it does not panic, and if it did there is nothing left to do
        }
    }
}

fn run(connection: &Connection, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        // Passive: takes no lock that the writer or a reader needs, and does as much as possible without one.
        let done = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = done {
            tracing::warn!(%error, "the write-ahead log could not be checkpointed; it grows until that succeeds");
        }
    }
}
