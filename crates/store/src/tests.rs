//! The store against a real database file.

use std::path::PathBuf;

use serde_json::json;

use super::*;
use intercom_types::event::{RawMessage, SessionStopping};
use intercom_types::samples::sample;
use intercom_types::{
    ClearanceId, Delivery, Event, EventKind, Failure, FailureKind, Json, NewEvent, Phase, SessionId,
    SessionRecord, StopMode, Time,
};

struct Db {
    store: Store,
    dir: tempfile::TempDir,
}

fn db() -> Db {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("intercom.db"), Bell::new()).unwrap();
    Db { store, dir }
}

pub(super) fn record(id: SessionId) -> SessionRecord {
    SessionRecord {
        id,
        name: None,
        agent: Some("demo".to_owned()),
        protocol: "intercom".to_owned(),
        workspace: PathBuf::from("/"),
        phase: Phase::Idle,
        why: "ready".to_owned(),
        pid: Some(1),
        generation: 1,
        turn: None,
        pending_clearances: 0,
        pending_questions: 0,
        queue: 0,
        stderr_tail: String::new(),
        created_at: Time::from_millis(1),
        started_at: None,
        ended_at: None,
        exit: None,
        end_reason: None,
        failed: None,
        unenforced: None,
        preset: intercom_types::Preset::Full,
        watch_state: intercom_types::WatchState::default(),
        agent_info: intercom_types::AgentInfo::default(),
        updated_at: None,
    }
}

pub(super) fn write(session: SessionId) -> SessionWrite {
    SessionWrite {
        session,
        generation: 1,
        events: Vec::new(),
        outgoing: Vec::new(),
        snapshot: None,
        consumed: None,
        urgent: false,
        adopts: false,
    }
}

fn status(millis: i64, data: Json) -> NewEvent {
    NewEvent { at: Time::from_millis(millis), event: Event::Status(RawMessage(data)) }
}

fn event(text: &str) -> NewEvent {
    let data = Json::of(&serde_json::json!({ "message": text }));
    status(5, data)
}

impl Db {
    async fn put(&self, write: SessionWrite) -> Result<(), StoreError> {
        self.store.write(Arc::new(write)).await
    }

    async fn create(&self, record: SessionRecord) -> SessionId {
        let id = record.id;
        let snapshot = SessionSnapshot { record, state: "{}".into(), launch: Some("{}".into()) };
        self.put(SessionWrite { snapshot: Some(Box::new(snapshot)), ..write(id) }).await.unwrap();
        id
    }

    async fn say(&self, session: SessionId, texts: &[&str]) {
        let events = texts.iter().map(|text| event(text)).collect();
        self.put(SessionWrite { events, ..write(session) }).await.unwrap();
    }

    async fn seqs(&self, after: Option<u64>, session: Option<SessionId>) -> Result<Vec<u64>, LogCutoff> {
        let events = self.store.events(after, session, 1000).await.unwrap()?;
        Ok(events.iter().map(|event| event.seq).collect())
    }
}

fn sampled(kind: EventKind, millis: i64, fields: &serde_json::Value) -> NewEvent {
    NewEvent { at: Time::from_millis(millis), event: sample(kind, fields).event() }
}

fn requested(id: ClearanceId) -> NewEvent {
    sampled(EventKind::ClearanceRequested, 7, &json!({ "clearance": id }))
}

fn decided(id: ClearanceId, by: &str) -> NewEvent {
    sampled(EventKind::ClearanceDecided, 9, &json!({ "clearance": id, "status": "approved", "by": by }))
}

#[tokio::test]
async fn a_query_of_several_statements_sees_one_state_of_the_log() {
    let db = db();
    let ses = db.create(record(SessionId::mint())).await;
    let (began, begins) = tokio::sync::oneshot::channel();
    let (written, writes) = std::sync::mpsc::channel();
    let reads = db.store.read(move |connection| {
        let count = || connection.query_row("SELECT count(*) FROM events", [], |row| row.get::<_, i64>(0));
        let before = count()?;
        began.send(()).unwrap();
        writes.recv().unwrap();
        Ok((before, count()?))
    });
    let saying = async {
        begins.await.unwrap();
        db.say(ses, &["a"]).await;
        written.send(()).unwrap();
    };
    assert_eq!(tokio::join!(reads, saying).0, Ok((0, 0)));
    assert_eq!(db.seqs(Some(0), None).await, Ok(vec![1]));
}

