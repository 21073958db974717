//! Rebuilds the ledger from the log, to repair damaged rows, and to prove that the log is sufficient.
//!
//! The normal projection runs over the log, into temporary tables that hide the ledger's by their names. Then both are
//! compared. Rows without events are kept: those events may be what was lost.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Params};

use super::log::bulk_kinds;
use super::read::rows;
use super::{StoreError, projection, schema};
use intercom_types::{
    ColumnDifference, DifferenceKind, Event, EventKind, Json, LedgerDifference, LedgerRebuild, RebuildMode,
    RebuildProgress, Time,
};

/// The number of events between two reports of progress.
const REPORT_EVERY: usize = 10_000;
const LEDGER: [LedgerTable; 3] = [
    LedgerTable { name: "clearances", time: "requested_at" },
    LedgerTable { name: "questions", time: "asked_at" },
    LedgerTable { name: "prompts", time: "at" },
];
/// The projection also writes this table, which cannot be rebuilt: it outlives the sessions whose agents reported it.
const CACHE: &str = "known_agents";

struct LedgerTable {
    name: &'static str,
    /// The column that orders its rows.
    time: &'static str,
}

/// Compares the ledger of a database with its log, and replaces it on request. To replace it, no daemon may be running.
pub fn rebuild_ledger(
    path: &Path,
    mode: RebuildMode,
    progress: &mut dyn FnMut(RebuildProgress),
) -> Result<LedgerRebuild, StoreError> {
    if !path.exists() {
        return Err(StoreError::Unusable("missing: no daemon has used this state directory yet"));
    }
    let connection = match mode {
        RebuildMode::Replace => schema::open(path)?.0,
        RebuildMode::Compare => schema::open_to_compare(path)?,
    };
    // One transaction: one snapshot for both sides of the comparison, and an atomic change.
    connection.execute_batch(match mode {
        RebuildMode::Replace => "BEGIN IMMEDIATE",
        RebuildMode::Compare => "BEGIN",
    })?;
    let rebuild = rebuild(&connection, progress)?;
    if mode == RebuildMode::Replace && !rebuild.differences.is_empty() {
        for table in &LEDGER {
            table.replace(&connection)?;
        }
    }
    connection.execute_batch("COMMIT")?;
    Ok(rebuild)
}

fn rebuild(
    connection: &Connection,
    progress: &mut dyn FnMut(RebuildProgress),
) -> Result<LedgerRebuild, StoreError> {
    for name in LEDGER.iter().map(|table| table.name).chain([CACHE]) {
        shadow_table(connection, name)?;
    }
    let mut replay = LogReplay::default();
    replay.run(connection, progress)?;
    let mut rebuild = replay.result;
    if !replay.unordered.is_empty() {
        let count = replay.unordered.len();
        rebuild.unknown.push(format!("queues whose order was not recorded: {count}"));
        restore_column(
            connection,
            "prompts",
            "place",
            "session",
            replay.unordered.into_iter().map(Value::Integer),
        )?;
    }
    if !replay.options.is_empty() {
        let count = replay.options.len();
        rebuild.unknown.push(format!("expired clearances whose option was not recorded: {count}"));
        restore_column(
            connection,
            "clearances",
            "option",
            "id",
            replay.options.into_iter().map(Value::Text),
        )?;
    }
    for table in &LEDGER {
        rebuild.rows += table.compare(connection, &mut rebuild.differences)?;
    }
    Ok(rebuild)
}

/// Creates an empty temporary table like one of the database, which shadows that table by its name.
fn shadow_table(connection: &Connection, name: &str) -> Result<(), StoreError> {
    let made: String = connection.query_row(
        "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = ?1",
        [name],
        |row| row.get(0),
    )?;
    connection.execute_batch(&made.replacen("CREATE TABLE", "CREATE TEMP TABLE", 1))?;
    Ok(())
}

fn count(connection: &Connection, sql: &str, values: impl Params) -> Result<usize, StoreError> {
    let count: i64 = connection.query_row(sql, values, |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(0)) // a count is never negative
}

/// Copies a column from the stored rows for rows that have one of these values in another column.
fn restore_column(
    connection: &Connection,
    table: &str,
    column: &str,
    of: &str,
    values: impl Iterator<Item = Value>,
) -> Result<(), StoreError> {
    let sql = format!(
        "UPDATE temp.{table} SET {column} = coalesce((SELECT m.{column} FROM main.{table} m WHERE m.id = {table}.id), {column})
         WHERE {of} = ?1"
    );
    for value in values {
        connection.prepare_cached(&sql)?.execute([value])?;
    }
    Ok(())
}

/// A replay of the log from its beginning.
#[derive(Default)]
struct LogReplay {
    result: LedgerRebuild,
    /// The running generation by session: earlier releases did not record which process asked.
    generations: BTreeMap<i64, u32>,
    /// Sessions with a queue whose order was not recorded.
    unordered: BTreeSet<i64>,
    /// Clearances whose option was not recorded.
    options: BTreeSet<String>,
    /// Clearances that an earlier release recorded.
    old: BTreeSet<String>,
}

