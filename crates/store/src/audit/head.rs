//! The head of the audit chain, and the check that nothing behind it was removed.
//!
//! The newest row's number and hash are recorded in up to four places: in the row itself, in the table `audit_head`, in
//! the memory of the running daemon, and in the anchor file. Every transaction begins by comparing them, before
//! anything is appended: an appended row would continue a truncated chain and hide the cut.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use super::anchor::AnchoredHead;
use super::{BEGINNING, append};
use crate::StoreError;
use intercom_types::{Json, NewAuditRow, Time, hex};

/// The action of a row that records a break of the chain.
pub(super) const BROKEN: &str = "audit.broken";
/// The action of a row that records the first start on a copy made by `intercom backup`.
pub(super) const RESTORED: &str = "audit.restored";
/// The action of a row that records the beginning of an anchor file.
const ANCHOR_BEGUN: &str = "audit.anchor_begun";
/// The author of these rows.
const BY: &str = "intercom";
/// The mark in a backup, beside the counters: the time when it was made.
const COPIED_AT: &str = "copied_at";

/// The number and hash of one row: the newest, unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditHead {
    pub n: i64,
    pub hash: Vec<u8>,
}

impl AuditHead {
    /// The head of a chain without rows.
    pub(super) fn none() -> Self {
        Self { n: 0, hash: BEGINNING.to_vec() }
    }
}

/// Returns the counter of the database. `None` if it was removed.
pub(super) fn counter(connection: &Connection) -> Result<Option<AuditHead>, StoreError> {
    let mut select = connection.prepare_cached("SELECT n, hash FROM audit_head")?;
    Ok(select.query_row([], |row| Ok(AuditHead { n: row.get(0)?, hash: row.get(1)? })).optional()?)
}

pub(super) fn advance(connection: &Connection, n: i64, hash: &[u8]) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE audit_head SET n = ?1, hash = ?2")?.execute(params![n, hash])?;
    Ok(())
}

pub(super) fn last_row(connection: &Connection) -> Result<AuditHead, StoreError> {
    let mut select = connection.prepare_cached("SELECT n, hash FROM audit ORDER BY n DESC LIMIT 1")?;
    let last = select.query_row([], |row| Ok(AuditHead { n: row.get(0)?, hash: row.get(1)? })).optional()?;
    Ok(last.unwrap_or_else(AuditHead::none))
}

pub(super) fn hash_of(connection: &Connection, n: i64) -> Result<Option<Vec<u8>>, StoreError> {
    if n == 0 {
        return Ok(Some(BEGINNING.to_vec()));
    }
    let mut select = connection.prepare_cached("SELECT hash FROM audit WHERE n = ?1")?;
    Ok(select.query_row([n], |row| row.get(0)).optional()?)
}

/// Marks a copy, so that a daemon that starts on it records the restore.
pub(crate) fn mark_copy(copy: &Connection, now: Time) -> rusqlite::Result<()> {
    copy.execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", params![COPIED_AT, now.millis()]).map(drop)
}

/// A contradiction between the chain and an earlier head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChainBreak {
    /// The first and the last missing row.
    missing: Option<(i64, i64)>,
    /// The witness whose head is not in the chain.
    known_from: &'static str,
    pub(super) message: String,
    /// The head that new rows follow.
    resume_after: AuditHead,
}

/// The check at the beginning of each transaction.
#[derive(Debug, Default)]
pub(crate) struct HeadCheck {
    /// A head that the chain must contain: at the start the anchor's, later the one committed last.
    expected: Option<(AuditHead, &'static str)>,
    /// An anchor file is configured, and it was empty.
    anchor_is_new: bool,
    /// The first check was committed; later checks skip the marks of a restore.
    started: bool,
}

impl HeadCheck {
    pub(crate) fn new(anchored: AnchoredHead) -> Self {
        let anchor_is_new = anchored == AnchoredHead::None;
        let expected = match anchored {
            AnchoredHead::Newest(head) => Some((head, "anchor file")),
            AnchoredHead::None | AnchoredHead::NotConfigured => None,
        };
        Self { expected, anchor_is_new, started: false }
    }

    /// Checks the chain and appends a row about each break, in this transaction.
    pub(crate) fn run(&self, connection: &Connection, now: Time) -> Result<(), StoreError> {
        let (counter, last) = (counter(connection)?, last_row(connection)?);
        let is_expected = self.expected.as_ref().is_some_and(|(head, _)| *head == last);
        if self.started && is_expected && counter.as_ref() == Some(&last) {
            return Ok(());
        }
        let copied_at = if self.started { None } else { take_copy_mark(connection)? };
        let found = self.find_break(connection, counter.as_ref(), &last)?;
        if let Some(found) = &found {
            continue_after(connection, counter.as_ref(), &found.resume_after)?;
        }
        // A complete copy is behind the anchor without contradicting it.
        let is_restore = |found: &ChainBreak| found.missing.is_some() && counter.as_ref() == Some(&last);
        match (copied_at, found) {
            (Some(at), None) => record(connection, now, RESTORED, &restore(at, None))?,
            (Some(at), Some(found)) if is_restore(&found) => {
                record(connection, now, RESTORED, &restore(at, found.missing))?;
            }
            (_, Some(found)) => {
                tracing::error!("audit {}; `intercom audit --verify` has details", found.message);
                record(connection, now, BROKEN, &found.json(&last))?;
            }
            (None, None) => {}
        }
        if self.anchor_is_new && !self.started {
            record(connection, now, ANCHOR_BEGUN, &json!({ "after_row": last.n }))?;
        }
        Ok(())
    }

