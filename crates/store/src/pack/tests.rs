use std::collections::BTreeSet;
use std::sync::Arc;

use intercom_types::event::RawMessage;
use intercom_types::{Event, Json, LoggedEvent, NewEvent, Phase, SessionId, SessionRecord, Time};
use proptest::prelude::*;
use rusqlite::params;

use super::*;
use crate::bus::Bell;
use crate::tests::{record, write};
use crate::{SessionSnapshot, SessionWrite, schema};

fn bulk(millis: i64, text: &str) -> NewEvent {
    let data = RawMessage(Json::of(&serde_json::json!({ "message": text })));
    let event = if millis % 3 == 0 { Event::Update(data) } else { Event::Status(data) };
    NewEvent { at: Time::from_millis(millis), event }
}

fn landmark(millis: i64) -> NewEvent {
    let event = Event::AgentSessions(RawMessage(Json::trusted("{\"sessions\":[]}")));
    NewEvent { at: Time::from_millis(millis), event }
}

async fn put(store: &Store, id: SessionId, events: Vec<NewEvent>) {
    store.write(Arc::new(SessionWrite { events, ..write(id) })).await.unwrap();
}

async fn save(store: &Store, record: SessionRecord) {
    let (id, snapshot) =
        (record.id, SessionSnapshot { record, state: "{}".into(), launch: Some("{}".into()) });
    let write = SessionWrite { snapshot: Some(Box::new(snapshot)), ..write(id) };
    store.write(Arc::new(write)).await.unwrap();
}

async fn create(store: &Store) -> SessionId {
    let id = SessionId::mint();
    save(store, record(id)).await;
    id
}

async fn end(store: &Store, id: SessionId) {
    save(store, SessionRecord { phase: Phase::Ended, ended_at: Some(Time::from_millis(9)), ..record(id) })
        .await;
}

async fn pack_all(store: &Store, min_events: usize) {
    while store.pack_window(min_events).await.unwrap() != PackResult::NotYet {}
}

/// Reads all events of a session or of all in pages of this size.
async fn forward(store: &Store, session: Option<SessionId>, page: usize) -> Vec<LoggedEvent> {
    let (mut all, mut after): (Vec<LoggedEvent>, _) = (Vec::new(), None);
    loop {
        let events = store.events(after, session, page).await.unwrap().unwrap();
        let Some(last) = events.last() else { return all };
        assert!(events.len() <= page);
        after = Some(last.seq);
        all.extend(events);
    }
}

async fn backward(store: &Store, session: SessionId, page: usize) -> Vec<LoggedEvent> {
    let (mut all, mut before): (Vec<LoggedEvent>, _) = (Vec::new(), u64::MAX);
    loop {
        let events = store.events_before(before, session, page).await.unwrap();
        let Some(first) = events.first() else {
            all.reverse();
            return all;
        };
        before = first.seq;
        all.extend(events.into_iter().rev());
    }
}

fn sql(store: &Store, query: &str) -> i64 {
    let connection = Connection::open(store.path()).unwrap();
    connection.query_row(query, [], |row| row.get(0)).unwrap()
}

#[derive(Debug, Clone)]
enum Op {
    /// Bulk events with a landmark after each so many.
    Write {
        session: usize,
        events: usize,
        landmarks: usize,
    },
    Pack {
        min_events: usize,
    },
    Remove {
        session: usize,
    },
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let write = (0..4usize, prop_oneof![1..12usize, 25..40usize, 100..400usize, Just(4500)], 1..60usize);
    let write = write.prop_map(|(session, events, landmarks)| Op::Write { session, events, landmarks });
    prop_oneof![
        6 => write,
        3 => prop_oneof![Just(1), Just(200)].prop_map(|min_events| Op::Pack { min_events }),
        1 => (0..4usize).prop_map(|session| Op::Remove { session }),
        1 => Just(Op::Reopen),
    ]
}

