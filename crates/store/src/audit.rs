//! The audit: append-only rows, each with a hash of itself and of the row before.

mod anchor;
mod head;
mod inspect;
mod verify;

use ring::digest::{Context, SHA256};
use rusqlite::{Connection, Row, params};

pub(super) use self::anchor::{AnchoredHead, AuditAnchor};
pub use self::head::AuditHead;
pub(super) use self::head::{HeadCheck, mark_copy};
pub use self::inspect::inspect_audit;
pub use self::verify::AuditVerification;
use super::{Store, StoreError};
use intercom_types::{Actor, AuditRow, Json, NewAuditRow, SessionId, Time, hex};

type Hash = [u8; 32];

/// The previous hash of the first row.
const BEGINNING: Hash = [0; 32];
const COUNTER_REMOVED: StoreError = StoreError::Corrupt { what: "the counter of the audit" };

/// A selection of rows: oldest first, or newest first those `before` one.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub after: u64,
    pub before: Option<u64>,
    pub since: Option<Time>,
    pub session: Option<SessionId>,
}

/// Appends a row, in the transaction of the change that it records.
pub(super) fn append(connection: &Connection, entry: &NewAuditRow) -> Result<(), StoreError> {
    // From the counter and not from the last row: numbers of removed rows are not used again. The transaction began
    // with a check that both agree.
    let AuditHead { n, hash: previous } = head_of(connection)?;
    let n = n + 1;
    let session = entry.session.map(|id| id.to_string());
    let hash = hash(&ChainLink {
        n,
        at: entry.at.millis(),
        action: &entry.action,
        by: &entry.by,
        session: session.as_deref(),
        data: entry.data.as_str(),
        previous: &previous,
    });
    connection.prepare_cached("INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?.execute(
        params![n, entry.at.millis(), entry.action, entry.by, session, entry.data.as_str(), previous, hash],
    )?;
    head::advance(connection, n, &hash)
}

/// Returns the head of the chain in this transaction.
pub(super) fn head_of(connection: &Connection) -> Result<AuditHead, StoreError> {
    head::counter(connection)?.ok_or(COUNTER_REMOVED)
}

/// The input of a row's hash.
struct ChainLink<'a> {
    n: i64,
    at: i64,
    action: &'a str,
    by: &'a str,
    session: Option<&'a str>,
    data: &'a str,
    /// The stored hash of the previous row, even if that row was changed: this row is still appended, and verification
    /// names the changed one.
    previous: &'a [u8],
}

