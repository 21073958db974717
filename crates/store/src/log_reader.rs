//! Reads pages of the log: one merge of rows and blocks in order of seq, of all sessions or of one, in either
//! direction.
//!
//! A block is unpacked when one of its events may be the next one, and not before. Events of removed sessions are left
//! out from the moment of the removal, although they are deleted later.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Rows, Statement};

use super::StoreError;
use super::block::{Block, BlockEvent, BlockHeader, MAX_SPAN};
use super::block_cache::BlockCache;
use super::blocks::{self, HEADER};
use super::read::text_id;
use intercom_types::{Json, LoggedEvent, SessionId, Time};

/// The maximum size of a page of events: a thousand huge lines must not fill the memory.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// A part of the log, in the order in which it is read. Sessions are given by their keys, bounds are exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogRange {
    After { after: i64 },
    SessionAfter { session: i64, after: i64 },
    SessionBefore { session: i64, before: i64 },
}

impl LogRange {
    fn session(self) -> Option<i64> {
        match self {
            Self::After { .. } => None,
            Self::SessionAfter { session, .. } | Self::SessionBefore { session, .. } => Some(session),
        }
    }

    /// Reports whether one seq is read before another.
    fn comes_first(self, one: i64, other: i64) -> bool {
        match self {
            Self::After { .. } | Self::SessionAfter { .. } => one < other,
            Self::SessionBefore { .. } => one > other,
        }
    }

    /// Returns the query of the rows, and that of the blocks that may have events of the range, with the seq of the
    /// first one that each may have.
    fn queries(self) -> (&'static str, String) {
        match self {
            Self::After { .. } => (
                "SELECT seq, session, at, kind, data FROM events WHERE seq > ?1 ORDER BY seq",
                format!(
                    "SELECT {HEADER}, b.first FROM blocks b
                     WHERE b.first > ?1 - {MAX_SPAN} AND b.last > ?1 ORDER BY b.first"
                ),
            ),
            Self::SessionAfter { .. } => (
                "SELECT seq, session, at, kind, data FROM events WHERE session = ?2 AND seq > ?1 ORDER BY seq",
                format!(
                    "SELECT {HEADER}, s.first FROM block_sessions s CROSS JOIN blocks b ON b.first = s.block
                     WHERE s.session = ?2 AND s.first > ?1 - {MAX_SPAN} AND s.last > ?1 ORDER BY s.first"
                ),
            ),
            Self::SessionBefore { .. } => (
                "SELECT seq, session, at, kind, data FROM events WHERE session = ?2 AND seq < ?1 ORDER BY seq DESC",
                format!(
                    "SELECT {HEADER}, s.last FROM block_sessions s CROSS JOIN blocks b ON b.first = s.block
                     WHERE s.session = ?2 AND s.first < ?1 ORDER BY s.first DESC"
                ),
            ),
        }
    }

    fn query<'s>(self, statement: &'s mut Statement<'_>) -> Result<Rows<'s>, rusqlite::Error> {
        match self {
            Self::After { after } => statement.query([after]),
            Self::SessionAfter { session, after: seq } | Self::SessionBefore { session, before: seq } => {
                statement.query([seq, session])
            }
        }
    }
}

/// The ids of sessions by their keys, looked up once per page; `None` for removed sessions.
pub(super) struct SessionIds<'a> {
    connection: &'a Connection,
    known: HashMap<i64, Option<SessionId>>,
    newest: Option<(i64, Option<SessionId>)>,
}

impl<'a> SessionIds<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self { connection, known: HashMap::new(), newest: None }
    }

    pub(super) fn get(&mut self, key: i64) -> Result<Option<SessionId>, StoreError> {
        if let Some((_, id)) = self.newest.filter(|(newest, _)| *newest == key) {
            return Ok(id); // nearly always: a session writes many events at once
        }
        let id = if let Some(id) = self.known.get(&key) {
            *id
        } else {
            let mut select = self.connection.prepare_cached("SELECT id FROM sessions WHERE key = ?1")?;
            let id = select.query_row([key], |row| Ok(text_id(row, 0))).optional()?.transpose()?;
            self.known.insert(key, id);
            id
        };
        self.newest = Some((key, id));
        Ok(id)
    }
}

