//! A shim obeys the daemon of its state directory, and nobody else who can open its socket.

use std::io::Read;
use std::path::PathBuf;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;

use crate::harness::{Daemon, PATIENCE, connect, is_alive};

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
    let copy = crate::harness::home("");
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
    let copy = crate::harness::home("");
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
