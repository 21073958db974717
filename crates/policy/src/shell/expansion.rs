//! Expansions: parameters, command substitutions, and the quotes that begin with a dollar.

use super::context::PossibleValues;
use super::reader::{ListEnd, ShellReader};
use super::word::ShellWord;
use super::{SimpleCommand, is_name, read_into};
use crate::programs::base;

/// Programs that print numbers, if their arguments are plain.
const COUNTERS: &[&str] = &["date", "wc", "seq", "nproc"];
/// Programs that print the names of existing objects, and not text from their arguments.
const LISTERS: &[&str] = &[
    "pwd", "git", "ls", "docker", "podman", "kubectl", "pgrep", "which", "whoami", "id", "hostname", "uname",
    "arch", "nproc", "lsof", "pidof", "tty", "cargo", "npm", "go", "brew", "gh", "wc", "cd",
];
/// Programs that pass on what they read.
const FILTERS: &[&str] = &["head", "tail", "sort", "uniq", "grep", "cut"];

impl ShellReader<'_> {
    /// Reads an expansion; the dollar comes next.
    pub(super) fn dollar(&mut self, word: &mut ShellWord, in_quotes: bool) {
        if self.context.enter() {
            self.expansion(word, in_quotes);
            self.context.leave();
        } else {
            self.at = self.chars.len();
        }
    }

    fn expansion(&mut self, word: &mut ShellWord, in_quotes: bool) {
        self.at += 1;
        match (self.chars.get(self.at).copied(), self.peek_at(1)) {
            (Some('('), Some('(')) => self.arithmetic_expansion(word, in_quotes),
            (Some('('), _) => {
                self.at += 1;
                self.substitution(word);
                word.splits |= !in_quotes;
            }
            (Some('{'), _) => {
                self.at += 1;
                self.braced(word, in_quotes);
            }
            (Some('['), _) => {
                self.unreadable("arithmetic in brackets");
                word.text.push('$');
            }
            (Some('\''), _) if !in_quotes => self.ansi_quotes(word),
            (Some('"'), _) if !in_quotes => {
                self.at += 1;
                self.double_quotes(word);
            }
            (Some(c), _) if c.is_ascii_alphabetic() || c == '_' => {
                let rest = self.chars[self.at..].iter();
                let name: String = rest.take_while(|c| c.is_ascii_alphanumeric() || **c == '_').collect();
                self.at += name.len();
                self.variable(&name, word, in_quotes);
            }
            (Some(c), _) if c.is_ascii_digit() || "@*#?$!-".contains(c) => {
                self.at += 1;
                self.variable(&c.to_string(), word, in_quotes);
            }
            (Some('\\'), Some('\n')) => self.unreadable("a line that continues inside of an expansion"),
            _ => word.text.push('$'),
        }
    }

    fn variable(&mut self, name: &str, word: &mut ShellWord, in_quotes: bool) {
        if name == "IFS" && !in_quotes {
            self.unreadable("blanks that are expanded");
        }
        word.expand(in_quotes);
        if !matches!(name, "#" | "?" | "$" | "!" | "-") {
            word.variables.push(name.to_owned());
        }
    }

    /// Reads a command substitution or process substitution, after its opening parenthesis.
    pub(super) fn substitution(&mut self, word: &mut ShellWord) {
        let before = self.context.commands().len();
        let outer = std::mem::replace(&mut self.in_pipe, false);
        self.nested(ListEnd::Parenthesis);
        self.in_pipe = outer;
        let output = printed_by(self.context.commands().get(before..).unwrap_or_default());
        word.output = word.output.max(output);
        word.expand(true);
    }

    /// Reads an old-style substitution, after its opening quote.
    pub(super) fn backquotes(&mut self, word: &mut ShellWord, in_quotes: bool) {
        let mut body = String::new();
        let mut is_closed = false;
        while let Some(c) = self.chars.get(self.at).copied() {
            self.at += 1;
            match c {
                '`' => {
                    is_closed = true;
                    break;
                }
                '\\' => match self.chars.get(self.at).copied() {
                    Some(escaped @ ('`' | '\\' | '$')) => {
                        body.push(escaped);
                        self.at += 1;
                    }
                    Some('"' | '\n') | None => self.unreadable("an escape inside of backquotes"),
                    Some(_) => body.push('\\'),
                },
                '\n' if !self.pending.is_empty() => self.unreadable("a substitution before a here-document"),
                c => body.push(c),
            }
        }
        if !is_closed || !is_balanced(&body) {
            self.unreadable("backquotes that cannot be read");
        }
        let before = self.context.commands().len();
        read_into(&body, self.depth + 1, self.context);
        let output = printed_by(self.context.commands().get(before..).unwrap_or_default());
        word.output = word.output.max(output);
        word.expand(in_quotes);
    }

    /// Reads `${…}`, after the opening brace.
    fn braced(&mut self, word: &mut ShellWord, in_quotes: bool) {
        let start = self.at;
        if matches!(self.peek_at(0), Some('!')) && self.peek_at(1) != Some('}') {
            self.unreadable("a variable that is named by another");
        }
        // The length of a variable.
        if self.peek_at(0) == Some('#') && self.peek_at(1) != Some('}') {
            self.at += 1;
        }
        let rest = &self.chars[self.at..];
        let mut name: String = rest.iter().take_while(|c| c.is_ascii_alphanumeric() || **c == '_').collect();
        if name.is_empty() {
            name =
                rest.first().filter(|c| "@*#?$!-".contains(**c)).map(ToString::to_string).unwrap_or_default();
        }
        self.at += name.chars().count();
        if name.is_empty() {
            self.unreadable("an expansion without a variable");
        }
        if self.peek_at(0) == Some('[') {
            self.subscript();
        }
        self.operator_of_expansion(&name, word);
        let body = &self.chars[start..self.at.min(self.chars.len())];
        if body == ['I', 'F', 'S', '}'] && !in_quotes {
            self.unreadable("blanks that are expanded");
        }
        word.expand(in_quotes);
        word.variables.push(name);
    }

    /// Reads the operator after the variable of `${…}`, with the closing brace.
    fn operator_of_expansion(&mut self, name: &str, word: &mut ShellWord) {
        match (self.peek_at(0), self.peek_at(1)) {
            (Some('@'), Some('Q' | 'U' | 'u' | 'L' | 'E' | 'A' | 'a' | 'K' | 'k')) => self.at += 2,
            (Some('@'), _) => self.unreadable("an expansion that is expanded again"),
            (Some(':'), Some('-' | '+' | '?' | '=')) | (Some('-' | '+' | '?' | '='), _) => {
                let assigns = self.peek_at(0) == Some('=') || self.peek_at(1) == Some('=');
                if assigns && is_name(name) {
                    self.context.assign(name, PossibleValues::Anything, "*");
                }
                word.output = PossibleValues::Anything;
            }
            // A substring: both numbers are arithmetic.
            (Some(':'), _) => return self.arithmetic_until_brace(),
            (Some('}' | '#' | '%' | '/' | '^' | ','), _) => {}
            _ => self.unreadable("an expansion that cannot be read"),
        }
        while let Some(c) = self.chars.get(self.at).copied() {
            match c {
                '}' => {
                    self.at += 1;
                    return;
                }
                '$' => {
                    let mut inner = ShellWord::default();
                    self.dollar(&mut inner, true);
                    word.output = word.output.max(inner.output);
                    word.variables.extend(inner.variables);
                }
                '`' | '\'' | '"' | '\\' | '{' | '\n' | '<' | '>' => {
                    self.unreadable("quotes inside of an expansion");
                    if c == '`' {
                        self.at += 1;
                        self.backquotes(&mut ShellWord::default(), true);
                    } else {
                        self.at += 1;
                    }
                }
                _ => self.at += 1,
            }
        }
        self.unreadable("an expansion is not closed");
    }

    /// Reads `$'…'`, with the opening quote. For dash the dollar is a character and the rest a plain quote.
    fn ansi_quotes(&mut self, word: &mut ShellWord) {
        word.quoted = true;
        self.at += 1;
        let mut body = String::new();
        while let Some(c) = self.chars.get(self.at).copied() {
            self.at += 1;
            match c {
                '\'' => {
                    word.text.push_str(&self.unescape(&body));
                    return;
                }
                '\\' => {
                    body.push('\\');
                    if matches!(self.chars.get(self.at), Some('\'' | '\n')) {
                        self.unreadable("an escaped quote that shells read differently");
                    }
                    body.extend(self.chars.get(self.at));
                    self.advance(1);
                }
                c => {
                    if c == '\n' && !self.pending.is_empty() {
                        self.unreadable("a quoted line before a here-document");
                    }
                    body.push(c);
                }
            }
        }
        self.unreadable("a quote is not closed");
        word.text.push_str(&body);
    }

    /// Decodes the text of `$'…'`.
    fn unescape(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '\\' {
                out.push(c);
                continue;
            }
            let Some(kind) = chars.next() else { break };
            let (radix, digits, mut code) = match kind {
                'x' => (16, 2, 0),
                'u' => (16, 4, 0),
                'U' => (16, 8, 0),
                '0'..='7' => (8, 2, kind.to_digit(8).unwrap_or_default()),
                'n' | 't' | '\\' | '"' | '?' => {
                    out.push(match kind {
                        'n' => '\n',
                        't' => '\t',
                        other => other,
                    });
                    continue;
                }
                'a' | 'b' | 'e' | 'E' | 'f' | 'v' | 'r' | 'c' => {
                    self.unreadable("a control character");
                    continue;
                }
                other => {
                    out.extend(['\\', other]);
                    continue;
                }
            };
            for _ in 0..digits {
                let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
                code = code.wrapping_mul(radix).wrapping_add(digit);
                chars.next();
            }
            match char::from_u32(code).filter(|c| *c == '\n' || !c.is_control()) {
                // Bytes beyond ASCII form characters only together.
                Some(c) if c.is_ascii() || matches!(kind, 'u' | 'U') => out.push(c),
                _ => self.unreadable("a control character"),
            }
        }
        out
    }
}

