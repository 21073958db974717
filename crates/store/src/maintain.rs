//! Retention.

#[cfg(test)]
mod tests;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use super::block::{BlockBuilder, BlockCodec, BlockHeader, EncodedBlock, SessionSpan};
use super::block_cache::BlockCache;
use super::blocks::{self, HEADER};
use super::log_reader::SessionIds;
use super::read::rows;
use super::{Store, StoreError, audit, stats};
use intercom_types::{Json, NewAuditRow, Phase, SessionId, Time};

/// The number of rows that one transaction deletes: small enough that other writes do not wait long.
const CHUNK: usize = 2000;
/// The number of blocks that one transaction deletes, and their size: each of their pages is written.
const BLOCKS_AT_ONCE: usize = 64;
const BLOCK_BYTES_AT_ONCE: i64 = 2 << 20;
/// The number of blocks of several sessions that are rewritten together, and the cost of one in rows.
const SHARED_BLOCKS_AT_ONCE: i64 = 8;
const COST_OF_A_BLOCK: usize = 64;
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// The numbers of sessions and events that retention removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepResult {
    pub sessions: usize,
    pub events: usize,
}

impl Store {
    /// Removes ended sessions older than `days` and, oldest first, as many as necessary to keep at most `max_bytes` of
    /// events (0: no limit). For readers, a session disappears completely and at once; its events are deleted in
    /// pieces.
    pub async fn sweep(&self, days: u64, max_bytes: u64, now: Time) -> Result<SweepResult, StoreError> {
        let sessions =
            self.transact(move |connection| discard_expired(connection, days, max_bytes, now)).await?;
        let events = self.empty_trash().await?;
        self.give_pages_back().await?;
        Ok(SweepResult { sessions, events })
    }

    /// Removes one ended session in the same way and records it in the audit. `false` if it has not ended.
    pub async fn remove(&self, id: SessionId, by: String, now: Time) -> Result<bool, StoreError> {
        let removed = self.transact(move |connection| remove(connection, id, by, now)).await?;
        self.empty_trash().await?; // if this is cancelled, the next sweep deletes the rest
        Ok(removed)
    }

    async fn empty_trash(&self) -> Result<usize, StoreError> {
        // Usually there is none, and each of the steps below takes the writer and counts towards the next checkpoint.
        let has_trash = "SELECT EXISTS (SELECT 1 FROM trash)";
        if !self.read(|connection| Ok(connection.query_row(has_trash, [], |row| row.get(0))?)).await? {
            return Ok(0);
        }
        let mut events = 0;
        loop {
            let deleted = self.transact_later(CHUNK, delete_rows).await?;
            let deleted =
                deleted + self.transact_later(cost_of_bytes(BLOCK_BYTES_AT_ONCE), delete_blocks).await?;
            let deleted = deleted + self.rewrite_shared_blocks().await?;
            events += deleted;
            // A session may have been added meanwhile: only those without events are done.
            if deleted == 0 && self.transact(forget_emptied).await? {
                self.forget_deleted_damage().await?;
                return Ok(events);
            }
        }
    }

    /// Rewrites some blocks of several sessions without the removed ones. They are read and compressed outside of the
    /// writer. Returns the number of deleted events.
    async fn rewrite_shared_blocks(&self) -> Result<usize, StoreError> {
        let cache = self.block_cache.clone();
        let reduced = self.read_log(move |connection| reduce_blocks(connection, &cache)).await?;
        if reduced.is_empty() {
            return Ok(0);
        }
        let bytes: i64 = reduced.iter().map(|block| block.bytes).sum();
        let cost = reduced.len() * COST_OF_A_BLOCK + cost_of_bytes(bytes);
        self.transact_later(cost, move |connection| {
            let mut deleted = 0;
            for block in &reduced {
                deleted += block.store(connection)?;
            }
            Ok(deleted)
        })
        .await
    }

    /// Forgets the damage of blocks that are deleted.
    async fn forget_deleted_damage(&self) -> Result<(), StoreError> {
        let cache = self.block_cache.clone();
        if cache.damaged().is_empty() {
            return Ok(());
        }
        self.read(move |connection| {
            let mut select = connection.prepare_cached("SELECT 1 FROM blocks WHERE first = ?1")?;
            for (first, _) in cache.damaged() {
                if !select.exists([first])? {
                    cache.forget_damage(first);
                }
            }
            Ok(())
        })
        .await
    }
}

