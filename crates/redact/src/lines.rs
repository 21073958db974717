//! Values on other lines than their names, or on several lines: after a line break or a backslash, between quotes, in a
//! block of YAML, and in pairs of a `name` and a `value`.

use super::assign::{self, AssignOperator, AssignedName, named, quoted, unquoted};
use super::keys;
use super::values::{self, ValuePlace};
use super::words::SecretClass;
use super::{SecretSpan, formats, is_blank, is_quote, is_word, skip};

/// The maximum length of a value together with its name.
const LONGEST: usize = 2048;

/// The result of the search for a value after the line of its name.
#[derive(Debug, Default)]
struct ValueSearch {
    span: Option<SecretSpan>,
    /// More text could change the result.
    is_open: bool,
    /// The end of the examined text, if that is more than a line.
    reach: usize,
}

/// Reads the word at `at` like [`assign::at`], and first looks for its value after its line.
pub(super) fn at(text: &str, at: usize) -> (usize, Option<SecretSpan>) {
    let end = skip(text.as_bytes(), at, is_word);
    match named(text, at, end).and_then(|name| search(text, &name).span) {
        Some(span) => (end, Some(span)),
        None => assign::at(text, at),
    }
}

/// Returns the start of the first line, at most `border`, whose redaction depends on text that has not arrived yet: the
/// value of a name in it may continue after the end of the text, or reaches into such a line. Redaction in one part of
/// a line can change that of the rest, so no line is divided.
pub(super) fn unfinished(text: &str, mut border: usize) -> usize {
    while let Some(line) = line_that_goes_beyond(text, border) {
        border = line;
    }
    border
}

fn line_that_goes_beyond(text: &str, border: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = text.floor_char_boundary(border.saturating_sub(LONGEST));
    while at < border {
        let end = skip(bytes, at, is_word);
        if end > at
            && let Some(name) = named(text, at, end)
        {
            let search = search(text, &name);
            if search.is_open || search.reach > border {
                let line = name.start - column(text, &name);
                if line < border {
                    return Some(line);
                }
            }
        }
        at = end.max(at + 1);
    }
    None
}

/// Looks for the value of a name after its line.
fn search(text: &str, name: &AssignedName<'_>) -> ValueSearch {
    if matches!(name.text.to_ascii_lowercase().as_str(), "name" | "key") {
        return pair(text, name);
    }
    let Some(class) = keys::class(name.text) else { return ValueSearch::default() };
    if matches!(class, SecretClass::Authorization | SecretClass::Cookie) {
        return ValueSearch::default();
    }
    let near = &text[..text.floor_char_boundary(name.value.saturating_add(LONGEST))];
    let is_cut = near.len() < text.len();
    let mut search = match first_line(near, name.value) {
        None => ValueSearch::default(),
        // In a list of names, the next line has another name and no value.
        Some("") if name.operator == AssignOperator::Comma => ValueSearch::default(),
        Some("") => next_line(near, name, class),
        Some("\\") => behind_backslash(near, name, class),
        Some(line) if is_block(line) && name.operator == AssignOperator::Colon => block(near, name, class),
        Some(line) => over_lines(near, name, class, line),
    };
    if search.is_open {
        search.reach = near.len();
    }
    search.is_open &= !is_cut;
    search
}

/// Returns the rest of the line, if the line is complete.
fn first_line(text: &str, at: usize) -> Option<&str> {
    let rest = text.get(at..)?;
    Some(rest[..rest.find('\n')?].trim_end())
}

/// Returns the lines after the one at `at`, each with its start and whether it is complete.
fn lines_behind(text: &str, at: usize) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut start = text[at..].find('\n').map_or(text.len(), |length| at + length + 1);
    std::iter::from_fn(move || {
        let rest = text.get(start..)?;
        let length = rest.find('\n');
        let line = &rest[..length.unwrap_or(rest.len())];
        let begin = start;
        start += line.len() + 1;
        Some((begin, line, length.is_some()))
    })
}

/// Returns the length of the indentation, including the marks of a diff, a list or a quotation.
fn indentation(line: &str) -> usize {
    skip(line.as_bytes(), 0, |byte| is_blank(byte) || matches!(byte, b'+' | b'-' | b'>'))
}

/// Returns the column of a name.
fn column(text: &str, name: &AssignedName<'_>) -> usize {
    name.start - text[..name.start].rfind('\n').map_or(0, |at| at + 1)
}

/// Returns the length of the diff's mark before this line, which is the same as before the line of the name.
fn mark(text: &str, name: &AssignedName<'_>, line: &str) -> usize {
    let first = text.as_bytes()[name.start - column(text, name)];
    usize::from(matches!(first, b'+' | b'-' | b' ' | b'>') && line.as_bytes().first() == Some(&first))
}

