//! The tables and their migrations. Migrations run in order by `user_version`; a released one is never edited.

mod migrations;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use self::migrations::MIGRATIONS;
use super::StoreError;
use super::disk::free_bytes_beside;

/// The schema version of this program.
pub(crate) const VERSION: i64 = 11;

const FOREIGN: &str = "not an intercom database";
const DAMAGED: &str = "damaged: restore a backup";

/// The size at which the writer itself checkpoints the write-ahead log: the checkpoint thread is 32 MB behind.
const MAX_WAL_PAGES: u32 = 8_000;
/// The maximum size of the write-ahead log's file that is kept for reuse.
const MAX_IDLE_WAL_BYTES: u32 = 64 * 1024 * 1024;

/// The maximum size of a database of an earlier release that is rewritten at the start: that takes less than a second.
const MAX_REWRITTEN_BYTES: u64 = 64 * 1024 * 1024;

/// Creates a database with an old version of the schema, for tests of migrations.
#[cfg(test)]
pub(super) fn old_database(path: &Path, version: usize) -> Connection {
    let connection = connect(path).unwrap();
    for migration in &MIGRATIONS[..version] {
        connection.execute_batch(migration).unwrap();
    }
    connection.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
    connection
}

/// Opens the database for writing and migrates it; a new one is created with mode 0600. Returns the name by which other
/// connections of this process open it.
pub(super) fn open(path: &Path) -> Result<(Connection, PathBuf), StoreError> {
    create_private(path).map_err(|error| StoreError::Unavailable(error.to_string()))?;
    match open_as(path, path) {
        Err(error @ StoreError::Unavailable(_)) => {
            // A full disk has no room for the shared-memory index of the log. In heap memory it needs none, but then
            // only this process can open the database.
            let alone = exclusive_uri(path);
            let connection = open_as(&alone, path).map_err(|_| error)?;
            tracing::warn!(
                "there is no room beside the database; until the next start only this process can open it"
            );
            Ok((connection, alone))
        }
        opened => opened.map(|connection| (connection, path.to_owned())),
    }
}

/// Returns the name of the database for connections that share its index in this process's memory.
fn exclusive_uri(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let escaped = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    PathBuf::from(format!("file:{escaped}?vfs=unix-excl"))
}

fn open_as(name: &Path, path: &Path) -> Result<Connection, StoreError> {
    let mut connection = Connection::open(name).map_err(unusable)?;
    let size = path.metadata().map_or(0, |file| file.len());
    if size == 0 {
        // Only an empty file takes it at once.
        connection.pragma_update(None, "auto_vacuum", "incremental")?;
    }
    configure(&connection).map_err(unusable)?;
    connection.pragma_update(None, "wal_autocheckpoint", MAX_WAL_PAGES)?;
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.set_prepared_statement_cache_capacity(64);
    migrate(&mut connection, path)?;
    if size <= MAX_REWRITTEN_BYTES {
        make_shrinkable(&connection, path);
    }
    Ok(connection)
}

/// Rewrites a small database of an earlier release, so that its file can shrink from now on.
fn make_shrinkable(connection: &Connection, path: &Path) {
    let mode = connection.pragma_query_value(None, "auto_vacuum", |row| row.get::<_, i64>(0));
    if mode != Ok(0) || !has_room_for_rewriting(path) {
        return;
    }
    let rewritten = connection.execute_batch("PRAGMA auto_vacuum = incremental; VACUUM");
    if let Err(error) = rewritten {
        tracing::warn!(%error, "the database was not rewritten; its file does not shrink until a later start");
    }
}

/// Reports whether the file system has room for the new content in the write-ahead log and as much again: a nearly full
/// disk is left to the agents.
fn has_room_for_rewriting(path: &Path) -> bool {
    let size = path.metadata().map_or(0, |file| file.len());
    free_bytes_beside(path).is_some_and(|free| free >= size.saturating_mul(2))
}

/// Maps errors that a retry cannot fix.
fn unusable(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => StoreError::Unusable(FOREIGN),
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Unusable(DAMAGED),
        _ => error.into(),
    }
}

