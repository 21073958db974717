//! As little WebSocket over a unix socket as the measurements need: blocking, one frame a message.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::daemon::PATIENCE;
use crate::http::Head;

/// An ACP client.
#[derive(Debug)]
pub(crate) struct Seat {
    stream: BufReader<UnixStream>,
    asked: u64,
}

impl Seat {
    /// One that has introduced itself.
    pub(crate) fn open(socket: &Path) -> anyhow::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = "GET /acp HTTP/1.1\r\nhost: intercom\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        let mut stream = BufReader::with_capacity(4096, stream);
        let status = Head::read(&mut stream)?.status;
        ensure!(status == 101, "no WebSocket: {status}");
        let mut seat = Self { stream, asked: 0 };
        seat.ask("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }))?;
        Ok(seat)
    }

    /// By which it can be hung up from elsewhere.
    pub(crate) fn handle(&self) -> anyhow::Result<UnixStream> {
        Ok(self.stream.get_ref().try_clone()?)
    }

    /// Sends a request; its id.
    pub(crate) fn begin(&mut self, method: &str, params: &Value) -> anyhow::Result<u64> {
        const MASK: [u8; 4] = [0; 4]; // by which nothing changes
        self.asked += 1;
        let text =
            json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params }).to_string();
        let mut frame = vec![0x81];
        match u16::try_from(text.len())? {
            length @ 0..126 => frame.push(0x80 | length.to_le_bytes()[0]),
            length => {
                frame.push(0x80 | 0x7e);
                frame.extend(length.to_be_bytes());
            }
        }
        frame.extend(MASK);
        frame.extend(text.as_bytes());
        self.stream.get_mut().write_all(&frame)?;
        Ok(self.asked)
    }

    /// Sends a request and waits for its result.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        let id = self.begin(method, params)?;
        loop {
            let message: Value = serde_json::from_slice(&self.next()?)?;
            if message["id"] == id && message.get("method").is_none() {
                ensure!(message.get("result").is_some(), "{method}: {message}");
                return Ok(message["result"].clone());
            }
        }
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> anyhow::Result<Vec<u8>> {
        loop {
            let mut head = [0; 2];
            self.stream.read_exact(&mut head).context("nothing more from the daemon")?;
            let mut length = [0; 8];
            match head[1] {
                0x7e => self.stream.read_exact(&mut length[6..])?,
                0x7f => self.stream.read_exact(&mut length)?,
                short => length[7] = short,
            }
            let mut payload = vec![0; usize::try_from(u64::from_be_bytes(length))?];
            self.stream.read_exact(&mut payload)?;
            match head[0] & 0x0f {
                1 => return Ok(payload),
                8 => bail!("the daemon hung up"),
                _ => {} // it is alive
            }
        }
    }
}
