//! The writer: the only thread that changes the database. It commits waiting jobs in groups.
//!
//! # Theory of operation
//!
//! ```text
//!   session tasks ── SessionJob ──┐  urgent: commands, clearances, API transactions
//!   API requests  ── TaskJob ─────┼──► ▒▒▒▒▒▒▒▒ ──┐
//!                                 └──► ░░░░░░░░ ──┴─► take ─► BEGIN ─► jobs ─► COMMIT ─► bell, answers
//!                                    normal: bulk output     (≤ MAX_ROWS)                checkpoint thread
//! ```
//!
//! Ownership: this thread owns the write connection, the next sequence number and the check of the audit chain. Callers
//! own nothing but a oneshot channel for their answer. The two queues are the only shared state, behind one mutex that
//! is never held during I/O.
//!
//! Bounds: a session waits for its answer before it writes again, so it has at most one job in each queue; an API
//! request has one. So the queues are bounded by the number of callers, and `push` never has to wait or refuse. Taking
//! jobs in order is therefore also fair: no caller can queue twice.
//!
//! Order: the urgent queue is emptied first, and a group costs at most [`MAX_COST`], so an urgent job waits for at
//! most one group of bulk output. Within a session, order is kept because its next job exists only after the answer to
//! the previous one. Sequence numbers are assigned inside of the transaction, so they are gapless and in commit order.
//!
//! Nothing is lost: an answer is sent only after `COMMIT` with `synchronous=full`. The bell rings after the commit and
//! before the answers, so a reader that is woken finds the rows, and a caller that got its answer can rely on readers
//! having been woken. Each job runs in a savepoint: a job that fails (a stale compare-and-set) is undone alone and the
//! others of its group are committed. If the commit itself fails, all jobs of the group get the error, `next` stays
//! unchanged, and sessions retry. On drop the queues are closed first and then emptied, so accepted jobs are still
//! committed.

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

/// The maximum cost of one transaction, in rows, so that an urgent write never waits for long. A single write may exceed
/// it.
const MAX_COST: usize = 2000;

/// A unit of work inside of a transaction, which receives its result after the commit.
trait WriterJob: Send {
    /// Returns its approximate cost, in rows.
    fn cost(&self) -> usize;
    fn run(&mut self, connection: &Connection, seq: &mut u64) -> Result<(), StoreError>;
    fn done(self: Box<Self>, result: Result<(), StoreError>);

    /// Returns the session to whose log it adds.
    fn session(&self) -> Option<SessionId> {
        None
    }

    /// Returns true if one of its events is more than bulk output of an agent.
    fn has_landmark(&self) -> bool {
        false
    }
}

/// The two queues of waiting jobs. Bounded by the number of callers: one job per session in either queue, and one per
/// request of the API.
#[derive(Default)]
struct WriterQueues {
    urgent: VecDeque<Box<dyn WriterJob>>,
    normal: VecDeque<Box<dyn WriterJob>>,
    closed: bool,
}

#[derive(Default)]
struct WriterShared {
    /// Guards the two queues; locked only to push or take jobs.
    queues: Mutex<WriterQueues>,
    bell: Condvar,
}

impl WriterShared {
    fn queues(&self) -> MutexGuard<'_, WriterQueues> {
        // No code panics while it holds the lock; even then, the queues would be consistent.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The witnesses of the audit chain that the writer keeps up to date.
pub(super) struct AuditWitnesses {
    pub(super) check: HeadCheck,
    pub(super) anchor: Option<Arc<AuditAnchor>>,
    /// The committed head; `None` before the first commit.
    pub(super) head: watch::Sender<Option<AuditHead>>,
}

impl AuditWitnesses {
    fn committed(&mut self, head: AuditHead) {
        self.check.committed(head.clone());
        // Only if it moved: a transaction without audit rows must not wake the watchers nor write the anchor file.
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
        // Listeners start from the newest seq of the database, not from 0.
        bell.ring_landmark(next - 1);
        bell.ring(next - 1);
        let thread_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run(connection, checkpoints, next, &thread_shared, &bell, witnesses, &failure))
            .expect("the system can start one thread");
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) async fn write(&self, write: Arc<SessionWrite>) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let (urgent, cost) = (write.urgent, write.cost());
        self.push(Box::new(SessionJob { write, cost, reply }), urgent)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    fn push(&self, job: Box<dyn WriterJob>, urgent: bool) -> Result<(), StoreError> {
        let mut queues = self.shared.queues();
        if queues.closed {
            return Err(StoreError::Closed);
        }
        let queue = if urgent { &mut queues.urgent } else { &mut queues.normal };
        queue.push_back(job);
        // Unlock first: the writer would wake up only to wait for the lock.
        drop(queues);
        self.shared.bell.notify_one();
        Ok(())
    }
}

