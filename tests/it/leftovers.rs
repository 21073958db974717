//! Processes that outlive the shim of their agent, and trees that fork faster than they are found.

use std::time::{Duration, Instant};

use intercom_testkit::client::PATIENCE;
use intercom_testkit::harness::{Daemon, QUICK, command, is_alive, of_kind, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::trees::marked;

/// Without cgroups, so that every process has to be found.
const SWEPT: &str = "[daemon]\ncgroups = false\n";

fn shim(daemon: &Daemon, session: &str) -> Pid {
    let meta = daemon.dir.path().join(format!("state/agents/{session}/1/meta.json"));
    let meta: Value = serde_json::from_slice(&std::fs::read(meta).unwrap()).unwrap();
    Pid::from_raw(i32::try_from(meta["shim"]["pid"].as_i64().unwrap()).unwrap())
}

/// Ways out of the tree that leave one trace each: the mark, the kernel session, the pipe of stdout and that of stderr, the mark of
/// another thread.
const WAYS: &[&str] = &[
    "grandchild:setsid,double,nohup:hang",
    "grandchild:double,clean,nohup:hang",
    "grandchild:setsid,double,clean,nohup,stdout:hang",
    "grandchild:setsid,double,clean,nohup,stderr:hang",
    "grandchild:setsid,double,nohup:leaderless",
];

/// An agent with a process for each way out, and their pids.
fn with_escapes(daemon: &Daemon) -> (String, Vec<Value>) {
    let mut steps = vec!["ignore:eof"];
    steps.extend(WAYS);
    steps.extend(["status:up", "serve"]);
    let session = daemon.run(&steps);
    daemon.wait_status(&session, "up");
    let told = |event: &Value| event["data"]["message"] == "grandchild";
    let mut pids: Vec<Value> = daemon
        .so_far(&session)
        .iter()
        .filter(|event| told(event))
        .map(|event| event["data"]["pid"].clone())
        .collect();
    assert_eq!(pids.len(), WAYS.len());
    pids.push(daemon.show(&session)["pid"].clone());
    (session, pids)
}

/// Whether a thread of it runs: a process without its first thread looks dead to a glance.
fn has_threads(pid: &Value) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats
        .filter_map(|stat| stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()))
        .any(|rest| !rest.starts_with(['Z', 'X']))
}

#[test]
fn what_outlives_a_killed_shim_is_found_by_any_trace_and_ended() {
    let daemon = Daemon::with_config(&format!("{QUICK}{SWEPT}"));
    let (session, pids) = with_escapes(&daemon);
    assert!(pids.iter().all(has_threads));
    kill(shim(&daemon, &session), Signal::SIGKILL).unwrap();
    let ended = daemon.wait_kind(&session, "session.ended");
    assert_eq!(ended["data"]["reason"], "its shim died");
    let left: Vec<&Value> = pids.iter().filter(|pid| has_threads(pid)).collect();
    assert!(left.is_empty(), "{left:?} of {pids:?} are left");
}

#[test]
fn what_outlives_daemon_and_shim_is_listed_by_doctor_and_ended_by_the_next_daemon() {
    let daemon = Daemon::with_config(&format!("{QUICK}{SWEPT}"));
    let (session, pids) = with_escapes(&daemon);
    let shim = shim(&daemon, &session);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    kill(shim, Signal::SIGKILL).unwrap();
    let start = Instant::now();
    while is_alive(&json!(shim.as_raw())) {
        assert!(start.elapsed() < PATIENCE);
    }
    let doctor = run(command(dir.path()).args(["doctor", "--json"])).json();
    let leftovers =
        doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "leftovers").unwrap();
    for pid in &pids {
        let named = format!("{pid} of {session}");
        assert!(leftovers["detail"].as_str().unwrap().contains(&named), "{named}: {leftovers}");
    }
    let daemon = Daemon::start_in(dir, &[], &[]);
    daemon.wait_kind(&session, "session.ended");
    let left: Vec<&Value> = pids.iter().filter(|pid| has_threads(pid)).collect();
    assert!(left.is_empty(), "{left:?} of {pids:?} are left");
}

