//! One session's share of a transaction.

use rusqlite::{Connection, named_params, params};

use super::blocks::PlainBlocks;
use super::read::session_key;
use super::{StoreError, audit, projection, stats};
use intercom_types::{EventKind, Json, NewAuditRow, NewEvent, SessionId, SessionRecord, Time};

/// The number of bulk events from which on a write stores them as a block. Below it rows are about as fast, and a page of
/// 500 events meets at most 16 blocks that are not packed.
const MIN_BLOCK: usize = 32;
/// The size of a block's data that costs a transaction as much as a row.
const BYTES_OF_A_ROW: usize = 1024;

/// Changes of one session that are committed together.
#[derive(Debug)]
pub struct SessionWrite {
    pub session: SessionId,
    pub generation: u32,
    pub events: Vec<NewEvent>,
    pub outgoing: Vec<OutgoingChange>,
    pub snapshot: Option<Box<SessionSnapshot>>,
    /// The number of bytes of the agent's output that these events were parsed from, counted from the start of its
    /// generation.
    pub consumed: Option<u64>,
    /// A caller waits for it: it precedes bulk output of other sessions.
    pub urgent: bool,
    /// The session may be unknown, in any generation: its process was found running.
    pub adopts: bool,
}

/// A change to the list of messages on their way to the agent.
#[derive(Debug)]
pub enum OutgoingChange {
    Sent {
        n: u64,
        message: Vec<u8>,
    },
    Settled {
        n: u64,
    },
    /// The process has exited: no message is in transit any more.
    Cleared,
}

/// The current state of a session.
#[derive(Debug)]
pub struct SessionSnapshot {
    pub record: SessionRecord,
    /// The state in the state machine's own format, opaque to the store.
    pub state: String,
    /// The launch specification for a restart; only at its creation.
    pub launch: Option<String>,
}

impl SessionWrite {
    /// Reports whether nothing would change.
    pub fn is_empty(&self) -> bool {
        let Self { events, outgoing, snapshot, consumed, .. } = self;
        events.is_empty() && outgoing.is_empty() && snapshot.is_none() && consumed.is_none()
    }

    /// Returns true if one of the events is more than bulk output of an agent. An unknown kind is one.
    pub(super) fn has_landmark(&self) -> bool {
        !self.events.iter().all(|new| new.event.kind().is_some_and(EventKind::is_bulk))
    }

    pub(super) fn apply(&self, connection: &Connection, next: &mut u64) -> Result<(), StoreError> {
        let begins = (self.generation == 1 || self.adopts)
            && self.snapshot.as_ref().is_some_and(|snapshot| snapshot.launch.is_some());
        let known = session_key(connection, self.session)?;
        if known.is_none() && !begins {
            return Err(StoreError::Removed);
        }
        if let Some(snapshot) = &self.snapshot {
            snapshot.save(connection)?;
        }
        let key = match known {
            Some(key) => key,
            None => session_key(connection, self.session)?.ok_or(StoreError::Removed)?,
        };
        self.append(connection, key, next)?;
        for outgoing in &self.outgoing {
            outgoing.apply(connection, key, self.generation)?;
        }
        Ok(())
    }

    /// Converts an event to its audit row, under the name of the person who acted.
    fn audited(&self, new: &NewEvent, data: &str) -> NewAuditRow {
        NewAuditRow {
            at: new.at,
            action: new.event.name().to_owned(),
            by: new.event.by().unwrap_or("intercom").to_owned(),
            session: Some(self.session),
            data: Json::trusted(data),
        }
    }

    /// Returns the number of its events of bulk kinds.
    fn bulk_events(&self) -> usize {
        self.events.iter().filter(|new| is_bulk(new)).count()
    }

    /// Returns its approximate cost in a transaction, in rows.
    pub(super) fn cost(&self) -> usize {
        let bulk = self.bulk_events();
        let others = 1 + self.events.len() - bulk;
        if bulk < MIN_BLOCK {
            return others + bulk;
        }
        let bytes: usize =
            self.events.iter().filter(|new| is_bulk(new)).map(|new| new.event.size_hint()).sum();
        others + 1 + bytes / BYTES_OF_A_ROW
    }

