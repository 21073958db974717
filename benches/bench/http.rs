//! As little HTTP/1.1 over a unix socket as the measurements need: kept alive, blocking, cheap.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::daemon::PATIENCE;

/// One connection, one request at a time.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn get(&mut self, path: &str) -> anyhow::Result<(u16, Value)> {
        self.request("GET", path, "")
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        self.request("POST", path, &body.to_string())
    }

    fn request(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<(u16, Value)> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: intercom\r\naccept: application/json\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let head = Head::read(&mut self.stream)?;
        let mut body = vec![0; head.length.context("an answer without a length")?];
        self.stream.read_exact(&mut body)?;
        let body =
            serde_json::from_slice(&body).with_context(|| format!("{method} {path}: {}", head.status))?;
        Ok((head.status, body))
    }
}

pub(crate) struct Head {
    pub(crate) status: u16,
    length: Option<usize>,
}

impl Head {
    pub(crate) fn read(stream: &mut impl BufRead) -> anyhow::Result<Self> {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("not an HTTP answer: {line:?}"))?;
        let mut length = None;
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            match line.trim().split_once(':') {
                None => return Ok(Self { status, length }),
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = Some(value.trim().parse()?);
                }
                Some(_) => {}
            }
        }
    }
}

/// Server-sent events as they come.
#[derive(Debug)]
pub(crate) struct Events {
    stream: BufReader<UnixStream>,
    text: String,
    read: usize,
}

impl Events {
    pub(crate) fn open(socket: &Path, path: &str) -> anyhow::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: intercom\r\n\r\n").as_bytes())?;
        let mut stream = BufReader::new(stream);
        let head = Head::read(&mut stream)?;
        ensure!(head.status == 200, "{path}: {}", head.status);
        Ok(Self { stream, text: String::new(), read: 0 })
    }

    /// The next event, waited for.
    pub(crate) fn next(&mut self) -> anyhow::Result<Value> {
        loop {
            if let Some(end) = self.text[self.read..].find("\n\n") {
                let event = &self.text[self.read..self.read + end];
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                let value = data.map(serde_json::from_str).transpose()?;
                self.read += end + 2;
                match value {
                    Some(value) => return Ok(value),
                    None => continue, // a comment
                }
            }
            self.text.drain(..self.read);
            self.read = 0;
            self.chunk()?;
        }
    }

    /// The next event like this; others are passed over.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        loop {
            let event = self.next()?;
            if wanted(&event) {
                return Ok(event);
            }
        }
    }

    fn chunk(&mut self) -> anyhow::Result<()> {
        let mut line = String::new();
        self.stream.read_line(&mut line).context("no event for a long time")?;
        let size =
            usize::from_str_radix(line.trim(), 16).with_context(|| format!("not a chunk: {line:?}"))?;
        if size == 0 {
            bail!("the stream of events ended");
        }
        let mut chunk = vec![0; size + 2];
        self.stream.read_exact(&mut chunk)?;
        chunk.truncate(size);
        self.text += &String::from_utf8(chunk)?;
        Ok(())
    }
}
