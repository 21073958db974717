//! Every simple command inside a shell text, read generously: this is what deny and ask rules and the assessment of
//! risk look at. Where the text cannot be read with certainty, it says so instead of guessing.

use super::programs::{Runs, base, runs};

/// Texts within texts (`sh -c "sh -c …"`, `$(…)`), at most.
const MAX_DEPTH: usize = 8;
/// All such texts together, at most.
const MAX_TEXTS: usize = 200;
/// Words of a program that runs others that may be what it runs, at most.
const MAX_VIEWS: usize = 256;
/// Commands in one text, at most.
const MAX_COMMANDS: usize = 2000;

/// All that a text runs, as far as it can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) commands: Vec<Simple>,
    /// Something in it is decided only when it runs, or cannot be read.
    pub(super) opaque: bool,
    /// Texts read so far, each within another.
    texts: usize,
}

/// One command: a program and its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Simple {
    pub(super) words: Vec<Word>,
    /// Files that the shell opens for it to write.
    pub(super) writes: Vec<String>,
    /// Files that the shell opens for it to read.
    pub(super) reads: Vec<String>,
    /// Reads what another command writes.
    pub(super) piped: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Holds `*`, `?`, `[…]` or something expanded, which is written as `*`.
    pub(super) wild: bool,
    /// Holds something expanded.
    pub(super) expanded: bool,
}

impl Script {
    /// The same with the paths below `directory` made relative to it.
    pub(super) fn relative_to(&self, directory: &str) -> Self {
        let mut script = self.clone();
        for simple in &mut script.commands {
            for text in simple
                .words
                .iter_mut()
                .map(|word| &mut word.text)
                .chain(&mut simple.writes)
                .chain(&mut simple.reads)
            {
                match text.strip_prefix(directory) {
                    Some("" | "/") => ".".clone_into(text),
                    Some(below) if below.starts_with('/') => *text = below[1..].to_owned(),
                    _ => {}
                }
            }
        }
        script
    }
}

impl Simple {
    /// The command without assignments, and whatever it runs in turn. Of a program that runs others any tail may be
    /// what it runs: its options need not be known.
    pub(super) fn views(&self) -> Vec<&[Word]> {
        let lead = self.words.iter().take_while(|word| is_assignment(&word.text)).count();
        let mut views = vec![&self.words[lead..]];
        let Some(program) = self.words.get(lead) else { return Vec::new() };
        let markers: &[&str] = match runs(&base(&program.text)) {
            Some(Runs::Named(markers) | Runs::Unclear(markers)) => markers,
            Some(_) => &[],
            None => return views,
        };
        let is_marker = |word: &Word| markers.contains(&word.text.as_str());
        let skipped =
            if markers.is_empty() { Some(0) } else { self.words[lead..].iter().position(is_marker) };
        let first = skipped.map_or(self.words.len(), |skipped| lead + skipped + 1);
        views.extend((first..self.words.len()).take(MAX_VIEWS).map(|from| &self.words[from..]));
        views
    }
}

pub(super) fn read(text: &str) -> Script {
    let mut script = Script::default();
    if text.len() > super::words::MAX_BYTES {
        script.opaque = true;
    } else {
        read_into(text, 0, &mut script);
    }
    script
}

fn read_into(text: &str, depth: usize, script: &mut Script) {
    script.texts += 1;
    if depth > MAX_DEPTH || script.texts > MAX_TEXTS || script.commands.len() > MAX_COMMANDS {
        script.opaque = true;
        return;
    }
    let chars: Vec<char> = text.chars().collect();
    Lexer {
        chars: &chars,
        at: 0,
        depth,
        script,
        word: None,
        target: Target::Word,
        simple: Simple::default(),
    }
    .run();
}

/// What the next word is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Word,
    Read,
    Write,
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
    depth: usize,
    script: &'a mut Script,
    word: Option<Word>,
    target: Target,
    simple: Simple,
}

