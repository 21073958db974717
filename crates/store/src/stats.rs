//! The data of the charts: the waiting times of requests, and the numbers of events over time.
//!
//! Events are counted when they are written and when their session is removed, in the same transaction, so that no
//! chart has to read the log. A database of an earlier version is counted after the start, newest events first, in
//! pieces; the log is read for the part that is not counted yet.

#[cfg(test)]
mod tests;

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::read::{rows, session_key};
use super::{Store, StoreError};
use intercom_types::{NewEvent, SessionId, Time};

/// The length of the intervals in which events are counted. Longer intervals must be a multiple of it.
pub const COUNTED_STRETCH_MILLIS: i64 = 75_000;
/// The key of the totals of all sessions.
const ALL_SESSIONS: i64 = 0;
/// The maximum number of requests examined: the newest ones.
const MAX_WAITS: i64 = 50_000;
/// The number of events of an old database that one transaction counts: small enough that other writes do not wait
/// long.
const PIECE: i64 = 10_000;
/// The pause between two pieces, which leaves the writer to others.
const PAUSE: Duration = Duration::from_millis(10);
/// The pause after a piece that failed.
const RETRY: Duration = Duration::from_secs(10);
const COUNTED_FROM: &str = "SELECT value FROM meta WHERE key = 'events_counted_from'";

/// The time that an agent waited for a clearance or a question.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestWait {
    /// The number of the session.
    pub session: i64,
    pub from: Time,
    /// `None` while it waits.
    pub to: Option<Time>,
    /// True for a clearance that a person decided, rather than a rule or the clock.
    pub decided: bool,
}

