//! One message per line, ended by LF or CRLF.
//!
//! A line over the limit is scanned for its id until its line feed arrives, and a line that is not UTF-8 keeps an
//! excerpt. Each byte is looked at once for a line feed, once for UTF-8, and copied once: most of the bytes that the
//! daemon handles pass through here.

use bytes::{Buf, BytesMut};

use super::frame::Frame;
use super::scan::OverlongMessage;
use super::{EXCERPT_CHARS, excerpt};

#[derive(Debug)]
pub struct NdjsonFramer {
    max_length: usize,
    /// The number of bytes at the front of the buffer that have no line feed.
    searched: usize,
    overlong: Option<OverlongMessage>,
}

impl NdjsonFramer {
    pub(super) fn new(max_length: usize) -> Self {
        Self { max_length, searched: 0, overlong: None }
    }

    pub(super) fn next(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        if self.overlong.is_some() {
            return self.skim(buf);
        }
        // A line of exactly the limit has its line feed behind it.
        let within = buf.get(..self.max_length.saturating_add(1)).unwrap_or(buf);
        let found = memchr::memchr(b'\n', within.get(self.searched..).unwrap_or_default());
        if let Some(end) = found.map(|at| self.searched + at) {
            self.searched = 0;
            let line = line(buf.get(..end).unwrap_or_default(), end + 1);
            buf.advance(end + 1);
            Some(line)
        } else if buf.len() > self.max_length {
            self.searched = 0;
            self.overlong = Some(OverlongMessage::default());
            self.skim(buf)
        } else {
            self.searched = buf.len();
            None
        }
    }

    pub(super) fn finish(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        if let Some(frame) = self.next(buf).or_else(|| self.overlong.take().map(OverlongMessage::finish)) {
            return Some(frame);
        }
        self.searched = 0;
        let rest = std::mem::take(buf);
        // A lone carriage return is not a line.
        (!rest.is_empty() && *rest != *b"\r").then(|| line(&rest, rest.len()))
    }

    /// Consumes bytes of the overlong line; returns its frame at the line feed.
    fn skim(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        let overlong = self.overlong.as_mut()?;
        if let Some(end) = memchr::memchr(b'\n', buf) {
            overlong.feed(&buf.split_to(end));
            buf.advance(1);
            self.overlong.take().map(OverlongMessage::finish)
        } else {
            overlong.feed(buf);
            buf.clear();
            None
        }
    }
}

/// Returns the frame of a line without its line feed; `bytes` counts that as well.
fn line(text: &[u8], bytes: usize) -> Frame {
    match std::str::from_utf8(text) {
        Ok(text) => Frame::Text(text.strip_suffix('\r').unwrap_or(text).to_owned()),
        // No more than the length of an excerpt: its characters may be single bytes.
        Err(_) => Frame::NotUtf8 {
            excerpt: excerpt(text.get(..EXCERPT_CHARS).unwrap_or(text)),
            bytes: bytes as u64,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::framing::{Framer, testing::frames};
    use super::*;
    use intercom_types::RequestId;

    fn check(max: usize, bytes: &[u8], expected: &[Frame]) {
        assert_eq!(frames(Framer::ndjson(max), bytes, &[]), expected);
    }

    fn text(text: &str) -> Frame {
        Frame::Text(text.to_owned())
    }

    #[test]
    fn lines_end_with_lf_or_crlf_and_the_last_one_needs_no_end() {
        check(100, b"a\r\nb\n\nc", &[text("a"), text("b"), text(""), text("c")]);
    }

    #[test]
    fn a_line_that_is_not_utf8_is_an_item_and_the_next_line_follows() {
        let bad = Frame::NotUtf8 { excerpt: "x\u{fffd}y".to_owned(), bytes: 4 };
        check(100, b"x\xffy\nok\n", &[bad, text("ok")]);
    }

    #[test]
    fn a_line_over_the_limit_is_an_item_with_its_id_and_the_next_line_follows() {
        let line = format!(r#"{{"method":"m","params":{{"id":1,"t":"{}"}},"id":"req-9"}}"#, "x".repeat(300));
        let bad = Frame::TooLong {
            excerpt: line.chars().take(200).collect(),
            bytes: line.len() as u64,
            request: RequestId::parse("\"req-9\""),
            method: Some("m".to_owned()),
        };
        check(64, format!("{line}\nok\n").as_bytes(), &[bad.clone(), text("ok")]);
        check(64, line.as_bytes(), &[bad]);
    }

    #[test]
    fn a_line_of_exactly_the_limit_passes() {
        check(4, b"abcd\n", &[text("abcd")]);
        let bad = Frame::TooLong { excerpt: "abcde".to_owned(), bytes: 5, request: None, method: None };
        check(4, b"abcde\n", &[bad]);
    }
}
