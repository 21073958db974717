//! The agent's output: cut into lines, decoded, stepped and recorded.
//!
//! A panic at a line costs that line only. The batch is undone and repeated line by line; the line that panics is
//! rejected with an error in the log, and a request in it is answered with an error. Log first holds throughout: a
//! failed attempt has written and performed nothing.
//!
//! While the store commits a batch, the next one may be decoded already (`ahead.rs`).

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use futures_util::FutureExt;
use tokio::sync::Semaphore;

use super::ahead::DecodedBatch;
use super::{BATCH_BYTES, BATCH_ROWS, SessionActor};
use crate::session::commit;
use crate::session::state::{SessionInput, SessionState, StepEffect};
use intercom_failpoint as failpoint;
use intercom_types::{AgentMessage, Time};
use intercom_wire::driver::Driver;
use intercom_wire::frame::Frame;

/// The maximum length of a panic's message, because it goes into the log.
const MAX_CAUSE_CHARS: usize = 200;

/// The number of lines after which others may use the thread. All of a batch takes some milliseconds, for which a
/// decision of another session would wait.
const LINES_AT_A_TIME: usize = 64;

/// The permits to decode long batches, one per processor: more at once would not be faster, and would all be ahead of a
/// decision in the queue of a thread. Short batches, such as a request for a clearance, need none.
static BULK_DECODE_PERMITS: LazyLock<Semaphore> =
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
pub(super) enum LineHandling<'a> {
    Normal,
    /// Rejected for this reason; the request in it counts as failed.
    Failed(&'a str),
    /// Rejected for this reason, without any other effect.
    Dropped(&'a str),
}

/// The moment at which a request that has to be assessed is stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assessing {
    /// The session waits for the assessment.
    InTurn,
    /// Not now: the lines are stepped again in turn.
    Later,
}

/// The session's occupation while the store works on a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhileWriting {
    DecodeAhead,
    Wait,
}

/// The reason why lines were not stepped. State and driver are inconsistent and must be restored.
pub(super) enum StepFailure {
    Panic(String),
    /// One of the lines has a request that must be assessed first.
    NeedsAssessment,
}

/// The state of a session before an attempt.
#[derive(Debug, Clone)]
pub(super) struct StepCheckpoint {
    state: SessionState,
    driver: Driver,
}

/// The agent's output, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct OutputCursor {
    /// Output that is not cut into lines yet.
    pub(super) buf: BytesMut,
    /// Lines whose events were given up before they were recorded; they precede `buf`.
    pub(super) given_back: Vec<OutputLine>,
    /// The next batch, decoded while the one before was committed.
    pub(super) ahead: Option<Box<DecodedBatch>>,
    /// The offset up to which output was cut into lines.
    pub(super) cut: u64,
    /// The offset up to which whole messages were read and stepped. Behind `cut` while there is a batch ahead.
    pub(super) consumed: u64,
    /// The offset up to which the log goes. Behind `consumed` after blank lines, which leave nothing in the log.
    pub(super) committed: u64,
    /// The number of bytes that the framer took for an incomplete message; the next daemon must read them again.
    pub(super) held_bytes: u64,
    /// True if there may be another whole message in `given_back` or `buf`.
    pub(super) more: bool,
    pub(super) rejections: u32,
}

impl OutputCursor {
    /// Begins at an offset of the agent's output.
    pub(super) fn at(offset: u64) -> Self {
        Self { cut: offset, consumed: offset, committed: offset, ..Self::default() }
    }
}

impl SessionActor {
    /// Turns a bounded number of messages into events and records them.
    pub(super) async fn digest(&mut self) {
        let batch = match self.output.ahead.take() {
            Some(batch) => Some(batch),
            None => self.decode_batch().await,
        };
        if let Some(batch) = batch {
            self.record(batch, WhileWriting::DecodeAhead).await;
        }
        // Blank lines record nothing, so a flood of them would never move the offset, and the journal would fill up.
        if self.output.consumed >= self.output.committed + BATCH_BYTES as u64 {
            self.step_back();
            self.output.committed = self.output.consumed;
            self.absorb(Vec::new(), Some(self.output.consumed)).await;
        }
    }

