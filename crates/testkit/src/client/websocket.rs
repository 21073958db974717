//! As much of WebSocket as a client needs, and any bytes besides.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use super::{Answer, Connection, Place};

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The way out of a connection after its handshake, frame by frame.
#[derive(Debug, Clone)]
pub struct Frames {
    stream: Arc<Mutex<UnixStream>>,
}

impl Frames {
    /// One frame, masked as clients must; the first byte is as given.
    pub fn frame(&self, first: u8, payload: &[u8]) {
        const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
        let mut bytes = vec![first];
        match payload.len() {
            length @ 0..126 => bytes.push(0x80 | u8::try_from(length).unwrap()),
            length @ 126..65536 => {
                bytes.push(0x80 | 0x7e);
                bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
            length => {
                bytes.push(0x80 | 0x7f);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(MASK);
        bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.bytes(&bytes);
    }

    pub fn text(&self, text: &str) {
        self.frame(0x80 | TEXT, text.as_bytes());
    }

    /// Whatever it is; it may have been hung up on.
    pub fn bytes(&self, bytes: &[u8]) {
        self.stream.lock().unwrap().write_all(bytes).ok();
    }

    pub fn hang_up(&self) {
        self.stream.lock().unwrap().shutdown(Shutdown::Both).ok();
    }
}

/// Both ways.
#[derive(Debug)]
pub struct WebSocket {
    pub frames: Frames,
    pub connection: Connection,
}

impl WebSocket {
    /// Asks to change to WebSocket; the answer, and the connection if it is 101.
    pub fn ask(
        place: impl Into<Place>,
        path: &str,
        more: &[(&str, &str)],
    ) -> io::Result<(Answer, Option<Self>)> {
        const HEADERS: &[(&str, &str)] = &[
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let mut connection = Connection::open(place)?;
        connection.send("GET", path, &[HEADERS, more].concat(), "")?;
        let answer = connection.head()?;
        if answer.status != 101 {
            return Ok((answer, None));
        }
        // What RFC 6455 itself gives as the answer to this key.
        assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer:?}");
        let frames = Frames { stream: Arc::new(Mutex::new(connection.handle()?)) };
        Ok((answer, Some(Self { frames, connection })))
    }

    /// The next message, in however many frames it comes; `None` once the server has closed. Pings are answered.
    pub fn message(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut message = Vec::new();
        loop {
            let (first, payload) = self.frame()?;
            match first & 0x0f {
                CLOSE => {
                    self.frames.hang_up();
                    return Ok(None);
                }
                PING => self.frames.frame(0x80 | PONG, &payload),
                PONG => {}
                _ => {
                    message.extend(payload);
                    if first & 0x80 != 0 {
                        return Ok(Some(message));
                    }
                }
            }
        }
    }

    /// The next frame: its first byte and what it holds.
    pub fn frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.connection.read_exact(&mut head)?;
        assert_eq!(head[1] & 0x80, 0, "a server masks nothing");
        let mut length = [0; 8];
        match head[1] {
            126 => self.connection.read_exact(&mut length[6..])?,
            127 => self.connection.read_exact(&mut length)?,
            short => length[7] = short,
        }
        let mut payload = vec![0; usize::try_from(u64::from_be_bytes(length)).unwrap()];
        self.connection.read_exact(&mut payload)?;
        Ok((head[0], payload))
    }
}
