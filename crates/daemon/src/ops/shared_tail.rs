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
//! *Why.* A thousand readers of the same events would each read the store and encode the same JSON. Here one task does
//! it, and a reader costs a lock, a slice and its write to the socket.
//!
//! *Who is here.* A tail exists while at least two readers follow the same view; one alone reads the store itself, which
//! saves it a task switch. A reader that is behind, or that begins, reads the store itself as well, and joins once it
//! has caught up. The tail ends with its last reader.
//!
//! *Positions.* A position is a seq, after which an encoder that knows nothing continues correctly (a *clean* one), and
//! the number of bytes that were sent since then. Encoding is deterministic, so a reader that is too slow for the kept
//! chunks goes back to the store at its clean seq, encodes again, and skips as many bytes: it receives each frame once.
//! For operators every event is a clean position. For viewers it is one if no event is held back; a reader joins only
//! there, because what is held may differ between readers that began at different events.
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
use super::event_frames::{FrameEncoder, LogView};
use intercom_store::LogCutoff;

/// The limit on events per read.
const BATCH: usize = 500;
/// The size at which a chunk is complete; its last frame may exceed it.
const CHUNK_BYTES: usize = 64 * 1024;
/// The limit on frames that a tail keeps.
const KEPT_BYTES: usize = 1 << 20;
/// The limit on frames that all tails keep together, apart from one chunk each.
const KEPT_BY_ALL: usize = 32 << 20;
/// The limit on positions that a tail keeps; viewers' events may leave no bytes.
const KEPT_MARKS: usize = 20_000;
/// The pause after a wake-up, for each reader, and its limit.
const PAUSE_PER_READER: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The position of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TailPosition {
    /// A clean position in the log.
    pub(super) seq: u64,
    /// The number of bytes that were sent since then.
    pub(super) bytes: u64,
}

/// The state of a view after one of its events.
#[derive(Debug, Clone, Copy)]
struct Mark {
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
    /// One mark for each event, at least one.
    marks: Vec<Mark>,
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
    floor: Mark,
    chunks: VecDeque<Chunk>,
    bytes: usize,
    marks: usize,
}

/// The next frames of a reader.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Frames(Bytes),
    /// The reader has everything.
    AtEnd,
    /// The reader has to continue from the store.
    Lost,
}

impl KeptFrames {
    fn new(seq: u64) -> Self {
        let floor = Mark { seq, end: 0, is_clean: true };
        Self { floor, chunks: VecDeque::new(), bytes: 0, marks: 0 }
    }

    /// Returns the last state up to a position; `None` if that is not kept any more.
    fn mark(&self, seq: u64) -> Option<Mark> {
        let begun = |chunk: &Chunk| chunk.marks.first().is_some_and(|first| first.seq <= seq);
        let chunk = self.chunks.partition_point(begun).checked_sub(1).and_then(|at| self.chunks.get(at));
        let Some(chunk) = chunk else { return (seq >= self.floor.seq).then_some(self.floor) };
        let at = chunk.marks.partition_point(|mark| mark.seq <= seq).checked_sub(1)?;
        chunk.marks.get(at).copied()
    }

    fn take(&self, position: &mut TailPosition) -> Taken {
        let Some(mark) = self.mark(position.seq).filter(|mark| mark.is_clean) else { return Taken::Lost };
        let from = mark.end + position.bytes;
        let next = self.chunks.partition_point(|chunk| chunk.end() <= from);
        let Some(chunk) = self.chunks.get(next) else { return Taken::AtEnd };
        let Some(skipped) = from.checked_sub(chunk.start).and_then(|skipped| usize::try_from(skipped).ok())
        else {
            return Taken::Lost;
        };
        let clean = chunk.marks.iter().rev().find(|mark| mark.is_clean);
        let clean = clean.filter(|clean| clean.end >= from).copied().unwrap_or(mark);
        *position = TailPosition { seq: clean.seq, bytes: chunk.end() - clean.end };
        Taken::Frames(chunk.bytes.slice(skipped..))
    }

