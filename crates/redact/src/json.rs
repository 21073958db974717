//! JSON as text: only strings, and digits under the name of a secret, are changed. Everything else stays byte for byte.

use std::borrow::Cow;
use std::ops::Range;

use super::keys;
use super::values::{self, ValuePlace};
use super::words::SecretClass;
use super::{MARK, RedactedText, assign, formats, marked, note, redact, skip};

/// The options of `curl` that take `user:password`.
const LOGINS: &[&str] = &["-u", "-U", "--user", "--proxy-user"];

/// An object or an array that is open.
#[derive(Debug, Default)]
struct OpenContainer {
    array: bool,
    /// The name of the next value, and its class.
    name: Option<(String, SecretClass)>,
    /// In a list of arguments, the next one is the login of `curl`.
    login: bool,
    runs_curl: bool,
    /// In an object, the name of `value` in `{"name": …, "value": …}`, the usual form of environments and headers. In
    /// an array, the name of all its values.
    pair: Option<(String, SecretClass)>,
    /// The key that was read last, if it is the first or second half of such a pair.
    half: Option<PairHalf>,
    /// The string under `value` whose name has not been read: it may follow.
    unnamed: Option<(Range<usize>, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PairHalf {
    Name,
    Value,
}

/// The maximum depth of documents in strings of documents.
const DEPTH: usize = 4;

/// Redacts one or several JSON documents as text: strings are changed, and numbers under the name of a secret become
/// strings. Invalid JSON is redacted as plain text.
pub fn redact_json(json: &str) -> RedactedText<'_> {
    document(json, DEPTH).unwrap_or_else(|| redact(json))
}

/// Redacts JSON; `None` if the text is not JSON.
fn document(json: &str, depth: usize) -> Option<RedactedText<'_>> {
    let mut scan = JsonScan { json, depth, edits: Vec::new(), hidden: Vec::new(), open: Vec::new() };
    scan.run()?;
    let JsonScan { mut edits, hidden, .. } = scan;
    if edits.is_empty() {
        return Some(RedactedText { text: Cow::Borrowed(json), hidden });
    }
    // Out of order if the name of a value follows the value.
    edits.sort_by_key(|(place, _)| place.start);
    let (mut out, mut done) = (String::with_capacity(json.len()), 0);
    for (place, new) in edits {
        out.push_str(&json[done..place.start]);
        out.push_str(&new);
        done = place.end;
    }
    out.push_str(&json[done..]);
    Some(RedactedText { text: Cow::Owned(out), hidden })
}

struct JsonScan<'a> {
    json: &'a str,
    depth: usize,
    /// The parts of the document to replace, with the new text.
    edits: Vec<(Range<usize>, String)>,
    hidden: Vec<&'static str>,
    open: Vec<OpenContainer>,
}