impl Drop for StoreWriter {
    /// Commits all waiting jobs, then ends the thread.
    fn drop(&mut self) {
        self.shared.queues().closed = true;
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
        self.writer.push(Box::new(TaskJob { task: Some(task), value: None, cost: 1, reply }), true)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Runs the transaction of a background task, which has no priority, in the same way.
    pub(super) async fn transact_later<T, F>(&self, cost: usize, task: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.writer.push(Box::new(TaskJob { task: Some(task), value: None, cost, reply }), false)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

struct SessionJob {
    write: Arc<SessionWrite>,
    cost: usize,
    reply: oneshot::Sender<Result<(), StoreError>>,
}

impl WriterJob for SessionJob {
    fn cost(&self) -> usize {
        self.cost
    }

    fn run(&mut self, connection: &Connection, seq: &mut u64) -> Result<(), StoreError> {
        self.write.apply(connection, seq)
    }

    fn done(self: Box<Self>, result: Result<(), StoreError>) {
        self.reply.send(result).ok(); // the session's task may have ended
    }

    fn session(&self) -> Option<SessionId> {
        (!self.write.events.is_empty()).then_some(self.write.session)
    }

    fn has_landmark(&self) -> bool {
        self.write.has_landmark()
    }
}

struct TaskJob<T, F> {
    task: Option<F>,
    value: Option<T>,
    cost: usize,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> WriterJob for TaskJob<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
{
    fn cost(&self) -> usize {
        self.cost
    }

    fn run(&mut self, connection: &Connection, _: &mut u64) -> Result<(), StoreError> {
        let task = self.task.take().ok_or(StoreError::Closed)?;
        self.value = Some(task(connection)?);
        Ok(())
    }

    fn done(self: Box<Self>, result: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        let result = result.and_then(|()| value.ok_or(StoreError::Closed));
        reply.send(result).ok(); // the caller may have dropped its future
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
        let cost = jobs.iter().map(|job| job.cost()).sum();
        match commit(&mut connection, next, jobs, &witnesses.check) {
            Ok(CommitResult { next: after, finished, head }) => {
                witnesses.committed(head);
                if failure.borrow().is_some() {
                    // A transaction that changes no page succeeds on a full disk, too: only a real write proves that
                    // the failure is over.
                    match probe(&connection) {
                        Ok(()) => {
                            tracing::info!("the database can be written again");
                            failure.send_replace(None);
                        }
                        Err(error) => tracing::debug!(%error, "the database cannot be written yet"),
                    }
                }
                // The bell before the answers: when a caller has its answer, listeners have been woken.
                if after > next {
                    next = after;
                    if finished.iter().any(|(job, result)| result.is_ok() && job.has_landmark()) {
                        bell.ring_landmark(next - 1);
                    }
                    bell.ring(next - 1);
                }
                for (job, result) in finished {
                    if let Some(session) = job.session().filter(|_| result.is_ok()) {
                        bell.ring_for(session, next - 1);
                    }
                    job.done(result);
                }
                checkpoints.committed(cost);
            }
            Err((error, jobs)) => {
                // Once per failure at this level: sessions keep retrying, and the log may be on the same disk.
                if failure.borrow().is_none() {
                    tracing::error!(%error, "a transaction was not committed; the database is read-only until one succeeds");
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

/// Writes a page with a new content.
fn probe(connection: &Connection) -> Result<(), StoreError> {
    let count = "INSERT INTO meta VALUES ('write_probes', 1) ON CONFLICT DO UPDATE SET value = value + 1";
    connection.prepare_cached(count)?.execute([])?;
    Ok(())
}

/// Waits for jobs; `None` when the store is closed and the queues are empty.
fn take(shared: &WriterShared) -> Option<Vec<Box<dyn WriterJob>>> {
    let mut queues = shared.queues();
    loop {
        let (mut jobs, mut cost) = (Vec::new(), 0);
        // Urgent jobs first. The bound keeps the group short, so that an urgent job that arrives now waits for one
        // commit only.
        while cost < MAX_COST {
            let Some(job) = queues.urgent.pop_front().or_else(|| queues.normal.pop_front()) else { break };
            cost += job.cost();
            jobs.push(job);
        }
        if !jobs.is_empty() {
            return Some(jobs);
        }
        // Checked only when both queues are empty: on drop, accepted jobs are still committed.
        if queues.closed {
            return None;
        }
        queues = shared.bell.wait(queues).unwrap_or_else(PoisonError::into_inner);
    }
}

type FinishedJobs = Vec<(Box<dyn WriterJob>, Result<(), StoreError>)>;
type FailedJobs = (StoreError, Vec<Box<dyn WriterJob>>);

struct CommitResult {
    next: u64,
    finished: FinishedJobs,
    head: AuditHead,
}

/// Runs one transaction. A job that fails is undone alone; if the commit fails, all are.
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
        // Before any job appends: an appended row would continue a truncated chain and hide the cut.
        audit.run(connection, Time::now())?;
        for mut job in jobs.by_ref() {
            let before = next;
            let outcome = savepoint(connection, || job.run(connection, &mut next));
            // The savepoint has undone the rows of a failed job, so their numbers are free again: no gaps.
            if outcome.is_err() {
                next = before;
            }
            finished.push((job, outcome.clone()));
            if connection.is_autocommit() {
                // A full disk or an I/O error makes SQLite roll back the whole transaction, so all jobs have to fail.
                return outcome
                    .and(Err(StoreError::Unavailable("the transaction was rolled back".to_owned())));
            }
        }
        // In the same transaction as the rows: after a crash, no number is used twice.
        if next > first {
            connection
                .prepare_cached("UPDATE meta SET value = ?1 WHERE key = 'next_seq'")?
                .execute([i64::try_from(next).unwrap_or(i64::MAX)])?;
        }
        // Read before the commit, but published only after it.
        let head = audit::head_of(connection)?;
        connection.execute_batch("COMMIT")?;
        Ok(head)
    })();
    match result {
        Ok(head) => Ok(CommitResult { next, finished, head }),
        Err(error) => {
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK").ok(); // if this fails, so does the next BEGIN, which comes back here
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
