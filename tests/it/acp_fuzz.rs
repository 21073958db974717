//! Whatever comes in: a proper error or a closed connection, never a crash, never somebody else's data.
//!
//! Seeded, so that a failure can be had again; `INTERCOM_FUZZ_SEED` sets another seed. Each test ends after [`WHILE`], or
//! after as many seconds as `INTERCOM_FUZZ_SECONDS` says.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::Stdio;
use std::time::{Duration, Instant};

use intercom_testkit::client::{Place, WebSocket, exchange};
use intercom_testkit::harness::{self, Daemon, command};
use intercom_testkit::seats::{Seat, Way, fixture, named};
use serde_json::{Value, json};

const WHILE: Duration = Duration::from_secs(3);
/// What the witness's agent says; nobody else may hear it.
const SECRET: &str = "the witness knows 4711";

/// A small generator of numbers: xorshift64*.
struct Chance(u64);

impl Chance {
    fn new() -> Self {
        let set = std::env::var("INTERCOM_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = set.unwrap_or(20_261_118) | 1;
        eprintln!("INTERCOM_FUZZ_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit as u64)).unwrap()
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.next().to_le_bytes()[3]).collect()
    }

    /// Any small JSON.
    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 8 } else { 10 }) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(self.next()),
            3 => json!(-1),
            4 => json!(1e300),
            5 => json!(""),
            6 => json!("\u{0}\u{7f}\u{1F600}\\u0000"),
            7 => json!("x".repeat(self.below(3000))),
            8 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => json!({ "sessionId": self.value(depth - 1), "type": self.value(depth - 1) }),
        }
    }

    /// A good message with something wrong in it.
    fn mutant(&mut self, session: &str, cwd: &Value) -> Value {
        let good = [
            json!({ "method": "initialize", "params": { "protocolVersion": 1, "clientCapabilities": {} } }),
            json!({ "method": "authenticate", "params": { "methodId": "x" } }),
            json!({ "method": "session/new", "params": { "cwd": cwd, "mcpServers": [] } }),
            json!({ "method": "session/load", "params": { "sessionId": session, "cwd": cwd, "mcpServers": [] } }),
            json!({ "method": "session/resume", "params": { "sessionId": session, "cwd": cwd, "mcpServers": [] } }),
            json!({ "method": "session/list", "params": { "cwd": cwd, "cursor": null } }),
            json!({ "method": "session/prompt", "params": { "sessionId": session, "prompt": [{ "type": "text", "text": "say:x" }] } }),
            json!({ "method": "session/cancel", "params": { "sessionId": session } }),
            json!({ "method": "session/set_mode", "params": { "sessionId": session, "modeId": "safe" } }),
            json!({ "method": "session/set_config_option", "params": { "sessionId": session, "configId": "model", "value": "small" } }),
            json!({ "method": "$/cancel_request", "params": { "requestId": 1 } }),
        ];
        let mut message = self.one(&good).clone();
        message["jsonrpc"] = json!("2.0");
        for _ in 0..=self.below(2) {
            self.spoil(&mut message);
        }
        message
    }

    /// Changes, removes or adds one thing, anywhere.
    fn spoil(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) if !fields.is_empty() && self.below(4) > 0 => {
                let keys: Vec<String> = fields.keys().cloned().collect();
                let key = self.one(&keys).clone();
                match self.below(8) {
                    0 => drop(fields.remove(&key)),
                    1 => drop(fields.insert(format!("{key}x"), self.value(2))),
                    _ => self.spoil(&mut fields[&key]),
                }
            }
            Value::Array(items) if !items.is_empty() && self.below(4) > 0 => {
                let at = self.below(items.len());
                self.spoil(&mut items[at]);
            }
            other => *other = self.value(2),
        }
    }
}

/// Somebody who uses the daemon properly all the while.
struct Witness {
    /// First, so that it goes before its daemon.
    seat: Seat,
    session: String,
    place: Place,
    daemon: Daemon,
}

