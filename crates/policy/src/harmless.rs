//! The words that may follow those of an allow rule: operands inside of the workspace, and options that are known to
//! run nothing and to write nowhere else. The table is `harmless.toml`; words without an entry are not allowed.

use super::git::{is_plain_git, subcommand_index};
use super::harmless_table::{HarmlessOptions, TABLE, holds};
use super::programs::{LaunchMode, base, file_name, runs};
use super::risk::places;
use super::shell::effects::written_among;
use intercom_types::Risk;

const TARS: &[&str] = &["tar", "bsdtar", "gtar"];

/// Checks whether the program is known, and known to run no other but as [`runs`] says.
pub(super) fn is_plain(program: &str) -> bool {
    holds(&TABLE.plain, program)
        || TABLE.command.iter().flat_map(|row| &row.names).any(|name| name.split(' ').next() == Some(program))
}

/// Checks that the words from `spelled` on add nothing to the words of the rule. The command begins with its program.
pub(super) fn check(command: &[String], spelled: usize) -> Result<(), String> {
    let (name, skipped) = (program(&command[0]), global(command));
    let mut words = vec![name.as_str()];
    words.extend(command[skipped + 1..].iter().map(String::as_str));
    let spelled = spelled.saturating_sub(skipped).max(1);
    let fits = |row: &&HarmlessOptions| row.names.iter().any(|name| begins_with_words(name, &words));
    let rows: Vec<&HarmlessOptions> = TABLE.command.iter().filter(fits).collect();
    let mut after = words[..spelled.min(words.len())].contains(&"--");
    let mut before = NextWordRole::None;
    for (at, word) in words.iter().enumerate().skip(spelled) {
        let previous = std::mem::replace(&mut before, NextWordRole::None);
        if previous == NextWordRole::Text && !word.starts_with('-') {
            continue;
        }
        // `host:file` is fetched by a program, also after an option.
        if TARS.contains(&words[0]) && word.contains(':') {
            return Err(format!("`{word}` goes beyond the rule"));
        }
        if *word == "--" && !after {
            after = true;
        } else if word.starts_with('-') {
            before = option(&rows, word, after, holds(&TABLE.one_dash, words[0]))
                .ok_or_else(|| format!("`{word}` is not known to be harmless; write it into the rule"))?;
            // In `grep -e -e FILE` and `grep --exclude -e FILE` the last `-e` is a value, and the file is a file.
            if before == NextWordRole::Text && previous != NextWordRole::None {
                before = NextWordRole::Unknown;
            }
        } else {
            check_stays_inside(word)?;
            operand(&rows, &words, at, spelled)?;
        }
    }
    runs_later(command, &words[..spelled.min(words.len())])
}

/// Rejects writes to files that other programs run later, unless the rule names them.
fn runs_later(command: &[String], spelled: &[&str]) -> Result<(), String> {
    let arguments: Vec<&str> = command.iter().skip(1).map(String::as_str).collect();
    let files = written_among(&file_name(&command[0]), &arguments);
    let later = |file: &&str| places::runs_later(file) == Some(Risk::High) && !spelled.contains(file);
    files.into_iter().find(later).map_or(Ok(()), |file| {
        Err(format!("`{file}` is run later by other programs; write it into the rule"))
    })
}

/// Returns the name to look up. Only interpreters behave the same in all versions.
fn program(written: &str) -> String {
    if !written.contains('/') && base(written) == "python" { "python".to_owned() } else { written.to_owned() }
}

/// Returns the number of words of git's own options; they are checked elsewhere.
fn global(command: &[String]) -> usize {
    if command[0] == "git" { subcommand_index(command) - 1 } else { 0 }
}

fn begins_with_words(name: &str, words: &[&str]) -> bool {
    let mut words = words.iter();
    name.split(' ').all(|word| words.next() == Some(&word))
}

/// The meaning of the word after an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextWordRole {
    /// A word of its own.
    None,
    /// The value of the option, a text.
    Text,
    /// Perhaps the value of the option.
    Unknown,
}

