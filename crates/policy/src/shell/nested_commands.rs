//! The programs and texts that a command passes on, by the table of programs that run programs.

use super::context::{PossibleValues, ScriptContext};
use super::reader::ShellReader;
use super::word::ShellWord;
use super::{SimpleCommand, is_assignment, read_into};
use crate::programs::{LaunchMode, OperandMeaning, StdinMeaning, VariableUse, base, program, runs, variable};

mod arguments;
mod builtins;
mod interpreters;
mod written_files;

/// The maximum depth of programs that run programs.
const MAX_LAUNCHES: usize = 12;

impl ShellReader<'_> {
    /// Processes a completely read command.
    pub(super) fn finish(&mut self, simple: &SimpleCommand) {
        let has_document = self.pending.iter().any(|document| document.command.is_none());
        let is_empty = simple.words.is_empty() && simple.writes.is_empty() && simple.reads.is_empty();
        if is_empty && simple.input.is_none() && !has_document {
            return;
        }
        let lead = simple.words.iter().take_while(|word| is_assignment(&word.text)).count();
        let words = simple.words[lead..].to_vec();
        if words.is_empty() && simple.words.iter().any(|word| sets_separators(&word.text)) {
            self.unreadable("sets how words are split");
        }
        // Options and operators that another shell would look up as programs.
        let is_argument =
            words.first().is_some_and(|word| word.text.starts_with(['-', '=']) || word.is("]]"));
        if self.context.is_other_shell() && is_argument {
            return;
        }
        if !words.is_empty() {
            let has_input = has_document || simple.input.is_some();
            self.launched(
                &words,
                has_input,
                &mut LaunchContext { piped: simple.piped, ..LaunchContext::default() },
            );
        }
        // For bash the word is an operand; its variables have just been recorded.
        if self.context.is_other_shell() && words.first().is_some_and(|word| word.expanded) {
            return;
        }
        self.record_written_files(simple, has_document);
        let input = simple.input.clone().filter(|_| !words.is_empty());
        let piped_shell = simple.piped && ScriptContext::has_shell(simple);
        let index = self.context.commands().len();
        if !self.context.push(simple.clone()) {
            self.at = self.chars.len();
        }
        self.claim_here_documents(index);
        if let Some(text) = input {
            self.here_string(simple, &text);
        }
        if piped_shell {
            for text in self.context.take_printed() {
                read_into(
                    text.trim_start_matches(['-', 'e', 'n']).trim_start(),
                    self.depth + 1,
                    self.context,
                );
                read_into(&text, self.depth + 1, self.context);
            }
        }
    }

    fn here_string(&mut self, simple: &SimpleCommand, text: &str) {
        if ScriptContext::has_shell(simple) {
            if simple.expands_input {
                self.unreadable("a shell runs a text that is expanded");
            }
            read_into(text, self.depth + 1, self.context);
        }
        self.check_input(simple, text);
    }

    /// Checks text that is sent to a program that may run it.
    pub(super) fn check_input(&mut self, simple: &SimpleCommand, text: &str) {
        for view in simple.views() {
            let Some(program) = program(&base(&view[0].text)) else { continue };
            match program.grammar.input {
                Some(StdinMeaning::Text) => read_into(text, self.depth + 1, self.context),
                Some(StdinMeaning::Code) => self.unreadable("code in another language"),
                None => {}
            }
            if program.grammar.escapes.iter().any(|escape| behind(text, escape).is_some()) {
                self.unreadable("a text from which a program can run commands");
            }
        }
    }

    /// Processes `NAME=VALUE` before a command or as the argument of a declaration.
    pub(super) fn assignment(&mut self, word: &ShellWord) {
        let Some(at) = word.text.find('=') else { return };
        let name = word.text[..at].trim_end_matches('+');
        let value = word.value(at + 1);
        let text = &word.text[at + 1..];
        self.context.assign(name, value, text);
        let Some(row) = variable(name) else { return };
        match row.meaning {
            VariableUse::Command => self.read_again(word, text, &LaunchContext::default()),
            VariableUse::Code => self.unreadable("a variable that makes programs load code"),
            VariableUse::Options => {
                // Its previous value was examined before, or comes from the environment.
                let mut word = word.clone();
                word.variables.retain(|variable| variable != name);
                self.need(&word, PossibleValues::Listing);
                let given =
                    text.split_whitespace().map(|text| ShellWord { text: text.to_owned(), ..word.clone() });
                let program = ShellWord { text: row.program.clone(), ..ShellWord::default() };
                let words: Vec<ShellWord> = std::iter::once(program).chain(given).collect();
                self.launched(&words, false, &mut LaunchContext::default());
            }
        }
    }

    /// Examines a program and its arguments.
    fn launched(&mut self, words: &[ShellWord], has_input: bool, launch: &mut LaunchContext) {
        if launch.level >= MAX_LAUNCHES || !self.context.launch() {
            return self.unreadable("programs that run programs are too many or too deep");
        }
        let Some(first) = words.first() else { return };
        self.check_program(first, launch);
        let name = base(&first.text);
        if self.builtin(&name, words, launch) {
            return;
        }
        let Some(program) = program(&name) else { return };
        self.context.files.take_from(&program.grammar.own_files);
        self.context.expands_variables |= program.grammar.expands_variables;
        if runs(&name) == Some(LaunchMode::Shell) {
            return self.shell_program(words, has_input, launch);
        }
        self.check_arguments(words, launch);
        if words.len() > super::MAX_VIEWS {
            return self.unreadable("too many words");
        }
        if program.grammar.input.is_some() && launch.piped {
            self.unreadable("runs what another command writes");
        }
        let mut words = words.to_vec();
        if let Some(cluster) =
            words.get_mut(1).filter(|word| program.grammar.bare_cluster && !word.text.starts_with('-'))
        {
            cluster.text.insert(0, '-');
        }
        let words = words.as_slice();
        let before = launch.program.replace(name.clone());
        let is_complete = self.apply(&program.grammar, words, launch);
        if let Some(LaunchMode::Code(safe)) = runs(&name)
            && !matches!(program.grammar.operands, OperandMeaning::Awk | OperandMeaning::Sed)
        {
            self.interpreter(words, safe, has_input);
        } else if !is_complete && launch.appends {
            self.unreadable("a program that runs another, without one");
        }
        let grammar = &program.grammar;
        let is_followed = grammar.operands != OperandMeaning::None
            || !grammar.after.is_empty()
            || !program.subcommand.is_empty();
        if matches!(runs(&name), Some(LaunchMode::Unclear(_) | LaunchMode::Named(_))) && !is_followed {
            self.loose_texts(words, launch);
        }
        for subcommand in &program.subcommand {
            let is_named = |word: &&ShellWord| subcommand.names.contains(&word.text);
            if let Some(at) = words.iter().skip(1).position(|word| is_named(&word)) {
                self.apply(&subcommand.grammar, &words[at + 1..], launch);
            }
        }
        launch.program = before;
    }

    /// Reads arguments that look like command lines, of a program whose operands are not followed.
    fn loose_texts(&mut self, words: &[ShellWord], launch: &LaunchContext) {
        for word in &words[1..] {
            if word.text.contains([' ', '\t', '\n', ';', '&', '|', '`']) {
                self.read_again(word, &word.text, launch);
            }
        }
    }

    fn check_program(&mut self, word: &ShellWord, launch: &LaunchContext) {
        let holds = |placeholder: &String| word.text.contains(placeholder.as_str());
        if launch.placeholders.iter().any(holds) {
            self.unreadable("a program that is named by input");
        }
        if word.names_program() {
            if word.splits {
                self.need(word, PossibleValues::Name);
            }
            if word.text.contains('/') {
                self.context.files.run(&word.text);
            } else {
                self.context.files.look_up(&word.text);
            }
        } else if self.context.is_other_shell() {
            // For bash this is not a command but an operand.
            self.need(word, PossibleValues::Number);
        } else {
            self.unreadable("a program whose name is built when it runs");
        }
    }

    /// Records that only values up to `value` are harmless in a word.
    fn need(&mut self, word: &ShellWord, value: PossibleValues) {
        if word.output > value {
            self.unreadable("output of a command builds a word");
        }
        for name in &word.variables {
            self.context.need(name, value);
        }
    }

    /// Arguments of a program that takes programs must not become options when they are expanded.
    fn check_arguments(&mut self, words: &[ShellWord], launch: &LaunchContext) {
        if launch.appends && self.context.prints() {
            self.unreadable("arguments that another command prints");
        }
        for pair in words.windows(2) {
            let [before, word] = pair else { continue };
            if word.braces && word.text.starts_with(['{', '-']) {
                self.unreadable("braces that may become options");
            }
            let is_value = before.text.starts_with('-') && !before.text.contains('=') && !word.splits;
            if word.expanded && !word.braces && !is_value {
                self.need(word, PossibleValues::Listing);
            }
        }
    }

    /// Processes a word that a shell reads again.
    fn read_again(&mut self, word: &ShellWord, text: &str, launch: &LaunchContext) {
        self.check_text(word, launch);
        read_into(text, self.depth + 1, self.context);
    }

    fn check_text(&mut self, word: &ShellWord, launch: &LaunchContext) {
        self.need(word, PossibleValues::Listing);
        if launch.placeholders.iter().any(|placeholder| word.text.contains(placeholder.as_str())) {
            self.unreadable("a text into which input is put");
        }
    }
}

/// The chain of programs that led to a command.
#[derive(Debug, Clone, Default)]
struct LaunchContext {
    level: usize,
    piped: bool,
    /// The program whose options and operands are examined.
    program: Option<String>,
    /// Arguments are appended from input.
    appends: bool,
    /// Strings that are replaced by input.
    placeholders: Vec<String>,
}

/// Reports whether an assignment changes the characters that split words.
fn sets_separators(word: &str) -> bool {
    word.strip_prefix("IFS=").is_some_and(|value| !value.trim().is_empty())
}

/// Returns the text after a mark, in any case: `copy x to ProGram 'rm x'`.
fn behind<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    let at = text.to_ascii_lowercase().find(&mark.to_ascii_lowercase())?;
    text.get(at + mark.len()..)
}