/// A block of several sessions, some of which were removed.
struct ReducedBlock {
    header: BlockHeader,
    /// The size of its body before.
    bytes: i64,
    /// The sessions in it before, and the block without the removed ones; `None` if it is damaged.
    decoded: Option<(Vec<SessionSpan>, Option<EncodedBlock>)>,
}

impl ReducedBlock {
    /// Replaces the block, if it is still there. Returns the number of deleted events.
    fn store(&self, connection: &Connection) -> Result<usize, StoreError> {
        let Some((spans, reduced)) = &self.decoded else {
            // Its other events cannot be read, so it stays as long as they may be of a session that exists.
            connection.execute(
                "DELETE FROM block_sessions WHERE block = ?1 AND session IN (SELECT session FROM trash)",
                [self.header.first],
            )?;
            return Ok(connection.execute(
                "DELETE FROM blocks WHERE first = ?1 AND first NOT IN (SELECT block FROM block_sessions)",
                [self.header.first],
            )?);
        };
        if !blocks::delete(connection, &self.header, spans.iter().copied())? {
            return Ok(0);
        }
        let mut left = 0;
        if let Some(reduced) = reduced {
            blocks::insert(connection, reduced)?;
            left = reduced.header.events;
        }
        Ok(usize::try_from(self.header.events - left).unwrap_or(0))
    }
}

/// Reads some blocks of several sessions that have events of removed ones, and makes the blocks that replace them.
fn reduce_blocks(connection: &Connection, cache: &BlockCache) -> Result<Vec<ReducedBlock>, StoreError> {
    let sql = format!(
        "SELECT DISTINCT {HEADER}, length(b.body) FROM trash t CROSS JOIN block_sessions s ON s.session = t.session
         CROSS JOIN blocks b ON b.first = s.block WHERE b.session IS NULL LIMIT ?1"
    );
    let found =
        rows(connection, &sql, [SHARED_BLOCKS_AT_ONCE], |row| Ok((blocks::header(row)?, row.get(6)?)))?;
    let mut ids = SessionIds::new(connection);
    let (mut reduced, mut read) = (Vec::new(), 0);
    for (header, bytes) in found {
        // A block may consist of one huge line, so their number bounds neither the memory nor the time.
        read += bytes;
        if read > BLOCK_BYTES_AT_ONCE && !reduced.is_empty() {
            break;
        }
        let mut decoded = None;
        if let Some(block) = blocks::decode(connection, cache, &header)? {
            let mut builder = BlockBuilder::default();
            for event in block.events() {
                if ids.get(event.session)?.is_some() {
                    builder.push(event.session, event.seq, event.at, block.kind(event), block.data(event));
                }
            }
            decoded = Some((block.spans().collect(), builder.take(BlockCodec::Zstd)?));
        }
        reduced.push(ReducedBlock { header, bytes, decoded });
    }
    Ok(reduced)
}

/// Returns the cost of bytes in the unit of rows, by which the writer bounds its groups.
fn cost_of_bytes(bytes: i64) -> usize {
    usize::try_from(bytes / 1024).unwrap_or(usize::MAX)
}

fn discard_expired(
    connection: &Connection,
    days: u64,
    max_bytes: u64,
    now: Time,
) -> Result<usize, StoreError> {
    let mut doomed: Vec<i64> = Vec::new();
    let mut total: i64 =
        connection.query_row("SELECT coalesce(sum(bytes), 0) FROM sessions", [], |row| row.get(0))?;
    let limit = if max_bytes == 0 { i64::MAX } else { i64::try_from(max_bytes).unwrap_or(i64::MAX) };
    let age = i64::try_from(days).unwrap_or(i64::MAX).saturating_mul(DAY_MILLIS);
    let oldest = if days == 0 { i64::MIN } else { now.millis().saturating_sub(age) };
    let mut statement = connection.prepare(
        "SELECT key, ended_at, bytes FROM sessions WHERE ended_at IS NOT NULL AND phase = 'ended' ORDER BY ended_at, key",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (key, ended_at, bytes): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if ended_at >= oldest && total <= limit {
            break;
        }
        total -= bytes;
        doomed.push(key);
    }
    for key in &doomed {
        let id: String =
            connection.query_row("SELECT id FROM sessions WHERE key = ?1", [key], |row| row.get(0))?;
        discard(connection, *key, &id)?;
    }
    Ok(doomed.len())
}