/// Processes that do what they can not to be recognised, except that they keep one trace each.
const DISGUISES: &str = r#"
import ctypes, json, os, signal, subprocess, sys, time

def report(message, **more):
    print(json.dumps({"method": "status/update", "params": {"message": message, **more}}), flush=True)

def escape(go):
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        nowhere = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        os.write(write, b"%d" % os.getpid())
        go()
    os.wait()
    report("escaped", pid=int(os.read(read, 64)))

def named(name):
    def go():
        ctypes.CDLL(None).prctl(15, name)
        time.sleep(600)
    return go

def burdened():
    mark = os.environ["INTERCOM_SESSION"]
    env = {"N%d" % n: "x" * 100000 for n in range(12)}
    env["INTERCOM_SESSION"] = mark
    os.execve("/bin/sleep", ["sleep", "600"], env)

def still():
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)

def in_the_terminal():
    os.execv("/bin/sleep", [") Z 1 1 1 ()", "600"])

def apart():
    # With a process id of its own counting, where that is allowed.
    ctypes.CDLL(None).unshare(0x20000000)
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    time.sleep(600)

names = [b") Z 1 1 1 1 1 1", b"a\nb) S 1", b"\xff\xfe ((", b")"]
ways = [named(name) for name in names] + [burdened, still, in_the_terminal, apart]
for way in ways:
    escape(way)
report("up")
sys.stdin.read()
time.sleep(600)
"#;

#[test]
fn what_outlives_a_killed_shim_is_found_in_any_disguise() {
    let daemon = Daemon::with_config(&format!("{QUICK}{SWEPT}"));
    std::fs::write(daemon.workspace().join("agent.py"), DISGUISES).unwrap();
    let body = json!({ "command": "python3", "args": ["agent.py"], "workspace": daemon.workspace() });
    let session = daemon.started(body);
    daemon.wait_status(&session, "up");
    let events = daemon.so_far(&session);
    let escaped = events.iter().filter(|event| event["data"]["message"] == "escaped");
    let pids: Vec<Value> = escaped.map(|event| event["data"]["pid"].clone()).collect();
    assert_eq!(pids.len(), 8);
    assert!(marked(&session).len() > pids.len(), "those in a namespace of their own have children");
    kill(shim(&daemon, &session), Signal::SIGKILL).unwrap();
    daemon.wait_kind(&session, "session.ended");
    let left: Vec<&Value> = pids.iter().filter(|pid| has_threads(pid)).collect();
    assert!(left.is_empty() && marked(&session).is_empty(), "{left:?} of {pids:?} are left");
}

/// What is ended because of its traces is the agent's, and nobody who looks a little like it.
#[test]
fn whoever_only_resembles_what_outlives_a_killed_shim_stays() {
    let daemon = Daemon::with_config(&format!("{QUICK}{SWEPT}"));
    let session = daemon.run(&["ignore:eof", "status:up", "serve"]);
    let other = daemon.run(&["status:up", "serve"]);
    for session in [&session, &other] {
        daemon.wait_status(session, "up");
    }
    let dir = daemon.dir.path().join(format!("state/agents/{session}/1"));
    let longer = format!("{session}0");
    let bystander = |name: &str, value: &str| {
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("600").env(name, value).current_dir(&dir);
        sleep.spawn().unwrap()
    };
    let mut bystanders = [
        bystander("INTERCOM_SESSION", &longer),
        bystander("INTERCOM_SESSION", &session[..session.len() - 1]),
        bystander("INTERCOM_SESSION", &other),
        bystander("MY_INTERCOM_SESSION", &session),
        bystander("WORDS", &format!("INTERCOM_SESSION={session}")),
        bystander("INTERCOM_TERMINAL", &session),
    ];
    kill(shim(&daemon, &session), Signal::SIGKILL).unwrap();
    daemon.wait_kind(&session, "session.ended");
    let gone = bystanders.iter_mut().filter_map(|child| child.try_wait().unwrap()).count();
    for child in &mut bystanders {
        child.kill().ok(); // it may have ended by itself
        child.wait().unwrap();
    }
    assert_eq!(gone, 0, "of the bystanders");
    daemon.prompt(&other, "status:still there");
    daemon.wait_status(&other, "still there");
    daemon.end_session(&other, "stop");
}

