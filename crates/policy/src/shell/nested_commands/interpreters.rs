//! Shells and interpreters of other languages, and the scripts that they run.

use super::super::context::PossibleValues;
use super::super::reader::ShellReader;
use super::super::word::ShellWord;
use super::LaunchContext;

impl ShellReader<'_> {
    /// Examines `sh -c TEXT`, `sh FILE`, or a shell that runs its input.
    pub(super) fn shell_program(&mut self, words: &[ShellWord], has_input: bool, launch: &LaunchContext) {
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
    pub(super) fn interpreter(&mut self, words: &[ShellWord], safe: &[&str], has_input: bool) {
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

    pub(super) fn script_file(&mut self, word: &ShellWord) {
        if !word.names_program() || word.output > PossibleValues::Number {
            self.unreadable("a script whose name is built when it runs");
        }
        if word.text.starts_with("/dev/") || word.text.starts_with("/proc/") {
            self.unreadable("a script that is not a file");
        }
        self.need(word, PossibleValues::Name);
        self.context.files.run(&word.text);
    }
}
