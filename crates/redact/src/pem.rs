//! Private keys in armour: complete, cut off at either end, in diffs, with line numbers, or on one line with `\n`.

use std::collections::HashMap;

use super::{MARK, SecretSpan, is_quote, skip};

const SORT: &str = "private key";
const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
/// The maximum length of a key.
const LONGEST: usize = 64 * 1024;
/// The maximum length of a line of armour.
const LONGEST_ARMOUR: usize = 96;
/// The length of text after the last line of a key that is examined.
const LOOK: usize = 128;
/// The length of a run of letters that is a line of a key and not a word.
const LINE: usize = 16;
/// The length of a run that makes the text between a begin and an end a key.
const RUN: usize = 32;

#[derive(Debug, Default)]
pub(super) struct PrivateKeyFinder {
    /// Everything up to here belongs to keys that were examined.
    done: usize,
    /// The blocks of the text, computed on first use.
    blocks: Option<HashMap<usize, usize>>,
    /// No block up to here contains a key.
    keyless_until: usize,
}

impl PrivateKeyFinder {
    /// Finds a key at five dashes.
    pub(super) fn at(&mut self, text: &str, at: usize) -> Option<SecretSpan> {
        let bytes = text.as_bytes();
        let before = self.done;
        if let Some(body) = armour(bytes, at, BEGIN) {
            self.done = body;
            let end = read(bytes, body).end.or_else(|| self.between(bytes, at, body))?;
            self.done = end;
            return Some(SecretSpan { start: at, end, sort: SORT });
        }
        let end = armour(bytes, at, END)?;
        self.done = end;
        let start = key_start_before(bytes, before, at)?;
        Some(SecretSpan { start, end, sort: SORT })
    }

    /// Returns the end that belongs to the begin at `at`, with any prefix of the lines in between, if one of them is a
    /// line of a key.
    fn between(&mut self, bytes: &[u8], at: usize, body: usize) -> Option<usize> {
        let blocks = self.blocks.get_or_insert_with(|| blocks(bytes).closed);
        let end = *blocks.get(&at)?;
        // A block inside of one without a key has none either, so it is skipped: otherwise nested blocks would take
        // quadratic time.
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

/// The blocks of a text: from a begin of a private key to its own end, with other blocks inside.
#[derive(Default)]
struct ArmourBlocks {
    /// The start and end of each closed block.
    closed: HashMap<usize, usize>,
    /// The begins whose end may still follow, in order.
    open: Vec<usize>,
}

/// Finds the blocks in one pass. Other armour, and a mark of a redacted secret, end all blocks: a redaction must not
/// join the texts around it.
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

/// Reports whether the text ends inside of the armour that begins here.
fn is_cut_off(rest: &[u8]) -> bool {
    rest.len() < LONGEST_ARMOUR && skip(rest, 0, |byte| byte.is_ascii_graphic() || byte == b' ') == rest.len()
}

/// Returns the start, if before `border`, of a key that may continue after the end of the text: a key without its end,
/// or lines that would become one with an end.
pub(super) fn unfinished(bytes: &[u8], border: usize) -> usize {
    let near = bytes.len().saturating_sub(LONGEST + 2 * LONGEST_ARMOUR);
    let ArmourBlocks { closed, open } = blocks(&bytes[near..]);
    // The end line of a key looks like any other until it is complete.
    let last_line = memchr::memrchr(b'\n', &bytes[near..]).unwrap_or_default();
    let ending = closed.iter().filter(|(_, end)| **end > last_line).map(|(begin, _)| begin);
    let begun = ending.chain(open.first()).min().map(|at| near + at);
    let last = memchr::memmem::rfind(&bytes[near..], END).map(|at| near + at);
    let line = last.filter(|end| !bytes[*end..].contains(&b'\n'));
    let lines = key_start_before(bytes, 0, border.min(line.unwrap_or(border)));
    [begun, lines, continued(bytes, near, border)].into_iter().flatten().fold(border, usize::min)
}

/// Returns the start of the first key whose lines reach beyond `border`. Other armour may be in its headers.
fn continued(bytes: &[u8], near: usize, border: usize) -> Option<usize> {
    let mut read_until = near;
    for begin in memchr::memmem::find_iter(&bytes[near..border.max(near)], BEGIN).map(|at| near + at) {
        // Lines inside of those that were read end with them.
        if begin < read_until {
            continue;
        }
        let Some(body) = armour(bytes, begin, BEGIN) else { continue };
        let KeyLines { reach, .. } = read(bytes, body);
        if reach > border {
            return Some(begin);
        }
        read_until = reach.saturating_sub(LOOK);
    }
    None
}

/// Returns the end of the line `-----BEGIN … PRIVATE KEY-----` that begins at `at`.
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

struct KeyLines {
    /// The end of the key, if there was one.
    end: Option<usize>,
    /// The end of the examined text, or more.
    reach: usize,
}

/// Reads the lines of a key.
fn read(bytes: &[u8], body: usize) -> KeyLines {
    let (mut at, mut end, mut any) = (body, body, false);
    while at < bytes.len() {
        if bytes[at..].starts_with(END) {
            let whole = armour(bytes, at, END);
            return KeyLines { end: whole.or(any.then_some(end)), reach: whole.unwrap_or(at + LOOK) };
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
                at = next; // a line number
                continue;
            }
            _ if is_mixed(token) || is_last(bytes, next) => {}
            _ => break,
        }
        at = next;
        end = next;
    }
    let token = skip(bytes, at, is_base64);
    KeyLines { end: any.then_some(end), reach: token + LOOK }
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

/// Reports whether a token may be the short last line of a key, or the rest of a line, and not a word.
fn is_mixed(token: &[u8]) -> bool {
    let has = |of: fn(&u8) -> bool| token.iter().any(of);
    has(|byte| matches!(byte, b'+' | b'/' | b'='))
        || (has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic))
        || (has(u8::is_ascii_lowercase) && token[1..].iter().any(u8::is_ascii_uppercase))
}

/// Reports whether the end of the key or of the text follows.
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

/// Returns the start of a key of which only the end is present.
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
