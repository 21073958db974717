//! `intercom acp`: real pipes on one side, and a daemon that the test plays itself, or a real one, on the other.

mod restart;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use intercom_testkit::client::{PATIENCE, connect};
use intercom_testkit::harness::{self, Ran, command, home, http, kill_all_in, output, processes_in};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getsid};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

/// The client's side of a relay.
struct Seat {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Seat {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
        });
        Self { stdin: child.stdin.take(), child, lines }
    }

    fn write(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn say(&mut self, message: &Value) {
        self.write(&format!("{message}\n"));
    }

    #[track_caller]
    fn hear(&self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("a message on stdout");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// What it printed that nobody heard, and how it ended.
    fn end(&mut self) -> (ExitStatus, Vec<String>) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "the relay does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        (status, self.lines.iter().collect())
    }

    /// Closes stdin: exit 0, and nothing more was said.
    #[track_caller]
    fn leave(mut self) {
        self.stdin = None;
        let (status, said) = self.end();
        assert_eq!((status.code(), said), (Some(0), Vec::new()));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.child.kill().ok(); // it may have ended
        self.child.wait().ok(); // as above
    }
}

/// A daemon that is played by the test.
struct Stage {
    dir: tempfile::TempDir,
    doors: mpsc::Receiver<UnixStream>,
}

impl Stage {
    fn new() -> Self {
        let dir = home("");
        std::fs::create_dir(dir.path().join("state")).unwrap();
        std::fs::set_permissions(dir.path().join("state"), PermissionsExt::from_mode(0o700)).unwrap();
        let doors = Self::listen(dir.path());
        Self { dir, doors }
    }

    fn listen(dir: &Path) -> mpsc::Receiver<UnixStream> {
        let listener = UnixListener::bind(dir.join("state/intercom.sock")).unwrap();
        let (sender, doors) = mpsc::channel();
        std::thread::spawn(move || listener.incoming().flatten().try_for_each(|stream| sender.send(stream)));
        doors
    }

    fn seat(&self, args: &[&str]) -> Seat {
        let log = std::fs::File::create(self.dir.path().join("relay.log")).unwrap();
        Seat::start(command(self.dir.path()).arg("acp").arg("--no-start").args(args).stderr(log))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("relay.log")).unwrap()
    }

    #[track_caller]
    fn accept(&self) -> Peer<UnixStream> {
        // A look whether somebody is there is no connection yet.
        loop {
            let stream =
                self.doors.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("nobody comes: {}", self.log()));
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            if stream.peek_is_empty() {
                continue;
            }
            return Peer::accept(stream);
        }
    }

    /// A relay and its daemon, introduced and with one session.
    fn in_session(&self, args: &[&str]) -> (Seat, Peer<UnixStream>) {
        let mut seat = self.seat(args);
        let mut peer = self.accept();
        seat.say(&call(0, "initialize", json!({ "protocolVersion": 1 })));
        peer.hear();
        peer.say(&result(0, json!({ "protocolVersion": 1 })));
        seat.say(&call(1, "session/new", json!({ "cwd": "/work", "mcpServers": [] })));
        peer.hear();
        peer.say(&result(1, json!({ "sessionId": "ses_1" })));
        seat.hear();
        seat.hear();
        (seat, peer)
    }
}

trait Looked {
    /// Whether the other end left without a word.
    fn peek_is_empty(&self) -> bool;
}

impl Looked for UnixStream {
    fn peek_is_empty(&self) -> bool {
        use std::os::fd::AsRawFd;
        let mut byte = [0];
        nix::sys::socket::recv(self.as_raw_fd(), &mut byte, nix::sys::socket::MsgFlags::MSG_PEEK) == Ok(0)
    }
}

/// The daemon's side of one connection.
struct Peer<S: Read + Write> {
    socket: WebSocket<S>,
    target: String,
    token: Option<String>,
}

