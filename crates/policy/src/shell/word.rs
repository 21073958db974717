//! One word of a command, after quoting.

use super::context::PossibleValues;
use super::is_assignment;
use super::reader::ShellReader;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each by its name")]
pub(crate) struct ShellWord {
    pub(crate) text: String,
    /// Contains `*`, `?`, `[…]` or an expansion, which is written as `*`.
    pub(crate) wild: bool,
    /// Contains an expansion.
    pub(crate) expanded: bool,
    /// Contains quotes or backslashes.
    pub(super) quoted: bool,
    /// Contains an expansion outside of quotes, which may become several words.
    pub(super) splits: bool,
    /// Variables that are expanded in it.
    pub(super) variables: Vec<String>,
    /// The least known output of the command substitutions in it.
    pub(super) output: PossibleValues,
    /// Contains an opening brace outside of quotes.
    pub(super) braces: bool,
    /// Contains an opening bracket outside of quotes.
    pub(super) bracket: bool,
}

impl ShellWord {
    /// Reports whether this is exactly the text, without quotes.
    pub(super) fn is(&self, text: &str) -> bool {
        !self.quoted && !self.expanded && self.text == text
    }

    /// Returns the text, if nothing in it is decided at run time.
    pub(super) fn literal(&self) -> Option<&str> {
        (!self.wild && !self.expanded).then_some(self.text.as_str())
    }

    /// Returns the possible values of a variable that is assigned the text from byte `from` on.
    pub(super) fn value(&self, from: usize) -> PossibleValues {
        let text = &self.text[from..];
        let is_number = |c: char| c.is_ascii_digit() || (c == '*' && self.expanded);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%,+-".contains(c);
        if !self.variables.is_empty() {
            PossibleValues::Anything
        } else if text.chars().all(is_number) {
            self.output
        } else if !self.expanded && text.chars().all(is_plain) && !text.starts_with(['-', '+']) {
            PossibleValues::Name
        } else {
            PossibleValues::Anything
        }
    }

    /// Reports whether the file name of the program that the word names is literal.
    pub(super) fn names_program(&self) -> bool {
        let name = self.text.rsplit('/').next().unwrap_or_default();
        let has_path = name.len() < self.text.len();
        let is_literal = !name.is_empty() && !name.contains(['*', '?', '[', '{']);
        match (self.wild || self.expanded || self.braces, self.text.starts_with('~') && !self.quoted) {
            (false, false) => true,
            (false, true) => has_path && is_literal,
            (true, _) => self.expanded && !self.braces && has_path && is_literal,
        }
    }
}

impl ShellReader<'_> {
    /// Reads one word; empty and without progress if none begins here. `assignable`: the word may be an assignment,
    /// possibly of an array.
    pub(super) fn word(&mut self, assignable: bool) -> ShellWord {
        let mut word = ShellWord::default();
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | ')' => break,
                '<' | '>' if self.peek_at(1) != Some('(') => break,
                '<' | '>' => {
                    self.at += 2;
                    self.substitution(&mut word);
                    word.quoted = true; // one word, whatever its value
                }
                '(' => {
                    if !(assignable && is_array(&word)) {
                        break;
                    }
                    self.array(&mut word);
                }
                '\'' => self.single_quotes(&mut word),
                '"' => {
                    self.at += 1;
                    self.double_quotes(&mut word);
                }
                '`' => {
                    self.at += 1;
                    self.backquotes(&mut word, false);
                }
                '$' => self.dollar(&mut word, false),
                '\\' => {
                    if self.peek_at(1).is_none() {
                        self.unreadable("a backslash at the end");
                    }
                    word.quoted = true;
                    word.text.extend(self.peek_at(1));
                    self.advance(2);
                }
                c => {
                    self.unquoted(c, &mut word);
                    self.at += 1;
                }
            }
        }
        Self::check_braces(&mut word);
        word
    }

    fn unquoted(&mut self, c: char, word: &mut ShellWord) {
        match c {
            '*' | '?' => word.wild = true,
            '[' => word.bracket = true,
            ']' => word.wild |= word.bracket,
            '{' => word.braces = true,
            // For a shell, a carriage return belongs to the word, but it is invisible. Other blanks depend on the
            // locale.
            c if c.is_control() || (c.is_whitespace() && !c.is_ascii()) => {
                self.unreadable("a blank or control character that shells read differently");
            }
            _ => {}
        }
        word.text.push(c);
    }

    /// Checks braces: bash expands a word with braces to several words; dash does not.
    fn check_braces(word: &mut ShellWord) {
        let expands =
            word.braces && word.text.contains('}') && (word.text.contains(',') || word.text.contains(".."));
        word.braces = expands;
        word.wild |= expands;
        word.expanded |= expands;
        word.splits |= expands;
    }

    fn single_quotes(&mut self, word: &mut ShellWord) {
        word.quoted = true;
        self.at += 1;
        while let Some(c) = self.chars.get(self.at).copied() {
            self.at += 1;
            if c == '\'' {
                return;
            }
            self.check_quoted_line(c);
            word.text.push(c);
        }
        self.unreadable("a quote is not closed");
    }

    pub(super) fn double_quotes(&mut self, word: &mut ShellWord) {
        word.quoted = true;
        while let Some(c) = self.peek() {
            match c {
                '"' => {
                    self.at += 1;
                    return;
                }
                '\\' => {
                    match self.peek_at(1) {
                        Some(c @ ('"' | '\\' | '$' | '`')) => word.text.push(c),
                        Some(c) => word.text.extend(['\\', c]),
                        None => self.unreadable("a backslash at the end"),
                    }
                    self.advance(2);
                }
                '`' => {
                    self.at += 1;
                    self.backquotes(word, true);
                }
                '$' => self.dollar(word, true),
                c => {
                    self.check_quoted_line(c);
                    word.text.push(c);
                    self.at += 1;
                }
            }
        }
        self.unreadable("a quote is not closed");
    }

    /// Rejects a line that ends inside of a quote while a here-document waits for its body: shells disagree about its
    /// position.
    fn check_quoted_line(&mut self, c: char) {
        if c == '\n' && !self.pending.is_empty() {
            self.unreadable("a quoted line before a here-document");
        }
    }

    /// Reads the elements of an array, after the opening parenthesis.
    fn array(&mut self, word: &mut ShellWord) {
        self.at += 1;
        loop {
            self.skip_lines();
            match self.peek() {
                Some(')') => {
                    self.at += 1;
                    break;
                }
                None | Some(';' | '&' | '|' | '(') => {
                    return self.unreadable("an array that cannot be read");
                }
                Some('<' | '>') if self.peek_at(1) != Some('(') => {
                    return self.unreadable("an array that cannot be read");
                }
                _ => {
                    let element = self.word(false);
                    // `[x]=1`: the subscript of an indexed array is arithmetic.
                    if let Some((subscript, _)) =
                        element.text.strip_prefix('[').and_then(|t| t.split_once(']'))
                    {
                        let subscript = ShellWord { text: subscript.to_owned(), ..element.clone() };
                        self.evaluated(&subscript);
                    }
                }
            }
        }
        word.text.push('*');
        word.expanded = true;
        word.wild = true;
        word.output = PossibleValues::Anything;
    }
}

/// Reports whether a word is `x=` or `x+=`, without quotes.
fn is_array(word: &ShellWord) -> bool {
    !word.quoted && !word.expanded && word.text.ends_with('=') && is_assignment(&word.text)
}
