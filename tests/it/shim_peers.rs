//! A shim obeys the daemon of its state directory, and nobody else who can open its socket.

use std::io::Read;
use std::path::PathBuf;

use intercom_testkit::client::{PATIENCE, connect};
use intercom_testkit::harness::{self, Daemon, is_alive};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;

fn socket_of(daemon: &Daemon, session: &str) -> PathBuf {
    daemon.dir.path().join(format!("state/agents/{session}/1/sock"))
}

/// The first words of a shim to a process of the same user that is neither its daemon nor its agent's.
fn greeting(socket: &std::path::Path) -> Vec<u8> {
    let mut stream = connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = [0; 256];
    let read = stream.read(&mut said).unwrap_or(0); // hung up on, one way or the other
    said[..read].to_vec()
}

fn check_impostors(daemon: Daemon) {
    let session = daemon.run(&["status:up", "echo"]);
    daemon.wait_status(&session, "up");
    let pid = daemon.show(&session)["pid"].clone();
    let socket = socket_of(&daemon, &session);
    // A lock of ours, but not that of the state directory.
    let other = std::fs::File::create(daemon.dir.path().join("daemon.lock")).unwrap();
    let held = Flock::lock(other, FlockArg::LockExclusiveNonblock).unwrap();
    for _ in 0..50 {
        assert_eq!(greeting(&socket), b"", "refused");
    }
    // The daemon has not lost its agent.
    daemon.prompt(&session, "still there?");
    daemon.wait_for(&session, "the echo", |event| event.to_string().contains("still there?"));
    let (dir, _) = daemon.end(Signal::SIGKILL);
    assert_eq!(greeting(&socket), b"", "also while there is no daemon");
    assert!(is_alive(&pid));
    // The next daemon holds the lock, and is let in.
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert!(daemon.log().contains("1 session re-attached"), "{}", daemon.log());
    assert_eq!(greeting(&socket), b"", "refused by the same shim as before");
    daemon.prompt(&session, "and now?");
    daemon.wait_for(&session, "the echo", |event| event.to_string().contains("and now?"));
    assert_eq!(daemon.show(&session)["pid"], pid);
    daemon.end_session(&session, "stop");
    drop(held);
}

#[test]
fn a_process_without_the_lock_is_refused_by_the_shim_and_does_not_end_the_session() {
    check_impostors(Daemon::quick(""));
}

#[test]
fn a_shim_of_the_version_before_refuses_those_without_the_lock_as_well() {
    let (dir, _) = Daemon::quick("").end(Signal::SIGTERM);
    check_impostors(Daemon::start_in(dir, &[], &[("INTERCOM_SHIM_VERSION", "1")]));
}

#[test]
fn a_daemon_of_another_state_directory_neither_gets_the_agent_nor_ends_it() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["status:up", "echo"]);
    daemon.wait_status(&session, "up");
    let pid = daemon.show(&session)["pid"].clone();
    // A copy of the database whose agents lead to the original.
    let copy = harness::home("");
    let state = copy.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let database = state.join("intercom.db");
    daemon.cli(&["backup", database.to_str().unwrap()]).ok();
    std::os::unix::fs::symlink(daemon.dir.path().join("state/agents"), state.join("agents")).unwrap();
    let other = Daemon::start_in(copy, &["--on-stop", "leave"], &[]);
    assert!(other.log().contains("its shim accepts only another daemon"), "{}", other.log());
    drop(other);
    assert!(is_alive(&pid) && socket_of(&daemon, &session).exists());
    daemon.prompt(&session, "still there?");
    daemon.wait_for(&session, "the echo", |event| event.to_string().contains("still there?"));
    daemon.end_session(&session, "stop");
}

#[test]
fn a_copy_of_the_state_directory_that_is_served_elsewhere_ends_nothing_of_the_original() {
    let daemon = Daemon::quick("");
    let (running, restarted) = (daemon.run(&["status:up", "echo"]), daemon.run(&["status:up", "echo"]));
    for session in [&running, &restarted] {
        daemon.wait_status(session, "up");
    }
    // As a person would copy it.
    let copy = harness::home("");
    let status = std::process::Command::new("cp")
        .arg("-a")
        .arg(daemon.dir.path().join("state"))
        .arg(copy.path().join("state"))
        .status()
        .unwrap();
    assert!(status.success());
    // What the copy knows of one of them is not true any more: its shim has gone, and another looks after the session.
    daemon.end_session(&restarted, "stop");
    daemon.cli(&["resume", &restarted]).ok();
    let pids = [&running, &restarted].map(|session| daemon.show(session)["pid"].clone());

    let other = Daemon::start_in(copy, &["--on-stop", "leave"], &[]);
    assert!(other.log().contains("another daemon's"), "{}", other.log());
    for session in [&running, &restarted] {
        assert_eq!(other.show(session)["phase"], "ended", "{session}");
    }
    drop(other);
    for (session, pid) in [&running, &restarted].into_iter().zip(&pids) {
        assert!(is_alive(pid), "{session}");
        daemon.prompt(session, "still there?");
        daemon.wait_for(session, "the echo", |event| event.to_string().contains("still there?"));
        daemon.end_session(session, "stop");
    }
}

