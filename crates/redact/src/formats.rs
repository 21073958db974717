//! Tokens with a known format, anywhere in a text.

use std::cmp::Reverse;
use std::sync::LazyLock;

use serde::Deserialize;

use super::{SecretSpan, is_word, skip};

/// The number of bytes examined to recognise a token.
const LOOK: usize = 64;

/// One entry of `formats.toml`, where the keys are described.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFormat {
    sort: String,
    prefixes: Vec<String>,
    body: TokenBytes,
    least: usize,
    #[serde(default)]
    alone: bool,
    #[serde(default)]
    exact: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormatsFile {
    format: Vec<TokenFormat>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TokenBytes {
    Letters,
    Upper,
    Snake,
    Kebab,
    Dotted,
    Slashed,
    Base64,
}

impl TokenBytes {
    fn bytes(self) -> fn(u8) -> bool {
        match self {
            Self::Letters => letters,
            Self::Upper => upper,
            Self::Snake => snake,
            Self::Kebab => kebab,
            Self::Dotted => dotted,
            Self::Slashed => slashed,
            Self::Base64 => base64,
        }
    }
}

struct KnownPrefix {
    prefix: &'static str,
    body: fn(u8) -> bool,
    format: &'static TokenFormat,
}

/// The index of all prefixes, for the search at every byte of every text.
struct PrefixIndex {
    /// Longer prefixes before shorter ones that they begin with.
    prefixes: Vec<KnownPrefix>,
    /// For each of the first three bytes of a text, a bit for each prefix that has it there.
    begins: [[u64; 256]; 3],
}

static FORMATS: LazyLock<Vec<TokenFormat>> = LazyLock::new(|| {
    let file: Result<FormatsFile, _> = toml::from_str(include_str!("formats.toml"));
    file.expect("the table is part of the program, and tested").format
});

static INDEX: LazyLock<PrefixIndex> = LazyLock::new(|| {
    let of_format = |format: &'static TokenFormat| {
        format.prefixes.iter().map(move |prefix| KnownPrefix { prefix, body: format.body.bytes(), format })
    };
    let mut prefixes: Vec<KnownPrefix> = FORMATS.iter().flat_map(of_format).collect();
    prefixes.sort_by_key(|known| Reverse(known.prefix.len()));
    let mut begins = [[0; 256]; 3];
    for (index, known) in prefixes.iter().enumerate() {
        for (begins, byte) in begins.iter_mut().zip(known.prefix.bytes()) {
            begins[usize::from(byte)] |= 1 << index;
        }
    }
    PrefixIndex { prefixes, begins }
});

const OURS: &str = "intercom_";
const JWT: &str = "eyJ";

fn letters(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn snake(byte: u8) -> bool {
    letters(byte) || byte == b'_'
}

fn kebab(byte: u8) -> bool {
    snake(byte) || byte == b'-'
}

fn dotted(byte: u8) -> bool {
    kebab(byte) || byte == b'.'
}

fn slashed(byte: u8) -> bool {
    letters(byte) || byte == b'/'
}

fn base64(byte: u8) -> bool {
    kebab(byte) || matches!(byte, b'+' | b'/' | b'=')
}

pub(super) struct TokenFinder {
    index: &'static PrefixIndex,
    /// No JSON web token begins before this position: the run of letters up to there was examined.
    no_jwt: usize,
}

impl TokenFinder {
    pub(super) fn new() -> Self {
        Self { index: &INDEX, no_jwt: 0 }
    }

    /// Finds the token that begins at `at`.
    pub(super) fn at(&mut self, bytes: &[u8], at: usize) -> Option<SecretSpan> {
        let rest = &bytes[at..];
        match rest[0] {
            b'e' if at >= self.no_jwt && rest.starts_with(JWT.as_bytes()) => self.jwt(bytes, at),
            b'i' if rest.starts_with(OURS.as_bytes()) => intercom_token(bytes, at),
            _ => self.index.find(bytes, at),
        }
    }

    /// Finds a JSON web token: three parts, of which the last may be cut off, or five if it is encrypted.
    fn jwt(&mut self, bytes: &[u8], at: usize) -> Option<SecretSpan> {
        let head = skip(bytes, at, kebab);
        if head - at < 10 || bytes.get(head) != Some(&b'.') || skip(bytes, head + 1, kebab) - head < 10 {
            self.no_jwt = head;
            return None;
        }
        let end = without_dots(bytes, skip(bytes, head, dotted));
        Some(SecretSpan { start: at, end, sort: "web token" })
    }
}

/// Returns the sort of the token at the beginning of a value.
pub(super) fn sort(bytes: &[u8], at: usize) -> Option<&'static str> {
    (at < bytes.len()).then(|| TokenFinder::new().at(bytes, at)).flatten().map(|span| span.sort)
}

