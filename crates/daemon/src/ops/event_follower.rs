//! A reader that follows the growing log, at its own pace.
//!
//! ```text
//!              nothing new, not alone
//!   store ────────────────────────────────► shared tail ([`SharedTails`])
//!     ▲ │ bell                                │ wake-up
//!     └─┘ ◄──── too slow, the daemon stops ───┘
//! ```
//!
//! Nothing is queued for a slow reader, so it costs nothing: its backlog is in the log. It reads the store until it has
//! everything, and from then on takes the frames that its view's tail has made for all readers. A reader that is alone in
//! its view stays with the store.
//!
//! A reader returns from the tail to the store only if it was sent no event after the seq from which it would read. That
//! always holds for operators. A viewer may have been sent some events while earlier ones are held back. It would have to
//! leave these out, and retention or the removal of a session may have changed the log meanwhile. Its stream ends
//! instead. The client resumes from its last id and may receive some events again, as after any reconnect.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::event_frames::{BATCH, CHUNK_BYTES, FrameEncoder};
use super::shared_tail::{NextFrames, ReaderRegistration, SharedTail, TailPosition};
use super::{Caller, LogReader, OpError};
use intercom_store::LogCutoff;
use intercom_store::bus::BellListener;
use intercom_types::LoggedEvent;

/// The number and interval of retries after a failed read, before the reader has to reconnect.
const MAX_FAILURES: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(250);
/// The silence after which a comment is sent, so that both ends notice a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const COMMENT: &[u8] = b":\n\n";

/// A stream of server-sent events.
#[derive(Debug)]
pub struct EventFollower {
    log: LogReader,
    /// Streams end when the daemon does.
    closing: CancellationToken,
    caller: Caller,
    registration: ReaderRegistration,
    source: EventSource,
}

#[derive(Debug)]
enum EventSource {
    Store(StoreSource),
    Tail(TailSource),
}

/// A position in the store.
#[derive(Debug)]
struct StoreSource {
    bell: BellListener,
    /// The last event that was taken from a batch.
    after: u64,
    /// The position up to which the store is known to have been read.
    read_to: u64,
    batch: std::vec::IntoIter<LoggedEvent>,
    encoder: FrameEncoder,
    /// The number of consecutive failed reads.
    failures: u32,
}

#[derive(Debug)]
struct TailSource {
    tail: Arc<SharedTail>,
    growth: watch::Receiver<()>,
    position: TailPosition,
}

/// The reason to look again.
#[derive(Debug, PartialEq, Eq)]
enum WakeUp {
    New,
    Closing,
    Silence,
    /// The caller's access has ended, or the source has.
    Over,
}

impl EventFollower {
    /// Follows a view after a position; `Err(Ok(…))` if retention has removed some of its events.
    pub(super) async fn open(
        log: LogReader,
        registration: ReaderRegistration,
        caller: Caller,
        after: Option<u64>,
        closing: CancellationToken,
    ) -> Result<Result<Self, LogCutoff>, OpError> {
        let mut source = StoreSource::new(&log, &registration, after.unwrap_or(0));
        let first = match log.events(after, registration.view().session, BATCH).await? {
            Ok(first) => first,
            Err(cutoff) => return Ok(Err(cutoff)),
        };
        source.batch = first.into_iter();
        Ok(Ok(Self { log, closing, caller, registration, source: EventSource::Store(source) }))
    }

