//! The rows of blocks and of the index that finds those of a session. Both change in the same transaction.

use std::sync::Arc;

use rusqlite::{Connection, Row, params};

use super::StoreError;
use super::block::{Block, BlockBuilder, BlockCodec, BlockHeader, EncodedBlock, MAX_SPAN, SessionSpan};
use super::block_cache::BlockCache;

/// The size of the data at which a plain block is complete: reading one event unpacks a whole block.
const MAX_PLAIN_BYTES: usize = 1 << 20;
/// The columns that [`header`] reads, of a table `b`.
pub(super) const HEADER: &str = "b.first, b.last, b.session, b.events, b.codec, b.checksum";

/// Reads the header of a block from the first columns of a row.
pub(super) fn header(row: &Row<'_>) -> Result<BlockHeader, rusqlite::Error> {
    Ok(BlockHeader {
        first: row.get(0)?,
        last: row.get(1)?,
        session: row.get(2)?,
        events: row.get(3)?,
        codec: row.get(4)?,
        checksum: row.get(5)?,
    })
}

pub(super) fn insert(connection: &Connection, block: &EncodedBlock) -> Result<(), StoreError> {
    let BlockHeader { first, last, session, events, codec, checksum } = block.header;
    connection
        .prepare_cached("INSERT INTO blocks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
        .execute(params![first, last, session, events, codec, checksum, block.body])?;
    let mut index = connection.prepare_cached("INSERT INTO block_sessions VALUES (?1, ?2, ?3, ?4)")?;
    for span in &block.spans {
        index.execute(params![span.session, span.first, span.last, first])?;
    }
    Ok(())
}

/// Deletes a block. `false` if it is not there any more, or another one is in its place. If its pages are damaged, its row
/// stays and only the index forgets it: otherwise one bad page would stop the removal of every session.
pub(super) fn delete(
    connection: &Connection,
    header: &BlockHeader,
    spans: impl Iterator<Item = SessionSpan>,
) -> Result<bool, StoreError> {
    let deleted = connection
        .prepare_cached("DELETE FROM blocks WHERE first = ?1 AND checksum = ?2")?
        .execute([header.first, header.checksum]);
    let deleted = match deleted {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => 1,
        deleted => deleted?,
    };
    let mut index =
        connection.prepare_cached("DELETE FROM block_sessions WHERE session = ?1 AND first = ?2")?;
    for span in spans.filter(|_| deleted > 0) {
        index.execute([span.session, span.first])?;
    }
    Ok(deleted > 0)
}

/// Returns a decoded block that readers share; `None` if it is damaged.
pub(super) fn open(
    connection: &Connection,
    cache: &BlockCache,
    header: &BlockHeader,
) -> Result<Option<Arc<Block>>, StoreError> {
    if let Some(block) = cache.get(header) {
        return Ok(Some(block));
    }
    let Some(block) = decode(connection, cache, header)? else { return Ok(None) };
    let block = Arc::new(block);
    cache.insert(header, &block);
    Ok(Some(block))
}

/// Reads and decodes a block; `None` if it is damaged, which is recorded.
pub(super) fn decode(
    connection: &Connection,
    cache: &BlockCache,
    header: &BlockHeader,
) -> Result<Option<Block>, StoreError> {
    let mut select = connection.prepare_cached("SELECT body FROM blocks WHERE first = ?1")?;
    let decoded =
        select.query_row([header.first], |row| Ok(row.get_ref(0)?.as_blob().map(|body| header.decode(body))));
    match decoded {
        Ok(Ok(Ok(block))) => Ok(Some(block)),
        // A value that is no blob, or a page that SQLite cannot read, is damage, too.
        Ok(_)
        | Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error { code: rusqlite::ErrorCode::DatabaseCorrupt, .. },
            _,
        )) => {
            cache.note_damage(header);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The blocks of one write: one session's bulk events, in as many blocks as necessary.
pub(super) struct PlainBlocks<'a> {
    connection: &'a Connection,
    session: i64,
    first: Option<i64>,
    builder: BlockBuilder,
}

impl<'a> PlainBlocks<'a> {
    pub(super) fn new(connection: &'a Connection, session: i64) -> Self {
        Self { connection, session, first: None, builder: BlockBuilder::default() }
    }

    pub(super) fn push(&mut self, seq: i64, at: i64, kind: &str, data: &str) -> Result<(), StoreError> {
        let first = *self.first.get_or_insert(seq);
        if seq - first >= MAX_SPAN || self.builder.bytes() >= MAX_PLAIN_BYTES {
            self.finish()?;
            self.first = Some(seq);
        }
        self.builder.push(self.session, seq, at, kind, data);
        Ok(())
    }

    /// Stores the events since the last complete block.
    pub(super) fn finish(&mut self) -> Result<(), StoreError> {
        match self.builder.take(BlockCodec::Plain)? {
            Some(block) => insert(self.connection, &block),
            None => Ok(()),
        }
    }
}
