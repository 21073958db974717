//! Arithmetic. bash evaluates the values of variables as expressions again, and with them the substitutions in the
//! subscripts of arrays: `x='a[$(rm y)]'; echo $((x))` runs `rm`. So every variable in an expression must be a number.

use super::context::PossibleValues;
use super::read_into;
use super::reader::ShellReader;
use super::word::ShellWord;

impl ShellReader<'_> {
    /// Reads `$((…))`; the parentheses come next.
    pub(super) fn arithmetic_expansion(&mut self, word: &mut ShellWord, in_quotes: bool) {
        self.at += 2;
        self.expression(false);
        word.expand(in_quotes);
    }

    /// Reads `((…))` as a command or the head of a loop. dash reads two subshells, with a command inside.
    pub(super) fn arithmetic_command(&mut self) {
        if self.peek_at(1) != Some('(') {
            self.at += 1;
            return self.unreadable("a parenthesis where none is expected");
        }
        self.at += 2;
        let start = self.at;
        let is_closed = self.expression(true);
        if !is_closed {
            return;
        }
        let body = &self.chars[start..self.at - 2];
        let is_command = |c: &char| c.is_ascii_alphabetic() || matches!(c, '$' | '_');
        if body.iter().any(is_command) {
            self.other_reading("", start, self.at - 2);
        }
    }

    /// Reads the characters of a bash construct as dash does: as commands, the first after `lead`.
    pub(super) fn other_reading(&mut self, lead: &str, start: usize, end: usize) {
        let body: String = self.chars[start..end].iter().collect();
        let outer = self.context.begin_other_shell();
        read_into(&format!("{lead}{body}"), self.depth + 1, self.context);
        self.context.end_other_shell(outer);
    }

    /// Reads up to `))`, which is consumed; false if that is not there.
    fn expression(&mut self, is_command: bool) -> bool {
        let mut parentheses = 0usize;
        let mut before = ' ';
        while let Some(c) = self.chars.get(self.at).copied() {
            match c {
                ')' if parentheses > 0 => parentheses -= 1,
                ')' if self.peek_at(1) == Some(')') => {
                    self.at += 2;
                    return true;
                }
                ')' => {
                    self.unreadable("an expression that may be a command");
                    self.at += 1;
                    return false;
                }
                '(' => parentheses += 1,
                ';' if is_command && parentheses == 0 => {}
                c => {
                    let is_name = c.is_ascii_alphanumeric() || c == '_';
                    // Two names in a row are not an expression, but may be a command.
                    if is_name && (before.is_ascii_alphanumeric() || before == '_') {
                        self.unreadable("an expression that may be a command");
                    }
                    if !self.operand(c) {
                        return false;
                    }
                    if c != ' ' {
                        before = c;
                    }
                    continue;
                }
            }
            before = c;
            self.at += 1;
        }
        self.unreadable("an expression is not closed");
        false
    }

    /// Reads an operand or operator of an expression.
    fn operand(&mut self, c: char) -> bool {
        match c {
            '$' => {
                let mut word = ShellWord::default();
                self.dollar(&mut word, true);
                self.need_number(&word);
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let rest = self.chars[self.at..].iter();
                let name: String = rest.take_while(|c| c.is_ascii_alphanumeric() || **c == '_').collect();
                self.at += name.len();
                self.context.need(&name, PossibleValues::Number);
            }
            c if c.is_ascii_digit() => {
                while self.chars.get(self.at).is_some_and(char::is_ascii_digit) {
                    self.at += 1;
                }
            }
            c if " \t+-*/%<>=!&|^~?:,".contains(c) => self.at += 1,
            '[' | ']' => self.at += 1,
            _ => {
                self.unreadable("an expression that cannot be read");
                self.at += 1;
                return false;
            }
        }
        true
    }

    /// Records that a word is evaluated as an expression.
    pub(super) fn need_number(&mut self, word: &ShellWord) {
        if word.output > PossibleValues::Number {
            self.unreadable("output of a command in an expression");
        }
        for name in &word.variables {
            self.context.need(name, PossibleValues::Number);
        }
    }

    /// Reads the subscript of `${x[…]}`, with its brackets.
    pub(super) fn subscript(&mut self) {
        self.at += 1;
        if matches!((self.peek_at(0), self.peek_at(1)), (Some('@' | '*'), Some(']'))) {
            self.at += 2;
            return;
        }
        while let Some(c) = self.chars.get(self.at).copied() {
            if c == ']' {
                self.at += 1;
                return;
            }
            if c == '[' || c == '\n' || !self.operand(c) {
                self.unreadable("a subscript that cannot be read");
                return;
            }
        }
        self.unreadable("a subscript is not closed");
    }

    /// Reads offset and length of a substring, with the closing brace.
    pub(super) fn arithmetic_until_brace(&mut self) {
        while let Some(c) = self.chars.get(self.at).copied() {
            if c == '}' {
                self.at += 1;
                return;
            }
            let is_read = match c {
                '(' | ')' => {
                    self.at += 1;
                    true
                }
                c => self.operand(c),
            };
            if !is_read {
                return;
            }
        }
        self.unreadable("an expansion is not closed");
    }

    /// Reads a word that a builtin evaluates as an expression: `let x=y+1`, `[[ x -eq y ]]`.
    pub(super) fn evaluated(&mut self, word: &ShellWord) {
        self.need_number(word);
        let text = word.text.as_str();
        let is_allowed = |c: char| {
            c.is_ascii_alphanumeric() || "_ +-*/%<>=!&|^~?:,()".contains(c) || (c == '*' && word.expanded)
        };
        if !text.chars().all(is_allowed) {
            return self.unreadable("an expression that cannot be read");
        }
        for name in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if super::is_name(name) {
                self.context.need(name, PossibleValues::Number);
            }
        }
    }
}
