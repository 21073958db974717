//! The pool of read connections: a few, opened on demand, used from blocking threads.
//!
//! Readers that catch up read pages of the log, for long and many at a time. They take a permit for the log first, of
//! which there is one less than connections, so the last connection is left to short reads: those of a decision, a list
//! or a page of the console, and the landmarks on which cards in Slack wait.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{Store, StoreError, schema};

/// The maximum number of concurrent reads; further ones wait.
const READERS: usize = 4;
/// The maximum number of concurrent reads of the log.
const LOG_READERS: usize = READERS - 1;

#[derive(Debug, Clone)]
pub(super) struct ReaderPool(Arc<PoolShared>);

#[derive(Debug)]
struct PoolShared {
    path: PathBuf,
    permits: Arc<Semaphore>,
    log_permits: Arc<Semaphore>,
    /// Idle connections; locked only for a push or a pop.
    idle: Mutex<Vec<Connection>>,
}

impl ReaderPool {
    pub(super) fn new(path: &Path) -> Self {
        let (permits, log_permits) = (Semaphore::new(READERS).into(), Semaphore::new(LOG_READERS).into());
        Self(Arc::new(PoolShared { path: path.to_owned(), permits, log_permits, idle: Mutex::default() }))
    }
}

impl Store {
    /// Runs a query that reads pages of the log: it never takes the last connection.
    pub(super) async fn read_log<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let permits = Arc::clone(&self.readers.0.log_permits);
        let permit = permits.acquire_owned().await.map_err(|_| StoreError::Closed)?;
        self.read(move |connection| {
            let result = query(connection);
            drop(permit); // by this thread, and not when a caller drops its future
            result
        })
        .await
    }

    /// Runs `query` on a connection of its own. All its statements see the same committed state.
    pub(super) async fn read<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let shared = Arc::clone(&self.readers.0);
        let permit = Arc::clone(&shared.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let result = tokio::task::spawn_blocking(move || {
            let idle = shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match idle {
                Some(connection) => connection,
                None => schema::open_reader(&shared.path)?,
            };
            // One snapshot for all statements of a query: between two of them the writer may commit, or retention may
            // remove rows. A mix of both states would contain events that never existed, or omit existing ones.
            let result = match connection.unchecked_transaction() {
                Ok(snapshot) => query(&snapshot),
                Err(error) => Err(error.into()),
            };
            shared.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            drop(permit); // released by this thread, and not when a caller drops its future
            result
        })
        .await;
        result.unwrap_or(Err(StoreError::Closed))
    }
}
