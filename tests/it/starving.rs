//! Callers without a right to anything cost the daemon little, and operators do not wait for them.

use std::time::{Duration, Instant};

use intercom_testkit::client::Connection;
use intercom_testkit::harness::{Daemon, sign_in};
use serde_json::json;

use crate::access::with_port;

/// A person does not notice less than this. On a busy machine everything takes longer, also with nobody else there.
const UNNOTICED: Duration = Duration::from_millis(500);
const BUSY: u32 = 20;

/// The middle one of the times that an operator waits for an answer on the unix socket, until `done`.
fn typical_wait(daemon: &Daemon, mut done: impl FnMut() -> bool) -> Duration {
    let mut waits = Vec::new();
    while waits.len() < 15 || !done() {
        let start = Instant::now();
        assert_eq!(daemon.get("/api/v1/sessions").0, 200);
        waits.push(start.elapsed());
    }
    waits.sort();
    waits[waits.len() / 2]
}

/// CPU time of a process so far.
fn cpu_time(pid: i32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).unwrap().unwrap();
    Duration::from_millis((fields[10] + fields[11]) * 1000 / u64::try_from(ticks).unwrap())
}

#[test]
fn a_guess_at_the_door_of_the_console_costs_no_look_at_other_processes() {
    const GUESSES: u32 = 100;
    let (daemon, address) = with_port("");
    let session = daemon.run(&["status:up", "serve"]);
    daemon.wait_status(&session, "up");
    // Somebody has many files open: to look at all of them takes a while.
    let files: Vec<_> = (0..3000).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let guess = || {
        let answer = sign_in(&address, &json!({ "code": "0123456789abcdef" })).body;
        assert!(answer.contains("bad_code") || answer.contains("too_many_failures"), "{answer}");
    };
    guess();
    let before = cpu_time(daemon.pid());
    (0..GUESSES).for_each(|_| guess());
    let each = cpu_time(daemon.pid()).saturating_sub(before) / GUESSES;
    drop(files);
    assert!(each < Duration::from_millis(8), "{each:?} for each of {GUESSES} guesses");
}

/// An agent that opens connections as fast as it can; `how` says where and what it sends.
const OPENER: &str = r#"
import socket, sys, threading, time
how, path, address = sys.argv[1:]
host, port = address.rsplit(":", 1)
def open_one():
    if how == "port":
        stream = socket.create_connection((host, int(port)))
        body = '{"code":"x"}'
        stream.sendall(f"POST /api/v1/web/sessions HTTP/1.1\r\nhost: {address}\r\norigin: http://{address}\r\nx-intercom: 1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
    else:
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(path)
        if how == "socket":
            stream.sendall(b"GET /api/v1/sessions HTTP/1.1\r\nhost: x\r\n\r\n")
    return stream
def open_many():
    held = []
    while True:
        try:
            held.append(open_one())
            if len(held) > 300:
                held.pop(0).close()
        except OSError:
            time.sleep(0.001)
for _ in range(4):
    threading.Thread(target=open_many, daemon=True).start()
time.sleep(0.5)
print('{"method":"status/update","params":{"message":"opening"}}', flush=True)
sys.stdin.read()
"#;

#[test]
fn operators_do_not_wait_for_an_agent_that_opens_connections() {
    for how in ["port", "socket", "idle"] {
        let (daemon, address) = with_port("");
        let usual = typical_wait(&daemon, || true);
        let args = json!(["-c", OPENER, how, daemon.socket(), address]);
        let (status, session) = daemon.ask_to_start(json!({ "command": "python3", "args": args }));
        assert_eq!(status, 201, "{session}");
        let session = session["id"].as_str().unwrap();
        daemon.wait_status(session, "opening");
        let wait = typical_wait(&daemon, || true);
        daemon.end_session(session, "kill");
        assert!(wait < UNNOTICED + usual * BUSY, "{how}: {wait:?}, usually {usual:?}");
    }
}

#[test]
fn operators_do_not_wait_for_thousands_of_watchers() {
    // Ours and the daemon's descriptors are bounded by the system.
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    let watchers = usize::try_from(most / 4).unwrap().min(3000);
    let daemon = Daemon::start();
    let (socket, usual) = (daemon.socket(), typical_wait(&daemon, || true));
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, most, most).unwrap();
    let watching = std::thread::spawn(move || -> Vec<Connection> {
        let watch = |_| {
            let mut connection = Connection::open(&socket).unwrap();
            connection.send("GET", "/api/v1/events", &[], "").unwrap();
            connection
        };
        (0..watchers).map(watch).collect()
    });
    let wait = typical_wait(&daemon, || watching.is_finished());
    // Each of them is answered: none was turned away for being many.
    for mut connection in watching.join().unwrap() {
        assert_eq!(connection.head().unwrap().status, 200);
    }
    assert!(wait < UNNOTICED + usual * BUSY, "{wait:?}, usually {usual:?}");
}
