//! Assignments to secret-looking names: `KEY=value`, `key: "value"`, `'key' => 'value'`, `--flag value`,
//! `Authorization: Bearer value`.

use super::keys;
use super::values::{self, ValuePlace};
use super::words::SecretClass;
use super::{SecretSpan, formats, is_blank, is_escape, is_quote, is_word, skip};

/// The length of an unquoted value that is examined; only a secret is read to its end.
const LOOK: usize = 96;
/// The maximum distance of an option from its program.
const COMMAND: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AssignOperator {
    /// `=` without blanks around it.
    Tight,
    Equals,
    Colon,
    /// `=>`; only for quoted values.
    Arrow,
    /// After a quoted name; only for values that are, or look, quoted.
    Comma,
    /// Blanks, after a flag.
    Blank,
}

/// A found name, and the start of its value.
pub(super) struct AssignedName<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
    pub(super) flag: bool,
    pub(super) operator: AssignOperator,
    pub(super) value: usize,
}

/// Reads the word at `at`; returns its end, and the secret that is assigned to it.
pub(super) fn at(text: &str, at: usize) -> (usize, Option<SecretSpan>) {
    let bytes = text.as_bytes();
    let end = skip(bytes, at, is_word);
    if bytes[at] == b'-'
        && let Some(span) = login(text, at, end)
    {
        return (end, Some(span));
    }
    let Some(name) = named(text, at, end) else { return (end, None) };
    if name.text.eq_ignore_ascii_case("bearer") {
        return (end, bearer(text, &name));
    }
    let Some(class) = keys::class(name.text) else { return (end, None) };
    let span = match class {
        SecretClass::Authorization => authorization(text, &name),
        SecretClass::Cookie => cookie(text, &name),
        _ => assigned(text, &name, class),
    };
    (end, span)
}

/// Finds the password of `curl -u user:password`. In other programs, the same option has another meaning.
fn login(text: &str, at: usize, end: usize) -> Option<SecretSpan> {
    let bytes = text.as_bytes();
    let word = &text[at..end];
    let start = match word {
        "-u" | "-U" | "--user" | "--proxy-user" => {
            let start = skip(bytes, end, |byte| is_blank(byte) || byte == b'=');
            (start > end).then_some(start)?
        }
        _ if word.starts_with("-u") => at + 2,
        _ => return None,
    };
    let before = &bytes[at.saturating_sub(COMMAND)..at];
    memchr::memmem::find(before, b"curl")?;
    // Real ones are shorter, and the bound keeps the scan linear if many options precede the same text.
    let near = &text[..text.floor_char_boundary(start.saturating_add(COMMAND))];
    let quoted = quotes(near.as_bytes(), start).map(|(start, end, _)| (start, end));
    let (start, end) = quoted.unwrap_or_else(|| (start, start + unquoted(near, start, COMMAND).len()));
    let password = start + separator(&text[start..end])? + 1;
    let value = &text[password..end];
    let is_known = value.is_empty() || value.contains(super::MARK);
    if is_known || values::is_reference(value, true) || values::is_placeholder(value) {
        return None;
    }
    Some(span(bytes, password, end, "password"))
}

/// Finds the colon after the user. The colon of a mark does not count: an earlier pass has put the mark there.
fn separator(login: &str) -> Option<usize> {
    let mark = super::MARK.trim_end();
    login.match_indices(':').map(|(at, _)| at).find(|at| !login[..=*at].ends_with(mark))
}