fn found(text: &str, start: usize, end: usize, class: SecretClass) -> ValueSearch {
    let sort = formats::sort(text.as_bytes(), start).unwrap_or(class.sort());
    ValueSearch { span: Some(SecretSpan { start, end, sort }), is_open: false, reach: end + 1 }
}

const OPEN: ValueSearch = ValueSearch { span: None, is_open: true, reach: 0 };

/// Reads a value on the line after `"password":` or `password =`.
fn next_line(text: &str, name: &AssignedName<'_>, class: SecretClass) -> ValueSearch {
    let Some((begin, line, is_whole)) = lines_behind(text, name.value).next() else { return OPEN };
    let search = value_in(text, name, class, begin, line);
    ValueSearch { is_open: !is_whole, reach: begin + line.len(), ..search }
}

fn value_in(
    text: &str,
    name: &AssignedName<'_>,
    class: SecretClass,
    begin: usize,
    line: &str,
) -> ValueSearch {
    let at = begin + indentation(line);
    let end = begin + line.trim_end().len();
    if at >= end {
        return ValueSearch::default();
    }
    if let Some(span) = quoted(text, at, name.text, class) {
        return ValueSearch { span, ..ValueSearch::default() };
    }
    let value = &text[at..end];
    let is_plain = name.operator == AssignOperator::Colon
        && indentation(line) > column(text, name)
        && !value.contains(char::is_whitespace)
        && !value.ends_with([':', ';', ',', '{', '(', '['])
        && values::is_secret_value(value, name.text, class, ValuePlace::Line);
    if is_plain { found(text, at, end, class) } else { ValueSearch::default() }
}

/// Reads a value on the line after `--password \` or `PASSWORD=\` in a shell.
fn behind_backslash(text: &str, name: &AssignedName<'_>, class: SecretClass) -> ValueSearch {
    if !matches!(name.operator, AssignOperator::Tight | AssignOperator::Blank) {
        return ValueSearch::default();
    }
    let Some((begin, line, is_whole)) = lines_behind(text, name.value).next() else { return OPEN };
    let at = begin + skip(line.as_bytes(), mark(text, name, line), is_blank);
    if let Some(span) = quoted(text, at, name.text, class) {
        return ValueSearch { span, is_open: !is_whole, reach: begin + line.len() };
    }
    let value = unquoted(text, at, LONGEST);
    let place = if name.flag { ValuePlace::Flag } else { ValuePlace::Env };
    let hides = !value.starts_with('-') && values::is_secret_value(value, name.text, class, place);
    let search = if hides { found(text, at, at + value.len(), class) } else { ValueSearch::default() };
    ValueSearch { is_open: !is_whole, reach: begin + line.len(), ..search }
}

/// Reports whether a line begins a block: `|`, `>-`, `|2`.
fn is_block(line: &str) -> bool {
    line.strip_prefix(['|', '>']).is_some_and(|rest| {
        rest.len() <= 2 && rest.bytes().all(|byte| matches!(byte, b'+' | b'-' | b'0'..=b'9'))
    })
}

/// Reads a block: all lines that are indented further than the name.
fn block(text: &str, name: &AssignedName<'_>, class: SecretClass) -> ValueSearch {
    let column = column(text, name);
    let (mut span, mut hides) = (None, false);
    for (begin, line, is_whole) in lines_behind(text, name.value) {
        let indentation = indentation(line);
        let is_empty = indentation >= line.trim_end().len();
        if is_empty && is_whole {
            continue;
        }
        if is_empty {
            break;
        }
        if indentation <= column {
            let span = span.filter(|_| hides);
            let search =
                span.map_or_else(ValueSearch::default, |(start, end)| found(text, start, end, class));
            return ValueSearch { reach: begin + indentation + 1, ..search };
        }
        let value = line[indentation..].trim_end();
        hides |= values::is_secret_value(value, name.text, class, ValuePlace::Quoted { expands: true });
        let (start, _) = span.unwrap_or((begin + indentation, 0));
        span = Some((start, begin + line.trim_end().len()));
    }
    let span = span.filter(|_| hides);
    let search = span.map_or_else(ValueSearch::default, |(start, end)| found(text, start, end, class));
    ValueSearch { is_open: true, ..search }
}

