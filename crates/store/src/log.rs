//! Pages of the log, and the events of some kinds, which are found without unpacking any block.

use std::sync::Arc;

use rusqlite::{Connection, params};

use super::log_reader::{LogRange, Page, read_page, text};
use super::read::{session_key, signed, text_id};
use super::{Store, StoreError};
use intercom_types::{EventKind, LoggedEvent, SessionId};

/// The log was truncated: the oldest remaining seq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCutoff {
    pub oldest: u64,
}

impl Store {
    /// Returns events after `after`, oldest first; an inner `Err(LogCutoff)` if some of them were removed.
    pub async fn events(
        &self,
        after: Option<u64>,
        session: Option<SessionId>,
        limit: usize,
    ) -> Result<Result<Vec<LoggedEvent>, LogCutoff>, StoreError> {
        let cache = Arc::clone(&self.block_cache);
        self.read_log(move |connection| {
            let from = i64::try_from(after.unwrap_or(0)).unwrap_or(i64::MAX);
            let range = match session {
                // A session's events are removed together with the session: those of an existing session are complete.
                Some(session) => match session_key(connection, session)? {
                    Some(session) => LogRange::SessionAfter { session, after: from },
                    None => return Ok(Ok(Vec::new())),
                },
                None => match cutoff(connection, from)? {
                    Some(cutoff) if after.is_some() => return Ok(Err(cutoff)),
                    _ => LogRange::After { after: from },
                },
            };
            Ok(Ok(read_page(connection, &cache, range, limit)?))
        })
        .await
    }

    /// Returns events of all kinds except the bulk ones after `after`, oldest first; an inner `Err(LogCutoff)` if some of them were
    /// removed.
    pub async fn landmarks(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Result<Vec<LoggedEvent>, LogCutoff>, StoreError> {
        self.read(move |connection| {
            let from = i64::try_from(after).unwrap_or(i64::MAX);
            if let Some(cutoff) = cutoff(connection, from)? {
                return Ok(Err(cutoff));
            }
            let sql = format!(
                "SELECT e.seq, s.id, e.at, e.kind, e.data FROM events e CROSS JOIN sessions s ON s.key = e.session
                 WHERE e.seq > ?1 AND e.kind NOT IN ({}) ORDER BY e.seq LIMIT ?2",
                bulk_kinds()
            );
            Ok(Ok(bounded(connection, &sql, params![from, signed(limit)])?))
        })
        .await
    }

    /// Returns a session's events of these kinds up to this one, oldest first: the last `limit` of them.
    pub async fn events_of(
        &self,
        session: SessionId,
        kinds: &'static [EventKind],
        up_to: u64,
        limit: usize,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        self.read_log(move |connection| {
            let sql =
                "SELECT e.seq, s.id, e.at, e.kind, e.data FROM sessions s JOIN events e ON e.session = s.key
                WHERE e.seq <= ?1 AND s.id = ?3 AND e.kind IN (SELECT value FROM json_each(?4))
                ORDER BY e.seq DESC LIMIT ?2";
            let up_to = i64::try_from(up_to).unwrap_or(i64::MAX);
            let kinds: serde_json::Value = kinds.iter().map(|kind| kind.as_str()).collect();
            let kinds = kinds.to_string();
            let mut events =
                bounded(connection, sql, params![up_to, signed(limit), session.to_string(), kinds])?;
            events.reverse();
            Ok(events)
        })
        .await
    }

    /// Returns the newest events of a session before this one, oldest first.
    pub async fn events_before(
        &self,
        before: u64,
        session: SessionId,
        limit: usize,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        let cache = Arc::clone(&self.block_cache);
        self.read_log(move |connection| {
            let Some(session) = session_key(connection, session)? else { return Ok(Vec::new()) };
            let before = i64::try_from(before).unwrap_or(i64::MAX);
            let range = LogRange::SessionBefore { session, before };
            let mut events = read_page(connection, &cache, range, limit)?;
            events.reverse();
            Ok(events)
        })
        .await
    }
}

/// Returns the names of the bulk kinds, as a list of SQL.
pub(super) fn bulk_kinds() -> String {
    let bulk = EventKind::ALL.iter().filter(|kind| kind.is_bulk());
    bulk.map(|kind| format!("'{}'", kind.as_str())).collect::<Vec<_>>().join(", ")
}

/// Returns the cutoff if events after this one were removed.
fn cutoff(connection: &Connection, after: i64) -> Result<Option<LogCutoff>, StoreError> {
    // Separate subqueries: each looks at one end of a table.
    let sql = "SELECT min(coalesce((SELECT min(seq) FROM events), ?1), coalesce((SELECT min(first) FROM blocks), ?1),
        (SELECT value FROM meta WHERE key = 'next_seq'))";
    let oldest: i64 = connection.prepare_cached(sql)?.query_row([i64::MAX], |row| row.get(0))?;
    let is_cut = after.saturating_add(1) < oldest;
    Ok(is_cut.then(|| LogCutoff { oldest: u64::try_from(oldest).unwrap_or(0) }))
}

/// Collects events until the page is full, by count or by size; at least one if there is one.
fn bounded(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<LoggedEvent>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(values)?;
    let mut page = Page::new(usize::MAX); // the query has the limit
    while let Some(row) = found.next()? {
        let (kind, data) = (text(row, 3)?, text(row, 4)?);
        if !page.push(row.get(0)?, text_id(row, 1)?, row.get(2)?, kind, data) {
            break;
        }
    }
    Ok(page.events)
}
