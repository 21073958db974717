//! The ledger of random lives, made again from nothing but their logs.

use std::path::Path;

use rusqlite::Connection;

use super::*;
use crate::session::commit::prepare;
use intercom_store::bus::Bell;
use intercom_store::{ClearanceFilter, QuestionFilter, Store, rebuild_ledger};
use intercom_types::{DifferenceKind, LedgerRebuild, RebuildMode};

/// The database of one session.
struct Recorded {
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
}

impl Recorded {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { runtime, dir: tempfile::tempdir().unwrap() }
    }

    fn open(&self) -> Store {
        Store::open(&self.path(), Bell::new()).unwrap()
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("intercom.db")
    }

    /// Lives this life, and stores it as the actor does.
    fn live(&self, acts: &[Act], mut world: World, first: Vec<StepEffect>) {
        let (store, mut seen, mut effects) = (self.open(), Seen::default(), first);
        let mut launch = Some("{}".to_owned());
        let mut acts = acts.iter();
        loop {
            seen.look(world.state.generation(), &effects);
            let (mut write, _) = prepare(&mut world.state, effects, None);
            if let Some(snapshot) = &mut write.snapshot {
                snapshot.launch = launch.take();
            }
            if !write.is_empty() {
                self.runtime.block_on(store.write(Arc::new(write))).unwrap();
            }
            effects = loop {
                let Some(act) = acts.next() else { return };
                let Some(input) = input(&world, act, &seen) else { continue };
                if matches!(act, Act::Quiet) {
                    world.time += 60_000;
                }
                if let Ok(effects) = world.try_go(input) {
                    break effects;
                }
            };
        }
    }

    fn sql(&self, statements: &str) {
        Connection::open(self.path()).unwrap().execute_batch(statements).unwrap();
    }

    fn rebuild(&self, mode: RebuildMode) -> LedgerRebuild {
        rebuild_ledger(&self.path(), mode, &mut |_| {}).unwrap()
    }

    /// Everything that people can read of the ledger.
    fn ledger(&self) -> String {
        let store = self.open();
        self.runtime.block_on(async {
            let clearances = store.clearances(ClearanceFilter::default(), None, 1000).await.unwrap().items;
            let questions = store.questions(QuestionFilter::default(), None, 1000).await.unwrap().items;
            let session = SessionId::from_seed([7; 10]);
            let prompts = store.prompts(session, None, 1000).await.unwrap().items;
            format!("{clearances:#?}\n{questions:#?}\n{prompts:#?}")
        })
    }
}

/// A log as the release before wrote it.
const WITHOUT_NEWER_FIELDS: &str = "UPDATE events SET data = json_remove(data, '$.generation')
        WHERE kind IN ('clearance.requested', 'question.asked');
    UPDATE events SET data = json_remove(data, '$.option') WHERE kind = 'clearance.closed';
    UPDATE events SET data = json_remove(data, '$.order') WHERE kind IN ('prompt.amended', 'prompt.requeued');";

fn was_moved(path: &Path) -> bool {
    let moved = "SELECT count(*) FROM events WHERE kind = 'prompt.amended' AND json_extract(data, '$.place') IS NOT NULL";
    Connection::open(path).unwrap().query_row(moved, [], |row| row.get::<_, i64>(0)).unwrap() > 0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_ledger_is_what_its_log_makes_of_it(acts in acts(), on_heartbeat in any::<bool>()) {
        let recorded = Recorded::new();
        let mut world = World::with(|spec| spec.turn_model = turn_model(on_heartbeat));
        let mut first = world.go(launch());
        first.extend(world.go(SessionInput::Spawned { pid: 42 }));
        recorded.live(&acts, world, first);

        let found = recorded.rebuild(RebuildMode::Compare);
        prop_assert_eq!((&found.differences, &found.misfits, &found.unknown), (&vec![], &vec![], &vec![]));
        let ledger = recorded.ledger();

        recorded.sql(WITHOUT_NEWER_FIELDS);
        let old = recorded.rebuild(RebuildMode::Compare);
        prop_assert_eq!((&old.differences, &old.misfits), (&vec![], &vec![]));
        prop_assert_eq!(old.unknown.iter().any(|fact| fact.contains("order")), was_moved(&recorded.path()));

        // Damage that changes each table in two ways; what is gone comes back in its place.
        recorded.sql(
            "DELETE FROM clearances WHERE key % 3 = 0; DELETE FROM questions WHERE key % 2 = 0;
             DELETE FROM prompts WHERE key % 3 = 1;
             UPDATE clearances SET title = title || '?', status = 'pending' WHERE key % 3 = 1;
             UPDATE questions SET answered_by = 'mallory'; UPDATE prompts SET cause = 'x' WHERE key % 3 = 2;",
        );
        recorded.rebuild(RebuildMode::Replace);
        let rebuilt = recorded.rebuild(RebuildMode::Compare);
        prop_assert_eq!(rebuilt.differences, vec![]);
        if !was_moved(&recorded.path()) {
            prop_assert_eq!(recorded.ledger(), ledger);
        }
    }
}

