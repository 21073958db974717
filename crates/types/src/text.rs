//! Untrusted text, sanitized and shortened for display.
//!
//! Agents are not trusted: their text may contain terminal escapes, text that runs backwards, or invisible characters.
//! All of these are shown as `<U+202E>`, so that a person reads the real text.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar;

/// Sanitizes text to one line: line feeds are shown as `⏎`, tabs become a space.
pub fn clean(text: &str) -> String {
    sanitize(text, "⏎", " ")
}

/// Sanitizes text of several lines: line feeds stay, tabs become four spaces.
pub fn clean_block(text: &str) -> String {
    sanitize(text, "\n", "    ")
}

/// Makes invisible characters visible; line feeds and tabs stay.
pub fn visible(text: &str) -> String {
    sanitize(text, "\n", "\t")
}

/// Puts text into quotes that nothing inside can close.
pub fn quoted(text: &str) -> String {
    format!("“{}”", clean(text).replace(['“', '”', '„', '"', '«', '»'], "'"))
}

fn sanitize(text: &str, line_feed: &str, tab: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut before = '\0';
    for c in text.chars() {
        match c {
            '\n' => clean.push_str(line_feed),
            '\t' => clean.push_str(tab),
            // Selects the coloured form of the symbol before it, which is harmless and common.
            '\u{fe0f}' if before >= '\u{203c}' && before != '\u{fe0f}' => clean.push(c),
            c if is_deceptive(c) => {
                write!(clean, "<U+{:04X}>", u32::from(c)).expect("a string takes every write");
            }
            c => clean.push(c),
        }
        before = c;
    }
    clean
}