/// Runs the steps, and compares the log with a model after each of them in the middle and at the end.
async fn check(ops: Vec<Op>, page: usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("intercom.db");
    let mut store = Store::open(&path, Bell::new()).unwrap();
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(create(&store).await);
    }
    let mut model: Vec<(u64, SessionId, i64, &'static str, String)> = Vec::new();
    let mut next = 1u64;
    for op in ops {
        match op {
            Op::Write { session, events, landmarks } => {
                let mut new = Vec::new();
                for n in 0..events {
                    let millis = i64::try_from(next).unwrap() * 7 - i64::try_from(n % 5).unwrap() * 20;
                    let event = if n % landmarks == landmarks - 1 {
                        landmark(millis)
                    } else {
                        bulk(millis, &format!("{n} of {next} {}", "–".repeat(n % 50)))
                    };
                    let kind = event.event.kind().unwrap().as_str();
                    model.push((next, sessions[session], millis, kind, event.event.data().into_owned()));
                    new.push(event);
                    next += 1;
                }
                put(&store, sessions[session], new).await;
            }
            Op::Pack { min_events } => pack_all(&store, min_events).await,
            Op::Remove { session } => {
                end(&store, sessions[session]).await;
                assert!(store.remove(sessions[session], "ana".into(), Time::from_millis(1)).await.unwrap());
                model.retain(|event| event.1 != sessions[session]);
                sessions[session] = create(&store).await;
            }
            Op::Reopen => {
                drop(store);
                store = Store::open(&path, Bell::new()).unwrap();
            }
        }
    }
    let same = |events: Vec<LoggedEvent>, model: Vec<&(u64, SessionId, i64, &'static str, String)>| {
        assert_eq!(events.len(), model.len());
        for (event, (seq, session, at, kind, data)) in events.iter().zip(model) {
            let found = (event.seq, event.session, event.at.millis(), &*event.kind, event.data.as_str());
            assert_eq!(found, (*seq, *session, *at, *kind, &**data));
        }
    };
    same(forward(&store, None, page).await, model.iter().collect());
    for id in sessions {
        let its = || model.iter().filter(|event| event.1 == id).collect();
        same(forward(&store, Some(id), page).await, its());
        same(backward(&store, id, page).await, its());
    }
    let landmarks = store.landmarks(0, usize::MAX).await.unwrap();
    if let Ok(found) = landmarks {
        same(found, model.iter().filter(|event| event.3 == "agent.sessions").collect());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_steps_reads_back_as_the_same_events(
        ops in prop::collection::vec(op(), 1..14), page in prop_oneof![1..4usize, 5..700usize]
    ) {
        // Pages of one event of thousands of events would take minutes.
        let events: usize = ops.iter().map(|op| if let Op::Write { events, .. } = op { *events } else { 0 }).sum();
        let page = if events > 2000 { page.max(40) } else { page };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(ops, page));
    }
}

fn open_store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("intercom.db"), Bell::new()).unwrap();
    (dir, store)
}

const LINE: &str = "compiled crates/store/src/pack.rs in 412 ms with 3 warnings, and the tests of the module pass; \
    next is the reader of the log, which has to merge rows and blocks in order of their sequence numbers";

/// Writes many events of 1,000 sessions, a few at a time.
async fn quiet_sessions(store: &Store, events: usize) -> Vec<SessionId> {
    let mut sessions = Vec::new();
    for _ in 0..1000 {
        sessions.push(SessionId::mint());
    }
    let creating = sessions.iter().map(|id| save(store, record(*id)));
    futures_util::future::join_all(creating).await;
    let mut written = 0;
    while written < events {
        let texts: Vec<_> = (0..3).map(|n| bulk(1000 + n, &format!("{written}.{n} {LINE}"))).collect();
        written += 3 * sessions.len();
        futures_util::future::join_all(sessions.iter().map(|id| put(store, *id, texts.clone()))).await;
    }
    sessions
}

#[tokio::test]
async fn a_page_of_all_sessions_opens_at_most_16_blocks_also_with_1000_quiet_sessions() {
    let (_dir, store) = open_store();
    let sessions = quiet_sessions(&store, 15_000).await;
    let rows = sql(&store, "SELECT sum(length(data) + length(kind) + 30) FROM events");
    pack_all(&store, 1).await;
    let blocks = sql(&store, "SELECT sum(length(body)) FROM blocks");
    assert!(blocks * 100 < rows * 35, "{blocks} bytes of {rows}");
    assert_eq!(sql(&store, "SELECT count(*) FROM events"), 0);
    for after in (0..15_000).step_by(370) {
        // A new reader each time: nothing is in its cache.
        let store = Store::open(store.path(), Bell::new()).unwrap();
        let page = store.events(Some(after), None, 500).await.unwrap().unwrap();
        assert_eq!(page.first().map(|event| event.seq), Some(after + 1));
        assert_eq!(page.len(), usize::try_from(15_000 - after).unwrap().min(500));
        assert!(store.block_cache.decoded() <= 16, "{} blocks after {after}", store.block_cache.decoded());
    }
    assert_eq!(forward(&store, Some(sessions[500]), 4).await.len(), 15);
}

