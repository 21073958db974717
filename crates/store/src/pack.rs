//! The packer: moves events of bulk kinds from rows and plain blocks into compressed blocks, a window of the log at a
//! time, oldest first. Databases of earlier versions become blocks in the same way.
//!
//! A window is at most [`MAX_SPAN`] seqs long and has at most [`MAX_FRAMES`] blocks, sorted by session: so the events of
//! a quiet session are together, and a reader of all sessions opens few blocks at once. It is read and compressed
//! outside of the writer; one transaction then replaces its sources, if all of them are still there. A crash at any
//! point leaves either the sources or the blocks.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};

use super::block::{BlockBuilder, BlockCodec, BlockHeader, EncodedBlock, MAX_SPAN, SessionSpan};
use super::block_cache::BlockCache;
use super::blocks::{self, HEADER};
use super::disk::free_bytes_beside;
use super::log::bulk_kinds;
use super::{Store, StoreError};
use intercom_types::LogMigration;

/// The size of the data at which a window is complete.
const MAX_WINDOW_BYTES: usize = 1 << 20;
/// The size of the data of a block, unless the window would have more than [`MAX_FRAMES`] of them.
const FRAME_BYTES: usize = 128 << 10;
/// The maximum number of blocks of one window.
const MAX_FRAMES: usize = 8;
/// The number of events below which an incomplete window is left for later: many small windows would make pages slow.
const MIN_WINDOW_EVENTS: usize = 1024;
/// The number of events after which an incomplete window is looked at again.
const MORE_EVENTS: u64 = 256;
/// The interval at which the packer looks for work.
const LOOK: Duration = Duration::from_secs(1);
/// The number of new events in such an interval up to which the daemon has time for packing.
const CALM_EVENTS: u64 = 2000;
/// The number of events that wait at most for a calm moment.
const MAX_BACKLOG: u64 = 500_000;
/// The minimum pause between two windows. It is as long as the work on the window, if that took longer.
const PAUSE: Duration = Duration::from_millis(5);
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// The number of free pages in the file from which on the packer gives them back, and the number of one step.
const MAX_FREE_PAGES: i64 = 2048;
const PAGES_AT_ONCE: i64 = 128;
/// The number of looks after which free pages are counted although there was nothing to pack.
const LOOKS_FOR_PAGES: u64 = 60;
/// The free space on the disk below which nothing is packed.
const MIN_FREE_BYTES: u64 = 64 << 20;
/// The time after which a step ends, so that other writes do not wait long.
const VACUUM_STEP: Duration = Duration::from_millis(5);
/// The value of `auto_vacuum` that permits steps.
const INCREMENTAL: i64 = 2;

/// The result of an attempt to pack one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PackResult {
    /// Everything before this seq is packed, or cannot be.
    Packed { to: u64 },
    /// The events are too few to fill a window, or are not counted yet.
    NotYet,
    /// A source was removed meanwhile: nothing was changed.
    Changed,
}