    /// Cuts output into at most `rows` lines.
    pub(super) fn cut_lines(&mut self, rows: usize) -> Vec<OutputLine> {
        if !self.output.given_back.is_empty() {
            self.output.more = true; // behind these lines
            return std::mem::take(&mut self.output.given_back);
        }
        let mut lines = Vec::new();
        self.output.more = false;
        loop {
            let before = self.output.buf.len();
            let frame = self.plan.framer.next(&mut self.output.buf);
            self.output.held_bytes += (before - self.output.buf.len()) as u64;
            let Some(frame) = frame else { break };
            self.output.cut += std::mem::take(&mut self.output.held_bytes);
            lines.push(OutputLine { frame, end: self.output.cut });
            if lines.len() >= rows {
                self.output.more = true;
                break;
            }
        }
        // A message that may outgrow the journal cannot be held until its end: the journal could not be trimmed, and
        // the agent would wait for ever. If the daemon is killed in the middle of it, the next one rejects the rest as
        // a line.
        if self.output.held_bytes >= self.plan.runtime_dir.journal_cap_bytes / 2 {
            self.output.cut += std::mem::take(&mut self.output.held_bytes);
        }
        lines
    }

    /// Decodes and steps the next batch. `None` if its lines had to be recorded one by one.
    async fn decode_batch(&mut self) -> Option<Box<DecodedBatch>> {
        let lines = self.cut_lines(BATCH_ROWS);
        self.decode_lines(lines, self.output.cut).await
    }

    /// Records the events of these lines.
    pub(super) async fn digest_lines(&mut self, lines: Vec<OutputLine>) {
        let end = self.output.cut;
        if let Some(batch) = self.decode_lines(lines, end).await {
            self.record(batch, WhileWriting::Wait).await;
        }
    }

    async fn decode_lines(&mut self, lines: Vec<OutputLine>, end: u64) -> Option<Box<DecodedBatch>> {
        // One copy per batch contains a panic; without batches there would be one per line.
        let mut batch = DecodedBatch::new(self.checkpoint(), self.unrecorded.clone());
        match self.step_lines(&lines, LineHandling::Normal, Assessing::InTurn, &mut batch.effects).await {
            Ok(means_something) => {
                // Without its lines: it is recorded now and not given up, they may be long, and the store may be slow.
                (batch.means_something, batch.end) = (means_something, end);
                Some(batch)
            }
            Err(failure) => {
                tracing::error!(
                    cause = failure.cause(),
                    "a panic at the agent's output; it is repeated line by line"
                );
                self.go_back_to(batch.before);
                for line in lines {
                    Box::pin(self.digest_one(line)).await; // boxed, because it is rare and large
                }
                self.output.consumed = end;
                None
            }
        }
    }

    async fn digest_one(&mut self, line: OutputLine) {
        let before = self.checkpoint();
        let line = [line];
        let [OutputLine { end, .. }] = line;
        let cause = match self.attempt(&line, &before, LineHandling::Normal).await {
            Ok(batch) => return self.record(batch, WhileWriting::Wait).await,
            Err(failure) => failure.cause().to_owned(),
        };
        QUARANTINED_LINES.fetch_add(1, Ordering::Relaxed);
        let reason = format!("intercom failed at this line, which is a bug in intercom: {cause}");
        tracing::error!(%cause, line.end = end, "a line of the agent is quarantined");
        // First with an answer to its sender, who would otherwise wait for ever; if that panics too, without one.
        for handling in [LineHandling::Failed(&reason), LineHandling::Dropped(&reason)] {
            self.go_back_to(before.clone());
            match self.attempt(&line, &before, handling).await {
                Ok(batch) => return self.record(batch, WhileWriting::Wait).await,
                Err(failure) => tracing::error!(cause = failure.cause(), "a panic also without the line"),
            }
        }
        // Not even the rejection can be recorded, so the session ends: the supervisor catches this panic.
        panic!("{reason}");
    }

    async fn attempt(
        &mut self,
        line: &[OutputLine; 1],
        before: &StepCheckpoint,
        handling: LineHandling<'_>,
    ) -> Result<Box<DecodedBatch>, StepFailure> {
        let mut batch = DecodedBatch::new(before.clone(), self.unrecorded.clone());
        batch.means_something =
            self.step_lines(line, handling, Assessing::InTurn, &mut batch.effects).await?;
        let [OutputLine { end, .. }] = line;
        batch.end = *end;
        Ok(batch)
    }

    pub(super) fn checkpoint(&self) -> StepCheckpoint {
        StepCheckpoint { state: self.state.clone(), driver: self.plan.driver.clone() }
    }