/// Returns the pages that the log takes in the file: of rows and blocks, with their indexes.
fn log_bytes(store: &Store) -> i64 {
    sql(
        store,
        "SELECT (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)",
    ) * 4096
}

#[tokio::test]
async fn a_packed_log_takes_at_most_035_of_the_room_of_rows() {
    for chatty in [true, false] {
        let (_dir, store) = open_store();
        if chatty {
            let id = create(&store).await;
            for n in 0..20 {
                let events = (0..1000).map(|k| bulk(1000 * n + k, &format!("{n}.{k} {LINE}"))).collect();
                put(&store, id, events).await;
            }
        } else {
            quiet_sessions(&store, 20_000).await;
        }
        let packed = {
            pack_all(&store, 1).await;
            log_bytes(&store)
        };
        // The same events as rows.
        let events = forward(&store, None, 1000).await;
        let (_dir, of_rows) = open_store();
        let ids: BTreeSet<SessionId> = events.iter().map(|event| event.session).collect();
        futures_util::future::join_all(ids.iter().map(|id| save(&of_rows, record(*id)))).await;
        let mut connection = Connection::open(of_rows.path()).unwrap();
        let transaction = connection.transaction().unwrap();
        for event in &events {
            transaction
                .prepare_cached("INSERT INTO events SELECT ?1, key, ?3, ?4, ?5 FROM sessions WHERE id = ?2")
                .unwrap()
                .execute(params![
                    event.seq.cast_signed(),
                    event.session.to_string(),
                    event.at.millis(),
                    event.kind,
                    event.data.as_str()
                ])
                .unwrap();
        }
        transaction.commit().unwrap();
        let rows = log_bytes(&of_rows);
        assert!(packed * 100 <= rows * 35, "chatty {chatty}: {packed} bytes of {rows}");
    }
}

#[tokio::test]
async fn a_damaged_block_is_reported_and_the_rest_stays_readable() {
    let (_dir, store) = open_store();
    let (one, other) = (create(&store).await, create(&store).await);
    for n in 0..40 {
        for id in [one, other] {
            put(&store, id, (0..100).map(|k| bulk(n * 100 + k, LINE)).collect()).await;
        }
    }
    // Packed blocks and plain ones behind them.
    assert_eq!(store.pack_window(1).await, Ok(PackResult::Packed { to: 4001 }));
    for (codec, place) in [(1, 20), (0, 700)] {
        let damaged = format!(
            "SELECT first FROM blocks WHERE codec = {codec} ORDER BY first LIMIT 1 OFFSET {}",
            if codec == 1 { 1 } else { 3 }
        );
        let first = sql(&store, &damaged);
        let connection = Connection::open(store.path()).unwrap();
        let mut body: Vec<u8> = connection
            .query_row("SELECT body FROM blocks WHERE first = ?1", [first], |row| row.get(0))
            .unwrap();
        body[place] ^= 4;
        connection.execute("UPDATE blocks SET body = ?2 WHERE first = ?1", params![first, body]).unwrap();
    }
    let bad = |column: &str| {
        sql(&store, &format!("SELECT {column} FROM blocks WHERE codec = 1 ORDER BY first LIMIT 1 OFFSET 1"))
    };
    let lost = bad("events") + 100;
    let readable = forward(&store, None, 300).await;
    assert_eq!(readable.len(), usize::try_from(8000 - lost).unwrap());
    let found = store.damaged_blocks();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0], (bad("first").cast_unsigned(), bad("last").cast_unsigned()));
    // The packer leaves it alone and packs the rest.
    pack_all(&store, 1).await;
    assert_eq!(sql(&store, "SELECT count(*) FROM blocks WHERE codec = 0"), 1);
    assert_eq!(forward(&store, None, 300).await, readable);
    end(&store, one).await;
    store.remove(one, "ana".into(), Time::from_millis(1)).await.unwrap();
    let left: Vec<_> = readable.into_iter().filter(|event| event.session == other).collect();
    assert_eq!(forward(&store, None, 300).await, left);
    assert_eq!(sql(&store, "SELECT count(*) FROM trash"), 0);
    end(&store, other).await;
    store.remove(other, "ana".into(), Time::from_millis(1)).await.unwrap();
    assert_eq!(sql(&store, "SELECT count(*) FROM blocks"), 0);
    assert_eq!(store.damaged_blocks(), [], "what is deleted is not reported any more");
}

