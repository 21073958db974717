//! The sign-ins to the web console.

use rusqlite::{Row, params};

use super::audit::append;
use super::read::{rows, text_id};
use super::{Store, StoreError};
use intercom_types::{NewAuditRow, Role, Time, WebSession};

/// A sign-in and the hash of its browser's secret.
#[derive(Debug, Clone)]
pub struct StoredWebSession {
    pub session: WebSession,
    pub hash: Vec<u8>,
}

impl Store {
    pub async fn add_web_session(
        &self,
        known: StoredWebSession,
        entry: NewAuditRow,
    ) -> Result<(), StoreError> {
        self.transact(move |connection| {
            let StoredWebSession { session: s, hash } = known;
            // Expired sign-ins are useless. Uses are recorded at least hourly, so one extra day is enough.
            let idle = s.created_at.minus_millis((WebSession::IDLE_DAYS + 1) * 24 * 60 * 60 * 1000);
            connection.execute("DELETE FROM web_sessions WHERE last_used_at < ?1", [idle.millis()])?;
            connection.execute(
                "INSERT INTO web_sessions
                 (id, name, role, token, hash, created_at, last_used_at, last_used_from, browser)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    s.id.to_string(),
                    s.name,
                    s.role.as_str(),
                    s.token.map(|id| id.to_string()),
                    hash,
                    s.created_at.millis(),
                    s.last_used_at.millis(),
                    s.last_used_from,
                    s.browser,
                ],
            )?;
            append(connection, &entry)
        })
        .await
    }

    pub async fn web_sessions(&self) -> Result<Vec<StoredWebSession>, StoreError> {
        self.read(|connection| {
            let sql =
                "SELECT id, name, role, token, hash, created_at, last_used_at, last_used_from, browser, key
                       FROM web_sessions ORDER BY key DESC";
            let found = rows(connection, sql, params![], known)?;
            Ok(found.into_iter().map(|(known, _)| known).collect())
        })
        .await
    }

    pub async fn record_web_session_use(&self, id: String, at: Time, from: String) -> Result<(), StoreError> {
        self.transact(move |connection| {
            let sql = "UPDATE web_sessions SET last_used_at = ?2, last_used_from = ?3 WHERE id = ?1";
            connection.execute(sql, params![id, at.millis(), from])?;
            Ok(())
        })
        .await
    }

    /// Deletes the row; the audit keeps its record.
    pub async fn end_web_session(&self, id: String, entry: NewAuditRow) -> Result<(), StoreError> {
        self.transact(move |connection| {
            if connection.execute("DELETE FROM web_sessions WHERE id = ?1", [id])? > 0 {
                append(connection, &entry)?;
            }
            Ok(())
        })
        .await
    }
}

fn known(row: &Row<'_>) -> Result<(StoredWebSession, i64), StoreError> {
    const CORRUPT: StoreError = StoreError::Corrupt { what: "a web session" };
    let token: Option<String> = row.get(3)?;
    let session = WebSession {
        id: text_id(row, 0)?,
        name: row.get(1)?,
        role: Role::parse(&row.get::<_, String>(2)?).ok_or(CORRUPT)?,
        token: token.map(|id| id.parse().map_err(|_| CORRUPT)).transpose()?,
        created_at: Time::from_millis(row.get(5)?),
        last_used_at: Time::from_millis(row.get(6)?),
        last_used_from: row.get(7)?,
        browser: row.get(8)?,
    };
    Ok((StoredWebSession { session, hash: row.get(4)? }, row.get(9)?))
}