/// The numbers of flooded lines, in the order of the log.
pub(crate) fn flooded(events: &[Value]) -> Vec<u64> {
    let said = events.iter().filter_map(|event| event["data"]["message"].as_str()?.strip_prefix("flood "));
    said.filter_map(|text| text.split(' ').next()?.parse().ok()).collect()
}

fn state_of(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A line that does not end where a page of the pipe does, so that the last one is torn.
const LINE: usize = 1_000;
const PIPE: u64 = 64 * 1024;

#[test]
fn what_a_pipe_holds_when_daemon_and_shim_are_killed_is_rescued_and_the_log_says_that_more_may_be_missing() {
    let mut daemon = Daemon::with_config(&format!("{QUICK}{SWEPT}"));
    let gate = daemon.dir.path().join("gate");
    let (wait, flood) = (format!("wait-file:{}", gate.display()), format!("flood:100000:{LINE}:101"));
    // The agent ends when nobody reads from it any more; the other process keeps the pipe.
    let session =
        daemon.run(&["grandchild:setsid,stdout:hang", "flood:100", "status:up", &wait, &flood, "hang"]);
    daemon.wait_status(&session, "up");
    let (shim, pid) = (shim(&daemon, &session), daemon.show(&session)["pid"].clone());
    kill(shim, Signal::SIGSTOP).unwrap();
    daemon.until("the shim to stand still", |_| (state_of(shim) == Some('T')).then_some(()));
    std::fs::write(&gate, "").unwrap();
    // It sleeps in its write: the pipe is full.
    let full = |_: &mut Daemon| {
        let call = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        call.contains("pipe").then_some(())
    };
    daemon.until("the pipe to be full", full);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    kill(shim, Signal::SIGKILL).unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    let events = daemon.all_events(&session);
    let numbers = flooded(&events);
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<u64>>(), "a gap or a double");
    let kept = (numbers.len() as u64 - 100) * LINE as u64;
    assert!(kept > PIPE - 2 * LINE as u64, "{kept} bytes of whole lines");
    assert!(of_kind(&events, "line.rejected").len() <= 1, "at most the last line is torn");
    let mark = of_kind(&events, "output.incomplete");
    assert_eq!(mark.len(), 1);
    assert!(mark[0]["data"]["rescued_bytes"].as_u64().unwrap() >= kept, "{}", mark[0]);
    assert!(marked(&session).is_empty());
}

#[test]
fn lines_that_stream_while_daemon_and_shim_are_killed_have_no_gap_but_a_mark_at_their_end() {
    for pause in [5, 40, 90] {
        let daemon = Daemon::with_config(&format!("{QUICK}{SWEPT}"));
        let session = daemon.run(&[&format!("flood:100000000:{LINE}")]);
        daemon.wait_kind(&session, "status");
        let shim = shim(&daemon, &session);
        std::thread::sleep(Duration::from_millis(pause)); // somewhere in the stream
        // At once: a shim without a daemon journals as fast as it can.
        for pid in [Pid::from_raw(daemon.pid()), shim] {
            kill(pid, Signal::SIGKILL).unwrap();
        }
        let (dir, _) = daemon.end(Signal::SIGKILL);
        let daemon = Daemon::start_in(dir, &[], &[]);
        let events = daemon.all_events(&session);
        let numbers = flooded(&events);
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<u64>>(), "a gap or a double");
        assert_eq!(of_kind(&events, "output.incomplete").len(), 1);
        assert!(of_kind(&events, "line.rejected").len() <= 1, "at most the last line is torn");
        assert!(marked(&session).is_empty());
    }
}

