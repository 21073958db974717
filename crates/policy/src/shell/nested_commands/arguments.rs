//! The options and operands of a program that name programs, texts and variables, by the program's grammar.

use super::super::context::PossibleValues;
use super::super::options::{self, OptionValueRole};
use super::super::reader::ShellReader;
use super::super::word::ShellWord;
use super::super::{SimpleCommand, awk, is_assignment, read_into, sed};
use super::{LaunchContext, behind};
use crate::programs::{ArgumentGrammar, OperandMeaning, base, is_named, runs};

impl ShellReader<'_> {
    /// Follows the options and operands of a program; false if it should run another and names none.
    pub(super) fn apply(
        &mut self,
        grammar: &ArgumentGrammar,
        words: &[ShellWord],
        launch: &mut LaunchContext,
    ) -> bool {
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
}
