//! The look at the whole chain.

use std::io;

use rusqlite::{Connection, Row};
use serde::Deserialize;

use super::anchor::{AuditAnchor, each_head};
use super::head::{AuditHead, BROKEN, RESTORED, counter, hash_of};
use super::{BEGINNING, ChainLink, hash};
use crate::StoreError;
use intercom_types::hex;

/// More than this many problems are not worth naming.
const MAX_PROBLEMS: usize = 100;

/// The result of a look at the whole chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditVerification {
    pub rows: u64,
    /// The hash of the last row: stored elsewhere, it shows later that nothing before it was rewritten.
    pub head: String,
    /// The number of the row, and the problem.
    pub problems: Vec<(u64, String)>,
    /// The number of the row, and a restore that explains missing rows.
    pub notes: Vec<(u64, String)>,
    /// Lines of the anchor file that were compared.
    pub anchors: u64,
}

impl AuditVerification {
    fn problem(&mut self, n: i64, what: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push((u64::try_from(n).unwrap_or(0), what.into()));
        }
    }

    fn missing(&mut self, (from, to): (i64, i64)) {
        self.problem(from, if from == to { "missing".to_owned() } else { format!("missing to {to}") });
    }
}

/// The part of a row about a break or a restore that verification needs.
#[derive(Debug, Default, Deserialize)]
struct BreakAccount {
    message: Option<String>,
    missing: Option<MissingRows>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct MissingRows {
    from: i64,
    to: i64,
}

/// The scan of the rows, from the first to the last.
struct ChainScan {
    found: AuditVerification,
    /// The number and the `previous` of the next row.
    expected: i64,
    before: Vec<u8>,
    /// Missing numbers, reported or explained: no witness needs to name them again.
    gaps: Vec<(i64, i64)>,
}

/// Verifies the chain. `known` is the head that the running daemon has committed. The connection must be in a
/// transaction: between two snapshots, a commit would make rows and counter look contradictory.
pub(super) fn verify(
    connection: &Connection,
    known: Option<&AuditHead>,
    anchor: Option<&AuditAnchor>,
) -> Result<AuditVerification, StoreError> {
    let mut select = connection
        .prepare("SELECT n, at, action, by, session, data, previous, hash FROM audit ORDER BY n")?;
    let mut rows = select.query([])?;
    let (found, before) = (AuditVerification::default(), BEGINNING.to_vec());
    let mut scan = ChainScan { found, expected: 1, before, gaps: Vec::new() };
    while let Some(row) = rows.next()? {
        scan.row(row)?;
    }
    match counter(connection)? {
        Some(head) => scan.counter(&head),
        None => scan.found.problem(scan.expected - 1, "the counter of the audit was removed"),
    }
    if let Some(known) = known {
        scan.witness(connection, known, "the running daemon")?;
    }
    if let Some(anchor) = anchor {
        scan.anchor(connection, anchor)?;
    }
    let ChainScan { mut found, before, .. } = scan;
    found.head = hex(&before);
    Ok(found)
}

impl ChainScan {
    fn row(&mut self, row: &Row<'_>) -> Result<(), StoreError> {
        let n: i64 = row.get(0)?;
        let (action, by, data): (String, String, String) = (row.get(2)?, row.get(3)?, row.get(5)?);
        let (session, previous): (Option<String>, Vec<u8>) = (row.get(4)?, row.get(6)?);
        let stored: Vec<u8> = row.get(7)?;
        let link = ChainLink {
            n,
            at: row.get(1)?,
            action: &action,
            by: &by,
            session: session.as_deref(),
            data: &data,
            previous: &previous,
        };
        let is_altered = hash(&link)[..] != stored[..];
        let account = self.account(n, &action, &data);
        if n > self.expected {
            let gap = (self.expected, n - 1);
            self.gaps.push(gap);
            let explained = account.filter(|_| action == RESTORED && !is_altered);
            if explained.is_none_or(|missing| (missing.from, missing.to) != gap) {
                self.found.missing(gap);
            }
        } else if previous != self.before {
            self.found.problem(n, format!("does not follow row {}", n - 1));
        }
        if is_altered {
            self.found.problem(n, format!("altered: {action} by {by}"));
        }
        self.found.rows += 1;
        (self.expected, self.before) = (n + 1, stored);
        Ok(())
    }

    /// Reports a recorded break, always: no later row repairs it.
    fn account(&mut self, n: i64, action: &str, data: &str) -> Option<MissingRows> {
        if ![BROKEN, RESTORED].contains(&action) {
            return None;
        }
        let BreakAccount { message, missing } = serde_json::from_str(data).unwrap_or_default();
        let message = message.unwrap_or_else(|| action.to_owned());
        if action == BROKEN {
            self.found.problem(n, message);
        } else if self.found.notes.len() < MAX_PROBLEMS {
            self.found.notes.push((u64::try_from(n).unwrap_or(0), message));
        }
        missing
    }

    fn counter(&mut self, head: &AuditHead) {
        let last = self.expected - 1;
        if head.n > last {
            self.gaps.push((last + 1, head.n));
            self.found.missing((last + 1, head.n));
        } else if head.n < last {
            let what = format!("not written by the daemon: its counter ends at row {}", head.n);
            self.found.problem(head.n + 1, what);
        } else if head.hash != self.before {
            self.found.problem(last, "not the row that was written last");
        }
    }

    fn witness(&mut self, connection: &Connection, head: &AuditHead, from: &str) -> Result<(), StoreError> {
        if self.gaps.iter().any(|(first, last)| (*first..=*last).contains(&head.n)) {
            return Ok(());
        }
        match hash_of(connection, head.n)? {
            Some(hash) if hash == head.hash => {}
            Some(_) => self.found.problem(head.n, format!("not the row that {from} knows")),
            None => self.found.problem(head.n, format!("missing: {from} knows it")),
        }
        Ok(())
    }

    fn anchor(&mut self, connection: &Connection, anchor: &AuditAnchor) -> Result<(), StoreError> {
        // Taken before the file is read: the file may have more by then, never less.
        let written = anchor.written();
        let (mut failed, mut has_written) = (None, false);
        let read = each_head(anchor.file(), |head| {
            self.found.anchors += 1;
            has_written |= written.as_ref() == Some(&head);
            if failed.is_none() {
                failed = self.witness(connection, &head, "the anchor file").err();
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        match read {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.found.problem(0, format!("the anchor file cannot be read: {error}"));
            }
            _ => {
                if let Some(written) = written.filter(|_| !has_written) {
                    self.found.problem(written.n, "removed from the anchor file");
                }
            }
        }
        Ok(())
    }
}
