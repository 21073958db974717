//! Rows that somebody removes from the end of the audit, between two lives of a daemon and during one.

use std::path::{Path, PathBuf};

use intercom_testkit::harness::{self, Daemon, home};
use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

const WITHOUT_TRIGGERS: &str = "
    DROP TRIGGER IF EXISTS audit_is_not_changed; DROP TRIGGER IF EXISTS audit_is_not_removed;
    DROP TRIGGER IF EXISTS audit_head_only_grows; DROP TRIGGER IF EXISTS audit_head_is_not_removed;";
/// The counter as it would be if the remaining rows were all.
const FORGE_COUNTER: &str = "UPDATE audit_head SET n = (SELECT max(n) FROM audit),
    hash = (SELECT hash FROM audit ORDER BY n DESC LIMIT 1);";

fn database(dir: &Path) -> PathBuf {
    dir.join("state/intercom.db")
}

/// Changes the stopped daemon's database as somebody with the file could.
fn edit(dir: &Path, sql: &str) {
    let connection = Connection::open(database(dir)).unwrap();
    connection.execute_batch(WITHOUT_TRIGGERS).unwrap();
    connection.execute_batch(sql).unwrap();
}

fn rows(dir: &Path) -> i64 {
    let connection = Connection::open(database(dir)).unwrap();
    connection.query_row("SELECT max(n) FROM audit", [], |row| row.get(0)).unwrap()
}

/// A configuration with an anchor file, in a directory of its own.
fn anchored() -> (TempDir, PathBuf) {
    let dir = home("");
    let anchor = dir.path().join("anchor");
    let config = format!("[api]\nlisten = \"off\"\n[audit]\nanchor_file = {}\n", json!(anchor));
    std::fs::write(dir.path().join("config.toml"), config).unwrap();
    (dir, anchor)
}

/// A daemon's life that leaves some rows; its directory and the number of its last row.
fn one_life(dir: TempDir) -> (TempDir, i64) {
    let daemon = Daemon::start_in(dir, &[], &[]);
    for name in ["one", "two", "three"] {
        daemon.cli(&["token", "create", "--name", name, "--role", "viewer"]).ok();
    }
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let last = rows(dir.path());
    assert!(last >= 4, "{last}");
    (dir, last)
}

