//! Streamable HTTP: everything is posted, answers and updates come on streams of server-sent events.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::Value;

use super::{Place, Wire};
use crate::harness::{PATIENCE, next_chunk};

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// All but the body. Status 0: hung up without a word.
    pub(super) fn head(reader: &mut impl BufRead) -> Self {
        let mut line = String::new();
        reader.read_line(&mut line).ok();
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line).ok();
            let Some((name, value)) = line.trim().split_once(':') else { break };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        Self { status, headers, body: String::new() }
    }
}

/// One request on a connection of its own, and its whole answer.
pub fn exchange(place: &Place, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    // A daemon that has gone has nothing to say, either.
    let Ok(mut reader) = send(place, method, path, headers, body) else {
        return Answer { status: 0, headers: Vec::new(), body: String::new() };
    };
    let mut answer = Answer::head(&mut reader);
    match answer.header("content-length").and_then(|length| length.parse().ok()) {
        Some(length) => drop(reader.take(length).read_to_string(&mut answer.body)),
        None if answer.header("transfer-encoding").is_some() => {
            while let Some(chunk) = next_chunk(&mut reader) {
                answer.body += &chunk;
            }
        }
        None => {}
    }
    answer
}

fn send(
    place: &Place,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<BufReader<UnixStream>> {
    let mut stream = place.dial()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\n{}connection: close\r\n", place.headers());
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    write!(head, "content-length: {}\r\n\r\n", body.len()).unwrap();
    stream.write_all(head.as_bytes()).ok();
    stream.write_all(body.as_bytes()).ok(); // a refused body may be answered before it is read
    Ok(BufReader::new(stream))
}

/// A stream of server-sent events.
pub struct Line {
    reader: BufReader<UnixStream>,
    text: String,
}

impl Line {
    /// The answer's head, and the stream if it is one.
    pub fn open(
        place: &Place,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (Answer, Option<Self>) {
        let mut reader = send(place, method, path, headers, body).unwrap();
        let answer = Answer::head(&mut reader);
        let streams = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let line = (answer.status == 200 && streams).then(|| Self { reader, text: String::new() });
        (answer, line)
    }

    /// A handle by which the stream can be ended from elsewhere.
    fn handle(&self) -> UnixStream {
        let stream = self.reader.get_ref().try_clone().unwrap();
        stream.set_read_timeout(None).unwrap();
        stream
    }

    /// The next event as it came, comments left out. `None` at the end, or after [`PATIENCE`].
    pub fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                self.text = rest.to_owned();
                if block.lines().all(|line| line.starts_with(':')) {
                    continue;
                }
                return Some(block);
            }
            self.text += &next_chunk(&mut self.reader)?;
        }
    }
}

impl Iterator for Line {
    type Item = Value;

    /// The message of the next event that has one.
    fn next(&mut self) -> Option<Value> {
        loop {
            let block = self.block()?;
            if let Some(data) = block.lines().find_map(|line| line.strip_prefix("data:")) {
                return Some(
                    serde_json::from_str(data.trim()).unwrap_or_else(|error| panic!("{error}: {block}")),
                );
            }
        }
    }
}

pub(super) struct Posts {
    place: Place,
    tell: Option<Sender<Value>>,
    connection: Option<String>,
    /// The sessions that have a stream.
    streams: HashSet<String>,
    open: Vec<UnixStream>,
}

pub(super) fn open(place: &Place) -> (Posts, Receiver<Value>) {
    let (tell, heard) = channel();
    let (place, streams) = (place.clone(), HashSet::new());
    (Posts { place, tell: Some(tell), connection: None, streams, open: Vec::new() }, heard)
}

impl Posts {
    /// The first: answered on itself.
    fn introduce(&mut self, text: &str) {
        let headers =
            [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        let answer = exchange(&self.place, "POST", "/acp", &headers, text);
        assert_eq!(answer.status, 200, "{answer:?}");
        self.connection = answer.header("acp-connection-id").map(str::to_owned);
        let Some(tell) = &self.tell else { panic!("has left") };
        tell.send(answer.json()).ok();
        if self.connection.is_some() {
            self.listen(None);
        }
    }

    fn listen(&mut self, session: Option<&str>) {
        let mut headers = vec![("accept", "text/event-stream")];
        let connection = self.connection.clone().unwrap();
        headers.push(("acp-connection-id", &connection));
        headers.extend(session.map(|session| ("acp-session-id", session)));
        let (answer, line) = Line::open(&self.place, "GET", "/acp", &headers, "");
        // A session that is not there has no stream; what is posted to it will say so.
        let Some(line) = line else {
            let session = session.unwrap_or_else(|| panic!("no stream: {answer:?}"));
            self.streams.remove(session);
            return;
        };
        self.open.push(line.handle());
        let Some(tell) = self.tell.clone() else { return };
        std::thread::spawn(move || {
            for message in line {
                if tell.send(message).is_err() {
                    break;
                }
            }
        });
    }
}

impl Wire for Posts {
    fn send(&mut self, text: &str) -> bool {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        if self.connection.is_none() {
            self.introduce(text);
            return true;
        }
        let session = message["params"]["sessionId"].as_str();
        if let Some(session) = session
            && self.streams.insert(session.to_owned())
        {
            self.listen(Some(session));
        }
        let connection = self.connection.clone().unwrap();
        let mut headers = vec![("content-type", "application/json"), ("acp-connection-id", &connection)];
        headers.extend(session.map(|session| ("acp-session-id", session)));
        let answer = exchange(&self.place, "POST", "/acp", &headers, text);
        // 501 is for batches.
        let is_refused = (400..500).contains(&answer.status) || answer.status == 501;
        assert!(answer.status == 202 || is_refused, "{text:.1000}: {answer:?}");
        answer.status == 202
    }

    fn hang_up(&mut self) {
        self.tell = None;
        if let Some(connection) = self.connection.take() {
            let answer = exchange(&self.place, "DELETE", "/acp", &[("acp-connection-id", &connection)], "");
            if !std::thread::panicking() {
                assert!([202, 200, 204, 404, 0].contains(&answer.status), "{answer:?}");
            }
        }
        for stream in self.open.drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}