    /// Returns the next frames, each with the position from which its reader resumes after it, or a comment. `None` ends
    /// the stream: the daemon stops, access has ended, the store does not answer, or a viewer cannot return to the store.
    /// The reader reconnects with its last id.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            // After the end of its access a caller gets no more events, even in the middle of a batch.
            if self.caller.is_out() {
                return None;
            }
            let step = match &mut self.source {
                EventSource::Store(_) => self.step_in_store().await,
                EventSource::Tail(_) => self.step_in_tail().await,
            };
            match step {
                Step::Frames(frames) => return Some(frames),
                Step::Again => {}
                Step::End => return None,
            }
        }
    }

    async fn step_in_store(&mut self) -> Step {
        let Self { log, closing, caller, registration, source } = self;
        let EventSource::Store(store) = source else { return Step::Again };
        let Some(frames) = store.encode(log).await else { return Step::End };
        if !frames.is_empty() {
            return Step::Frames(frames);
        }
        // Events that were recorded before the stop of the daemon are sent before the stream ends.
        let last_look = closing.is_cancelled();
        if !last_look
            && store.may_join()
            && let Some(tail) = registration.tail(store.after)
        {
            *source = EventSource::Tail(TailSource::new(tail, store.after));
            return Step::Again;
        }
        let newest = store.bell.newest();
        if last_look || store.read_to < newest {
            match store.read(log, registration, newest, last_look).await {
                None => return Step::End,
                Some(true) => return Step::Again,
                Some(false) => {}
            }
        }
        if last_look {
            return Step::End;
        }
        if store.may_join()
            && let Some(tail) = registration.tail_from(log, store.after)
        {
            *source = EventSource::Tail(TailSource::new(tail, store.after));
            return Step::Again;
        }
        match wait(store.bell.wait_for_ring(), caller, closing).await {
            WakeUp::New | WakeUp::Closing => Step::Again,
            WakeUp::Silence => Step::Frames(Bytes::from_static(COMMENT)),
            WakeUp::Over => Step::End,
        }
    }

    async fn step_in_tail(&mut self) -> Step {
        let Self { log, closing, caller, registration, source } = self;
        let EventSource::Tail(tail) = source else { return Step::Again };
        tail.growth.mark_unchanged();
        match tail.tail.take(&mut tail.position) {
            NextFrames::Frames(frames) => return Step::Frames(frames),
            NextFrames::UpToDate if !closing.is_cancelled() => {
                let grown = async { tail.growth.changed().await.is_ok() };
                match wait(grown, caller, closing).await {
                    WakeUp::New => return Step::Again,
                    WakeUp::Silence => return Step::Frames(Bytes::from_static(COMMENT)),
                    WakeUp::Over if caller.is_out() => return Step::End,
                    WakeUp::Over | WakeUp::Closing => {}
                }
            }
            NextFrames::UpToDate | NextFrames::NotKept => {}
        }
        // Some of the events after the seq were sent, and the store may not have all of these any more.
        if !tail.position.is_clean() {
            return Step::End;
        }
        *source = EventSource::Store(StoreSource::new(log, registration, tail.position.seq));
        Step::Again
    }
}

enum Step {
    Frames(Bytes),
    Again,
    End,
}

impl StoreSource {
    fn new(log: &LogReader, registration: &ReaderRegistration, after: u64) -> Self {
        let view = registration.view();
        Self {
            bell: log.listen_to(view.session),
            after,
            read_to: 0,
            batch: Vec::new().into_iter(),
            encoder: FrameEncoder::new(view),
            failures: 0,
        }
    }

    /// Returns true if a tail that covers `after` sends the same frames from here on.
    fn may_join(&self) -> bool {
        self.encoder.is_clean()
    }

    /// Returns the next frames of the batch; none at its end. `None` if the store does not answer.
    async fn encode(&mut self, log: &LogReader) -> Option<Bytes> {
        let mut frames = Vec::new();
        while frames.len() < CHUNK_BYTES {
            let Some(event) = self.batch.next() else { break };
            self.after = event.seq;
            self.encoder.push(log, event, &mut frames).await.ok()?;
        }
        Some(frames.into())
    }

    /// Reads the next batch; true if there is something to do with the result, `None` if the store does not answer.
    async fn read(
        &mut self,
        log: &LogReader,
        registration: &ReaderRegistration,
        newest: u64,
        last_look: bool,
    ) -> Option<bool> {
        let session = registration.view().session;
        match log.events(Some(self.after), session, BATCH).await {
            Ok(Ok(batch)) => {
                self.failures = 0;
                let is_empty = batch.is_empty();
                if is_empty {
                    self.read_to = self.read_to.max(newest);
                } else if session.is_none() {
                    // A session's events have gaps; only an empty read shows its end.
                    self.read_to = batch.last().map_or(0, |event| event.seq).max(self.read_to);
                }
                self.batch = batch.into_iter();
                Some(!is_empty)
            }
            // Retention removed events that were not read yet: continue after them.
            Ok(Err(LogCutoff { oldest })) => {
                self.after = oldest.saturating_sub(1);
                Some(true)
            }
            // A failure may pass in a moment, and a reader need not notice it.
            Err(error) if self.failures < MAX_FAILURES && !last_look => {
                self.failures += 1;
                tracing::warn!(%error, after = self.after, "a stream cannot read the log; retrying");
                tokio::time::sleep(TRY_AGAIN).await;
                Some(true)
            }
            Err(_) => None,
        }
    }
}

impl TailSource {
    fn new(tail: Arc<SharedTail>, seq: u64) -> Self {
        Self { growth: tail.growth(), tail, position: TailPosition::after(seq) }
    }
}

/// Waits for new events; `news` is false if there will be none.
async fn wait(news: impl Future<Output = bool>, caller: &Caller, closing: &CancellationToken) -> WakeUp {
    tokio::select! {
        biased;
        () = caller.access_ended() => WakeUp::Over,
        news = news => if news { WakeUp::New } else { WakeUp::Over },
        () = closing.cancelled() => WakeUp::Closing,
        () = tokio::time::sleep(KEEP_ALIVE) => WakeUp::Silence,
    }
}
