//! The times since which temporary rules are in the configuration.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::read::rows;
use super::{Store, StoreError};
use intercom_types::Time;

/// The number of days for which a removed rule is remembered: restored within this time, its lifetime does not restart.
const REMEMBERED_DAYS: i64 = 30;

const SELECT_RULES: &str = "SELECT content, first_seen_at FROM rules_seen WHERE removed_at IS NULL";

impl Store {
    /// Returns the time at which each rule of the last configuration was first seen.
    pub async fn rule_first_seen(&self) -> Result<HashMap<String, Time>, StoreError> {
        self.read(read_rules).await
    }

    /// Records these rules, identified by their content, as those of the configuration; returns when each was first
    /// seen.
    pub async fn record_rules(
        &self,
        contents: Vec<String>,
        now: Time,
    ) -> Result<HashMap<String, Time>, StoreError> {
        self.transact(move |connection| {
            let present = serde_json::Value::from(contents).to_string();
            let forgotten = now.minus_millis(REMEMBERED_DAYS * 24 * 60 * 60 * 1000);
            connection.execute("DELETE FROM rules_seen WHERE removed_at < ?1", [forgotten.millis()])?;
            connection.execute(
                "INSERT INTO rules_seen (content, first_seen_at) SELECT DISTINCT value, ?2 FROM json_each(?1) WHERE 1
                 ON CONFLICT (content) DO UPDATE SET removed_at = NULL",
                params![present, now.millis()],
            )?;
            connection.execute(
                "UPDATE rules_seen SET removed_at = ?2
                 WHERE removed_at IS NULL AND content NOT IN (SELECT value FROM json_each(?1))",
                params![present, now.millis()],
            )?;
            read_rules(connection)
        })
        .await
    }
}

fn read_rules(connection: &Connection) -> Result<HashMap<String, Time>, StoreError> {
    let seen = rows(connection, SELECT_RULES, [], |row| Ok((row.get(0)?, Time::from_millis(row.get(1)?))))?;
    Ok(seen.into_iter().collect())
}
