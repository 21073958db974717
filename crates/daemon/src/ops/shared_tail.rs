//! The shared end of the log: read once and encoded once for all readers of a view.
//!
//! # Theory of operation
//!
//! ```text
//!   bell ─► task of the view ─► store ─► FrameEncoder ─► kept chunks (Bytes) ─► wake-up
//!                                                             │ take, slices of the same bytes
//!                                              reader, reader, reader, …
//! ```
//!
//! *Purpose.* A thousand readers of the same events would each read the store and encode the same JSON. Here one task does
//! it, and a reader costs a lock, a slice and its write to the socket.
//!
//! *Lifetime.* A tail exists while at least two readers follow the same view; one alone reads the store itself, which
//! saves it a task switch. A reader that is behind, or that begins, reads the store itself as well, and joins once it
//! has caught up. The tail ends with its last reader.
//!
//! *Positions.* A position is a seq, after which an encoder that knows nothing continues correctly (a *clean* one), and
//! the number of bytes that were sent since then. For operators every event is a clean position. For viewers it is one if
//! no event is held back; a reader joins only there, because what is held may differ between readers that began at
//! different events. A reader that is too slow for the kept chunks goes back to the store at its clean seq, and receives
//! each frame once. If it was sent bytes since then, its stream ends instead, and the client resumes from its last id:
//! the bytes could be left out only of the same events, and some of these may have been removed from the log meanwhile.
//!
//! *Bounds.* A tail keeps [`KEPT_BYTES`] of frames, less if there are many tails, and at least its newest chunk.
//!
//! *Pace.* After a wake-up the task waits for up to [`LONGEST_PAUSE`], in proportion to the number of readers, before it
//! reads again. A single event therefore reaches everybody at once, and a stream of events costs each of a thousand
//! readers fifty writes per second instead of a thousand.
//!
//! *Failures.* If the store cannot be read, the task ends and its readers go back to the store, where each of them
//! retries and reports as if it had been alone.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::LogReader;
use super::event_frames::{BATCH, CHUNK_BYTES, FrameEncoder, LogView};
use intercom_store::LogCutoff;

/// The limit on frames that a tail keeps.
const KEPT_BYTES: usize = 1 << 20;
/// The limit on frames that all tails keep together, apart from one chunk each.
const KEPT_BY_ALL: usize = 32 << 20;
/// The limit on positions that a tail keeps; viewers' events may leave no bytes.
const KEPT_BOUNDARIES: usize = 20_000;
/// The pause after a wake-up, for each reader, and its limit.
const PAUSE_PER_READER: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The position of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TailPosition {
    /// A clean position in the log.
    pub(super) seq: u64,
    /// The number of bytes that were sent since then.
    bytes: u64,
    /// The number of bytes before the next ones, since the beginning of the tail; `None` before the first ones. The clean
    /// seq alone would not do: it may be too old to be kept while the next bytes are.
    offset: Option<u64>,
}

impl TailPosition {
    /// Returns the position of a reader that joins at a clean seq.
    pub(super) fn after(seq: u64) -> Self {
        Self { seq, bytes: 0, offset: None }
    }

    /// Returns true if a reader of the store continues correctly after `seq`.
    pub(super) fn is_clean(self) -> bool {
        self.bytes == 0
    }
}

/// The state of a view after one of its events.
#[derive(Debug, Clone, Copy)]
struct EventBoundary {
    seq: u64,
    /// The number of bytes up to here, since the beginning of the tail.
    end: u64,
    is_clean: bool,
}

#[derive(Debug)]
struct Chunk {
    /// The number of bytes before it, since the beginning of the tail.
    start: u64,
    bytes: Bytes,
    /// One for each event, at least one.
    boundaries: Vec<EventBoundary>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// The newest frames of a view.
#[derive(Debug)]
struct KeptFrames {
    /// The state before the first chunk.
    floor: EventBoundary,
    chunks: VecDeque<Chunk>,
    bytes: usize,
    boundaries: usize,
}

/// The next frames of a reader.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextFrames {
    Frames(Bytes),
    /// The reader has everything.
    UpToDate,
    /// The frames are not kept any more: the reader has to continue from the store.
    NotKept,
}

impl KeptFrames {
    fn new(seq: u64) -> Self {
        let floor = EventBoundary { seq, end: 0, is_clean: true };
        Self { floor, chunks: VecDeque::new(), bytes: 0, boundaries: 0 }
    }

