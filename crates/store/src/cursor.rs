//! The positions in the log of the consumers that forward it.

use rusqlite::{Connection, OptionalExtension, params};

use super::{Store, StoreError};

impl Store {
    pub async fn cursor(&self, name: &'static str) -> Result<Option<u64>, StoreError> {
        self.read(move |connection| {
            let mut select = connection.prepare_cached("SELECT seq FROM cursors WHERE name = ?1")?;
            let seq: Option<i64> = select.query_row([name], |row| row.get(0)).optional()?;
            Ok(seq.and_then(|seq| u64::try_from(seq).ok()))
        })
        .await
    }

    pub async fn set_cursor(&self, name: &'static str, seq: u64) -> Result<(), StoreError> {
        self.transact(move |connection| set(connection, name, seq)).await
    }
}

pub(super) fn set(connection: &Connection, name: &str, seq: u64) -> Result<(), StoreError> {
    let sql = "INSERT INTO cursors VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET seq = ?2";
    connection.prepare_cached(sql)?.execute(params![name, i64::try_from(seq).unwrap_or(i64::MAX)])?;
    Ok(())
}