#[test]
fn relays_that_outlive_a_killed_shim_are_caught() {
    let daemon = Daemon::with_config(&format!("{QUICK}{SWEPT}"));
    let session = daemon.run(&["relay:4:3:4", "status:up", "serve"]);
    daemon.wait_status(&session, "up");
    kill(shim(&daemon, &session), Signal::SIGKILL).unwrap();
    daemon.wait_kind(&session, "session.ended");
    assert_eq!(marked(&session), [] as [i32; 0]);
}

/// `scripts/test-full` sets thousands.
fn relays() -> u64 {
    std::env::var("INTERCOM_TEST_RELAYS").ok().and_then(|n| n.parse().ok()).unwrap_or(150)
}

/// A machine so busy that a shim waits for its turn longer than a relay lives. Ends with the guard.
struct Busy(Vec<std::process::Child>);

impl Busy {
    fn new() -> Self {
        let spin =
            || std::process::Command::new("timeout").args(["20", "sh", "-c", "while :; do :; done"]).spawn();
        Self((0..4).map(|_| spin().unwrap()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).ok(); // `timeout` passes it on
            child.wait().ok();
        }
    }
}

/// The sweep must converge, and *stopped* must mean that nobody is left. See `host::tree::sweep` for why it does.
#[test]
fn relays_are_all_gone_when_stop_answers_also_on_a_busy_machine() {
    let _busy = Busy::new();
    let daemon = Daemon::with_config(&format!("{QUICK}{SWEPT}"));
    let most = relays();
    for count in [1, 8, 8, 8, 8, most] {
        // Ten thousand forks a second at most: their dead take places in the table of processes until the shim has reaped them.
        let relay = format!("relay:{count}:{}:20", (count / 10).max(3));
        let session = daemon.run(&["ignore:TERM", &relay, "status:up", "serve"]);
        daemon.wait_status(&session, "up");
        let (answer, took) = daemon.end_session(&session, "stop");
        let left = marked(&session);
        assert!(left.is_empty(), "{} of {count} relays are left after {took:?}: {answer}", left.len());
        assert!(took < Duration::from_secs(15), "{count} relays took {took:?}");
    }
}

/// Holds a process up again and again, each time for longer than a relay lives: as a busy machine does, only more often. Until it has
/// gone, or long enough to be in the way of the whole ladder.
fn hold_up(shim: Pid) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2500) && kill(shim, Signal::SIGSTOP).is_ok() {
        std::thread::sleep(Duration::from_millis(8));
        kill(shim, Signal::SIGCONT).ok();
        std::thread::sleep(Duration::from_micros(300));
    }
    kill(shim, Signal::SIGCONT).ok(); // it may have gone
}

/// A shim that is held up between the list of its children and the look at them finds only the dead. That must not count as the end.
#[test]
fn a_relay_does_not_survive_a_shim_that_is_held_up() {
    let daemon = Daemon::with_config(&format!("{QUICK}{SWEPT}"));
    let rounds = if std::env::var_os("INTERCOM_TEST_RELAYS").is_some() { 60 } else { 6 };
    for round in 0..rounds {
        let session = daemon.run(&["ignore:TERM", "relay:1:3:4", "status:up", "serve"]);
        daemon.wait_status(&session, "up");
        let shim = shim(&daemon, &session);
        std::thread::scope(|scope| {
            scope.spawn(|| hold_up(shim));
            daemon.end_session(&session, "stop");
        });
        assert_eq!(marked(&session), [] as [i32; 0], "in round {round}");
    }
}
