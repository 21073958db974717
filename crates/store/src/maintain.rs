//! Retention.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use super::{Store, StoreError, audit, stats};
use intercom_types::{Json, NewAuditRow, Phase, SessionId, Time};

/// The number of events that one transaction deletes: small enough that other writes do not wait long.
const CHUNK: i64 = 5000;
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
        Ok(SweepResult { sessions, events: self.empty_trash().await? })
    }

    /// Removes one ended session in the same way and records it in the audit. `false` if it has not ended.
    pub async fn remove(&self, id: SessionId, by: String, now: Time) -> Result<bool, StoreError> {
        let removed = self.transact(move |connection| remove(connection, id, by, now)).await?;
        self.empty_trash().await?; // if this is cancelled, the next sweep deletes the rest
        Ok(removed)
    }

    async fn empty_trash(&self) -> Result<usize, StoreError> {
        let mut events = 0;
        loop {
            let deleted = self.transact(delete_some).await?;
            events += deleted;
            if deleted == 0 {
                return Ok(events);
            }
        }
    }
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

fn delete_some(connection: &Connection) -> Result<usize, StoreError> {
    let deleted = connection.execute(
        "DELETE FROM events WHERE seq IN (
             SELECT e.seq FROM trash t JOIN events e ON e.session = t.session LIMIT ?1)",
        params![CHUNK],
    )?;
    if deleted == 0 {
        connection.execute("DELETE FROM trash", [])?;
    }
    Ok(deleted)
}