#[tokio::test]
async fn readers_of_the_log_leave_a_connection_to_short_reads() {
    let db = db();
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let mut readers = tokio::task::JoinSet::new();
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..8 {
        let (store, gate, started) = (db.store.clone(), Arc::clone(&gate), started.clone());
        readers.spawn(async move {
            let held = store.read_log(move |_| {
                started.send(()).unwrap();
                gate.lock().unwrap().recv().ok();
                Ok(())
            });
            held.await
        });
    }
    starts.recv().await.unwrap();
    let number =
        db.store.read(|connection| Ok(connection.query_row("SELECT 7", [], |row| row.get::<_, i64>(0))?));
    assert_eq!(number.await, Ok(7), "although readers of the log wait for their turn");
    drop(release);
    while let Some(read) = readers.join_next().await {
        assert_eq!(read.unwrap(), Ok(()));
    }
}

#[tokio::test]
async fn seqs_have_no_gaps_also_after_a_write_that_failed() {
    let db = db();
    let ses = db.create(record(SessionId::mint())).await;
    db.say(ses, &["a", "b"]).await;
    let ghost = SessionWrite { events: vec![event("lost")], ..write(SessionId::mint()) };
    assert_eq!(db.put(ghost).await, Err(StoreError::Removed));
    db.say(ses, &["c"]).await;
    assert_eq!(db.seqs(None, None).await, Ok(vec![1, 2, 3]));
}

#[tokio::test]
async fn seqs_go_on_after_the_store_was_closed_and_opened() {
    let db = db();
    let ses = db.create(record(SessionId::mint())).await;
    db.say(ses, &["a"]).await;
    let Db { store, dir } = db;
    let path = store.path().to_owned();
    drop(store);
    let bell = Bell::new();
    let store = Store::open(&path, bell.clone()).unwrap();
    assert_eq!(bell.listen().newest(), 1);
    let db = Db { store, dir };
    db.say(ses, &["b"]).await;
    assert_eq!(db.seqs(None, Some(ses)).await, Ok(vec![1, 2]));
}

#[tokio::test]
async fn a_clearance_has_one_winner_and_the_loser_changes_nothing() {
    let db = db();
    let ses = db.create(record(SessionId::mint())).await;
    let id = ClearanceId::mint();
    db.put(SessionWrite { events: vec![requested(id)], ..write(ses) }).await.unwrap();
    let decide = |by: &str| SessionWrite { events: vec![decided(id, by), event(by)], ..write(ses) };
    let (ana, bob) = tokio::join!(db.put(decide("ana")), db.put(decide("bob")));
    assert_eq!(usize::from(ana.is_ok()) + usize::from(bob.is_ok()), 1);
    assert_eq!(db.seqs(None, None).await, Ok(vec![1, 2, 3]), "no event of the loser is there");
    let IdLookup::One(found) = db.store.clearance(id.to_string()).await.unwrap() else { panic!() };
    assert_eq!(found.decided_by.as_deref(), Some(if ana.is_ok() { "ana" } else { "bob" }));
    assert_eq!(found.delivery, Delivery::Pending);
}

#[tokio::test]
async fn ids_are_found_by_unique_prefix_and_sessions_by_name() {
    let db = db();
    let id = |tail: &str| format!("ses_{tail}").parse::<SessionId>().unwrap();
    db.create(SessionRecord { name: Some("web".into()), ..record(id("aaaa000000000000")) }).await;
    db.create(record(id("aabb000000000000"))).await;
    let find = async |typed: &str| match db.store.session(typed.to_owned()).await.unwrap() {
        IdLookup::One(found) => found.id.to_string(),
        IdLookup::None => "none".to_owned(),
        IdLookup::Ambiguous(ids) => format!("{} of them", ids.len()),
    };
    assert_eq!(find("ses_aaaa000000000000").await, "ses_aaaa000000000000");
    assert_eq!(find("aaa").await, "ses_aaaa000000000000");
    assert_eq!(find("AAB").await, "ses_aabb000000000000");
    assert_eq!(find("web").await, "ses_aaaa000000000000");
    assert_eq!(find("aa").await, "2 of them");
    for typed in ["", "ses_", "x", "%", "a%", "clr_aaaa000000000000"] {
        assert_eq!(find(typed).await, "none", "{typed}");
    }
}

