//! What the charts are made of: how long requests waited, and how much was said when.

use rusqlite::{Connection, params};

use super::read::rows;
use super::{Store, StoreError};
use crate::domain::{SessionId, Time};

/// Requests that are looked at; with more, the newest.
const MAX_WAITS: i64 = 50_000;

/// A clearance or a question: how long its agent waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    pub session: String,
    pub from: Time,
    /// `None` while it waits.
    pub to: Option<Time>,
    /// Whether it is a clearance that somebody decided, and not a rule or the clock.
    pub decided: bool,
}

impl Store {
    /// What was open at any time since then.
    pub async fn waits(&self, since: Time, session: Option<SessionId>) -> Result<Vec<Wait>, StoreError> {
        let session = session.map(|id| id.to_string());
        self.read(move |connection| {
            // A decision that took no time at all was a rule's.
            let sql = "SELECT s.id, c.requested_at, c.decided_at, c.status IN ('approved', 'denied')
                    AND coalesce(json_extract(c.ruling, '$.outcome'), 'ask') = 'ask', c.status
                FROM clearances c JOIN sessions s ON s.key = c.session
                WHERE (c.status = 'pending' OR coalesce(c.decided_at, c.requested_at) >= ?1) AND (?2 IS NULL OR s.id = ?2)
                UNION ALL
                SELECT s.id, q.asked_at, q.answered_at, 0, q.status FROM questions q JOIN sessions s ON s.key = q.session
                WHERE (q.status = 'pending' OR coalesce(q.answered_at, q.asked_at) >= ?1) AND (?2 IS NULL OR s.id = ?2)
                ORDER BY 2 DESC LIMIT ?3";
            rows(connection, sql, params![since.millis(), session, MAX_WAITS], |row| {
                let (from, to): (i64, Option<i64>) = (row.get(1)?, row.get(2)?);
                let open = row.get::<_, String>(4)? == "pending";
                Ok(Wait {
                    session: row.get(0)?,
                    from: Time::from_millis(from),
                    // Some ends have no time of their own: nobody waited then.
                    to: (!open).then(|| Time::from_millis(to.unwrap_or(from))),
                    decided: row.get(3)?,
                })
            })
        })
        .await
    }

    /// How many events there were in each stretch of time since then: `(stretch, count)`.
    pub async fn event_counts(
        &self,
        since: Time,
        stretch_millis: i64,
        session: Option<SessionId>,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        self.read(move |connection| {
            let first = first_since(connection, since)?;
            let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            match session {
                None => {
                    let sql = "SELECT at / ?2, count(*) FROM events WHERE seq >= ?1 GROUP BY 1 ORDER BY 1";
                    rows(connection, sql, params![first, stretch_millis], pair)
                }
                Some(id) => {
                    let sql = "SELECT e.at / ?2, count(*) FROM sessions s JOIN events e ON e.session = s.key
                        WHERE s.id = ?3 AND e.seq >= ?1 GROUP BY 1 ORDER BY 1";
                    rows(connection, sql, params![first, stretch_millis, id.to_string()], pair)
                }
            }
        })
        .await
    }
}

/// The log is in the order of time, near enough: the place is found by halves, without looking at all of it.
fn first_since(connection: &Connection, since: Time) -> Result<i64, StoreError> {
    let ends = "SELECT coalesce(min(seq), 1), coalesce(max(seq), 0) FROM events";
    let (mut low, mut high): (i64, i64) =
        connection.query_row(ends, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
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
