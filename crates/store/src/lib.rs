//! The database (`SQLite`): the log, the ledger, snapshots. One writer thread commits in groups; readers have their own
//! connections.
//!
//! A write is one session's share of a transaction: its events, ledger changes, outgoing messages, snapshot and journal
//! offset are committed together or not at all. The answer comes after the commit. `writer` describes the queues and
//! the order of commits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

mod access;
mod audit;
mod backup;
mod block;
mod block_cache;
mod blocks;
pub mod bus;
mod capability_cache;
mod checkpoint;
mod cursor;
mod disk;
mod idempotency;
mod ledger;
mod log;
mod log_reader;
mod maintain;
mod pack;
mod pool;
mod projection;
mod read;
mod rebuild;
mod rules;
mod schema;
mod slack;
mod stats;
#[cfg(test)]
mod tests;
mod web;
mod write;
mod writer;

pub use access::StoredToken;
pub use audit::{AuditFilter, AuditHead, AuditVerification, inspect_audit};
pub use backup::{BackupJob, DatabaseCopy};
pub use capability_cache::CachedCapabilities;
pub use idempotency::IdempotentResponse;
pub use ledger::{ClearanceFilter, QuestionFilter, StoredRequest};
pub use log::LogCutoff;
pub use maintain::SweepResult;
pub use read::{IdLookup, RowPage, SessionScope, StoredSession};
pub use rebuild::rebuild_ledger;
pub use slack::{
    ClaimedPost, DesiredMessage, SKEW_MILLIS as SLACK_SKEW_MILLIS, SlackMessage, SlackScene,
    SlackSendOutcome, UpsertResult, UpsertRule,
};
pub use stats::{COUNTED_STRETCH_MILLIS, RequestWait};
pub use web::StoredWebSession;
pub use write::{OutgoingChange, SessionSnapshot, SessionWrite};

use tokio::sync::watch;

use crate::bus::Bell;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Nothing was changed; the same call may succeed later.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// A compare-and-set found another state than expected; nothing was changed.
    #[error("{0} is no longer pending")]
    Conflict(String),
    /// Retention has removed the session.
    #[error("the session was removed: it had ended long ago")]
    Removed,
    #[error("{what} in the database is unreadable")]
    Corrupt { what: &'static str },
    #[error("the database {path} has schema version {found}; this intercom supports versions up to {known}")]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("this file is {0}")]
    Unusable(&'static str),
    /// A failure of the copy, not of the database.
    #[error("{0}")]
    Copy(String),
    #[error("the audit's anchor file {0}")]
    Anchor(String),
    #[error("the store is closed")]
    Closed,
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// A handle to the database; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    path: Arc<PathBuf>,
    writer: Arc<writer::StoreWriter>,
    readers: pool::ReaderPool,
    bell: Bell,
    block_cache: Arc<block_cache::BlockCache>,
    /// The name by which connections open the database.
    name: Arc<PathBuf>,
    /// The error of the last transaction, if it was not committed.
    write_failure: watch::Receiver<Option<String>>,
    audit_head: watch::Receiver<Option<AuditHead>>,
    running_copies: backup::RunningCopies,
    anchor: Option<Arc<audit::AuditAnchor>>,
}

impl Store {
    /// Opens or creates the database, brings its schema up to date and starts the writer.
    pub fn open(path: &Path, bell: Bell) -> Result<Self, StoreError> {
        Self::open_anchored(path, bell, None)
    }

    /// Like [`Self::open`], with a file outside of the database that records the heads of the audit chain.
    pub fn open_anchored(path: &Path, bell: Bell, anchor: Option<&Path>) -> Result<Self, StoreError> {
        let (connection, name) = schema::open(path)?;
        let checkpoints = checkpoint::CheckpointThread::start(&name)?;
        let anchored = audit::AnchoredHead::read(anchor)?;
        let anchor = anchor.map(|file| Arc::new(audit::AuditAnchor::start(file)));
        let (head, audit_head) = watch::channel(None);
        let check = audit::HeadCheck::new(anchored);
        let witnesses = writer::AuditWitnesses { check, anchor: anchor.clone(), head };
        let (failure, write_failure) = watch::channel(None);
        Ok(Self {
            path: Arc::new(path.to_owned()),
            bell: bell.clone(),
            writer: Arc::new(writer::StoreWriter::start(connection, checkpoints, bell, witnesses, failure)?),
            readers: pool::ReaderPool::new(&name),
            block_cache: Arc::default(),
            name: Arc::new(name),
            audit_head,
            running_copies: backup::RunningCopies::default(),
            write_failure,
            anchor,
        })
    }

    /// Returns the reason why the database cannot be written at the moment.
    pub fn write_failure(&self) -> Option<String> {
        self.write_failure.borrow().clone()
    }

    /// Retries if the last transaction failed, so that the end of a failure is noticed even without other writes.
    pub async fn probe_failure(&self) -> Option<String> {
        self.write_failure()?;
        self.transact(|_| Ok(())).await.ok(); // the failure stays recorded
        self.write_failure()
    }

    /// Watches the head of the audit chain.
    pub fn audit_heads(&self) -> watch::Receiver<Option<AuditHead>> {
        self.audit_head.clone()
    }

    /// Commits one session's share. On `Err` none of it was stored, and the same write may be retried.
    pub async fn write(&self, write: Arc<SessionWrite>) -> Result<(), StoreError> {
        self.writer.write(write).await
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}
