//! The parts of this module that the crate's `fuzzing` checks.

use std::path::Path;

use bytes::BytesMut;

use super::frame::ShimFrame;
use super::journal;

/// Asserts that `pieces` give the frames that `whole` gives, and that each frame can be sent as it was read.
pub fn check_frames(pieces: &[&[u8]], whole: &[u8]) {
    let expected = frames(&[whole]);
    assert_eq!(frames(pieces), expected);
    for frame in expected {
        let bytes = frame.encode();
        assert_eq!(ShimFrame::decode(&bytes), Ok(Some((frame, bytes.len()))));
    }
}

/// The frames up to the first that is refused.
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

/// The offset that a file of a journal begins with, if it is one.
pub fn segment_start(name: &str) -> Option<u64> {
    journal::segment_start(name)
}

/// The name of the file that begins with this offset.
pub fn segment_name(start: u64) -> String {
    journal::segment(Path::new(""), start).to_string_lossy().into_owned()
}
