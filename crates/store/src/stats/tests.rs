//! The counts against a look at the whole log.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::bus::Bell;
use crate::{SessionWrite, schema};
use intercom_types::event::RawMessage;
use intercom_types::{Event, Json, SessionId};

const HOUR: i64 = 3_600_000;

/// What happens to a log.
#[derive(Debug, Clone)]
enum Step {
    /// Events of one session, at these times.
    Say(usize, Vec<i64>),
    Remove(usize),
    /// Some of the old events are counted.
    CountPiece,
}

fn step() -> impl Strategy<Value = Step> {
    let times = proptest::collection::vec(0..40 * HOUR, 1..6);
    prop_oneof![
        8 => (0..4usize, times).prop_map(|(session, times)| Step::Say(session, times)),
        1 => (0..4usize).prop_map(Step::Remove),
        1 => Just(Step::CountPiece),
    ]
}

/// A database of the version before the counts, with sessions that have ended and events of theirs.
fn old_log(path: &std::path::Path, sessions: &[SessionId], times: &[(usize, i64)]) {
    let old = schema::old_database(path, 9);
    for id in sessions {
        let sql = "INSERT INTO sessions (id, protocol, workspace, phase, why, generation, pending_clearances, pending_questions,
                queue, stderr_tail, created_at, ended_at, launch, state)
            VALUES (?1, 'intercom', '/', 'ended', '', 1, 0, 0, 0, '', 0, 0, '{}', '{}')";
        old.execute(sql, [id.to_string()]).unwrap();
    }
    for (seq, (session, at)) in (1i64..).zip(times) {
        let sql = "INSERT INTO events VALUES (?1, ?2, ?3, 'status', '{}')";
        old.execute(sql, params![seq, i64::try_from(*session).unwrap() + 1, at]).unwrap();
    }
    let next = i64::try_from(times.len()).unwrap() + 1;
    old.execute("UPDATE meta SET value = ?1 WHERE key = 'next_seq'", [next]).unwrap();
}

