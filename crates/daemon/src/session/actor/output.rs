//! The agent's output: cut into lines, decoded, stepped and recorded.
//!
//! A panic at a line costs that line only. The batch is undone and repeated line by line; the line that panics is
//! rejected with an error in the log, and a request in it is answered with an error. Log first holds throughout: a
//! failed attempt has written and performed nothing.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use futures_util::FutureExt;
use tokio::sync::Semaphore;

use super::{BATCH_BYTES, BATCH_ROWS, SessionActor};
use crate::session::commit::{self, AfterCommit};
use crate::session::state::{SessionInput, SessionState};
use intercom_failpoint as failpoint;
use intercom_store::SessionWrite;
use intercom_types::AgentMessage;
use intercom_wire::driver::Driver;
use intercom_wire::frame::Frame;

/// The maximum length of a panic's message, because it goes into the log.
const MAX_CAUSE_CHARS: usize = 200;

/// The number of lines after which others may use the thread. All of a batch takes some milliseconds, for which a
/// decision of another session would wait.
const LINES_AT_A_TIME: usize = 64;

/// The turns to decode long batches. More of them at the same time than processors would not be faster, and would all
/// stand before a decision in the queue of a thread. Short batches, such as a request for a clearance, need no turn.
static BULK_TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)));

static QUARANTINED_LINES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of lines at which this daemon has panicked since its start. More than none is a bug of ours.
pub(crate) fn quarantined_lines() -> u64 {
    QUARANTINED_LINES.load(Ordering::Relaxed)
}

/// One line of the agent, and the offset in its output behind it.
#[derive(Debug)]
pub(super) struct OutputLine {
    pub(super) frame: Frame,
    pub(super) end: u64,
}

/// The treatment of a line.
#[derive(Debug, Clone, Copy)]
enum LineHandling<'a> {
    Normal,
    /// Rejected for this reason; the request in it counts as failed.
    Failed(&'a str),
    /// Rejected for this reason, without any other effect.
    Dropped(&'a str),
}

/// The state of a session before an attempt.
#[derive(Debug, Clone)]
struct StepCheckpoint {
    state: SessionState,
    driver: Driver,
}

/// The agent's output, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct OutputCursor {
    /// Output without its events so far.
    pub(super) buf: BytesMut,
    /// The offset up to which whole messages were read.
    pub(super) consumed: u64,
    /// The offset up to which the log goes. Behind `consumed` after blank lines, which leave nothing in the log.
    pub(super) committed: u64,
    /// The number of bytes that the framer took for an incomplete message; the next daemon must read them again.
    pub(super) held_bytes: u64,
    /// True if `buf` may hold another whole message.
    pub(super) more: bool,
    pub(super) rejections: u32,
}

/// The effects of lines, ready to be recorded; `None` if there are none. The offset behind blank lines is recorded with
/// the next write.
type PreparedWrite = Option<(SessionWrite, Vec<AfterCommit>)>;

impl SessionActor {
    /// Turns a bounded number of messages in `buf` into events.
    pub(super) async fn digest(&mut self) {
        let mut lines = Vec::new();
        self.output.more = false;
        loop {
            let before = self.output.buf.len();
            let frame = self.plan.framer.next(&mut self.output.buf);
            self.output.held_bytes += (before - self.output.buf.len()) as u64;
            let Some(frame) = frame else { break };
            self.output.consumed += std::mem::take(&mut self.output.held_bytes);
            lines.push(OutputLine { frame, end: self.output.consumed });
            if lines.len() >= BATCH_ROWS {
                self.output.more = true;
                break;
            }
        }
        // A message that may outgrow the journal cannot be held until its end: the journal could not be trimmed, and
        // the agent would wait for ever. If the daemon is killed in the middle of it, the next one rejects the rest as
        // a line.
        if self.output.held_bytes >= self.plan.runtime_dir.journal_cap_bytes / 2 {
            self.output.consumed += std::mem::take(&mut self.output.held_bytes);
        }
        self.digest_lines(lines).await;
        // Blank lines record nothing, so a flood of them would never move the offset, and the journal would fill up.
        if self.output.consumed >= self.output.committed + BATCH_BYTES as u64 {
            self.output.committed = self.output.consumed;
            self.absorb(Vec::new(), Some(self.output.consumed)).await;
        }
    }

    /// Records the events of these lines.
    pub(super) async fn digest_lines(&mut self, lines: Vec<OutputLine>) {
        let Some(end) = lines.last().map(|line| line.end) else { return };
        // One copy per batch contains a panic; without batches there would be one per line.
        let before = self.checkpoint();
        match self.attempt(&lines, LineHandling::Normal).await {
            Ok(prepared) => {
                drop(lines); // they may be long, and the store may be slow
                self.record(prepared, end).await;
            }
            Err(cause) => {
                tracing::error!(%cause, "a panic at the agent's output; it is repeated line by line");
                self.go_back_to(before);
                for line in lines {
                    self.digest_one(line).await;
                }
            }
        }
    }

