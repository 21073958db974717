//! Streamable HTTP: everything is posted, answers and updates come on streams of server-sent events.

use std::collections::HashSet;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::Value;

use super::Wire;
use crate::client::{Events, Place, exchange};

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
        let (answer, events) = Events::ask(&self.place, "GET", "/acp", &headers, "").unwrap();
        // A session that is not there has no stream; what is posted to it will say so.
        let Some(mut events) = events else {
            let session = session.unwrap_or_else(|| panic!("no stream: {answer:?}"));
            self.streams.remove(session);
            return;
        };
        self.open.push(events.connection.handle().unwrap());
        events.waits(None).unwrap();
        let Some(tell) = self.tell.clone() else { return };
        std::thread::spawn(move || {
            for message in events {
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