impl Witness {
    fn new() -> Self {
        let knows = named("knows", &[&format!("script:say:{SECRET}")]);
        // No more than a few: the agents of this test are real processes.
        let limits = "[limits]\nmax_sessions = 14\n";
        let daemon = Daemon::quick(&format!(
            "{}{knows}[acp_server]\nagent = 'fixture'\nconnectionless = true\nmax_message_bytes = 65536\n{limits}",
            fixture(&[])
        ));
        let mut seat = Seat::stdio(&daemon, &["--agent", "knows"]).introduced();
        let session = seat.begun(&daemon);
        assert_eq!(seat.prompt(&session, "what do you know?"), "end_turn");
        let place = Place::socket(&daemon);
        Self { seat, session, place, daemon }
    }

    /// Is served as before, and the daemon has not complained of itself.
    #[track_caller]
    fn is_served(&mut self) {
        let before = self.seat.words(&self.session).len();
        assert_eq!(self.seat.prompt(&self.session, "and now?"), "end_turn");
        assert_eq!(self.seat.words(&self.session).len(), before + 1);
        assert_eq!(self.daemon.get("/api/v1/health").0, 200);
        let log = self.daemon.log();
        assert!(!log.contains("panicked"), "{log}");
        assert!(!self.daemon.ended(), "{log}");
    }
}