    /// Returns the last boundary up to a position; `None` if that is not kept any more.
    fn boundary(&self, seq: u64) -> Option<EventBoundary> {
        let begun = |chunk: &Chunk| chunk.boundaries.first().is_some_and(|first| first.seq <= seq);
        let chunk = self.chunks.partition_point(begun).checked_sub(1).and_then(|at| self.chunks.get(at));
        let Some(chunk) = chunk else { return (seq >= self.floor.seq).then_some(self.floor) };
        let at = chunk.boundaries.partition_point(|boundary| boundary.seq <= seq).checked_sub(1)?;
        chunk.boundaries.get(at).copied()
    }

    fn take(&self, position: &mut TailPosition) -> NextFrames {
        let joined = || self.boundary(position.seq).filter(|boundary| boundary.is_clean);
        let Some(from) = position.offset.or_else(|| joined().map(|boundary| boundary.end)) else {
            return NextFrames::NotKept;
        };
        let next = self.chunks.partition_point(|chunk| chunk.end() <= from);
        let Some(chunk) = self.chunks.get(next) else { return NextFrames::UpToDate };
        let Some(skipped) = from.checked_sub(chunk.start).and_then(|skipped| usize::try_from(skipped).ok())
        else {
            return NextFrames::NotKept;
        };
        let clean = chunk.boundaries.iter().rev().find(|boundary| boundary.is_clean);
        let (seq, bytes) = match clean.filter(|clean| clean.end >= from) {
            Some(clean) => (clean.seq, chunk.end() - clean.end),
            None => (position.seq, position.bytes + (chunk.end() - from)),
        };
        *position = TailPosition { seq, bytes, offset: Some(chunk.end()) };
        NextFrames::Frames(chunk.bytes.slice(skipped..))
    }

    fn push(&mut self, bytes: Bytes, boundaries: Vec<EventBoundary>, limit: usize) {
        let start = self.chunks.back().map_or(self.floor.end, Chunk::end);
        self.bytes += bytes.len();
        self.boundaries += boundaries.len();
        self.chunks.push_back(Chunk { start, bytes, boundaries });
        while (self.bytes > limit || self.boundaries > KEPT_BOUNDARIES) && self.chunks.len() > 1 {
            let Some(oldest) = self.chunks.pop_front() else { return };
            self.bytes -= oldest.bytes.len();
            self.boundaries -= oldest.boundaries.len();
            self.floor = oldest.boundaries.last().copied().unwrap_or(self.floor);
        }
    }
}

/// The end of one view, with the task that reads it.
#[derive(Debug)]
pub(super) struct SharedTail {
    kept: Arc<Mutex<KeptFrames>>,
    grown: watch::Receiver<()>,
    _task: AbortOnDropHandle<()>,
    _counted: Arc<()>,
}

impl SharedTail {
    pub(super) fn take(&self, position: &mut TailPosition) -> NextFrames {
        lock(&self.kept).take(position)
    }

    /// Returns true if a reader at this clean position can continue here.
    pub(super) fn covers(&self, seq: u64) -> bool {
        lock(&self.kept).boundary(seq).is_some_and(|boundary| boundary.is_clean)
    }

    /// Returns false once its task has ended.
    fn is_live(&self) -> bool {
        self.grown.has_changed().is_ok()
    }

    /// Returns a receiver that changes with each chunk, and closes when the tail cannot go on.
    pub(super) fn growth(&self) -> watch::Receiver<()> {
        self.grown.clone()
    }
}

/// Locks the frames; nobody waits or panics while holding them.
fn lock(kept: &Mutex<KeptFrames>) -> MutexGuard<'_, KeptFrames> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tails and the number of readers of each view.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedTails(Arc<TailRegistry>);

#[derive(Debug, Default)]
struct TailRegistry {
    /// Locked for look-ups only, and consistent between any two statements.
    views: Mutex<HashMap<LogView, ViewReaders>>,
    /// Each tail has a clone, so its count is the number of tails and one.
    counted: Arc<()>,
}

#[derive(Debug, Default)]
struct ViewReaders {
    readers: usize,
    tail: Weak<SharedTail>,
}

impl SharedTails {
    /// Counts a reader of a view until the registration is dropped.
    pub(super) fn register(&self, view: LogView) -> ReaderRegistration {
        self.views().entry(view).or_default().readers += 1;
        ReaderRegistration { tails: self.clone(), view }
    }

    fn views(&self) -> MutexGuard<'_, HashMap<LogView, ViewReaders>> {
        self.0.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limit(&self) -> usize {
        let tails = Arc::strong_count(&self.0.counted) - 1;
        KEPT_BYTES.min(KEPT_BY_ALL / tails.max(1))
    }
}