impl Lexer<'_> {
    fn run(mut self) {
        while let Some(c) = self.next() {
            match c {
                ' ' | '\t' | '\r' => self.end_word(),
                '&' if self.peek() == Some('>') => self.end_word(),
                '\n' | ';' | '(' | ')' | '&' => self.end_command(false),
                '|' => {
                    let pipe = self.peek() != Some('|');
                    if !pipe || self.peek() == Some('&') {
                        self.at += 1;
                    }
                    self.end_command(pipe);
                }
                '<' | '>' => self.redirection(c),
                '\'' => {
                    let text = self.until('\'', false);
                    self.push_all(&text);
                }
                '"' => self.double(),
                '`' => {
                    let body = self.until('`', true);
                    self.nested(&body);
                }
                '$' => self.dollar(false),
                '\\' => match self.next() {
                    Some('\n') => {}
                    Some(c) => self.push(c),
                    None => self.script.opaque = true,
                },
                '*' | '?' | '[' => {
                    self.push(c);
                    self.current().wild = true;
                }
                '{' if self.word.is_some() || !matches!(self.peek(), Some(' ' | '\t' | '\n' | '}')) => {
                    // Braces make several words of one.
                    self.script.opaque = true;
                    self.push(c);
                }
                c => self.push(c),
            }
        }
        self.end_command(false);
    }

    fn redirection(&mut self, first: char) {
        if self.peek() == Some('(') {
            self.at += 1;
            let body = self.balanced(')');
            return self.nested(&body);
        }
        // The number before it is a descriptor, not a word.
        if self.word.as_ref().is_some_and(|word| word.text.chars().all(|c| c.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        let mut operator = first.to_string();
        while let Some(c @ ('<' | '>' | '&' | '|' | '-')) = self.peek() {
            operator.push(c);
            self.at += 1;
        }
        // Here-documents and here-strings: what the command is sent stands in the text.
        self.script.opaque |= operator.starts_with("<<");
        self.target =
            if operator.contains('>') && !operator.ends_with('-') { Target::Write } else { Target::Read };
        if operator.ends_with('-') && !operator.starts_with("<<") {
            self.target = Target::Word;
        }
    }

    fn double(&mut self) {
        self.current();
        loop {
            match self.next() {
                Some('"') => return,
                Some('\\') => match self.next() {
                    Some(c @ ('"' | '\\' | '$' | '`')) => self.push(c),
                    Some('\n') => {}
                    Some(c) => self.push_all(&format!("\\{c}")),
                    None => self.script.opaque = true,
                },
                Some('`') => {
                    let body = self.until('`', true);
                    self.nested(&body);
                }
                Some('$') => self.dollar(true),
                Some(c) => self.push(c),
                None => {
                    self.script.opaque = true;
                    return;
                }
            }
        }
    }

    fn dollar(&mut self, quoted: bool) {
        match self.peek() {
            Some('(') => {
                self.at += 1;
                let body = self.balanced(')');
                self.nested(&body);
            }
            Some('{') => {
                self.at += 1;
                let body = self.balanced('}');
                if body == "IFS" && !quoted {
                    return self.end_word();
                }
                if body.contains(['`', '(']) {
                    self.nested(&body);
                } else {
                    self.expanded();
                }
            }
            Some('\'') if !quoted => {
                self.at += 1;
                let text = self.until('\'', true);
                self.push_all(&unescape(&text));
            }
            Some('"') if !quoted => {}
            Some(c) if c.is_ascii_alphanumeric() || "_@*#?$!-".contains(c) => {
                let start = self.at;
                self.at += 1;
                while (c.is_ascii_alphabetic() || c == '_')
                    && self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
                {
                    self.at += 1;
                }
                if !quoted && self.chars[start..self.at] == ['I', 'F', 'S'] {
                    return self.end_word();
                }
                self.expanded();
            }
            _ => self.push('$'),
        }
    }

    fn nested(&mut self, body: &str) {
        self.expanded();
        read_into(body, self.depth + 1, self.script);
    }

    fn expanded(&mut self) {
        self.push('*');
        self.current().wild = true;
        self.current().expanded = true;
    }

    /// Up to the closing character; what is not closed goes on to the end.
    fn until(&mut self, close: char, escapes: bool) -> String {
        self.current();
        let mut text = String::new();
        while let Some(c) = self.next() {
            if c == close {
                return text;
            }
            text.push(c);
            if c == '\\' && escapes {
                // A backquote within backquotes is escaped once more.
                if close == '`' && self.peek() == Some('`') {
                    text.pop();
                }
                text.extend(self.next());
            }
        }
        self.script.opaque = true;
        text
    }

    /// Up to the bracket that closes the one just read, quotes aside.
    fn balanced(&mut self, close: char) -> String {
        let open = if close == ')' { '(' } else { '{' };
        let mut text = String::new();
        let (mut depth, mut quote) = (1, None);
        while let Some(c) = self.next() {
            match (quote, c) {
                (None, '\'' | '"') => quote = Some(c),
                (Some(mark), c) if mark == c => quote = None,
                (None, c) if c == open => depth += 1,
                (None, c) if c == close => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return text;
            }
            text.push(c);
            if c == '\\' && quote != Some('\'') {
                text.extend(self.next());
            }
        }
        self.script.opaque = true;
        text
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        match std::mem::replace(&mut self.target, Target::Word) {
            Target::Word => self.simple.words.push(word),
            Target::Write => self.simple.writes.push(word.text),
            Target::Read => self.simple.reads.push(word.text),
        }
    }

    fn end_command(&mut self, pipe: bool) {
        self.end_word();
        self.target = Target::Word;
        let simple = std::mem::take(&mut self.simple);
        if simple.words.is_empty() && simple.writes.is_empty() && simple.reads.is_empty() {
            // `curl x | (sh)`: still at the end of the pipe.
            self.simple.piped = pipe || simple.piped;
            return;
        }
        self.simple.piped = pipe;
        self.look_inside(&simple);
        self.script.commands.push(simple);
        if self.script.commands.len() > MAX_COMMANDS {
            self.script.opaque = true;
            self.at = self.chars.len();
        }
    }

    /// Texts that a command hands on to be run.
    fn look_inside(&mut self, simple: &Simple) {
        let views = simple.views();
        let Some(own) = views.first() else { return };
        let wrapped = views.len() > 1;
        self.script.opaque |= own[0].wild && own[0].text.chars().all(|c| c == '*');
        // Another name for a command, or a command as a setting.
        let lead = &simple.words[..simple.words.len() - own.len()];
        self.script.opaque |= lead.iter().any(|word| word.text.contains([' ', '\t']));
        self.script.opaque |= match base(&own[0].text).as_str() {
            "alias" => true,
            "git" => own.iter().any(|word| word.text == "-c" || word.text.starts_with("--config")),
            _ => false,
        };
        for view in &views {
            let (program, arguments) = (base(&view[0].text), &view[1..]);
            let has_script = arguments.iter().any(|word| !word.text.starts_with(['-', '+']));
            self.script.opaque |= match runs(&program) {
                Some(Runs::Shell) => !has_script,
                Some(Runs::Code(safe)) => {
                    let first = arguments.first().map(|word| word.text.as_str());
                    first.is_none_or(|first| first.starts_with('-') && !safe.contains(&first))
                }
                _ => false,
            };
        }
        let is_shell = |view: &&[Word]| runs(&base(&view[0].text)) == Some(Runs::Shell);
        if simple.piped && self.script.texts <= MAX_TEXTS && views.iter().any(is_shell) {
            self.fed();
        }
        if !wrapped {
            return;
        }
        self.script.opaque |= own.len() > MAX_VIEWS;
        for word in &own[1..] {
            if word.text.contains([' ', '\t', '\n', ';', '&', '|', '$', '`', '(']) {
                read_into(&word.text, self.depth + 1, self.script);
            }
        }
        if base(&own[0].text) == "eval" {
            let text: Vec<&str> = own[1..].iter().map(|word| word.text.as_str()).collect();
            read_into(&text.join(" "), self.depth + 1, self.script);
        }
    }

    /// What was echoed before a shell at the end of a pipe may be what it runs.
    fn fed(&mut self) {
        let echoed = |simple: &&Simple| {
            simple.words.first().is_some_and(|word| matches!(base(&word.text).as_str(), "echo" | "printf"))
        };
        let text = |simple: &Simple| {
            simple.words[1..].iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
        };
        let texts: Vec<String> = self.script.commands.iter().filter(echoed).map(text).collect();
        for text in texts {
            read_into(text.trim_start_matches(['-', 'e', 'n']).trim_start(), self.depth + 1, self.script);
            read_into(&text, self.depth + 1, self.script);
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn current(&mut self) -> &mut Word {
        self.word.get_or_insert_default()
    }

    fn push(&mut self, c: char) {
        self.current().text.push(c);
    }

    fn push_all(&mut self, text: &str) {
        self.current().text.push_str(text);
    }
}

pub(super) fn is_assignment(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default().trim_end_matches('+');
    word.contains('=')
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The text of `$'…'`.
fn unescape(text: &str) -> String {
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
            'n' => {
                out.push('\n');
                continue;
            }
            't' => {
                out.push('\t');
                continue;
            }
            other => {
                out.push(other);
                continue;
            }
        };
        for _ in 0..digits {
            let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
            code = code.wrapping_mul(radix).wrapping_add(digit);
            chars.next();
        }
        out.extend(char::from_u32(code));
    }
    out
}
