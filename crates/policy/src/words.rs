//! The words of a shell command that consists only of words. Everything that a POSIX shell, bash or zsh could read in
//! another way is refused, with a reason: allow rules are matched against these words.

/// The maximum length; longer commands are not allowed by any rule.
pub(super) const MAX_BYTES: usize = 64 * 1024;
pub(super) const MAX_WORDS: usize = 1000;

/// Parses a command into words. Quotes must be literal.
pub(super) fn plain(text: &str) -> Result<Vec<String>, String> {
    if text.len() > MAX_BYTES {
        return Err("the command is too long".to_owned());
    }
    if let Some(c) = hidden(text) {
        return Err(format!("the command contains the character U+{:04X}", u32::from(c)));
    }
    let words =
        PlainWordReader { rest: text.chars().collect::<Vec<_>>().as_slice(), word: None, words: Vec::new() }
            .read()?;
    match words.first() {
        None => Err("the command is empty".to_owned()),
        Some(first) if first.contains('=') => Err(format!("`{first}` sets a variable")),
        Some(_) if words.len() > MAX_WORDS => Err("the command has too many words".to_owned()),
        Some(_) => Ok(words),
    }
}

struct PlainWordReader<'a> {
    rest: &'a [char],
    /// The current word; an empty one counts if it was quoted.
    word: Option<String>,
    words: Vec<String>,
}

impl PlainWordReader<'_> {
    fn read(mut self) -> Result<Vec<String>, String> {
        while let Some(c) = self.next() {
            match c {
                ' ' | '\t' => self.words.extend(self.word.take()),
                '\'' => self.single()?,
                '"' => self.double()?,
                '\\' => match self.next() {
                    Some(c) if c.is_ascii() => self.push(c),
                    _ => return Err("a backslash at the end".to_owned()),
                },
                c if self.is_literal(c) => self.push(c),
                c => return Err(format!("`{c}` is special to a shell")),
            }
        }
        self.words.extend(self.word.take());
        Ok(self.words)
    }

    /// Reports whether a character is literal outside of quotes. Beyond ASCII none is: blanks there depend on the
    /// locale.
    fn is_literal(&self, c: char) -> bool {
        let before = self.word.as_ref().and_then(|word| word.chars().next_back());
        match c {
            '-' | '_' | '.' | '/' | ':' | ',' | '+' | '@' | '%' => true,
            // `=ls` is the path of ls to zsh.
            '=' => before.is_some(),
            // `HEAD~1` and `HEAD^` are words; `~bob`, `a=~/x` and `^a^b` are not.
            '~' | '^' => before.is_some_and(|before| before.is_ascii_alphanumeric()),
            c => c.is_ascii_alphanumeric(),
        }
    }

    fn single(&mut self) -> Result<(), String> {
        self.word.get_or_insert_default();
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                // For fish, unlike for other shells, the quote continues.
                Some('\\') if self.rest.first() == Some(&'\'') => {
                    return Err("a backslash before a single quote".to_owned());
                }
                Some(c) => self.push(c),
                None => return Err("a quote is not closed".to_owned()),
            }
        }
    }

    fn double(&mut self) -> Result<(), String> {
        self.word.get_or_insert_default();
        loop {
            match self.next() {
                Some('"') => return Ok(()),
                Some('\\') => match self.next() {
                    Some(c @ ('"' | '\\' | '$' | '`')) => self.push(c),
                    Some('!') | None => return Err("a backslash before `!` or nothing".to_owned()),
                    Some(c) => {
                        self.push('\\');
                        self.push(c);
                    }
                },
                Some(c @ ('$' | '`' | '!')) => return Err(format!("`{c}` is special to a shell")),
                Some(c) => self.push(c),
                None => return Err("a quote is not closed".to_owned()),
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }
}

/// Returns the first character that is invisible or reverses the text: controls (newlines too, tabs not), blanks beyond
/// ASCII, zero widths, bidi marks, variation selectors, tags, private use.
pub(super) fn hidden(text: &str) -> Option<char> {
    text.chars().find(|c| match u32::from(*c) {
        0x09 | 0x20 => false,
        0xAD
        | 0x034F
        | 0x061C
        | 0x115F
        | 0x1160
        | 0x17B4
        | 0x17B5
        | 0x180B..=0x180F
        | 0x200B..=0x200F
        | 0x2028..=0x202E
        | 0x2060..=0x206F
        | 0x2800
        | 0x3164
        | 0xE000..=0xF8FF
        | 0xFE00..=0xFE0F
        | 0xFEFF
        | 0xFFA0
        | 0xFFF0..=0xFFFB
        | 0x1_BCA0..=0x1_BCA3
        | 0x1_D173..=0x1_D17A
        | 0xE_0000..=0x10_FFFF => true,
        _ => c.is_control() || c.is_whitespace(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_quoting_is_read() {
        let cases: &[(&str, &[&str])] = &[
            ("cargo test", &["cargo", "test"]),
            ("  cargo\t test  ", &["cargo", "test"]),
            ("ca''rgo \"test\"", &["cargo", "test"]),
            (r"cargo\ test", &["cargo test"]),
            (r#"grep "a\|b\"c\$" 'x $y `z`'"#, &["grep", r#"a\|b"c$"#, "x $y `z`"]),
            ("a '' \"\"", &["a", "", ""]),
            ("git log HEAD~1 HEAD^ --since=1d", &["git", "log", "HEAD~1", "HEAD^", "--since=1d"]),
            ("git commit -m 'é'", &["git", "commit", "-m", "é"]),
        ];
        for (text, words) in cases {
            assert_eq!(plain(text).unwrap(), *words, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            " ",
            "a;b",
            "a&b",
            "a&&b",
            "a|b",
            "a\nb",
            "a\rb",
            "$(a)",
            "`a`",
            "a $B",
            "a ${B}",
            "a <b",
            "a >b",
            "a <(b)",
            "a *",
            "a ?",
            "a [b]",
            "a {b,c}",
            "a ~",
            "a ~/b",
            "a b=~/c",
            "a \"!b\"",
            "a !b",
            "X=1 a",
            "'X=1' a",
            "a #b",
            "a 'b",
            "a \"b",
            "a \\",
            "(a)",
            "a\u{a0}b",
            "a é",
            "a 'b\u{200b}'",
            "a 'b\u{202e}'",
            "a \u{0}",
            "a $'b'",
            "a =b",
            "^a^b",
            "a \"$b\"",
            "a \"`b`\"",
            "a 'b\\'",
            "a <<b",
            "\\",
            "a \"b\\!\"",
        ] {
            assert!(plain(text).is_err(), "{text:?}");
        }
        assert!(plain(&"a ".repeat(1001)).is_err());
        assert!(plain(&"a".repeat(MAX_BYTES + 1)).is_err());
    }
}
