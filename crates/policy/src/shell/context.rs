//! The state of one reading that all texts within the text share.

use std::collections::HashMap;

use super::file_uses::FileUses;
use super::{ShellScript, SimpleCommand};
use crate::programs::{LaunchMode, base, runs};

/// The maximum depth of texts within texts (`sh -c "sh -c …"`, backquotes).
const MAX_DEPTH: usize = 8;
/// The maximum nesting of parentheses, substitutions, expansions and `case`, in all texts: each level costs stack.
const MAX_NESTING: usize = 24;
/// The maximum number of texts.
const MAX_TEXTS: usize = 200;
/// The maximum number of characters of all texts: reading is linear in it.
const MAX_CHARACTERS: usize = 256 * 1024;
/// The maximum number of commands in one text.
const MAX_COMMANDS: usize = 2000;
/// The maximum number of programs whose arguments are examined.
const MAX_LAUNCHES: usize = 4000;
/// The maximum number of different variables in one text.
const MAX_VARIABLES: usize = 1000;

/// The possible values of a variable or an expansion, from the best known to the least known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PossibleValues {
    /// Nothing, or a number.
    #[default]
    Number,
    /// One word without special characters that does not look like an option.
    Name,
    /// The output of a program that prints names of existing objects.
    Listing,
    Anything,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each by its name")]
pub(super) struct ScriptContext {
    script: ShellScript,
    texts: usize,
    nesting: usize,
    launches: usize,
    characters: usize,
    /// Variables that the text assigns, with the least known of their values.
    assigned: HashMap<String, PossibleValues>,
    /// Variables in places where only some values are harmless.
    needed: HashMap<String, PossibleValues>,
    pub(super) files: FileUses,
    /// Texts that commands print, until a shell reads them.
    printed: Vec<String>,
    prints: bool,
    /// A variable is assigned a text that would be a command if it was expanded within one.
    assigns_command: bool,
    /// A program is run that expands variables of the environment in its commands.
    pub(super) expands_variables: bool,
    /// A construct of bash is being read as dash would read it.
    is_other_shell: bool,
}

impl ScriptContext {
    pub(super) fn unreadable(&mut self, reason: &'static str) {
        self.script.opaque = true;
        self.script.reason.get_or_insert(reason);
    }

    /// Counts the next text to read; false if there are too many, or if they are nested too deep.
    pub(super) fn admits(&mut self, characters: usize, depth: usize) -> bool {
        self.texts += 1;
        self.characters += characters;
        let fits = depth <= MAX_DEPTH
            && self.texts <= MAX_TEXTS
            && self.characters <= MAX_CHARACTERS
            && self.script.commands.len() <= MAX_COMMANDS;
        if !fits {
            self.unreadable("texts within texts are too many or too deep");
        }
        fits
    }

    /// Counts a program whose arguments are examined; false if there are too many.
    pub(super) fn launch(&mut self) -> bool {
        self.launches += 1;
        self.launches <= MAX_LAUNCHES
    }

    /// Enters a construct that nests; false if that is too deep. Otherwise [`Self::leave`] must follow.
    pub(super) fn enter(&mut self) -> bool {
        let fits = self.nesting < MAX_NESTING;
        if fits {
            self.nesting += 1;
        } else {
            self.unreadable("nested too deep");
        }
        fits
    }

    pub(super) fn leave(&mut self) {
        self.nesting -= 1;
    }

    pub(super) fn is_nested(&self) -> bool {
        self.nesting > 0
    }

    /// Starts reading commands as another shell does; returns the previous state.
    pub(super) fn begin_other_shell(&mut self) -> bool {
        std::mem::replace(&mut self.is_other_shell, true)
    }

    pub(super) fn end_other_shell(&mut self, before: bool) {
        self.is_other_shell = before;
    }

    pub(super) fn is_other_shell(&self) -> bool {
        self.is_other_shell
    }

    pub(super) fn commands(&self) -> &[SimpleCommand] {
        &self.script.commands
    }

    /// Adds a command; false if there are too many.
    pub(super) fn push(&mut self, simple: SimpleCommand) -> bool {
        self.note_printed(&simple);
        self.script.commands.push(simple);
        let fits = self.script.commands.len() <= MAX_COMMANDS;
        if !fits {
            self.unreadable("too many commands");
        }
        fits
    }

    /// Adds a later text, such as the body of a here-document, to a command.
    pub(super) fn send(&mut self, command: usize, text: &str) {
        if let Some(simple) = self.script.commands.get_mut(command) {
            simple.input.get_or_insert_default().push_str(text);
        }
    }

    /// Records an assignment to a variable; `text` is the value, with `*` for expansions.
    pub(super) fn assign(&mut self, name: &str, value: PossibleValues, text: &str) {
        if self.assigned.len() >= MAX_VARIABLES {
            return self.unreadable("too many variables");
        }
        let known = self.assigned.entry(name.to_owned()).or_default();
        *known = value.max(*known);
        self.files.assign(name, text);
        self.assigns_command |= text.contains(['$', '`', ';', '|', '&', '<', '>', '\n']);
    }

    /// Records that `name` is used where only values up to `value` are harmless. A variable that the text does not
    /// assign comes from the environment, which the text does not choose.
    pub(super) fn need(&mut self, name: &str, value: PossibleValues) {
        if name.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '@' | '*')) {
            return self.unreadable("a positional parameter builds a word");
        }
        if self.needed.len() >= MAX_VARIABLES {
            return self.unreadable("too many variables");
        }
        let known = self.needed.entry(name.to_owned()).or_insert(value);
        *known = value.min(*known);
    }

    /// Returns the texts printed so far, which a shell at the end of a pipe may run.
    pub(super) fn take_printed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.printed)
    }

    /// Reports whether a command prints text from its arguments.
    pub(super) fn prints(&self) -> bool {
        self.prints
    }

    /// Records the text that `echo` or `printf` prints.
    fn note_printed(&mut self, simple: &SimpleCommand) {
        let Some((first, words)) = simple.words.split_first() else { return };
        if matches!(base(&first.text).as_str(), "echo" | "printf") {
            self.prints = true;
            self.printed.push(words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" "));
        }
    }

    pub(super) fn has_shell(simple: &SimpleCommand) -> bool {
        simple.views().iter().any(|view| runs(&base(&view[0].text)) == Some(LaunchMode::Shell))
    }

    pub(super) fn finish(mut self) -> ShellScript {
        let is_unsafe =
            |(name, most): (&String, &PossibleValues)| self.assigned.get(name).is_some_and(|v| v > most);
        if self.needed.iter().any(is_unsafe) {
            self.unreadable("a variable that the text assigns builds a word");
        }
        if self.assigns_command && self.expands_variables {
            self.unreadable("a variable that a program expands in its commands");
        }
        if self.files.runs_own() {
            self.unreadable("runs a file that it writes");
        }
        if self.files.writes_commands() {
            self.unreadable("writes a file from which a program takes commands");
        }
        self.script
    }
}