/// A page of events that is being collected.
#[derive(Default)]
pub(super) struct Page {
    pub(super) events: Vec<LoggedEvent>,
    bytes: usize,
    limit: usize,
}

impl Page {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Adds an event, unless the page is full, by count or by size; at least one fits. Returns whether it was added.
    pub(super) fn push(&mut self, seq: i64, session: SessionId, at: i64, kind: &str, data: &str) -> bool {
        self.bytes += data.len();
        if self.is_full() || self.bytes > MAX_PAGE_BYTES && !self.events.is_empty() {
            return false;
        }
        self.events.push(LoggedEvent {
            seq: u64::try_from(seq).unwrap_or(0),
            session,
            at: Time::from_millis(at),
            kind: kind.to_owned(),
            data: Json::trusted(data),
        });
        true
    }

    fn is_full(&self) -> bool {
        self.events.len() >= self.limit
    }
}

/// The unread events of an open block.
struct BlockCursor {
    block: Arc<Block>,
    places: Range<usize>,
}

impl BlockCursor {
    fn open(block: Arc<Block>, range: LogRange) -> Self {
        let mut places = block.places(range.session());
        let (mut low, mut high) = (places.start, places.end);
        // The first event after `after`, or not before `before`.
        while low < high {
            let middle = usize::midpoint(low, high);
            let seq = block.at(middle, range.session()).map_or(i64::MAX, |event| event.seq);
            let is_left = match range {
                LogRange::After { after } | LogRange::SessionAfter { after, .. } => seq <= after,
                LogRange::SessionBefore { before, .. } => seq < before,
            };
            if is_left {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        match range {
            LogRange::After { .. } | LogRange::SessionAfter { .. } => places.start = low,
            LogRange::SessionBefore { .. } => places.end = low,
        }
        Self { block, places }
    }

    fn peek(&self, range: LogRange) -> Option<&BlockEvent> {
        if self.places.is_empty() {
            return None;
        }
        let place = match range {
            LogRange::After { .. } | LogRange::SessionAfter { .. } => self.places.start,
            LogRange::SessionBefore { .. } => self.places.end - 1,
        };
        self.block.at(place, range.session())
    }

    fn advance(&mut self, range: LogRange) {
        match range {
            LogRange::After { .. } | LogRange::SessionAfter { .. } => self.places.start += 1,
            LogRange::SessionBefore { .. } => self.places.end -= 1,
        }
    }
}

/// Reads a page of events, in the order of the range.
pub(super) fn read_page(
    connection: &Connection,
    cache: &BlockCache,
    range: LogRange,
    limit: usize,
) -> Result<Vec<LoggedEvent>, StoreError> {
    let (rows, blocks) = range.queries();
    let (mut rows, mut blocks) = (connection.prepare_cached(rows)?, connection.prepare_cached(&blocks)?);
    let (rows, headers) = (range.query(&mut rows)?, range.query(&mut blocks)?);
    let page = Page::new(limit);
    let ids = SessionIds::new(connection);
    let mut merge = Merge { connection, cache, range, headers, open: Vec::new(), page, ids };
    merge.run(rows)?;
    Ok(merge.page.events)
}

/// The merge of rows and blocks.
struct Merge<'a> {
    connection: &'a Connection,
    cache: &'a BlockCache,
    range: LogRange,
    headers: Rows<'a>,
    open: Vec<BlockCursor>,
    page: Page,
    ids: SessionIds<'a>,
}

impl Merge<'_> {
    fn run(&mut self, mut rows: Rows<'_>) -> Result<(), StoreError> {
        let mut unopened = self.next_header()?;
        while !self.page.is_full() {
            let Some(row) = rows.next()? else { break };
            let seq: i64 = row.get(0)?;
            if !self.read_blocks(&mut unopened, Some(seq))? {
                return Ok(());
            }
            if self.page.is_full() {
                return Ok(());
            }
            if let Some(id) = self.ids.get(row.get(1)?)? {
                let (kind, data) = (text(row, 3)?, text(row, 4)?);
                if !self.page.push(seq, id, row.get(2)?, kind, data) {
                    return Ok(());
                }
            }
        }
        self.read_blocks(&mut unopened, None)?;
        Ok(())
    }

