//! Agents that the database does not know, because it was restored from a backup that is older than they are: adopted, seen, logged,
//! stoppable, and never admins.

use std::path::Path;

use intercom_testkit::harness::{self, Daemon, QUICK, home, is_alive, of_kind, refused};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Ends the daemon with `kill -9` and starts another one on the copy of its database.
fn restored(daemon: Daemon, copy: &Path) -> Daemon {
    restored_after(daemon, copy, |_| {})
}

/// As [`restored`], with a look at the directory while there is no daemon.
fn restored_after(daemon: Daemon, copy: &Path, look: impl FnOnce(&Path)) -> Daemon {
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let state = dir.path().join("state");
    for file in ["intercom.db-wal", "intercom.db-shm"] {
        std::fs::remove_file(state.join(file)).ok(); // there may be none
    }
    std::fs::copy(copy, state.join("intercom.db")).unwrap();
    look(dir.path());
    Daemon::start_in(dir, &[], &[])
}

/// Says something, asks for a clearance, waits for a file, and calls the daemon.
const CALLER: &str = r#"
import json, os, socket, sys, time
def say(method, params, **more):
    print(json.dumps({"method": method, "params": params, **more}), flush=True)
say("status/update", {"message": "second"})
say("clearance/request", {"title": "May I?", "risk_level": "low"}, id="1")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
daemon = socket.socket(socket.AF_UNIX)
daemon.connect(sys.argv[2])
daemon.sendall(b"GET /api/v1/sessions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
answer = daemon.makefile("rb").read().decode()
say("status/update", {"message": "called", "status": int(answer.split()[1])})
sys.stdin.read()
"#;

fn backup(daemon: &Daemon) -> std::path::PathBuf {
    let copy = daemon.dir.path().join("copy.db");
    daemon.cli(&["backup", copy.to_str().unwrap()]).ok();
    copy
}

fn orphan(daemon: &Daemon, session: &str) -> Value {
    let shown = daemon.show(session);
    assert_eq!(shown["standing"]["state"], "orphan", "{shown}");
    assert!(shown["why"].as_str().unwrap().starts_with("orphan: the database "), "{shown}");
    shown
}

/// Nothing but a stop is possible, and that ends the whole tree.
fn can_only_be_stopped(daemon: &Daemon, session: &str, pid: &Value) {
    let prompts = format!("/api/v1/sessions/{session}/prompts");
    refused(daemon.post(&prompts, &json!({ "text": "hello" })), 409, "orphan");
    refused(
        daemon.post(&format!("/api/v1/sessions/{session}/nudge"), &json!({ "message": "x" })),
        409,
        "orphan",
    );
    refused(daemon.post(&format!("/api/v1/sessions/{session}/resume"), &json!({})), 409, "running");
    let (answer, _) = daemon.end_session(session, "stop");
    assert_eq!(answer["phase"], "ended");
    assert!(!is_alive(pid));
}

#[test]
fn an_agent_that_a_restored_database_does_not_know_is_seen_logged_refused_and_stopped() {
    let daemon = Daemon::quick("");
    let first = daemon.run(&["status:first", "serve"]);
    daemon.wait_status(&first, "first");
    let copy = backup(&daemon);
    let gate = daemon.dir.path().join("gate");
    std::fs::write(daemon.workspace().join("agent.py"), CALLER).unwrap();
    let body =
        json!({ "command": "python3", "args": ["agent.py", gate, daemon.socket()], "name": "unknown" });
    let second = daemon.ask_to_start(body).1["id"].as_str().unwrap().to_owned();
    let clearance = daemon.clearance(&second);
    let pid = daemon.show(&second)["pid"].clone();

    let daemon = restored_after(daemon, &copy, |dir| {
        let doctor = harness::run(harness::command(dir).args(["doctor", "--json"])).json();
        let check = doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "orphans");
        let detail = check.unwrap_or_else(|| panic!("{doctor:#}"))["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(&second) && !detail.contains(&first), "{detail}");
    });
    assert!(
        daemon.log().contains("1 session re-attached, 0 ended while away, 1 adopted as orphans"),
        "{}",
        daemon.log()
    );
    let shown = orphan(&daemon, &second);
    assert_eq!((&shown["pid"], &shown["name"]), (&pid, &json!("unknown")));
    assert_eq!(shown["workspace"], json!(daemon.workspace()));
    let listed = daemon.cli(&["ls"]).ok().stdout;
    assert!(listed.lines().any(|line| line.contains("unknown") && line.contains("orphan")), "{listed}");
    assert!(is_alive(&pid) && daemon.dir.path().join(format!("state/agents/{second}/1/sock")).exists());

    // What it had said is in the log, what it says now too, and what it asks for is kept and not asked.
    std::fs::write(&gate, "").unwrap();
    daemon.wait_status(&second, "called");
    let events = daemon.so_far(&second);
    assert_eq!(of_kind(&events, "session.adopted").len(), 1);
    let said: Vec<&Value> =
        of_kind(&events, "status").iter().map(|event| &event["data"]["message"]).collect();
    assert_eq!(said[0], "second", "{said:?}");
    let asked = of_kind(&events, "unknown");
    assert!(asked.iter().any(|event| event["data"]["message"]["title"] == "May I?"), "{events:#?}");
    assert_eq!(daemon.get("/api/v1/clearances?status=pending").1["items"], json!([]));
    assert_eq!(daemon.get(&format!("/api/v1/clearances/{clearance}")).0, 404);
    // Its calls are those of an agent.
    let called = events.iter().find(|event| event["data"]["message"] == "called").unwrap();
    assert_eq!(called["data"]["status"], 403, "{called}");

    can_only_be_stopped(&daemon, &second, &pid);
    // From here on it is a session like any other.
    daemon.cli(&["resume", &second]).ok();
    assert_eq!(daemon.show(&second)["generation"], 2);
    assert_ne!(daemon.show(&second)["standing"]["state"], "orphan");
    daemon.cli(&["audit", "--verify"]).ok();
    let audit = daemon.cli(&["audit", "--json"]).ok().stdout;
    assert!(audit.contains("session.adopted"), "{audit}");
}

#[test]
fn an_orphan_stays_one_for_the_next_daemon() {
    let daemon = Daemon::quick("");
    let copy = backup(&daemon);
    let session = daemon.run(&["status:up", "serve"]);
    daemon.wait_status(&session, "up");
    let pid = daemon.show(&session)["pid"].clone();
    let daemon = restored(daemon, &copy);
    orphan(&daemon, &session);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(orphan(&daemon, &session)["pid"], pid);
    assert_eq!(of_kind(&daemon.so_far(&session), "session.adopted").len(), 1, "once");
    can_only_be_stopped(&daemon, &session, &pid);
}

#[test]
fn a_process_of_a_later_generation_than_the_database_knows_is_adopted() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["status:up", "serve"]);
    daemon.wait_status(&session, "up");
    daemon.end_session(&session, "stop");
    let ended = backup(&daemon);
    daemon.cli(&["resume", &session]).ok();
    let pid = daemon.show(&session)["pid"].clone();
    let daemon = restored(daemon, &ended);
    let shown = orphan(&daemon, &session);
    assert_eq!((&shown["generation"], &shown["pid"]), (&json!(2), &pid));
    can_only_be_stopped(&daemon, &session, &pid);
}

