//! The agent's process: spawned, killed, and nothing left of it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use intercom_testkit::harness::{Daemon, alive, of_kind, profile};
use intercom_testkit::seats::{self, Seat, WAYS, Way};
use serde_json::{Value, json};

use super::daemon;

/// Processes that have ended and that nobody has reaped.
fn zombies_of(parent: i32) -> Vec<String> {
    let stats = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("stat"));
    let stats = stats.filter_map(|path: PathBuf| std::fs::read_to_string(path).ok());
    let wanted = format!("Z {parent} ");
    stats.filter(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(&wanted))).collect()
}

fn open_files(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// `kill`: SIGTERM first, SIGKILL after two seconds, as our ladder has it: interrupt, stdin closed, and one second each
/// before them.
#[test]
fn one_that_ignores_sigterm_is_killed_two_seconds_later() {
    let steps = ["ignore:TERM", "ignore:eof", "status:here", "expect:never"];
    let daemon = Daemon::with_config(&profile("deaf", &steps, ""));
    let mut seat = Seat::stdio(&daemon, &["--agent", "deaf"]).introduced();
    let session = seat.begun(&daemon);
    seat.begin_prompt(&session, "begin");
    seat.until_words(&session, "here");
    let pid = daemon.show(&session)["pid"].as_i64().unwrap();
    let start = Instant::now();
    seat.ok("session/close", json!({ "sessionId": session }));
    daemon.wait_for_end(&session);
    let took = start.elapsed();
    assert!(!alive(pid));
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
    let exited = daemon.wait_kind(&session, "agent.exited");
    let steps = json!(["interrupt", "close_stdin", "sigterm", "sigkill"]);
    assert_eq!((&exited["data"]["signal"], &exited["data"]["steps"]), (&json!(9), &steps), "{exited}");
}

/// And one that heeds it is not.
#[test]
fn one_that_heeds_sigterm_is_not_killed() {
    let daemon = Daemon::with_config(&profile("heeds", &["ignore:eof", "status:here", "expect:never"], ""));
    let mut seat = Seat::stdio(&daemon, &["--agent", "heeds"]).introduced();
    let session = seat.begun(&daemon);
    seat.begin_prompt(&session, "begin");
    seat.until_words(&session, "here");
    seat.ok("session/close", json!({ "sessionId": session }));
    daemon.wait_for_end(&session);
    let exited = daemon.wait_kind(&session, "agent.exited");
    let steps = json!(["interrupt", "close_stdin", "sigterm"]);
    assert_eq!((&exited["data"]["signal"], &exited["data"]["steps"]), (&json!(15), &steps), "{exited}");
}

/// `kill`: no zombies, no handles; "MUST clean up within 1 second of session end".
#[test]
fn a_session_that_ends_leaves_nothing_behind() {
    let daemon = daemon("");
    let round = |way: Way| {
        let mut seat = Seat::ready(way, &daemon);
        for _ in 0..5 {
            let session = seat.begun(&daemon);
            assert_eq!(seat.prompt(&session, "say:x"), "end_turn");
            seat.ok("session/close", json!({ "sessionId": session }));
            daemon.wait_for_end(&session);
        }
        seat.leave();
    };
    round(Way::Lines);
    let mut daemon_files = open_files(daemon.pid());
    for way in WAYS {
        round(way);
    }
    // What is being closed just now is given its second.
    let start = Instant::now();
    while open_files(daemon.pid()) > daemon_files && start.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon_files += 4; // the readers of the store come and go
    assert!(open_files(daemon.pid()) <= daemon_files, "{} > {daemon_files}", open_files(daemon.pid()));
    assert_eq!(zombies_of(daemon.pid()), [] as [String; 0]);
}

/// The same for an agent that ends by itself: its prompt is answered, its session ended, its process gone within 1 s.
#[test]
fn an_agent_that_exits_is_cleaned_up_within_a_second() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        seat.prompt(&session, "say:x");
        let pid = daemon.show(&session)["pid"].as_i64().unwrap();
        let turn = seat.begin_prompt(&session, "exit:0");
        let start = Instant::now();
        while alive(pid) {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(2));
        }
        let start = Instant::now();
        seat.answer_to(&turn);
        daemon.wait_for_end(&session);
        assert!(start.elapsed() < Duration::from_secs(1), "{way:?}: {:?}", start.elapsed());
    }
}

/// `spawn`: "MUST capture stdout, stderr, stdin".
#[test]
fn what_an_agent_writes_to_stderr_is_kept_and_not_told() {
    let daemon = daemon("");
    let mut seat = Seat::ready(Way::Lines, &daemon);
    let session = seat.begun(&daemon);
    assert_eq!(seat.prompt(&session, "stderr:a secret of mine;say:x"), "end_turn");
    let told = seat.log.iter().map(ToString::to_string).collect::<String>();
    assert!(!told.contains("a secret of mine"), "{told}");
    let tail = daemon.show(&session)["stderr_tail"].to_string();
    assert!(tail.contains("a secret of mine"), "{tail}");
}

/// `spawn`: "MUST apply permission mode": the presets bind, in a deferred session as well.
#[test]
fn a_preset_denies_before_anybody_is_asked() {
    // An agent without modes of its own, so that the presets are the modes.
    let plain = seats::named("plain", &["caps:load"]);
    let daemon = daemon(&plain);
    let mut seat = Seat::stdio(&daemon, &["--agent", "plain"]).introduced();
    let first = seat.begun(&daemon);
    seat.ok("session/close", json!({ "sessionId": first }));
    let told = seat.ok("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }));
    let session = told["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(told["modes"]["currentModeId"], "full", "{told}");
    let modes: Vec<&Value> =
        told["modes"]["availableModes"].as_array().unwrap().iter().map(|mode| &mode["id"]).collect();
    assert_eq!(modes, ["full", "read-only", "safe", "sandbox"], "{told}");
    seat.ok("session/set_mode", json!({ "sessionId": session, "modeId": "read-only" }));
    seat.until("the mode", |message| message["params"]["update"]["currentModeId"] == "read-only");
    let turn = seat.begin_prompt(&session, "permission::edit:a.txt:old=>new;say:after");
    assert_eq!(seat.answer_to(&turn)["result"]["stopReason"], "end_turn");
    assert!(
        seat.log.iter().all(|message| message["method"] != "session/request_permission"),
        "{:?}",
        seat.log
    );
    let events = daemon.so_far(&session);
    let decided = of_kind(&events, "clearance.decided");
    assert!(
        decided.last().is_some_and(|event| event["data"].to_string().contains("read-only")),
        "{decided:?}"
    );
}
