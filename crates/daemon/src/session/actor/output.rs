//! The agent's output: cut into lines, decoded, stepped and recorded.
//!
//! A line at which we panic costs itself only. The batch is undone and taken line by line; the line that cannot be taken is
//! rejected, loudly, and its sender does not wait in vain. Log first holds throughout: nothing of an attempt that failed
//! was written or performed.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use futures_util::FutureExt;

use super::{BATCH_BYTES, BATCH_ROWS, SessionActor};
use crate::session::commit::{self, AfterCommit};
use crate::session::state::{SessionInput, SessionState};
use intercom_failpoint as failpoint;
use intercom_store::SessionWrite;
use intercom_types::AgentMessage;
use intercom_wire::driver::Driver;
use intercom_wire::frame::Frame;

/// A panic's own words are cut to this: they go into the log.
const MAX_CAUSE_CHARS: usize = 200;

static QUARANTINED_LINES: AtomicU64 = AtomicU64::new(0);

/// The lines of agents at which this daemon has failed since its start. More than none is a bug of ours.
pub fn quarantined_lines() -> u64 {
    QUARANTINED_LINES.load(Ordering::Relaxed)
}

/// One line of the agent's, and how far its output is consumed with it.
#[derive(Debug)]
pub(super) struct OutputLine {
    pub(super) frame: Frame,
    pub(super) end: u64,
}

/// The treatment of a line.
#[derive(Debug, Clone, Copy)]
enum LineHandling<'a> {
    Normal,
    /// It is rejected for this reason, and counts as a failure of what it was about.
    Failed(&'a str),
    /// It is rejected for this reason, and nothing else.
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
    /// Output that has not been made into events yet.
    pub(super) buf: BytesMut,
    /// The offset up to which whole messages have been read.
    pub(super) consumed: u64,
    /// The offset up to which the log goes; blank lines leave nothing in it.
    pub(super) committed: u64,
    /// Taken by the framer for a message that is not whole yet: to be read again by the next daemon.
    pub(super) held_bytes: u64,
    /// `buf` may hold another whole message.
    pub(super) more: bool,
    pub(super) rejections: u32,
}

/// Everything that lines have come to, ready to be recorded; `None` if they mean nothing. How far blank lines go is
/// recorded with the next one that is not.
type PreparedWrite = Option<(SessionWrite, Vec<AfterCommit>)>;

impl SessionActor {
    /// Makes a bounded number of messages in `buf` into events.
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
        // A message longer than the journal may grow cannot wait for its end. Killed in the middle of it, the next daemon
        // takes the rest for another line that is no use.
        if self.output.held_bytes >= self.plan.runtime_dir.journal_cap_bytes / 2 {
            self.output.consumed += std::mem::take(&mut self.output.held_bytes);
        }
        self.digest_lines(lines).await;
        if self.output.consumed >= self.output.committed + BATCH_BYTES as u64 {
            self.output.committed = self.output.consumed;
            self.absorb(Vec::new(), Some(self.output.consumed)).await;
        }
    }

    /// Records what these lines mean.
    pub(super) async fn digest_lines(&mut self, lines: Vec<OutputLine>) {
        let Some(end) = lines.last().map(|line| line.end) else { return };
        let before = self.checkpoint();
        match self.attempt(&lines, LineHandling::Normal).await {
            Ok(prepared) => {
                drop(lines); // they may be long, and the store may take its time
                self.record(prepared, end).await;
            }
            Err(cause) => {
                tracing::error!(%cause, "failed at the agent's output; it is taken line by line");
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
        for handling in [LineHandling::Failed(&reason), LineHandling::Dropped(&reason)] {
            self.go_back_to(before.clone());
            match self.attempt(&line, handling).await {
                Ok(prepared) => return self.record(prepared, end).await,
                Err(cause) => tracing::error!(%cause, "failed again, without the line"),
            }
        }
        // The session cannot even say that it failed: it ends, which its supervisor sees to.
        panic!("{reason}");
    }

    fn checkpoint(&self) -> StepCheckpoint {
        StepCheckpoint { state: self.state.clone(), driver: self.plan.driver.clone() }
    }

    fn go_back_to(&mut self, before: StepCheckpoint) {
        (self.state, self.plan.driver) = (before.state, before.driver);
    }

    /// Everything up to the commit. After a failure, state and driver are somewhere in the middle.
    async fn attempt(
        &mut self,
        lines: &[OutputLine],
        handling: LineHandling<'_>,
    ) -> Result<PreparedWrite, String> {
        // Unwind safe: what was changed is put back, and nothing else is touched.
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
        for line in lines {
            let driver = &mut self.plan.driver;
            match handling {
                LineHandling::Normal => driver.decode(&line.frame, &mut messages),
                LineHandling::Failed(reason) => driver.decode_failed(&line.frame, reason, &mut messages),
                LineHandling::Dropped(reason) => messages.push(Driver::reject_frame(&line.frame, reason)),
            }
            inspect("line.decoded", line, handling);
            means_something |= !messages.is_empty();
            for message in messages.drain(..) {
                let input = match message {
                    AgentMessage::Clearance(ask) => self.assessed(ask).await,
                    AgentMessage::HostCall(call) => self.assess_host_call(*call).await,
                    message => SessionInput::AgentMessage(Box::new(message)),
                };
                let settings = self.plan.step_settings(&watch_policy, spent_elsewhere);
                if let Err(refused) = commit::step(&mut self.state, settings, input, &mut effects) {
                    tracing::error!(%refused, "what happened was refused");
                }
            }
            inspect("line.stepped", line, handling);
        }
        // Not made in vain: a write takes what has changed since the last one with it.
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

/// Lets a test fail here, at a line that it names.
fn inspect(point: &str, line: &OutputLine, handling: LineHandling<'_>) {
    if let (Frame::Text(text), LineHandling::Normal) = (&line.frame, handling) {
        failpoint::inspect(point, text);
    }
}

/// A panic's own words.
pub(super) fn cause_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    words.unwrap_or("a panic without a message").chars().take(MAX_CAUSE_CHARS).collect()
}