/// The registration of one reader with its view.
#[derive(Debug)]
pub(super) struct ReaderRegistration {
    tails: SharedTails,
    view: LogView,
}

impl ReaderRegistration {
    pub(super) fn view(&self) -> LogView {
        self.view
    }

    /// Returns the view's tail, if it covers this clean position.
    pub(super) fn tail(&self, seq: u64) -> Option<Arc<SharedTail>> {
        let tail = self.tails.views().get(&self.view)?.tail.upgrade()?;
        (tail.is_live() && tail.covers(seq)).then_some(tail)
    }

    /// Returns the view's tail for a reader that has received the newest event. If there is none and the reader is not
    /// alone, one begins at this position, unless the log has not reached it.
    pub(super) fn tail_from(&self, log: &LogReader, seq: u64) -> Option<Arc<SharedTail>> {
        let mut views = self.tails.views();
        let view = views.get_mut(&self.view).filter(|view| view.readers > 1)?;
        // A tail whose task has ended is replaced.
        if let Some(tail) = view.tail.upgrade().filter(|tail| tail.is_live()) {
            return tail.covers(seq).then_some(tail);
        }
        // A tail from a position in the future would cover nobody else, and keep the others of the view from sharing.
        // The newest event of all sessions: a reader of one may resume after an event of another.
        if seq > log.listen().newest() {
            return None;
        }
        let kept = Arc::new(Mutex::new(KeptFrames::new(seq)));
        let (growth, grown) = watch::channel(());
        let reader = TailReader {
            log: log.clone(),
            view: self.view,
            tails: self.tails.clone(),
            kept: Arc::clone(&kept),
            growth,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(reader.run(seq)));
        let counted = Arc::clone(&self.tails.0.counted);
        let tail = Arc::new(SharedTail { kept, grown, _task: task, _counted: counted });
        view.tail = Arc::downgrade(&tail);
        Some(tail)
    }
}

impl Drop for ReaderRegistration {
    fn drop(&mut self) {
        let mut views = self.tails.views();
        if let Some(view) = views.get_mut(&self.view) {
            view.readers -= 1;
            if view.readers == 0 {
                views.remove(&self.view);
            }
        }
    }
}

/// The task of a tail. It ends with the tail, or when the store cannot be read.
struct TailReader {
    log: LogReader,
    view: LogView,
    tails: SharedTails,
    kept: Arc<Mutex<KeptFrames>>,
    growth: watch::Sender<()>,
}