fn launch() -> SessionInput {
    let (by, command) = ("ana".to_owned(), "agent".to_owned());
    SessionInput::Launch { by, command, prompt: None, ladder: LadderChoice::Configured }
}

#[test]
fn a_rebuild_says_what_differed_and_keeps_what_the_log_does_not_know() {
    let recorded = Recorded::new();
    let mut world = World::new();
    let mut first = world.go(launch());
    first.extend(world.go(SessionInput::Spawned { pid: 42 }));
    let acts = [Act::Ask(2, 1), Act::Ask(2, 2), Act::Decide(0, true), Act::Prompt];
    recorded.live(&acts, world, first);
    assert_eq!(recorded.rebuild(RebuildMode::Compare).rows, 3);
    recorded.sql(
        "UPDATE clearances SET status = 'denied', decided_by = 'mallory' WHERE status = 'approved';
         DELETE FROM clearances WHERE status = 'pending';
         INSERT INTO prompts (id, session, text, state, by, at) SELECT 'prm_0000000000000000', session, 'x', 'queued', 'me', 0
             FROM prompts;",
    );
    let before = recorded.ledger();
    let found = recorded.rebuild(RebuildMode::Compare);
    assert_eq!(recorded.ledger(), before, "comparing changes nothing");
    assert_eq!(recorded.rebuild(RebuildMode::Replace), found, "and finds the same");
    let [missing, changed, kept] = &found.differences[..] else { panic!("{found:#?}") };
    assert_eq!(missing.kind, DifferenceKind::Missing);
    let DifferenceKind::Changed { columns } = &changed.kind else { panic!("{changed:?}") };
    let columns: Vec<_> = columns
        .iter()
        .map(|column| (column.column.as_str(), column.stored.as_deref(), column.rebuilt.as_deref()))
        .collect();
    assert_eq!(
        columns,
        [("status", Some("denied"), Some("approved")), ("decided_by", Some("mallory"), Some("ana"))]
    );
    assert_eq!((kept.id.as_str(), &kept.kind), ("prm_0000000000000000", &DifferenceKind::NotInLog));
    let rebuilt = recorded.rebuild(RebuildMode::Compare);
    assert_eq!(rebuilt.differences, std::slice::from_ref(kept));
}

#[test]
fn a_log_that_cannot_be_is_told_event_by_event() {
    let recorded = Recorded::new();
    let mut world = World::new();
    let first = world.go(launch());
    recorded.live(&[Act::Spawn(true), Act::Ask(2, 1), Act::Decide(0, true)], world, first);
    recorded.sql(
        "INSERT INTO events SELECT seq + 100, session, at, kind, data FROM events WHERE kind = 'clearance.decided';
         INSERT INTO events SELECT 200, session, at, 'question.asked', '{}' FROM events LIMIT 1;",
    );
    let found = recorded.rebuild(RebuildMode::Compare);
    assert_eq!(found.differences, []);
    let [twice, unreadable] = &found.misfits[..] else { panic!("{found:#?}") };
    assert!(twice.contains("clearance.decided") && twice.ends_with("is no longer pending"), "{twice}");
    assert_eq!(unreadable, "event 200, question.asked: its data cannot be read");
}
