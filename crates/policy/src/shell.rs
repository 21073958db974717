//! The parser of shell text: finds every simple command, for deny and ask rules and the assessment of risk.
//!
//! ```text
//!  text ──reader──► words, redirections ──inside──► commands, and the texts that they hand on (read the same way)
//! ```
//!
//! Architecture invariant: a text is either read the way that bash and dash would both run it, with every program
//! that it makes them execute among `commands`, or it is called unreadable (`opaque`). An unreadable text counts as
//! high risk, is matched by every deny and ask rule, and by no allow rule.

use std::collections::HashSet;

use super::programs::{LaunchMode, base, file_name, runs};

mod arithmetic;
mod awk;
mod conditional;
mod context;
pub(super) mod effects;
mod expansion;
mod file_uses;
mod here_document;
mod nested_commands;
mod options;
mod reader;
mod redirect;
mod sed;
mod word;

use context::ScriptContext;
use reader::ShellReader;
pub(super) use word::ShellWord;

/// The maximum number of words after a program that runs others that may start what it runs.
const MAX_VIEWS: usize = 256;

/// Everything that a text runs, as far as it is readable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ShellScript {
    pub(super) commands: Vec<SimpleCommand>,
    /// A part of it is decided only at run time, or is unreadable.
    pub(super) opaque: bool,
    /// The first reason why it is unreadable.
    pub(super) reason: Option<&'static str>,
}

/// One command: a program and its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SimpleCommand {
    pub(super) words: Vec<ShellWord>,
    /// Files that the shell opens for writing.
    pub(super) writes: Vec<String>,
    /// Files that the shell opens for reading.
    pub(super) reads: Vec<String>,
    /// Text that the shell sends it: here-documents and here-strings.
    pub(super) input: Option<String>,
    /// A here-string contains an expansion.
    expands_input: bool,
    /// Its input is another command's output.
    pub(super) piped: bool,
}

impl ShellScript {
    /// Returns the command with paths below `directory` made relative to it.
    pub(super) fn relative_to(&self, directory: &str) -> Self {
        let mut script = self.clone();
        for simple in &mut script.commands {
            let words = simple.words.iter_mut().map(|word| &mut word.text);
            for text in words.chain(&mut simple.writes).chain(&mut simple.reads) {
                match text.strip_prefix(directory) {
                    Some("" | "/") => ".".clone_into(text),
                    Some(below) if below.starts_with('/') => *text = below[1..].to_owned(),
                    _ => {}
                }
            }
        }
        script
    }

    /// Returns the file names of all programs that the text may run, in the order of the text.
    pub(super) fn programs(&self) -> Vec<String> {
        let views = self.commands.iter().flat_map(SimpleCommand::views);
        let mut seen = HashSet::new();
        let mut names = Vec::new();
        for view in views {
            let name = file_name(&view[0].text);
            if seen.insert(name.clone()) {
                names.push(name);
            }
        }
        names
    }
}

impl SimpleCommand {
    /// Returns the command without assignments, and the commands that it runs. For a program that runs others, any tail
    /// may be such a command: its options need not be known.
    pub(super) fn views(&self) -> Vec<&[ShellWord]> {
        let lead = self.words.iter().take_while(|word| is_assignment(&word.text)).count();
        let mut views = vec![&self.words[lead..]];
        let Some(program) = self.words.get(lead) else { return Vec::new() };
        let markers: &[&str] = match runs(&base(&program.text)) {
            Some(LaunchMode::Named(markers) | LaunchMode::Unclear(markers)) => markers,
            Some(_) => &[],
            None => return views,
        };
        let is_marker = |word: &ShellWord| markers.contains(&word.text.as_str());
        let skipped =
            if markers.is_empty() { Some(0) } else { self.words[lead..].iter().position(is_marker) };
        let first = skipped.map_or(self.words.len(), |skipped| lead + skipped + 1);
        views.extend((first..self.words.len()).take(MAX_VIEWS).map(|from| &self.words[from..]));
        views
    }
}

/// Reads a shell text. Never fails: doubt makes the result opaque.
pub(super) fn read(text: &str) -> ShellScript {
    let mut context = ScriptContext::default();
    if text.contains('\0') {
        context.unreadable("a NUL character");
    }
    if text.len() > super::words::MAX_BYTES {
        context.unreadable("the text is too long");
    } else {
        read_into(text, 0, &mut context);
    }
    context.finish()
}

/// Reads a text within another.
fn read_into(text: &str, depth: usize, context: &mut ScriptContext) {
    let chars: Vec<char> = text.chars().collect();
    if context.admits(chars.len(), depth) {
        ShellReader::new(&chars, depth, context).read_all();
    }
}

pub(super) fn is_assignment(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default().trim_end_matches('+');
    word.contains('=') && is_name(name)
}

/// Reports whether the text is the name of a shell variable.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
