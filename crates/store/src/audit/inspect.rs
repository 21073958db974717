//! The quick check of the chain: its recorded breaks and its end. `verify` checks every row.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::anchor::AnchoredHead;
use super::head::{AuditHead, BROKEN, HeadCheck};
use crate::{Store, StoreError};

/// The maximum number of reported breaks; `audit --verify` shows all.
const MAX_BREAKS: i64 = 10;
/// The first schema with a counter beside the audit.
const FIRST_SCHEMA: i64 = 9;

impl Store {
    /// Returns the recorded breaks of the audit chain, newest first, and a failure of its anchor file.
    pub async fn audit_warnings(&self) -> Result<Vec<String>, StoreError> {
        let mut warnings = self.read(recorded).await?;
        if let Some(anchor) = &self.anchor
            && let Some(failure) = anchor.failure()
        {
            warnings
                .push(format!("the anchor file {} cannot be written: {failure}", anchor.file().display()));
        }
        Ok(warnings)
    }
}

/// Returns the breaks of a database that is closed or in use by another process: the recorded ones, and one at its end
/// that the next daemon will record. Changes nothing.
pub fn inspect_audit(database: &Path, anchor: Option<&Path>) -> Result<Vec<String>, StoreError> {
    // Read before the database: heads are written after the commit, so each of them must be in the rows that are read
    // then.
    let anchored = AnchoredHead::read(anchor)?;
    let connection = open(database)?;
    let snapshot = connection.unchecked_transaction()?;
    let schema: i64 = snapshot.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if schema < FIRST_SCHEMA {
        return Ok(Vec::new());
    }
    let mut warnings = recorded(&snapshot)?;
    warnings.extend(HeadCheck::new(anchored).preview(&snapshot)?);
    Ok(warnings)
}

fn open(database: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    if Path::new(&log).exists() {
        return Connection::open_with_flags(database, flags);
    }
    // The database is not in use: it is opened immutable, without the side files that SQLite would leave behind.
    let escaped = database.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags | OpenFlags::SQLITE_OPEN_URI)
}

fn recorded(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let sql = format!(
        "SELECT n, json_extract(data, '$.message') FROM audit WHERE action = '{BROKEN}' ORDER BY n DESC LIMIT {MAX_BREAKS}"
    );
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map([], |row| {
        let (n, message): (i64, Option<String>) = (row.get(0)?, row.get(1)?);
        Ok(format!("row {n}: {}", message.as_deref().unwrap_or(BROKEN)))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl HeadCheck {
    /// Returns the break that the next transaction would record.
    fn preview(&self, connection: &Connection) -> Result<Option<String>, StoreError> {
        let (counter, last): (Option<AuditHead>, AuditHead) =
            (super::head::counter(connection)?, super::head::last_row(connection)?);
        let found = self.find_break(connection, counter.as_ref(), &last)?;
        Ok(found.map(|found| found.message))
    }
}
