//! The programs that a command of plain words runs, read strictly: an allow rule must name them all.

use serde::{Deserialize, Serialize};

use super::git::is_plain_git;
use super::harmless_table::{TABLE, holds};
use super::programs::{self, LaunchMode, base, runs};
use super::{harmless, words};

/// The options that may follow the words of an allow rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Options {
    #[default]
    Known,
    Any,
}

impl Options {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(super) fn is_known(&self) -> bool {
        *self == Self::Known
    }
}

/// The maximum depth of wrappers within wrappers.
const MAX_DEPTH: usize = 8;

/// The positions of the programs of a command.
#[derive(Debug)]
pub(super) struct ProgramChain {
    /// From the outermost in: `timeout 5 npx tsc` has three.
    pub(super) programs: Vec<usize>,
    /// The number of leading words that name everything that is run.
    required: usize,
}

/// Follows programs that run others; the error names the one that cannot be followed.
pub(super) fn chain(argv: &[String]) -> Result<ProgramChain, String> {
    let mut programs = Vec::new();
    let mut at = 0;
    while programs.len() < MAX_DEPTH {
        programs.push(at);
        let words = &argv[at..];
        let name = &words[0];
        let done = |words: usize| Ok(ProgramChain { programs: programs.clone(), required: at + words });
        match runs(&base(name)) {
            None => return done(1),
            Some(LaunchMode::Through) => match wrapped_command_start(words)? {
                None => return done(1),
                Some(inner) => at += inner,
            },
            Some(LaunchMode::Shell) => match words.get(1) {
                Some(script) if !script.starts_with(['-', '+']) => return done(2),
                _ => return Err(format!("`{name}` runs a text or its input")),
            },
            Some(LaunchMode::Code(safe)) => return done(script(words, safe)?),
            Some(LaunchMode::Named(markers)) => match target(words, markers)? {
                None => return done(1),
                Some(inner) => at += inner,
            },
            Some(LaunchMode::Unclear(markers)) => {
                match words.iter().find(|word| markers.contains(&word.as_str())) {
                    None if !markers.is_empty() => return done(1),
                    None => return Err(format!("`{name}` runs something else")),
                    Some(marker) => return Err(format!("`{name} {marker}` runs something else")),
                }
            }
        }
    }
    Err("too many programs that run others".to_owned())
}