    /// Records the head that a transaction has committed.
    pub(crate) fn committed(&mut self, head: AuditHead) {
        self.expected = Some((head, "running daemon"));
        self.started = true;
    }

    pub(super) fn find_break(
        &self,
        connection: &Connection,
        counter: Option<&AuditHead>,
        last: &AuditHead,
    ) -> Result<Option<ChainBreak>, StoreError> {
        let Some(counter) = counter else {
            let resume_after = self.expected.as_ref().map(|(head, _)| head).filter(|head| head.n > last.n);
            let message = "chain broken: its counter was removed".to_owned();
            let resume_after = resume_after.unwrap_or(last).clone();
            let missing = (resume_after.n > last.n).then_some((last.n + 1, resume_after.n));
            return Ok(Some(ChainBreak { missing, known_from: "counter", message, resume_after }));
        };
        let expected = self.expected.as_ref().map(|(head, from)| (head, *from));
        let witnesses = [Some((counter, "counter")), expected].into_iter().flatten();
        // The witness with the most rows decides: its number is never used again.
        let mut worst: Option<ChainBreak> = None;
        for (head, known_from) in witnesses {
            if let Some(found) = contradiction(connection, head, known_from, last)?
                && worst.as_ref().is_none_or(|worst| worst.resume_after.n < found.resume_after.n)
            {
                worst = Some(found);
            }
        }
        if worst.is_none() && counter.n < last.n {
            let message = format!(
                "chain broken: {} not written by the daemon, whose counter ends at row {}",
                if last.n - counter.n == 1 {
                    format!("row {} was", last.n)
                } else {
                    format!("rows {} to {} were", counter.n + 1, last.n)
                },
                counter.n
            );
            worst = Some(ChainBreak {
                missing: None,
                known_from: "counter",
                message,
                resume_after: last.clone(),
            });
        }
        Ok(worst)
    }
}

/// Returns the break, if this head is not in the chain.
fn contradiction(
    connection: &Connection,
    head: &AuditHead,
    known_from: &'static str,
    last: &AuditHead,
) -> Result<Option<ChainBreak>, StoreError> {
    if head.n > last.n {
        let missing = (last.n + 1, head.n);
        let message = format!("chain broken: {}", rows_missing(missing));
        return Ok(Some(ChainBreak {
            missing: Some(missing),
            known_from,
            message,
            resume_after: head.clone(),
        }));
    }
    let message = match hash_of(connection, head.n)? {
        Some(hash) if hash == head.hash => return Ok(None),
        Some(_) => format!("chain broken: row {} is not the row that was written", head.n),
        None => format!("chain broken: {}", rows_missing((head.n, head.n))),
    };
    let resume_after = if head.n == last.n { head } else { last }.clone();
    Ok(Some(ChainBreak { missing: None, known_from, message, resume_after }))
}

fn rows_missing((from, to): (i64, i64)) -> String {
    if from == to { format!("row {from} is missing") } else { format!("rows {from} to {to} are missing") }
}

impl ChainBreak {
    fn json(&self, last: &AuditHead) -> serde_json::Value {
        let Self { missing, known_from, message, resume_after } = self;
        json!({
            "message": message, "missing": missing.map(|(from, to)| json!({ "from": from, "to": to })),
            "known_from": known_from, "expected_head": hex(&resume_after.hash), "found_row": last.n,
            "found_head": hex(&last.hash),
        })
    }
}

fn restore(copied_at: Time, missing: Option<(i64, i64)>) -> serde_json::Value {
    let since_then = missing.map(|missing| format!("; {} since then", rows_missing(missing)));
    let message = format!("restored from a backup of {copied_at}{}", since_then.unwrap_or_default());
    json!({
        "message": message, "copied_at": copied_at.to_string(),
        "missing": missing.map(|(from, to)| json!({ "from": from, "to": to })),
    })
}

/// Sets the counter to this head. The numbers of missing rows are not used again, so that the gap stays visible.
fn continue_after(
    connection: &Connection,
    counter: Option<&AuditHead>,
    head: &AuditHead,
) -> Result<(), StoreError> {
    match counter {
        None => {
            connection
                .prepare_cached("INSERT INTO audit_head VALUES (1, ?1, ?2)")?
                .execute(params![head.n, head.hash])?;
        }
        Some(counter) if counter.n < head.n => advance(connection, head.n, &head.hash)?,
        Some(_) => {}
    }
    Ok(())
}

fn take_copy_mark(connection: &Connection) -> Result<Option<Time>, StoreError> {
    let mut take = connection.prepare("DELETE FROM meta WHERE key = ?1 RETURNING value")?;
    Ok(take.query_row([COPIED_AT], |row| row.get(0)).optional()?.map(Time::from_millis))
}

fn record(
    connection: &Connection,
    at: Time,
    action: &str,
    data: &serde_json::Value,
) -> Result<(), StoreError> {
    let (action, by) = (action.to_owned(), BY.to_owned());
    append(connection, &NewAuditRow { at, action, by, session: None, data: Json::of(data) })
}