fn discard(connection: &Connection, key: i64, id: &str) -> Result<(), StoreError> {
    connection.execute("INSERT INTO trash VALUES (?1)", [key])?;
    for table in ["clearances", "questions", "prompts", "outbox"] {
        connection.execute(&format!("DELETE FROM {table} WHERE session = ?1"), [key])?;
    }
    stats::forget(connection, key)?;
    super::slack::forget(connection, id)?;
    connection.execute("DELETE FROM sessions WHERE key = ?1", [key])?;
    Ok(())
}

fn remove(connection: &Connection, id: SessionId, by: String, now: Time) -> Result<bool, StoreError> {
    let typed = id.to_string();
    let found = connection
        .prepare_cached("SELECT key, phase, name, agent, workspace FROM sessions WHERE id = ?1")?
        .query_row([&typed], |row| {
            let about = json!({
                "name": row.get::<_, Option<String>>(2)?, "agent": row.get::<_, Option<String>>(3)?,
                "workspace": row.get::<_, String>(4)?,
            });
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, about))
        })
        .optional()?;
    let Some((key, phase, about)) = found else { return Ok(true) }; // another caller has removed it
    if phase != Phase::Ended.as_str() {
        return Ok(false);
    }
    discard(connection, key, &typed)?;
    let (action, data) = ("session.deleted".to_owned(), Json::of(&about));
    audit::append(connection, &NewAuditRow { at: now, action, by, session: Some(id), data })?;
    Ok(true)
}

fn delete_rows(connection: &Connection) -> Result<usize, StoreError> {
    Ok(connection.execute(
        "DELETE FROM events WHERE seq IN (
             SELECT e.seq FROM trash t JOIN events e ON e.session = t.session LIMIT ?1)",
        params![i64::try_from(CHUNK).unwrap_or(i64::MAX)],
    )?)
}

/// Deletes blocks that have only events of removed sessions. Returns the number of events.
fn delete_blocks(connection: &Connection) -> Result<usize, StoreError> {
    let sql = format!(
        "SELECT {HEADER}, length(b.body) FROM trash t CROSS JOIN block_sessions s ON s.session = t.session
         CROSS JOIN blocks b ON b.first = s.block WHERE b.session IS NOT NULL LIMIT ?1"
    );
    let most = i64::try_from(BLOCKS_AT_ONCE).unwrap_or(i64::MAX);
    let found = rows(connection, &sql, [most], |row| Ok((blocks::header(row)?, row.get::<_, i64>(6)?)))?;
    let (mut events, mut bytes) = (0, 0);
    for (header, size) in found {
        bytes += size;
        if bytes > BLOCK_BYTES_AT_ONCE && events > 0 {
            break;
        }
        let BlockHeader { first, last, .. } = header;
        let span = header.session.map(|session| SessionSpan { session, first, last });
        blocks::delete(connection, &header, span.into_iter())?;
        events += usize::try_from(header.events).unwrap_or(0).max(1);
    }
    Ok(events)
}

/// Ends the removal of sessions without remaining events. Returns whether that is all.
fn forget_emptied(connection: &Connection) -> Result<bool, StoreError> {
    // Of blocks that were damaged so that they did not name their session.
    connection.execute(
        "DELETE FROM block_sessions WHERE session IN (SELECT session FROM trash)
             AND block NOT IN (SELECT first FROM blocks)",
        [],
    )?;
    connection.execute(
        "DELETE FROM trash WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.session = trash.session)
             AND NOT EXISTS (SELECT 1 FROM block_sessions s WHERE s.session = trash.session)",
        [],
    )?;
    let left: i64 = connection.query_row("SELECT count(*) FROM trash", [], |row| row.get(0))?;
    Ok(left == 0)
}
