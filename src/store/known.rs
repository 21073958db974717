//! What agents told about themselves, by their profiles.

use rusqlite::{Connection, params};

use super::read::rows;
use super::{Store, StoreError};
use crate::domain::{Json, KnownAgent};

impl Store {
    pub async fn known_agents(&self) -> Result<Vec<KnownAgent>, StoreError> {
        self.read(|connection| {
            rows(connection, "SELECT name, command, told FROM known_agents", [], |row| {
                let told = Json::trusted(row.get::<_, String>(2)?);
                Ok(KnownAgent { name: row.get(0)?, command: row.get(1)?, told })
            })
        })
        .await
    }
}

pub(super) fn learn(connection: &Connection, known: &KnownAgent) -> Result<(), StoreError> {
    let sql = "INSERT INTO known_agents VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET command = ?2, told = ?3";
    connection.prepare_cached(sql)?.execute(params![known.name, known.command, known.told.as_str()])?;
    Ok(())
}
