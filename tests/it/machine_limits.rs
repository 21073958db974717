//! The limits of a machine: named before they are met, and when they are.

use std::process::Command;

use intercom_testkit::harness::{Daemon, QUICK, SERVE, command, fixture, home, refused};
use serde_json::{Value, json};

/// Few more open files than a daemon keeps for people.
const OPEN_FILES: u32 = 120;

/// A daemon that may not open more files than that.
fn daemon() -> Daemon {
    let dir = home(&format!("{QUICK}[limits]\nmin_free_memory_mib = 0\n"));
    let intercom = command(dir.path());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("ulimit -n {OPEN_FILES}; exec \"$0\" \"$@\"")]);
    shell.arg(intercom.get_program()).args(SERVE).env_clear();
    shell.envs(intercom.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let socket = dir.path().join("state/intercom.sock");
    Daemon::launch(dir, &mut shell, |_| socket)
}

fn capacity(daemon: &Daemon) -> Value {
    let checks = daemon.cli(&["doctor", "--json"]).json();
    let checks = checks["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == "sessions").unwrap().clone()
}

#[test]
fn the_limit_that_is_met_first_is_named_before_and_when_it_is_met() {
    let mut daemon = daemon();
    let before = capacity(&daemon);
    assert_eq!(before["facts"]["first_limit"], "descriptors", "{before}");
    let fit = before["facts"]["more_sessions"].as_u64().unwrap();
    assert!((1..15).contains(&fit), "{before}");

    let start = |daemon: &Daemon| daemon.ask_to_start(json!({ "command": fixture(), "args": ["serve"] }));
    let mut sessions = Vec::new();
    let refusal = loop {
        match start(&daemon) {
            (201, session) => sessions.push(session["id"].as_str().unwrap().to_owned()),
            refusal => break refusal,
        }
        assert!(sessions.len() < 100);
    };
    assert!(sessions.len() as u64 >= fit, "doctor promised {fit}, {} have started", sessions.len());
    let error = refused(refusal, 503, "machine_limit");
    let text = error.to_string();
    assert!(text.contains(&format!("{OPEN_FILES} open files of the daemon")), "{text}");
    assert!(text.contains("LimitNOFILE="), "{text}");

    let after = capacity(&daemon);
    assert_eq!(
        (&after["status"], &after["facts"]["more_sessions"]),
        (&json!("warning"), &json!(0)),
        "{after}"
    );
    // People still reach the daemon, and a session that ends makes room.
    daemon.end_session(&sessions[0], "kill");
    daemon.until("room for another session", |daemon| (start(daemon).0 == 201).then_some(()));
}
