//! Bytes to messages and back: framing and protocols. Nothing here does I/O or keeps session state.
//!
//! All input of this crate comes from other programs. So nothing in it may panic: no `expect`, no indexing, no slicing
//! by bytes. Lints enforce this.

#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unreachable,
    clippy::unwrap_used
)]

pub mod acp;
pub mod diff;
pub mod driver;
pub mod frame;
pub mod framing;
pub mod intercom;
pub mod jsonrpc;
mod lsp;
mod ndjson;
mod scan;
pub mod sse;

use std::borrow::Cow;

use serde::Serialize;

use intercom_types::Json;

/// The maximum length of an excerpt of an unusable line.
const EXCERPT_CHARS: usize = 200;

/// Returns an excerpt, cut between characters; bytes that are not UTF-8 are shown as U+FFFD.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    // A character has at most four bytes, so a longer prefix is never needed.
    let head = bytes.get(..EXCERPT_CHARS * 4).unwrap_or(bytes);
    String::from_utf8_lossy(head).chars().take(EXCERPT_CHARS).collect()
}

/// Removes surrounding JSON white space. Other white space is not part of a message: a text that begins with it is
/// malformed.
pub(crate) fn trim_json(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r'])
}

/// The text of one message that a parser of this module has accepted, without white space around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParsedText<'a>(&'a str);

impl<'a> ParsedText<'a> {
    pub(crate) fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the complete message, unchanged. It is not parsed again: a second parser might disagree.
    pub fn to_json(self) -> Json {
        Json::trusted(self.0)
    }
}

/// Serializes a message of ours. This always succeeds: its parts are our own types, or a parser has accepted them. In
/// case of a failure, the result is an empty object, which has no meaning in any protocol.
pub(crate) fn to_text(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap_or_else(|error| {
        tracing::error!(%error, "a message to an agent could not be serialized");
        "{}".to_owned()
    })
}

/// Returns the text of a JSON string, borrowed if nothing in it is escaped; `None` for any other value.
pub(crate) fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return inner.strip_suffix('"').map(Cow::Borrowed);
    }
    serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blanks of Unicode that are no white space to JSON, and control characters.
    const FOREIGN_BLANKS: &[&str] = &[
        "\u{b}", "\u{c}", "\u{85}", "\u{a0}", "\u{1680}", "\u{2000}", "\u{2003}", "\u{2028}", "\u{2029}",
        "\u{202f}", "\u{205f}", "\u{3000}", "\u{feff}", "\u{0}", "\u{1c}",
    ];

    #[test]
    fn a_foreign_blank_around_a_message_makes_it_malformed() {
        let message = r#"{"method":"x/y","params":{}}"#;
        for blank in FOREIGN_BLANKS {
            for text in [format!("{blank}{message}"), format!("{message}{blank}"), (*blank).to_owned()] {
                assert!(
                    matches!(intercom::parse(&text), Err(intercom::InvalidIntercomMessage::Malformed(_))),
                    "{text:?}"
                );
                assert!(
                    matches!(jsonrpc::parse(&text), Err(jsonrpc::InvalidRpcMessage::Malformed(_))),
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn the_white_space_of_json_is_no_part_of_a_message() {
        let text = " \t\r{\"method\":\"x/y\"}\t \r";
        let (_, whole) = intercom::parse(text).unwrap();
        assert_eq!(whole.to_json().as_str(), r#"{"method":"x/y"}"#);
        let (_, whole) = jsonrpc::parse_whole(text).unwrap();
        assert_eq!(whole.as_str(), r#"{"method":"x/y"}"#);
    }
}