    async fn digest_one(&mut self, line: OutputLine) {
        let before = self.checkpoint();
        let line = [line];
        let [OutputLine { end, .. }] = line;
        let cause = match self.attempt(&line, LineHandling::Normal).await {
            Ok(prepared) => return self.record(prepared, end).await,
            Err(cause) => cause,
        };
        QUARANTINED_LINES.fetch_add(1, Ordering::Relaxed);
        let reason = format!("intercom failed at this line, which is a bug in intercom: {cause}");
        tracing::error!(%cause, line.end = end, "a line of the agent is quarantined");
        // First with an answer to its sender, who would otherwise wait for ever; if that panics too, without one.
        for handling in [LineHandling::Failed(&reason), LineHandling::Dropped(&reason)] {
            self.go_back_to(before.clone());
            match self.attempt(&line, handling).await {
                Ok(prepared) => return self.record(prepared, end).await,
                Err(cause) => tracing::error!(%cause, "a panic also without the line"),
            }
        }
        // Not even the rejection can be recorded, so the session ends: the supervisor catches this panic.
        panic!("{reason}");
    }

    fn checkpoint(&self) -> StepCheckpoint {
        StepCheckpoint { state: self.state.clone(), driver: self.plan.driver.clone() }
    }

    fn go_back_to(&mut self, before: StepCheckpoint) {
        (self.state, self.plan.driver) = (before.state, before.driver);
    }

    /// Prepares everything up to the commit. After a panic, state and driver are inconsistent and must be restored.
    async fn attempt(
        &mut self,
        lines: &[OutputLine],
        handling: LineHandling<'_>,
    ) -> Result<PreparedWrite, String> {
        // Unwind safe: the caller restores state and driver, and nothing else is touched.
        AssertUnwindSafe(self.prepare(lines, handling))
            .catch_unwind()
            .await
            .map_err(|panic| cause_of(&*panic))
    }

    async fn prepare(&mut self, lines: &[OutputLine], handling: LineHandling<'_>) -> PreparedWrite {
        let mut effects = self.unrecorded.clone();
        let (watch_policy, mut messages) = (self.watch_policy(), Vec::new());
        let spent_elsewhere = self.spent_elsewhere(&watch_policy);
        let mut means_something = false;
        let is_bulk = lines.len() > LINES_AT_A_TIME;
        let mut turn = if is_bulk { BULK_TURNS.acquire().await.ok() } else { None };
        for (at, line) in lines.iter().enumerate() {
            if at % LINES_AT_A_TIME == LINES_AT_A_TIME - 1 {
                tokio::task::yield_now().await;
            }
            let driver = &mut self.plan.driver;
            match handling {
                LineHandling::Normal => driver.decode(&line.frame, &mut messages),
                LineHandling::Failed(reason) => driver.decode_failed(&line.frame, reason, &mut messages),
                LineHandling::Dropped(reason) => messages.push(Driver::reject_frame(&line.frame, reason)),
            }
            inspect("line.decoded", line, handling);
            means_something |= !messages.is_empty();
            for message in messages.drain(..) {
                // An assessment may wait for a slow file system, and must not keep a turn for so long.
                if matches!(message, AgentMessage::Clearance(_) | AgentMessage::HostCall(_)) {
                    drop(turn.take());
                }
                let input = match message {
                    AgentMessage::Clearance(ask) => self.assessed(ask).await,
                    AgentMessage::HostCall(call) => self.assess_host_call(*call).await,
                    message => SessionInput::AgentMessage(Box::new(message)),
                };
                let settings = self.plan.step_settings(&watch_policy, spent_elsewhere);
                if let Err(refused) = commit::step(&mut self.state, settings, input, &mut effects) {
                    tracing::error!(%refused, "an event was refused");
                }
            }
            inspect("line.stepped", line, handling);
        }
        // Only called when there is something to write: it takes all changes since the last write with it.
        means_something.then(|| {
            self.warn(&effects);
            self.write(effects, Vec::new(), lines.last().map(|line| line.end))
        })
    }

    async fn record(&mut self, prepared: PreparedWrite, end: u64) {
        let Some((write, todo)) = prepared else { return };
        self.unrecorded.clear();
        self.output.committed = end;
        failpoint::visit("output.decoded");
        self.commit(write, todo, Some(end)).await;
        failpoint::visit("output.committed");
    }
}

/// A point at which a test can cause a panic at a chosen line.
fn inspect(point: &str, line: &OutputLine, handling: LineHandling<'_>) {
    if let (Frame::Text(text), LineHandling::Normal) = (&line.frame, handling) {
        failpoint::inspect(point, text);
    }
}

/// Returns a panic's message.
pub(super) fn cause_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    words.unwrap_or("a panic without a message").chars().take(MAX_CAUSE_CHARS).collect()
}