    fn append(&self, connection: &Connection, key: i64, next: &mut u64) -> Result<(), StoreError> {
        let in_block = self.bulk_events() >= MIN_BLOCK;
        let mut insert = connection.prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let mut blocks = PlainBlocks::new(connection, key);
        let mut bytes = 0;
        for new in &self.events {
            let seq = i64::try_from(*next).unwrap_or(i64::MAX);
            let data = new.event.data();
            if is_bulk(new) && in_block {
                blocks.push(seq, new.at.millis(), new.event.name(), &data)?;
            } else {
                // Before the event is logged: an event that comes too late is not recorded.
                projection::apply(connection, key, new.at, &new.event)?;
                insert.execute(params![seq, key, new.at.millis(), new.event.name(), data])?;
                if new.event.kind().is_some_and(EventKind::is_audited) {
                    audit::append(connection, &self.audited(new, &data))?;
                }
            }
            bytes += data.len();
            *next += 1;
        }
        blocks.finish()?;
        stats::count(connection, key, &self.events)?;
        if bytes > 0 || self.consumed.is_some() {
            let consumed = self.consumed.map(|offset| i64::try_from(offset).unwrap_or(i64::MAX));
            let last_event_at = self.events.last().map(|new| new.at.millis());
            connection
                .prepare_cached(
                    "UPDATE sessions SET bytes = bytes + ?2, consumed = coalesce(?3, consumed),
                         last_event_at = coalesce(?4, last_event_at) WHERE key = ?1",
                )?
                .execute(params![key, i64::try_from(bytes).unwrap_or(i64::MAX), consumed, last_event_at])?;
        }
        Ok(())
    }
}

fn is_bulk(new: &NewEvent) -> bool {
    new.event.kind().is_some_and(EventKind::is_bulk)
}

impl SessionSnapshot {
    fn save(&self, connection: &Connection) -> Result<(), StoreError> {
        let r = &self.record;
        connection
            .prepare_cached(
                "INSERT INTO sessions (id, name, agent, protocol, workspace, phase, why, pid, generation, turn,
                     turn_started_at, pending_clearances, pending_questions, queue, stderr_tail, created_at,
                     started_at, ended_at, exit_code, exit_signal, end_reason, unenforced, watched, told, preset, failed,
                     launch, state)
                 VALUES (:id, :name, :agent, :protocol, :workspace, :phase, :why, :pid, :generation, :turn,
                     :turn_started_at, :pending_clearances, :pending_questions, :queue, :stderr_tail, :created_at,
                     :started_at, :ended_at, :exit_code, :exit_signal, :end_reason, :unenforced, :watched, :told, :preset,
                     :failed, coalesce(:launch, '{}'),
                     :state)
                 ON CONFLICT (id) DO UPDATE SET agent = :agent, protocol = :protocol, phase = :phase, why = :why, pid = :pid, generation = :generation,
                     turn = :turn, turn_started_at = :turn_started_at, pending_clearances = :pending_clearances,
                     pending_questions = :pending_questions, queue = :queue, stderr_tail = :stderr_tail,
                     started_at = :started_at, ended_at = :ended_at, exit_code = :exit_code,
                     exit_signal = :exit_signal, end_reason = :end_reason, unenforced = :unenforced,
                     watched = :watched, told = :told, preset = :preset, failed = :failed, launch = coalesce(:launch, launch),
                     state = :state",
            )?
            .execute(named_params! {
                ":id": r.id.to_string(),
                ":name": r.name,
                ":agent": r.agent,
                ":protocol": r.protocol,
                ":workspace": r.workspace.to_string_lossy(),
                ":phase": r.phase.as_str(),
                ":why": r.why,
                ":pid": r.pid,
                ":generation": r.generation,
                ":turn": r.turn.as_ref().map(|turn| turn.id.to_string()),
                ":turn_started_at": r.turn.as_ref().map(|turn| turn.started_at.millis()),
                ":pending_clearances": r.pending_clearances,
                ":pending_questions": r.pending_questions,
                ":queue": r.queue,
                ":stderr_tail": r.stderr_tail,
                ":created_at": r.created_at.millis(),
                ":started_at": r.started_at.map(Time::millis),
                ":ended_at": r.ended_at.map(Time::millis),
                ":exit_code": r.exit.as_ref().and_then(|exit| exit.code),
                ":exit_signal": r.exit.as_ref().and_then(|exit| exit.signal),
                ":end_reason": r.end_reason,
                ":unenforced": r.unenforced,
                ":told": serde_json::to_string(&r.agent_info).expect("it has string keys only"),
                ":watched": serde_json::to_string(&r.watch_state).expect("it has string keys only"),
                ":preset": r.preset.as_str(),
                ":failed": r.failed.as_ref().map(|failed| serde_json::to_string(failed).expect("it has string keys only")),
                ":launch": self.launch,
                ":state": self.state,
            })?;
        Ok(())
    }
}

impl OutgoingChange {
    fn apply(&self, connection: &Connection, key: i64, generation: u32) -> Result<(), StoreError> {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        match self {
            Self::Sent { n, message } => connection
                .prepare_cached("INSERT INTO outbox VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![key, generation, signed(*n), message])?,
            Self::Settled { n } => connection
                .prepare_cached("DELETE FROM outbox WHERE session = ?1 AND generation = ?2 AND n = ?3")?
                .execute(params![key, generation, signed(*n)])?,
            Self::Cleared => {
                connection.prepare_cached("DELETE FROM outbox WHERE session = ?1")?.execute([key])?
            }
        };
        Ok(())
    }
}
