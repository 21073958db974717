//! Here-documents.

use super::reader::ShellReader;
use super::word::ShellWord;
use super::{ScriptContext, read_into};

/// A here-document whose body begins on the next line.
pub(super) struct HereDocument {
    pub(super) delimiter: String,
    /// The body is used verbatim.
    pub(super) is_literal: bool,
    /// Tabs at the beginning of lines are removed.
    pub(super) strips_tabs: bool,
    /// The command that reads it, once that is known.
    pub(super) command: Option<usize>,
}

impl ShellReader<'_> {
    /// Reads the delimiter after `<<` or `<<-`. Only simple ones: shells disagree about the others.
    pub(super) fn here_delimiter(&mut self, strips_tabs: bool) {
        self.skip_blanks();
        let start = self.at;
        let word = self.word(false);
        let written: String = self.chars[start..self.at.min(self.chars.len())].iter().collect();
        let quote = written.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let bare = match quote {
            Some(quote) => written.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)),
            None => Some(written.strip_prefix('\\').unwrap_or(&written)),
        };
        let is_simple = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.!+".contains(c))
        };
        if !bare.is_some_and(is_simple) || bare != Some(word.text.as_str()) {
            self.unreadable("a here-document with a delimiter that shells read differently");
        }
        let is_literal = word.quoted;
        self.pending.push(HereDocument { delimiter: word.text, is_literal, strips_tabs, command: None });
    }

    /// Assigns pending here-documents to the command that has just been read.
    pub(super) fn claim_here_documents(&mut self, command: usize) {
        for document in self.pending.iter_mut().filter(|document| document.command.is_none()) {
            document.command = Some(command);
        }
    }

    /// Reads the bodies of all pending here-documents, at the beginning of a line.
    pub(super) fn here_documents(&mut self) {
        for document in std::mem::take(&mut self.pending) {
            self.body(&document);
        }
    }

    fn body(&mut self, document: &HereDocument) {
        let mut body = String::new();
        loop {
            if self.at >= self.chars.len() {
                return self.unreadable("a here-document does not end");
            }
            let length = self.chars[self.at..].iter().take_while(|c| **c != '\n').count();
            let line: String = self.chars[self.at..self.at + length].iter().collect();
            let line = if document.strips_tabs { line.trim_start_matches('\t') } else { &line };
            self.at = (self.at + length + 1).min(self.chars.len());
            if line == document.delimiter {
                break;
            }
            if (self.context.is_nested() || self.depth > 0) && line.starts_with(&document.delimiter) {
                self.unreadable("a line that begins like the end of a here-document");
            }
            if !document.is_literal {
                self.body_line(line);
            }
            body.push_str(line);
            body.push('\n');
        }
        self.receive(document, &body);
    }

    /// Reads the expansions in one line; they must end within the line.
    fn body_line(&mut self, line: &str) {
        if line.contains('\r') {
            self.unreadable("a carriage return in a here-document");
        }
        let backslashes = line.chars().rev().take_while(|c| *c == '\\').count();
        if backslashes % 2 == 1 {
            return self.unreadable("a line that continues inside of a here-document");
        }
        if !line.contains(['$', '`']) {
            return;
        }
        let chars: Vec<char> = line.chars().collect();
        if !self.context.admits(chars.len(), self.depth + 1) {
            return;
        }
        let mut reader = ShellReader::new(&chars, self.depth + 1, self.context);
        let mut word = ShellWord::default();
        while let Some(c) = reader.chars.get(reader.at).copied() {
            match c {
                '\\' => reader.at += 2,
                '$' => reader.dollar(&mut word, true),
                '`' => {
                    reader.at += 1;
                    reader.backquotes(&mut word, true);
                }
                _ => reader.at += 1,
            }
        }
    }

    /// Adds the body to its command. A shell runs it.
    fn receive(&mut self, document: &HereDocument, body: &str) {
        let Some(index) = document.command else {
            return self.unreadable("a here-document without a command");
        };
        self.context.send(index, body);
        let Some(simple) = self.context.commands().get(index).cloned() else { return };
        if ScriptContext::has_shell(&simple) {
            if !document.is_literal && body.contains(['$', '`', '\\']) {
                self.unreadable("a shell runs a text that is expanded");
            }
            read_into(body, self.depth + 1, self.context);
        }
        self.check_input(&simple, body);
    }
}
