//! Reads of sessions, and the paging and look-ups that all tables share.

use std::str::FromStr;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::DeserializeOwned;

use super::{Store, StoreError};
use intercom_types::{AgentInfo, Exit, Phase, Preset, SessionId, SessionRecord, Time, Turn};

const SESSION: &str = "s.id, s.name, s.agent, s.protocol, s.workspace, s.phase, s.why, s.pid, s.generation, s.turn,
    s.turn_started_at, s.pending_clearances, s.pending_questions, s.queue, s.stderr_tail, s.created_at, s.started_at,
    s.ended_at, s.exit_code, s.exit_signal, s.end_reason, s.unenforced, s.watched, s.told, s.last_event_at,
    s.preset, s.failed, s.key FROM sessions s";

/// The result of a look-up by an id, a name or a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdLookup<T> {
    One(T),
    None,
    /// Several ids have this prefix.
    Ambiguous(Vec<String>),
}

/// A session as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// The state in the state machine's own format.
    pub state: String,
    /// The launch specification for a restart, in the supervisor's own format.
    pub launch: String,
    /// The position in its process's output up to which it is in the log.
    pub consumed: u64,
    /// Recorded messages without a confirmation: number and bytes.
    pub outbox: Vec<(u64, Vec<u8>)>,
}

/// The sessions of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionScope {
    All,
    NotEnded,
    /// Sessions that have not ended, or whose failure no operator has seen yet.
    LiveOrFailed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPage<T> {
    pub items: Vec<T>,
    /// The key where the next page begins, if there is one.
    pub next: Option<i64>,
}

impl Store {
    /// Finds a session by id, by name (a live session first, then the newest), or by a unique prefix of an id.
    pub async fn session(&self, typed: String) -> Result<IdLookup<SessionRecord>, StoreError> {
        self.read(move |connection| {
            for scope in ["s.phase NOT IN ('ended', 'parked')", "1"] {
                let sql =
                    format!("SELECT {SESSION} WHERE s.name = ?1 AND {scope} ORDER BY s.key DESC LIMIT 1");
                if let Some((newest, _)) = rows(connection, &sql, params![typed], session)?.pop() {
                    return Ok(IdLookup::One(newest));
                }
            }
            find(connection, SESSION, "s", SessionId::PREFIX, &typed, session, |record| record.id.to_string())
        })
        .await
    }

    /// Returns the session with this id: one look-up, where [`Self::session`] also looks for names and prefixes.
    pub async fn session_by_id(&self, id: SessionId) -> Result<Option<SessionRecord>, StoreError> {
        self.read(move |connection| session_by_id(connection, id)).await
    }