#[test]
fn a_process_that_was_told_more_than_the_database_knows_is_adopted_and_what_was_open_is_withdrawn() {
    let daemon = Daemon::quick("");
    let session =
        daemon.run(&["clearance:1:May I?", "answer:1", "clearance:2:And this?", "answer:2", "serve"]);
    let first = daemon.clearance(&session);
    let copy = backup(&daemon);
    daemon.decide(&first, "approve");
    daemon.wait_status(&session, "answered");
    daemon.wait_for(&session, "the second", |event| event["data"]["title"] == "And this?");
    let pid = daemon.show(&session)["pid"].clone();
    let daemon = restored(daemon, &copy);
    orphan(&daemon, &session);
    // The database has it as pending, and the agent has its answer: it cannot be decided twice.
    let (_, clearance) = daemon.get(&format!("/api/v1/clearances/{first}"));
    assert_eq!(clearance["status"], "withdrawn", "{clearance}");
    assert_eq!(daemon.show(&session)["pending"]["clearances"], 0);
    can_only_be_stopped(&daemon, &session, &pid);
}

#[test]
fn a_process_that_was_told_nothing_since_the_backup_goes_on_as_if_nothing_had_been() {
    let daemon = Daemon::quick("");
    let gate = daemon.dir.path().join("gate");
    let session = daemon.run(&[
        "status:up",
        &format!("wait-file:{}", gate.display()),
        "clearance:1:May I?",
        "answer:1",
        "serve",
    ]);
    daemon.wait_status(&session, "up");
    let copy = backup(&daemon);
    std::fs::write(&gate, "").unwrap();
    daemon.clearance(&session);
    let daemon = restored(daemon, &copy);
    assert_ne!(daemon.show(&session)["standing"]["state"], "orphan");
    daemon.decide(&daemon.clearance(&session), "approve");
    daemon.wait_status(&session, "answered");
}

