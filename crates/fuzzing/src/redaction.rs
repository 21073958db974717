//! Checks of redaction: a secret that was put into a text is not in it afterwards, however the text is cut into pieces.

use serde_json::value::RawValue;

use super::{sizes_and_bytes, text_pieces};
use intercom_redact::{PieceRedactor, redact, redact_json};

/// Texts up to this length are held whole, so that the pieces add up to the same.
const MAX_STREAMED: usize = 8 * 1024;
/// Looks like a token, and is none.
const SECRET: &str = "ghp_0123456789abcdefABCDEF0123456789abcd";

/// The text with a line of its own that holds a secret, about in the middle.
fn with_secret(text: &str) -> String {
    let (before, after) = text.split_at(text.floor_char_boundary(text.len() / 2));
    format!("{before}\ntoken {SECRET}\n{after}")
}

/// Something is hidden exactly if the text changes, and a known secret always is.
pub fn text_redaction(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let redacted = redact(&text);
    assert_eq!(redacted.hidden.is_empty(), redacted.text == text);
    let seeded = with_secret(&text);
    assert!(!redact(&seeded).text.contains(SECRET), "{seeded:?}");
}

/// JSON stays JSON, and a known secret in it is hidden.
pub fn json_redaction(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let is_json = |text: &str| serde_json::from_str::<&RawValue>(text).is_ok();
    let redacted = redact_json(&text);
    if is_json(&text) {
        assert!(is_json(&redacted.text), "{text} became {}", redacted.text);
        let seeded = format!(r#"{{"first":{text},"note":"see {SECRET}","last":{text}}}"#);
        let redacted = redact_json(&seeded).text;
        assert!(is_json(&redacted) && !redacted.contains(SECRET), "{seeded} became {redacted}");
    }
}

/// The redacted pieces add up to the redacted whole, and nobody sees more by giving up early.
pub fn streamed_redaction(input: &[u8]) {
    let (sizes, bytes) = sizes_and_bytes(input);
    let text = String::from_utf8_lossy(bytes);
    if text.len() > MAX_STREAMED {
        return;
    }
    for text in [&*text, &with_secret(&text)] {
        let pieces = text_pieces(sizes, text);
        let (mut redactor, mut shown) = (PieceRedactor::default(), Vec::new());
        for piece in &pieces {
            shown.extend(redactor.push(piece));
        }
        shown.extend(redactor.finish());
        assert_eq!(shown.len(), pieces.len());
        let shown = shown.concat();
        let whole = redact(text).text;
        assert_eq!(shown, whole);
        assert!(!shown.contains(SECRET), "{text:?}");
        assert!(!given_up(&pieces).contains(SECRET), "{text:?}");
    }
}

/// The text that is shown if the stream breaks off in the middle.
fn given_up(pieces: &[&str]) -> String {
    let (mut redactor, mut shown) = (PieceRedactor::default(), Vec::new());
    for piece in pieces.iter().take(pieces.len() / 2) {
        shown.extend(redactor.push(piece));
    }
    shown.extend(redactor.release_unsettled());
    shown.concat()
}