/// Returns the meaning of the next word, or `None` if the option is not known to be harmless.
fn option(rows: &[&HarmlessOptions], word: &str, after: bool, one_dash: bool) -> Option<NextWordRole> {
    let is_in =
        |list: fn(&HarmlessOptions) -> &[String], name: &str| rows.iter().any(|row| holds(list(row), name));
    let is_text = |name: &str| is_in(|row| &row.text, name);
    let long = word.strip_prefix("--").or_else(|| word.strip_prefix('-').filter(|_| one_dash && !after));
    if let Some(long) = long {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        if !is_in(if after { |row| &row.after } else { |row| &row.long }, name) {
            return None;
        }
        return match value {
            None if !after && is_text(name) => Some(NextWordRole::Text),
            // The table does not say which of the others take a value.
            None => Some(NextWordRole::Unknown),
            Some(value) if is_text(name) || check_stays_inside(value).is_ok() => Some(NextWordRole::None),
            Some(_) => None,
        };
    }
    let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty() && !after)?;
    for (at, letter) in letters.char_indices() {
        if rows.iter().any(|row| row.valued.contains(letter)) {
            let value = &letters[at + letter.len_utf8()..];
            let text = is_text(letter.encode_utf8(&mut [0; 4]));
            let harmless = text || check_stays_inside(value.trim_start_matches('=')).is_ok();
            return harmless.then_some(match (value.is_empty(), text) {
                (false, _) => NextWordRole::None,
                (true, true) => NextWordRole::Text,
                (true, false) => NextWordRole::Unknown,
            });
        }
        if !rows.iter().any(|row| row.flags.contains(letter)) {
            return None;
        }
    }
    Some(NextWordRole::None)
}

/// Checks that a word that could be a path, or hold one, stays inside of the workspace.
fn check_stays_inside(word: &str) -> Result<(), String> {
    let leaves = |part: &str| part.starts_with(['/', '~', '@']) || part.split('/').any(|name| name == "..");
    if word.contains("://") || leaves(word) || word.split(['=', ':', ',']).any(leaves) {
        return Err(format!("`{word}` may lead out of the workspace; write it into the rule"));
    }
    Ok(())
}

/// Checks operands that are more than names of files.
fn operand(rows: &[&HarmlessOptions], words: &[&str], at: usize, spelled: usize) -> Result<(), String> {
    let word = words[at];
    let beyond = || Err(format!("`{word}` goes beyond the rule"));
    match words {
        // A rule for `make` alone covers every target, a rule with a target only that one.
        [make, ..] if holds(&TABLE.targets, make) && spelled > 1 => beyond(),
        // The first operand is a program; only those that print lines are known.
        ["sed", ..] => {
            let is_first = words[spelled..at].iter().all(|word| word.starts_with('-'));
            let lines = word.strip_suffix('p').unwrap_or_default();
            let prints =
                !lines.is_empty() && lines.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '$'));
            if is_first && !prints { beyond() } else { Ok(()) }
        }
        // `tar cIf` is `tar -c -I -f`.
        ["tar" | "bsdtar" | "gtar", ..] if at == 1 && !word.chars().all(|c| "tvczjJf".contains(c)) => {
            beyond()
        }
        [program, ..] if holds(&TABLE.any_program, program) => beyond(),
        ["mvn" | "mvnw" | "./mvnw", ..] if !holds(&TABLE.maven_phases, word) => beyond(),
        // The second operand is written.
        ["uniq" | "xxd", ..] if words[1..at].iter().any(|word| !word.starts_with('-')) => beyond(),
        // The program may import files and show the environment.
        ["jq", ..] if TABLE.jq_reads.iter().any(|read| word.contains(read.as_str())) => beyond(),
        ["git", subcommand, ..] if at > 1 && !is_plain_git(subcommand) => beyond(),
        // Addresses, and the refs to push.
        ["git", "clone" | "fetch" | "pull" | "push" | "ls-remote" | "remote" | "submodule", ..]
            if word.contains(':') || word.starts_with('+') =>
        {
            beyond()
        }
        // A setting may name a program.
        ["git", "config", ..] if at > 2 && spelled < 3 => beyond(),
        ["go", "run" | "tool" | "generate", ..] if spelled < 3 => beyond(),
        // An unknown program may run a shell among its operands.
        _ if rows.is_empty()
            && matches!(runs(&base(word)), Some(LaunchMode::Shell | LaunchMode::Code(_))) =>
        {
            beyond()
        }
        _ => Ok(()),
    }
}