/// Escapes deceptive characters in JSON as `\u202e`, which is shown as `<U+202E>` elsewhere.
pub fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && is_deceptive(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(escaped, "\\u{unit:04x}").expect("a string takes every write");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Reports whether a character is a control character, a bidirectional control, or has no width.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Counts the terminal columns of a text, exactly enough to align tables.
pub fn columns(text: &str) -> usize {
    text.chars().map(char_columns).sum()
}

/// Counts the terminal columns of one character. Control characters count as one: [`clean`] has made them visible.
pub(crate) fn char_columns(c: char) -> usize {
    c.width().unwrap_or(1)
}

/// Returns the most columns that any terminal gives to a character: a line wrapped by this count never wraps again.
pub fn most_columns(c: char) -> usize {
    let least = match c {
        '\u{20}'..='\u{52f}' | '\u{590}'..='\u{6ff}' | '\u{2010}'..='\u{205e}' | '\u{2190}'..='\u{25ff}' => 1,
        _ => 2,
    };
    char_columns(c).max(least)
}

/// Cuts to at most `limit` columns, with an ellipsis if something is missing.
pub fn cut(text: &str, limit: usize) -> String {
    if columns(text) <= limit {
        return text.to_owned();
    }
    let mut left = limit.saturating_sub(1);
    let mut kept: String = text
        .chars()
        .take_while(|c| {
            let room = char_columns(*c) <= left;
            left = left.saturating_sub(char_columns(*c));
            room
        })
        .collect();
    if limit > 0 {
        kept.push('…');
    }
    kept
}

/// Cuts to at most `limit` columns between two words, unless that would lose more than half of the room. An open quote
/// of ours is closed: the text that follows on the line is not part of it.
pub fn cut_words(text: &str, limit: usize) -> String {
    let kept = cut_between_words(text, limit);
    if !ends_in_quotes(&kept) || limit == 0 {
        return kept;
    }
    let kept = cut_between_words(text, limit - 1);
    if ends_in_quotes(&kept) { format!("{kept}”") } else { kept }
}

fn ends_in_quotes(text: &str) -> bool {
    text.rfind('“') > text.rfind('”')
}

fn cut_between_words(text: &str, limit: usize) -> String {
    let cut = cut(text, limit);
    let Some(kept) = cut.strip_suffix('…').filter(|kept| columns(text) > limit && text.starts_with(*kept))
    else {
        return cut;
    };
    if text[kept.len()..].starts_with(char::is_whitespace) || kept.ends_with(char::is_whitespace) {
        return format!("{}…", kept.trim_end());
    }
    match kept.trim_end().rsplit_once(char::is_whitespace) {
        Some((words, _)) if columns(words) * 2 >= limit => format!("{}…", words.trim_end()),
        _ => cut,
    }
}

/// Cuts to at most `limit` columns in the middle: the beginning and the end of a path are the most informative parts.
pub fn cut_middle(text: &str, limit: usize) -> String {
    if columns(text) <= limit {
        return text.to_owned();
    }
    let room = limit.saturating_sub(1);
    let end: String = {
        let mut left = room - room / 3;
        let kept = text.chars().rev().take_while(|c| {
            let fits = char_columns(*c) <= left;
            left = left.saturating_sub(char_columns(*c));
            fits
        });
        kept.collect::<Vec<_>>().into_iter().rev().collect()
    };
    let begin = cut(text, limit.saturating_sub(columns(&end)));
    format!("{begin}{end}")
}

/// Shortens an id to the form that people see and type: the prefix and eight characters.
pub fn short(id: &str) -> String {
    let start = id.find('_').map_or(0, |underscore| underscore + 1);
    clean(id).chars().take(start + 8).collect()
}

/// Quotes one word of a command line for a shell.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Formats a count with its noun: `1 clearance`, `2 clearances`.
pub fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_on_a_terminal_means_the_same_and_cannot_deceive() {
        let json = "{\"a\": \"x\u{202e}y\u{9b}31m\u{e0041} é\"}\n";
        let escaped = escape_json(json);
        assert_eq!(escaped, "{\"a\": \"x\\u202ey\\u009b31m\\udb40\\udc41 é\"}\n");
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parse(&escaped), parse(json));
    }

    #[test]
    fn terminal_escapes_are_made_visible() {
        assert_eq!(clean("a\x1b[2Jb"), "a<U+001B>[2Jb");
        assert_eq!(clean("\u{9b}31m"), "<U+009B>31m");
        assert_eq!(clean("a\rb\x07\x08\x7f\0"), "a<U+000D>b<U+0007><U+0008><U+007F><U+0000>");
    }

    #[test]
    fn text_that_runs_backwards_is_made_visible() {
        assert_eq!(clean("rm \u{202e}cod.exe"), "rm <U+202E>cod.exe");
        assert_eq!(clean("\u{2066}a\u{2069}\u{200f}\u{61c}"), "<U+2066>a<U+2069><U+200F><U+061C>");
    }

    #[test]
    fn characters_of_no_width_are_made_visible() {
        assert_eq!(clean("pass\u{200b}word\u{feff}"), "pass<U+200B>word<U+FEFF>");
        assert_eq!(clean("a\u{fe0f}\u{e0041}\u{e0101}"), "a<U+FE0F><U+E0041><U+E0101>");
    }

    #[test]
    fn ordinary_text_of_any_language_stays() {
        let text = "Grüße, 世界, مرحبا, ✔\u{fe0f} 🎉";
        assert_eq!(clean(text), text);
        assert_eq!(clean_block(text), text);
    }

    #[test]
    fn line_feeds_stay_only_where_several_lines_are_wanted() {
        assert_eq!(clean("a\n\tb"), "a⏎ b");
        assert_eq!(clean_block("a\n\tb\r\n"), "a\n    b<U+000D>\n");
        assert_eq!(clean_block("a\u{2028}b"), "a<U+2028>b");
    }

    #[test]
    fn nothing_that_deceives_survives_cleaning() {
        for c in '\0'..=char::MAX {
            let shown = clean(&format!("a{c}b"));
            assert!(!shown.chars().any(is_deceptive), "{c:?} survives as {shown:?}");
        }
    }

    #[test]
    fn marks_take_no_column_and_wide_characters_two() {
        for (text, expected) in
            [("e\u{301}", 1), ("שָׁלוֹם", 4), ("世", 2), ("⌚", 2), ("ｱ", 1), ("✔\u{fe0f}", 1)]
        {
            assert_eq!(columns(text), expected, "{text}");
        }
        for c in '\0'..=char::MAX {
            assert!(char_columns(c) <= most_columns(c), "{c:?}");
        }
    }

    #[test]
    fn cutting_counts_characters_and_never_splits_one() {
        assert_eq!(cut("hello", 5), "hello");
        assert_eq!(cut("hello!", 5), "hell…");
        assert_eq!(cut("äöüäöü", 4), "äöü…");
        assert_eq!(cut("世界世界", 4), "世…");
        assert_eq!(cut("hello", 1), "…");
        assert_eq!(cut("hello", 0), "");
    }

    #[test]
    fn a_sentence_is_cut_between_words_where_that_leaves_enough_of_it() {
        assert_eq!(cut_words("exited with code 1", 18), "exited with code 1");
        assert_eq!(cut_words("exited with code 1", 17), "exited with code…");
        assert_eq!(cut_words("exited with code 1", 14), "exited with…");
        assert_eq!(cut_words("exited with code 1", 12), "exited with…");
        assert_eq!(cut_words("exited within a", 12), "exited…");
        assert_eq!(cut_words("a unbreakable-word", 12), "a unbreakab…");
        assert_eq!(cut_words("世界 世界世界", 8), "世界…");
        assert_eq!(cut_words("ls “Look at what is there”", 20), "ls “Look at what…”");
        assert_eq!(cut_words("ls “Look at what is there” now", 29), "ls “Look at what is there”…");
        assert_eq!(cut_words("ls “Look”", 4), "ls…");
        for limit in 0..20 {
            assert!(columns(&cut_words("aa “bb 世界 cc”", limit)) <= limit);
            assert!(columns(&cut_words("aa bb 世界 cc  dd ee", limit)) <= limit);
        }
    }

    #[test]
    fn a_path_keeps_its_beginning_and_its_end() {
        assert_eq!(cut_middle("~/src/shop", 10), "~/src/shop");
        assert_eq!(cut_middle("/home/ana/src/customers/shop", 16), "/home…omers/shop");
        for limit in 0..12 {
            let cut = cut_middle("/世界/世界/shop", limit);
            assert!(columns(&cut) <= limit, "{limit}: {cut}");
        }
    }

    #[test]
    fn a_shell_takes_a_quoted_word_as_it_was() {
        assert_eq!(shell_word("/usr/bin/intercom"), "/usr/bin/intercom");
        for text in ["", "it's a $HOME & more", "`id`", "~", "a\"b\\", "#1", "-n *"] {
            let line = format!("printf %s {}", shell_word(text));
            let printed = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(printed.stdout).unwrap(), text);
        }
    }

    #[test]
    fn ids_are_shortened_to_eight_characters_after_the_prefix() {
        assert_eq!(short("ses_0123456789abcdef"), "ses_01234567");
        assert_eq!(short("clr_0123"), "clr_0123");
        assert_eq!(short("0123456789"), "01234567");
    }
}
