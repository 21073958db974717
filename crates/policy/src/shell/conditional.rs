//! Conditions: `[[ … ]]`. For dash it is a command with arguments, and `&&`, `||` and `|` inside of it separate
//! commands.

use super::reader::ShellReader;

const COMPARISONS: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

impl ShellReader<'_> {
    /// Reads a condition after `[[`, with `]]`.
    pub(super) fn conditional(&mut self) {
        let start = self.at;
        let mut has_operator = false;
        let mut before: Option<super::ShellWord> = None;
        let mut evaluates = false;
        loop {
            while let Some(' ' | '\t' | '\n') = self.peek() {
                if self.chars.get(self.at) == Some(&'\n') {
                    has_operator = true;
                    self.at += 1;
                    self.here_documents();
                } else {
                    self.at += 1;
                }
            }
            match (self.peek(), self.peek_at(1)) {
                (None | Some(';' | '#'), _) => return self.unreadable("a condition that cannot be read"),
                (Some('&'), Some('&')) | (Some('|'), Some('|')) => {
                    self.at += 2;
                    has_operator = true;
                }
                (Some('(' | ')'), _) => {
                    self.at += 1;
                    has_operator = true;
                }
                (Some('<' | '>'), next) if !matches!(next, Some('(' | '<' | '>' | '&' | '|')) => self.at += 1,
                (Some('&' | '|' | '<' | '>'), next) if next != Some('(') => {
                    return self.unreadable("a condition that cannot be read");
                }
                _ => {
                    let from = self.at;
                    let word = self.word(false);
                    if word.is("]]") {
                        break;
                    }
                    if self.at == from {
                        return self.unreadable("a condition that cannot be read");
                    }
                    let is_comparison = COMPARISONS.iter().any(|name| word.is(name));
                    if evaluates {
                        self.evaluated(&word);
                    }
                    if is_comparison && let Some(left) = &before {
                        self.evaluated(&left.clone());
                    }
                    evaluates = is_comparison;
                    if before.as_ref().is_some_and(|before| before.is("-v") || before.is("-R"))
                        && !word.literal().is_some_and(super::is_name)
                    {
                        self.unreadable("a variable's name that is expanded");
                    }
                    if word.is("=~") {
                        has_operator |= self.pattern();
                    }
                    before = Some(word);
                }
            }
        }
        if has_operator {
            self.other_reading(": ", start, self.at - 2);
        }
    }

    /// Reads the regular expression after `=~`: parentheses and pipes belong to it. True if there are any.
    fn pattern(&mut self) -> bool {
        while let Some(' ' | '\t') = self.peek() {
            self.at += 1;
        }
        let mut has_operator = false;
        while let Some(c) = self.chars.get(self.at).copied().filter(|c| !c.is_whitespace()) {
            match c {
                '(' | ')' | '|' => {
                    has_operator = true;
                    self.at += 1;
                }
                '$' => self.dollar(&mut super::ShellWord::default(), true),
                '"' => {
                    self.at += 1;
                    self.double_quotes(&mut super::ShellWord::default());
                }
                '\\' if self.peek_at(1).is_some_and(|c| !c.is_whitespace() && c != '\'' && c != '"') => {
                    self.at += 2;
                }
                '`' | '\'' | '\\' | ';' | '&' | '<' | '>' | '#' => {
                    self.unreadable("a regular expression that cannot be read");
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
        has_operator
    }
}
