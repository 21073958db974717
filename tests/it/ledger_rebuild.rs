//! The ledger of a damaged database, made again from its log while agents run on.

use intercom_testkit::harness::{self, Daemon, command, run};
use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::json;

#[test]
fn a_damaged_ledger_is_made_again_from_the_log_and_the_agent_gets_its_answer() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["clearance:1:Delete it", "echo:1", "clearance:2:Keep it", "echo:1", "serve"]);
    let first = daemon.clearance(&session);
    daemon.decide(&first, "deny");
    let second = daemon.wait_for(&session, "the second request", |event| event["data"]["title"] == "Keep it");
    let second = second["data"]["clearance"].as_str().unwrap().to_owned();
    let shown = daemon.get(&format!("/api/v1/clearances/{first}")).1;

    let refused = daemon.cli(&["doctor", "--rebuild-ledger"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("uses the state directory"), "{refused:?}");
    assert!(refused.stderr.contains("hint: stop it first; agents keep running: "), "{refused:?}");
    let sound = daemon.cli(&["doctor", "--rebuild-ledger", "--dry-run"]).ok();
    assert_eq!(sound.stdout.lines().count(), 1, "{sound:?}");
    assert!(sound.stdout.starts_with("the ledger agrees with the log: 2 rows from "), "{sound:?}");

    let (dir, _) = daemon.end(Signal::SIGKILL);
    let path = dir.path().join("state/intercom.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch(&format!(
            "UPDATE clearances SET status = 'approved', decided_by = 'mallory' WHERE id = '{first}';
             DELETE FROM clearances WHERE id = '{second}';"
        ))
        .unwrap();
    let compared = run(command(dir.path()).args(["doctor", "--rebuild-ledger", "--dry-run", "--json"]));
    assert_eq!(compared.code, 1, "{compared:?}");
    let body = compared.json();
    assert_eq!(body["replaced"], json!(false));
    let found: Vec<_> = body["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["id"].as_str().unwrap(), row["difference"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [(second.as_str(), "missing"), (first.as_str(), "changed")]);
    let rebuilt = run(command(dir.path()).args(["doctor", "--rebuild-ledger"])).ok();
    let changed = format!("{first}  status was approved, is denied in the log; decided_by was mallory, is ");
    assert!(rebuilt.stdout.contains(&format!("{second}  was missing\n")), "{rebuilt:?}");
    assert!(rebuilt.stdout.contains(&changed), "{rebuilt:?}");
    assert!(rebuilt.stdout.contains("the ledger was rebuilt from the log: 2 rows from "), "{rebuilt:?}");

    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(daemon.get(&format!("/api/v1/clearances/{first}")).1, shown);
    daemon.decide(&second, "approve");
    daemon.wait_for(&session, "the answer", |event| {
        event["data"]["message"] == "received" && event.to_string().contains("approved")
    });
}

#[test]
fn a_ledger_is_not_made_where_there_is_no_database_or_of_another_machine() {
    let dir = harness::home("");
    let none = run(command(dir.path()).args(["doctor", "--rebuild-ledger"]));
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.stderr.contains("no daemon has used this state directory yet"), "{none:?}");
    let elsewhere = run(command(dir.path())
        .env("INTERCOM_URL", "http://127.0.0.1:9")
        .args(["doctor", "--rebuild-ledger"]));
    assert_eq!(elsewhere.code, 2, "{elsewhere:?}");
    assert!(!dir.path().join("state/intercom.db").exists());
}