#[tokio::test]
async fn a_name_means_the_live_session_of_that_name() {
    let db = db();
    let ended = SessionRecord {
        name: Some("web".into()),
        phase: Phase::Ended,
        ended_at: Some(Time::from_millis(3)),
        ..record(SessionId::mint())
    };
    db.create(ended).await;
    let live = db.create(SessionRecord { name: Some("web".into()), ..record(SessionId::mint()) }).await;
    let IdLookup::One(found) = db.store.session("web".into()).await.unwrap() else { panic!() };
    assert_eq!(found.id, live);
    let ended = |millis| SessionRecord {
        name: Some("old".into()),
        phase: Phase::Ended,
        ended_at: Some(Time::from_millis(millis)),
        ..record(SessionId::mint())
    };
    db.create(ended(4)).await;
    let newest = db.create(ended(5)).await;
    let IdLookup::One(found) = db.store.session("old".into()).await.unwrap() else { panic!() };
    assert_eq!(found.id, newest, "of several that ended, the newest");
}

#[tokio::test]
async fn lists_are_newest_first_in_pages() {
    let db = db();
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.insert(0, db.create(record(SessionId::mint())).await);
    }
    let first = db.store.sessions(SessionScope::NotEnded, None, None, 2).await.unwrap();
    let second = db.store.sessions(SessionScope::NotEnded, None, first.next, 2).await.unwrap();
    let third = db.store.sessions(SessionScope::NotEnded, None, second.next, 2).await.unwrap();
    let all: Vec<SessionId> =
        [first.items, second.items, third.items].concat().iter().map(|record| record.id).collect();
    assert_eq!(all, ids);
    assert_eq!(third.next, None);
}

#[tokio::test]
async fn a_failure_that_nobody_has_seen_keeps_an_ended_session_in_the_list() {
    let db = db();
    let failure = Failure {
        kind: FailureKind::Exit,
        reason: "exited with code 1".to_owned(),
        at: Time::from_millis(7),
        log_in: Some("log in".to_owned()),
        prompt_lost: true,
    };
    let ended = |failed| SessionRecord { phase: Phase::Ended, failed, ..record(SessionId::mint()) };
    let (failed, _) = (db.create(ended(Some(failure.clone()))).await, db.create(ended(None)).await);
    let db = &db;
    let listed = |scope| async move { db.store.sessions(scope, None, None, 9).await.unwrap().items };
    let noticed: Vec<_> =
        listed(SessionScope::LiveOrFailed).await.into_iter().map(|r| (r.id, r.failed)).collect();
    assert_eq!(noticed, [(failed, Some(failure))]);
    assert_eq!((listed(SessionScope::NotEnded).await.len(), listed(SessionScope::All).await.len()), (0, 2));
}

#[tokio::test]
async fn a_list_may_be_of_one_workspace_and_tells_when_something_happened_last() {
    let db = db();
    let elsewhere = SessionRecord { workspace: PathBuf::from("/a"), ..record(SessionId::mint()) };
    let (elsewhere, _) = (db.create(elsewhere).await, db.create(record(SessionId::mint())).await);
    for millis in [20, 10] {
        let events = vec![status(millis, Json::trusted("{}"))];
        db.store.write(Arc::new(SessionWrite { events, ..write(elsewhere) })).await.unwrap();
    }
    let there =
        db.store.sessions(SessionScope::NotEnded, Some("/a".to_owned()), None, 2).await.unwrap().items;
    let found: Vec<_> = there.iter().map(|record| (record.id, record.updated_at)).collect();
    assert_eq!(found, [(elsewhere, Some(Time::from_millis(10)))], "the newest is the last of the log");
    assert_eq!(
        db.store.sessions(SessionScope::NotEnded, Some("/a/".to_owned()), None, 2).await.unwrap().items,
        []
    );
}

