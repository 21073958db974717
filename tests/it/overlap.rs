//! The next lines are decoded while the store writes the ones before: nothing is lost, doubled or done too early.

use std::path::PathBuf;

use intercom_testkit::harness::{Daemon, QUICK, home, is_alive, of_kind};
use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::{Value, json};

/// More lines than one write has, so that some are left while it is pending.
const LINES: u64 = 2500;

/// The writing end of the database. While it is held, writes of the daemon wait, and fail after some seconds.
struct HeldStore(Connection);

impl HeldStore {
    fn hold(daemon: &Daemon) -> Self {
        let connection = Connection::open(daemon.dir.path().join("state/intercom.db")).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self(connection)
    }

    fn release(self) {
        self.0.execute_batch("ROLLBACK").unwrap();
    }
}

/// A daemon, the file that it creates when it has decoded lines while a write before them was pending, and the file
/// that lets its agent speak.
struct Overlap {
    daemon: Daemon,
    session: String,
    pid: Value,
    ahead: PathBuf,
    gate: PathBuf,
}

impl Overlap {
    /// An agent that takes these steps once it may speak.
    fn new(steps: &[&str]) -> Self {
        let dir = home(QUICK);
        let (ahead, gate) = (dir.path().join("ahead"), dir.path().join("gate"));
        let point = format!("output.ahead={}", ahead.display());
        let daemon = Daemon::start_in(dir, &[], &[("INTERCOM_FAILPOINT", &point)]);
        let wait = format!("wait-file:{}", gate.display());
        let steps: Vec<&str> = ["status:up", &wait].into_iter().chain(steps.iter().copied()).collect();
        let session = daemon.run(&steps);
        daemon.wait_status(&session, "up");
        let pid = daemon.show(&session)["pid"].clone();
        Self { daemon, session, pid, ahead, gate }
    }

    /// Lets the agent speak, until a write is pending and a batch is ahead of it.
    fn hold(&mut self) -> HeldStore {
        let held = HeldStore::hold(&self.daemon);
        std::fs::write(&self.gate, "").unwrap();
        let ahead = &self.ahead;
        self.daemon.until("lines decoded ahead", |_| ahead.exists().then_some(()));
        held
    }

    fn wait_until_a_write_fails(&mut self) {
        let fails =
            |daemon: &mut Daemon| daemon.log().contains("a write failed, will try again").then_some(());
        self.daemon.until("a write that fails", fails);
    }

    /// All events of the session, once its agent has said all and is stopped.
    fn finish(self) -> Vec<Value> {
        self.daemon.wait_status(&self.session, "done");
        self.daemon.end_session(&self.session, "stop");
        self.daemon.all_events(&self.session)
    }
}

/// The numbers of flooded lines, in the order of the log.
fn numbers(events: &[Value]) -> Vec<u64> {
    let text = |event: &&Value| event["data"]["message"].as_str().map(str::to_owned);
    let number = |text: String| text.strip_prefix("flood ")?.split(' ').next()?.parse().ok();
    of_kind(events, "status").iter().filter_map(text).filter_map(number).collect()
}

fn flood() -> String {
    format!("flood:{LINES}")
}

#[test]
fn a_daemon_killed_with_a_write_pending_and_a_batch_ahead_loses_and_doubles_nothing() {
    let mut overlap = Overlap::new(&[&flood(), "status:done", "serve"]);
    let held = overlap.hold();
    let Overlap { daemon, session, pid, ahead, gate } = overlap;
    let (dir, _) = daemon.end(Signal::SIGKILL);
    held.release();
    let daemon = Daemon::start_in(dir, &[], &[]);
    let events = Overlap { daemon, session, pid, ahead, gate }.finish();
    assert_eq!(numbers(&events), (1..=LINES).collect::<Vec<u64>>());
}