/// Hashes each field with its length, so that no two rows have the same input.
fn hash(link: &ChainLink<'_>) -> Hash {
    let mut context = Context::new(&SHA256);
    context.update(link.previous);
    context.update(&link.n.to_be_bytes());
    context.update(&link.at.to_be_bytes());
    context.update(&[u8::from(link.session.is_some())]);
    for field in [link.action, link.by, link.session.unwrap_or_default(), link.data] {
        context.update(&(field.len() as u64).to_be_bytes());
        context.update(field.as_bytes());
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl Store {
    /// Returns the head that this process has committed last.
    fn audit_head(&self) -> Option<AuditHead> {
        self.audit_head.borrow().clone()
    }

    /// Appends a row in a transaction of its own.
    pub async fn audit(&self, entry: NewAuditRow) -> Result<(), StoreError> {
        self.transact(move |connection| append(connection, &entry)).await
    }

    /// Returns a page of the audit.
    pub async fn audit_rows(&self, filter: AuditFilter, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.read(move |connection| {
            let order = if filter.before.is_some() { "DESC" } else { "ASC" };
            let mut select = connection.prepare_cached(&format!(
                "SELECT n, at, action, by, session, data, hash FROM audit
                 WHERE n > ?1 AND n < ?5 AND at >= ?2 AND (?3 IS NULL OR session = ?3) ORDER BY n {order} LIMIT ?4",
            ))?;
            let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
            let (after, before) = (signed(filter.after), filter.before.map_or(i64::MAX, signed));
            let since = filter.since.map_or(i64::MIN, Time::millis);
            let session = filter.session.map(|id| id.to_string());
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = select.query_map(params![after, since, session, limit, before], audit_row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Verifies every row and every link between them.
    pub async fn verify_audit(&self) -> Result<AuditVerification, StoreError> {
        // Read before the snapshot is taken: the snapshot must contain all that was committed before.
        let known = self.audit_head();
        let anchor = self.anchor.clone();
        self.read_log(move |connection| verify::verify(connection, known.as_ref(), anchor.as_deref())).await
    }
}

fn audit_row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    let (by, data) = (row.get::<_, String>(3)?, Json::trusted(row.get::<_, String>(5)?));
    Ok(AuditRow {
        n: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
        at: Time::from_millis(row.get(1)?),
        action: row.get(2)?,
        actor: Actor::of(&by, &data).into(),
        by,
        session: row.get(4)?,
        data,
        hash: hex(&row.get::<_, Vec<u8>>(6)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::Bell;

    async fn store(dir: &tempfile::TempDir, rows: u32) -> Store {
        let store = Store::open(&dir.path().join("intercom.db"), Bell::new()).unwrap();
        for n in 0..rows {
            let data = Json::of(&serde_json::json!({ "n": n }));
            let (action, by) = ("token.created".to_owned(), "ana".to_owned());
            store
                .audit(NewAuditRow { at: Time::from_millis(i64::from(n)), action, by, session: None, data })
                .await
                .unwrap();
        }
        store
    }

    /// Changes the table behind everybody's back, as somebody with the file could.
    async fn tamper(sql: &str) -> Vec<(u64, String)> {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 5).await;
        let connection = Connection::open(store.path()).unwrap();
        connection
            .execute_batch("DROP TRIGGER audit_is_not_changed; DROP TRIGGER audit_is_not_removed;")
            .unwrap();
        connection.execute_batch(sql).unwrap();
        store.verify_audit().await.unwrap().problems
    }

    #[tokio::test]
    async fn an_untouched_chain_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let found = store(&dir, 5).await.verify_audit().await.unwrap();
        assert_eq!((found.rows, found.problems), (5, vec![]));
        assert_eq!(found.head.len(), 64);
    }

    #[tokio::test]
    async fn rows_are_read_from_either_end() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 5).await;
        let read = async |after, before| {
            let since = Some(Time::from_millis(1));
            let filter = AuditFilter { after, before, since, session: None };
            let rows = store.audit_rows(filter, 2).await.unwrap();
            rows.into_iter().map(|row| row.n).collect::<Vec<_>>()
        };
        assert_eq!(read(0, None).await, [2, 3]);
        assert_eq!(read(3, None).await, [4, 5]);
        assert_eq!(read(0, Some(u64::MAX)).await, [5, 4]);
        assert_eq!(read(0, Some(4)).await, [3, 2]);
        assert_eq!(read(0, Some(2)).await, [0; 0]);
    }

    #[tokio::test]
    async fn whatever_was_done_to_a_row_it_is_named() {
        for (sql, expected) in [
            ("UPDATE audit SET by = 'eve' WHERE n = 3", vec![(3, "altered: token.created by eve")]),
            ("UPDATE audit SET data = '{}' WHERE n = 5", vec![(5, "altered: token.created by ana")]),
            ("UPDATE audit SET session = '' WHERE n = 1", vec![(1, "altered: token.created by ana")]),
            ("DELETE FROM audit WHERE n = 2", vec![(2, "missing")]),
            ("DELETE FROM audit WHERE n < 3", vec![(1, "missing to 2")]),
            ("DELETE FROM audit WHERE n > 3", vec![(4, "missing to 5")]),
            (
                "UPDATE audit SET n = 9 WHERE n = 2; UPDATE audit SET n = 2 WHERE n = 3; UPDATE audit SET n = 3 WHERE n = 9",
                vec![
                    (2, "does not follow row 1"),
                    (2, "altered: token.created by ana"),
                    (3, "does not follow row 2"),
                    (3, "altered: token.created by ana"),
                    (4, "does not follow row 3"),
                ],
            ),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|(n, what)| (n, what.to_owned())).collect();
            assert_eq!(tamper(sql).await, expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn the_table_itself_refuses_changes() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 1).await;
        let connection = Connection::open(store.path()).unwrap();
        assert!(connection.execute("UPDATE audit SET by = 'eve'", []).is_err());
        assert!(connection.execute("DELETE FROM audit", []).is_err());
    }
}
