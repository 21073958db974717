//! Random `kill -9`s while twenty agents stream, ask and are answered. `INTERCOM_TEST_KILLS` says how many.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use intercom_testkit::harness::{Daemon, SERVE, command, home, http, is_alive};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::INTERCOM;

const AGENTS: usize = 20;
const LINES: u64 = 100;

fn kills(usual: usize) -> usize {
    std::env::var("INTERCOM_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Deterministic for a seed: what failed once can be tried again.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Streams numbered lines and asks after every hundred; at last reports whatever it was sent beyond its answers.
fn script(rounds: u64) -> Vec<String> {
    let mut steps = Vec::new();
    for round in 0..rounds {
        steps.push(format!("flood:{LINES}:100:{}", round * LINES + 1));
        steps.push(format!("clearance:r{round}:Round {round}"));
        steps.push(format!("answer:r{round}"));
    }
    steps.extend(["status:done".to_owned(), "echo".to_owned()]);
    steps
}

/// Ends whoever looks at it, also when the test fails.
struct EndOf<'a>(&'a AtomicBool);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Approves whatever waits, also while the daemon comes and goes, until told to stop.
fn decide_all(socket: &std::path::Path, stop: &AtomicBool) {
    let quietly = |method: &str, path: &str, body: Option<&str>| {
        std::panic::catch_unwind(|| http(socket, method, path, body, &[("accept", "application/json")])).ok()
    };
    while !stop.load(Ordering::Relaxed) {
        let list = quietly("GET", "/api/v1/clearances?status=pending&limit=1000", None);
        let list: Value = list.and_then(|(_, text)| serde_json::from_str(&text).ok()).unwrap_or(Value::Null);
        let items = list["items"].as_array().cloned().unwrap_or_default();
        for item in &items {
            let path = format!("/api/v1/clearances/{}/decision", item["id"].as_str().unwrap());
            quietly("POST", &path, Some(r#"{"decision":"approve"}"#));
        }
        if items.is_empty() {
            std::thread::sleep(Duration::from_millis(5)); // nothing to do, and perhaps nobody to ask
        }
    }
}

/// All numbers from one on, each once; every round answered once; nothing beyond the answers was received.
fn check(events: &[Value], rounds: u64) {
    let text = |event: &Value| event["data"]["message"].as_str().unwrap_or_default().to_owned();
    let said: Vec<String> = events.iter().filter(|event| event["kind"] == "status").map(text).collect();
    let numbers = said.iter().filter_map(|text| text.strip_prefix("flood ")?.split(' ').next()?.parse().ok());
    assert_eq!(
        numbers.collect::<Vec<u64>>(),
        (1..=rounds * LINES).collect::<Vec<u64>>(),
        "lost, doubled or torn"
    );
    let count = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count() as u64;
    for kind in ["clearance.requested", "clearance.decided", "clearance.delivered"] {
        assert_eq!(count(kind), rounds, "{kind}");
    }
    assert_eq!(said.iter().filter(|text| *text == "answered").count() as u64, rounds);
    let received: Vec<&Value> =
        events.iter().filter(|event| event["data"]["message"] == "received").collect();
    let only_the_end =
        received.iter().all(|event| event["data"]["line"].to_string().contains("session/interrupt"));
    assert!(only_the_end, "an answer arrived twice: {received:#?}");
    assert_eq!(count("line.rejected"), 0);
}

fn wait_until_done(daemon: &Daemon, sessions: &[String], rounds: u64) {
    // Hundreds of rounds may still be to be answered, which takes longer than any single wait may.
    let last = format!("Round {}", rounds - 1);
    let start = Instant::now();
    for session in sessions {
        let newest = format!("/api/v1/clearances?session={session}&limit=1");
        let answered = |item: &Value| item["title"] == last && item["delivery"] == "delivered";
        while !answered(&daemon.get(&newest).1["items"][0]) {
            assert!(start.elapsed() < Duration::from_mins(10), "{session} is not done: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(50)); // nobody tells us of the store's progress
        }
        daemon.wait_status(session, "done");
    }
}

#[test]
fn a_daemon_killed_again_and_again_loses_and_doubles_nothing() {
    let (kills, seed) = (kills(20), 0x5eed);
    let rounds = 2 * kills as u64;
    let mut dice = Dice(seed);
    let mut daemon = Daemon::with_config("[limits]\nmax_sessions = 50\n");
    let script = script(rounds);
    let steps: Vec<&str> = script.iter().map(String::as_str).collect();
    let sessions: Vec<String> = (0..AGENTS).map(|_| daemon.run(&steps)).collect();
    let pids: Vec<Value> = sessions.iter().map(|session| daemon.show(session)["pid"].clone()).collect();
    let stop = AtomicBool::new(false);
    // The state directory stays where it is, whoever serves from it.
    let socket = daemon.socket();
    let daemon = std::thread::scope(|scope| {
        let decider = scope.spawn(|| decide_all(&socket, &stop));
        let end = EndOf(&stop);
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(20 + dice.throw(300)));
            let (dir, _) = daemon.end(Signal::SIGKILL);
            assert!(pids.iter().all(is_alive), "every agent lives on");
            daemon = Daemon::start_in(dir, &[], &[]);
        }
        wait_until_done(&daemon, &sessions, rounds);
        drop(end);
        decider.join().unwrap();
        daemon
    });
    assert!(pids.iter().all(is_alive));
    let mut all = vec!["stop"];
    all.extend(sessions.iter().map(String::as_str));
    daemon.cli(&all).ok();
    for session in &sessions {
        check(&daemon.all_events(session), rounds);
    }
}

/// A daemon whose files can be kept from growing, as on a full disk.
fn start_with_a_disk_to_fill(dir: tempfile::TempDir) -> Daemon {
    let socket = dir.path().join("state/intercom.sock");
    let mut sh = Command::new("sh");
    sh.args(["-c", &format!("trap '' XFSZ; exec {INTERCOM} {}", SERVE.join(" "))]).env_clear();
    sh.envs(command(dir.path()).get_envs().filter_map(|(name, value)| Some((name, value?))));
    Daemon::launch(dir, &mut sh, |_| socket)
}

fn fill(daemon: &Daemon) {
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &daemon.pid().to_string(), "--fsize=4096:unlimited"]);
    assert!(prlimit.status().unwrap().success());
}