#[tokio::test]
async fn retention_takes_whole_ended_sessions_oldest_first_and_readers_are_told() {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let db = db();
    let ended = |at| SessionRecord {
        phase: Phase::Ended,
        ended_at: Some(Time::from_millis(at)),
        ..record(SessionId::mint())
    };
    let old = db.create(ended(DAY)).await;
    db.say(old, &["a"]).await;
    db.put(SessionWrite { events: vec![requested(ClearanceId::mint())], ..write(old) }).await.unwrap();
    let live = db.create(record(SessionId::mint())).await;
    db.say(live, &["c"]).await;
    let recent = db.create(ended(9 * DAY)).await;
    db.say(recent, &["d"]).await;

    let (mode, by) = (StopMode::Stop, "ana".to_owned());
    let event = Event::SessionStopping(SessionStopping { mode, by, to_restart: false, why: None });
    let stopping = NewEvent { at: Time::from_millis(8), event };
    db.put(SessionWrite { events: vec![stopping], ..write(recent) }).await.unwrap();
    let swept = db.store.sweep(5, 0, Time::from_millis(10 * DAY)).await.unwrap();
    assert_eq!(swept, SweepResult { sessions: 1, events: 2 });
    assert_eq!(db.store.session(old.to_string()).await.unwrap(), IdLookup::None);
    assert_eq!(db.store.clearances(ClearanceFilter::default(), None, 10).await.unwrap().items, []);
    assert_eq!(db.seqs(Some(0), None).await, Err(LogCutoff { oldest: 3 }));
    assert_eq!(db.seqs(Some(2), None).await, Ok(vec![3, 4, 5]));
    assert_eq!(db.seqs(None, None).await, Ok(vec![3, 4, 5]));

    let swept = db.store.sweep(0, 1, Time::from_millis(10 * DAY)).await.unwrap();
    assert_eq!(swept.sessions, 1, "a live session is never removed, whatever the limit");
    assert_eq!(db.seqs(Some(2), None).await, Ok(vec![3]));
    db.say(live, &["e"]).await;
    assert_eq!(db.seqs(Some(3), None).await, Ok(vec![6]), "a seq is never used again");
    let audit = db
        .store
        .audit_rows(AuditFilter { session: Some(recent), ..AuditFilter::default() }, 10)
        .await
        .unwrap();
    assert_eq!((audit.len(), audit[0].by.as_str()), (1, "ana"), "the audit outlives its sessions");
    let found = db.store.verify_audit().await.unwrap();
    assert_eq!((found.rows, found.problems), (1, vec![]));
}

#[tokio::test]
async fn a_full_disk_fails_whole_writes_and_the_next_one_succeeds() {
    let db = db();
    let ses = db.create(record(SessionId::mint())).await;
    db.say(ses, &["a"]).await;
    let limit = |pages: &str| {
        let sql = format!("PRAGMA max_page_count = {pages}");
        db.store.transact(move |connection| Ok(connection.query_row(&sql, [], |row| row.get::<_, i64>(0))?))
    };
    limit("1").await.unwrap();
    let big = "x".repeat(200_000);
    let events = vec![event("first"), event(&big)];
    let failed = db.put(SessionWrite { events, ..write(ses) }).await;
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    assert_eq!(db.seqs(None, None).await, Ok(vec![1]));
    limit("1000000").await.unwrap();
    db.say(ses, &["b"]).await;
    assert_eq!(db.seqs(None, None).await, Ok(vec![1, 2]));
}

#[tokio::test]
async fn a_backup_is_a_whole_database_of_its_own() {
    let db = db();
    let ses = db.create(record(SessionId::mint())).await;
    db.say(ses, &["a", "b"]).await;
    let copy = db.dir.path().join("copy.db");
    let job = Arc::new(BackupJob::new(copy.clone(), false, 0));
    let bytes = db.store.backup(job).await.unwrap().bytes;
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), bytes);
    let restored = Store::open(&copy, Bell::new()).unwrap();
    assert_eq!(restored.events(None, Some(ses), 10).await.unwrap().unwrap().len(), 2);
}

