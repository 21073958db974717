//! The grammar: lists, pipelines and compound commands.
//!
//! Compound commands are read flat: `if a; then b; fi` is the commands `a` and `b`, since it does not matter which
//! of them run. Only constructs that change how characters are read nest: parentheses, substitutions and `case`.
//! If the grammar accepts an invalid text, the shell would refuse it and run less than is reported.

use super::context::{PossibleValues, ScriptContext};
use super::here_document::HereDocument;
use super::word::ShellWord;
use super::{SimpleCommand, is_assignment, is_name};

/// Words that begin or continue a compound command and precede a command.
const OPENERS: &[&str] = &["if", "then", "else", "elif", "while", "until", "do", "{", "!"];
/// Words that end a compound command.
const CLOSERS: &[&str] = &["fi", "done", "}"];

/// The mark that ends a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListEnd {
    Text,
    Parenthesis,
    /// `;;`, `;&`, `;;&` or `esac`.
    CaseItem,
}

/// The role of the next word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordPosition {
    /// Reserved words are recognised.
    Start,
    /// After an assignment or a redirection.
    Assignments,
    Arguments,
}

pub(super) struct ShellReader<'a> {
    pub(super) chars: &'a [char],
    pub(super) at: usize,
    pub(super) depth: usize,
    pub(super) context: &'a mut ScriptContext,
    /// Here-documents whose bodies begin on the next line.
    pub(super) pending: Vec<HereDocument>,
    /// The enclosing command reads from a pipe.
    pub(super) in_pipe: bool,
    /// `esac` was read where a command was expected.
    found_esac: bool,
}

impl<'a> ShellReader<'a> {
    pub(super) fn new(chars: &'a [char], depth: usize, context: &'a mut ScriptContext) -> Self {
        let (pending, in_pipe) = (Vec::new(), false);
        Self { chars, at: 0, depth, context, pending, in_pipe, found_esac: false }
    }

    pub(super) fn read_all(mut self) {
        self.list(ListEnd::Text);
        if !self.pending.is_empty() {
            self.unreadable("a here-document does not end");
        }
    }

    /// Reads a list up to its end, which is consumed. Nested lists start without here-documents, and must not leave
    /// any: shells disagree about the position of their bodies.
    pub(super) fn nested(&mut self, end: ListEnd) {
        if !self.context.enter() {
            self.at = self.chars.len();
            return;
        }
        if !self.pending.is_empty() {
            self.unreadable("a list between a here-document and its body");
        }
        self.list(end);
        self.context.leave();
        if !self.pending.is_empty() && end == ListEnd::Parenthesis {
            self.unreadable("a here-document without a body");
        }
    }

    fn list(&mut self, end: ListEnd) {
        let mut piped = self.in_pipe;
        loop {
            self.skip_lines();
            match self.peek() {
                None if end == ListEnd::Text => return,
                None => return self.unreadable("a list does not end"),
                Some(')') => {
                    self.at += 1;
                    if end == ListEnd::Parenthesis {
                        return;
                    }
                    self.unreadable("a parenthesis that closes nothing");
                }
                Some(';') if end == ListEnd::CaseItem && matches!(self.peek_at(1), Some(';' | '&')) => {
                    self.case_mark();
                    return;
                }
                Some(';' | '&' | '|') => {
                    self.at += 1;
                    self.unreadable("an operator without a command before it");
                }
                Some(_) => {
                    self.command(piped);
                    if std::mem::take(&mut self.found_esac) {
                        if end == ListEnd::CaseItem {
                            return;
                        }
                        self.unreadable("`esac` without `case`");
                    }
                    piped = self.separator() || self.in_pipe;
                }
            }
        }
    }

    /// Reads `;;`, `;&` or `;;&`.
    fn case_mark(&mut self) {
        self.at += 2;
        if self.peek_at(0) == Some('&') && self.chars.get(self.at - 1) == Some(&';') {
            self.at += 1;
        }
    }

    /// Reads the separator of two commands; true for a pipe.
    fn separator(&mut self) -> bool {
        self.skip_blanks();
        match (self.peek(), self.peek_at(1)) {
            (Some(';'), Some(';' | '&')) => false,
            (Some(';'), _) => {
                self.at += 1;
                false
            }
            (Some('&'), Some('&')) | (Some('|'), Some('|')) => {
                self.at += 2;
                self.glued_operator();
                false
            }
            (Some('&'), _) => {
                self.at += 1;
                self.glued_operator();
                false
            }
            (Some('|'), next) => {
                self.at += if next == Some('&') { 2 } else { 1 };
                self.glued_operator();
                true
            }
            _ => false,
        }
    }

