//! The pool of read connections: a few, opened on demand, used from blocking threads.
//!
//! Pages of the log are read by anybody who catches up, for as long as that takes, and by many at the same time. They
//! therefore take a turn of the log first, of which there is one less than there are connections: the last connection is
//! always left to the short reads that a decision, a list or a page of the console consists of.

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
    turns: Arc<Semaphore>,
    log_turns: Arc<Semaphore>,
    /// Idle connections; locked only for a push or a pop.
    idle: Mutex<Vec<Connection>>,
}

impl ReaderPool {
    pub(super) fn new(path: &Path) -> Self {
        let (turns, log_turns) = (Semaphore::new(READERS).into(), Semaphore::new(LOG_READERS).into());
        Self(Arc::new(PoolShared { path: path.to_owned(), turns, log_turns, idle: Mutex::default() }))
    }
}

impl Store {
    /// Runs a query that reads pages of the log: it never takes the last connection.
    pub(super) async fn read_log<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let turns = Arc::clone(&self.readers.0.log_turns);
        let turn = turns.acquire_owned().await.map_err(|_| StoreError::Closed)?;
        self.read(move |connection| {
            let result = query(connection);
            drop(turn); // by this thread, and not when a caller drops its future
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
        let turn = Arc::clone(&shared.turns).acquire_owned().await.map_err(|_| StoreError::Closed)?;
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
            drop(turn); // released by this thread, and not when a caller drops its future
            result
        })
        .await;
        result.unwrap_or(Err(StoreError::Closed))
    }
}