impl Store {
    /// Returns the requests that an agent waited for at any time since then, without those that a rule decided
    /// immediately.
    pub async fn waits(
        &self,
        since: Time,
        session: Option<SessionId>,
    ) -> Result<Vec<RequestWait>, StoreError> {
        self.read_log(move |connection| {
            let (only, key) = match session {
                None => ("", None),
                Some(id) => match session_key(connection, id)? {
                    None => return Ok(Vec::new()),
                    key => (" AND session = ?3", key),
                },
            };
            let sql = waits_sql(only);
            let make = |row: &rusqlite::Row<'_>| {
                Ok(RequestWait {
                    session: row.get(0)?,
                    from: Time::from_millis(row.get(1)?),
                    to: row.get::<_, Option<i64>>(2)?.map(Time::from_millis),
                    decided: row.get(3)?,
                })
            };
            match key {
                None => rows(connection, &sql, params![since.millis(), MAX_WAITS], make),
                Some(key) => rows(connection, &sql, params![since.millis(), MAX_WAITS, key], make),
            }
        })
        .await
    }

    /// Returns the number of events in each interval since then: `(interval, count)`. `since` is the beginning of an
    /// interval, whose length is a multiple of [`COUNTED_STRETCH_MILLIS`].
    pub async fn event_counts(
        &self,
        since: Time,
        stretch_millis: i64,
        session: Option<SessionId>,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        self.read_log(move |connection| {
            // The snapshot of `read` matters here: between two states, a piece could move from the log into the counts.
            let key = match session {
                None => ALL_SESSIONS,
                Some(id) => match session_key(connection, id)? {
                    None => return Ok(Vec::new()),
                    Some(key) => key,
                },
            };
            let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let counted = "SELECT stretch / ?2, sum(events) FROM event_counts
                WHERE session = ?1 AND stretch >= ?3 GROUP BY 1 ORDER BY 1";
            let units = stretch_millis / COUNTED_STRETCH_MILLIS;
            let first = since.millis() / COUNTED_STRETCH_MILLIS;
            let mut counts: Vec<(i64, i64)> = rows(connection, counted, params![key, units, first], pair)?;
            counts.extend(uncounted(connection, since, stretch_millis, key)?);
            Ok(counts)
        })
        .await
    }

    /// Counts the events of a database of an earlier version, until all are counted.
    pub async fn count_old_events(&self) {
        loop {
            match self.transact(count_piece).await {
                Ok(true) | Err(StoreError::Closed) => return,
                Ok(false) => tokio::time::sleep(PAUSE).await,
                Err(error) => {
                    tracing::warn!(%error, "old events could not be counted; charts read the log for them");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// Builds the query. `only` is a condition for both tables.
fn waits_sql(only: &str) -> String {
    // The conditions repeat those of the two indexes literally: otherwise SQLite would not use them.
    format!(
        "SELECT session, requested_at, coalesce(decided_at, requested_at),
            status IN ('approved', 'denied') AND coalesce(json_extract(ruling, '$.outcome'), 'ask') = 'ask'
        FROM clearances INDEXED BY clearances_waited
        WHERE status <> 'pending' AND (coalesce(decided_at, requested_at) > requested_at
            OR (status IN ('approved', 'denied') AND coalesce(json_extract(ruling, '$.outcome'), 'ask') = 'ask'))
            AND coalesce(decided_at, requested_at) >= ?1{only}
        UNION ALL SELECT session, requested_at, NULL, 0
        FROM clearances INDEXED BY clearances_pending WHERE status = 'pending'{only}
        UNION ALL SELECT session, asked_at, coalesce(answered_at, asked_at), 0
        FROM questions INDEXED BY questions_waited
        WHERE status <> 'pending' AND coalesce(answered_at, asked_at) > asked_at
            AND coalesce(answered_at, asked_at) >= ?1{only}
        UNION ALL SELECT session, asked_at, NULL, 0
        FROM questions INDEXED BY questions_pending WHERE status = 'pending'{only}
        ORDER BY 2 DESC LIMIT ?2"
    )
}

/// Counts the events of one write.
pub(super) fn count(connection: &Connection, session: i64, events: &[NewEvent]) -> Result<(), StoreError> {
    let stretch_of = |new: &NewEvent| new.at.millis() / COUNTED_STRETCH_MILLIS;
    // Nearly always all belong to one interval.
    for events in events.chunk_by(|one, next| stretch_of(one) == stretch_of(next)) {
        let Some(stretch) = events.first().map(stretch_of) else { continue };
        let events = i64::try_from(events.len()).unwrap_or(i64::MAX);
        for key in [session, ALL_SESSIONS] {
            connection
                .prepare_cached(
                    "INSERT INTO event_counts VALUES (?1, ?2, ?3)
                     ON CONFLICT DO UPDATE SET events = events + excluded.events",
                )?
                .execute(params![key, stretch, events])?;
        }
    }
    Ok(())
}

/// Subtracts the events of a removed session from the counts. The events themselves are deleted later.
pub(super) fn forget(connection: &Connection, session: i64) -> Result<(), StoreError> {
    connection.execute(
        "UPDATE event_counts SET events = events -
             (SELECT its.events FROM event_counts its WHERE its.session = ?1 AND its.stretch = event_counts.stretch)
         WHERE session = ?2 AND stretch IN (SELECT stretch FROM event_counts WHERE session = ?1)",
        params![session, ALL_SESSIONS],
    )?;
    connection.execute(
        "DELETE FROM event_counts WHERE session = ?2 AND events <= 0
             AND stretch IN (SELECT stretch FROM event_counts WHERE session = ?1)",
        params![session, ALL_SESSIONS],
    )?;
    connection.execute("DELETE FROM event_counts WHERE session = ?1", [session])?;
    Ok(())
}

/// Counts one piece of an old log, newest first. `true` when all is counted.
fn count_piece(connection: &Connection) -> Result<bool, StoreError> {
    let until: Option<i64> = connection.query_row(COUNTED_FROM, [], |row| row.get(0)).optional()?;
    let Some(until) = until else { return Ok(true) };
    let newest = "SELECT max(seq) FROM events WHERE seq < ?1";
    let newest: Option<i64> = connection.query_row(newest, [until], |row| row.get(0))?;
    let Some(newest) = newest else {
        connection.execute("DELETE FROM meta WHERE key = 'events_counted_from'", [])?;
        return Ok(true);
    };
    let from = newest - PIECE + 1;
    // Events of removed sessions are only waiting to be deleted.
    for key in ["e.session", "0"] {
        connection.execute(
            &format!(
                "INSERT INTO event_counts SELECT {key}, e.at / ?3, count(*) FROM events e
                 WHERE e.seq >= ?1 AND e.seq < ?2 AND e.session IN (SELECT key FROM sessions) GROUP BY 1, 2
                 ON CONFLICT DO UPDATE SET events = events + excluded.events"
            ),
            params![from, until, COUNTED_STRETCH_MILLIS],
        )?;
    }
    connection.execute("UPDATE meta SET value = ?1 WHERE key = 'events_counted_from'", [from])?;
    Ok(false)
}

/// Counts the events of an old database that are not counted yet, from the log.
fn uncounted(
    connection: &Connection,
    since: Time,
    stretch_millis: i64,
    session: i64,
) -> Result<Vec<(i64, i64)>, StoreError> {
    let until: Option<i64> =
        connection.prepare_cached(COUNTED_FROM)?.query_row([], |row| row.get(0)).optional()?;
    let Some(until) = until else { return Ok(Vec::new()) };
    let first = first_since(connection, since, until)?;
    let sql = "SELECT at / ?3, count(*) FROM events
        WHERE seq >= ?1 AND seq < ?2 AND at >= ?4 AND session IN (SELECT key FROM sessions)
            AND (?5 = 0 OR session = ?5) GROUP BY 1 ORDER BY 1";
    let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    rows(connection, sql, params![first, until, stretch_millis, since.millis(), session], pair)
}

/// Finds the first event since a time by bisection: the log is nearly ordered by time.
fn first_since(connection: &Connection, since: Time, until: i64) -> Result<i64, StoreError> {
    // Two separate subqueries: in one, SQLite would scan all events.
    let ends = "SELECT coalesce((SELECT min(seq) FROM events WHERE seq < ?1), 1),
        coalesce((SELECT max(seq) FROM events WHERE seq < ?1), 0)";
    let (mut low, mut high): (i64, i64) =
        connection.query_row(ends, [until], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut at =
        connection.prepare_cached("SELECT seq, at FROM events WHERE seq >= ?1 ORDER BY seq LIMIT 1")?;
    while low <= high {
        let middle = low + (high - low) / 2;
        let (seq, millis): (i64, i64) = at.query_row([middle], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if millis < since.millis() {
            low = seq + 1;
        } else {
            high = middle - 1;
        }
    }
    Ok(low)
}
