//! The one writer: a thread that commits whatever waits, in groups.
//!
//! Fair by construction: a session has at most one write waiting (its task waits for the answer), so taking them in
//! order is taking turns. Commands and clearances have a lane of their own that is emptied first.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::audit::{self, AuditAnchor, AuditHead, HeadCheck};
use super::checkpoint::CheckpointThread;
use super::write::SessionWrite;
use super::{Store, StoreError};
use crate::bus::Bell;
use intercom_types::{SessionId, Time};

/// The maximum of rows in one transaction: an urgent write never waits for long. One write may exceed it.
const MAX_ROWS: usize = 2000;

/// Something to be done inside a transaction, and told its result after the commit.
trait WriterJob: Send {
    fn rows(&self) -> usize;
    fn run(&mut self, connection: &Connection, seq: &mut u64) -> Result<(), StoreError>;
    fn done(self: Box<Self>, result: Result<(), StoreError>);

    /// Whose log it adds to.
    fn session(&self) -> Option<SessionId> {
        None
    }
}

/// Waiting jobs. Bounded by who may wait: one per session in either lane, and one per request of the API.
#[derive(Default)]
struct WriterLanes {
    urgent: VecDeque<Box<dyn WriterJob>>,
    normal: VecDeque<Box<dyn WriterJob>>,
    closed: bool,
}

#[derive(Default)]
struct WriterShared {
    /// Guards the two queues for the few lines that push or take.
    lanes: Mutex<WriterLanes>,
    bell: Condvar,
}

impl WriterShared {
    fn lanes(&self) -> MutexGuard<'_, WriterLanes> {
        // No code panics while it holds the lock; if it did, the queues would still be whole.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The witnesses of the audit chain that the writer keeps up to date.
pub(super) struct AuditWitnesses {
    pub(super) check: HeadCheck,
    pub(super) anchor: Option<Arc<AuditAnchor>>,
    /// The head as committed; `None` before the first commit.
    pub(super) head: watch::Sender<Option<AuditHead>>,
}

impl AuditWitnesses {
    fn committed(&mut self, head: AuditHead) {
        self.check.committed(head.clone());
        self.head.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&head);
            if is_new {
                if let Some(anchor) = &self.anchor {
                    anchor.committed(head.clone());
                }
                *known = Some(head);
            }
            is_new
        });
    }
}

pub(super) struct StoreWriter {
    shared: Arc<WriterShared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for StoreWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl StoreWriter {
    pub(super) fn start(
        connection: Connection,
        checkpoints: CheckpointThread,
        bell: Bell,
        witnesses: AuditWitnesses,
        failure: watch::Sender<Option<String>>,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(WriterShared::default());
        let next = read_seq(&connection)?;
        bell.ring(next - 1);
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run(connection, checkpoints, next, &theirs, &bell, witnesses, &failure))
            .expect("the system can start one thread");
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) async fn write(&self, write: Arc<SessionWrite>) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let urgent = write.urgent;
        self.push(Box::new(SessionJob { write, reply }), urgent)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    fn push(&self, job: Box<dyn WriterJob>, urgent: bool) -> Result<(), StoreError> {
        let mut lanes = self.shared.lanes();
        if lanes.closed {
            return Err(StoreError::Closed);
        }
        let lane = if urgent { &mut lanes.urgent } else { &mut lanes.normal };
        lane.push_back(job);
        drop(lanes);
        self.shared.bell.notify_one();
        Ok(())
    }
}

impl Drop for StoreWriter {
    /// Everything that waits is committed first.
    fn drop(&mut self) {
        self.shared.lanes().closed = true;
        self.shared.bell.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().ok(); // it does not panic, and if it did there is nothing left to do
        }
    }
}

