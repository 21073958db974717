//! Bytes to messages and back: framing and protocols. Nothing here does I/O or keeps session state.
//!
//! Every byte that comes in here was chosen by somebody else. So nothing in this module may panic: no `expect`, no
//! indexing, no slicing by bytes. The compiler's lints see to it.

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

/// How much of an unusable line is kept for people to see.
const EXCERPT_CHARS: usize = 200;

/// Cut by characters, never inside one; bytes that are not UTF-8 are shown as U+FFFD.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    // Four bytes is the longest character: no need to look at more than that many.
    let head = bytes.get(..EXCERPT_CHARS * 4).unwrap_or(bytes);
    String::from_utf8_lossy(head).chars().take(EXCERPT_CHARS).collect()
}

/// The text without the white space around it that JSON knows. Any other blank is no part of a message: a text that
/// begins with one is malformed.
pub(crate) fn trim_json(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r'])
}

/// The text of one message that a parser of this module has accepted, without white space around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParsedText<'a>(&'a str);

impl<'a> ParsedText<'a> {
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The whole message as it came. It is not parsed again: a second parser may be of another opinion.
    pub fn to_json(self) -> Json {
        Json::trusted(self.0)
    }
}

/// The JSON of a message of ours. All of its parts have one: they are our own, or a parser has accepted them. An empty
/// object, which means nothing to anybody, stands for one that has none after all.
pub(crate) fn to_text(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap_or_else(|error| {
        tracing::error!(%error, "a message to an agent has no JSON form");
        "{}".to_owned()
    })
}

/// The text of a JSON string, borrowed where nothing in it is escaped; `None` for any other value.
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