    pub(super) fn go_back_to(&mut self, before: StepCheckpoint) {
        (self.state, self.plan.driver) = (before.state, before.driver);
    }

    /// Decodes and steps lines. Returns true if there was a message in them.
    pub(super) async fn step_lines(
        &mut self,
        lines: &[OutputLine],
        handling: LineHandling<'_>,
        assessing: Assessing,
        effects: &mut Vec<StepEffect>,
    ) -> Result<bool, StepFailure> {
        // Unwind safe: the caller restores state and driver and drops the effects, and nothing else is touched.
        // Boxed: otherwise each session would hold the memory of a step all the time.
        Box::pin(AssertUnwindSafe(self.step_each(lines, handling, assessing, effects)).catch_unwind())
            .await
            .unwrap_or_else(|panic| Err(StepFailure::Panic(cause_of(&*panic))))
    }

    async fn step_each(
        &mut self,
        lines: &[OutputLine],
        handling: LineHandling<'_>,
        assessing: Assessing,
        effects: &mut Vec<StepEffect>,
    ) -> Result<bool, StepFailure> {
        let (watch_policy, mut messages) = (self.watch_policy(), Vec::new());
        let spent_elsewhere = self.spent_elsewhere(&watch_policy);
        let mut means_something = false;
        effects.reserve(lines.len());
        let is_bulk = lines.len() > LINES_AT_A_TIME;
        let mut permit = if is_bulk { BULK_DECODE_PERMITS.acquire().await.ok() } else { None };
        // Read again only after a pause: the lines between two of them take less than a millisecond, the precision of
        // a time.
        let mut now = Time::now();
        for (at, line) in lines.iter().enumerate() {
            if at % LINES_AT_A_TIME == LINES_AT_A_TIME - 1 {
                tokio::task::yield_now().await;
                now = Time::now();
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
                // An assessment may wait for a slow file system, and must not hold a permit for so long.
                if matches!(message, AgentMessage::Clearance(_) | AgentMessage::HostCall(_)) {
                    drop(permit.take());
                }
                let input = match message {
                    AgentMessage::Clearance(_) | AgentMessage::HostCall(_)
                        if assessing == Assessing::Later =>
                    {
                        return Err(StepFailure::NeedsAssessment);
                    }
                    AgentMessage::Clearance(ask) => {
                        let assessed = self.assessed(ask).await;
                        now = Time::now();
                        assessed
                    }
                    AgentMessage::HostCall(call) => {
                        let assessed = self.assess_host_call(*call).await;
                        now = Time::now();
                        assessed
                    }
                    message => SessionInput::AgentMessage(Box::new(message)),
                };
                let settings = self.plan.step_settings(now, &watch_policy, spent_elsewhere);
                if let Err(refused) = commit::step(&mut self.state, settings, input, effects) {
                    tracing::error!(%refused, "an event was refused");
                }
            }
            inspect("line.stepped", line, handling);
        }
        Ok(means_something)
    }

    /// Moves the position in the output behind a batch. `None` if it has no events.
    fn take_events(&mut self, batch: Box<DecodedBatch>) -> Option<(Vec<StepEffect>, u64)> {
        self.output.consumed = batch.end;
        batch.means_something.then_some((batch.effects, batch.end))
    }

    /// Records the events of a batch. If there are none, the offset behind its blank lines is recorded with the next
    /// write.
    async fn record(&mut self, batch: Box<DecodedBatch>, meanwhile: WhileWriting) {
        let Some((effects, end)) = self.take_events(batch) else { return };
        self.warn(&effects);
        // Only called when there is something to write: it takes all changes since the last write with it.
        let (write, todo) = self.write(effects, Vec::new(), Some(end));
        self.unrecorded.clear();
        self.output.committed = end;
        failpoint::visit("output.decoded");
        // Acknowledgements follow a message, and they would undo what is decoded before them.
        let is_bulk = !write.urgent && todo.is_empty();
        if meanwhile == WhileWriting::DecodeAhead && is_bulk {
            Box::pin(self.commit_and_decode(write, end)).await; // boxed, as a commit, for the same reason as a step
        } else {
            Box::pin(self.commit(write, todo, Some(end))).await;
        }
        failpoint::visit("output.committed");
    }
}

impl StepFailure {
    fn cause(&self) -> &str {
        match self {
            Self::Panic(cause) => cause,
            Self::NeedsAssessment => "a request was not assessed",
        }
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
