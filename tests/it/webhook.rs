//! What waits and what was decided is told to a URL, signed, in order, until it is taken.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use intercom_testkit::harness::{Daemon, home};
use nix::sys::signal::Signal;
use serde_json::Value;

struct Told {
    headers: Vec<String>,
    body: String,
}

impl Told {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        found.unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Answers each request with the next of these statuses, then with 204 for ever.
fn receiver(statuses: &'static [u16]) -> (String, mpsc::Receiver<Told>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut statuses = statuses.iter();
        for stream in listener.incoming() {
            let status = statuses.next().copied().unwrap_or(204);
            if sender.send(take(stream.unwrap(), status)).is_err() {
                return;
            }
        }
    });
    (url, told)
}

fn take(mut stream: TcpStream, status: u16) -> Told {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        headers.push(line.trim().to_owned());
    }
    let mut told = Told { headers, body: String::new() };
    let length: u64 = told.header("content-length").parse().unwrap();
    reader.take(length).read_to_string(&mut told.body).unwrap();
    stream
        .write_all(
            format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").as_bytes(),
        )
        .unwrap();
    told
}

fn next(told: &mpsc::Receiver<Told>) -> Told {
    told.recv_timeout(Duration::from_secs(30)).expect("the webhook is told")
}

#[test]
fn a_webhook_is_told_in_order_signed_and_again_until_it_is_taken() {
    let (url, told) = receiver(&[503, 204]);
    let dir = home("");
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "a secret of some length\n").unwrap();
    let config = format!("[api]\nlisten = \"off\"\n[webhook]\nurl = \"{url}\"\nsecret_file = {secret:?}\n");
    std::fs::write(dir.path().join("config.toml"), config).unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    let session = daemon.run(&["clearance:1:May I?", "answer:1", "serve"]);
    let (first, again) = (next(&told), next(&told));
    assert_eq!(first.body, again.body, "a 503 is tried again");
    assert_eq!(first.header("intercom-delivery"), again.header("intercom-delivery"));
    assert!(first.headers[0].starts_with("POST /hook "), "{:?}", first.headers);
    assert_eq!(
        (&first.json()["kind"], first.header("intercom-event")),
        (&"clearance.requested".into(), "clearance.requested")
    );
    let signature = first.header("intercom-signature");
    let (time, mac) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"a secret of some length");
    let mac: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&mac[2 * at..2 * at + 2], 16).unwrap()).collect();
    ring::hmac::verify(&key, format!("{time}.{}", first.body).as_bytes(), &mac).unwrap();

    // A daemon that was killed may tell the last one again, under the same number.
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    let id = daemon.clearance(&session);
    daemon.decide(&id, "approve");
    let mut after = next(&told);
    if after.header("intercom-delivery") == again.header("intercom-delivery") {
        after = next(&told);
    }
    assert_eq!(after.json()["kind"], "clearance.decided");
    daemon.end_session(&session, "stop");
    assert_eq!(next(&told).json()["kind"], "session.ended");
}

#[test]
fn the_head_of_the_audit_is_told_if_that_is_wanted() {
    let (url, told) = receiver(&[503]);
    let dir = home("");
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "a secret of some length\n").unwrap();
    let config = format!(
        "[api]\nlisten = \"off\"\n[webhook]\nurl = \"{url}\"\nsecret_file = {secret:?}\n[audit]\nwebhook = true\n"
    );
    std::fs::write(dir.path().join("config.toml"), config).unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(next(&told).json()["kind"], "audit.head", "refused once");
    daemon.cli(&["token", "create", "--name", "one", "--role", "viewer"]).ok();
    let wanted = daemon.get("/api/v1/audit/verify").1;
    let head = loop {
        let told = next(&told);
        assert_eq!(told.header("intercom-event"), "audit.head");
        let row = told.json()["data"]["row"].clone();
        assert_eq!(told.header("intercom-delivery"), format!("audit-{row}"));
        if row == wanted["rows"] {
            break told.json()["data"]["head"].clone();
        }
    };
    assert_eq!(head, wanted["head"]);
}