impl JsonScan<'_> {
    /// Processes the document; `None` if it is not JSON.
    fn run(&mut self) -> Option<()> {
        let bytes = self.json.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at] {
                b'"' => {
                    at = self.string(at)?;
                    continue;
                }
                b'{' => {
                    let pair = self.open.last().and_then(|open| open.name.clone());
                    self.open.push(OpenContainer { pair: pair.map(inherited), ..OpenContainer::default() });
                }
                b'[' => {
                    // Values in a list have the list's name.
                    let name = self.open.last().and_then(|open| open.name.clone());
                    self.open.push(OpenContainer {
                        array: true,
                        pair: name.clone(),
                        name,
                        ..OpenContainer::default()
                    });
                }
                b'}' | b']' => {
                    self.open.pop()?;
                }
                b',' => {
                    if let Some(open) = self.open.last_mut().filter(|open| !open.array) {
                        (open.name, open.half) = (None, None);
                    }
                }
                b':' => {
                    self.open.last().filter(|open| !open.array)?;
                }
                b' ' | b'\t' | b'\r' | b'\n' => {}
                b'-' | b'0'..=b'9' | b'a'..=b'z' => {
                    at = self.bare(at)?;
                    continue;
                }
                _ => return None,
            }
            at += 1;
        }
        self.open.is_empty().then_some(())
    }

    /// Reads the number or word at `start`; returns its end. Digits under the name of a secret are redacted.
    fn bare(&mut self, start: usize) -> Option<usize> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let end = skip(self.json.as_bytes(), start, is_part);
        let word = &self.json[start..end];
        if matches!(word, "true" | "false" | "null") {
            return Some(end);
        }
        if word.starts_with(|c: char| c.is_ascii_lowercase()) {
            return None;
        }
        let name = self.open.last().and_then(|open| open.name.as_ref());
        if let Some((name, class)) = name
            && values::is_secret_value(word, name, *class, ValuePlace::Code)
        {
            let sort = class.sort();
            self.put(start..end, marked(sort).into(), vec![sort]);
        }
        Some(end)
    }

    /// Reads the string at `start`; returns its end.
    fn string(&mut self, start: usize) -> Option<usize> {
        let bytes = self.json.as_bytes();
        let mut end = start + 1;
        while *bytes.get(end)? != b'"' {
            end += 1 + usize::from(bytes[end] == b'\\');
        }
        let text = decode(&self.json[start + 1..end]);
        let is_key = self.open.last().is_some_and(|open| !open.array)
            && bytes[end + 1..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
        if is_key {
            let redacted = redact(&text);
            self.key(&redacted.text);
            self.put(start..end + 1, redacted.text, redacted.hidden);
        } else {
            self.value(start, end, &text);
        }
        Some(end + 1)
    }

    fn key(&mut self, name: &str) {
        let Some(open) = self.open.last_mut() else { return };
        open.half = match name.to_ascii_lowercase().as_str() {
            "name" | "key" => Some(PairHalf::Name),
            "value" => Some(PairHalf::Value),
            _ => None,
        };
        open.name = match open.half {
            Some(PairHalf::Value) => open.pair.take(),
            _ => class_of(name),
        };
    }

    fn value(&mut self, start: usize, end: usize, text: &str) {
        let name = self.open.last().and_then(|open| open.name.as_ref());
        let sort = name.and_then(|(name, class)| sort_hidden_by_name(text, name, *class));
        let login = self.open.last().and_then(|open| open.password_of_login(text));
        let (new, hidden) = if let Some(password) = login {
            (Cow::Owned(format!("{}{}", &text[..password], marked("password"))), vec!["password"])
        } else if let Some(sort) = sort {
            (Cow::Owned(marked(sort)), vec![sort])
        } else {
            let redacted = self.any(text);
            (redacted.text, redacted.hidden)
        };
        let paired = class_of(text).filter(|_| self.begins_pair(start, end));
        let mut earlier = None;
        if let Some(open) = self.open.last_mut() {
            match open.half {
                Some(PairHalf::Name) => {
                    let named = class_of(text);
                    earlier = named.clone().zip(open.unnamed.take());
                    open.pair = named.or(open.pair.take());
                }
                Some(PairHalf::Value) if hidden.is_empty() => {
                    open.unnamed = Some((start..end + 1, text.to_owned()));
                }
                _ => {}
            }
            if open.array {
                open.follow(text);
                if paired.is_some() {
                    open.name = paired;
                }
            }
        }
        self.put(start..end + 1, new, hidden);
        if let Some(((name, class), (place, text))) = earlier
            && let Some(sort) = sort_hidden_by_name(&text, &name, class)
        {
            self.put(place, marked(sort).into(), vec![sort]);
        }
    }

    /// Redacts a string without the name of a secret; it may contain a document itself.
    fn any<'t>(&self, text: &'t str) -> RedactedText<'t> {
        let is_document = self.depth > 0 && text.trim_start().starts_with(['{', '[']);
        let inner = is_document.then(|| document(text, self.depth - 1)).flatten();
        let Some(inner) = inner.filter(|inner| !inner.hidden.is_empty()) else { return redact(text) };
        let outer = redact(&inner.text);
        let mut hidden = inner.hidden;
        for sort in outer.hidden {
            note(&mut hidden, sort);
        }
        RedactedText { text: Cow::Owned(outer.text.into_owned()), hidden }
    }

    /// Reports whether the string is the first of two in a list, of which the second looks like a value and not like a
    /// name: `["password", "hunter2hunter2"]`, but not `["password", "username"]`.
    fn begins_pair(&self, start: usize, end: usize) -> bool {
        let second = || {
            let rest = self.json[end + 1..].trim_start().strip_prefix(',')?.trim_start().strip_prefix('"')?;
            let (second, rest) = rest.split_once('"')?;
            rest.trim_start().starts_with(']').then_some(second)
        };
        let is_value = |text: &str| {
            text.len() >= 8
                && text.contains(|c: char| c.is_ascii_digit())
                && text.contains(|c: char| c.is_ascii_alphabetic())
        };
        self.json[..start].trim_end().ends_with('[') && second().is_some_and(is_value)
    }

    /// Replaces a value or key by a string, if something is redacted in it.
    fn put(&mut self, place: Range<usize>, new: Cow<'_, str>, hidden: Vec<&'static str>) {
        if hidden.is_empty() {
            return;
        }
        for sort in hidden {
            note(&mut self.hidden, sort);
        }
        self.edits.push((place, serde_json::Value::from(new).to_string()));
    }
}