impl<S: Read + Write> Peer<S> {
    #[track_caller]
    fn accept(stream: S) -> Self {
        let (mut target, mut token) = (String::new(), None);
        #[allow(clippy::result_large_err, reason = "the type of the handshake is not ours")]
        let look = |request: &Request, response: Response| {
            target = request.uri().to_string();
            token = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
            Ok(response)
        };
        let socket = tungstenite::accept_hdr(stream, look).map_err(|error| error.to_string()).unwrap();
        Self { socket, target, token }
    }

    #[track_caller]
    fn hear_text(&mut self) -> String {
        loop {
            match self.socket.read().unwrap() {
                Message::Text(text) => return text.to_string(),
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[track_caller]
    fn hear(&mut self) -> Value {
        serde_json::from_str(&self.hear_text()).unwrap()
    }

    fn say(&mut self, message: &Value) {
        self.socket.send(Message::text(message.to_string())).unwrap();
    }

    /// The same, made of this event.
    fn say_of(&mut self, seq: u64, session: &str, message: &Value) {
        self.socket.send(Message::text(format!("@{seq} {session}\n{message}"))).unwrap();
    }

    /// Hears a goodbye, and returns it.
    #[track_caller]
    fn part(mut self) {
        match self.socket.read().unwrap() {
            Message::Close(Some(frame)) => assert_eq!(frame.code, CloseCode::Normal),
            other => panic!("{other:?}"),
        }
        self.socket.flush().ok(); // that is the end of it
    }
}

fn call(id: impl Into<Value>, method: &str, params: Value) -> Value {
    let mut message = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method });
    message["params"] = params;
    message
}

fn result(id: impl Into<Value>, result: Value) -> Value {
    let mut message = json!({ "jsonrpc": "2.0", "id": id.into() });
    message["result"] = result;
    message
}

#[test]
fn messages_pass_unchanged_and_a_client_that_leaves_says_goodbye() {
    let stage = Stage::new();
    let mut seat = stage.seat(&["--agent", "my agent", "--attach", "a/b"]);
    let mut peer = stage.accept();
    assert_eq!(peer.target, "/acp?relay=1&agent=my%20agent&attach=a%2Fb");
    let odd = r#"{"id": 1.50 ,"future":{"a":[1e2]},  "method":"initialize","params":{"é":"\u00e9"}}"#;
    seat.write(&format!("{odd}\r\n\n"));
    assert_eq!(peer.hear_text(), odd);
    let answer = r#"{"jsonrpc":"2.0","result":{"x": 1.0},"id": 1.50}"#;
    peer.socket.send(Message::text(answer)).unwrap();
    assert_eq!(seat.lines.recv_timeout(PATIENCE).unwrap(), answer);
    let update = "{\"method\":\"session/update\",\n\"params\":{}}";
    peer.socket.send(Message::text(update)).unwrap();
    assert_eq!(seat.lines.recv_timeout(PATIENCE).unwrap(), update.replace('\n', " "), "one line each");
    seat.stdin = None;
    peer.part();
    seat.leave();
    assert_eq!(stage.log(), "");
}

#[test]
fn content_length_is_answered_in_kind() {
    let stage = Stage::new();
    let mut command = command(stage.dir.path());
    command.args(["acp", "--no-start"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut peer = stage.accept();
    stdin.write_all(b"Content-Length: 26\r\n\r\n{\"id\":1,\n\"method\":\"m\"}\r\n\r\n").unwrap();
    assert_eq!(peer.hear_text().trim_end(), "{\"id\":1,\n\"method\":\"m\"}");
    peer.say(&result(1, json!({})));
    stdin
        .write_all(b"Content-Length: 5\r\n\r\n{oh!}Content-Length: 24\r\n\r\n{\"id\":2,\"method\":\"last\"}")
        .unwrap();
    assert_eq!(peer.hear()["method"], "last");
    peer.say(&result(2, json!({})));
    drop(stdin);
    peer.part();
    let ran = output(child).ok();
    let frames: Vec<&str> = ran.stdout.split("Content-Length: ").skip(1).collect();
    let bodies: Vec<Value> = frames
        .iter()
        .map(|frame| {
            let (length, body) = frame.split_once("\r\n\r\n").unwrap();
            assert_eq!(length.parse(), Ok(body.len()));
            serde_json::from_str(body).unwrap()
        })
        .collect();
    assert!(bodies.contains(&result(1, json!({}))) && bodies.contains(&result(2, json!({}))), "{bodies:?}");
    let wrong = |body: &&Value| body["error"]["code"] == -32700 && body["id"].is_null();
    assert_eq!((bodies.len(), bodies.iter().filter(wrong).count()), (3, 1), "{bodies:?}");
}

#[test]
fn nonsense_is_answered_and_reading_goes_on() {
    let stage = Stage::new();
    let mut seat = stage.seat(&[]);
    let mut peer = stage.accept();
    let long = format!("{{\"id\":7,\"method\":\"m\",\"params\":\"{}\"}}\n", "x".repeat(33 << 20));
    for (text, code, id) in [
        ("{oh\n".as_bytes(), -32700, Value::Null),
        (b"\xff\xfe\n", -32700, Value::Null),
        (b"[{\"id\":1,\"method\":\"initialize\"}]\n", -32600, Value::Null),
        (b"{\"id\":3,\"method\":4}\n", -32600, json!(3)),
        (long.as_bytes(), -32700, json!(7)),
    ] {
        seat.stdin.as_mut().unwrap().write_all(text).unwrap();
        let error = seat.hear();
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(code), &id), "{error}");
    }
    seat.say(&json!({ "method": "m" }));
    assert_eq!(peer.hear(), json!({ "method": "m" }), "that is the first that the daemon hears of");
    seat.write("{\"method\":\"no line feed\"}");
    seat.stdin = None;
    assert_eq!(peer.hear(), json!({ "method": "no line feed" }));
    peer.part();
    seat.leave();
}

#[test]
fn a_restart_of_the_daemon_is_not_noticed_by_the_client() {
    let stage = Stage::new();
    let (mut seat, mut peer) = stage.in_session(&[]);
    let prompt = |id: u64| call(id, "session/prompt", json!({ "sessionId": "ses_1", "prompt": [] }));
    seat.say(&prompt(2));
    let first = peer.hear();
    let update = |n: u64| {
        let params = json!({ "sessionId": "ses_1", "update": { "n": n } });
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })
    };
    peer.say_of(11, "ses_1", &update(11));
    peer.say(&call(5, "session/request_permission", json!({ "sessionId": "ses_1" })));
    assert_eq!(seat.hear(), update(11));
    let dialog = seat.hear();
    seat.say(&prompt(3));
    seat.say(&call(4, "session/set_mode", json!({ "sessionId": "ses_1" })));
    let second = peer.hear();
    peer.hear();
    drop(peer);
    assert_eq!(seat.hear()["params"]["requestId"], dialog["id"], "nobody waits for that answer any more");
    seat.say(&result(dialog["id"].clone(), json!({})));
    let mut peer = stage.accept();
    let initialize = peer.hear();
    assert_eq!(
        (&initialize["method"], &initialize["params"]),
        (&json!("initialize"), &json!({ "protocolVersion": 1 }))
    );
    let resume = peer.hear();
    // Its own prompts, which must not come back to it as somebody else's.
    let prompts = json!([&first, &second].map(|prompt| &prompt["params"]["_meta"]["intercom"]["prompt"]));
    let meta = json!({ "intercom": { "after": 11, "prompts": prompts } });
    assert_eq!((&resume["method"], &resume["params"]["_meta"]), (&json!("session/resume"), &meta));
    assert_eq!(peer.hear(), first, "with its id, by which it is known");
    assert_eq!(peer.hear(), second);
    assert_ne!(
        first["params"]["_meta"]["intercom"]["prompt"],
        second["params"]["_meta"]["intercom"]["prompt"]
    );
    peer.say(&result(initialize["id"].clone(), json!({})));
    peer.say(&result(resume["id"].clone(), json!({})));
    peer.say_of(12, "ses_1", &update(12));
    peer.say(&result(2, json!({ "stopReason": "end_turn" })));
    peer.say(&result(3, json!({ "stopReason": "end_turn" })));
    peer.say(&call(5, "session/request_permission", json!({ "sessionId": "ses_1" })));
    let lost = seat.hear();
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!(4), &json!(-32603)), "{lost}");
    assert_eq!(seat.hear(), update(12));
    assert_eq!(seat.hear(), result(2, json!({ "stopReason": "end_turn" })));
    assert_eq!(seat.hear(), result(3, json!({ "stopReason": "end_turn" })));
    let anew = seat.hear();
    assert_ne!(anew["id"], dialog["id"]);
    seat.say(&result(anew["id"].clone(), json!({ "outcome": 1 })));
    assert_eq!(peer.hear(), result(5, json!({ "outcome": 1 })));
    seat.stdin = None;
    peer.part();
    seat.leave();
}

