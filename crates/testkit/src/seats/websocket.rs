//! As much of WebSocket as a client needs, and any bytes besides.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::http::Answer;
use super::{Place, Wire};

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A connection after its handshake, frame by frame.
#[derive(Debug, Clone)]
pub struct Frames {
    stream: Arc<Mutex<UnixStream>>,
}

impl Frames {
    /// Asks to change to WebSocket; the answer, and the connection if it is 101.
    pub fn ask(place: &Place, path: &str, more: &str) -> (Answer, Option<(Self, BufReader<UnixStream>)>) {
        let mut stream = place.dial().unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\n{}connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n",
            place.headers()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let answer = Answer::head(&mut reader);
        if answer.status != 101 {
            return (answer, None);
        }
        // What RFC 6455 itself gives as the answer to this key.
        assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer:?}");
        (answer, Some((Self { stream: Arc::new(Mutex::new(stream)) }, reader)))
    }

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

pub(super) fn open(place: &Place) -> (Socket, Receiver<Value>) {
    let (answer, opened) = Frames::ask(place, "/acp", "");
    let (frames, reader) = opened.unwrap_or_else(|| panic!("no WebSocket: {answer:?}"));
    let (tell, heard) = channel();
    let pongs = frames.clone();
    std::thread::spawn(move || listen(reader, &pongs, &tell));
    (Socket { frames }, heard)
}

fn listen(mut reader: BufReader<UnixStream>, frames: &Frames, tell: &Sender<Value>) {
    let mut message = Vec::new();
    while let Some((first, payload)) = read(&mut reader) {
        match first & 0x0f {
            CLOSE => {
                frames.hang_up();
                break;
            }
            PING => frames.frame(0x80 | PONG, &payload),
            PONG => {}
            _ => {
                message.extend(payload);
                if first & 0x80 != 0 {
                    let value = serde_json::from_slice(&message).expect("JSON in a text frame");
                    message.clear();
                    if tell.send(value).is_err() {
                        break;
                    }
                }
            }
        }
    }
}

/// The next frame: its first byte and what it holds. `None` at the end.
pub(super) fn read(reader: &mut impl BufRead) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    reader.read_exact(&mut head).ok()?;
    assert_eq!(head[1] & 0x80, 0, "a server masks nothing");
    let length = match head[1] {
        126 => {
            let mut length = [0; 2];
            reader.read_exact(&mut length).ok()?;
            usize::from(u16::from_be_bytes(length))
        }
        127 => {
            let mut length = [0; 8];
            reader.read_exact(&mut length).ok()?;
            usize::try_from(u64::from_be_bytes(length)).unwrap()
        }
        length => usize::from(length),
    };
    let mut payload = vec![0; length];
    reader.read_exact(&mut payload).ok()?;
    Some((head[0], payload))
}

pub(super) struct Socket {
    frames: Frames,
}

impl Wire for Socket {
    fn send(&mut self, text: &str) -> bool {
        self.frames.text(text);
        true
    }

    fn hang_up(&mut self) {
        self.frames.hang_up();
    }
}
