//! Sessions that nobody needs end by themselves, and no agent of theirs is left. `intercom acp` is a real process here, as a client starts it.

use std::time::{Duration, Instant};

use intercom_testkit::client::{PATIENCE, Place};
use intercom_testkit::harness::{Daemon, QUICK, home, is_alive, of_kind, processes_in, profile, wait_turns};
use intercom_testkit::seats::{Seat, Way, fixture};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A grace time of so many seconds, and agents of both protocols.
fn config(seats: &str) -> String {
    let native = profile("native", &["serve"], "");
    format!("{QUICK}{}{native}[seats]\nagent = 'fixture'\n{seats}", fixture(&[]))
}

fn daemon(seats: &str) -> Daemon {
    Daemon::with_config(&config(seats))
}

const BRIEF: &str = "close_grace_seconds = 1\n";

fn relay(daemon: &Daemon) -> Seat {
    Seat::ready(Way::Lines, daemon)
}

fn of_agent(agent: &str) -> Value {
    json!({ "_meta": { "intercom": { "agent": agent } } })
}

/// A session with one prompt done, and its agent's process.
fn used(seat: &mut Seat, daemon: &Daemon, more: Value) -> (String, Value) {
    let session = seat.begun_with(daemon, more);
    let agent = daemon.show(&session)["agent"].clone();
    let text = if agent == "native" { "status:done;turn-end" } else { "say:done" };
    assert_eq!(seat.prompt(&session, text), "end_turn");
    let pid = daemon.show(&session)["pid"].clone();
    assert!(is_alive(&pid));
    (session, pid)
}

/// Waits for its end, which must be for this reason.
#[track_caller]
fn ends(daemon: &Daemon, session: &str, by: &str) {
    let ended = daemon.wait_kind(session, "session.ended");
    assert_eq!(ended["data"]["reason"], format!("stopped by intercom, {by}"));
}

#[track_caller]
fn runs(daemon: &Daemon, session: &str, pid: &Value) {
    assert_eq!(daemon.show(session)["phase"], "idle", "{session}");
    assert!(is_alive(pid));
}

/// The process of `intercom acp` for this daemon.
fn relay_process(daemon: &Daemon) -> Pid {
    let processes = processes_in(daemon.dir.path());
    let relay =
        processes.iter().find(|(_, line)| line.contains(" acp ")).unwrap_or_else(|| panic!("{processes:?}"));
    Pid::from_raw(relay.0)
}

#[test]
fn a_client_that_runs_one_prompt_and_leaves_leaves_no_agent_behind() {
    let daemon = daemon(BRIEF);
    for agent in ["fixture", "native"] {
        let mut seat = relay(&daemon);
        let (session, pid) = used(&mut seat, &daemon, of_agent(agent));
        seat.leave();
        ends(&daemon, &session, "left by its client");
        assert!(!is_alive(&pid));
        // Nothing is lost: whoever comes back finds it, and a prompt resumes it.
        let mut seat = relay(&daemon);
        seat.load(&daemon, &session);
        assert_eq!(seat.words(&session)[0].trim(), "done");
    }
}

#[test]
fn a_client_that_is_killed_leaves_no_agent_behind() {
    let daemon = daemon(BRIEF);
    let mut seat = relay(&daemon);
    let (session, pid) = used(&mut seat, &daemon, json!({}));
    kill(relay_process(&daemon), Signal::SIGKILL).unwrap();
    ends(&daemon, &session, "left by its client");
    assert!(!is_alive(&pid));
}

#[test]
fn another_daemon_goes_on_counting() {
    let daemon = daemon(BRIEF);
    let mut seat = relay(&daemon);
    let (session, pid) = used(&mut seat, &daemon, json!({}));
    seat.leave();
    seat.until_hung_up(PATIENCE);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    assert!(is_alive(&pid));
    let daemon = Daemon::start_in(dir, &[], &[]);
    ends(&daemon, &session, "left by its client");
    assert!(!is_alive(&pid));
}

#[test]
fn a_client_that_comes_back_keeps_its_session_until_it_leaves() {
    let daemon = daemon("close_grace_seconds = 4\n");
    let mut seat = relay(&daemon);
    let (session, pid) = used(&mut seat, &daemon, json!({}));
    let mut other = relay(&daemon);
    let (left, _) = used(&mut other, &daemon, json!({}));
    other.leave();
    other.until_hung_up(PATIENCE);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    // The relay finds the next daemon by itself, and the other one does not come back.
    seat.settle();
    ends(&daemon, &left, "left by its client");
    runs(&daemon, &session, &pid);
    assert_eq!(seat.prompt(&session, "say:still here"), "end_turn");
    seat.leave();
    ends(&daemon, &session, "left by its client");
}

#[test]
fn sessions_that_somebody_else_uses_or_that_have_a_name_stay() {
    let daemon = daemon(BRIEF);
    let mut kept: Vec<(String, Value)> = Vec::new();
    // A name.
    let mut seat = relay(&daemon);
    kept.push(used(&mut seat, &daemon, json!({ "_meta": { "intercom": { "name": "stays" } } })));
    seat.leave();
    // A client that says so.
    let mut seat = Seat::stdio(&daemon, &["--agent", "fixture", "--on-close", "keep"]).introduced();
    kept.push(used(&mut seat, &daemon, json!({})));
    seat.leave();
    // Another client.
    let (mut seat, mut other) = (relay(&daemon), Seat::websocket(&Place::socket(&daemon)).introduced());
    kept.push(used(&mut seat, &daemon, json!({})));
    other.load(&daemon, &kept[2].0);
    other.leave();
    seat.leave();
    // People.
    let mut seat = relay(&daemon);
    kept.push(used(&mut seat, &daemon, json!({})));
    daemon.cli(&["nudge", &kept[3].0, "say:nudged"]).ok();
    wait_turns(&daemon, &kept[3].0, 2);
    seat.leave();
    for (session, _) in &kept[2..] {
        assert_eq!(of_kind(&daemon.so_far(session), "session.kept").len(), 1);
    }
    // Later than all of them.
    let mut seat = relay(&daemon);
    let (session, _) = used(&mut seat, &daemon, json!({}));
    seat.leave();
    ends(&daemon, &session, "left by its client");
    for (session, pid) in &kept {
        runs(&daemon, session, pid);
    }
}

