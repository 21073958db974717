//! The client's end of the relay: reads stdin in chunks and writes stdout message by message, in either framing.
//!
//! Each direction has a thread and not a task, because the process must be able to exit while a read of stdin or a write
//! to a client that does not read still blocks.

use std::io::{Read, Write};
use std::thread;

use bytes::BytesMut;
use tokio::sync::{mpsc, oneshot};

use intercom_wire::frame::Frame;
use intercom_wire::framing::Framer;

/// The maximum size of a message of the client, which may contain images.
const MAX_MESSAGE: usize = 32 << 20;
const CHUNK: usize = 64 << 10;
/// The maximum number of chunks that are not processed yet; at the limit, stdin is not read.
const CHUNKS: usize = 1;
/// The maximum number of messages that wait for the writer; further ones wait in the relay.
const MESSAGES: usize = 4;
const HEADER: &[u8] = b"content-";

/// The client's input, cut into messages.
#[derive(Debug, Default)]
pub(super) struct StdinFrames {
    /// `None` until the first bytes arrive.
    framer: Option<Framer>,
    buf: BytesMut,
    pub(super) ended: bool,
}

impl StdinFrames {
    pub(super) fn feed(&mut self, chunk: Option<Vec<u8>>) {
        match chunk {
            Some(bytes) => self.buf.extend_from_slice(&bytes),
            None => self.ended = true,
        }
        if self.framer.is_none() {
            self.framer = framing(&self.buf, self.ended);
        }
    }

    pub(super) fn next(&mut self) -> Option<Frame> {
        let framer = self.framer.as_mut()?;
        if self.ended { framer.finish(&mut self.buf) } else { framer.next(&mut self.buf) }
    }

    /// Frames a message as the client does; by lines until the client's framing is known.
    pub(super) fn wrap(&self, text: &str) -> Vec<u8> {
        match &self.framer {
            Some(framer @ Framer::Lsp(_)) => framer.wrap(text),
            // In JSON a line break is white space between tokens, because strings contain only escaped ones.
            _ => format!("{}\n", text.replace(['\r', '\n'], " ")).into_bytes(),
        }
    }
}

/// Detects the framing; `None` while the first bytes could begin either one.
fn framing(bytes: &[u8], ended: bool) -> Option<Framer> {
    let text = bytes.trim_ascii_start();
    let head = &text[..text.len().min(HEADER.len())];
    let headers = head.eq_ignore_ascii_case(&HEADER[..head.len()]);
    match (headers, head.len() == HEADER.len()) {
        (true, true) => Some(Framer::lsp(MAX_MESSAGE)),
        (true, false) if !ended => None,
        _ => Some(Framer::ndjson(MAX_MESSAGE)),
    }
}

/// Reads stdin until it ends or the receiver is dropped.
pub(super) fn read() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(CHUNKS);
    thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut chunk = vec![0; CHUNK];
        loop {
            match stdin.read(&mut chunk) {
                Ok(length) if length > 0 => {
                    if sender.blocking_send(chunk[..length].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return, // an unreadable stdin has ended, too
            }
        }
    });
    receiver
}

/// Starts a writer of stdout, which flushes after every message. The receiver resolves when all messages are written, or
/// when stdout is closed.
pub(super) fn write() -> (mpsc::Sender<Vec<u8>>, oneshot::Receiver<()>) {
    let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(MESSAGES);
    let (done, finished) = oneshot::channel();
    thread::spawn(move || {
        let mut stdout = std::io::stdout().lock();
        while let Some(message) = receiver.blocking_recv() {
            if stdout.write_all(&message).and_then(|()| stdout.flush()).is_err() {
                break;
            }
        }
        done.send(()).ok(); // the relay may not wait for it
    });
    (sender, finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `bytes` at once and byte by byte, and frames an answer.
    fn check(bytes: &[u8], expected: &[&str], wrapped: &str) {
        for size in [1, bytes.len().max(1)] {
            let mut inbox = StdinFrames::default();
            let mut seen = Vec::new();
            let chunks = bytes.chunks(size).map(|chunk| Some(chunk.to_vec())).chain([None]);
            for chunk in chunks {
                inbox.feed(chunk);
                while let Some(frame) = inbox.next() {
                    seen.push(frame);
                }
            }
            let expected: Vec<Frame> = expected.iter().map(|text| Frame::Text((*text).to_owned())).collect();
            assert_eq!(seen, expected);
            assert_eq!(String::from_utf8(inbox.wrap("{\n}")).unwrap(), wrapped);
        }
    }

    #[test]
    fn the_first_bytes_say_how_messages_are_framed() {
        check(b"{\"a\":1}\n{}", &["{\"a\":1}", "{}"], "{ }\n");
        check(b"\r\ncontent-length: 2\r\n\r\n{}", &["{}"], "Content-Length: 3\r\n\r\n{\n}");
        check(b"Content-Type: x\nContent-Length: 2\n\n{}", &["{}"], "Content-Length: 3\r\n\r\n{\n}");
        check(b"contents\n", &["contents"], "{ }\n");
        check(b"conten", &["conten"], "{ }\n");
        check(b"", &[], "{ }\n");
    }
}