impl LogReplay {
    fn run(
        &mut self,
        connection: &Connection,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<(), StoreError> {
        let those = format!(
            "FROM main.events WHERE kind NOT IN ({}) AND session IN (SELECT key FROM sessions)",
            bulk_kinds()
        );
        let total = count(connection, &format!("SELECT count(*) {those}"), [])?;
        let mut select =
            connection.prepare(&format!("SELECT seq, session, at, kind, data {those} ORDER BY seq"))?;
        let mut events = select.query([])?;
        while let Some(row) = events.next()? {
            let (seq, session): (i64, i64) = (row.get(0)?, row.get(1)?);
            let (kind, data): (String, String) = (row.get(3)?, row.get(4)?);
            let event = Event::parse(&kind, &Json::trusted(data));
            if event.kind().is_none() && EventKind::parse(&kind).is_some() {
                self.result.misfits.push(format!("event {seq}, {kind}: its data cannot be read"));
            }
            let event = self.completed(session, event);
            if let Err(error) = projection::apply(connection, session, Time::from_millis(row.get(2)?), &event)
            {
                self.result.misfits.push(format!("event {seq}, {kind}: {error}"));
            }
            self.result.events += 1;
            if self.result.events.is_multiple_of(REPORT_EVERY) || self.result.events == total {
                progress(RebuildProgress { events: self.result.events, total });
            }
        }
        Ok(())
    }

    /// Completes facts that an earlier release did not record, from the events before.
    fn completed(&mut self, session: i64, mut event: Event) -> Event {
        match &mut event {
            Event::AgentSpawned(spawned) => {
                self.generations.insert(session, spawned.generation);
            }
            Event::SessionAdopted(adopted) => {
                self.generations.insert(session, adopted.generation);
            }
            Event::ClearanceRequested(requested) if requested.generation.is_none() => {
                requested.generation = self.generations.get(&session).copied();
                self.old.insert(requested.clearance.to_string());
            }
            Event::QuestionAsked(asked) if asked.generation.is_none() => {
                asked.generation = self.generations.get(&session).copied();
            }
            Event::ClearanceClosed(closed) if closed.decision.is_some() => {
                let id = closed.clearance.to_string();
                if self.old.contains(&id) {
                    self.options.insert(id);
                }
            }
            Event::PromptAmended(amended) if amended.place.is_some() && amended.order.is_empty() => {
                self.unordered.insert(session);
            }
            _ => {}
        }
        event
    }
}

impl LedgerTable {
    /// Returns all columns except the key, which only orders the rows.
    fn columns(&self, connection: &Connection) -> Result<Vec<String>, StoreError> {
        let sql = format!("SELECT name FROM main.pragma_table_info('{}') WHERE name <> 'key'", self.name);
        rows(connection, &sql, [], |row| Ok(row.get(0)?))
    }

    /// Compares the tables and returns the number of rebuilt rows.
    fn compare(
        &self,
        connection: &Connection,
        differences: &mut Vec<LedgerDifference>,
    ) -> Result<usize, StoreError> {
        let Self { name, time } = self;
        let mut found = |sql: &str, kind: &DifferenceKind| -> Result<(), StoreError> {
            for id in rows(connection, sql, [], |row| Ok(row.get(0)?))? {
                differences.push(LedgerDifference { id, kind: kind.clone() });
            }
            Ok(())
        };
        let only = |here: &str, there: &str| {
            format!(
                "SELECT id FROM {here}.{name} WHERE id NOT IN (SELECT id FROM {there}.{name}) ORDER BY {time}, key"
            )
        };
        found(&only("temp", "main"), &DifferenceKind::Missing)?;
        found(&only("main", "temp"), &DifferenceKind::NotInLog)?;
        let columns = self.columns(connection)?;
        let differs: Vec<String> =
            columns.iter().map(|column| format!("t.{column} IS NOT m.{column}")).collect();
        let pairs: Vec<String> = columns.iter().map(|column| format!("m.{column}, t.{column}")).collect();
        let sql = format!(
            "SELECT t.id, {} FROM temp.{name} t JOIN main.{name} m ON m.id = t.id WHERE {} ORDER BY t.{time}, t.key",
            pairs.join(", "),
            differs.join(" OR ")
        );
        differences.extend(rows(connection, &sql, [], |row| {
            let mut changed = Vec::new();
            for (at, column) in columns.iter().enumerate() {
                let (stored, rebuilt): (Value, Value) = (row.get(1 + 2 * at)?, row.get(2 + 2 * at)?);
                if stored != rebuilt {
                    let (stored, rebuilt) = (text(stored), text(rebuilt));
                    changed.push(ColumnDifference { column: column.clone(), stored, rebuilt });
                }
            }
            Ok(LedgerDifference { id: row.get(0)?, kind: DifferenceKind::Changed { columns: changed } })
        })?);
        count(connection, &format!("SELECT count(*) FROM temp.{name}"), [])
    }

    /// Replaces the stored rows by the rebuilt ones, together with those that the log does not have, in order of time.
    fn replace(&self, connection: &Connection) -> Result<(), StoreError> {
        let Self { name, time } = self;
        let columns = self.columns(connection)?.join(", ");
        connection.execute_batch(&format!(
            "INSERT INTO temp.{name} ({columns}) SELECT {columns} FROM main.{name}
                 WHERE id NOT IN (SELECT id FROM temp.{name}) ORDER BY key;
             DELETE FROM main.{name};
             INSERT INTO main.{name} ({columns}) SELECT {columns} FROM temp.{name} ORDER BY {time}, key;"
        ))?;
        Ok(())
    }
}

/// Formats a column's value for people.
fn text(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Integer(number) => Some(number.to_string()),
        Value::Real(number) => Some(number.to_string()),
        Value::Text(text) => Some(text),
        Value::Blob(bytes) => Some(format!("{} bytes", bytes.len())),
    }
}
