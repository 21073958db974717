//! What the agent says and hears.

use std::io::{self, BufRead, Read};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::unistd;
use serde_json::{Value, json};

use super::messages::message;
use super::processes::hang;
use super::{Agent, Incoming};
use crate::script::Stop;

impl Agent {
    pub(super) fn frame(&self, text: &str) -> Vec<u8> {
        let length = text.len();
        if self.lsp { format!("Content-Length: {length}\r\n\r\n{text}") } else { format!("{text}\n") }
            .into_bytes()
    }

    pub(super) fn send(&self, message: &Value) -> Result<(), Stop> {
        write_all(io::stdout(), &self.frame(&message.to_string()))
    }

    /// A status with more fields than its message.
    pub(super) fn status(&self, text: &str, mut fields: Value) -> Result<(), Stop> {
        fields["message"] = text.into();
        self.send(&message("status/update", None, &fields))
    }

    pub(super) fn report_received(&self, message: &Incoming) -> Result<(), Stop> {
        let mut fields = json!({ "line": message.text });
        if message.partial {
            fields["partial"] = true.into();
        }
        self.status("received", fields)
    }

    pub(super) fn report_answered(&self, answer: &Incoming) -> Result<(), Stop> {
        let params = &answer.json["params"];
        let status = ["status", "decision", "code"].into_iter().find_map(|key| params.get(key));
        let (id, method) = (&answer.json["id"], &answer.json["method"]);
        self.status("answered", json!({ "id": id, "method": method, "status": status, "params": params }))
    }

    /// The next message, first of those that were left over.
    pub(super) fn next(&mut self) -> Result<Incoming, Stop> {
        self.inbox.pop_front().map_or_else(|| self.receive(), Ok)
    }

    /// The first message, old or new, that fits; the others stay.
    pub(super) fn wait(&mut self, fits: impl Fn(&Incoming) -> bool) -> Result<Incoming, Stop> {
        if let Some(found) = self.inbox.iter().position(&fits).and_then(|index| self.inbox.remove(index)) {
            return Ok(found);
        }
        loop {
            let message = self.receive()?;
            if fits(&message) {
                return Ok(message);
            }
            self.inbox.push_back(message);
        }
    }

    fn receive(&mut self) -> Result<Incoming, Stop> {
        let mut stdin = io::stdin().lock();
        let (bytes, partial) = if self.lsp { read_lsp(&mut stdin)? } else { read_line(&mut stdin)? };
        if bytes.is_empty() && partial {
            return if self.ignore_eof { hang() } else { Err(Stop::Exit(0)) };
        }
        let json: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if json["method"] == "prompt/send" {
            self.turns.push(json["params"]["turn"].clone());
        }
        Ok(Incoming { text: String::from_utf8_lossy(&bytes).into_owned(), json, partial })
    }
}

/// Past std's line buffer: a step's bytes leave whole, in one `write` where the pipe has room.
pub(super) fn write_all(to: impl AsFd, mut bytes: &[u8]) -> Result<(), Stop> {
    while !bytes.is_empty() {
        match unistd::write(&to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// A line without its end, and whether that was missing.
fn read_line(stdin: &mut impl BufRead) -> io::Result<(Vec<u8>, bool)> {
    let mut line = Vec::new();
    stdin.read_until(b'\n', &mut line)?;
    let partial = line.pop_if(|last| *last == b'\n').is_none();
    Ok((line, partial))
}

fn read_lsp(stdin: &mut impl BufRead) -> io::Result<(Vec<u8>, bool)> {
    let mut length = None;
    loop {
        let (header, partial) = read_line(stdin)?;
        if partial {
            return Ok((header, true));
        }
        let text = String::from_utf8_lossy(&header);
        match text.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok();
            }
            Some(_) => {}
            None => break,
        }
    }
    let length = length.ok_or_else(|| io::Error::other("a header without Content-Length"))?;
    let mut body = Vec::new();
    let read = stdin.take(length).read_to_end(&mut body)?;
    Ok((body, (read as u64) < length))
}