/// Reads a quotation that ends on another line, or a value that continues after a backslash at the end of its line.
fn over_lines(text: &str, name: &AssignedName<'_>, class: SecretClass, line: &str) -> ValueSearch {
    let bytes = text.as_bytes();
    let start = name.value;
    let quote = bytes[start];
    if !is_quote(quote) {
        return if line.ends_with('\\') {
            continued(text, name, class, line)
        } else {
            ValueSearch::default()
        };
    }
    // The quote only closes one that was opened before the name, as in `ask("password: ")`.
    let before = &text[name.start - column(text, name)..start];
    if before.matches(char::from(quote)).count() % 2 == 1 {
        return ValueSearch::default();
    }
    let triple = [quote; 3];
    let (open, close) =
        if bytes[start..].starts_with(&triple) { (3, &triple[..]) } else { (1, &triple[..1]) };
    let begin = start + open;
    let first = &line[open.min(line.len())..];
    let is_closed = ends_at(first.as_bytes(), close).is_some();
    if is_closed || (open == 1 && (first.is_empty() || first.starts_with(is_space))) {
        return ValueSearch::default();
    }
    let Some(length) = ends_at(&bytes[begin..], close) else { return OPEN };
    let value = &text[begin..begin + length];
    let place = ValuePlace::Quoted { expands: quote != b'\'' };
    let is_secret = |line: &str| values::is_secret_value(line.trim(), name.text, class, place);
    let hides = !value.contains("\n\n") && !value.contains(super::MARK) && value.lines().any(is_secret);
    let blank = value.len() - value.trim_start().len();
    let (start, end) = (begin + blank, begin + value.trim_end().len());
    let search = if hides { found(text, start, end, class) } else { ValueSearch::default() };
    ValueSearch { reach: begin + length + open, ..search }
}

fn is_space(c: char) -> bool {
    c.is_ascii_whitespace()
}

/// Returns the end of a quotation. One in double quotes may contain escaped quotes.
fn ends_at(bytes: &[u8], close: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if close[0] != b'\'' => at += 1,
            _ if bytes[at..].starts_with(close) => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Reads a value such as `PASSWORD=hunter\` with the rest on the next line.
fn continued(text: &str, name: &AssignedName<'_>, class: SecretClass, line: &str) -> ValueSearch {
    let value = line.trim_end_matches('\\');
    let place = if name.flag { ValuePlace::Flag } else { ValuePlace::Env };
    let is_word = !value.contains(char::is_whitespace) && !value.contains(['"', '\'', '`']);
    if name.operator != AssignOperator::Tight
        || !is_word
        || !values::is_secret_value(value, name.text, class, place)
    {
        return ValueSearch::default();
    }
    let mut end = name.value + value.len();
    for (begin, line, is_whole) in lines_behind(text, name.value) {
        let begin = begin + mark(text, name, line);
        let more = unquoted(text, begin, LONGEST);
        if !more.is_empty() {
            end = begin + more.len();
        }
        if !is_whole {
            return ValueSearch { is_open: true, ..found(text, name.value, end, class) };
        }
        if more.is_empty() || !text[end..].starts_with('\\') {
            return ValueSearch { reach: begin + line.len(), ..found(text, name.value, end, class) };
        }
    }
    OPEN
}

/// Reads `name: DB_PASSWORD`, with the value on the same line or the next.
fn pair(text: &str, name: &AssignedName<'_>) -> ValueSearch {
    let near = &text[..text.floor_char_boundary(name.value.saturating_add(LONGEST))];
    let is_cut = near.len() < text.len();
    let bytes = near.as_bytes();
    let at = skip(bytes, name.value.min(near.len()), |byte| is_quote(byte) || byte == b'\\');
    let known = &near[at..skip(bytes, at, is_word)];
    let Some(class) = keys::class(known) else { return ValueSearch::default() };
    if matches!(class, SecretClass::Authorization | SecretClass::Cookie) {
        return ValueSearch::default();
    }
    let is_between = |byte: u8| {
        is_blank(byte) || is_quote(byte) || matches!(byte, b',' | b'\\' | b'\r' | b'\n' | b'+' | b'-' | b'>')
    };
    let next = skip(bytes, at + known.len(), is_between);
    let is_near = near[at..next].matches('\n').count() <= 1;
    let open = !is_cut && is_near;
    let word = skip(bytes, next, is_word);
    if word == near.len() {
        return ValueSearch { is_open: open, reach: word, span: None };
    }
    if !is_near || !near[next..word].eq_ignore_ascii_case("value") {
        return ValueSearch { reach: word, ..ValueSearch::default() };
    }
    let line = near[word..].find('\n').map(|length| word + length);
    let (is_open, reach) = (open && line.is_none(), line.unwrap_or(near.len()));
    let value = named(near, next, word).map(|value| AssignedName { text: known, ..value });
    let span = value.and_then(|value| assign::assigned(near, &value, class));
    ValueSearch { span, is_open, reach }
}
