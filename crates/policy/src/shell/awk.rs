//! The scanner of awk programs, which only finds whether they run commands: `system(…)`, pipes, and extensions.

/// The commands inside of a program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EmbeddedCommands {
    /// Texts that may be run.
    pub(super) texts: Vec<String>,
    /// False if the program may run anything besides `texts`.
    pub(super) is_readable: bool,
}

/// Reads a program of awk. If it runs anything, all of its strings may be what it runs.
pub(super) fn read(program: &str) -> EmbeddedCommands {
    let mut scanner =
        AwkScanner { rest: program, strings: Vec::new(), code: String::new(), is_certain: true };
    scanner.scan();
    let code = scanner.code.replace("||", " ");
    let names: Vec<&str> = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let runs = code.contains(['|', '@']) || names.contains(&"system");
    if !runs && scanner.is_certain {
        return EmbeddedCommands { texts: Vec::new(), is_readable: true };
    }
    EmbeddedCommands { texts: scanner.strings, is_readable: false }
}

struct AwkScanner<'a> {
    rest: &'a str,
    strings: Vec<String>,
    /// The program without strings, patterns and comments.
    code: String,
    is_certain: bool,
}

impl AwkScanner<'_> {
    fn scan(&mut self) {
        while let Some(c) = self.next() {
            match c {
                '"' => self.string(),
                '/' if self.begins_pattern() => self.pattern(),
                '#' => {
                    while self.rest.chars().next().is_some_and(|c| c != '\n') {
                        self.next();
                    }
                }
                '\\' if !self.rest.starts_with('\n') => self.is_certain = false,
                c => self.code.push(c),
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Reports whether a slash begins a pattern: after an operator it cannot be a division.
    fn begins_pattern(&self) -> bool {
        self.code.trim_end_matches([' ', '\t']).chars().next_back().is_none_or(|c| "(,!~{};&|=\n".contains(c))
    }

    fn string(&mut self) {
        let mut text = String::new();
        while let Some(c) = self.next() {
            match c {
                '"' => {
                    self.strings.push(text);
                    self.code.push('0');
                    return;
                }
                '\\' => match self.next() {
                    Some(c @ ('"' | '\\' | '/')) => text.push(c),
                    Some('n') => text.push('\n'),
                    Some(c) => text.extend(['\\', c]),
                    None => self.is_certain = false,
                },
                '\n' => self.is_certain = false,
                c => text.push(c),
            }
        }
        self.is_certain = false;
    }

    fn pattern(&mut self) {
        let mut in_brackets = false;
        while let Some(c) = self.next() {
            match c {
                '/' => {
                    // In some versions of awk, brackets continue the pattern.
                    self.is_certain &= !in_brackets;
                    self.code.push('0');
                    return;
                }
                '\\' => {
                    self.next();
                }
                '[' => in_brackets = true,
                ']' => in_brackets = false,
                '\n' => self.is_certain = false,
                _ => {}
            }
        }
        self.is_certain = false;
    }
}
