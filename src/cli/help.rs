//! `intercom --help`: the verbs, grouped by task.

use std::fmt::Write as _;

use clap::builder::Styles;
use clap::{Command, CommandFactory as _};

use super::gutter::lines_of;
use super::{CommandLine, GLOBAL, terminal};

/// All verbs, each in one group; a test checks that none is missing.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start agents and give them work", &["run", "send", "prompts", "agents", "sessions", "mode"]),
    ("See what they do", &["ls", "show", "logs", "watch", "wait", "open", "console"]),
    ("Decide and answer", &["clearances", "approve", "deny", "questions", "answer"]),
    ("Step in", &["nudge", "interrupt", "stop", "kill", "resume", "snooze", "ladder"]),
    ("Rules, people and audit", &["policy", "token", "audit"]),
    ("Run the daemon", &["serve", "daemon", "doctor", "reload", "backup"]),
    ("Connect other programs", &["acp", "slack", "completions"]),
    ("More", &["help"]),
];

/// The maximum width of help, on however wide a terminal.
const WIDEST: usize = 100;

/// Returns the command line with our own list of verbs.
pub(super) fn command() -> Command {
    let command = CommandLine::command();
    let width = terminal::stdout_size().map_or(WIDEST, |size| size.columns).min(WIDEST);
    let verbs = verbs(&command, width);
    let header = *command.get_styles().get_header();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{verbs}{header}{GLOBAL}:{header:#}\n{{options}}{{after-help}}"
    ))
}

fn verbs(command: &Command, width: usize) -> String {
    let styles: &Styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let longest = GROUPS.iter().flat_map(|(_, verbs)| *verbs).map(|verb| verb.len()).max().unwrap_or(0);
    let indent = longest + 4;
    let mut text = String::new();
    for (group, verbs) in GROUPS {
        writeln!(text, "{header}{group}:{header:#}").expect("a string takes every write");
        for verb in *verbs {
            let about = about(command, verb);
            let lines = lines_of(about.split(' '), width.saturating_sub(indent), "");
            let gap = " ".repeat(longest - verb.len() + 2);
            let below = format!("\n{}", " ".repeat(indent));
            writeln!(text, "  {literal}{verb}{literal:#}{gap}{}", lines.join(&below))
                .expect("a string takes every write");
        }
        text.push('\n');
    }
    text
}

fn about(command: &Command, verb: &str) -> String {
    match command.find_subcommand(verb).and_then(Command::get_about) {
        Some(about) => about.to_string(),
        None => "Print this, or the help of one verb".to_owned(), // clap adds `help` itself, later than this
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use intercom_types::text::columns;

    #[test]
    fn every_verb_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
        grouped.sort_unstable();
        let command = CommandLine::command();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let command = CommandLine::command().styles(Styles::plain());
        for line in verbs(&command, 80).lines() {
            assert!(columns(line) <= 80, "{line}");
        }
        assert!(!verbs(&command, 80).contains(['{', '}']), "it is part of a template");
    }
}
