//! The scanner of sed programs, which only finds whether they run commands: `e`, and the flag `e` of `s`. An unreadable
//! program counts as one that does.

use super::awk::EmbeddedCommands;

/// Reads a program of sed.
pub(super) fn read(program: &str) -> EmbeddedCommands {
    let chars: Vec<char> = program.chars().collect();
    let mut script = SedScanner { chars: &chars, at: 0, texts: Vec::new(), runs: false };
    let is_read = script.read().is_some();
    EmbeddedCommands { is_readable: is_read && !script.runs, texts: script.texts }
}

struct SedScanner<'a> {
    chars: &'a [char],
    at: usize,
    texts: Vec<String>,
    runs: bool,
}

impl SedScanner<'_> {
    fn read(&mut self) -> Option<()> {
        loop {
            self.skip(" \t\n;");
            if self.at >= self.chars.len() {
                return Some(());
            }
            self.addresses()?;
            self.command()?;
        }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn skip(&mut self, characters: &str) {
        while self.peek().is_some_and(|c| characters.contains(c)) {
            self.at += 1;
        }
    }

    fn rest_of_line(&mut self) -> String {
        let line: String = self.chars[self.at..].iter().take_while(|c| **c != '\n').collect();
        self.at += line.chars().count();
        line
    }

    fn addresses(&mut self) -> Option<()> {
        while let Some(c) = self.peek() {
            match c {
                // A star is an expansion of the shell, most likely a number.
                '0'..='9' | '$' | ',' | '~' | '+' | '!' | ' ' | '\t' | '*' => self.at += 1,
                '/' => {
                    self.at += 1;
                    self.until('/')?;
                    self.skip("IM");
                }
                '\\' => {
                    let mark = *self.chars.get(self.at + 1)?;
                    self.at += 2;
                    self.until(mark)?;
                    self.skip("IM");
                }
                _ => return Some(()),
            }
        }
        None
    }

    /// Reads the text up to the mark, which is consumed.
    fn until(&mut self, mark: char) -> Option<String> {
        if mark == '\n' || mark == '\\' {
            return None;
        }
        let mut text = String::new();
        let mut in_brackets = false;
        loop {
            let c = self.peek()?;
            self.at += 1;
            match c {
                // Implementations of sed disagree about a backslash before a bracket inside of brackets.
                '\\' if in_brackets && self.peek() == Some(']') => return None,
                '\\' => {
                    text.extend([c, self.peek()?]);
                    self.at += 1;
                }
                '[' if !in_brackets => {
                    let first = self.chars.get(self.at + usize::from(self.peek() == Some('^')));
                    if first == Some(&']') {
                        return None;
                    }
                    in_brackets = true;
                    text.push(c);
                }
                c if c == mark && !in_brackets => return Some(text),
                '\n' => return None,
                c => {
                    in_brackets &= c != ']';
                    text.push(c);
                }
            }
        }
    }

    fn command(&mut self) -> Option<()> {
        let c = self.peek()?;
        self.at += 1;
        match c {
            '{' | '}' | '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'F' => {
            }
            'l' | 'L' | 'q' | 'Q' => self.skip(" \t0123456789"),
            '#' | 'a' | 'i' | 'c' | 'r' | 'R' | 'w' | 'W' | ':' | 'b' | 't' | 'T' | 'v' => {
                self.line_command(c);
            }
            's' => self.substitute()?,
            'y' => {
                let mark = self.peek()?;
                self.at += 1;
                self.until(mark)?;
                self.until(mark)?;
            }
            'e' => {
                let text = self.rest_of_line();
                self.texts.push(text);
                self.runs = true;
            }
            _ => return None,
        }
        Some(())
    }

    /// Reads a command whose argument ends with the line; in some implementations, labels also end with a semicolon.
    fn line_command(&mut self, command: char) {
        if matches!(command, 'b' | 't' | 'T') {
            while self.peek().is_some_and(|c| !matches!(c, '\n' | ';' | '}')) {
                self.at += 1;
            }
            return;
        }
        if command == ':' {
            while self.peek().is_some_and(|c| !matches!(c, '\n' | ';')) {
                self.at += 1;
            }
            return;
        }
        while self.rest_of_line().ends_with('\\')
            && matches!(command, 'a' | 'i' | 'c')
            && self.peek().is_some()
        {
            self.at += 1;
        }
    }

    fn substitute(&mut self) -> Option<()> {
        let mark = self.peek()?;
        self.at += 1;
        self.until(mark)?;
        let replacement = self.until_replacement(mark)?;
        while let Some(c) = self.peek() {
            match c {
                'g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9' => self.at += 1,
                'e' => {
                    self.at += 1;
                    self.runs = true;
                    self.texts.push(replacement.clone());
                }
                'w' => {
                    self.rest_of_line();
                }
                ' ' | '\t' | '\n' | ';' | '}' | '#' => break,
                _ => return None,
            }
        }
        Some(())
    }

    /// Reads the replacement of `s`: brackets have no meaning in it, and a backslash continues a line.
    fn until_replacement(&mut self, mark: char) -> Option<String> {
        let mut text = String::new();
        loop {
            let c = self.peek()?;
            self.at += 1;
            match c {
                '\\' => {
                    text.push(self.peek()?);
                    self.at += 1;
                }
                c if c == mark => return Some(text),
                '\n' => return None,
                c => text.push(c),
            }
        }
    }
}
