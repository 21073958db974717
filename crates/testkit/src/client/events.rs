//! Server-sent events as they come.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Answer, Connection, PATIENCE, Place};

/// What came of a stream and was not read yet.
#[derive(Debug, Default)]
pub struct EventText {
    text: String,
    read: usize,
}

impl EventText {
    pub fn push(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.text.drain(..self.read);
        self.read = 0;
        self.text += std::str::from_utf8(chunk).map_err(io::Error::other)?;
        Ok(())
    }

    /// The lines of the next event, comments left out, if it is here.
    pub fn next_block(&mut self) -> Option<&str> {
        let block = self.next_range()?;
        Some(&self.text[block])
    }

    fn next_range(&mut self) -> Option<Range<usize>> {
        loop {
            let block = self.read..self.read + self.text[self.read..].find("\n\n")?;
            self.read = block.end + 2;
            if self.text[block.clone()].lines().any(|line| !line.starts_with(':')) {
                return Some(block);
            }
        }
    }
}

/// A stream of events. Reading ends after [`PATIENCE`] without any.
#[derive(Debug)]
pub struct Events {
    pub connection: Connection,
    text: EventText,
    patience: Option<Duration>,
    /// Whoever waits for one among ever new ones has waited long enough then, too.
    deadline: Option<Instant>,
}

impl Events {
    /// The answer's head, and the stream if it is one.
    pub fn ask(
        place: impl Into<Place>,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<(Answer, Option<Self>)> {
        let mut connection = Connection::open(place)?;
        connection.send(method, path, headers, body)?;
        let answer = connection.head()?;
        let streams = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let (patience, deadline) = (Some(PATIENCE), Some(Instant::now() + 2 * PATIENCE));
        let events = Self { connection, text: EventText::default(), patience, deadline };
        let is_stream = answer.status == 200 && streams;
        Ok((answer, is_stream.then_some(events)))
    }

    /// A stream that is there.
    #[track_caller]
    pub fn open(place: impl Into<Place>, path: &str, headers: &[(&str, &str)]) -> Self {
        let (answer, events) = Self::ask(place, "GET", path, headers, "").unwrap();
        events.unwrap_or_else(|| panic!("{path}: {answer:?}"))
    }

    /// How long the next event may take, and no end of them.
    pub fn waits(&mut self, patience: Option<Duration>) -> io::Result<()> {
        (self.patience, self.deadline) = (patience, None);
        self.connection.waits(patience)
    }

    /// The lines of the next event as they came; `None` at the end.
    pub fn block(&mut self) -> io::Result<Option<&str>> {
        let start = Instant::now();
        loop {
            if self.deadline.is_some_and(|deadline| deadline < Instant::now()) {
                return Err(ErrorKind::TimedOut.into());
            }
            if let Some(block) = self.text.next_range() {
                return Ok(Some(&self.text.text[block]));
            }
            if self.patience.is_some_and(|patience| start.elapsed() > patience) {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.connection.chunk()? {
                Some(chunk) => self.text.push(&chunk)?,
                None => return Ok(None),
            }
        }
    }

    /// The next event like this; others are passed over.
    pub fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> io::Result<Value> {
        while let Some(event) = self.event()? {
            if wanted(&event) {
                return Ok(event);
            }
        }
        Err(ErrorKind::UnexpectedEof.into())
    }

    /// The next event that has data.
    pub fn event(&mut self) -> io::Result<Option<Value>> {
        while let Some(block) = self.block()? {
            if let Some(data) = block.lines().find_map(|line| line.strip_prefix("data:")) {
                return Ok(Some(serde_json::from_str(data)?));
            }
        }
        Ok(None)
    }
}

/// Until the stream ends, or nothing comes any more.
impl Iterator for Events {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        match self.event() {
            Err(error) if error.kind() == ErrorKind::InvalidData => panic!("{error}"),
            event => event.ok().flatten(),
        }
    }
}
