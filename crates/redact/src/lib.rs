//! Redaction of secrets in agents' text, for people who may read along but must not have the keys.
//!
//! ```text
//!  text ──► formats   tokens with a known format
//!      ├──► pem       private keys, also cut off and inside of diffs
//!      ├──► url       the password of `user:password@`
//!      └──► assign    a key that looks secret (keys), and a value that is not code (values), also over lines (lines)
//! ```
//!
//! A pass scans the bytes from left to right. Repeated scans are bounded, so the time is linear; spans begin and end at
//! ASCII bytes, so no character is split. In doubt, a value is redacted if it is quoted or in an environment file, and
//! shown if it could be code.
//!
//! Known formats are in `formats.toml`, known names and values in `words.toml`.
//!
//! Redaction is no protection against an agent that leaks on purpose: it can spell a secret backwards.

use std::borrow::Cow;

mod assign;
mod formats;
mod json;
mod keys;
mod lines;
mod pem;
mod pieces;
#[cfg(test)]
mod tests;
mod url;
mod values;
mod words;

pub use json::redact_json;
pub use pieces::PieceRedactor;

/// The beginning of the mark of a redacted secret.
const MARK: &str = "[hidden:";

/// The redacted text and the sorts of its secrets. Borrowed if nothing was redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedText<'a> {
    pub text: Cow<'a, str>,
    /// The sorts of the redacted secrets, each once, in the order of the text.
    pub hidden: Vec<&'static str>,
}

/// A secret in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SecretSpan {
    start: usize,
    end: usize,
    sort: &'static str,
}

/// The maximum number of passes: a redacted secret can reveal another one that it separated from its name.
const PASSES: usize = 4;

/// Redacts any text: prose, diffs, logs, shell commands.
pub fn redact(text: &str) -> RedactedText<'_> {
    let spans = hidden_spans(text);
    let mut hidden = Vec::new();
    for span in &spans {
        note(&mut hidden, span.sort);
    }
    let text = if spans.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(without(text, &spans)) };
    RedactedText { text, hidden }
}

/// Returns the spans in `text` of everything that [`redact`] redacts. A value that a later pass finds may begin before
/// a mark and end inside it: in terms of the original text it takes the whole secret, and no half of a mark remains.
fn hidden_spans(text: &str) -> Vec<SecretSpan> {
    let (mut hidden, mut shown) = (Vec::new(), Cow::Borrowed(text));
    for _ in 0..PASSES {
        let found = spans(&shown);
        if found.is_empty() {
            break;
        }
        let found = in_original(&found, &hidden);
        hidden = apart(hidden.into_iter().chain(found).collect());
        shown = Cow::Owned(without(text, &hidden));
    }
    hidden
}

/// Maps spans of the redacted text, in order, to the original. A span that touches a mark includes the redacted text.
fn in_original(found: &[SecretSpan], hidden: &[SecretSpan]) -> Vec<SecretSpan> {
    let mut places = OriginalPlaces::new(hidden);
    let original = |span: &SecretSpan| {
        let (start, end) = (places.start(span.start), places.end(span.end));
        SecretSpan { start, end, sort: span.sort }
    };
    found.iter().map(original).collect()
}

/// A walk through a redacted text that knows the positions in the original. Positions are asked for in order, so the
/// time is linear also for thousands of secrets.
struct OriginalPlaces<'a> {
    /// The secrets that are not passed yet.
    hidden: &'a [SecretSpan],
    /// The position after the last passed mark, in the redacted text and in the original.
    shown: usize,
    original: usize,
}

impl<'a> OriginalPlaces<'a> {
    fn new(hidden: &'a [SecretSpan]) -> Self {
        Self { hidden, shown: 0, original: 0 }
    }

    /// Returns the original position of a start: inside of a mark, the start of its secret.
    fn start(&mut self, at: usize) -> usize {
        while let [secret, rest @ ..] = self.hidden {
            let mark = self.shown + (secret.start - self.original);
            let after = mark + marked(secret.sort).len();
            if at < mark {
                break;
            }
            if at < after {
                return secret.start;
            }
            (self.hidden, self.shown, self.original) = (rest, after, secret.end);
        }
        self.original + (at - self.shown)
    }

    /// Returns the original position of an end: inside of a mark or right after it, the end of its secret.
    fn end(&mut self, at: usize) -> usize {
        while let [secret, rest @ ..] = self.hidden {
            let mark = self.shown + (secret.start - self.original);
            let after = mark + marked(secret.sort).len();
            if at <= mark {
                break;
            }
            if at <= after {
                return secret.end;
            }
            (self.hidden, self.shown, self.original) = (rest, after, secret.end);
        }
        self.original + (at - self.shown)
    }
}

fn without(text: &str, spans: &[SecretSpan]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for SecretSpan { start, end, sort } in spans {
        out.push_str(&text[done..*start]);
        out.push_str(&marked(sort));
        done = *end;
    }
    out.push_str(&text[done..]);
    out
}

/// Returns the mark that replaces a secret.
fn marked(sort: &str) -> String {
    format!("{MARK} {sort}]")
}

fn note(hidden: &mut Vec<&'static str>, sort: &'static str) {
    if !hidden.contains(&sort) {
        hidden.push(sort);
    }
}

/// Finds all secrets, in order and without overlaps.
fn spans(text: &str) -> Vec<SecretSpan> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut formats = formats::TokenFinder::new();
    let mut keys = pem::PrivateKeyFinder::default();
    let mut at = 0;
    // The position up to which words were examined, and the value that was assigned to the last of them.
    let (mut word, mut value) = (0, 0..0);
    while at < bytes.len() {
        if value.contains(&at) {
            at = value.end;
            continue;
        }
        let span = match bytes[at] {
            b'-' if bytes[at..].starts_with(b"-----") => keys.at(text, at),
            b':' => url::at(text, at),
            _ => formats.at(bytes, at),
        };
        if let Some(span) = span {
            at = span.end.max(at + 1);
            word = word.max(at);
            found.push(span);
            continue;
        }
        if at >= word && is_word(bytes[at]) {
            let (end, span) = lines::at(text, at);
            word = end;
            if let Some(span) = span {
                value = span.start..span.end;
                word = word.max(span.end);
                found.push(span);
            }
        }
        at += 1;
    }
    apart(found)
}

/// Merges overlapping spans, under the name of the first.
fn apart(mut spans: Vec<SecretSpan>) -> Vec<SecretSpan> {
    // An empty value is not a secret.
    spans.retain(|span| span.start < span.end);
    spans.sort_by_key(|span| span.start);
    let mut out: Vec<SecretSpan> = Vec::with_capacity(spans.len());
    for span in spans {
        match out.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => out.push(span),
        }
    }
    out
}

/// Reports whether a byte may occur in keys: names of variables, headers, flags and settings.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Returns the first position from `at` on whose byte is not `of`.
fn skip(bytes: &[u8], at: usize, of: impl Fn(u8) -> bool) -> usize {
    bytes[at..].iter().position(|&byte| !of(byte)).map_or(bytes.len(), |length| at + length)
}

/// Reports whether an escape such as a line break or a quote begins at `at`, as in a string inside of a text.
fn is_escape(bytes: &[u8], at: usize) -> bool {
    bytes[at] == b'\\'
        && bytes
            .get(at + 1)
            .is_some_and(|&next| is_quote(next) || matches!(next, b'n' | b'r' | b't' | b'\\' | b'\n'))
}
