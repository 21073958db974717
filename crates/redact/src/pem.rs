//! Private keys in armour: whole, cut off at either end, in diffs, with line numbers, or on one line with `\n`.

use std::collections::HashMap;

use super::{MARK, SecretSpan, is_quote, skip};

const SORT: &str = "private key";
const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
/// No key is longer than this.
const LONGEST: usize = 64 * 1024;
/// No line of armour is longer than this.
const LONGEST_ARMOUR: usize = 96;
/// A run of letters this long is a line of a key, not a word.
const LINE: usize = 16;
/// Between a begin and an end, one run this long makes it a key.
const RUN: usize = 32;

#[derive(Debug, Default)]
pub(super) struct PrivateKeyFinder {
    /// Up to here, everything belongs to keys that were looked at.
    done: usize,
    /// The blocks of the text, once one was asked for.
    blocks: Option<HashMap<usize, usize>>,
    /// Up to here, no block holds a key.
    keyless_until: usize,
}

impl PrivateKeyFinder {
    /// At five dashes.
    pub(super) fn at(&mut self, text: &str, at: usize) -> Option<SecretSpan> {
        let bytes = text.as_bytes();
        let before = self.done;
        if let Some(body) = armour(bytes, at, BEGIN) {
            self.done = body;
            let end = read(bytes, body).or_else(|| self.between(bytes, at, body))?;
            self.done = end;
            return Some(SecretSpan { start: at, end, sort: SORT });
        }
        let end = armour(bytes, at, END)?;
        self.done = end;
        let start = key_start_before(bytes, before, at)?;
        Some(SecretSpan { start, end, sort: SORT })
    }

    /// The end that belongs to the begin at `at`, whatever the lines between carry in front, if one of them is a key's.
    fn between(&mut self, bytes: &[u8], at: usize, body: usize) -> Option<usize> {
        let blocks = self.blocks.get_or_insert_with(|| blocks(bytes).closed);
        let end = *blocks.get(&at)?;
        // A block inside of one that holds no key holds none either; it is not looked at again.
        if end <= self.keyless_until {
            return None;
        }
        let mut runs = bytes[body..end].split(|byte| !is_base64(*byte));
        if !runs.any(|run| run.len() >= RUN) {
            self.keyless_until = end;
            return None;
        }
        Some(end)
    }
}

/// The blocks of a text: what stands between a begin of a private key and its own end, with other blocks inside.
#[derive(Default)]
struct ArmourBlocks {
    /// Where each begins, and where it ends.
    closed: HashMap<usize, usize>,
    /// The begins whose end may still come, in order.
    open: Vec<usize>,
}

/// Goes over the text once. The armour of anything but a private key, and a mark of something hidden, ends all blocks: what
/// is hidden must not bring together what it stood between.
fn blocks(bytes: &[u8]) -> ArmourBlocks {
    let mut blocks = ArmourBlocks::default();
    let mut at = 0;
    while let Some(next) = memchr::memchr2(b'-', b'[', &bytes[at..]).map(|length| at + length) {
        let rest = &bytes[next..];
        at = next + 1;
        if rest.starts_with(BEGIN) {
            match armour(bytes, next, BEGIN) {
                None if !is_cut_off(rest) => blocks.open.clear(),
                _ => blocks.open.push(next),
            }
        } else if rest.starts_with(END) {
            match armour(bytes, next, END) {
                None if !is_cut_off(rest) => blocks.open.clear(),
                None => {}
                Some(end) => {
                    let begin = blocks.open.pop().filter(|begin| next < begin + LONGEST);
                    blocks.closed.extend(begin.map(|begin| (begin, end)));
                }
            }
        } else if rest.starts_with(MARK.as_bytes()) {
            blocks.open.clear();
        }
    }
    blocks
}

/// Tells whether the text ends before the armour does that begins here.
fn is_cut_off(rest: &[u8]) -> bool {
    rest.len() < LONGEST_ARMOUR && skip(rest, 0, |byte| byte.is_ascii_graphic() || byte == b' ') == rest.len()
}

