//! The statements that bring a database from each version to the next. A released one is never edited.

pub(super) const MIGRATIONS: &[&str] = &["
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