#[test]
fn a_daemon_that_stays_away_is_given_up_and_every_request_answered() {
    let stage = Stage::new();
    let log = std::fs::File::create(stage.dir.path().join("relay.log")).unwrap();
    let mut command = command(stage.dir.path());
    command.args(["acp", "--no-start"]).env("INTERCOM_ACP_AWAY_MS", "300").stderr(log);
    let mut seat = Seat::start(&mut command);
    let mut peer = stage.accept();
    seat.say(&call(1, "session/prompt", json!({ "sessionId": "ses_1" })));
    peer.hear();
    std::fs::remove_file(stage.dir.path().join("state/intercom.sock")).unwrap();
    drop(peer);
    seat.say(&call(2, "session/list", json!({})));
    for id in [1, 2, 3] {
        if id == 3 {
            seat.say(&call(3, "session/list", json!({})));
        }
        let error = seat.hear();
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(id), &json!(-32603)), "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains("no daemon is running"), "{error}");
    }
    seat.stdin = None;
    let (status, said) = seat.end();
    assert_eq!((status.code(), said), (Some(1), Vec::new()));
    assert!(stage.log().contains("error: the daemon went away"), "{}", stage.log());
}

#[test]
fn sessions_are_closed_with_the_client_if_that_was_asked_for() {
    let stage = Stage::new();
    let (mut seat, mut peer) = stage.in_session(&["--on-close", "close"]);
    assert_eq!(peer.target, "/acp?relay=1&on_close=close");
    seat.say(&call(2, "session/prompt", json!({ "sessionId": "ses_1" })));
    seat.stdin = None;
    assert_eq!(peer.hear()["method"], "session/prompt");
    let close = peer.hear();
    assert_eq!(
        (&close["method"], &close["params"]),
        (&json!("session/close"), &json!({ "sessionId": "ses_1" }))
    );
    peer.say(&result(2, json!({ "stopReason": "cancelled" })));
    peer.say(&result(close["id"].clone(), json!({})));
    assert_eq!(seat.hear(), result(2, json!({ "stopReason": "cancelled" })));
    peer.part();
    seat.leave();
}

