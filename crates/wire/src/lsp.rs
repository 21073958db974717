//! `Content-Length` framing, as used by language servers.
//!
//! ```text
//!   headers ──good──► body ──all there──► frame, headers
//!      │
//!      └──bad──► garbage until the next "Content-Length:" ──► one BadHeader frame, headers
//! ```

use bytes::{Buf, BytesMut};

use super::excerpt;
use super::frame::Frame;
use super::scan::OverlongMessage;

/// The maximum length of headers; longer ones are invalid.
const MAX_HEADERS: usize = 4096;
const NEEDLE: &[u8] = b"content-length:";

#[derive(Debug)]
pub struct LspFramer {
    max_length: usize,
    state: LspState,
}

#[derive(Debug)]
enum LspState {
    Headers,
    Body {
        length: usize,
    },
    /// A body over the limit is skipped.
    Skim {
        left: usize,
        overlong: OverlongMessage,
    },
    Garbage {
        head: Vec<u8>,
        bytes: u64,
    },
}

impl LspFramer {
    pub(super) fn new(max_length: usize) -> Self {
        Self { max_length, state: LspState::Headers }
    }

    pub(super) fn next(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        loop {
            match &mut self.state {
                LspState::Headers => {
                    while matches!(buf.first(), Some(b'\r' | b'\n')) {
                        buf.advance(1);
                    }
                    let head = buf.get(..MAX_HEADERS).unwrap_or(buf);
                    let end = headers_end(head);
                    self.state = match end.map(|end| (end, head.get(..end).and_then(content_length))) {
                        None if buf.len() < MAX_HEADERS => return None,
                        Some((end, Some(length))) => {
                            buf.advance(end);
                            if length > self.max_length {
                                LspState::Skim { left: length, overlong: OverlongMessage::default() }
                            } else {
                                LspState::Body { length }
                            }
                        }
                        Some((_, None)) | None => {
                            // Skip the first byte: the same position would be invalid again, in an endless loop.
                            let first = buf.split_to(1);
                            LspState::Garbage { head: first.to_vec(), bytes: 1 }
                        }
                    };
                }
                LspState::Body { length } => {
                    if buf.len() < *length {
                        return None;
                    }
                    let body = buf.split_to(*length);
                    self.state = LspState::Headers;
                    return Some(text(&body));
                }
                LspState::Skim { left, overlong } => {
                    let taken = buf.len().min(*left);
                    overlong.feed(&buf.split_to(taken));
                    *left -= taken;
                    if *left > 0 {
                        return None;
                    }
                    return self.end();
                }
                LspState::Garbage { head, bytes } => {
                    let found = find_header(buf);
                    // Without a match, the last bytes may be the beginning of one.
                    let taken = found.unwrap_or(buf.len().saturating_sub(NEEDLE.len() - 1));
                    grow(head, &buf.split_to(taken));
                    *bytes += taken as u64;
                    found?;
                    return self.end();
                }
            }
        }
    }

    pub(super) fn finish(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        if let Some(frame) = self.next(buf) {
            return Some(frame);
        }
        // The stream has ended: an incomplete message stays incomplete.
        let rest = buf.split();
        match &mut self.state {
            LspState::Headers if rest.is_empty() => None,
            LspState::Headers | LspState::Body { .. } => {
                self.state = LspState::Headers;
                Some(Frame::BadHeader { excerpt: excerpt(&rest), bytes: rest.len() as u64 })
            }
            LspState::Skim { .. } => self.end(),
            LspState::Garbage { head, bytes } => {
                grow(head, &rest);
                *bytes += rest.len() as u64;
                self.end()
            }
        }
    }

    fn end(&mut self) -> Option<Frame> {
        match std::mem::replace(&mut self.state, LspState::Headers) {
            LspState::Skim { overlong, .. } => Some(overlong.finish()),
            LspState::Garbage { head, bytes } => Some(Frame::BadHeader { excerpt: excerpt(&head), bytes }),
            LspState::Headers | LspState::Body { .. } => None,
        }
    }
}

fn text(body: &[u8]) -> Frame {
    match std::str::from_utf8(body) {
        Ok(text) => Frame::Text(text.to_owned()),
        Err(_) => Frame::NotUtf8 { excerpt: excerpt(body), bytes: body.len() as u64 },
    }
}

fn grow(head: &mut Vec<u8>, more: &[u8]) {
    let room = (super::EXCERPT_CHARS * 4).saturating_sub(head.len());
    head.extend(more.iter().take(room));
}

/// Returns the end of the empty line after the headers.
fn headers_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', bytes).find_map(|at| match bytes.get(at + 1..)? {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Returns the only `Content-Length` among well-formed headers.
fn content_length(headers: &[u8]) -> Option<usize> {
    let mut length = None;
    for line in std::str::from_utf8(headers).ok()?.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return None;
        }
        if name.eq_ignore_ascii_case("content-length") {
            let value = value.trim_matches([' ', '\t']);
            if length.is_some() || !value.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            length = Some(value.parse().ok()?);
        }
    }
    length
}

fn find_header(bytes: &[u8]) -> Option<usize> {
    bytes.windows(NEEDLE.len()).position(|window| window.eq_ignore_ascii_case(NEEDLE))
}

#[cfg(test)]
mod tests {
    use super::super::framing::{Framer, testing::frames};
    use super::*;
    use intercom_types::RequestId;

    fn check(max: usize, bytes: &[u8], expected: &[Frame]) {
        assert_eq!(frames(Framer::lsp(max), bytes, &[]), expected);
    }

    fn text(text: &str) -> Frame {
        Frame::Text(text.to_owned())
    }

    #[test]
    fn bodies_are_cut_by_their_length() {
        check(
            100,
            b"Content-Length: 2\r\n\r\nabcontent-length:3\nContent-Type: x\n\nc\nd",
            &[text("ab"), text("c\nd")],
        );
    }

    #[test]
    fn after_a_bad_header_reading_resumes_at_the_next_good_one() {
        let bad = Frame::BadHeader { excerpt: "Warning: hello\n\n{}".to_owned(), bytes: 18 };
        check(100, b"Warning: hello\n\n{}Content-Length: 2\r\n\r\nok", &[bad, text("ok")]);
        let bad = Frame::BadHeader { excerpt: "Content-Length: x\r\n\r\n".to_owned(), bytes: 21 };
        check(100, b"Content-Length: x\r\n\r\nContent-Length: 2\r\n\r\nok", &[bad, text("ok")]);
    }

    #[test]
    fn a_body_over_the_limit_is_skimmed_for_its_id() {
        let body = format!(r#"{{"method":"m","id":4,"params":"{}"}}"#, "x".repeat(50));
        let bytes = format!("Content-Length: {}\r\n\r\n{body}Content-Length: 2\r\n\r\nok", body.len());
        let bad = Frame::TooLong {
            excerpt: body.clone(),
            bytes: body.len() as u64,
            request: RequestId::parse("4"),
            method: Some("m".to_owned()),
        };
        check(40, bytes.as_bytes(), &[bad, text("ok")]);
    }

    #[test]
    fn a_body_cut_off_by_the_end_is_shown() {
        check(
            100,
            b"Content-Length: 5\r\n\r\nab",
            &[Frame::BadHeader { excerpt: "ab".to_owned(), bytes: 2 }],
        );
    }

    #[test]
    fn endless_garbage_is_not_kept() {
        let mut lsp = LspFramer::new(100);
        let mut buf = BytesMut::from(&vec![b'x'; 100_000][..]);
        assert_eq!(lsp.next(&mut buf), None);
        assert!(buf.len() < NEEDLE.len());
    }
}