#[test]
fn a_session_that_another_client_loads_after_its_end_stays_in_its_next_life() {
    let daemon = daemon(BRIEF);
    let mut seat = relay(&daemon);
    let (session, _) = used(&mut seat, &daemon, json!({}));
    seat.leave();
    ends(&daemon, &session, "left by its client");
    let mut other = relay(&daemon);
    other.load(&daemon, &session);
    assert_eq!(other.prompt(&session, "say:again"), "end_turn");
    let pid = daemon.show(&session)["pid"].clone();
    other.leave();
    assert_eq!(of_kind(&daemon.so_far(&session), "session.kept").len(), 1);
    // One that is left later, and ends.
    let mut seat = relay(&daemon);
    let (later, _) = used(&mut seat, &daemon, json!({}));
    seat.leave();
    ends(&daemon, &later, "left by its client");
    runs(&daemon, &session, &pid);
}

#[test]
fn a_person_who_stops_a_session_does_not_keep_it() {
    let daemon = daemon(BRIEF);
    let mut seat = relay(&daemon);
    let (session, _) = used(&mut seat, &daemon, json!({}));
    daemon.cli(&["stop", &session]).ok();
    daemon.wait_for_end(&session);
    assert!(of_kind(&daemon.so_far(&session), "session.kept").is_empty());
}

#[test]
fn with_keep_in_the_configuration_they_stay() {
    let daemon = daemon("close_grace_seconds = 0\non_close = 'keep'\n");
    let mut seat = relay(&daemon);
    let (session, pid) = used(&mut seat, &daemon, json!({}));
    seat.leave();
    let mut closing = Seat::stdio(&daemon, &["--agent", "fixture", "--on-close", "close"]).introduced();
    let (closed, _) = used(&mut closing, &daemon, json!({}));
    closing.leave();
    daemon.wait_for_end(&closed);
    runs(&daemon, &session, &pid);
}

#[test]
fn nothing_ends_while_a_turn_runs_or_something_waits() {
    let daemon = daemon(&format!("{BRIEF}abandoned_hours = 0.0003\n"));
    let gate = daemon.dir.path().join("gate");
    let wait = format!("say:begun;wait-file:{}", gate.display());
    let mut seat = relay(&daemon);
    let busy = seat.begun(&daemon);
    seat.begin_prompt(&busy, &wait);
    seat.until_words(&busy, "begun");
    let asks = seat.begun_with(&daemon, json!({ "_meta": { "intercom": { "name": "asks" } } }));
    seat.begin_prompt(&asks, "say:begun;permission:allow_once,reject_once:run:make");
    seat.until_asked();
    let (idle, _) = used(&mut seat, &daemon, json!({}));
    let (named, _) = used(&mut seat, &daemon, json!({ "_meta": { "intercom": { "name": "named" } } }));
    seat.leave();
    ends(&daemon, &idle, "left by its client");
    ends(&daemon, &named, "abandoned");
    assert_eq!(daemon.show(&busy)["phase"], "working");
    assert_eq!(daemon.show(&asks)["phase"], "waiting");
    // Once the turn is over, it has its time as well.
    std::fs::write(gate, "").unwrap();
    ends(&daemon, &busy, "left by its client");
    // Who decides is there, and then nobody is.
    daemon.decide(&daemon.clearance(&asks), "approve");
    wait_turns(&daemon, &asks, 1);
    ends(&daemon, &asks, "abandoned");
}

#[test]
fn sessions_that_people_start_are_never_abandoned() {
    let daemon = daemon("abandoned_hours = 0.0003\n");
    let by_hand = daemon.run(&["status:up", "turn-end", "serve"]);
    daemon.wait_kind(&by_hand, "turn.ended");
    let mut seat = relay(&daemon);
    let (named, _) = used(&mut seat, &daemon, json!({ "_meta": { "intercom": { "name": "named" } } }));
    let begun = Instant::now();
    // As long as a client is attached, nothing is abandoned.
    let (other, _) =
        used(&mut relay(&daemon), &daemon, json!({ "_meta": { "intercom": { "name": "other" } } }));
    ends(&daemon, &other, "abandoned");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(daemon.show(&named)["phase"], "idle");
    seat.leave();
    ends(&daemon, &named, "abandoned");
    assert_eq!(daemon.show(&by_hand)["phase"], "idle");
}

#[test]
fn a_session_that_was_left_is_ended_also_if_the_daemon_was_away() {
    let dir = home(&config("abandoned_hours = 0.0003\nclose_grace_seconds = 86400\n"));
    let daemon = Daemon::start_in(dir, &[], &[]);
    let mut seat = relay(&daemon);
    let (named, pid) = used(&mut seat, &daemon, json!({ "_meta": { "intercom": { "name": "named" } } }));
    // The client and the daemon go at the same time: nobody has seen it leave.
    let (dir, _) = daemon.end(Signal::SIGKILL);
    seat.leave();
    let daemon = Daemon::start_in(dir, &[], &[]);
    ends(&daemon, &named, "abandoned");
    assert!(!is_alive(&pid));
}