/// Where a key begins that may go on behind the end of the text, if that is before `border`: one without its end, or lines
/// that would turn out to be one with an end.
pub(super) fn unfinished(bytes: &[u8], border: usize) -> usize {
    let near = bytes.len().saturating_sub(LONGEST + 2 * LONGEST_ARMOUR);
    let ArmourBlocks { closed, open } = blocks(&bytes[near..]);
    // The end of a key is a line like any other until it is whole.
    let last_line = memchr::memrchr(b'\n', &bytes[near..]).unwrap_or_default();
    let ending = closed.iter().filter(|(_, end)| **end > last_line).map(|(begin, _)| begin);
    let begun = ending.chain(open.first()).min().map(|at| near + at);
    let last = memchr::memmem::rfind(&bytes[near..], END).map(|at| near + at);
    let line = last.filter(|end| !bytes[*end..].contains(&b'\n'));
    let lines = key_start_before(bytes, 0, border.min(line.unwrap_or(border)));
    [begun, lines].into_iter().flatten().fold(border, usize::min)
}

/// Where the line `-----BEGIN … PRIVATE KEY-----` that begins at `at` ends.
fn armour(bytes: &[u8], at: usize, kind: &[u8]) -> Option<usize> {
    let rest = bytes[at..].strip_prefix(kind)?;
    let label = skip(&rest[..rest.len().min(64)], 0, |byte| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' '
    });
    let is_private = rest[..label].ends_with(b"PRIVATE KEY") || rest[..label].ends_with(b"PRIVATE KEY BLOCK");
    (is_private && rest[label..].starts_with(b"-----")).then(|| at + kind.len() + label + 5)
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// Reads on while there are lines of a key; where it ends, if there was one.
fn read(bytes: &[u8], body: usize) -> Option<usize> {
    let (mut at, mut end, mut any) = (body, body, false);
    while at < bytes.len() {
        if bytes[at..].starts_with(END) {
            return armour(bytes, at, END).or(any.then_some(end));
        }
        if bytes[at..].starts_with(BEGIN) {
            break;
        }
        if let Some(length) = filler(bytes, at) {
            at += length;
            continue;
        }
        let next = skip(bytes, at, is_base64);
        let token = &bytes[at..next];
        match token {
            [] => break,
            b"Proc" | b"DEK" | b"Version" | b"Comment" | b"Hash" | b"Charset" => {
                at = skip(bytes, next, |byte| !matches!(byte, b'\n' | b'\\'));
                continue;
            }
            _ if token.len() >= LINE => any = true,
            _ if token.len() <= 6 && token.iter().all(u8::is_ascii_digit) => {
                at = next; // the number of a line
                continue;
            }
            _ if is_mixed(token) || is_last(bytes, next) => {}
            _ => break,
        }
        at = next;
        end = next;
    }
    any.then_some(end)
}

/// Returns the length of one piece of filler at `at`, between the lines of a key.
fn filler(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes[at..] {
        [b'\\', b'n' | b'r' | b't' | b'\\' | b'\n' | b'"', ..] => Some(2),
        [byte, ..] if byte.is_ascii_whitespace() || is_quote(byte) => Some(1),
        [b',' | b'|' | b'>' | b':' | b'-', ..] => Some(1),
        [b'+', next, ..] if !is_base64(next) => Some(1),
        _ => bytes[at..].starts_with("→".as_bytes()).then_some("→".len()),
    }
}

/// The short last line of a key, or what was left of a line: not a word.
fn is_mixed(token: &[u8]) -> bool {
    let has = |of: fn(&u8) -> bool| token.iter().any(of);
    has(|byte| matches!(byte, b'+' | b'/' | b'='))
        || (has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic))
        || (has(u8::is_ascii_lowercase) && token[1..].iter().any(u8::is_ascii_uppercase))
}

/// Checks whether the end of the key or of the text follows.
fn is_last(bytes: &[u8], mut at: usize) -> bool {
    for _ in 0..32 {
        if at >= bytes.len() || bytes[at..].starts_with(END) {
            return true;
        }
        let Some(length) = filler(bytes, at) else { return false };
        at += length;
    }
    false
}

/// Where a key begins of which only the end is left.
fn key_start_before(bytes: &[u8], from: usize, end: usize) -> Option<usize> {
    let from = from.max(end.saturating_sub(LONGEST));
    let (mut start, mut at, mut any) = (end, end, false);
    while at > from {
        let token = at - bytes[from..at].iter().rev().take_while(|byte| is_base64(**byte)).count();
        if token == at {
            let byte = bytes[at - 1];
            if !byte.is_ascii_whitespace() && !is_quote(byte) && !matches!(byte, b'\\' | b'-' | b',' | b'|') {
                break;
            }
            at -= 1;
            continue;
        }
        let last = !any && is_mixed(&bytes[token..at]);
        if at - token < LINE && !last {
            break;
        }
        any |= at - token >= LINE;
        (start, at) = (token, token);
    }
    any.then_some(start)
}
