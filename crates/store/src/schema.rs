//! The tables and their migrations. Migrations run in order by `user_version`; a released one is never edited.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::StoreError;

/// The schema version of this program.
pub const VERSION: i64 = 11;

const FOREIGN: &str = "not an intercom database";
const DAMAGED: &str = "damaged: restore a backup";

/// The size at which the writer itself checkpoints the write-ahead log: the checkpoint thread is 32 MB behind.
const MAX_WAL_PAGES: u32 = 8_000;
/// The maximum size of the write-ahead log's file that is kept for reuse.
const MAX_IDLE_WAL_BYTES: u32 = 64 * 1024 * 1024;

/// The maximum size of a database of an earlier release that is rewritten at the start: that takes less than a second.
const MAX_REWRITTEN_BYTES: u64 = 64 * 1024 * 1024;

const MIGRATIONS: &[&str] = &["
    CREATE TABLE meta (
        key TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO meta VALUES ('next_seq', 1);

    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        name TEXT,
        agent TEXT,
        protocol TEXT NOT NULL,
        workspace TEXT NOT NULL,
        phase TEXT NOT NULL,
        why TEXT NOT NULL,
        pid INTEGER,
        generation INTEGER NOT NULL,
        turn TEXT,
        turn_started_at INTEGER,
        pending_clearances INTEGER NOT NULL,
        pending_questions INTEGER NOT NULL,
        queue INTEGER NOT NULL,
        stderr_tail TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        started_at INTEGER,
        ended_at INTEGER,
        exit_code INTEGER,
        exit_signal INTEGER,
        end_reason TEXT,
        launch TEXT NOT NULL,
        state TEXT NOT NULL,
        consumed INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX sessions_name ON sessions (name) WHERE name IS NOT NULL;
    CREATE INDEX sessions_live ON sessions (key) WHERE phase NOT IN ('ended', 'parked');
    CREATE INDEX sessions_ended ON sessions (ended_at) WHERE ended_at IS NOT NULL;

    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        data TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_session ON events (session);

    CREATE TABLE clearances (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        session INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        request TEXT NOT NULL,
        title TEXT NOT NULL,
        description TEXT,
        diff TEXT,
        file_path TEXT,
        risk TEXT NOT NULL,
        claimed_risk TEXT,
        options TEXT NOT NULL,
        status TEXT NOT NULL,
        delivery TEXT NOT NULL,
        delivery_cause TEXT,
        requested_at INTEGER NOT NULL,
        decided_by TEXT,
        decided_at INTEGER,
        reason TEXT,
        option TEXT,
        delivered_at INTEGER,
        outcome TEXT
    ) STRICT;
    CREATE INDEX clearances_session ON clearances (session);
    CREATE INDEX clearances_pending ON clearances (key) WHERE status = 'pending';

    CREATE TABLE questions (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        session INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        request TEXT NOT NULL,
        text TEXT NOT NULL,
        sort TEXT,
        status TEXT NOT NULL,
        decision TEXT,
        instruction TEXT,
        asked_at INTEGER NOT NULL,
        answered_by TEXT,
        answered_at INTEGER,
        reason TEXT,
        delivery TEXT NOT NULL,
        delivery_cause TEXT,
        delivered_at INTEGER
    ) STRICT;
    CREATE INDEX questions_session ON questions (session);
    CREATE INDEX questions_pending ON questions (key) WHERE status = 'pending';

    CREATE TABLE prompts (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        session INTEGER NOT NULL,
        text TEXT NOT NULL,
        state TEXT NOT NULL,
        cause TEXT,
        by TEXT NOT NULL,
        at INTEGER NOT NULL,
        delivered_at INTEGER
    ) STRICT;
    CREATE INDEX prompts_session ON prompts (session);

    CREATE TABLE outbox (
        session INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        n INTEGER NOT NULL,
        message BLOB NOT NULL,
        PRIMARY KEY (session, generation, n)
    ) STRICT, WITHOUT ROWID;

    -- Sessions that retention has removed and whose events are still being deleted, a piece at a time.
    CREATE TABLE trash (session INTEGER PRIMARY KEY) STRICT;

    CREATE TABLE idempotency (
        key TEXT PRIMARY KEY,
        fingerprint TEXT NOT NULL,
        status INTEGER NOT NULL,
        body TEXT NOT NULL,
        at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX idempotency_at ON idempotency (at);
", "
    ALTER TABLE sessions ADD COLUMN unenforced TEXT;

    ALTER TABLE clearances ADD COLUMN tool TEXT;
    ALTER TABLE clearances ADD COLUMN command TEXT;
    ALTER TABLE clearances ADD COLUMN computed_risk TEXT;
    ALTER TABLE clearances ADD COLUMN risk_why TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE clearances ADD COLUMN ruling TEXT;
    ALTER TABLE clearances ADD COLUMN needed INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE clearances ADD COLUMN approvals TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE clearances ADD COLUMN expires_at INTEGER;
    ALTER TABLE clearances ADD COLUMN decided_via TEXT;
    CREATE INDEX clearances_requested ON clearances (requested_at);

    CREATE TABLE tokens (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        hash BLOB NOT NULL,
        created_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER,
        last_used_at INTEGER,
        last_used_from TEXT
    ) STRICT;

    CREATE TABLE grants (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        rule TEXT NOT NULL,
        clearance TEXT NOT NULL,
        created_by TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER
    ) STRICT;

    -- Never changed and never removed, whatever retention does to sessions: hence the session's id and not its key.
    CREATE TABLE audit (
        n INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        action TEXT NOT NULL,
        by TEXT NOT NULL,
        session TEXT,
        data TEXT NOT NULL,
        previous BLOB NOT NULL,
        hash BLOB NOT NULL
    ) STRICT;
    CREATE INDEX audit_session ON audit (session) WHERE session IS NOT NULL;
    CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
    CREATE TRIGGER audit_is_not_removed BEFORE DELETE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
    INSERT INTO meta VALUES ('next_audit', 1);

    -- How far each reader of the log that works outside this process has come.
    CREATE TABLE cursors (
        name TEXT PRIMARY KEY,
        seq INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
", "
    -- How its agent stands, its ladder: JSON, `NULL` before anything was known.
    ALTER TABLE sessions ADD COLUMN watched TEXT;
    -- What its agent told about itself: JSON likewise.
    ALTER TABLE sessions ADD COLUMN told TEXT;
    ALTER TABLE clearances ADD COLUMN more_paths TEXT NOT NULL DEFAULT '[]';
    CREATE INDEX sessions_shown ON sessions (key) WHERE phase <> 'ended';
", "
    -- What Slack sent: the frame until it is worked off, its key a while longer, so that a second delivery is known.
    CREATE TABLE slack_inbox (
        key TEXT PRIMARY KEY,
        at INTEGER NOT NULL,
        frame TEXT
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX slack_inbox_waiting ON slack_inbox (at) WHERE frame IS NOT NULL;
    CREATE INDEX slack_inbox_done ON slack_inbox (at) WHERE frame IS NULL;

    -- Each message of ours there: how it should look, and which version of that Slack has.
    CREATE TABLE slack_messages (
        place INTEGER PRIMARY KEY AUTOINCREMENT,
        key TEXT NOT NULL UNIQUE,
        session TEXT,
        channel TEXT NOT NULL,
        thread TEXT,
        ts TEXT,
        wanted TEXT NOT NULL,
        version INTEGER NOT NULL,
        sent INTEGER NOT NULL,
        tried INTEGER,
        open INTEGER NOT NULL,
        memo TEXT NOT NULL
    ) STRICT;
    CREATE INDEX slack_messages_unsent ON slack_messages (place) WHERE sent < version;
    CREATE INDEX slack_messages_open ON slack_messages (place) WHERE open;
    CREATE INDEX slack_messages_session ON slack_messages (session);
    CREATE INDEX slack_messages_ts ON slack_messages (channel, ts);

    CREATE TABLE slack_threads (
        session TEXT PRIMARY KEY,
        verbosity TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
", "
    -- Who is signed in to the web console. What the browser shows is kept as a hash.
    CREATE TABLE web_sessions (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        token TEXT,
        hash BLOB NOT NULL,
        created_at INTEGER NOT NULL,
        last_used_at INTEGER NOT NULL,
        last_used_from TEXT NOT NULL,
        browser TEXT
    ) STRICT;
    -- The order of prompts that wait, once somebody has changed it.
    ALTER TABLE prompts ADD COLUMN place INTEGER;
", "
    -- All that a prompt is made of, where that is more than its words: JSON.
    ALTER TABLE prompts ADD COLUMN content TEXT;
    CREATE INDEX sessions_workspace ON sessions (workspace);
    -- What a session may do at most.
    ALTER TABLE sessions ADD COLUMN preset TEXT NOT NULL DEFAULT 'full';
    -- What an agent of a profile told when it was ready last, and what its command line was.
    CREATE TABLE known_agents (
        name TEXT PRIMARY KEY,
        command TEXT NOT NULL,
        told TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
", "
    -- A failure that nobody has seen yet: JSON. Such sessions are listed until somebody has.
    ALTER TABLE sessions ADD COLUMN failed TEXT;
    CREATE INDEX sessions_noticed ON sessions (key) WHERE phase <> 'ended' OR failed IS NOT NULL;
", "
    -- Rules of the configuration that last for a time, by what they say: when each was first seen, and when it was taken out.
    CREATE TABLE rules_seen (
        content TEXT PRIMARY KEY,
        first_seen_at INTEGER NOT NULL,
        removed_at INTEGER
    ) STRICT, WITHOUT ROWID;
", "
    -- Number and hash of the newest audit row, outside of the audit itself: rows that are deleted at its end are missed here.
    -- If the row that the old counter names is already missing, no row has the empty hash, and the next write reports it.
    CREATE TABLE audit_head (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        n INTEGER NOT NULL,
        hash BLOB NOT NULL
    ) STRICT;
    INSERT INTO audit_head SELECT 1, value - 1,
            CASE value WHEN 1 THEN zeroblob(32) ELSE coalesce((SELECT hash FROM audit WHERE n = value - 1), x'') END
        FROM meta WHERE key = 'next_audit';
    DELETE FROM meta WHERE key = 'next_audit';
    CREATE TRIGGER audit_head_only_grows BEFORE UPDATE ON audit_head WHEN NEW.n <= OLD.n
        BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
    CREATE TRIGGER audit_head_is_not_removed BEFORE DELETE ON audit_head
        BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
    CREATE INDEX audit_breaks ON audit (n) WHERE action = 'audit.broken';
", "
    -- Events by session and stretch of 75 s; session 0 is all of them. Changed in the transactions that add and remove events.
    CREATE TABLE event_counts (
        session INTEGER NOT NULL,
        stretch INTEGER NOT NULL,
        events INTEGER NOT NULL,
        PRIMARY KEY (session, stretch)
    ) STRICT, WITHOUT ROWID;
    -- Events before this one are counted after the start, a piece at a time: there may be millions.
    INSERT INTO meta SELECT 'events_counted_from', value FROM meta WHERE key = 'next_seq' AND value > 1;
    -- Requests that an agent waited for, by their end. Those that a rule decided at once are not in it: nobody waited.
    CREATE INDEX clearances_waited ON clearances (coalesce(decided_at, requested_at))
        WHERE status <> 'pending' AND (coalesce(decided_at, requested_at) > requested_at
            OR (status IN ('approved', 'denied') AND coalesce(json_extract(ruling, '$.outcome'), 'ask') = 'ask'));
    CREATE INDEX questions_waited ON questions (coalesce(answered_at, asked_at))
        WHERE status <> 'pending' AND coalesce(answered_at, asked_at) > asked_at;
", "
    -- Many events of bulk kinds in one row, by their first seq. The body is described in `block`; the checksum covers all
    -- columns before it, and the body. The session is NULL if there are several.
    CREATE TABLE blocks (
        first INTEGER PRIMARY KEY,
        last INTEGER NOT NULL,
        session INTEGER,
        events INTEGER NOT NULL,
        codec INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    -- The first and the last seq of each session in each block.
    CREATE TABLE block_sessions (
        session INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        block INTEGER NOT NULL,
        PRIMARY KEY (session, first)
    ) STRICT, WITHOUT ROWID;
    -- Events before this one are packed, as far as they can be.
    INSERT INTO meta VALUES ('packed_to', 1);
    -- Events before this one are of an earlier version: packing them is a migration, with progress.
    INSERT INTO meta SELECT 'migrated_from', value FROM meta WHERE key = 'next_seq' AND value > 1;
    ALTER TABLE sessions ADD COLUMN last_event_at INTEGER;
    UPDATE sessions SET last_event_at =
        (SELECT e.at FROM events e WHERE e.session = sessions.key ORDER BY e.seq DESC LIMIT 1);
"];

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
        make_shrinkable(&connection);
    }
    Ok(connection)
}

/// Rewrites a small database of an earlier release, so that its file can shrink from now on.
fn make_shrinkable(connection: &Connection) {
    let mode = connection.pragma_query_value(None, "auto_vacuum", |row| row.get::<_, i64>(0));
    if mode != Ok(0) {
        return;
    }
    let rewritten = connection.execute_batch("PRAGMA auto_vacuum = incremental; VACUUM");
    if let Err(error) = rewritten {
        tracing::warn!(%error, "the database was not rewritten; its file does not shrink until a later start");
    }
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