#[test]
fn an_agent_whose_directory_was_removed_is_ended() {
    let daemon = Daemon::with_config(QUICK);
    let copy = backup(&daemon);
    let session = daemon.run(&["ignore:TERM", "grandchild:setsid,double:ignore:TERM|hang", "serve"]);
    let below = daemon.wait_status(&session, "grandchild")["pid"].clone();
    let pid = daemon.show(&session)["pid"].clone();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    std::fs::remove_dir_all(dir.path().join("state/agents")).unwrap();
    std::fs::copy(&copy, dir.path().join("state/intercom.db")).unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert!(!is_alive(&pid) && !is_alive(&below), "{}", daemon.log());
    let audit = daemon.cli(&["audit", "--json"]).ok().stdout;
    assert!(audit.contains("leftovers.ended"), "{audit}");
}

#[test]
fn an_agent_of_a_session_that_the_database_knows_to_have_ended_is_ended() {
    let dir = home(QUICK);
    let daemon = Daemon::start_in(dir, &[], &[]);
    let session = daemon.run(&["status:up", "serve"]);
    daemon.wait_status(&session, "up");
    let pid = daemon.show(&session)["pid"].clone();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let state = dir.path().join("state");
    let database = rusqlite::Connection::open(state.join("intercom.db")).unwrap();
    let ended = "UPDATE sessions SET phase = 'ended', state = json_set(state, '$.stage',
        json('{\"Ended\":{\"reason\":\"stopped by a test\",\"at\":\"2026-01-01T00:00:00Z\"}}'))";
    database.execute(ended, []).unwrap();
    drop(database);
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert!(!is_alive(&pid), "{}", daemon.log());
    assert!(!daemon.dir.path().join(format!("state/agents/{session}")).exists());
}

/// Damages a column of a session in the database of a daemon that is not running.
fn damage(dir: &Path, session: &str, column: &str) {
    let database = rusqlite::Connection::open(dir.join("state/intercom.db")).unwrap();
    let sql = format!("UPDATE sessions SET {column} = '{{\"damaged' WHERE id = ?1");
    assert_eq!(database.execute(&sql, [session]).unwrap(), 1);
}

#[test]
fn a_live_session_that_the_database_cannot_read_is_adopted_and_the_others_run_on() {
    for column in ["state", "launch"] {
        let daemon = Daemon::quick("");
        let damaged = daemon.run(&["clearance:1:Open", "serve"]);
        let clearance = daemon.clearance(&damaged);
        let other = daemon.run(&["echo"]);
        let pid = daemon.show(&damaged)["pid"].clone();
        let (dir, _) = daemon.end(Signal::SIGKILL);
        damage(dir.path(), &damaged, column);
        let daemon = Daemon::start_in(dir, &[], &[]);
        let said = "1 session re-attached, 0 ended while away, 1 adopted as orphans";
        assert!(daemon.log().contains(said), "{column}: {}", daemon.log());
        assert!(daemon.log().contains("cannot be read"), "{column}: {}", daemon.log());

        // It is seen, nothing of it waits for an answer that nobody can give, and it can be stopped.
        let shown = orphan(&daemon, &damaged);
        assert_eq!(shown["pid"], pid, "{column}");
        assert_eq!(daemon.get(&format!("/api/v1/clearances/{clearance}")).1["status"], "withdrawn");
        let adopted = daemon.wait_kind(&damaged, "session.adopted");
        assert!(adopted["data"]["why"].as_str().unwrap().contains("cannot be read"), "{adopted}");
        can_only_be_stopped(&daemon, &damaged, &pid);
        daemon.prompt(&other, "still here");
        daemon.wait_for(&other, "the echo", |event| event.to_string().contains("still here"));
    }
}

#[test]
fn a_live_session_that_the_database_cannot_read_and_that_has_no_process_is_ended() {
    let daemon = Daemon::quick("");
    let damaged = daemon.run(&["serve"]);
    let other = daemon.run(&["echo"]);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let agents = dir.path().join("state/agents").join(&damaged);
    // Nothing is left of its process.
    for meta in agents.read_dir().unwrap().flatten() {
        let meta = std::fs::read(meta.path().join("meta.json")).unwrap();
        let meta: Value = serde_json::from_slice(&meta).unwrap();
        for who in ["shim", "agent"] {
            let pid = i32::try_from(meta[who]["pid"].as_i64().unwrap()).unwrap();
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
    }
    std::fs::remove_dir_all(agents).unwrap();
    damage(dir.path(), &damaged, "state");
    let daemon = Daemon::start_in(dir, &[], &[]);
    let shown = daemon.show(&damaged);
    assert_eq!(shown["phase"], "ended", "{shown}");
    assert!(shown["exit"]["reason"].as_str().unwrap().contains("cannot be read"), "{shown}");
    daemon.prompt(&other, "still here");
    daemon.wait_for(&other, "the echo", |event| event.to_string().contains("still here"));
}
