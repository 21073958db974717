//! The batch ahead: the next lines are decoded and stepped while the store commits the batch before.
//!
//! ```text
//!   batch n      decode ─► write ═════ store ═════► committed
//!   batch n + 1                  decode ──────────►          write ═════ store ═════► …
//!                                       └── given up: any other input comes first
//! ```
//!
//! A batch ahead is a guess that nothing else happens before it. It is neither written nor performed: its events are
//! effects in memory, and `consumed` stays before its lines. Every other input gives it up first (`step_back`): state
//! and driver return to their copies from before it, and its lines are decoded again in their turn. So all other code
//! sees a session whose state is that of the log, as if lines were decoded in turn only.
//!
//! Bounds: one write in the store, and one batch ahead of at most `BATCH_ROWS` lines and about `BATCH_BYTES`. Nothing is decoded ahead of a
//! write that has more than bulk output, because its acknowledgements are expected next, nor at a request that must be
//! assessed, because that may take long.

use std::sync::Arc;

use super::output::{Assessing, LineHandling, OutputLine, StepCheckpoint};
use super::{BATCH_BYTES, BATCH_ROWS, SessionActor};
use crate::session::state::StepEffect;
use intercom_failpoint as failpoint;
use intercom_store::{SessionWrite, StoreError};

/// Lines that are decoded and stepped, and not written yet.
#[derive(Debug)]
pub(super) struct DecodedBatch {
    pub(super) before: StepCheckpoint,
    /// The lines of a batch ahead, which may be given up.
    lines: Vec<OutputLine>,
    pub(super) effects: Vec<StepEffect>,
    pub(super) means_something: bool,
    /// The offset behind its lines.
    pub(super) end: u64,
}

impl DecodedBatch {
    pub(super) fn new(before: StepCheckpoint, effects: Vec<StepEffect>) -> Box<Self> {
        Box::new(Self { before, lines: Vec::new(), effects, means_something: false, end: 0 })
    }
}

impl SessionActor {
    /// Gives up the batch ahead, if there is one.
    pub(super) fn step_back(&mut self) {
        if let Some(batch) = self.output.ahead.take() {
            self.give_back(batch);
        }
    }

    fn give_back(&mut self, batch: Box<DecodedBatch>) {
        debug_assert!(self.output.given_back.is_empty(), "lines are cut from there first");
        self.go_back_to(batch.before);
        self.output.given_back = batch.lines;
        self.output.more = true;
    }

    /// Commits bulk output. While the store works on it, the next batch is decoded.
    pub(super) async fn commit_and_decode(&mut self, write: SessionWrite, end: u64) {
        let write = Arc::new(write);
        let result = self.decode_until_written(&write).await;
        if result.is_err() {
            self.step_back(); // stops are served between the attempts
        }
        self.finish_commit(write, result, Vec::new(), Some(end)).await;
    }

    async fn decode_until_written(&mut self, write: &Arc<SessionWrite>) -> Result<(), StoreError> {
        let (store, write) = (self.store.clone(), Arc::clone(write));
        let mut written = Box::pin(async move { store.write(write).await });
        let mut goes_ahead = true;
        loop {
            goes_ahead = goes_ahead && self.may_go_ahead();
            let lines_are_there = goes_ahead && self.output.more;
            let reads = goes_ahead && self.output.buf.len() < BATCH_BYTES;
            let process = &mut self.process;
            let chunk = async {
                match process {
                    Some(process) if reads => process.output.recv().await,
                    _ => None,
                }
            };
            tokio::select! {
                // Biased: the write is submitted by its first poll, and the store does not wait for us when it is done.
                biased;
                result = &mut written => return result,
                () = std::future::ready(()), if lines_are_there => goes_ahead = self.decode_ahead().await,
                Some(chunk) = chunk => {
                    self.output.buf.extend_from_slice(&chunk);
                    self.output.more = true;
                }
            }
        }
    }

    fn may_go_ahead(&self) -> bool {
        // `consumed` is the end of the batch that is being written. Without the bound in bytes, a slow commit would let
        // the next batch grow to a thousand lines of any length.
        let bytes_ahead = self.output.cut.saturating_sub(self.output.consumed);
        let is_full = self
            .output
            .ahead
            .as_ref()
            .is_some_and(|batch| batch.lines.len() >= BATCH_ROWS || bytes_ahead >= BATCH_BYTES as u64);
        !is_full && self.state.may_read() && !*self.paused.borrow()
    }

    /// Adds lines to the batch ahead. Returns false if that must wait for the commit.
    async fn decode_ahead(&mut self) -> bool {
        let mut batch = match self.output.ahead.take() {
            Some(batch) => batch,
            None => DecodedBatch::new(self.checkpoint(), Vec::new()),
        };
        let lines = self.cut_lines(BATCH_ROWS.saturating_sub(batch.lines.len()).max(1));
        let stepped =
            self.step_lines(&lines, LineHandling::Normal, Assessing::Later, &mut batch.effects).await;
        batch.lines.extend(lines);
        failpoint::visit("output.ahead");
        let Ok(means_something) = stepped else {
            self.give_back(batch); // in turn, a panic is contained line by line
            return false;
        };
        batch.means_something |= means_something;
        batch.end = self.output.cut;
        self.output.ahead = Some(batch);
        true
    }
}