/// The counts as the whole log has them.
fn scan(store: &Store, since: i64, stretch: i64, session: Option<SessionId>) -> BTreeMap<i64, i64> {
    let connection = Connection::open(store.path()).unwrap();
    let sql = "SELECT e.at / ?2, count(*) FROM events e JOIN sessions s ON s.key = e.session
        WHERE e.at >= ?1 AND (?3 IS NULL OR s.id = ?3) GROUP BY 1";
    let mut select = connection.prepare(sql).unwrap();
    let session = session.map(|id| id.to_string());
    let rows = select.query_map(params![since, stretch, session], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

async fn check_counts(store: &Store, sessions: &[SessionId]) {
    for hours in [1, 7, 24] {
        let stretch = hours * COUNTED_STRETCH_MILLIS;
        for first in [0, 3, 400] {
            let since = first * stretch;
            for session in std::iter::once(None).chain(sessions.iter().copied().map(Some)) {
                let counts = store.event_counts(Time::from_millis(since), stretch, session).await.unwrap();
                let mut found: BTreeMap<i64, i64> = BTreeMap::new();
                for (n, count) in counts {
                    *found.entry(n).or_default() += count;
                }
                assert_eq!(
                    found,
                    scan(store, since, stretch, session),
                    "{hours} hours from {since}, {session:?}"
                );
            }
        }
    }
}

async fn play(old: Vec<(usize, i64)>, steps: Vec<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("intercom.db");
    let sessions: Vec<SessionId> = (0..4).map(|_| SessionId::mint()).collect();
    // The log of an earlier version is in the order of time, near enough; here it is exactly.
    let mut old = old;
    old.sort_by_key(|(_, at)| *at);
    old_log(&path, &sessions, &old);
    let store = Store::open(&path, Bell::new()).unwrap();
    for step in steps {
        match step {
            Step::Say(session, times) => {
                let data = Json::trusted("{}");
                let event = |at: i64| NewEvent {
                    at: Time::from_millis(at),
                    event: Event::Status(RawMessage(data.clone())),
                };
                let write = SessionWrite {
                    session: sessions[session],
                    generation: 1,
                    events: times.into_iter().map(event).collect(),
                    outgoing: Vec::new(),
                    snapshot: None,
                    consumed: None,
                    urgent: false,
                    adopts: false,
                };
                store.write(Arc::new(write)).await.ok(); // the session may have been removed
            }
            Step::Remove(session) => {
                store.remove(sessions[session], "ana".to_owned(), Time::from_millis(0)).await.unwrap();
            }
            Step::CountPiece => {
                store.transact(count_piece).await.unwrap();
            }
        }
        check_counts(&store, &sessions).await;
    }
    store.count_old_events().await;
    check_counts(&store, &sessions).await;
    let connection = Connection::open(store.path()).unwrap();
    let left = connection.query_row(COUNTED_FROM, [], |row| row.get::<_, i64>(0)).optional().unwrap();
    assert_eq!(left, None, "all is counted");
    let odd = "SELECT count(*) FROM event_counts WHERE events <= 0";
    assert_eq!(connection.query_row(odd, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn the_counts_are_those_of_the_whole_log(
        old in proptest::collection::vec((0..4usize, 0..40 * HOUR), 0..30),
        steps in proptest::collection::vec(step(), 1..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(old, steps));
    }
}

/// A clearance or a question as its table has it: status, when it began and ended, and the ruling.
type Row = (bool, u8, i64, Option<i64>, u8);

fn row() -> impl Strategy<Value = Row> {
    (any::<bool>(), 0..5u8, 0..100i64, proptest::option::of(0..100i64), 0..3u8)
}

/// The waits by the query that looked at all rows of both tables.
fn scan_waits(connection: &Connection, since: i64, session: Option<i64>) -> Vec<RequestWait> {
    let sql = "SELECT c.session, c.requested_at, c.decided_at, c.status IN ('approved', 'denied')
            AND coalesce(json_extract(c.ruling, '$.outcome'), 'ask') = 'ask', c.status
        FROM clearances c
        WHERE (c.status = 'pending' OR coalesce(c.decided_at, c.requested_at) >= ?1) AND (?2 IS NULL OR c.session = ?2)
        UNION ALL
        SELECT q.session, q.asked_at, q.answered_at, 0, q.status FROM questions q
        WHERE (q.status = 'pending' OR coalesce(q.answered_at, q.asked_at) >= ?1) AND (?2 IS NULL OR q.session = ?2)";
    let mut select = connection.prepare(sql).unwrap();
    let rows = select.query_map(params![since, session], |row| {
        let (from, to): (i64, Option<i64>) = (row.get(1)?, row.get(2)?);
        let open = row.get::<_, String>(4)? == "pending";
        let to = (!open).then(|| Time::from_millis(to.unwrap_or(from)));
        Ok(RequestWait { session: row.get(0)?, from: Time::from_millis(from), to, decided: row.get(3)? })
    });
    let mut waits: Vec<RequestWait> = rows.unwrap().collect::<Result<_, _>>().unwrap();
    // What ended at once and was not decided by a person is in no figure.
    waits.retain(|wait| wait.decided || wait.to.is_none_or(|to| to > wait.from));
    waits.sort();
    waits
}

async fn compare_waits(table: Vec<Row>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("intercom.db");
    let sessions = [SessionId::mint(), SessionId::mint()];
    old_log(&path, &sessions, &[]);
    let store = Store::open(&path, Bell::new()).unwrap();
    let connection = Connection::open(&path).unwrap();
    for (n, (is_clearance, status, from, took, ruling)) in (0i64..).zip(table) {
        let (session, to) = (1 + n % 2, took.map(|took| from + took / 2));
        let statuses = ["pending", "approved", "denied", "withdrawn", "expired"];
        let ruling =
            [None, Some(r#"{"outcome":"ask"}"#), Some(r#"{"outcome":"allow"}"#)][usize::from(ruling)];
        let status = statuses[usize::from(status)];
        if is_clearance {
            let sql = "INSERT INTO clearances (id, session, generation, request, title, risk, options, status, delivery,
                requested_at, decided_at, ruling) VALUES (?1, ?2, 1, '1', '', 'low', '[]', ?3, 'none', ?4, ?5, ?6)";
            connection.execute(sql, params![n.to_string(), session, status, from, to, ruling]).unwrap();
        } else {
            let sql = "INSERT INTO questions (id, session, generation, request, text, status, delivery, asked_at, answered_at)
                VALUES (?1, ?2, 1, '1', '', ?3, 'none', ?4, ?5)";
            connection.execute(sql, params![n.to_string(), session, status, from, to]).unwrap();
        }
    }
    for since in [0, 30, 80] {
        for (key, session) in [(None, None), (Some(1), Some(sessions[0])), (Some(2), Some(sessions[1]))] {
            let mut waits = store.waits(Time::from_millis(since), session).await.unwrap();
            waits.sort();
            assert_eq!(waits, scan_waits(&connection, since, key), "since {since}, {key:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_waits_are_those_of_both_tables(table in proptest::collection::vec(row(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(compare_waits(table));
    }
}

/// No query of the charts looks at a whole table, whatever its size.
#[test]
fn the_charts_look_at_no_whole_table() {
    let dir = tempfile::tempdir().unwrap();
    let (connection, _) = schema::open(&dir.path().join("intercom.db")).unwrap();
    for sql in [waits_sql(""), waits_sql(" AND session = ?3")] {
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        for n in 1..=plan.parameter_count() {
            plan.raw_bind_parameter(n, 1).unwrap();
        }
        let mut rows = plan.raw_query();
        let mut lines = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            lines.push(row.get::<_, String>(3).unwrap());
        }
        let scans: Vec<&String> =
            lines.iter().filter(|line| line.starts_with("SCAN") && !line.contains("_pending")).collect();
        assert!(scans.is_empty(), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("USING INDEX clearances_waited")), "{lines:#?}");
    }
}