/// The last seq of a block stands outside of its body, and says where the packer goes on.
#[tokio::test]
async fn a_block_with_a_damaged_last_seq_does_not_stop_the_packer() {
    for (place, wrong) in [(0, -50), (0, 150), (0, 5000), (2, -50), (2, 150), (2, 5000)] {
        let (_dir, store) = open_store();
        let id = create(&store).await;
        for n in 0..6 {
            put(&store, id, (0..100).map(|k| bulk(n * 100 + k, LINE)).collect()).await;
            put(&store, id, vec![bulk(n * 100, "a row")]).await;
        }
        let first = sql(&store, &format!("SELECT first FROM blocks ORDER BY first LIMIT 1 OFFSET {place}"));
        let connection = Connection::open(store.path()).unwrap();
        connection
            .execute("UPDATE blocks SET last = first + ?2 WHERE first = ?1", params![first, wrong])
            .unwrap();
        pack_all(&store, 1).await;
        assert_eq!(forward(&store, None, 50).await.len(), 506, "{place} {wrong}");
        assert_eq!(sql(&store, "SELECT count(*) FROM blocks WHERE codec = 0"), 1, "{place} {wrong}");
        assert_eq!(sql(&store, "SELECT sum(events) FROM blocks WHERE codec = 1"), 506, "{place} {wrong}");
    }
}

#[tokio::test]
async fn a_session_is_removed_in_small_steps_and_its_room_is_given_back() {
    let (_dir, store) = open_store();
    let (one, other) = (create(&store).await, create(&store).await);
    for n in 0..60 {
        put(&store, one, (0..1000).map(|k| bulk(n * 1000 + k, &format!("{n} {k} {LINE}"))).collect()).await;
        put(&store, other, vec![bulk(n, "still here")]).await;
    }
    pack_all(&store, 1).await;
    let shared = sql(&store, "SELECT count(*) FROM blocks WHERE session IS NULL");
    assert!(shared > 5, "{shared} blocks of both");
    end(&store, one).await;
    let before = sql(&store, "SELECT page_count FROM pragma_page_count");
    store.remove(one, "ana".into(), Time::from_millis(1)).await.unwrap();
    assert_eq!(forward(&store, None, 100).await.len(), 60);
    assert_eq!(sql(&store, "SELECT sum(events) FROM blocks"), 60);
    assert_eq!(
        sql(&store, "SELECT count(*) FROM block_sessions WHERE block NOT IN (SELECT first FROM blocks)"),
        0
    );
    let connection = Connection::open(store.path()).unwrap();
    assert_eq!(
        connection.pragma_query_value(None, "auto_vacuum", |row| row.get::<_, i64>(0)),
        Ok(INCREMENTAL)
    );
    store.give_pages_back_to(100).await.unwrap();
    let after = sql(&store, "SELECT page_count FROM pragma_page_count");
    assert!(after * 2 < before, "{after} pages of {before}");
}