    /// Lists sessions, newest first; of one workspace, or of all.
    pub async fn sessions(
        &self,
        scope: SessionScope,
        workspace: Option<String>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<RowPage<SessionRecord>, StoreError> {
        self.read(move |connection| {
            let scope = match scope {
                SessionScope::All => "1",
                SessionScope::NotEnded => "s.phase <> 'ended'",
                SessionScope::LiveOrFailed => "(s.phase <> 'ended' OR s.failed IS NOT NULL)",
            };
            let (before, most) = (before.unwrap_or(i64::MAX), signed(limit + 1));
            let within = if workspace.is_some() { "AND s.workspace = ?3" } else { "" };
            let sql = format!(
                "SELECT {SESSION} WHERE {scope} AND s.key < ?1 {within} ORDER BY s.key DESC LIMIT ?2"
            );
            let found = match workspace {
                Some(workspace) => rows(connection, &sql, params![before, most, workspace], session)?,
                None => rows(connection, &sql, params![before, most], session)?,
            };
            Ok(cut(found, limit))
        })
        .await
    }

    /// Counts the sessions: live, and all.
    pub async fn count_sessions(&self) -> Result<(i64, i64), StoreError> {
        self.read(|connection| {
            let live = "SELECT count(*) FROM sessions s WHERE s.phase NOT IN ('ended', 'parked')";
            let live = connection.prepare_cached(live)?.query_row([], |row| row.get(0))?;
            let all = connection
                .prepare_cached("SELECT count(*) FROM sessions")?
                .query_row([], |row| row.get(0))?;
            Ok((live, all))
        })
        .await
    }

    /// Returns the data that resuming a session needs.
    pub async fn stored_session(&self, id: SessionId) -> Result<Option<StoredSession>, StoreError> {
        self.read(move |connection| {
            let row = connection
                .prepare_cached("SELECT key, state, launch, consumed FROM sessions WHERE id = ?1")?
                .query_row([id.to_string()], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)?))
                })
                .optional()?;
            let Some((key, state, launch, consumed)) = row else { return Ok(None) };
            let sql = "SELECT n, message FROM outbox WHERE session = ?1 ORDER BY generation, n";
            let outbox = rows(connection, sql, [key], |row| {
                Ok((u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0), row.get(1)?))
            })?;
            let consumed = u64::try_from(consumed).unwrap_or(0);
            Ok(Some(StoredSession { state, launch, consumed, outbox }))
        })
        .await
    }

    /// Returns the spending of each session on a day, in millionths.
    pub async fn spent_on(&self, day: i64) -> Result<Vec<(SessionId, u64)>, StoreError> {
        self.read(move |connection| {
            let sql = "SELECT s.id, s.told FROM sessions s WHERE s.told IS NOT NULL";
            let infos: Vec<(SessionId, AgentInfo)> =
                rows(connection, sql, [], |row| Ok((text_id(row, 0)?, json_or_default(row, 1)?)))?;
            let spent = infos.into_iter().map(|(id, info)| (id, info.spent.cost_on_day(day)));
            Ok(spent.filter(|(_, micros)| *micros > 0).collect())
        })
        .await
    }

    /// Returns the sessions that were live at the last write.
    pub async fn live(&self) -> Result<Vec<SessionId>, StoreError> {
        self.read(|connection| {
            let sql = "SELECT s.id FROM sessions s WHERE s.phase NOT IN ('ended', 'parked')";
            rows(connection, sql, [], |row| text_id(row, 0))
        })
        .await
    }
}

pub(super) fn session_by_id(
    connection: &Connection,
    id: SessionId,
) -> Result<Option<SessionRecord>, StoreError> {
    let sql = format!("SELECT {SESSION} WHERE s.id = ?1");
    Ok(rows(connection, &sql, params![id.to_string()], session)?.pop().map(|(record, _)| record))
}

pub(super) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn session_key(connection: &Connection, id: SessionId) -> Result<Option<i64>, StoreError> {
    let mut select = connection.prepare_cached("SELECT key FROM sessions WHERE id = ?1")?;
    Ok(select.query_row([id.to_string()], |row| row.get(0)).optional()?)
}

pub(super) fn text_id<T: FromStr>(row: &Row<'_>, column: usize) -> Result<T, StoreError> {
    let text: String = row.get(column)?;
    text.parse().map_err(|_| StoreError::Corrupt { what: "an id" })
}

pub(super) fn rows<T>(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
    make: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(values)?;
    let mut out = Vec::new();
    while let Some(row) = found.next()? {
        out.push(make(row)?);
    }
    Ok(out)
}

/// Finds a row by a complete id or a unique prefix of one, typed with or without the prefix of its type.
pub(super) fn find<T>(
    connection: &Connection,
    select: &str,
    table: &str,
    prefix: &str,
    typed: &str,
    make: impl Fn(&Row<'_>) -> Result<(T, i64), StoreError>,
    id: impl Fn(&T) -> String,
) -> Result<IdLookup<T>, StoreError> {
    let tail = typed.strip_prefix(prefix).unwrap_or(typed).to_ascii_lowercase();
    // This also keeps `%` and `_` out of the comparison below.
    if tail.is_empty() || !tail.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(IdLookup::None);
    }
    let sql = format!(
        "SELECT {select} WHERE {table}.id >= ?1 AND {table}.id < ?2 ORDER BY {table}.key DESC LIMIT 6"
    );
    let low = format!("{prefix}{tail}");
    let high = format!("{low}~");
    Ok(one_of(rows(connection, &sql, params![low, high], make)?, id))
}

pub(super) fn one_of<T>(mut found: Vec<(T, i64)>, id: impl Fn(&T) -> String) -> IdLookup<T> {
    if found.len() > 1 {
        return IdLookup::Ambiguous(found.iter().map(|(item, _)| id(item)).collect());
    }
    found.pop().map_or(IdLookup::None, |(item, _)| IdLookup::One(item))
}