fn until_over(mut step: impl FnMut()) {
    let seconds = std::env::var("INTERCOM_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let (start, time) = (Instant::now(), seconds.map_or(WHILE, Duration::from_secs));
    while start.elapsed() < time {
        step();
    }
}

#[track_caller]
fn is_no_secret(told: &str) {
    assert!(!told.contains(SECRET), "{told}");
}

/// Wrong types in good messages, on a connection that stays: every request is answered, once.
#[test]
fn every_request_with_an_id_is_answered_whatever_is_in_it() {
    let (mut chance, mut witness) = (Chance::new(), Witness::new());
    let mut seats: Vec<(Seat, String)> = [Way::Lines, Way::Lengths, Way::WebSocket, Way::Http]
        .into_iter()
        .map(|way| {
            let mut seat = Seat::ready(way, &witness.daemon);
            let session = seat.begun(&witness.daemon);
            (seat, session)
        })
        .collect();
    let cwd = json!(witness.daemon.workspace());
    let mut number = 0;
    until_over(|| {
        let (seat, session) = &mut seats[number % 4];
        number += 1;
        let mut message = chance.mutant(session, &cwd);
        let is_request = message.get("method").is_some_and(Value::is_string) && chance.below(5) > 0;
        if is_request {
            message["id"] = json!(format!("fuzz-{number}"));
        }
        // What the transport refuses, and what is no request, has no answer.
        if !seat.offer(&message) || !is_request {
            seat.settle();
            return;
        }
        let answer = seat.answer_to(&message["id"]);
        let code = answer["error"]["code"].as_i64();
        assert!(answer.get("result").is_some() != code.is_some(), "{message}: {answer}");
        if let Some(made) = answer["result"]["sessionId"].as_str().filter(|made| *made != session.as_str()) {
            let made = made.to_owned();
            seat.ok("session/close", json!({ "sessionId": made }));
        }
        is_no_secret(&answer.to_string());
    });
    for (seat, _) in &mut seats {
        seat.settle();
        seat.log.iter().for_each(|message| is_no_secret(&message.to_string()));
    }
    witness.is_served();
}

/// Bytes of any kind on stdin.
#[test]
fn any_bytes_on_stdin_are_survived() {
    let (mut chance, mut witness) = (Chance::new(), Witness::new());
    until_over(|| {
        let mut child = command(witness.daemon.dir.path())
            .args(["acp", "--agent", "fixture"])
            .current_dir(witness.daemon.workspace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = stdin_of(&mut chance);
        let writer = std::thread::spawn(move || stdin.write_all(&input).ok());
        let ran = harness::output(child);
        writer.join().unwrap();
        assert!([0, 1].contains(&ran.code), "{ran:?}");
        is_no_secret(&ran.stdout);
        let lines = ran.stdout.lines().filter(|_| !ran.stdout.starts_with("Content-Length"));
        for line in lines {
            let message: Value = serde_json::from_str(line).unwrap();
            assert!(message.get("result").is_some() || message["error"]["code"].is_i64(), "{message}");
        }
    });
    witness.is_served();
}

fn stdin_of(chance: &mut Chance) -> Vec<u8> {
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
    let mut input = Vec::new();
    let lengths = chance.below(2) == 0;
    for _ in 0..=chance.below(6) {
        let body = match chance.below(7) {
            0 => hello.as_bytes().to_vec(),
            1 => hello.as_bytes()[..chance.below(hello.len())].to_vec(),
            2 => format!("[{hello},{hello}]").into_bytes(),
            3 => chance.value(3).to_string().into_bytes(),
            4 => vec![*chance.one(b"{[\"x\n\0\xff"); chance.below(200_000)],
            5 => format!("{}{}", "[".repeat(chance.below(5_000)), hello).into_bytes(),
            _ => chance.bytes(2_000),
        };
        if lengths {
            let length = match chance.below(6) {
                0 => "99999999999999999999".to_owned(),
                1 => "-1".to_owned(),
                2 => "x".to_owned(),
                3 => (body.len() + chance.below(50)).to_string(),
                _ => body.len().to_string(),
            };
            let end: &[u8] =
                chance.one::<&[u8]>(&[&b"\r\n\r\n"[..], b"\n\n", b"\r\n", b"\r\nContent-Length: 2\r\n\r\n"]);
            input.extend(b"Content-Length: ");
            input.extend(length.as_bytes());
            input.extend(end);
            input.extend(body);
        } else {
            input.extend(body);
            input.extend(if chance.below(4) > 0 { &b"\n"[..] } else { b"" });
        }
    }
    input
}

/// Frames of any kind, whole and half.
#[test]
fn any_frames_on_a_websocket_are_survived() {
    let (mut chance, mut witness) = (Chance::new(), Witness::new());
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
    until_over(|| {
        let (answer, opened) = WebSocket::ask(&witness.place, "/acp", &[]).unwrap();
        let WebSocket { frames, mut connection } = opened.unwrap_or_else(|| panic!("{answer:?}"));
        connection.waits(Some(Duration::from_secs(10))).unwrap();
        for _ in 0..=chance.below(6) {
            match chance.below(11) {
                0 => frames.text(hello),
                1 => frames.text(&chance.value(3).to_string()),
                2 => frames.frame(0x81, &chance.bytes(300)),
                3 => frames.frame(0x82, &chance.bytes(300)),
                4 => frames.frame(chance.next().to_le_bytes()[0], &chance.bytes(300)),
                5 => frames.bytes(&chance.bytes(300)),
                // Announces more than it has.
                6 => {
                    frames
                        .bytes(&[0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5]);
                }
                7 => frames.bytes(&[0x81, 0x05, b'h', b'e', b'l', b'l', b'o']), // not masked
                8 => frames.text(&format!("\"{}\"", "x".repeat(70_000))),
                9 => {
                    frames.frame(0x01, &hello.as_bytes()[..20]);
                    frames.frame(if chance.below(2) == 0 { 0x80 } else { 0x81 }, &hello.as_bytes()[20..]);
                }
                _ => frames.text(&format!("[{hello}]")),
            }
        }
        frames.frame(0x88, &1000_u16.to_be_bytes());
        // Nothing more is written; what comes until the end is proper.
        connection.handle().unwrap().shutdown(Shutdown::Write).ok();
        let mut told = Vec::new();
        connection.read_to_end(&mut told).ok();
        is_no_secret(&String::from_utf8_lossy(&told));
    });
    witness.is_served();
}

/// Requests of any kind to every door.
#[test]
fn any_requests_over_http_are_survived() {
    let (mut chance, mut witness) = (Chance::new(), Witness::new());
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
    let (connection, place) = (connection(&witness.place, hello), witness.place.clone());
    let paths = [
        "/acp",
        "/acp",
        "/acp",
        "/acp/rpc?client_id=x",
        "/acp/rpc",
        "/acp/sse",
        "/acp/rpc?client_id=%ff%00",
        "/acp/",
    ];
    let kinds = ["application/json", "text/plain", "application/json; charset=utf-8", ""];
    until_over(|| {
        let id = chance.bytes(40);
        let id: String = id.iter().map(|byte| char::from(byte % 94 + 33)).collect();
        let ids = [connection.as_str(), "", "none-such", &id];
        let headers = [
            ("content-type", *chance.one(&kinds)),
            ("accept", *chance.one(&["application/json", "*/*", "application/json, text/event-stream"])),
            ("acp-connection-id", *chance.one(&ids)),
            ("acp-session-id", *chance.one(&ids)),
        ];
        let some = headers.into_iter().filter(|_| chance.below(3) > 0).collect::<Vec<_>>();
        let body = match chance.below(6) {
            0 => hello.to_owned(),
            1 => format!("[{hello}]"),
            2 => hello[..chance.below(hello.len())].to_owned(),
            3 => chance.mutant("ses_nobody000000", &json!("/tmp")).to_string(),
            4 => "x".repeat(chance.below(100_000)),
            _ => String::from_utf8_lossy(&chance.bytes(500)).into_owned(),
        };
        let method = *chance.one(&["POST", "POST", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"]);
        if method == "DELETE" && some.iter().any(|(_, value)| *value == connection) {
            return;
        }
        let path = *chance.one(&paths);
        let answer = exchange(&place, method, path, &some, &body);
        // 501 is for batches.
        assert!(
            (200..500).contains(&answer.status) || answer.status == 501,
            "{method} {some:?} {body:.200}: {answer:?}"
        );
        is_no_secret(&answer.body);
    });
    // Half of a request, and then nothing.
    for cut in [10, 60, 100, 140] {
        let body = format!(
            "POST /acp HTTP/1.1\r\nhost: intercom\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{hello}"
        );
        let mut stream = place.dial().unwrap();
        stream.write_all(&body.as_bytes()[..cut.min(body.len())]).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    }
    witness.is_served();
}

fn connection(place: &Place, hello: &str) -> String {
    let answer = exchange(place, "POST", "/acp", &[("content-type", "application/json")], hello);
    answer.header("acp-connection-id").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// What is longer than a message may be: an error or the end of the connection, and never in memory.
#[test]
fn a_message_that_is_too_long_costs_no_memory() {
    let mut witness = Witness::new();
    let rss = |daemon: &Daemon| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap()
    };
    let before = rss(&witness.daemon);
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":"long","method":"initialize","params":{{"x":"{}"}}}}"#,
        "x".repeat(32 << 20)
    );
    // Over HTTP: refused by its length.
    let answer = exchange(&witness.place, "POST", "/acp", &[("content-type", "application/json")], &long);
    assert!([413, 400, 0].contains(&answer.status), "{answer:?}");
    // Over WebSocket: closed, or answered with an error.
    let (_, opened) = WebSocket::ask(&witness.place, "/acp", &[]).unwrap();
    let WebSocket { frames, mut connection } = opened.unwrap();
    frames.text(&long);
    let mut told = Vec::new();
    connection.waits(Some(Duration::from_secs(10))).unwrap();
    frames.frame(0x88, &1000_u16.to_be_bytes());
    connection.read_to_end(&mut told).ok();
    // Over stdio: an error, and the client may go on.
    let mut seat = Seat::ready(Way::Lines, &witness.daemon);
    seat.send_text(&long);
    let error = seat.until("an error", |message| message.get("error").is_some());
    assert!(error["error"]["code"].is_i64(), "{error}");
    seat.ok("session/list", json!({}));
    witness.is_served();
    let after = rss(&witness.daemon);
    assert!(after < before + (24 << 10), "{before} kB, then {after} kB");
}