/// Returns the word as a name, if something is assigned to it.
pub(super) fn named(text: &str, at: usize, end: usize) -> Option<AssignedName<'_>> {
    let bytes = text.as_bytes();
    let mut start = at;
    // The letter of an escape such as `\n` does not belong to the word after it.
    if at > 0 && bytes[at - 1] == b'\\' && matches!(bytes[at], b'n' | b'r' | b't') {
        start += 1;
    }
    let dashes = skip(&bytes[..end], start, |byte| matches!(byte, b'-' | b'.')) - start;
    let flag = dashes == 2 && bytes[start..].starts_with(b"--");
    start += dashes;
    let word = text[start..end].trim_end_matches(['.', '-']);
    if word.is_empty() || text[..start].ends_with("://") {
        return None;
    }
    let quote = skip(bytes, start + word.len(), |byte| byte == b'\\');
    let (mut next, quoted) = match bytes.get(quote) {
        Some(&byte) if is_quote(byte) => (quote + 1, true),
        _ => (start + word.len(), false),
    };
    if quoted && bytes.get(next) == Some(&b']') {
        next += 1;
    }
    let operator = skip(bytes, next, is_blank);
    let (sort, length) = match bytes[operator..] {
        [b'=', b'>', ..] => (AssignOperator::Arrow, 2),
        [b'=', b'=' | b'~', ..] | [b':', b':', ..] => return None,
        [b':' | b'?', b'=', ..] => (AssignOperator::Equals, 2),
        [b'?', b':', ..] => (AssignOperator::Colon, 2),
        [b'=', ..] if operator == next => (AssignOperator::Tight, 1),
        [b'=', ..] => (AssignOperator::Equals, 1),
        [b':', ..] => (AssignOperator::Colon, 1),
        [b',', ..] if quoted => (AssignOperator::Comma, 1),
        _ if operator > next && (flag || word.eq_ignore_ascii_case("bearer")) => (AssignOperator::Blank, 0),
        _ => return None,
    };
    let value = skip(bytes, operator + length, is_blank);
    let spaced = sort == AssignOperator::Tight && value > operator + length;
    let operator = if spaced { AssignOperator::Equals } else { sort };
    Some(AssignedName { text: word, start, flag, operator, value })
}

/// Returns the secret that is assigned to a name of any other class.
pub(super) fn assigned(text: &str, name: &AssignedName<'_>, class: SecretClass) -> Option<SecretSpan> {
    let bytes = text.as_bytes();
    if bytes[name.value.min(bytes.len())..].starts_with(b"-----BEGIN") {
        return None; // left to `pem`
    }
    let sure = name.operator != AssignOperator::Comma || class == SecretClass::Address;
    let class = if sure { class } else { SecretClass::Maybe(class.sort()) };
    if let Some(span) = quoted(text, name.value, name.text, class) {
        return span;
    }
    if matches!(name.operator, AssignOperator::Arrow | AssignOperator::Comma) {
        return None;
    }
    // The text was cut off before the closing quote.
    let slashes = skip(bytes, name.value, |byte| byte == b'\\');
    let cut = bytes.get(slashes).is_some_and(|&byte| is_quote(byte));
    let start = if cut { slashes + 1 } else { name.value };
    let value = unquoted(text, start, LOOK);
    let end = start + value.len();
    if name.flag && name.operator == AssignOperator::Blank && value.starts_with('-') {
        return None;
    }
    if values::is_secret_value(value, name.text, class, place(text, name, end)) {
        let end = start + unquoted(text, start, usize::MAX).len();
        return Some(span(bytes, start, end, class.sort()));
    }
    typed(text, name, class)
}

/// Reads the value between the quotes that begin at `at`: `Some(None)` if it is not a secret, `None` if there are no
/// quotes.
#[expect(clippy::option_option, reason = "no quotes is another thing than nothing to hide")]
pub(super) fn quoted(text: &str, at: usize, name: &str, class: SecretClass) -> Option<Option<SecretSpan>> {
    let bytes = text.as_bytes();
    let (start, end, quote) = quotes(bytes, at)?;
    let value = &text[start..end];
    if value.starts_with("-----BEGIN") {
        return Some(None);
    }
    // A template literal is code: `f"{token}"`, `$"{token}"`, `` `${token}` ``.
    let template = quote == b'`' && value.contains("${")
        || matches!(bytes[at], b'f' | b'F' | b'$') && value.contains('{') && value.contains('}');
    let place = ValuePlace::Quoted { expands: quote != b'\'' };
    let hides = !template && values::is_secret_value(value, name, class, place);
    Some(hides.then(|| span(bytes, start, end, class.sort())))
}

