//! The programs and texts that a command passes on, by the table of programs that run programs.

use super::context::{PossibleValues, ScriptContext};
use super::options::{self, OptionValueRole};
use super::reader::ShellReader;
use super::word::ShellWord;
use super::{SimpleCommand, awk, is_assignment, read_into, sed};
use crate::programs::{
    ArgumentGrammar, LaunchMode, OperandMeaning, StdinMeaning, VariableUse, base, is_named, program, runs,
    variable,
};

mod builtins;
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

    /// Follows the options and operands of a program; false if it should run another and names none.
    fn apply(&mut self, grammar: &ArgumentGrammar, words: &[ShellWord], launch: &mut LaunchContext) -> bool {
        let mut operands: Vec<usize> = Vec::new();
        let mut has_program = false;
        let mut at = 1;
        let mut is_option_allowed = true;
        while let Some(word) = words.get(at) {
            at += 1;
            if word.text == "--" && is_option_allowed && !grammar.after.iter().any(|marker| marker == "--") {
                is_option_allowed = false;
                continue;
            }
            let found = if is_option_allowed { options::find(grammar, &word.text) } else { Vec::new() };
            let is_option = is_option_allowed && word.text.starts_with('-') && word.text.len() > 1;
            if found.is_empty() && !is_option {
                if grammar.assignments && operands.is_empty() && word.text.contains('=') {
                    if is_assignment(&word.text) {
                        self.assignment(word);
                    } else {
                        self.unreadable("a variable with a name that shells read differently");
                    }
                    continue;
                }
                operands.push(at - 1);
                if grammar.operands == OperandMeaning::Command && operands.len() > grammar.skip {
                    self.inner(words, at - 1, grammar, launch);
                    return true;
                }
                continue;
            }
            let takes_next = found.first().is_some_and(|found| found.glued.is_none());
            for found in &found {
                if found.role == OptionValueRole::Setting && grammar.leading_settings && !operands.is_empty()
                {
                    continue;
                }
                has_program |= matches!(found.role, OptionValueRole::Program | OptionValueRole::Script);
                self.option(grammar, word, words.get(at..).unwrap_or_default(), found, launch);
            }
            at += usize::from(takes_next);
        }
        let is_marker = |word: &ShellWord| grammar.after.contains(&word.text);
        let markers: Vec<usize> = (0..words.len()).filter(|at| is_marker(&words[*at])).collect();
        for (n, marker) in markers.iter().enumerate() {
            let end = markers.get(n + 1).copied().unwrap_or(words.len());
            self.inner(&words[..end], marker + 1, grammar, launch);
        }
        self.escapes(grammar, words);
        self.operands(grammar, words, &operands, has_program, launch)
    }

    /// Examines a command inside of a command, from the word `at` on.
    fn inner(
        &mut self,
        words: &[ShellWord],
        at: usize,
        grammar: &ArgumentGrammar,
        launch: &mut LaunchContext,
    ) {
        // For programs that run others, every tail counts as a command; after a subcommand it has to be recorded
        // explicitly.
        if at < words.len() && runs(&base(&words[0].text)).is_none() {
            self.context.push(SimpleCommand { words: words[at..].to_vec(), ..SimpleCommand::default() });
        }
        let mut inner = launch.clone();
        inner.level += 1;
        inner.appends |= grammar.appends;
        if !grammar.after.is_empty() || grammar.appends {
            inner.placeholders.push("{}".to_owned());
        }
        self.launched(&words[at..], false, &mut inner);
    }

    fn option(
        &mut self,
        grammar: &ArgumentGrammar,
        word: &ShellWord,
        next: &[ShellWord],
        found: &options::OptionMatch<'_>,
        launch: &mut LaunchContext,
    ) {
        let value =
            found.glued.map(|text| (word, text)).or(next.first().map(|word| (word, word.text.as_str())));
        let Some((holder, text)) = value else { return };
        match found.role {
            OptionValueRole::Text => {
                self.read_again(holder, text, launch);
                // In a cluster the value may be one of the next words.
                for word in next.iter().take(if found.is_cluster { 2 } else { 0 }) {
                    self.read_again(word, &word.text, launch);
                }
            }
            // A line number.
            OptionValueRole::Code
                if word.text.starts_with('+') && text.chars().all(|c| c.is_ascii_digit()) => {}
            OptionValueRole::Code => self.unreadable("code in another language"),
            OptionValueRole::Setting => self.setting(grammar, holder, text, launch),
            OptionValueRole::Script => self.script_file(holder),
            OptionValueRole::Program => self.program_text(grammar, holder, text),
            OptionValueRole::Placeholder => launch.placeholders.push(text.to_owned()),
            OptionValueRole::Other => {}
        }
    }

    /// Processes a setting: `NAME=VALUE` or `NAME VALUE`.
    fn setting(&mut self, grammar: &ArgumentGrammar, word: &ShellWord, text: &str, launch: &LaunchContext) {
        let name = text.split(['=', ' ']).next().unwrap_or_default();
        let value = text.get(name.len() + 1..).unwrap_or_default();
        self.named_setting(grammar, name, (word, value), launch);
    }

    fn named_setting(
        &mut self,
        grammar: &ArgumentGrammar,
        name: &str,
        value: (&ShellWord, &str),
        launch: &LaunchContext,
    ) {
        let name = name.to_ascii_lowercase();
        let (word, text) = value;
        let is = |pattern: &String| is_named(pattern, &name);
        if grammar.alias_settings.iter().any(is) {
            self.alias(word, text, launch);
        } else if grammar.running_settings.iter().any(is) {
            self.read_again(word, text.trim_start_matches('!'), launch);
        } else if !grammar.harmless_settings.is_empty() && !grammar.harmless_settings.iter().any(is) {
            self.read_again(word, text.trim_start_matches('!'), launch);
            self.unreadable("a setting that may name a program");
        }
    }

    /// Reads a text that the program runs later: after `!` by a shell, otherwise as its own arguments.
    fn alias(&mut self, word: &ShellWord, text: &str, launch: &LaunchContext) {
        self.read_again(word, text.trim_start_matches('!'), launch);
        if let Some(program) = &launch.program {
            read_into(&format!("{program} {text}"), self.depth + 1, self.context);
        }
    }

    /// Processes operands of which each may be the name of a setting, with its value in the next.
    fn paired_settings(
        &mut self,
        grammar: &ArgumentGrammar,
        words: &[ShellWord],
        operands: &[usize],
        launch: &LaunchContext,
    ) {
        for pair in operands.windows(2) {
            let [name, value] = [&words[pair[0]], &words[pair[1]]];
            let is_plain = name.literal().is_some_and(|name| name.contains('.'));
            let is_known = [&grammar.alias_settings, &grammar.running_settings]
                .into_iter()
                .flatten()
                .any(|known| is_named(known, &name.text));
            if is_plain || is_known {
                self.named_setting(grammar, &name.text, (value, &value.text), launch);
            } else if name.literal().is_none() {
                self.unreadable("a setting whose name is built when it runs");
            }
        }
    }

    fn operands(
        &mut self,
        grammar: &ArgumentGrammar,
        words: &[ShellWord],
        operands: &[usize],
        has_program: bool,
        launch: &LaunchContext,
    ) -> bool {
        let rest = operands.get(grammar.skip..).unwrap_or_default();
        match grammar.operands {
            OperandMeaning::None => true,
            OperandMeaning::Command => !grammar.requires_command,
            OperandMeaning::Text => {
                for at in rest {
                    self.check_text(&words[*at], launch);
                }
                let text: Vec<&str> = rest.iter().map(|at| words[*at].text.as_str()).collect();
                if !text.is_empty() {
                    read_into(&text.join(" "), self.depth + 1, self.context);
                }
                true
            }
            OperandMeaning::Script => {
                for at in rest.iter().take(1) {
                    self.script_file(&words[*at]);
                }
                true
            }
            OperandMeaning::Awk | OperandMeaning::Sed => {
                if !has_program && let Some(at) = rest.first() {
                    self.program_text(grammar, &words[*at], &words[*at].text);
                }
                true
            }
            OperandMeaning::Scripts => {
                for at in rest {
                    if words[*at].text == "-" {
                        self.unreadable("code in another language");
                    }
                    self.script_file(&words[*at]);
                }
                true
            }
            OperandMeaning::Settings => {
                self.paired_settings(grammar, words, rest, launch);
                true
            }
            OperandMeaning::Aliases => {
                for at in rest {
                    self.alias(&words[*at], &words[*at].text.clone(), launch);
                }
                true
            }
            OperandMeaning::Unreadable => {
                self.unreadable("runs something that is not followed");
                true
            }
        }
    }

    /// Reads a program in awk or sed.
    fn program_text(&mut self, grammar: &ArgumentGrammar, word: &ShellWord, text: &str) {
        if word.expanded {
            self.need(word, PossibleValues::Name);
        }
        let found = if grammar.operands == OperandMeaning::Awk { awk::read(text) } else { sed::read(text) };
        for text in &found.texts {
            read_into(text, self.depth + 1, self.context);
        }
        if !found.is_readable {
            self.unreadable("a program of awk or sed that runs commands");
        }
    }

    /// Finds marks with which a program can run commands, in its arguments: `vim -c '!rm x'`.
    fn escapes(&mut self, grammar: &ArgumentGrammar, words: &[ShellWord]) {
        for word in words.get(1..).unwrap_or_default() {
            for escape in &grammar.escapes {
                if let Some(text) = behind(&word.text, escape) {
                    self.unreadable("an argument from which a program can run commands");
                    read_into(text.trim_start_matches('!'), self.depth + 1, self.context);
                }
            }
        }
    }

    fn script_file(&mut self, word: &ShellWord) {
        if !word.names_program() || word.output > PossibleValues::Number {
            self.unreadable("a script whose name is built when it runs");
        }
        if word.text.starts_with("/dev/") || word.text.starts_with("/proc/") {
            self.unreadable("a script that is not a file");
        }
        self.need(word, PossibleValues::Name);
        self.context.files.run(&word.text);
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

    /// Examines `sh -c TEXT`, `sh FILE`, or a shell that runs its input.
    fn shell_program(&mut self, words: &[ShellWord], has_input: bool, launch: &LaunchContext) {
        let mut takes_text = false;
        let mut reads_input = false;
        let mut at = 1;
        while let Some(word) = words.get(at).filter(|word| word.text.starts_with(['-', '+'])) {
            let text = word.text.as_str();
            at += 1;
            match text {
                "--version" | "--help" => return,
                "--rcfile" | "--init-file" => return self.unreadable("a shell with a start file"),
                "--" | "-" => break,
                _ if text.starts_with("--") => {}
                _ => {
                    takes_text |= text.starts_with('-') && text.contains('c');
                    reads_input |= text.contains('s');
                    at += usize::from(text.ends_with(['o', 'O']));
                }
            }
        }
        match words.get(at) {
            _ if reads_input && !takes_text && !has_input => self.unreadable("a shell that runs its input"),
            _ if reads_input && !takes_text => {}
            Some(word) if takes_text => self.read_again(word, &word.text, launch),
            Some(word) => self.script_file(word),
            None if has_input && !takes_text => {}
            None => self.unreadable("a shell that runs its input"),
        }
    }

    /// Examines an interpreter of another language: a script file is a program like others, everything else is code.
    fn interpreter(&mut self, words: &[ShellWord], safe: &[&str], has_input: bool) {
        for (at, word) in words.iter().enumerate().skip(1) {
            let text = word.text.as_str();
            if text == "-m" && safe.contains(&"-m") {
                if words.get(at + 1).and_then(ShellWord::literal).is_none_or(|name| name == "code") {
                    self.unreadable("a module whose name is built when it runs");
                }
                return;
            }
            if !text.starts_with('-') || text.len() == 1 {
                if text == "-" {
                    self.unreadable("code in another language");
                }
                return self.script_file(word);
            }
            if !safe.contains(&text) && !safe.contains(&text.split('=').next().unwrap_or(text)) {
                return self.unreadable("code in another language");
            }
        }
        let only_asks = words.get(1).is_some_and(|word| word.text.to_ascii_lowercase().contains('v'));
        if has_input || !only_asks && words.len() == 1 {
            self.unreadable("code in another language");
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
