//! Bytes to messages and back: framing and protocols. Nothing here does I/O or keeps session state.

pub mod framing;
pub mod intercom;
mod lsp;
mod ndjson;
mod scan;

/// How much of an unusable line is kept for people to see.
const EXCERPT_CHARS: usize = 200;

/// Cut by characters, never inside one; bytes that are not UTF-8 are shown as U+FFFD.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    // Four bytes is the longest character: no need to look at more than that many.
    let head = &bytes[..bytes.len().min(EXCERPT_CHARS * 4)];
    String::from_utf8_lossy(head).chars().take(EXCERPT_CHARS).collect()
}