/// Opens a connection for writing with the settings that durability needs.
pub(super) fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open(path)?;
    configure(&connection)?;
    Ok(connection)
}

fn configure(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.pragma_update(None, "journal_mode", "wal")?;
    // Decisions, events and offsets share transactions: an acknowledged write must survive a power failure.
    connection.pragma_update(None, "synchronous", "full")?;
    // A log that has grown during a long read shrinks again with the next commits.
    connection.pragma_update(None, "journal_size_limit", MAX_IDLE_WAL_BYTES)
}

/// Creates an empty file that only its owner can read, unless it exists. `SQLite` gives its side files the same mode.
pub(super) fn create_private(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(drop)
}

/// Opens an existing database for reading only.
pub(super) fn open_reader(path: &Path) -> Result<Connection, rusqlite::Error> {
    // Without a write flag, a WAL database without side files could not be opened at all.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Opens the database for a comparison: temporary tables may be created, and nothing else is changed.
pub(super) fn open_to_compare(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(path, flags).map_err(unusable)?;
    let found: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(unusable)?;
    match found {
        VERSION => Ok(connection),
        0 => Err(StoreError::Unusable(FOREIGN)),
        found if found > VERSION => Err(StoreError::Newer { path: path.to_owned(), found, known: VERSION }),
        _ => Err(StoreError::Unusable("of an earlier release; the next daemon migrates it")),
    }
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let found: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(unusable)?;
    let count = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(count, [], |row| row.get(0)).map_err(unusable)?;
    if found == 0 && tables > 0 {
        return Err(StoreError::Unusable(FOREIGN));
    }
    if found > VERSION {
        return Err(StoreError::Newer { path: path.to_owned(), found, known: VERSION });
    }
    for (version, migration) in (1i64..).zip(MIGRATIONS).skip(usize::try_from(found).unwrap_or(0)) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_of_a_newer_version_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("intercom.db");
        open(&path).unwrap().0.pragma_update(None, "user_version", VERSION + 1).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("schema version {}", VERSION + 1)), "{error}");
    }

    #[test]
    fn a_file_that_is_no_database_of_ours_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("intercom.db");
        std::fs::write(&path, "These are my notes, and they are longer than a header. ".repeat(20)).unwrap();
        assert_eq!(open(&path).unwrap_err().to_string(), "this file is not an intercom database");
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("These are my notes"));
        std::fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
        assert_eq!(open(&path).unwrap_err().to_string(), "this file is not an intercom database");
    }

    #[test]
    fn the_version_counts_the_migrations() {
        assert_eq!(usize::try_from(VERSION), Ok(MIGRATIONS.len()));
    }

    #[test]
    fn the_counter_of_an_old_audit_becomes_its_head_also_if_its_row_is_missing() {
        for (rows, expected) in
            [(vec![], (0, vec![0; 32])), (vec![1, 2], (2, vec![2])), (vec![1], (2, vec![]))]
        {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("intercom.db");
            let old = old_database(&path, 8);
            for n in &rows {
                let row = "INSERT INTO audit VALUES (?1, 0, 'a', 'b', NULL, '{}', x'00', ?2)";
                old.execute(row, rusqlite::params![n, vec![u8::try_from(*n).unwrap()]]).unwrap();
            }
            let next = expected.0 + 1;
            old.execute("UPDATE meta SET value = ?1 WHERE key = 'next_audit'", [next]).unwrap();
            drop(old);
            let head: (i64, Vec<u8>) = open(&path)
                .unwrap()
                .0
                .query_row("SELECT n, hash FROM audit_head", [], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap();
            assert_eq!(head, expected, "{rows:?}");
        }
    }

    #[test]
    fn opening_twice_migrates_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("intercom.db");
        drop(open(&path).unwrap());
        let (connection, _) = open(&path).unwrap();
        let next: i64 = connection
            .query_row("SELECT value FROM meta WHERE key = 'next_seq'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(next, 1);
    }
}