    /// Rejects adjacent operators such as `&&&`, which shells split differently.
    fn glued_operator(&mut self) {
        if matches!(self.peek(), Some('&' | '|' | ';')) {
            self.unreadable("operators that touch");
        }
    }

    /// Reads one command at the place where a command begins.
    fn command(&mut self, piped: bool) {
        let mut simple = SimpleCommand { piped, ..SimpleCommand::default() };
        let mut position = WordPosition::Start;
        let mut alternative: Option<usize> = None;
        loop {
            self.skip_blanks();
            match (self.peek(), self.peek_at(1)) {
                (Some('&'), Some('>')) => {
                    // dash ends a command here and begins another after the redirection.
                    self.at += 1;
                    self.redirection(&mut simple);
                    alternative = Some(simple.words.len());
                    position = position.after_prefix();
                }
                (None | Some('\n' | ';' | '|' | ')' | '&'), _) => break,
                (Some('<' | '>'), next) if next != Some('(') => {
                    self.redirection(&mut simple);
                    position = position.after_prefix();
                }
                (Some('('), next) => {
                    if position != WordPosition::Start || !simple.words.is_empty() {
                        self.parenthesis_in_command(&mut simple, &mut position);
                    } else if next == Some('(') {
                        self.arithmetic_command();
                        position = WordPosition::Arguments;
                    } else {
                        self.at += 1;
                        let outer = std::mem::replace(&mut self.in_pipe, piped);
                        self.nested(ListEnd::Parenthesis);
                        self.in_pipe = outer;
                        position = WordPosition::Arguments;
                    }
                }
                _ => {
                    if self.next_word(&mut simple, &mut position) {
                        break;
                    }
                }
            }
        }
        if let Some(from) = alternative.filter(|from| *from < simple.words.len()) {
            let words = simple.words[from..].to_vec();
            self.finish(&SimpleCommand { words, piped, ..SimpleCommand::default() });
        }
        self.finish(&simple);
    }

