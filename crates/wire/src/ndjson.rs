//! One message per line, with `LinesCodec` and the cases that it does not handle.
//!
//! `LinesCodec` drops an overlong line without its content, and loses the bytes of a line that is not UTF-8. So a line
//! over the limit is scanned here for its id until its line feed arrives, and the codec restarts after it.

use bytes::{Buf, BytesMut};
use tokio_util::codec::{Decoder, LinesCodec, LinesCodecError};

use super::frame::Frame;
use super::scan::OverlongMessage;
use super::{EXCERPT_CHARS, excerpt};

#[derive(Debug)]
pub struct NdjsonFramer {
    lines: LinesCodec,
    overlong: Option<OverlongMessage>,
}

impl NdjsonFramer {
    pub(super) fn new(max_length: usize) -> Self {
        Self { lines: LinesCodec::new_with_max_length(max_length), overlong: None }
    }

    pub(super) fn next(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        if self.overlong.is_some() {
            return self.skim(buf);
        }
        self.decode(buf, LinesCodec::decode)
    }

    pub(super) fn finish(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        if self.overlong.is_some() {
            let frame = self.skim(buf);
            return frame.or_else(|| self.overlong.take().map(OverlongMessage::finish));
        }
        let frame = self.decode(buf, LinesCodec::decode_eof);
        if frame.is_none() {
            buf.clear(); // a lone carriage return is not a line
        }
        frame.or_else(|| self.overlong.take().map(OverlongMessage::finish))
    }

    fn decode(
        &mut self,
        buf: &mut BytesMut,
        decode: fn(&mut LinesCodec, &mut BytesMut) -> Result<Option<String>, LinesCodecError>,
    ) -> Option<Frame> {
        let before = buf.len();
        // The codec consumes a line before it detects invalid UTF-8: keep the beginning of the line.
        let mut head = [0; EXCERPT_CHARS];
        head.iter_mut().zip(buf.iter()).for_each(|(kept, byte)| *kept = *byte);
        match decode(&mut self.lines, buf) {
            Ok(line) => line.map(Frame::Text),
            Err(LinesCodecError::MaxLineLengthExceeded) => {
                self.lines = LinesCodec::new_with_max_length(self.lines.max_length());
                self.overlong = Some(OverlongMessage::default());
                self.skim(buf)
            }
            Err(LinesCodecError::Io(_)) => {
                let line = before - buf.len();
                let text = head.get(..line).unwrap_or(&head);
                let text = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
                Some(Frame::NotUtf8 { excerpt: excerpt(text), bytes: line as u64 })
            }
        }
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