/// Finds a token of ours: `intercom_<id>_<secret>`.
fn intercom_token(bytes: &[u8], at: usize) -> Option<SecretSpan> {
    let id = at + OURS.len();
    let secret = id + bytes[id..].iter().take(33).position(|&byte| !letters(byte))?;
    let body = &bytes[secret..];
    if secret - id < 8 || body[0] != b'_' {
        return None;
    }
    let end = skip(bytes, secret + 1, letters);
    let is_hex = bytes[secret + 1..end].iter().take(LOOK).all(u8::is_ascii_hexdigit);
    (is_hex && end - secret > 16).then_some(SecretSpan { start: at, end, sort: "intercom token" })
}

impl PrefixIndex {
    fn find(&self, bytes: &[u8], at: usize) -> Option<SecretSpan> {
        let rest = &bytes[at..];
        let &[first, second, third, ..] = rest else { return None };
        let begin = |place: usize, byte: u8| self.begins[place][usize::from(byte)];
        let mut may = begin(0, first) & begin(1, second) & begin(2, third);
        let KnownPrefix { prefix, body: is_body, format } = loop {
            let known = self.prefixes.get(may.trailing_zeros() as usize)?;
            if rest.starts_with(known.prefix.as_bytes()) {
                break known;
            }
            may &= may - 1;
        };
        let body = at + prefix.len();
        let look = &bytes[body..bytes.len().min(body + LOOK)];
        let length = skip(look, 0, is_body);
        if length < format.least || !is_random(&look[..length]) {
            return None;
        }
        if format.alone && !begins_word(bytes, at) && !is_sure(bytes, at, &look[..length]) {
            return None;
        }
        let end = without_dots(bytes, skip(bytes, body + length, is_body));
        if format.exact && (end - body != format.least || bytes.get(end).is_some_and(|&byte| snake(byte))) {
            return None;
        }
        Some(SecretSpan { start: at, end, sort: &format.sort })
    }
}

/// Returns the end of a token without the full stops after it.
fn without_dots(bytes: &[u8], end: usize) -> usize {
    end - bytes[..end].iter().rev().take_while(|byte| **byte == b'.').count()
}

/// Reports whether the bytes look random, unlike `xxxx` and words: letters of both cases or digits, and many different
/// ones.
fn is_random(body: &[u8]) -> bool {
    let has = |of: fn(&u8) -> bool| body.iter().any(of);
    let seen = body.iter().fold(0_u128, |seen, byte| seen | 1 << (byte & 127));
    (has(u8::is_ascii_digit) || (has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)))
        && seen.count_ones() >= 6
}

/// Reports whether text that is attached to a word is certainly a token: no ordinary id is this long and this random.
/// The id of an AWS key has capitals only, and must not be the middle of a run of them.
fn is_sure(bytes: &[u8], at: usize, body: &[u8]) -> bool {
    let has = |of: fn(&u8) -> bool| body.iter().any(of);
    let mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let id = body.iter().all(|byte| upper(*byte));
    (mixed && body.len() >= 24) || (id && !bytes[..at].last().is_some_and(|byte| upper(*byte)))
}

/// Checks that no word runs into `at`; the letter of an escape such as `\n` does not count as one.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    match bytes[..at] {
        [.., b'\\', b'n' | b'r' | b't'] | [.., b'-', b'-'] | [] => true,
        [.., before] => !is_word(before) || before == b'.',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_of_the_table_can_be_found() {
        assert!(INDEX.prefixes.len() <= 64, "there is a bit for each prefix");
        for (n, KnownPrefix { prefix, body, format }) in INDEX.prefixes.iter().enumerate() {
            assert!(
                prefix.len() >= 3 && !format.sort.is_empty() && (1..=LOOK).contains(&format.least),
                "{prefix}"
            );
            assert!(
                INDEX.prefixes[..n].iter().all(|before| !prefix.starts_with(before.prefix)),
                "{prefix} is hidden"
            );
            let letters = "A1B2C3D4E5F6".bytes().chain("a1b2c3d4e5f6".bytes()).filter(|byte| body(*byte));
            let token: String = letters.cycle().take(format.least).map(char::from).collect();
            let (text, short) = (format!("{prefix}{token}"), format!("{prefix}{}", &token[1..]));
            assert_eq!(sort(text.as_bytes(), 0), Some(format.sort.as_str()), "{text}");
            assert_eq!(sort(short.as_bytes(), 0), None, "{short}");
        }
    }
}