    /// Reads one word of a command; true if the command is over.
    fn next_word(&mut self, simple: &mut SimpleCommand, position: &mut WordPosition) -> bool {
        let start = self.at;
        let word = self.word(*position != WordPosition::Arguments || Self::declares(simple));
        if self.at == start {
            self.unreadable("a character that cannot begin a word");
            self.at += 1;
            return false;
        }
        let is_glued = matches!(self.peek(), Some('<' | '>')) && self.peek_at(1) != Some('(');
        if is_glued && !word.quoted && !word.text.is_empty() && word.text.chars().all(|c| c.is_ascii_digit())
        {
            return false; // the number of a descriptor
        }
        if is_glued && let Some(name) = word.text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
            // bash stores a descriptor in the variable; for dash it is a word.
            if !word.quoted && is_name(name) {
                return false;
            }
            self.unreadable("a descriptor in an array");
        }
        if *position == WordPosition::Start
            && !word.quoted
            && !word.expanded
            && self.reserved(&word, simple.piped)
        {
            return self.found_esac;
        }
        let leads = *position != WordPosition::Arguments;
        if leads && is_assignment(&word.text) {
            if self.is_quoted_name(start, &word) {
                self.unreadable("a program that looks like an assignment");
            }
            self.assignment(&word);
            *position = WordPosition::Assignments;
        } else {
            *position = WordPosition::Arguments;
        }
        simple.words.push(word);
        false
    }

    fn is_quoted_name(&self, start: usize, word: &ShellWord) -> bool {
        let length = word.text.split('=').next().unwrap_or_default().chars().count();
        let written = self.chars.iter().skip(start).take(length);
        !written.eq(word.text.chars().take(length).collect::<Vec<_>>().iter())
    }

    /// Reports whether the command accepts assignments as arguments: `declare -a x=(…)`.
    fn declares(simple: &SimpleCommand) -> bool {
        let names = ["declare", "typeset", "local", "export", "readonly"];
        simple.words.first().is_some_and(|word| names.iter().any(|name| word.is(name)))
    }

    /// Handles a reserved word; false for other words.
    fn reserved(&mut self, word: &ShellWord, piped: bool) -> bool {
        match word.text.as_str() {
            name if OPENERS.contains(&name) => {}
            name if CLOSERS.contains(&name) => {}
            "esac" => self.found_esac = true,
            "for" | "select" => self.for_loop(),
            "case" => {
                let outer = std::mem::replace(&mut self.in_pipe, piped);
                self.case();
                self.in_pipe = outer;
            }
            "function" => self.function(),
            "coproc" => self.coproc(),
            "time" => return self.time(),
            "[[" => self.conditional(),
            _ => return false,
        }
        true
    }

    fn for_loop(&mut self) {
        self.skip_blanks();
        if self.peek() == Some('(') {
            return self.arithmetic_command();
        }
        let name = self.word(false);
        if !is_name(&name.text) || name.quoted || name.expanded {
            return self.unreadable("a loop without a variable");
        }
        self.skip_lines();
        if !self.keyword("in") {
            // A loop over the positional parameters.
            return self.context.assign(&name.text, PossibleValues::Anything, "*");
        }
        loop {
            self.skip_blanks();
            match self.peek() {
                None | Some('\n' | ';') => return,
                Some('&' | '|' | '(' | ')') => return self.unreadable("an operator in a loop's words"),
                Some('<' | '>') if self.peek_at(1) != Some('(') => {
                    return self.unreadable("a redirection in a loop's words");
                }
                _ => {
                    let word = self.word(false);
                    let is_range = word.braces && word.text.chars().all(|c| "{}.,0123456789".contains(c));
                    // Existing files, or the literal text without such files.
                    let is_glob = word.wild && !word.expanded && !word.text.starts_with('-');
                    let value = match () {
                        () if is_range => PossibleValues::Number,
                        () if is_glob => PossibleValues::Listing,
                        () => word.value(0),
                    };
                    self.context.assign(&name.text, value, &word.text);
                }
            }
        }
    }

    /// Consumes the word if it comes next.
    pub(super) fn keyword(&mut self, text: &str) -> bool {
        let length = text.chars().count();
        let found =
            self.chars.get(self.at..self.at + length).is_some_and(|c| c.iter().copied().eq(text.chars()));
        let ends = self.chars.get(self.at + length).is_none_or(|c| " \t\n;&|<>()".contains(*c));
        if found && ends {
            self.at += length;
        }
        found && ends
    }

    fn case(&mut self) {
        self.skip_blanks();
        self.word(false);
        self.skip_lines();
        if !self.keyword("in") {
            return self.unreadable("`case` without `in`");
        }
        loop {
            self.skip_lines();
            if self.keyword("esac") {
                return;
            }
            if self.peek() == Some('(') {
                self.at += 1;
            }
            if !self.patterns() {
                return self.unreadable("a pattern that cannot be read");
            }
            if !self.context.enter() {
                self.at = self.chars.len();
                return;
            }
            let closed_by_mark = {
                let before = self.at;
                self.list(ListEnd::CaseItem);
                self.context.leave();
                self.at > before && matches!(self.chars.get(self.at - 1), Some(';' | '&'))
            };
            if !closed_by_mark {
                return;
            }
        }
    }

    /// Reads the patterns of one item of `case`, with the closing parenthesis.
    fn patterns(&mut self) -> bool {
        loop {
            self.skip_blanks();
            let start = self.at;
            match self.peek() {
                Some(')') => {
                    self.at += 1;
                    return true;
                }
                Some('|') => self.at += 1,
                Some('\n' | ';' | '&' | '<' | '>' | '(' | '#') | None => return false,
                Some(_) => {
                    self.word(false);
                }
            }
            if self.at == start {
                return false;
            }
        }
    }

    /// Reads `function name`, with or without parentheses.
    fn function(&mut self) {
        self.skip_blanks();
        let name = self.word(false);
        if name.text.is_empty() || name.quoted || name.expanded {
            self.unreadable("a function without a name");
        }
        self.skip_blanks();
        if self.peek() == Some('(') && self.peek_at(1) == Some(')') {
            self.at += 2;
        }
        self.skip_lines();
    }

    /// Skips the name of a coprocess, which only a compound command can have.
    fn coproc(&mut self) {
        const COMPOUND: &[&str] = &["{", "if", "while", "until", "for", "case", "select", "[[", ""];
        self.skip_blanks();
        let rest = &self.chars[self.at..];
        let word = |from: usize| -> String {
            rest[from..].iter().take_while(|c| !" \t\n;&|<>()".contains(**c)).collect()
        };
        let name = word(0);
        if COMPOUND.contains(&name.as_str()) {
            return;
        }
        let length = name.chars().count();
        let blanks = rest[length..].iter().take_while(|c| matches!(c, ' ' | '\t')).count();
        let next = word(length + blanks);
        let is_plain =
            |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_./-+=:@%,{[!".contains(c));
        if !is_plain(&name) || next.starts_with(['\\', '\'', '"', '$', '`']) {
            self.unreadable("a coprocess that cannot be read");
        } else if blanks > 0
            && ((COMPOUND.contains(&next.as_str()) && !next.is_empty())
                || rest.get(length + blanks) == Some(&'('))
        {
            self.at += length + blanks;
        }
    }

    /// Reads `time`, which is a reserved word unless options other than `-p` follow.
    fn time(&mut self) -> bool {
        self.skip_blanks();
        if self.keyword("-p") {
            self.skip_blanks();
            self.keyword("--");
            return true;
        }
        self.peek() != Some('-')
    }

    /// Reads a parenthesis after a word: a function definition, or syntax that shells disagree about.
    fn parenthesis_in_command(&mut self, simple: &mut SimpleCommand, position: &mut WordPosition) {
        self.at += 1;
        self.skip_blanks();
        let is_function = self.peek() == Some(')')
            && simple.words.len() == 1
            && simple.writes.is_empty()
            && simple.reads.is_empty()
            && !simple.words[0].quoted
            && !simple.words[0].wild
            && !is_assignment(&simple.words[0].text);
        if is_function {
            self.at += 1;
            self.skip_lines();
            simple.words.clear();
            *position = WordPosition::Start;
        } else if !self.context.is_other_shell() {
            // dash rejects this, and bash reads a pattern.
            self.unreadable("a parenthesis inside a command");
        }
    }

    pub(super) fn unreadable(&mut self, reason: &'static str) {
        self.context.unreadable(reason);
    }

    pub(super) fn peek(&mut self) -> Option<char> {
        while self.chars.get(self.at) == Some(&'\\') && self.chars.get(self.at + 1) == Some(&'\n') {
            self.continued_line();
        }
        self.chars.get(self.at).copied()
    }

    /// Reads a backslash at the end of a line. Shells agree about it between words and inside of them, not inside of
    /// operators and expansions.
    fn continued_line(&mut self) {
        let before = self.at.checked_sub(1).and_then(|at| self.chars.get(at)).copied();
        let after = self.chars.get(self.at + 2).copied();
        let is_operator = |c: Option<char>| c.is_some_and(|c| "&|;<>()$`{}#!".contains(c));
        if is_operator(before) && !matches!(after, Some(' ' | '\t' | 'a'..='z' | 'A'..='Z' | '.' | '/' | '-'))
            || before == Some('$')
            || (is_operator(after) && before.is_some_and(|c| c.is_ascii_digit()))
            || after == Some('#')
            || !self.pending.is_empty()
        {
            self.unreadable("a line that continues inside of an operator");
        }
        self.at += 2;
    }

    /// Advances, at most to the end.
    pub(super) fn advance(&mut self, characters: usize) {
        self.at = (self.at + characters).min(self.chars.len());
    }

    pub(super) fn peek_at(&self, offset: usize) -> Option<char> {
        self.chars.get(self.at + offset).copied()
    }

    pub(super) fn skip_blanks(&mut self) {
        while let Some(' ' | '\t') = self.peek() {
            self.at += 1;
        }
        if self.peek() == Some('#') && self.begins_word() {
            while self.chars.get(self.at).is_some_and(|c| *c != '\n') {
                self.at += 1;
            }
        }
    }

    fn begins_word(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.chars.get(at));
        before.is_none_or(|c| " \t\n;&|()<>".contains(*c))
    }

    /// Skips blanks, comments and lines, with the here-documents that begin on the next line.
    pub(super) fn skip_lines(&mut self) {
        loop {
            self.skip_blanks();
            if self.peek() != Some('\n') {
                return;
            }
            self.at += 1;
            self.here_documents();
        }
    }
}

impl WordPosition {
    fn after_prefix(self) -> Self {
        if self == Self::Start { Self::Assignments } else { self }
    }
}