#[test]
fn locks_of_another_kind_and_those_that_are_only_waited_for_let_nobody_in() {
    use nix::fcntl::{FcntlArg, fcntl};
    let daemon = Daemon::quick("");
    let session = daemon.run(&["status:up", "echo"]);
    daemon.wait_status(&session, "up");
    let socket = socket_of(&daemon, &session);
    let open = || {
        let path = daemon.dir.path().join("state/daemon.lock");
        std::fs::File::options().read(true).write(true).open(path).unwrap()
    };
    // None of these is in the way of the lock that the daemon holds.
    let whole = nix::libc::flock {
        l_type: nix::libc::F_WRLCK.try_into().unwrap(),
        l_whence: nix::libc::SEEK_SET.try_into().unwrap(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    let (of_process, of_description) = (open(), open());
    fcntl(&of_process, FcntlArg::F_SETLK(&whole)).unwrap();
    assert_eq!(greeting(&socket), b"", "a lock of this process");
    drop(of_process);
    fcntl(&of_description, FcntlArg::F_OFD_SETLK(&whole)).unwrap();
    assert_eq!(greeting(&socket), b"", "a lock of a description");
    let waiting = open();
    let waiter = std::thread::spawn(move || Flock::lock(waiting, FlockArg::LockExclusive).is_ok());
    let is_waiting = || {
        std::fs::read_to_string("/proc/locks")
            .unwrap()
            .lines()
            .any(|line| line.contains("-> FLOCK") && line.contains(&format!(" {} ", std::process::id())))
    };
    while !is_waiting() {
        std::thread::yield_now();
    }
    assert_eq!(greeting(&socket), b"", "a lock that is waited for");
    daemon.prompt(&session, "still there?");
    daemon.wait_for(&session, "the echo", |event| event.to_string().contains("still there?"));
    daemon.end_session(&session, "stop");
    drop(daemon.end(Signal::SIGTERM));
    assert!(waiter.join().unwrap());
}

#[test]
fn callers_without_end_that_send_anything_keep_no_shim_from_its_daemon() {
    use std::io::Write as _;
    let daemon = Daemon::quick("");
    let session = daemon.run(&["status:up", "serve"]);
    daemon.wait_status(&session, "up");
    let socket = socket_of(&daemon, &session);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..4u8 {
            let (socket, is_over) = (&socket, &is_over);
            scope.spawn(move || {
                let mut held = std::collections::VecDeque::new();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let Ok(mut stream) = connect(socket) else { continue };
                    // Frames that would stop the agent, if anybody read them, and nonsense; hung up on or not.
                    stream.write_all(&[seed; 64]).ok();
                    stream.write_all(b"{\"stop\":true}\n\x00\x00\x00\x01\x00").ok();
                    held.push_back(stream);
                    if held.len() > 100 {
                        held.pop_front();
                    }
                }
            });
        }
        for n in 0..30 {
            daemon.prompt(&session, &format!("status:number {n}"));
            daemon.wait_status(&session, &format!("number {n}"));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let (answer, took) = daemon.end_session(&session, "stop");
    assert_eq!(answer["phase"], "ended", "{answer}");
    assert!(took < PATIENCE / 3, "{took:?}");
}

/// The lock makes a daemon only of a process that is not the agent's.
#[test]
fn an_agent_that_takes_the_lock_while_there_is_no_daemon_is_refused_all_the_same() {
    let daemon = Daemon::quick("");
    let script = r#"
import fcntl, json, os, socket, sys, time

def report(message):
    print(json.dumps({"method": "status/update", "params": {"message": message}}), flush=True)

def call():
    shim = socket.socket(socket.AF_UNIX)
    shim.connect("sock")
    try:
        return "refused" if shim.recv(4096) == b"" else "welcome"
    except ConnectionError:
        return "refused"

state = sys.argv[1]
os.chdir(state + "/agents/" + os.environ["INTERCOM_SESSION"] + "/1")
lock = open(state + "/daemon.lock", "r+")
report("up")
while True:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        time.sleep(0.005)
report("itself " + call())
# Nor a process that has left its session and its parent.
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    fcntl.flock(lock, fcntl.LOCK_UN)
    own = open(state + "/daemon.lock", "r+")
    fcntl.flock(own, fcntl.LOCK_EX)
    os.write(write, call().encode())
    os._exit(0)
os.wait()
report("apart " + os.read(read, 64).decode())
lock.close()
open(sys.argv[2], "w").close()
for line in sys.stdin:
    report("received " + line)
"#;
    std::fs::write(daemon.workspace().join("agent.py"), script).unwrap();
    let (state, done) = (daemon.dir.path().join("state"), daemon.dir.path().join("done"));
    let body = serde_json::json!({
        "command": "python3", "args": ["agent.py", state, done], "workspace": daemon.workspace(),
    });
    let session = daemon.started(body);
    daemon.wait_status(&session, "up");
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let begun = std::time::Instant::now();
    while !done.exists() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let daemon = Daemon::start_in(dir, &[], &[]);
    daemon.wait_status(&session, "itself refused");
    daemon.wait_status(&session, "apart refused");
    daemon.prompt(&session, "still there?");
    daemon.wait_for(&session, "the echo", |event| event.to_string().contains("still there?"));
    daemon.end_session(&session, "stop");
}