#[test]
fn answers_that_come_soon_are_passed_on_after_the_end_of_stdin() {
    let stage = Stage::new();
    let mut seat = stage.seat(&[]);
    let mut peer = stage.accept();
    seat.say(&call(1, "initialize", json!({})));
    seat.stdin = None;
    peer.hear();
    peer.say(&result(1, json!({})));
    assert_eq!(seat.hear(), result(1, json!({})));
    peer.part();
    seat.leave();
}

#[test]
fn a_signal_is_as_good_as_the_end_of_stdin() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let stage = Stage::new();
        let (seat, peer) = stage.in_session(&[]);
        kill(seat.pid(), signal).unwrap();
        peer.part();
        let mut seat = seat;
        let (status, said) = seat.end();
        assert_eq!((status.code(), said), (Some(0), Vec::new()), "{signal}");
    }
}

#[test]
fn a_client_that_closes_its_end_of_stdout_is_gone() {
    let stage = Stage::new();
    let log = std::fs::File::create(stage.dir.path().join("relay.log")).unwrap();
    let mut command = command(stage.dir.path());
    command.args(["acp", "--no-start"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().unwrap();
    let _stdin = child.stdin.take();
    let mut peer = stage.accept();
    drop(child.stdout.take());
    // A child that another test is just starting may hold the pipe for a moment: then the first word is not enough.
    peer.socket.get_ref().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let start = Instant::now();
    let goodbye = loop {
        assert!(start.elapsed() < PATIENCE, "it stays: {}", stage.log());
        let update = json!({ "method": "session/update", "params": {} });
        peer.socket.send(Message::text(update.to_string())).ok(); // it may have said goodbye meanwhile
        if let Ok(message) = peer.socket.read() {
            break message;
        }
    };
    assert!(goodbye.is_close(), "{goodbye:?}");
    peer.socket.flush().ok(); // that is the end of it
    let ran = output(child);
    assert_eq!(ran.code, 0, "{}", stage.log());
}

/// Waits until a count does not grow any more.
fn settled(count: &AtomicUsize) -> usize {
    let (mut last, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_millis(500) {
        let now = count.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    last
}

const MIB: usize = 1 << 20;
const MANY: usize = 64;

#[test]
fn a_slow_daemon_stops_the_client_and_nothing_is_lost() {
    let stage = Stage::new();
    let mut seat = stage.seat(&[]);
    let mut peer = stage.accept();
    let written = Arc::new(AtomicUsize::new(0));
    let (mut stdin, count) = (seat.stdin.take().unwrap(), Arc::clone(&written));
    let writer = std::thread::spawn(move || {
        for number in 0..MANY {
            let message = json!({ "method": "m", "params": { "number": number, "text": "x".repeat(MIB) } });
            stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(settled(&written) < MANY / 4, "{written:?} MiB were read ahead");
    for number in 0..MANY {
        assert_eq!(peer.hear()["params"]["number"], number);
    }
    writer.join().unwrap();
    peer.part();
    seat.leave();
}

#[test]
fn a_client_that_does_not_read_stops_the_daemons_end_and_is_still_heard() {
    let stage = Stage::new();
    let mut command = command(stage.dir.path());
    command.args(["acp", "--no-start"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let peer = stage.accept();
    // Reading and writing at once takes two; the socket is closed by whoever is last.
    let other = peer.socket.get_ref().try_clone().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let mut sender = peer.socket;
    let writer = std::thread::spawn(move || {
        for number in 0..MANY {
            let params = json!({ "number": number, "text": "x".repeat(MIB) });
            let update = json!({ "method": "session/update", "params": params });
            sender.send(Message::text(update.to_string())).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
        sender
    });
    let role = tungstenite::protocol::Role::Server;
    let mut listener =
        Peer { socket: WebSocket::from_raw_socket(other, role, None), target: String::new(), token: None };
    let there = settled(&sent);
    assert!(there < MANY / 4, "{there} MiB were taken");
    stdin.write_all(b"{\"method\":\"still here\"}\n").unwrap();
    assert_eq!(listener.hear(), json!({ "method": "still here" }));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for number in 0..MANY {
        let update: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(update["params"]["number"], number);
    }
    drop(stdin);
    let sender = writer.join().unwrap();
    listener.part();
    drop(sender);
    let ran = output(child);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn a_daemon_elsewhere_is_reached_with_a_token() {
    let dir = home("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut command = command(dir.path());
    command.arg("acp").env("INTERCOM_URL", url).env("INTERCOM_TOKEN", "t0ken");
    let mut seat = Seat::start(&mut command);
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut peer = Peer::accept(stream);
    assert_eq!(peer.token.as_deref(), Some("Bearer t0ken"));
    seat.say(&call(1, "initialize", json!({})));
    assert_eq!(peer.hear(), call(1, "initialize", json!({})));
    peer.say(&result(1, json!({})));
    assert_eq!(seat.hear(), result(1, json!({})));
    seat.stdin = None;
    peer.part();
    seat.leave();
    assert!(processes_in(dir.path()).is_empty(), "none is started here");
}

#[test]
fn without_a_daemon_nothing_is_said_on_stdout() {
    let dir = home("");
    for args in [&["acp", "--no-start"][..], &["--json", "acp", "--no-start"]] {
        let ran = harness::run(command(dir.path()).args(args));
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
        assert!(ran.stderr.contains("no daemon is running"), "{ran:?}");
    }
    assert!(processes_in(dir.path()).is_empty());
}

/// A directory whose processes end with the test.
struct Ground(tempfile::TempDir);

impl Drop for Ground {
    fn drop(&mut self) {
        kill_all_in(self.0.path());
    }
}

impl Ground {
    fn new(config: &str) -> Self {
        Self(home(config))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn acp(&self) -> Command {
        let mut command = command(self.path());
        command.arg("acp");
        command
    }

    /// A daemon of the test's own, once it listens.
    #[track_caller]
    fn serve(&self, env: &[(&str, &str)]) -> Child {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path().join("serve.log"));
        let mut command = command(self.path());
        command.arg("serve").envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        let daemon = command.stderr(log.unwrap()).spawn().unwrap();
        let start = Instant::now();
        while connect(&self.path().join("state/intercom.sock")).is_err() {
            assert!(start.elapsed() < PATIENCE, "the daemon does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon
    }

    /// The daemons that run here, by their pids.
    fn daemons(&self) -> Vec<i32> {
        let serves = |line: &String| line.split(' ').any(|word| word == "serve");
        processes_in(self.path()).into_iter().filter(|(_, line)| serves(line)).map(|(pid, _)| pid).collect()
    }

    #[track_caller]
    fn healthy(&self) {
        let (status, body) =
            http(&self.path().join("state/intercom.sock"), "GET", "/api/v1/health", None, &[]);
        assert_eq!(status, 200, "{body}");
    }
}

fn run(command: &mut Command) -> Ran {
    harness::run(command)
}

#[test]
fn a_daemon_is_started_in_the_background_and_outlives_the_client() {
    let ground = Ground::new("");
    let ran = run(ground.acp().env("EDITOR_SECRET", "x").env("INTERCOM_SESSION", "ses_x"));
    assert!(ran.stderr.contains("started a daemon (pid "), "{ran:?}");
    ground.healthy();
    let [daemon] = ground.daemons().try_into().unwrap();
    assert_eq!(getsid(Some(Pid::from_raw(daemon))).unwrap().as_raw(), daemon, "a session of its own");
    let environ = std::fs::read_to_string(format!("/proc/{daemon}/environ")).unwrap();
    assert!(environ.contains("INTERCOM_CONFIG="), "{environ}");
    assert!(!environ.contains("EDITOR_SECRET") && !environ.contains("INTERCOM_SESSION"), "{environ}");
    for (fd, expected) in [(0, "/dev/null"), (1, "/dev/null"), (2, "state/daemon.log")] {
        let file = std::fs::read_link(format!("/proc/{daemon}/fd/{fd}")).unwrap();
        assert!(file.ends_with(expected), "{fd}: {}", file.display());
    }
    let log = ground.path().join("state/daemon.log");
    assert_eq!(log.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let again = run(&mut ground.acp());
    assert!(!again.stderr.contains("started a daemon"), "{again:?}");
    assert_eq!(ground.daemons(), [daemon]);
}

#[test]
fn several_at_once_start_one_daemon() {
    let ground = Ground::new("");
    let spawn = || {
        let mut command = ground.acp();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<Child> = (0..4).map(|_| spawn()).collect();
    let all: Vec<Ran> = all.into_iter().map(output).collect();
    let started = all.iter().filter(|ran| ran.stderr.contains("started a daemon")).count();
    assert_eq!(started, 1, "{all:?}");
    ground.healthy();
    assert_eq!(ground.daemons().len(), 1);
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let ground = Ground::new("[limits]\nmax_sessions = 'many'\n");
    let ran = run(&mut ground.acp());
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
    assert!(ran.stderr.contains("config.toml:2: limits.max_sessions: "), "{ran:?}");
    let ground = Ground::new("");
    std::fs::create_dir(ground.path().join("state")).unwrap();
    std::fs::write(ground.path().join("state/intercom.db"), "notes ".repeat(1000)).unwrap();
    let ran = run(&mut ground.acp());
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
    assert!(ran.stderr.contains("is not an intercom database"), "the end of its log: {ran:?}");
    assert!(ran.stderr.contains("error: a daemon was started, and ended with exit status: 1"), "{ran:?}");
    assert!(ground.daemons().is_empty());
}

#[test]
fn a_daemon_that_went_away_is_replaced() {
    let stage = Stage::new();
    let ground = Ground(stage.dir);
    let mut seat = Seat::start(ground.acp().stderr(Stdio::null()));
    let stream =
        std::iter::from_fn(|| stage.doors.recv_timeout(PATIENCE).ok()).find(|stream| !stream.peek_is_empty());
    let peer = Peer::accept(stream.unwrap());
    std::fs::remove_file(ground.path().join("state/intercom.sock")).unwrap();
    drop((peer, stage.doors));
    let start = Instant::now();
    while ground.daemons().is_empty() || !ground.path().join("state/intercom.sock").exists() {
        assert!(start.elapsed() < PATIENCE, "no daemon is started");
        std::thread::sleep(Duration::from_millis(10));
    }
    ground.healthy();
    seat.stdin = None;
    seat.end();
    assert_eq!(ground.daemons().len(), 1);
}

/// A `systemctl` that writes down what it was asked, and does this.
fn keeper(ground: &Ground, deed: &str) -> Command {
    let bin = ground.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let script = format!("#!/bin/sh\necho \"$@\" >> {}/asked\n{deed}\n", ground.path().display());
    std::fs::write(bin.join("systemctl"), script).unwrap();
    std::fs::set_permissions(bin.join("systemctl"), PermissionsExt::from_mode(0o755)).unwrap();
    let unit = run(command(ground.path()).args(["daemon", "install", "--print"])).ok().stdout;
    let units = ground.path().join(".config/systemd/user");
    std::fs::create_dir_all(&units).unwrap();
    std::fs::write(units.join("intercom.service"), unit).unwrap();
    let mut command = ground.acp();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display()));
    command
}

#[test]
fn the_installed_service_is_started_rather_than_a_process_of_our_own() {
    let ground = Ground::new("");
    let serve = format!("{} serve --detached >/dev/null 2>&1 </dev/null &", crate::INTERCOM);
    let ran = run(&mut keeper(&ground, &serve));
    assert!(!ran.stderr.contains("started a daemon"), "{ran:?}");
    ground.healthy();
    assert_eq!(
        std::fs::read_to_string(ground.path().join("asked")).unwrap(),
        "--user start intercom.service\n"
    );
    assert!(!ground.path().join("state/daemon.log").exists());
}

#[test]
fn a_service_that_does_not_start_is_done_without() {
    let ground = Ground::new("");
    let ran = run(&mut keeper(&ground, "echo 'Failed to connect to bus' >&2; exit 1"));
    assert!(ran.stderr.contains("(Failed to connect to bus); starting a daemon without it"), "{ran:?}");
    assert!(ran.stderr.contains("started a daemon (pid "), "{ran:?}");
    ground.healthy();
}
