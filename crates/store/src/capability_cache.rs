//! The capabilities that agents last reported when ready, by profile: shown before the next agent runs.

use rusqlite::{Connection, params};

use super::read::rows;
use super::{Store, StoreError};
use intercom_types::Json;

/// The capabilities that the agent of a profile last reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedCapabilities {
    /// The name of the profile.
    pub name: String,
    /// A hash of the agent's command line.
    pub command_fingerprint: String,
    pub capabilities: Json,
}

impl Store {
    pub async fn known_agents(&self) -> Result<Vec<CachedCapabilities>, StoreError> {
        self.read(|connection| {
            rows(connection, "SELECT name, command, told FROM known_agents", [], |row| {
                let capabilities = Json::trusted(row.get::<_, String>(2)?);
                Ok(CachedCapabilities { name: row.get(0)?, command_fingerprint: row.get(1)?, capabilities })
            })
        })
        .await
    }
}

/// Stores the capabilities of this session's agent, under the name of its profile.
pub(super) fn cache_capabilities(
    connection: &Connection,
    session: i64,
    command_fingerprint: &str,
    capabilities: &Json,
) -> Result<(), StoreError> {
    let sql =
        "INSERT INTO known_agents SELECT agent, ?2, ?3 FROM sessions WHERE key = ?1 AND agent IS NOT NULL
        ON CONFLICT (name) DO UPDATE SET command = ?2, told = ?3";
    connection.prepare_cached(sql)?.execute(params![session, command_fingerprint, capabilities.as_str()])?;
    Ok(())
}