#[test]
fn a_daemon_killed_while_its_disk_is_full_loses_and_doubles_nothing() {
    let (kills, mut dice) = (kills(20) / 4, Dice(0xd15c));
    let rounds = 4 * kills as u64;
    let mut daemon = start_with_a_disk_to_fill(home("[limits]\nmin_free_disk_mib = 0\n"));
    let script = script(rounds);
    let steps: Vec<&str> = script.iter().map(String::as_str).collect();
    let sessions: Vec<String> = (0..AGENTS).map(|_| daemon.run(&steps)).collect();
    let pids: Vec<Value> = sessions.iter().map(|session| daemon.show(session)["pid"].clone()).collect();
    let (stop, socket) = (AtomicBool::new(false), daemon.socket());
    let daemon = std::thread::scope(|scope| {
        let decider = scope.spawn(|| decide_all(&socket, &stop));
        let end = EndOf(&stop);
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(dice.throw(200)));
            fill(&daemon);
            std::thread::sleep(Duration::from_millis(dice.throw(300)));
            let (dir, _) = daemon.end(Signal::SIGKILL);
            assert!(pids.iter().all(is_alive), "every agent lives on");
            daemon = start_with_a_disk_to_fill(dir);
        }
        wait_until_done(&daemon, &sessions, rounds);
        drop(end);
        decider.join().unwrap();
        daemon
    });
    let mut all = vec!["stop"];
    all.extend(sessions.iter().map(String::as_str));
    daemon.cli(&all).ok();
    for session in &sessions {
        check(&daemon.all_events(session), rounds);
    }
}

#[test]
fn shims_killed_at_random_lose_nothing_that_their_agents_had_said() {
    let mut dice = Dice(0xfeed);
    let daemon = Daemon::with_config("[limits]\nmax_sessions = 50\n");
    for _ in 0..kills(20) {
        let session = daemon.run(&["flood:20000", "hang"]);
        let meta = daemon.dir.path().join(format!("state/agents/{session}/1/meta.json"));
        let meta: Value = serde_json::from_slice(&std::fs::read(meta).unwrap()).unwrap();
        let shim = i32::try_from(meta["shim"]["pid"].as_i64().unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(dice.throw(60)));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(shim), Signal::SIGKILL).unwrap();
        let events = daemon.all_events(&session);
        assert!(!is_alive(&meta["agent"]["pid"]), "nothing lingers");
        assert_eq!(events.last().unwrap()["data"]["reason"], "its shim died");
        let text = |event: &Value| event["data"]["message"].as_str().unwrap_or_default().to_owned();
        let said = events.iter().filter(|event| event["kind"] == "status").map(text);
        let numbers: Vec<u64> =
            said.filter_map(|text| text.strip_prefix("flood ")?.split(' ').next()?.parse().ok()).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<u64>>(), "a gap or a double");
        // The agent is killed in the middle of a write: at most its last line is torn.
        let torn = events.iter().filter(|event| event["kind"] == "line.rejected").count();
        assert!(torn <= 1, "{torn} torn lines");
    }
}

#[test]
fn fifty_agents_are_found_again_within_five_seconds_and_stopped_within_five() {
    let daemon = Daemon::with_config("[limits]\nmax_sessions = 50\n");
    let sessions: Vec<String> = (0..50).map(|_| daemon.run(&["serve"])).collect();
    let pids: Vec<Value> = sessions.iter().map(|session| daemon.show(session)["pid"].clone()).collect();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let started = Instant::now();
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert!(daemon.log().contains("50 sessions re-attached, 0 ended while away"), "{}", daemon.log());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(pids.iter().all(is_alive));
    let prompt = json!({ "text": "status:hello again" });
    for session in &sessions {
        assert_eq!(
            daemon.post(&format!("/api/v1/sessions/{session}/prompts"), &prompt).1["state"],
            "delivered"
        );
        daemon.wait_status(session, "hello again");
    }
    let started = Instant::now();
    let (_dir, status) = daemon.end(Signal::SIGTERM);
    assert!(status.success());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(!pids.iter().any(is_alive));
}