    fn push(&mut self, bytes: Bytes, marks: Vec<Mark>, limit: usize) {
        let start = self.chunks.back().map_or(self.floor.end, Chunk::end);
        self.bytes += bytes.len();
        self.marks += marks.len();
        self.chunks.push_back(Chunk { start, bytes, marks });
        while (self.bytes > limit || self.marks > KEPT_MARKS) && self.chunks.len() > 1 {
            let Some(oldest) = self.chunks.pop_front() else { return };
            self.bytes -= oldest.bytes.len();
            self.marks -= oldest.marks.len();
            self.floor = oldest.marks.last().copied().unwrap_or(self.floor);
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
    pub(super) fn take(&self, position: &mut TailPosition) -> Taken {
        lock(&self.kept).take(position)
    }

    /// Returns true if a reader at this clean position can continue here.
    pub(super) fn covers(&self, seq: u64) -> bool {
        lock(&self.kept).mark(seq).is_some_and(|mark| mark.is_clean)
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
    /// Counts a reader of a view until the seat is dropped.
    pub(super) fn enter(&self, view: LogView) -> ViewSeat {
        self.views().entry(view).or_default().readers += 1;
        ViewSeat { tails: self.clone(), view }
    }

    fn views(&self) -> MutexGuard<'_, HashMap<LogView, ViewReaders>> {
        self.0.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limit(&self) -> usize {
        let tails = Arc::strong_count(&self.0.counted) - 1;
        KEPT_BYTES.min(KEPT_BY_ALL / tails.max(1))
    }
}

/// The place of one reader in its view.
#[derive(Debug)]
pub(super) struct ViewSeat {
    tails: SharedTails,
    view: LogView,
}

impl ViewSeat {
    pub(super) fn view(&self) -> LogView {
        self.view
    }

    /// Returns the view's tail, if it covers this clean position.
    pub(super) fn tail(&self, seq: u64) -> Option<Arc<SharedTail>> {
        let tail = self.tails.views().get(&self.view)?.tail.upgrade()?;
        (tail.is_live() && tail.covers(seq)).then_some(tail)
    }

    /// Returns the view's tail for a reader that has received the newest event. If there is none and the reader is not
    /// alone, one begins at this position.
    pub(super) fn tail_from(&self, log: &LogReader, seq: u64) -> Option<Arc<SharedTail>> {
        let mut views = self.tails.views();
        let view = views.get_mut(&self.view).filter(|view| view.readers > 1)?;
        // A tail whose task has ended is replaced.
        if let Some(tail) = view.tail.upgrade().filter(|tail| tail.is_live()) {
            return tail.covers(seq).then_some(tail);
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

impl Drop for ViewSeat {
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
        let (mut bytes, mut marks) = (Vec::new(), Vec::new());
        while bytes.len() < CHUNK_BYTES {
            let Some(event) = events.next() else { break };
            let seq = event.seq;
            encoder.push(&self.log, event, &mut bytes).await?;
            marks.push(Mark { seq, end: start + bytes.len() as u64, is_clean: encoder.is_clean() });
        }
        let limit = self.tails.limit();
        lock(&self.kept).push(bytes.into(), marks, limit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(seq: u64, end: u64, is_clean: bool) -> Mark {
        Mark { seq, end, is_clean }
    }

    fn frames(text: &'static str) -> Taken {
        Taken::Frames(Bytes::from_static(text.as_bytes()))
    }

    fn at(seq: u64, bytes: u64) -> TailPosition {
        TailPosition { seq, bytes }
    }

    #[test]
    fn a_reader_receives_each_byte_once_from_wherever_it_joins() {
        let mut kept = KeptFrames::new(10);
        kept.push("aabb".into(), vec![mark(12, 2, true), mark(14, 4, true)], 100);
        kept.push("cc".into(), vec![mark(15, 6, true)], 100);
        let mut position = at(10, 0);
        assert_eq!(kept.take(&mut position), frames("aabb"));
        assert_eq!(position, at(14, 0));
        assert_eq!(kept.take(&mut position), frames("cc"));
        assert_eq!(kept.take(&mut position), Taken::AtEnd);
        // Between two events of the view, and ahead of the tail.
        assert_eq!(kept.take(&mut at(13, 0)), frames("bb"));
        let mut ahead = at(17, 0);
        assert_eq!(kept.take(&mut ahead), Taken::AtEnd);
        kept.push("ddee".into(), vec![mark(16, 8, true), mark(18, 10, true)], 100);
        assert_eq!(kept.take(&mut ahead), frames("ee"), "it has 16 already");
        assert_eq!(kept.take(&mut at(9, 0)), Taken::Lost);
    }

    #[test]
    fn between_clean_positions_a_reader_knows_what_it_has_since_the_last_one() {
        let mut kept = KeptFrames::new(0);
        // 2 is held; 3 releases one frame and is held; 4 releases the rest.
        kept.push("a".into(), vec![mark(1, 1, true), mark(2, 1, false)], 100);
        let mut position = at(0, 0);
        assert_eq!(kept.take(&mut position), frames("a"));
        assert_eq!(position, at(1, 0));
        assert_eq!(kept.take(&mut at(2, 0)), Taken::Lost, "nobody joins here");
        kept.push("bb".into(), vec![mark(3, 3, false)], 100);
        assert_eq!(kept.take(&mut position), frames("bb"));
        assert_eq!(position, at(1, 2), "from the store it skips two bytes after 1");
        assert_eq!(kept.take(&mut position), Taken::AtEnd);
        kept.push("ccc".into(), vec![mark(4, 6, true)], 100);
        assert_eq!(kept.take(&mut position), frames("ccc"));
        assert_eq!(position, at(4, 0));
    }

    #[test]
    fn old_chunks_go_and_a_reader_that_still_needs_them_reads_the_store() {
        let mut kept = KeptFrames::new(0);
        for seq in 1..=10 {
            kept.push("xxxx".into(), vec![mark(seq, seq * 4, true)], 12);
        }
        assert_eq!((kept.chunks.len(), kept.bytes, kept.floor.seq), (3, 12, 7));
        assert_eq!(kept.take(&mut at(6, 0)), Taken::Lost);
        assert_eq!(kept.take(&mut at(7, 0)), frames("xxxx"));
        kept.push("a chunk that is longer than the limit".into(), vec![mark(11, 77, true)], 12);
        assert_eq!(kept.chunks.len(), 1);
    }
}