/// Finds the text between the quotes that begin at `at`, and the kind of quote. A letter or two may precede the quotes,
/// and backslashes if they are in a string themselves.
fn quotes(bytes: &[u8], at: usize) -> Option<(usize, usize, u8)> {
    let near = &bytes[..bytes.len().min(at + 3)];
    let letters =
        skip(near, at.min(near.len()), |byte| byte.is_ascii_alphabetic() || matches!(byte, b'$' | b'@'));
    let near = &bytes[..bytes.len().min(letters + 8)];
    let open = skip(near, letters, |byte| byte == b'\\');
    let quote = *bytes.get(open).filter(|byte| is_quote(**byte))?;
    let depth = open - letters;
    let mut slashes = 0;
    for (index, &byte) in bytes.iter().enumerate().skip(open + 1) {
        match byte {
            b'\n' => return None,
            b'\\' => slashes += 1,
            _ if byte == quote && if depth == 0 { slashes % 2 == 0 } else { slashes == depth } => {
                return Some((open + 1, index - if depth == 0 { 0 } else { slashes }, quote));
            }
            _ => slashes = 0,
        }
    }
    None
}

/// Returns the text at `at` up to a blank, a quote or the end of the line, without punctuation that closes a
/// list or a sentence; at most `most` bytes of it.
pub(super) fn unquoted(text: &str, at: usize, most: usize) -> &str {
    let bytes = text.as_bytes();
    let ends = |index: &usize| {
        bytes[*index].is_ascii_whitespace() || is_quote(bytes[*index]) || is_escape(bytes, *index)
    };
    let at = at.min(bytes.len());
    let most = text.floor_char_boundary(at.saturating_add(most));
    let end = (at..most).find(ends).unwrap_or(most);
    let value = &text[at..end];
    let closed = |c: char| matches!(c, ',' | ';' | ')' | ']' | '}' | '.' | ':');
    let mut short = value;
    for _ in 0..3 {
        short = short.strip_suffix(closed).unwrap_or(short);
    }
    // `get()` and `[u8]` stay complete.
    if short.contains(['(', '[', '{']) { value } else { short }
}

/// Reads a value after a type: `token: &str = "value"`.
fn typed(text: &str, name: &AssignedName<'_>, class: SecretClass) -> Option<SecretSpan> {
    let bytes = text.as_bytes();
    if name.operator != AssignOperator::Colon {
        return None;
    }
    let near = &bytes[..bytes.len().min(name.value + 80)];
    let is_type = |byte: u8| byte != b'=' && byte != b'\n' && byte != b'"' && byte != b':';
    let equals = skip(near, name.value.min(near.len()), is_type);
    if near.get(equals) != Some(&b'=') {
        return None;
    }
    let value = skip(bytes, equals + 1, is_blank);
    quoted(text, value, name.text, class).flatten()
}

/// Returns the place of an unquoted value.
fn place(text: &str, name: &AssignedName<'_>, end: usize) -> ValuePlace {
    let bytes = text.as_bytes();
    let before = &text[..name.start];
    let shouts = !name.text.contains(|c: char| c.is_ascii_lowercase());
    let ends_line = bytes.get(end).is_none_or(|&byte| matches!(byte, b'\n' | b'\r') || is_quote(byte))
        || is_escape(bytes, end);
    match name.operator {
        _ if name.flag => ValuePlace::Flag,
        AssignOperator::Tight if shouts || before.ends_with(['?', '&']) || before.ends_with("export ") => {
            ValuePlace::Env
        }
        AssignOperator::Tight if ends_line && begins_line(before, 1) => ValuePlace::Env,
        AssignOperator::Colon if ends_line && begins_line(before, 64) && shouts => ValuePlace::Env,
        AssignOperator::Colon if ends_line && begins_line(before, 64) => ValuePlace::Line,
        _ => ValuePlace::Code,
    }
}

/// Checks that only the marks of a diff or a list and at most `indent` blanks precede this in its line, or in the
/// string that it begins.
fn begins_line(before: &str, indent: usize) -> bool {
    let before = before.as_bytes();
    let most = before.len().saturating_sub(indent);
    let line = before[most..].iter().rposition(|byte| !matches!(byte, b' ' | b'\t' | b'+' | b'-' | b'>'));
    match before[..line.map_or(most, |last| most + last + 1)] {
        [] | [.., b'\n' | b'"' | b'\'' | b'`'] | [.., b'\\', b'n'] => true,
        [..] => false,
    }
}

