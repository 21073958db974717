//! Redirections, which may stand anywhere in a command.

use super::SimpleCommand;
use super::reader::ShellReader;

impl ShellReader<'_> {
    /// Reads a redirection; its operator comes next.
    pub(super) fn redirection(&mut self, simple: &mut SimpleCommand) {
        let mut operator = String::new();
        while operator.len() < 3 {
            match self.peek() {
                Some(c @ ('<' | '>')) if self.peek_at(1) != Some('(') || operator.is_empty() => {
                    operator.push(c);
                }
                Some(c @ ('&' | '|')) if operator == ">" || (operator == "<" && c == '&') => operator.push(c),
                Some('-') if operator == "<<" => operator.push('-'),
                _ => break,
            }
            self.at += 1;
        }
        match operator.as_str() {
            "<<" => return self.here_delimiter(false),
            "<<-" => return self.here_delimiter(true),
            "<" | ">" | ">>" | "<>" | "<&" | ">&" | ">|" | "<<<" => {}
            _ => self.unreadable("a redirection that cannot be read"),
        }
        self.skip_blanks();
        let start = self.at;
        let word = self.word(false);
        if self.at == start {
            return self.unreadable("a redirection without a file");
        }
        let is_descriptor =
            || word.text == "-" || word.text.trim_end_matches('-').chars().all(|c| c.is_ascii_digit());
        match operator.as_str() {
            "<<<" => {
                simple.expands_input |= word.expanded;
                let input = simple.input.get_or_insert_default();
                input.push_str(&word.text);
                input.push('\n');
            }
            "<&" | ">&" if is_descriptor() => {}
            "<" | "<&" => simple.reads.push(word.text),
            "<>" => {
                self.context.files.write(&word, &word.text);
                simple.reads.push(word.text.clone());
                simple.writes.push(word.text);
            }
            _ => {
                self.context.files.write(&word, &word.text);
                simple.writes.push(word.text);
            }
        }
    }
}