/// The break is named now, by the next daemon too, and after more rows.
#[track_caller]
fn named_for_ever(dir: TempDir, expected: &str) -> TempDir {
    let mut dir = dir;
    for life in 1..=2 {
        let daemon = Daemon::start_in(dir, &[], &[]);
        daemon.cli(&["token", "create", "--name", &format!("later {life}"), "--role", "viewer"]).ok();
        let ran = daemon.cli(&["audit", "--verify"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stdout.contains(expected), "life {life}: {ran:?}");
        assert!(ran.stderr.contains("the audit chain is broken"), "{ran:?}");
        let breaks = daemon.cli(&["audit", "--json"]).ok().stdout;
        assert_eq!(breaks.matches("\"audit.broken\"").count(), 1, "recorded once: {breaks}");
        let checks = daemon.cli(&["doctor", "--json"]).json();
        let found = checks["checks"].as_array().unwrap().iter().find(|check| check["name"] == "audit");
        let found = found.unwrap_or_else(|| panic!("{checks}"));
        assert_eq!(found["status"], "warning", "{found}");
        assert!(found["detail"].as_str().unwrap().contains(expected), "{found}");
        let warnings = daemon.get("/api/v1/health").1["warnings"].clone();
        assert!(warnings[0].as_str().is_some_and(|text| text.contains(expected)), "{warnings}");
        dir = daemon.end(Signal::SIGTERM).0;
    }
    dir
}

#[test]
fn rows_removed_from_the_end_are_named_for_ever() {
    let (dir, last) = one_life(home(""));
    edit(dir.path(), &format!("DELETE FROM audit WHERE n > {}", last - 2));
    let expected = format!("chain broken: rows {} to {last} are missing", last - 1);
    // Also before any daemon has started on it.
    let doctor = harness::run(harness::command(dir.path()).arg("doctor"));
    assert!(doctor.stdout.contains(&expected), "{doctor:?}");
    named_for_ever(dir, &expected);
}

#[test]
fn an_emptied_audit_is_named_for_ever() {
    let (dir, last) = one_life(home(""));
    edit(dir.path(), "DELETE FROM audit");
    named_for_ever(dir, &format!("chain broken: rows 1 to {last} are missing"));
}

#[test]
fn a_removed_counter_is_named_for_ever() {
    let (dir, last) = one_life(home(""));
    edit(dir.path(), &format!("DELETE FROM audit_head; DELETE FROM audit WHERE n = {last}"));
    named_for_ever(dir, "chain broken: its counter was removed");
}

#[test]
fn rows_that_somebody_appended_are_named_for_ever() {
    let (dir, last) = one_life(home(""));
    let forged = format!(
        "INSERT INTO audit SELECT n + 1, at, action, 'eve', session, data, hash, hash FROM audit WHERE n = {last}"
    );
    edit(dir.path(), &forged);
    named_for_ever(dir, &format!("row {} was not written by the daemon", last + 1));
}

#[test]
fn with_an_anchor_file_rows_removed_together_with_their_counter_are_named_for_ever() {
    let (dir, anchor) = anchored();
    let (dir, last) = one_life(dir);
    edit(dir.path(), &format!("DELETE FROM audit WHERE n > {}; {FORGE_COUNTER}", last - 2));
    let expected = format!("chain broken: rows {} to {last} are missing", last - 1);
    let dir = named_for_ever(dir, &expected);
    let heads = std::fs::read_to_string(&anchor).unwrap();
    let newest: Value = serde_json::from_str(heads.lines().last().unwrap()).unwrap();
    assert_eq!(newest["row"], rows(dir.path()));
    // A rewritten chain has other hashes.
    edit(dir.path(), "UPDATE audit SET hash = zeroblob(32) WHERE n = 2");
    let daemon = Daemon::start_in(dir, &[], &[]);
    let ran = daemon.cli(&["audit", "--verify"]);
    assert!(ran.stdout.contains("row 2: not the row that the anchor file knows"), "{ran:?}");
}

#[test]
fn an_anchor_file_that_loses_its_lines_is_missed() {
    let (dir, anchor) = anchored();
    let (dir, _) = one_life(dir);
    let mut daemon = Daemon::start_in(dir, &[], &[]);
    let lines = |anchor: &Path| std::fs::read_to_string(anchor).unwrap_or_default();
    daemon.until("the head of the start", |daemon| {
        let verified = daemon.cli(&["audit", "--verify", "--json"]).ok().json();
        lines(&anchor).contains(verified["head"].as_str().unwrap()).then_some(())
    });
    assert!(daemon.cli(&["audit", "--verify"]).ok().stdout.contains("anchored heads match"));
    std::fs::write(&anchor, "").unwrap();
    let ran = daemon.cli(&["audit", "--verify"]);
    assert!(ran.stdout.contains("removed from the anchor file"), "{ran:?}");
    let (dir, _) = daemon.end(Signal::SIGTERM);
    std::fs::remove_file(&anchor).unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    let audit = daemon.cli(&["audit"]).ok().stdout;
    assert_eq!(audit.matches("audit.anchor_begun").count(), 2, "{audit}");
}

#[test]
fn rows_removed_with_their_counter_while_the_daemon_runs_are_missed_by_it() {
    let daemon = Daemon::start();
    daemon.cli(&["token", "create", "--name", "one", "--role", "viewer"]).ok();
    daemon.cli(&["token", "create", "--name", "two", "--role", "viewer"]).ok();
    let last = rows(daemon.dir.path());
    edit(daemon.dir.path(), &format!("DELETE FROM audit WHERE n = {last}; {FORGE_COUNTER}"));
    let ran = daemon.cli(&["audit", "--verify"]);
    assert!(ran.stdout.contains(&format!("row {last}: missing: the running daemon knows it")), "{ran:?}");
    daemon.cli(&["token", "create", "--name", "three", "--role", "viewer"]).ok();
    let (dir, _) = daemon.end(Signal::SIGTERM);
    named_for_ever(dir, &format!("chain broken: row {last} is missing"));
}

/// The answer of `--verify` after a life, a backup, another life, and a restore of the backup.
fn restored((dir, _): (TempDir, i64), copy: impl FnOnce(&Daemon, &Path)) -> (Daemon, i64, i64) {
    let daemon = Daemon::start_in(dir, &[], &[]);
    let file = daemon.dir.path().join("copy.db");
    copy(&daemon, &file);
    let kept = rows(daemon.dir.path());
    daemon.cli(&["token", "create", "--name", "four", "--role", "viewer"]).ok();
    daemon.cli(&["token", "create", "--name", "five", "--role", "viewer"]).ok();
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let last = rows(dir.path());
    std::fs::rename(&file, database(dir.path())).unwrap();
    (Daemon::start_in(dir, &[], &[]), kept, last)
}

fn back_up(daemon: &Daemon, file: &Path) {
    daemon.cli(&["backup", file.to_str().unwrap()]).ok();
}

#[test]
fn a_restored_backup_is_recorded_as_a_restore_and_not_as_a_break() {
    let (daemon, ..) = restored(one_life(home("")), back_up);
    let ran = daemon.cli(&["audit", "--verify"]).ok();
    assert!(ran.stdout.contains("restored from a backup of ") && !ran.stdout.contains("missing"), "{ran:?}");
    let audit = daemon.cli(&["audit"]).ok().stdout;
    assert_eq!(audit.matches("audit.restored").count(), 1, "{audit}");
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let daemon = Daemon::start_in(dir, &[], &[]);
    let audit = daemon.cli(&["audit"]).ok().stdout;
    assert_eq!(audit.matches("audit.restored").count(), 1, "once: {audit}");
}

#[test]
fn with_an_anchor_file_a_restore_says_which_rows_are_missing_since_then() {
    let (daemon, kept, last) = restored(one_life(anchored().0), back_up);
    let ran = daemon.cli(&["audit", "--verify"]).ok();
    // The copy was made before the row about it.
    let missing = format!("; rows {kept} to {last} are missing since then");
    assert!(ran.stdout.contains("restored from a backup of ") && ran.stdout.contains(&missing), "{ran:?}");
}

#[test]
fn with_an_anchor_file_an_older_copy_that_is_no_backup_is_a_break() {
    let (daemon, kept, last) = restored(one_life(anchored().0), |daemon, file| {
        let connection = Connection::open(database(daemon.dir.path())).unwrap();
        connection.execute("VACUUM INTO ?1", [file.to_str().unwrap()]).unwrap();
    });
    let (dir, _) = daemon.end(Signal::SIGTERM);
    named_for_ever(dir, &format!("chain broken: rows {} to {last} are missing", kept + 1));
}