impl Store {
    /// Packs events as they come, and returns free pages of the file, until the store is closed.
    pub async fn pack_events(&self) {
        let mut bell = self.bell.listen();
        let (mut seen, mut packed_to, mut looks) = (bell.newest(), 0, 0u64);
        loop {
            tokio::time::sleep(LOOK).await;
            let newest = bell.newest();
            let is_calm = newest.saturating_sub(seen) <= CALM_EVENTS;
            seen = newest;
            let backlog = newest.saturating_sub(packed_to);
            let has_work = backlog >= MIN_WINDOW_EVENTS as u64 && (is_calm || backlog > MAX_BACKLOG);
            looks += 1;
            // Both write much, and a copy of the database fails when the write-ahead log grows too much beside it.
            if self.write_failure().is_some() || self.running_copies.are_any() || !self.has_room_to_pack() {
                continue;
            }
            let packed = if has_work { self.pack_some(&mut packed_to).await } else { Ok(()) };
            let rested = match packed {
                // Also without new events: a session may have been removed.
                Ok(()) if is_calm && (has_work || looks % LOOKS_FOR_PAGES == 0) => {
                    self.give_pages_back().await
                }
                packed => packed,
            };
            match rested {
                Ok(()) => {}
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "the log could not be packed; it takes more room until that succeeds");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Reports whether there is room for the pages that packing writes before it frees others. On a nearly full disk it
    /// would fail, together with the writes of agents in the same transaction.
    fn has_room_to_pack(&self) -> bool {
        free_bytes_beside(self.path()).is_none_or(|free| free >= MIN_FREE_BYTES)
    }

    /// Packs windows until no complete one is left or agents write much again.
    async fn pack_some(&self, packed_to: &mut u64) -> Result<(), StoreError> {
        let mut bell = self.bell.listen();
        let begun = bell.newest();
        loop {
            let start = Instant::now();
            match self.pack_window(MIN_WINDOW_EVENTS).await? {
                PackResult::Packed { to } => *packed_to = to,
                PackResult::Changed => {}
                PackResult::NotYet => {
                    // Looked at again after some more events, not after each.
                    *packed_to = (*packed_to)
                        .max(bell.newest().saturating_sub(MIN_WINDOW_EVENTS as u64 - MORE_EVENTS));
                    return Ok(());
                }
            }
            tokio::time::sleep(start.elapsed().max(PAUSE)).await;
            let newest = bell.newest();
            let is_busy = newest - begun > CALM_EVENTS && newest.saturating_sub(*packed_to) <= MAX_BACKLOG;
            if is_busy || self.running_copies.are_any() {
                return Ok(());
            }
        }
    }

    /// Packs the oldest window that is not packed, if it is complete or has enough events.
    pub(super) async fn pack_window(&self, min_events: usize) -> Result<PackResult, StoreError> {
        let cache = self.block_cache.clone();
        let window =
            self.read_log(move |connection| PackWindow::read(connection, &cache, min_events)).await?;
        let Some(window) = window else { return Ok(PackResult::NotYet) };
        let to = u64::try_from(window.end).unwrap_or(0);
        match self.transact_later(window.cost(), move |connection| window.replace(connection)).await {
            Ok(()) => Ok(PackResult::Packed { to }),
            Err(StoreError::Conflict(_)) => Ok(PackResult::Changed),
            Err(error) => Err(error),
        }
    }

    /// Returns the progress of the migration of an old log; `None` when it is complete.
    pub async fn packing_progress(&self) -> Result<Option<LogMigration>, StoreError> {
        self.read(|connection| {
            let Some(total) = meta(connection, "migrated_from")? else { return Ok(None) };
            let packed = meta(connection, "packed_to")?.unwrap_or(1);
            let count = |seq: i64| u64::try_from(seq - 1).unwrap_or(0);
            Ok(Some(LogMigration { done: count(packed.min(total)), total: count(total) }))
        })
        .await
    }

    /// Returns the first and the last seq of each damaged block that this process has found.
    pub fn damaged_blocks(&self) -> Vec<(u64, u64)> {
        let seq = |seq| u64::try_from(seq).unwrap_or(0);
        self.block_cache.damaged().into_iter().map(|(first, last)| (seq(first), seq(last))).collect()
    }

    /// Gives free pages back to the file system, in small steps. Some stay for the next events.
    pub(super) async fn give_pages_back(&self) -> Result<(), StoreError> {
        self.give_pages_back_to(MAX_FREE_PAGES).await
    }

    /// Gives free pages back until only these are left.
    async fn give_pages_back_to(&self, most: i64) -> Result<(), StoreError> {
        loop {
            let free = self.read(|connection| {
                let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
                Ok(if pragma("auto_vacuum")? == INCREMENTAL { pragma("freelist_count")? } else { 0 })
            });
            if free.await? <= most || self.running_copies.are_any() {
                return Ok(());
            }
            self.transact_later(usize::try_from(PAGES_AT_ONCE).unwrap_or(0), |connection| {
                let mut vacuum =
                    connection.prepare_cached(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"))?;
                let mut steps = vacuum.query([])?;
                // Each page costs a search of the list of free pages, which is long when there are gigabytes of them.
                // What was done so far stays if the rest is left for the next step.
                let start = Instant::now();
                while steps.next()?.is_some() && start.elapsed() < VACUUM_STEP {}
                Ok(())
            })
            .await?;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn meta(connection: &Connection, key: &str) -> Result<Option<i64>, StoreError> {
    let mut select = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    Ok(select.query_row([key], |row| row.get(0)).optional()?)
}

/// An event on its way into a block.
struct PackedEvent {
    session: i64,
    seq: i64,
    at: i64,
    kind: Box<str>,
    data: Box<str>,
}

/// A part of the log with its sources and the blocks that replace them.
struct PackWindow {
    /// The mark before, by which the transaction knows that nobody else has packed.
    start: i64,
    /// The seq after its last event.
    end: i64,
    rows: usize,
    sources: Vec<(BlockHeader, Vec<SessionSpan>)>,
    frames: Vec<EncodedBlock>,
}

impl PackWindow {
    /// Reads and compresses the next window; `None` if it is too small or must wait.
    fn read(
        connection: &Connection,
        cache: &BlockCache,
        min_events: usize,
    ) -> Result<Option<Self>, StoreError> {
        // The charts count the events of an old log by its rows.
        if meta(connection, "events_counted_from")?.is_some() {
            return Ok(None);
        }
        let start = meta(connection, "packed_to")?.unwrap_or(1);
        let mut window = WindowReader::new(start);
        let is_complete = window.collect(connection, cache)?;
        // The rest of an old log is packed however small it is, up to its end, so that the migration ends.
        let migrates_to = meta(connection, "migrated_from")?.filter(|_| !is_complete);
        window.end = window.end.max(migrates_to.unwrap_or(start));
        let is_small = !is_complete && window.events.len() < min_events;
        if window.end == start || (is_small && migrates_to.is_none()) {
            return Ok(None);
        }
        let WindowReader { end, events, rows, sources, bytes, .. } = window;
        let frames = compress(events, bytes)?;
        Ok(Some(Self { start, end, rows, sources, frames }))
    }

    fn cost(&self) -> usize {
        self.rows + self.frames.iter().map(|frame| frame.body.len() / 1024 + frame.spans.len()).sum::<usize>()
    }

    /// Replaces the sources by the blocks.
    fn replace(&self, connection: &Connection) -> Result<(), StoreError> {
        let changed = || StoreError::Conflict("a window of the log".to_owned());
        if meta(connection, "packed_to")? != Some(self.start) {
            return Err(changed());
        }
        let deleted = connection.prepare_cached(&delete_sql())?.execute([self.start, self.end])?;
        if deleted != self.rows {
            return Err(changed());
        }
        for (header, spans) in &self.sources {
            if !blocks::delete(connection, header, spans.iter().copied())? {
                return Err(changed());
            }
        }
        intercom_failpoint::visit("pack.deleted");
        for frame in &self.frames {
            blocks::insert(connection, frame)?;
        }
        connection
            .prepare_cached("UPDATE meta SET value = ?1 WHERE key = 'packed_to'")?
            .execute([self.end])?;
        connection
            .prepare_cached("DELETE FROM meta WHERE key = 'migrated_from' AND value <= ?1")?
            .execute([self.end])?;
        intercom_failpoint::visit("pack.stored");
        Ok(())
    }
}

/// Returns the condition of the rows that are packed. Those of removed sessions are only waiting to be deleted.
fn packable() -> String {
    // The plus keeps SQLite from looking the events up by session.
    format!("kind IN ({}) AND +session IN (SELECT key FROM sessions)", bulk_kinds())
}

fn delete_sql() -> String {
    format!("DELETE FROM events WHERE seq >= ?1 AND seq < ?2 AND {}", packable())
}

/// Collects the events of a window from rows and blocks.
struct WindowReader {
    /// The seq of its first event.
    first: Option<i64>,
    end: i64,
    events: Vec<PackedEvent>,
    bytes: usize,
    rows: usize,
    sources: Vec<(BlockHeader, Vec<SessionSpan>)>,
}

impl WindowReader {
    fn new(end: i64) -> Self {
        Self { first: None, end, events: Vec::new(), bytes: 0, rows: 0, sources: Vec::new() }
    }

    /// Reports whether events up to this seq belong to the window. The first row or block always does: a block spans no
    /// more, unless its header is damaged, and then it is passed like any damaged block.
    fn has_room(&self, last: i64) -> bool {
        self.first.is_none_or(|first| last - first < MAX_SPAN && self.bytes < MAX_WINDOW_BYTES)
    }

    fn push(&mut self, event: PackedEvent) {
        self.bytes += event.data.len();
        self.events.push(event);
    }

    /// Reads rows and blocks in order of seq: they never overlap, because a write stores all its bulk events either as
    /// rows or as blocks. Returns whether the window is complete.
    fn collect(&mut self, connection: &Connection, cache: &BlockCache) -> Result<bool, StoreError> {
        let rows = format!(
            "SELECT seq, session, at, kind, data FROM events WHERE seq >= ?1 AND {} ORDER BY seq",
            packable()
        );
        let blocks = format!("SELECT {HEADER} FROM blocks b WHERE b.first >= ?1 ORDER BY b.first");
        let (mut rows, mut blocks) = (connection.prepare_cached(&rows)?, connection.prepare_cached(&blocks)?);
        let (mut rows, mut blocks) = (rows.query([self.end])?, blocks.query([self.end])?);
        let mut block = next_header(&mut blocks)?;
        loop {
            let row = rows.next()?;
            let seq = match row {
                Some(row) => row.get(0)?,
                None => i64::MAX,
            };
            while let Some(header) = block.filter(|header| header.first < seq) {
                if !self.has_room(header.last) || !self.take_block(connection, cache, &header)? {
                    return Ok(true);
                }
                block = next_header(&mut blocks)?;
            }
            let Some(row) = row else { return Ok(false) };
            if !self.has_room(seq) {
                return Ok(true);
            }
            self.first.get_or_insert(seq);
            self.rows += 1;
            self.end = seq + 1;
            self.push(PackedEvent {
                session: row.get(1)?,
                seq,
                at: row.get(2)?,
                kind: row.get(3)?,
                data: row.get(4)?,
            });
        }
    }

    /// Adds the events of a block. A damaged one is left alone; it ends the window. `false` at the end.
    fn take_block(
        &mut self,
        connection: &Connection,
        cache: &BlockCache,
        header: &BlockHeader,
    ) -> Result<bool, StoreError> {
        let is_first = self.events.is_empty();
        let Some(block) = blocks::decode(connection, cache, header)? else {
            if is_first {
                // Not after its last seq, which may be part of the damage: nothing else overlaps a block.
                self.end = header.first + 1;
            }
            return Ok(false);
        };
        for event in block.events() {
            let (kind, data) = (block.kind(event).into(), block.data(event).into());
            self.push(PackedEvent { session: event.session, seq: event.seq, at: event.at, kind, data });
        }
        self.first.get_or_insert(header.first);
        self.sources.push((*header, block.spans().collect()));
        self.end = header.last + 1;
        Ok(true)
    }
}

fn next_header(blocks: &mut rusqlite::Rows<'_>) -> Result<Option<BlockHeader>, StoreError> {
    Ok(blocks.next()?.map(blocks::header).transpose()?)
}

fn compress(mut events: Vec<PackedEvent>, bytes: usize) -> Result<Vec<EncodedBlock>, StoreError> {
    events.sort_unstable_by_key(|event| (event.session, event.seq));
    let frame_bytes = FRAME_BYTES.max(bytes / MAX_FRAMES + 1);
    let (mut frames, mut builder) = (Vec::new(), BlockBuilder::default());
    for event in &events {
        builder.push(event.session, event.seq, event.at, &event.kind, &event.data);
        if builder.bytes() >= frame_bytes {
            frames.extend(builder.take(BlockCodec::Zstd)?);
        }
    }
    frames.extend(builder.take(BlockCodec::Zstd)?);
    Ok(frames)
}