/// Returns one page of a ledger table, newest first.
#[expect(clippy::too_many_arguments, reason = "one query with its parts, used by three tables")]
pub(super) fn page<T>(
    connection: &Connection,
    select: &str,
    table: &str,
    state: &str,
    (wanted, session): (Option<&str>, Option<SessionId>),
    before: Option<i64>,
    limit: usize,
    make: impl Fn(&Row<'_>) -> Result<(T, i64), StoreError>,
) -> Result<RowPage<T>, StoreError> {
    // The state is one of our own words, so it needs no parameter; inlined, the partial index on pending rows is used.
    let of_state = wanted.map(|wanted| format!("AND {table}.{state} = '{wanted}'")).unwrap_or_default();
    let of_session = match session {
        Some(_) => format!("AND {table}.session = (SELECT key FROM sessions WHERE id = ?3)"),
        None => String::new(),
    };
    let sql = format!(
        "SELECT {select} WHERE {table}.key < ?1 {of_state} {of_session} ORDER BY {table}.key DESC LIMIT ?2"
    );
    let before = before.unwrap_or(i64::MAX);
    let found = match session {
        Some(session) => {
            rows(connection, &sql, params![before, signed(limit + 1), session.to_string()], make)?
        }
        None => rows(connection, &sql, params![before, signed(limit + 1)], make)?,
    };
    Ok(cut(found, limit))
}

/// Cuts rows to a page. One row more than requested was read, to know whether there is a next page.
fn cut<T>(mut found: Vec<(T, i64)>, limit: usize) -> RowPage<T> {
    let more = found.len() > limit;
    found.truncate(limit);
    let next = if more { found.last().map(|(_, key)| *key) } else { None };
    RowPage { items: found.into_iter().map(|(item, _)| item).collect(), next }
}

/// Parses a JSON column that older rows do not have.
fn json_or_default<T: DeserializeOwned + Default>(row: &Row<'_>, column: usize) -> Result<T, StoreError> {
    match row.get::<_, Option<String>>(column)? {
        None => Ok(T::default()),
        Some(json) => serde_json::from_str(&json).map_err(|_| StoreError::Corrupt { what: "a session" }),
    }
}

fn session(row: &Row<'_>) -> Result<(SessionRecord, i64), StoreError> {
    let corrupt = || StoreError::Corrupt { what: "a session" };
    let turn: Option<String> = row.get(9)?;
    let turn = match (turn, row.get::<_, Option<i64>>(10)?) {
        (Some(id), Some(at)) => {
            Some(Turn { id: id.parse().map_err(|_| corrupt())?, started_at: Time::from_millis(at) })
        }
        _ => None,
    };
    let (code, signal): (Option<i32>, Option<i32>) = (row.get(18)?, row.get(19)?);
    let record = SessionRecord {
        id: text_id(row, 0)?,
        name: row.get(1)?,
        agent: row.get(2)?,
        protocol: row.get(3)?,
        workspace: row.get::<_, String>(4)?.into(),
        phase: Phase::parse(&row.get::<_, String>(5)?).ok_or_else(corrupt)?,
        why: row.get(6)?,
        pid: row.get(7)?,
        generation: row.get(8)?,
        turn,
        pending_clearances: row.get(11)?,
        pending_questions: row.get(12)?,
        queue: row.get(13)?,
        stderr_tail: row.get(14)?,
        created_at: Time::from_millis(row.get(15)?),
        started_at: row.get::<_, Option<i64>>(16)?.map(Time::from_millis),
        ended_at: row.get::<_, Option<i64>>(17)?.map(Time::from_millis),
        exit: (code.is_some() || signal.is_some()).then_some(Exit { code, signal }),
        end_reason: row.get(20)?,
        unenforced: row.get(21)?,
        watch_state: json_or_default(row, 22)?,
        agent_info: json_or_default(row, 23)?,
        updated_at: row.get::<_, Option<i64>>(24)?.map(Time::from_millis),
        preset: Preset::parse(&row.get::<_, String>(25)?).ok_or_else(corrupt)?,
        failed: json_or_default(row, 26)?,
    };
    Ok((record, row.get(27)?))
}
