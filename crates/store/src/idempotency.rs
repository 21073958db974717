//! Recorded answers for requests that are repeated with the same `Idempotency-Key`.

use rusqlite::{OptionalExtension, params};

use super::{Store, StoreError};
use intercom_types::Time;

/// The lifetime of a key.
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// The first answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotentResponse {
    /// The fingerprint of the request: the same key with another request is an error of the caller.
    pub fingerprint: String,
    pub status: u16,
    pub body: String,
}

impl Store {
    pub async fn idempotent_response(
        &self,
        key: String,
        now: Time,
    ) -> Result<Option<IdempotentResponse>, StoreError> {
        let since = now.minus_millis(DAY_MILLIS).millis();
        self.read(move |connection| {
            let row = connection
                .prepare_cached(
                    "SELECT fingerprint, status, body FROM idempotency WHERE key = ?1 AND at > ?2",
                )?
                .query_row(params![key, since], |row| {
                    Ok(IdempotentResponse {
                        fingerprint: row.get(0)?,
                        status: row.get(1)?,
                        body: row.get(2)?,
                    })
                })
                .optional()?;
            Ok(row)
        })
        .await
    }

    pub async fn remember(
        &self,
        key: String,
        answer: IdempotentResponse,
        now: Time,
    ) -> Result<(), StoreError> {
        self.transact(move |connection| {
            connection
                .prepare_cached("DELETE FROM idempotency WHERE at <= ?1")?
                .execute([now.minus_millis(DAY_MILLIS).millis()])?;
            connection
                .prepare_cached("INSERT OR REPLACE INTO idempotency VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![key, answer.fingerprint, answer.status, answer.body, now.millis()])?;
            Ok(())
        })
        .await
    }
}