impl OpenContainer {
    /// Records the flag that names the next value in a list of arguments.
    fn follow(&mut self, text: &str) {
        let flag = text.strip_prefix("--").filter(|flag| !flag.contains(['=', ' ']));
        let named = flag.and_then(|flag| Some((flag.to_owned(), keys::class(flag)?)));
        self.name = named.or_else(|| self.pair.clone());
        self.runs_curl |= text == "curl" || text.ends_with("/curl");
        self.login = self.runs_curl && LOGINS.contains(&text);
    }

    /// Returns the start of the password in an argument of `curl`: in the argument after such an option, or attached to
    /// the option.
    fn password_of_login(&self, text: &str) -> Option<usize> {
        let glued =
            |option: &&str| text.strip_prefix(option)?.strip_prefix(if option.len() > 2 { "=" } else { "" });
        let login =
            if self.login { text } else { LOGINS.iter().filter(|_| self.runs_curl).find_map(glued)? };
        let (_, password) = login.split_once(':')?;
        (!password.is_empty() && !password.contains(MARK)).then_some(text.len() - password.len())
    }
}

/// Returns the name and class of a value in an object with such a name: `{"token": {"value": …}}`. The tokens of a
/// parser have this form, too, so any class but a password counts as a possible one.
fn inherited((name, class): (String, SecretClass)) -> (String, SecretClass) {
    let class = if class == SecretClass::Password { class } else { SecretClass::Maybe(class.sort()) };
    (name, class)
}

/// Returns the name with its class. A name with one of our marks has none: the words of the mark are not the agent's.
fn class_of(name: &str) -> Option<(String, SecretClass)> {
    let class = keys::class(name).filter(|_| !name.contains(MARK))?;
    Some((name.to_owned(), class))
}

/// Returns the sort of a value that is redacted completely because of its name.
fn sort_hidden_by_name(text: &str, name: &str, class: SecretClass) -> Option<&'static str> {
    let hides = match class {
        SecretClass::Cookie => assign::is_cookie(text),
        SecretClass::Authorization => {
            let rest = text.split_once(' ').map_or(text, |(_, rest)| rest);
            rest.len() >= 6 && !text.contains(MARK) && !values::is_reference(rest, true)
        }
        _ => {
            !text.starts_with("-----BEGIN")
                && values::is_secret_value(text, name, class, ValuePlace::Quoted { expands: true })
        }
    };
    hides.then(|| formats::sort(text.as_bytes(), 0).unwrap_or(class.sort()))
}

/// Decodes a string. Lone surrogates become `�`.
fn decode(raw: &str) -> Cow<'_, str> {
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let mut after = rest[at + 1..].chars();
        let c = match after.next() {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('u') => {
                let (c, length) = unicode(&rest[at..]);
                out.push(c);
                rest = &rest[at + length..];
                continue;
            }
            Some(other) => other,
            None => break,
        };
        out.push(c);
        rest = after.as_str();
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Decodes `\uXXXX` or a pair of surrogates, and returns the length.
fn unicode(rest: &str) -> (char, usize) {
    let unit = |at: usize| {
        let digits = rest.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(digits, 16).ok()
    };
    match (unit(0), unit(6)) {
        (Some(high @ 0xd800..0xdc00), Some(low @ 0xdc00..0xe000)) => {
            let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            (char::from_u32(code).unwrap_or('\u{fffd}'), 12)
        }
        (Some(code), _) => (char::from_u32(code).unwrap_or('\u{fffd}'), 6),
        (None, _) => ('\u{fffd}', 2),
    }
}
