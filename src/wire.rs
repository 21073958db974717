//! Bytes to messages and back: framing and protocols. Nothing here does I/O or keeps session state.

pub mod acp;
pub mod diff;
pub mod framing;
pub mod intercom;
pub mod jsonrpc;
mod lsp;
mod ndjson;
mod scan;

use std::borrow::Cow;

/// How much of an unusable line is kept for people to see.
const EXCERPT_CHARS: usize = 200;

/// Cut by characters, never inside one; bytes that are not UTF-8 are shown as U+FFFD.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    // Four bytes is the longest character: no need to look at more than that many.
    let head = &bytes[..bytes.len().min(EXCERPT_CHARS * 4)];
    String::from_utf8_lossy(head).chars().take(EXCERPT_CHARS).collect()
}

/// The text of a JSON string, borrowed where nothing in it is escaped; `None` for any other value.
pub(crate) fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return inner.strip_suffix('"').map(Cow::Borrowed);
    }
    serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
}