#[test]
fn a_command_that_comes_while_a_write_is_pending_comes_before_the_batch_ahead() {
    let mut overlap = Overlap::new(&[&flood(), "status:done", "serve"]);
    let held = overlap.hold();
    std::thread::scope(|scope| {
        let path = format!("/api/v1/sessions/{}/nudge", overlap.session);
        let daemon = &overlap.daemon;
        let nudge = scope.spawn(move || daemon.post(&path, &json!({ "message": "hello" })));
        // Another request is answered meanwhile; whether this one has reached the session yet, the outcome is the same.
        assert_eq!(daemon.get("/api/v1/health").0, 200);
        held.release();
        assert_eq!(nudge.join().unwrap().0, 202);
    });
    overlap.daemon.wait_status(&overlap.session, "received");
    let events = overlap.finish();
    assert_eq!(numbers(&events), (1..=LINES).collect::<Vec<u64>>());
    assert_eq!(of_kind(&events, "nudge").len(), 1);
}

#[test]
fn a_batch_ahead_of_a_write_that_fails_is_written_when_the_store_works_again() {
    let mut overlap = Overlap::new(&[&flood(), "status:done", "serve"]);
    let held = overlap.hold();
    overlap.wait_until_a_write_fails();
    held.release();
    assert_eq!(numbers(&overlap.finish()), (1..=LINES).collect::<Vec<u64>>());
}

#[test]
fn an_agent_is_killed_while_a_write_fails_and_all_that_it_said_is_recorded_once() {
    let mut overlap = Overlap::new(&[&flood(), "serve"]);
    let held = overlap.hold();
    overlap.wait_until_a_write_fails();
    let pid = overlap.pid.clone();
    let path = format!("/api/v1/sessions/{}/kill", overlap.session);
    let daemon = &overlap.daemon;
    std::thread::scope(|scope| {
        let kill = scope.spawn(move || daemon.post(&path, &json!({})));
        while is_alive(&pid) {
            std::thread::yield_now(); // it ends while nothing can be recorded
        }
        held.release();
        let (status, stopped) = kill.join().unwrap();
        assert_eq!(status, 200, "{stopped}");
    });
    let events = daemon.all_events(&overlap.session);
    assert_eq!(numbers(&events), (1..=LINES).collect::<Vec<u64>>());
    assert_eq!(of_kind(&events, "session.ended").len(), 1);
}

#[test]
fn a_request_that_is_read_while_a_write_is_pending_is_asked_once_and_in_its_place() {
    let rest = format!("flood:{LINES}:100:{}", 1501);
    let mut overlap = Overlap::new(&["flood:1500", "clearance:c:May I?", &rest, "status:done", "serve"]);
    let held = overlap.hold();
    held.release();
    let clearance = overlap.daemon.clearance(&overlap.session);
    assert_eq!(overlap.daemon.decide(&clearance, "approve")["delivery"], "delivered");
    let events = overlap.finish();
    assert_eq!(numbers(&events), (1..=LINES + 1500).collect::<Vec<u64>>());
    let place = events.iter().position(|event| event["kind"] == "clearance.requested").unwrap();
    assert_eq!(numbers(&events[..place]).len(), 1500, "in the agent's order");
    assert_eq!(of_kind(&events, "clearance.requested").len(), 1);
}

#[test]
fn a_line_at_which_the_daemon_fails_in_a_batch_ahead_costs_that_line_only() {
    let dir = home(QUICK);
    let gate = dir.path().join("gate");
    let daemon = Daemon::start_in(dir, &[], &[("INTERCOM_FAILPOINT", "line.stepped~poison")]);
    let (wait, rest) = (format!("wait-file:{}", gate.display()), format!("flood:{LINES}:100:1501"));
    let poison = "batch:status:before|status:poison|status:behind";
    let session = daemon.run(&["status:up", &wait, "flood:1500", poison, &rest, "status:done", "serve"]);
    daemon.wait_status(&session, "up");
    let held = HeldStore::hold(&daemon);
    std::fs::write(&gate, "").unwrap();
    let mut overlap = Overlap { daemon, session, pid: Value::Null, ahead: PathBuf::new(), gate };
    overlap.wait_until_a_write_fails(); // by then, all that fits into a batch ahead was tried
    held.release();
    let events = overlap.finish();
    assert_eq!(numbers(&events), (1..=LINES + 1500).collect::<Vec<u64>>());
    let rejected = of_kind(&events, "line.rejected");
    assert_eq!(rejected.len(), 1);
    let place = events.iter().position(|event| event["kind"] == "line.rejected").unwrap();
    let beside = |at: usize| events[at]["data"]["message"].clone();
    assert_eq!((beside(place - 1), beside(place + 1)), (json!("before"), json!("behind")));
}