    fn next_header(&mut self) -> Result<Option<(BlockHeader, i64)>, StoreError> {
        while let Some(row) = self.headers.next()? {
            let (header, edge) = (blocks::header(row)?, row.get(6)?);
            // A block of a removed session need not be unpacked.
            let is_removed = match header.session {
                Some(key) => self.ids.get(key)?.is_none(),
                None => false,
            };
            if !is_removed {
                return Ok(Some((header, edge)));
            }
        }
        Ok(None)
    }

    /// Adds the events of blocks that come before the next row, or all. `false` if the page is full before.
    fn read_blocks(
        &mut self,
        unopened: &mut Option<(BlockHeader, i64)>,
        row: Option<i64>,
    ) -> Result<bool, StoreError> {
        let range = self.range;
        loop {
            let nearest = self.nearest();
            let next = match (nearest, row) {
                (Some((_, seq)), Some(row)) if range.comes_first(row, seq) => row,
                (Some((_, seq)), _) => seq,
                (None, Some(row)) => row,
                (None, None) => match *unopened {
                    Some((_, edge)) => edge,
                    None => return Ok(true),
                },
            };
            if let Some((header, edge)) = *unopened
                && !range.comes_first(next, edge)
            {
                if self.page.is_full() {
                    return Ok(false); // a full page opens no further block
                }
                if let Some(block) = blocks::open(self.connection, self.cache, &header)? {
                    let cursor = BlockCursor::open(block, range);
                    self.open.extend((!cursor.places.is_empty()).then_some(cursor));
                }
                *unopened = self.next_header()?;
                continue;
            }
            let Some((at, seq)) = nearest else { return Ok(true) };
            if row.is_some_and(|row| range.comes_first(row, seq)) {
                return Ok(true);
            }
            if !self.take(at)? {
                return Ok(false);
            }
        }
    }

    /// Finds the open block with the next event.
    fn nearest(&self) -> Option<(usize, i64)> {
        let mut nearest: Option<(usize, i64)> = None;
        for (at, cursor) in self.open.iter().enumerate() {
            let Some(event) = cursor.peek(self.range) else { continue };
            if nearest.is_none_or(|(_, seq)| self.range.comes_first(event.seq, seq)) {
                nearest = Some((at, event.seq));
            }
        }
        nearest
    }

    /// Adds the next event of an open block, and closes the block after its last one.
    fn take(&mut self, at: usize) -> Result<bool, StoreError> {
        let range = self.range;
        let Some(cursor) = self.open.get_mut(at) else { return Ok(true) };
        if let Some(event) = cursor.peek(range).copied()
            && let Some(id) = self.ids.get(event.session)?
        {
            let (kind, data) = (cursor.block.kind(&event), cursor.block.data(&event));
            if !self.page.push(event.seq, id, event.at, kind, data) {
                return Ok(false);
            }
        }
        cursor.advance(range);
        if cursor.places.is_empty() {
            self.open.swap_remove(at);
        }
        Ok(true)
    }
}

/// Reads a text column without copying it.
pub(super) fn text<'a>(row: &'a rusqlite::Row<'_>, column: usize) -> Result<&'a str, StoreError> {
    row.get_ref(column)?.as_str().map_err(|_| StoreError::Corrupt { what: "an event" })
}
