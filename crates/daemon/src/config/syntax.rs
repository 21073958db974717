//! Text that is not valid TOML: the key beside which the parser failed.
//!
//! The parser's own error has only an offset, so the key is taken from the part that it could read, or else from the
//! words on the line itself.

use toml::de::{DeTable, Error};

use super::locate::{DocumentMap, KeyLocation, line_of};

/// A syntax error in words for people; the key is missing if the line has none.
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) key: Option<String>,
    pub(super) message: String,
}

/// Returns the syntax error of a text, or `None` if it parses.
pub(super) fn error_in(text: &str) -> Option<SyntaxError> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let offset = |error: &Error| error.span().map_or(0, |span| span.start);
    // One mistake is often reported more than once, and not in order; the earliest line is the mistake itself.
    let error = errors.iter().min_by_key(|error| line_of(text, offset(error)))?;
    let (places, _) = DocumentMap::number(text, document);
    let noticed = line_of(text, offset(error));
    let message = words(error);
    // The end of the last element is also where a list lacks its bracket.
    let wanted = |place: &KeyLocation| !message.starts_with("unclosed array") || place.is_list();
    let Some(place) = places.value_around(offset(error), wanted) else {
        let key = key_on_line(text, offset(error), &places);
        return Some(SyntaxError { line: noticed, key, message });
    };
    // Inside a value such as `{ a = 1, a = 2 }` the parser points at the key, which is one further down.
    let path = match error.span().and_then(|span| text.get(span)) {
        Some(inner) if place.is_table() && message.starts_with("duplicate key") => place.path.key(inner),
        _ => place.path.clone(),
    };
    // A value without an end is noticed far below; the place to fix is its beginning.
    let message =
        if noticed == place.line { message } else { format!("{message} (noticed at line {noticed})") };
    Some(SyntaxError { line: place.line, key: Some(path.to_string()), message })
}

fn words(error: &Error) -> String {
    let message = error.message();
    // The parser takes whatever it cannot read for a string, even `4MiB` and an empty value.
    if message.starts_with("string values must be quoted") {
        let nothing = error.span().is_some_and(|span| span.is_empty());
        let words = if nothing {
            "the value is missing"
        } else {
            "the value is neither a number nor a quoted string"
        };
        return words.to_owned();
    }
    message.strip_suffix(", expected nothing").unwrap_or(message).to_owned()
}

/// Returns the header or the key at the beginning of the offset's line.
fn key_on_line(text: &str, offset: usize, places: &DocumentMap<'_>) -> Option<String> {
    let start = text.get(..offset)?.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next()?.trim_start_matches('\u{feff}').trim();
    let header = line.starts_with('[');
    // The colon is for people who write YAML by mistake.
    let key = line.trim_start_matches('[').split(['=', ':', '#', '[', ']']).next()?.trim();
    let fits = |c: char| c.is_alphanumeric() || "-_.\"' ".contains(c);
    if key.is_empty() || !key.chars().all(fits) {
        return None;
    }
    match places.section_around(offset) {
        Some(section) if !header => Some(format!("{}.{key}", section.path)),
        _ => Some(key.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let error = error_in(text).expect("the text does not parse");
        let key = error.key.as_deref().unwrap_or("-");
        assert_eq!(format!("{}: {}: {}", error.line, key, error.message), expect, "for {text:?}");
    }

    #[test]
    fn a_slip_is_named_by_line_and_key() {
        check("[acp]\nframing =\n", "2: acp.framing: the value is missing");
        check("[acp]\r\nframing =\r\n", "2: acp.framing: the value is missing");
        check("[acp]\nframing = # lsp\n", "2: acp.framing: the value is missing");
        let no_value = "the value is neither a number nor a quoted string";
        check("[acp]\nframing = lsp\n", &format!("2: acp.framing: {no_value}"));
        check("[limits]\nmax_body_bytes = 4MiB\n", &format!("2: limits.max_body_bytes: {no_value}"));
        check("[agents.a]\nargs = [\n 'a',\n b]\n", &format!("4: agents.a.args[1]: {no_value}"));
        check("[limits]\nmax_sessions: 5\n", "2: limits.max_sessions: key with no value, expected `=`");
        check("[acp]\nframing = \"lsp\n[limits]\n", "2: acp.framing: invalid basic string, expected `\"`");
        check("[acp]\nframing\n", "2: acp.framing: key with no value, expected `=`");
        check("[acp]\nmax_line_length = 01\n", "2: acp.max_line_length: unexpected leading zero");
        check("[agents.a]\nenv.X =\n", "2: agents.a.env.X: the value is missing");
        check("x = 1 y = 2\n", "1: x: unexpected key or value, expected newline, `#`");
    }

    #[test]
    fn a_slip_in_a_header_is_named_by_the_header() {
        check("\n[acp\nframing = 1\n", "2: acp: unclosed table, expected `]`");
        check("[agents.a b]\nx = 1\n", "1: agents.a b: unclosed table, expected `]`");
        check("acp = 5\n[acp.x]\n", "2: acp.x: cannot extend value of type integer with a dotted key");
    }

    #[test]
    fn a_key_given_twice_is_named_at_its_second_line() {
        check("[acp]\nframing = \"lsp\"\n\nframing = \"lsp\"\n", "4: acp.framing: duplicate key");
        check("[acp]\n[limits]\n[acp]\n", "3: acp: duplicate key");
        check("acp = { framing = \"lsp\", framing = \"lsp\" }\n", "1: acp.framing: duplicate key");
    }

    #[test]
    fn a_value_that_does_not_end_is_named_where_it_begins() {
        check(
            "[agents.a]\ncommand = '''x\n\n\n",
            "2: agents.a.command: invalid multi-line literal string, expected `'` (noticed at line 5)",
        );
        check("[agents.a]\nargs = [\n", "2: agents.a.args: unclosed array, expected `]`");
        check("[agents.a]\nargs = ['x'", "2: agents.a.args: unclosed array, expected `]`");
    }

    #[test]
    fn a_line_without_a_key_has_none() {
        check("\n= 5\n", "2: -: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`");
        check("[acp]\n// x\n", "2: -: key with no value, expected `=`");
    }

    #[test]
    fn sound_text_has_no_error() {
        assert!(error_in("[acp]\nframing = \"lsp\"\n").is_none());
    }
}
