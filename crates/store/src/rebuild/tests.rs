use rusqlite::Connection;

use super::*;

/// A database of the last release that wrote ledger rows beside the events, as its own binary left it.
const SCHEMA_10: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/databases/schema-10.sql"));

fn stored(statements: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("intercom.db");
    Connection::open(&path).unwrap().execute_batch(statements).unwrap();
    (dir, path)
}

#[test]
fn the_rows_of_an_earlier_release_are_what_its_log_makes_of_them() {
    let (_dir, path) = stored(SCHEMA_10);
    drop(schema::open(&path).unwrap());
    let mut reported = Vec::new();
    let mut report = |progress: RebuildProgress| reported.push((progress.events, progress.total));
    let found = rebuild_ledger(&path, RebuildMode::Compare, &mut report).unwrap();
    assert_eq!((found.differences, found.misfits, found.rows), (vec![], vec![], 9));
    assert_eq!(found.unknown, ["expired clearances whose option was not recorded: 1"]);
    assert_eq!(reported, [(found.events, found.events)]);
}

#[test]
fn a_database_that_is_not_there_or_of_another_version_is_left_alone() {
    let (_dir, path) = stored(&SCHEMA_10.replace("user_version = 10", "user_version = 99"));
    let newer = rebuild_ledger(&path, RebuildMode::Replace, &mut |_| {}).unwrap_err();
    assert!(matches!(newer, StoreError::Newer { found: 99, .. }), "{newer}");
    assert_eq!(rebuild_ledger(&path, RebuildMode::Compare, &mut |_| {}).unwrap_err(), newer);
    let missing = path.with_file_name("other.db");
    assert!(matches!(
        rebuild_ledger(&missing, RebuildMode::Replace, &mut |_| {}),
        Err(StoreError::Unusable(_))
    ));
    assert!(!missing.exists());
}