impl Store {
    /// Runs `task` in a transaction of the writer and answers after the commit.
    pub(super) async fn transact<T, F>(&self, task: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.writer.push(Box::new(TaskJob { task: Some(task), value: None, reply }), true)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

struct SessionJob {
    write: Arc<SessionWrite>,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl WriterJob for SessionJob {
    fn rows(&self) -> usize {
        self.write.events.len() + 1
    }

    fn run(&mut self, connection: &Connection, seq: &mut u64) -> Result<(), StoreError> {
        self.write.apply(connection, seq)
    }

    fn done(self: Box<Self>, result: Result<(), StoreError>) {
        self.reply.send(result).ok(); // the session's task may have gone
    }

    fn session(&self) -> Option<SessionId> {
        (!self.write.events.is_empty()).then_some(self.write.session)
    }
}

struct TaskJob<T, F> {
    task: Option<F>,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> WriterJob for TaskJob<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
{
    fn rows(&self) -> usize {
        1
    }

    fn run(&mut self, connection: &Connection, _: &mut u64) -> Result<(), StoreError> {
        let task = self.task.take().ok_or(StoreError::Closed)?;
        self.value = Some(task(connection)?);
        Ok(())
    }

    fn done(self: Box<Self>, result: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        let result = result.and_then(|()| value.ok_or(StoreError::Closed));
        reply.send(result).ok(); // the caller may have gone
    }
}

fn run(
    mut connection: Connection,
    mut checkpoints: CheckpointThread,
    mut next: u64,
    shared: &WriterShared,
    bell: &Bell,
    mut witnesses: AuditWitnesses,
    failure: &watch::Sender<Option<String>>,
) {
    while let Some(jobs) = take(shared) {
        let rows = jobs.iter().map(|job| job.rows()).sum();
        match commit(&mut connection, next, jobs, &witnesses.check) {
            Ok(CommitResult { next: after, finished, head }) => {
                witnesses.committed(head);
                if failure.borrow().is_some() {
                    // A transaction that changes no page succeeds on a full disk, too: only a real write tells.
                    match probe(&connection) {
                        Ok(()) => {
                            tracing::info!("the database can be written again");
                            failure.send_replace(None);
                        }
                        Err(error) => tracing::debug!(%error, "the database cannot be written yet"),
                    }
                }
                if after > next {
                    next = after;
                    bell.ring(next - 1);
                }
                for (job, result) in finished {
                    if let Some(session) = job.session().filter(|_| result.is_ok()) {
                        bell.ring_for(session, next - 1);
                    }
                    job.done(result);
                }
                checkpoints.committed(rows);
            }
            Err((error, jobs)) => {
                // Once per failure at this level: sessions try again and again, and the log may be on the same disk.
                if failure.borrow().is_none() {
                    tracing::error!(%error, "a transaction was not committed; the database is read-only until that works");
                } else {
                    tracing::debug!(%error, "a transaction was not committed");
                }
                if let StoreError::Unavailable(why) = &error {
                    failure.send_replace(Some(why.clone()));
                }
                for job in jobs {
                    job.done(Err(error.clone()));
                }
            }
        }
    }
}

/// Writes a page that differs from the one before.
fn probe(connection: &Connection) -> Result<(), StoreError> {
    let count = "INSERT INTO meta VALUES ('write_probes', 1) ON CONFLICT DO UPDATE SET value = value + 1";
    connection.prepare_cached(count)?.execute([])?;
    Ok(())
}

/// Waits for work; `None` when the store is closed and everything is done.
fn take(shared: &WriterShared) -> Option<Vec<Box<dyn WriterJob>>> {
    let mut lanes = shared.lanes();
    loop {
        let (mut jobs, mut rows) = (Vec::new(), 0);
        while rows < MAX_ROWS {
            let Some(job) = lanes.urgent.pop_front().or_else(|| lanes.normal.pop_front()) else { break };
            rows += job.rows();
            jobs.push(job);
        }
        if !jobs.is_empty() {
            return Some(jobs);
        }
        if lanes.closed {
            return None;
        }
        lanes = shared.bell.wait(lanes).unwrap_or_else(PoisonError::into_inner);
    }
}

type FinishedJobs = Vec<(Box<dyn WriterJob>, Result<(), StoreError>)>;
type FailedJobs = (StoreError, Vec<Box<dyn WriterJob>>);

struct CommitResult {
    next: u64,
    finished: FinishedJobs,
    head: AuditHead,
}

/// One transaction. A job that fails by itself is undone by itself; if the commit fails, all are.
fn commit(
    connection: &mut Connection,
    first: u64,
    jobs: Vec<Box<dyn WriterJob>>,
    audit: &HeadCheck,
) -> Result<CommitResult, FailedJobs> {
    let mut next = first;
    let mut finished: FinishedJobs = Vec::with_capacity(jobs.len());
    let mut jobs = jobs.into_iter();
    let result = (|| -> Result<AuditHead, StoreError> {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        // Before any job appends: afterwards a cut could not be told from the beginning of the chain.
        audit.run(connection, Time::now())?;
        for mut job in jobs.by_ref() {
            let before = next;
            let outcome = savepoint(connection, || job.run(connection, &mut next));
            if outcome.is_err() {
                next = before;
            }
            finished.push((job, outcome.clone()));
            if connection.is_autocommit() {
                // A full disk or an I/O error makes SQLite roll back by itself, whatever came before.
                return outcome
                    .and(Err(StoreError::Unavailable("the transaction was rolled back".to_owned())));
            }
        }
        if next > first {
            connection
                .prepare_cached("UPDATE meta SET value = ?1 WHERE key = 'next_seq'")?
                .execute([i64::try_from(next).unwrap_or(i64::MAX)])?;
        }
        let head = audit::head_of(connection)?;
        connection.execute_batch("COMMIT")?;
        Ok(head)
    })();
    match result {
        Ok(head) => Ok(CommitResult { next, finished, head }),
        Err(error) => {
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK").ok(); // it is rolled back at the latest by the next BEGIN
            }
            Err((error, finished.into_iter().map(|(job, _)| job).chain(jobs).collect()))
        }
    }
}

fn savepoint(
    connection: &Connection,
    job: impl FnOnce() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    connection.prepare_cached("SAVEPOINT job")?.execute([])?;
    let outcome = job();
    if outcome.is_err() && !connection.is_autocommit() {
        connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
    }
    if !connection.is_autocommit() {
        connection.prepare_cached("RELEASE job")?.execute([])?;
    }
    outcome
}

fn read_seq(connection: &Connection) -> Result<u64, StoreError> {
    let next: i64 =
        connection.query_row("SELECT value FROM meta WHERE key = 'next_seq'", [], |row| row.get(0))?;
    u64::try_from(next).map_err(|_| StoreError::Corrupt { what: "the sequence counter" })
}