impl TailReader {
    async fn run(self, mut after: u64) {
        let mut bell = self.log.listen_to(self.view.session);
        let mut encoder = FrameEncoder::new(self.view);
        loop {
            bell.newest(); // a ring from here on wakes us again
            let batch = match self.log.events(Some(after), self.view.session, BATCH).await {
                Ok(Ok(batch)) => batch,
                // Retention removed events that were not read yet: continue after them.
                Ok(Err(LogCutoff { oldest })) => {
                    after = oldest.saturating_sub(1);
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, after, "the readers of a view read the log by themselves");
                    return;
                }
            };
            let Some(last) = batch.last().map(|event| event.seq) else {
                if bell.wait_for_ring().await {
                    continue;
                }
                return;
            };
            let mut events = batch.into_iter().peekable();
            while events.peek().is_some() {
                if self.publish_chunk(&mut encoder, &mut events).await.is_err() {
                    return;
                }
            }
            after = last;
            self.growth.send_replace(());
            // Our own tail has a receiver, too.
            let readers = u32::try_from(self.growth.receiver_count().saturating_sub(1)).unwrap_or(u32::MAX);
            let pause = PAUSE_PER_READER.saturating_mul(readers).min(LONGEST_PAUSE);
            if pause >= Duration::from_millis(1) {
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn publish_chunk(
        &self,
        encoder: &mut FrameEncoder,
        events: &mut impl Iterator<Item = intercom_types::LoggedEvent>,
    ) -> Result<(), intercom_store::StoreError> {
        let start = {
            let kept = lock(&self.kept);
            kept.chunks.back().map_or(kept.floor.end, Chunk::end)
        };
        let (mut bytes, mut boundaries) = (Vec::new(), Vec::new());
        while bytes.len() < CHUNK_BYTES {
            let Some(event) = events.next() else { break };
            let seq = event.seq;
            encoder.push(&self.log, event, &mut bytes).await?;
            let end = start + bytes.len() as u64;
            boundaries.push(EventBoundary { seq, end, is_clean: encoder.is_clean() });
        }
        let limit = self.tails.limit();
        lock(&self.kept).push(bytes.into(), boundaries, limit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary(seq: u64, end: u64, is_clean: bool) -> EventBoundary {
        EventBoundary { seq, end, is_clean }
    }

    fn frames(text: &'static str) -> NextFrames {
        NextFrames::Frames(Bytes::from_static(text.as_bytes()))
    }

    fn at(seq: u64) -> TailPosition {
        TailPosition::after(seq)
    }

    #[test]
    fn a_reader_receives_each_byte_once_from_wherever_it_joins() {
        let mut kept = KeptFrames::new(10);
        kept.push("aabb".into(), vec![boundary(12, 2, true), boundary(14, 4, true)], 100);
        kept.push("cc".into(), vec![boundary(15, 6, true)], 100);
        let mut position = at(10);
        assert_eq!(kept.take(&mut position), frames("aabb"));
        assert_eq!((position.seq, position.bytes), (14, 0));
        assert_eq!(kept.take(&mut position), frames("cc"));
        assert_eq!(kept.take(&mut position), NextFrames::UpToDate);
        // Between two events of the view, and ahead of the tail.
        assert_eq!(kept.take(&mut at(13)), frames("bb"));
        let mut ahead = at(17);
        assert_eq!(kept.take(&mut ahead), NextFrames::UpToDate);
        kept.push("ddee".into(), vec![boundary(16, 8, true), boundary(18, 10, true)], 100);
        assert_eq!(kept.take(&mut ahead), frames("ee"), "it has 16 already");
        assert_eq!(kept.take(&mut at(9)), NextFrames::NotKept);
    }

    #[test]
    fn between_clean_positions_a_reader_knows_what_it_has_since_the_last_one() {
        let mut kept = KeptFrames::new(0);
        // 2 is held; 3 releases one frame and is held; 4 releases the rest.
        kept.push("a".into(), vec![boundary(1, 1, true), boundary(2, 1, false)], 100);
        let mut position = at(0);
        assert_eq!(kept.take(&mut position), frames("a"));
        assert_eq!((position.seq, position.bytes), (1, 0));
        assert_eq!(kept.take(&mut at(2)), NextFrames::NotKept, "nobody joins here");
        kept.push("bb".into(), vec![boundary(3, 3, false)], 100);
        assert_eq!(kept.take(&mut position), frames("bb"));
        assert_eq!((position.seq, position.bytes), (1, 2));
        assert!(!position.is_clean(), "from the store it would receive two bytes again");
        assert_eq!(kept.take(&mut position), NextFrames::UpToDate);
        kept.push("ccc".into(), vec![boundary(4, 6, true)], 100);
        assert_eq!(kept.take(&mut position), frames("ccc"));
        assert_eq!((position.seq, position.bytes), (4, 0));
        assert!(position.is_clean());
    }

    #[test]
    fn old_chunks_go_and_a_reader_that_still_needs_them_reads_the_store() {
        let mut kept = KeptFrames::new(0);
        for seq in 1..=10 {
            kept.push("xxxx".into(), vec![boundary(seq, seq * 4, true)], 12);
        }
        assert_eq!((kept.chunks.len(), kept.bytes, kept.floor.seq), (3, 12, 7));
        assert_eq!(kept.take(&mut at(6)), NextFrames::NotKept);
        assert_eq!(kept.take(&mut at(7)), frames("xxxx"));
        kept.push("a chunk that is longer than the limit".into(), vec![boundary(11, 77, true)], 12);
        assert_eq!(kept.chunks.len(), 1);
    }

    #[test]
    fn a_reader_that_is_too_slow_between_clean_positions_cannot_return_to_the_store() {
        let mut kept = KeptFrames::new(0);
        // 1 is held, and the others are released before it.
        let (mut position, mut fast) = (at(0), at(0));
        kept.push("xxxx".into(), vec![boundary(1, 0, false), boundary(2, 4, false)], 8);
        assert_eq!(kept.take(&mut position), frames("xxxx"));
        assert_eq!(kept.take(&mut fast), frames("xxxx"));
        for seq in 3..=5 {
            kept.push("xxxx".into(), vec![boundary(seq, (seq - 1) * 4, false)], 8);
            assert_eq!(kept.take(&mut fast), frames("xxxx"), "its clean position need not be kept");
        }
        assert_eq!((fast.seq, fast.bytes), (0, 16));
        assert_eq!(kept.take(&mut position), NextFrames::NotKept);
        assert_eq!((position.seq, position.bytes), (0, 4));
        assert!(!position.is_clean());
    }
}