#[tokio::test]
async fn a_log_of_each_earlier_version_is_packed_after_it_is_counted() {
    for version in 1..schema::VERSION {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("intercom.db");
        let id = SessionId::mint();
        let old = schema::old_database(&path, usize::try_from(version).unwrap());
        old.execute(
            "INSERT INTO sessions (id, protocol, workspace, phase, why, generation, pending_clearances,
                 pending_questions, queue, stderr_tail, created_at, launch, state)
             VALUES (?1, 'intercom', '/', 'idle', '', 1, 0, 0, 0, '', 1, '{}', '{}')",
            [id.to_string()],
        )
        .unwrap();
        let transaction = old.unchecked_transaction().unwrap();
        for seq in 1..=5000 {
            let kind = if seq % 100 == 0 { "turn.ended" } else { "status" };
            let data = format!("{{\"message\":\"{seq}\"}}");
            old.prepare_cached("INSERT INTO events VALUES (?1, 1, ?2, ?3, ?4)")
                .unwrap()
                .execute(params![seq, 1000 + seq, kind, data])
                .unwrap();
        }
        old.execute("UPDATE meta SET value = 5001 WHERE key = 'next_seq'", []).unwrap();
        transaction.commit().unwrap();
        drop(old);
        let store = Store::open(&path, Bell::new()).unwrap();
        let before = forward(&store, None, 999).await;
        assert_eq!(before.len(), 5000);
        let record = store.sessions(crate::SessionScope::All, None, None, 9).await.unwrap().items.remove(0);
        assert_eq!(record.updated_at, Some(Time::from_millis(6000)));
        if version < 10 {
            assert_eq!(store.pack_window(1).await, Ok(PackResult::NotYet), "they are not counted yet");
        }
        store.count_old_events().await;
        let progress = |done| LogMigration { done, total: 5000 };
        assert_eq!(store.packing_progress().await, Ok(Some(progress(0))));
        assert_eq!(store.pack_window(1).await, Ok(PackResult::Packed { to: 4097 }));
        assert_eq!(store.packing_progress().await, Ok(Some(progress(4096))));
        pack_all(&store, 1).await;
        assert_eq!(store.packing_progress().await, Ok(None), "also if the last event is a landmark");
        assert_eq!(sql(&store, "SELECT count(*) FROM events"), 50);
        assert_eq!(forward(&store, None, 999).await, before, "version {version}");
        assert_eq!(backward(&store, id, 123).await, before, "version {version}");
        let counts = store.event_counts(Time::from_millis(0), 75_000, None).await.unwrap();
        // Version 10 counts what it writes, and these events were not written by it.
        let counted = if version < 10 { 5000 } else { 0 };
        assert_eq!(counts.iter().map(|(_, events)| events).sum::<i64>(), counted);
    }
}

#[tokio::test]
async fn a_database_of_the_last_release_reads_the_same_before_and_after_packing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("intercom.db");
    let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/databases/schema-10.sql");
    let old = Connection::open(&path).unwrap();
    old.execute_batch(&std::fs::read_to_string(stored).unwrap()).unwrap();
    let rows = "SELECT e.seq, s.id, e.at, e.kind, e.data FROM events e JOIN sessions s ON s.key = e.session ORDER BY e.seq";
    let rows: Vec<(i64, String, i64, String, String)> = old
        .prepare(rows)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    drop(old);
    let store = Store::open(&path, Bell::new()).unwrap();
    for packed in [false, true] {
        if packed {
            pack_all(&store, 1).await;
            assert!(sql(&store, "SELECT sum(events) FROM blocks") > 0);
        }
        let events = forward(&store, None, 7).await.into_iter().map(|event| {
            let data = event.data.as_str().to_owned();
            (event.seq.cast_signed(), event.session.to_string(), event.at.millis(), event.kind, data)
        });
        assert_eq!(events.collect::<Vec<_>>(), rows);
    }
}

#[tokio::test]
async fn a_window_with_a_session_that_was_removed_meanwhile_is_not_replaced() {
    let (_dir, store) = open_store();
    let (one, other) = (create(&store).await, create(&store).await);
    for id in [one, other] {
        put(&store, id, (0..20).map(|k| bulk(k, LINE)).collect()).await;
    }
    let cache = store.block_cache.clone();
    let window =
        store.read(move |connection| PackWindow::read(connection, &cache, 1)).await.unwrap().unwrap();
    end(&store, one).await;
    store.remove(one, "ana".into(), Time::from_millis(1)).await.unwrap();
    let replaced = store.transact_later(1, move |connection| window.replace(connection)).await;
    assert!(matches!(replaced, Err(StoreError::Conflict(_))), "{replaced:?}");
    assert_eq!(forward(&store, None, 100).await.len(), 20);
    pack_all(&store, 1).await;
    assert_eq!(forward(&store, None, 100).await.len(), 20);
}
