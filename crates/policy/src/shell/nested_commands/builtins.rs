//! Builtins of the shell that run or evaluate their arguments.

use super::super::context::PossibleValues;
use super::super::reader::ShellReader;
use super::super::word::ShellWord;
use super::super::{is_assignment, is_name};
use super::LaunchContext;

impl ShellReader<'_> {
    /// Builtins of the shell that evaluate their arguments; true if the program is one.
    pub(super) fn builtin(&mut self, name: &str, words: &[ShellWord], launch: &LaunchContext) -> bool {
        let arguments = &words[1..];
        match name {
            "declare" | "typeset" | "local" | "export" | "readonly" => self.declaration(name, arguments),
            "let" => arguments.iter().for_each(|word| self.evaluated(word)),
            "wait" => self.waited(arguments),
            "unset" | "read" | "getopts" | "mapfile" | "readarray" => {
                self.variable_names(arguments);
                return name.starts_with(['u', 'g']) || name == "read";
            }
            "printf" => match arguments {
                [option, ..] if option.literal().is_none() && !option.text.contains('%') => {
                    self.need(option, PossibleValues::Listing);
                }
                [option, rest @ ..] if option.text.starts_with("-v") => {
                    let name = if option.text == "-v" { rest.first() } else { None };
                    match name.and_then(ShellWord::literal).filter(|name| is_name(name)) {
                        Some(name) => self.context.assign(name, PossibleValues::Anything, "*"),
                        None => self.unreadable("a variable's name that is expanded"),
                    }
                }
                _ => {}
            },
            "test" | "[" => self.test(arguments),
            "trap" => {
                let texts =
                    arguments.iter().filter(|word| !matches!(word.text.as_str(), "--" | "-" | "-p" | "-l"));
                if let Some(word) = texts.clone().next().filter(|_| texts.count() > 1) {
                    self.read_again(word, &word.text.clone(), launch);
                }
            }
            "if" | "then" | "else" | "elif" | "fi" | "for" | "while" | "until" | "do" | "done" | "case"
            | "esac" | "select" | "function" | "in" | "[[" | "{" | "}" | "!" | "coproc" => {
                self.unreadable("a reserved word where none is expected");
            }
            // This only prints the path of a program.
            "command" => {
                return arguments
                    .first()
                    .is_some_and(|word| word.text.starts_with(['-']) && word.text.contains(['v', 'V']));
            }
            "alias" => {
                if arguments.iter().any(|word| word.text.contains('=') || word.expanded) {
                    self.unreadable("another name for a command");
                }
            }
            _ => return false,
        }
        true
    }

    fn declaration(&mut self, builtin: &str, arguments: &[ShellWord]) {
        let mut is_number = false;
        for word in arguments {
            let text = word.text.as_str();
            if word.text.starts_with(['-', '+']) {
                is_number |= text.contains('i');
                if text.contains('n') && !matches!(builtin, "export" | "readonly") {
                    self.unreadable("a variable that is another name of one");
                }
            } else if is_assignment(text) {
                self.assignment(word);
                if is_number {
                    let at = text.find('=').unwrap_or_default();
                    self.evaluated(&ShellWord { text: text[at + 1..].to_owned(), ..word.clone() });
                }
            } else if !word.literal().is_some_and(is_name) {
                self.unreadable("a variable's name that is expanded");
            }
            if is_number {
                let name = text.split(['=', '+']).next().unwrap_or_default();
                self.context.need(name, PossibleValues::Number);
            }
        }
    }

    /// Checks arguments that name variables. bash expands the subscripts in them.
    fn variable_names(&mut self, arguments: &[ShellWord]) {
        let mut before = "";
        for word in arguments {
            let is_value = before.starts_with('-') && before.ends_with(['p', 't', 'n', 'N', 'd', 'u', 'i']);
            match word.literal() {
                _ if is_value => {}
                Some(text) if is_name(text) => self.context.assign(text, PossibleValues::Anything, "*"),
                Some(text) if text.contains('[') => self.unreadable("a subscript that is expanded"),
                Some(_) => {}
                None => self.unreadable("a variable's name that is expanded"),
            }
            before = &word.text;
        }
    }

    /// Checks `wait -p NAME`, which expands the subscript in the name.
    fn waited(&mut self, arguments: &[ShellWord]) {
        let is_built = |word: &ShellWord| word.text.contains('[') || word.literal().is_none();
        let mut is_name = false;
        for word in arguments {
            if (is_name || word.text.starts_with('-') || word.text.contains('[')) && is_built(word) {
                self.unreadable("a variable's name that is expanded");
            }
            if let Some(name) = word.literal().filter(|_| is_name) {
                self.context.assign(name, PossibleValues::Anything, "*");
            }
            is_name = word.text.starts_with('-') && word.text.ends_with('p');
        }
    }

    /// Checks `test -v NAME`, which expands the subscript in the name.
    fn test(&mut self, arguments: &[ShellWord]) {
        let hides = |word: &ShellWord| word.text.contains('[') && word.text.contains(['$', '`']);
        if arguments.iter().any(hides) {
            self.unreadable("a subscript that is expanded");
        }
        for pair in arguments.windows(2) {
            if matches!(pair[0].text.as_str(), "-v" | "-R") && !pair[1].literal().is_some_and(is_name) {
                self.unreadable("a variable's name that is expanded");
            }
        }
        // An expanded operator may be `-v`.
        let count = arguments.iter().filter(|word| word.text != "]").count();
        for (at, word) in arguments.iter().enumerate() {
            if word.expanded && (word.splits || (at == 0 && count == 2)) {
                self.need(word, PossibleValues::Listing);
            }
        }
    }
}
