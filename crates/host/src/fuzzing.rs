//! Checks of the frame parser and the journal's file names for fuzzing.

use std::path::Path;

use bytes::BytesMut;

use super::frame::ShimFrame;
use super::journal;

/// Asserts that `pieces` decode to the frames of `whole`, and that each frame encodes and decodes to itself.
pub fn check_frames(pieces: &[&[u8]], whole: &[u8]) {
    let expected = frames(&[whole]);
    assert_eq!(frames(pieces), expected);
    for frame in expected {
        let bytes = frame.encode();
        assert_eq!(ShimFrame::decode(&bytes), Ok(Some((frame, bytes.len()))));
    }
}

/// Returns the frames before the first invalid one.
fn frames(pieces: &[&[u8]]) -> Vec<ShimFrame> {
    let (mut buf, mut out) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match ShimFrame::take(&mut buf) {
                Ok(Some(frame)) => out.push(frame),
                Ok(None) => break,
                Err(_) => return out,
            }
        }
    }
    out
}

/// Returns the start offset of a journal segment with this name.
pub fn segment_start(name: &str) -> Option<u64> {
    journal::segment_start(name)
}

/// Returns the name of the journal segment that starts at this offset.
pub fn segment_name(start: u64) -> String {
    journal::segment(Path::new(""), start).to_string_lossy().into_owned()
}
