//! Framing: the separation of a stream into messages.
//!
//! An invalid line is an item, not an error: the stream continues with the next one. The frames do not depend on how
//! the bytes were split into reads.

use bytes::BytesMut;

use super::frame::Frame;
use super::lsp::LspFramer;
use super::ndjson::NdjsonFramer;

/// Splits a stream of bytes into frames and wraps outgoing text in one.
#[derive(Debug)]
pub enum Framer {
    /// One message per line.
    Ndjson(NdjsonFramer),
    /// `Content-Length` headers.
    Lsp(LspFramer),
}

impl Framer {
    pub fn ndjson(max_length: usize) -> Self {
        Self::Ndjson(NdjsonFramer::new(max_length))
    }

    pub fn lsp(max_length: usize) -> Self {
        Self::Lsp(LspFramer::new(max_length))
    }

    /// Returns the next complete frame in `buf`, if any, and removes its bytes from the front.
    pub fn next(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        match self {
            Self::Ndjson(lines) => lines.next(buf),
            Self::Lsp(lsp) => lsp.next(buf),
        }
    }

    /// Returns the next frame after the end of the stream: an incomplete message counts as a frame. Call until `None`.
    pub fn finish(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        match self {
            Self::Ndjson(lines) => lines.finish(buf),
            Self::Lsp(lsp) => lsp.finish(buf),
        }
    }

    /// Frames `text` for sending. It must not contain a line feed: JSON from `serde_json` never does.
    pub fn wrap(&self, text: &str) -> Vec<u8> {
        match self {
            Self::Ndjson(_) => {
                debug_assert!(!text.contains('\n'));
                let mut out = Vec::with_capacity(text.len() + 1);
                out.extend_from_slice(text.as_bytes());
                out.push(b'\n');
                out
            }
            Self::Lsp(_) => format!("Content-Length: {}\r\n\r\n{text}", text.len()).into_bytes(),
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// All frames of `bytes`, delivered in pieces cut at `cuts`.
    pub(crate) fn frames(mut framer: Framer, bytes: &[u8], cuts: &[usize]) -> Vec<Frame> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let (mut buf, mut out, mut from) = (BytesMut::new(), Vec::new(), 0);
        for cut in cuts {
            buf.extend_from_slice(&bytes[from..cut]);
            from = cut;
            while let Some(frame) = framer.next(&mut buf) {
                out.push(frame);
            }
        }
        while let Some(frame) = framer.finish(&mut buf) {
            out.push(frame);
        }
        assert!(buf.is_empty(), "bytes were left behind: {buf:?}");
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::testing::frames;
    use super::*;

    /// Bytes that look like traffic: pieces of messages, headers, garbage, line ends.
    fn traffic() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"{\"method\":\"heartbeat\"}".to_vec()),
            Just(
                b"{\"method\":\"x\",\"id\":7,\"params\":{\"text\":\"a long enough text to be too long\"}}"
                    .to_vec()
            ),
            Just(b"Content-Length: 5\r\n\r\n".to_vec()),
            Just(b"content-length:3\n\n".to_vec()),
            Just(b"Content-Length: 90\r\nContent-Type: x\r\n\r\n".to_vec()),
            Just(b"Content-Length: many\r\n\r\n".to_vec()),
            Just(b"Content-".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\xff\xfe".to_vec()),
            Just("é\u{1F600}".as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..12),
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_bytes_split_anywhere_yield_the_same_frames(
            bytes in traffic(),
            cuts in proptest::collection::vec(any::<usize>(), 0..40),
            max in 8usize..96,
        ) {
            for make in [Framer::ndjson as fn(usize) -> Framer, Framer::lsp] {
                let whole = frames(make(max), &bytes, &[]);
                prop_assert_eq!(&frames(make(max), &bytes, &cuts), &whole);
                let every: Vec<usize> = (0..bytes.len()).collect();
                prop_assert_eq!(&frames(make(max), &bytes, &every), &whole);
            }
        }

        #[test]
        fn what_is_wrapped_comes_out_again(texts in proptest::collection::vec("[^\r\n]{1,40}", 0..8)) {
            for make in [Framer::ndjson as fn(usize) -> Framer, Framer::lsp] {
                let bytes: Vec<u8> = texts.iter().flat_map(|text| make(1000).wrap(text)).collect();
                let expected: Vec<Frame> = texts.iter().cloned().map(Frame::Text).collect();
                prop_assert_eq!(frames(make(1000), &bytes, &[]), expected);
            }
        }
    }
}