/// Returns the rest of a header: the text between its own quotes, or up to a quote or the end of the line; at most
/// `most` bytes.
fn header<'a>(text: &'a str, name: &AssignedName<'_>, most: usize) -> (usize, &'a str) {
    let bytes = text.as_bytes();
    if let Some((start, end, _)) = quotes(bytes, name.value) {
        return (start, &text[start..end]);
    }
    let start = name.value + usize::from(bytes.get(name.value).is_some_and(|&byte| is_quote(byte)));
    let most = text.floor_char_boundary(start.saturating_add(most));
    let ends = |index: &usize| {
        matches!(bytes[*index], b'\n' | b'\r') || is_quote(bytes[*index]) || is_escape(bytes, *index)
    };
    let end = (start..most).find(ends).unwrap_or(most);
    (start, text[start..end].trim_end())
}

/// Reads `Authorization: <scheme> <credentials>`: the scheme stays visible.
fn authorization(text: &str, name: &AssignedName<'_>) -> Option<SecretSpan> {
    let (start, value) = header(text, name, LOOK);
    let class = SecretClass::Authorization;
    let (hides, begin, list) = match value.split_once(' ') {
        None => (values::is_secret_value(value, name.text, class, ValuePlace::Code), start, false),
        Some((scheme, rest)) => {
            let rest = rest.trim_start();
            let list = match scheme.to_ascii_lowercase().as_str() {
                "bearer" | "basic" | "token" | "apikey" => false,
                "digest" | "negotiate" | "ntlm" | "aws4-hmac-sha256" | "hmac" | "signature" => true,
                _ => return None,
            };
            let one = rest.split([' ', ',']).next().unwrap_or_default();
            (is_credential(one), start + value.len() - rest.len(), list)
        }
    };
    if !hides {
        return None;
    }
    let (start, value) = header(text, name, usize::MAX);
    let rest = &value[begin - start..];
    let rest = if list { rest } else { rest.split([' ', ',']).next().unwrap_or_default() };
    Some(span(text.as_bytes(), begin, begin + rest.len(), class.sort()))
}

/// Reads `Bearer <token>` without a header's name.
fn bearer(text: &str, name: &AssignedName<'_>) -> Option<SecretSpan> {
    let value = unquoted(text, name.value, LOOK);
    let has = |of: fn(&u8) -> bool| value.bytes().any(|byte| of(&byte));
    (name.operator == AssignOperator::Blank
        && value.len() >= 16
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && is_credential(value)
        && !value.contains(['(', '[', '{', '<']))
    .then(|| {
        let end = name.value + unquoted(text, name.value, usize::MAX).len();
        span(text.as_bytes(), name.value, end, "authorization")
    })
}

fn is_credential(value: &str) -> bool {
    let word = value.len() < 12 && value.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    value.len() >= 6
        && !word
        && !value.contains(super::MARK)
        && !value.starts_with(['$', '{', '<', '%', '('])
        && !values::is_placeholder(value)
}

/// Reads `Cookie: name=value; …` completely.
fn cookie(text: &str, name: &AssignedName<'_>) -> Option<SecretSpan> {
    let (start, value) = header(text, name, LOOK);
    let quoted = start > name.value;
    if !is_cookie(value) || (!quoted && name.operator != AssignOperator::Colon) {
        return None;
    }
    let (start, value) = header(text, name, usize::MAX);
    Some(span(text.as_bytes(), start, start + value.len(), "cookie"))
}

/// Reports whether a value begins with `name=value`.
pub(super) fn is_cookie(value: &str) -> bool {
    let Some((key, content)) = value.split_once('=') else { return false };
    let content = content.split(';').next().unwrap_or_default();
    !key.is_empty()
        && key.bytes().all(is_word)
        && !content.starts_with([' ', '=', '>'])
        && !values::is_reference(content, true)
        && !values::is_placeholder(content)
        && !value.contains(super::MARK)
}

fn span(bytes: &[u8], start: usize, end: usize, sort: &'static str) -> SecretSpan {
    SecretSpan { start, end, sort: formats::sort(bytes, start).unwrap_or(sort) }
}