impl ShellWord {
    /// Records that something is expanded at this place.
    pub(super) fn expand(&mut self, in_quotes: bool) {
        self.text.push('*');
        self.wild = true;
        self.expanded = true;
        self.splits |= !in_quotes;
        self.quoted |= in_quotes;
    }
}

/// Reports whether quotes are closed and nothing looks like a comment, so that every shell finds the same end.
fn is_balanced(body: &str) -> bool {
    let mut quote = None;
    let mut before = ' ';
    for c in body.chars() {
        match (quote, c) {
            (None, '\'' | '"') if before != '\\' => quote = Some(c),
            (Some(mark), c) if mark == c && before != '\\' => quote = None,
            (None, '#') if " \t\n;&|()".contains(before) => return false,
            _ => {}
        }
        before = c;
    }
    quote.is_none()
}

/// Returns the possible output of the commands of a substitution.
fn printed_by(commands: &[SimpleCommand]) -> PossibleValues {
    let name = |simple: &SimpleCommand| simple.words.first().map(|word| base(&word.text)).unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+%._/:-".contains(c);
    let counts = |simple: &SimpleCommand| {
        let is_plain = |word: &super::ShellWord| !word.expanded && word.text.chars().all(is_plain);
        COUNTERS.contains(&name(simple).as_str())
            && simple.words.iter().all(is_plain)
            && simple.input.is_none()
    };
    let lists = |simple: &SimpleCommand| {
        let is_plain = |c: char| is_plain(c) && c != '%' || "*{}@=,^~".contains(c);
        let name = name(simple);
        (LISTERS.contains(&name.as_str()) || (simple.piped && FILTERS.contains(&name.as_str())))
            && simple.words.iter().all(|word| word.text.chars().all(is_plain))
            && simple.input.is_none()
    };
    match commands {
        [] => PossibleValues::Number,
        [only] if counts(only) => PossibleValues::Number,
        [first @ .., last] if counts(last) && first.iter().all(lists) => PossibleValues::Number,
        commands if commands.iter().all(lists) => PossibleValues::Listing,
        _ => PossibleValues::Anything,
    }
}