/// Returns the start of the inner command of `env`, `timeout`, `nice`, `nohup` or `sudo`.
fn wrapped_command_start(words: &[String]) -> Result<Option<usize>, String> {
    let name = base(&words[0]);
    let mut at = 1;
    let mut limited = false;
    while let Some(word) = words.get(at).map(String::as_str) {
        at += match (name.as_str(), word) {
            (_, word) if !word.starts_with('-') && word.contains('=') => {
                return Err(format!("`{word}` sets a variable"));
            }
            ("env", "-i" | "--ignore-environment")
            | ("timeout", "--foreground" | "--preserve-status" | "-v" | "--verbose")
            | ("sudo", "-n" | "-H" | "--non-interactive" | "--set-home") => 1,
            ("timeout", "-k" | "-s" | "--kill-after" | "--signal")
            | ("nice", "-n" | "--adjustment")
            | ("sudo", "-u" | "--user") => 2,
            ("timeout", word) if word.starts_with("--kill-after=") || word.starts_with("--signal=") => 1,
            // A number without a dash is the program.
            ("nice", word) if word.starts_with("--adjustment=") => 1,
            ("nice", word) if word.strip_prefix('-').is_some_and(is_number) => 1,
            (_, word) if word.starts_with('-') => {
                return Err(format!("`{name} {word}` is not a known wrapper option"));
            }
            ("timeout", word) if !limited => {
                if !is_number(word.trim_end_matches(['s', 'm', 'h', 'd'])) {
                    return Err("`timeout` without its time".to_owned());
                }
                limited = true;
                1
            }
            _ => return Ok(Some(at)),
        };
    }
    if words.len() == 1 { Ok(None) } else { Err(format!("`{name}` without a command")) }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Returns the number of words that name the script an interpreter runs.
fn script(words: &[String], safe: &[&str]) -> Result<usize, String> {
    let name = &words[0];
    for (at, word) in words.iter().enumerate().skip(1) {
        if !word.starts_with('-') {
            return Ok(at + 1);
        }
        if !safe.contains(&word.as_str()) {
            return Err(format!("`{name} {word}` may run code given on the spot"));
        }
        if word == "-m" {
            return if at + 1 < words.len() {
                Ok(at + 2)
            } else {
                Err(format!("`{name} -m` without a module"))
            };
        }
    }
    // `python --version`, `node --test`.
    if words.len() > 1 { Ok(words.len()) } else { Err(format!("`{name}` runs its input")) }
}

/// Returns the start of the program that `npx` or `uv run` runs.
fn target(words: &[String], markers: &[&str]) -> Result<Option<usize>, String> {
    let name = &words[0];
    let start = match words.get(1) {
        _ if markers.is_empty() => 1,
        Some(word) if markers.contains(&word.as_str()) => 2,
        _ if words.iter().any(|word| markers.contains(&word.as_str())) => {
            return Err(format!("`{name}` with options before what it runs"));
        }
        _ => return Ok(None),
    };
    match words.get(start) {
        Some(program) if !program.starts_with('-') => Ok(Some(start)),
        _ => Err(format!("`{name}` does not name what it runs at once")),
    }
}

/// Checks whether a rule with these leading words allows the command; the error is the reason.
pub(super) fn allows(
    prefix: &[String],
    exact: bool,
    options: Options,
    argv: &[String],
) -> Result<(), String> {
    let chain = chain(argv)?;
    for start in starts(&chain, argv) {
        let words = &argv[start..];
        if !words.starts_with(prefix) || (exact && words.len() != prefix.len()) {
            continue;
        }
        let spelled = start + prefix.len();
        if spelled < chain.required {
            return Err("the rule does not say which program is run in the end".to_owned());
        }
        for at in &chain.programs {
            let name = base(&argv[*at]);
            if name == "git" {
                git(argv, *at, spelled)?;
            }
            if let Some(word) = programs::widening(&name, &argv[spelled.max(at + 1)..]) {
                return Err(format!("`{word}` goes beyond the rule"));
            }
        }
        let last = chain.programs.last().copied().unwrap_or_default();
        return match options {
            Options::Known => harmless::check(&argv[last..], spelled - last),
            Options::Any => Ok(()),
        };
    }
    Err("the command does not begin with these words".to_owned())
}

/// Checks whether an allow rule with these leading words could ever match anything.
pub(super) fn can_allow(prefix: &[String]) -> Result<(), String> {
    let name = base(&prefix[0]);
    match runs(&name) {
        Some(LaunchMode::Unclear([])) => {
            Err(format!("`{name}` runs something else and cannot be allowed by a rule"))
        }
        Some(LaunchMode::Shell) if prefix.get(1).is_none_or(|word| word.starts_with(['-', '+'])) => {
            Err(format!("`{name}` can be allowed only with its script"))
        }
        _ if prefix.iter().any(|word| words::hidden(word).is_some()) => {
            Err("contains invisible characters".to_owned())
        }
        _ => Ok(()),
    }
}

/// Returns the positions where a rule's words may begin: at the front, and after each transparent wrapper. A program
/// behaves differently under sudo, so no position is after sudo.
fn starts(chain: &ProgramChain, argv: &[String]) -> Vec<usize> {
    let mut starts = vec![0];
    for pair in chain.programs.windows(2) {
        let name = base(&argv[pair[0]]);
        // `./timeout` is not the known program.
        if name == "sudo" || name != argv[pair[0]] || runs(&name) != Some(LaunchMode::Through) {
            break;
        }
        starts.push(pair[1]);
    }
    starts
}

/// Returns the part of a command after transparent wrappers; an error for sudo.
pub(super) fn innermost<'a>(chain: &ProgramChain, argv: &'a [String]) -> Result<&'a [String], String> {
    if chain.programs.iter().any(|at| base(&argv[*at]) == "sudo") {
        return Err("it runs as another user".to_owned());
    }
    Ok(&argv[starts(chain, argv).last().copied().unwrap_or_default()..])
}

/// Checks a git command: its own options, and subcommands that run or configure other programs, must be in the rule.
fn git(argv: &[String], at: usize, spelled: usize) -> Result<(), String> {
    let mut next = at + 1;
    while let Some(word) = argv.get(next).filter(|word| word.starts_with('-')) {
        let width = if holds(&TABLE.git.valued, word) { 2 } else { 1 };
        if next + width > spelled && !holds(&TABLE.git.options, word) {
            return Err(format!("`git {word}` goes beyond the rule"));
        }
        next += width;
    }
    let subcommand = argv.get(next).map(String::as_str);
    match subcommand {
        Some("bisect") if argv.iter().any(|word| matches!(word.as_str(), "run" | "view" | "visualize")) => {
            Err("`git bisect` with a program runs something else".to_owned())
        }
        Some(name) if spelled <= next && !is_plain_git(name) => {
            Err("the rule does not name this subcommand of git".to_owned())
        }
        // `ext::sh` is not an address but a program to run.
        Some("clone" | "fetch" | "pull" | "push" | "ls-remote" | "remote" | "submodule")
            if argv[spelled.max(next)..].iter().any(|word| word.contains("::")) =>
        {
            Err("an address of git that names a program".to_owned())
        }
        // Here `-c` is a setting, and `-u` a program to run.
        Some("clone")
            if argv[spelled.max(next)..].iter().any(|w| w.starts_with("-c") || w.starts_with("-u")) =>
        {
            Err("`git clone` with settings goes beyond the rule".to_owned())
        }
        _ => Ok(()),
    }
}