#[tokio::test]
async fn many_sessions_write_at_once_and_each_keeps_its_order() {
    let db = db();
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(db.create(record(SessionId::mint())).await);
    }
    let writers = sessions.iter().map(|session| async {
        for n in 0..50 {
            db.say(*session, &[&n.to_string()]).await;
        }
    });
    futures_util::future::join_all(writers).await;
    for session in sessions {
        let events = db.store.events(None, Some(session), 1000).await.unwrap().unwrap();
        let texts: Vec<String> = events.iter().map(|event| event.data.as_str().to_owned()).collect();
        let expected: Vec<String> = (0..50).map(|n| format!("{{\"message\":\"{n}\"}}")).collect();
        assert_eq!(texts, expected);
    }
    assert_eq!(db.seqs(Some(0), None).await.unwrap().len(), 1000);
}

#[tokio::test]
async fn a_page_of_events_is_bounded_by_size() {
    let db = db();
    let ses = db.create(record(SessionId::mint())).await;
    let big = "x".repeat(3 << 20);
    db.say(ses, &[&big, &big, "small"]).await;
    assert_eq!(db.store.events(None, None, 1000).await.unwrap().unwrap().len(), 1);
    assert_eq!(db.store.events(Some(1), None, 1000).await.unwrap().unwrap().len(), 2);
}

#[tokio::test]
async fn an_answer_is_remembered_for_a_day() {
    let db = db();
    let answer = IdempotentResponse { fingerprint: "f".into(), status: 200, body: "{}".into() };
    let now = Time::from_millis(1_000_000_000);
    db.store.remember("k".into(), answer.clone(), now).await.unwrap();
    assert_eq!(db.store.idempotent_response("k".into(), now).await.unwrap(), Some(answer));
    let later = Time::from_millis(now.millis() + 25 * 60 * 60 * 1000);
    assert_eq!(db.store.idempotent_response("k".into(), later).await.unwrap(), None);
}

/// A reader of landmarks, as the bridges are.
struct LandmarkReader {
    landmarks: crate::bus::BellListener,
    all: crate::bus::BellListener,
    position: u64,
}

impl LandmarkReader {
    fn at(bell: &Bell, position: u64) -> Self {
        Self { landmarks: bell.listen_for_landmarks(), all: bell.listen(), position }
    }

    async fn read(&mut self, store: &Store, seen: &mut Vec<u64>) {
        loop {
            let newest = self.all.newest();
            let heard = self.landmarks.newest();
            if heard <= self.position {
                self.position = self.position.max(newest);
                return;
            }
            let page = store.landmarks(self.position, 2).await.unwrap().unwrap();
            assert!(page.iter().all(|event| !event.known_kind().is_some_and(EventKind::is_bulk)));
            seen.extend(page.iter().map(|event| event.seq));
            self.position = page.last().map_or(heard, |last| last.seq);
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 24, ..Default::default() })]
    #[test]
    fn a_landmark_among_bulk_output_is_never_missed(
        steps in proptest::collection::vec(
            (0..3usize, proptest::collection::vec(proptest::bool::weighted(0.2), 1..8), 0..4u8),
            1..40,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let bell = Bell::new();
            let store = Store::open(&dir.path().join("intercom.db"), bell.clone()).unwrap();
            let db = Db { store, dir };
            let mut sessions = Vec::new();
            for _ in 0..3 {
                sessions.push(db.create(record(SessionId::mint())).await);
            }
            let (mut reader, mut seen, mut expected, mut seq) =
                (LandmarkReader::at(&bell, 0), Vec::new(), Vec::new(), 0);
            for (session, kinds, then) in steps {
                let landmark = |is_landmark: &bool| {
                    if *is_landmark { requested(ClearanceId::mint()) } else { event("bulk") }
                };
                let events = kinds.iter().map(landmark).collect();
                db.put(SessionWrite { events, ..write(sessions[session]) }).await.unwrap();
                for is_landmark in kinds {
                    seq += 1;
                    expected.extend(is_landmark.then_some(seq));
                }
                match then {
                    0 => reader.read(&db.store, &mut seen).await,
                    // A restart goes on from the stored position, and its bells begin with the newest event.
                    1 => reader = LandmarkReader::at(&bell, reader.position),
                    _ => {}
                }
            }
            reader.read(&db.store, &mut seen).await;
            assert_eq!(seen, expected);
        });
    }
}
