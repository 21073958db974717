//! The risk of a command, from the words of every command inside its text. Unknown programs are medium; only programs
//! that are known to change nothing are low.

use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;

use super::{RiskFindings, downloads, is_hidden, is_system, looks_secret, runs_later};
use crate::harmless_table::holds;
use crate::programs::{base, file_name, runs, widening};
use crate::shell::effects::{is_file, only_reads, written};
use crate::shell::{ShellScript, ShellWord, SimpleCommand, is_assignment};
use crate::words::MAX_BYTES;
use intercom_types::Risk;

/// The table of `commands.toml`, which says what the keys mean.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RiskTable {
    program: Vec<ProgramRisk>,
    install: RiskyWords,
    publish: RiskyWords,
    git: GitReads,
}

/// Programs of one risk.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramRisk {
    names: Vec<String>,
    risk: Risk,
    why: String,
}

/// Programs with one of these words among their arguments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RiskyWords {
    programs: Vec<String>,
    words: Vec<String>,
}

impl RiskyWords {
    fn fits(&self, program: &str, arguments: &[&str]) -> bool {
        holds(&self.programs, program) && arguments.iter().any(|word| holds(&self.words, word))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GitReads {
    reads: Vec<String>,
}

static TABLE: LazyLock<RiskTable> = LazyLock::new(|| {
    toml::from_str(include_str!("commands.toml")).expect("the table is part of the program, and tested")
});

pub(super) fn assess_command(text: &str, script: &ShellScript, found: &mut RiskFindings) {
    if is_hidden(text) {
        found.add(Risk::High, "invisible characters in the command");
    }
    if text.len() > MAX_BYTES {
        found.add(Risk::High, "the command is too long to read");
    } else if script.opaque {
        found.add(Risk::High, "it is unclear what the command runs");
    }
    if text.split_whitespace().collect::<String>().contains(":(){") {
        found.add(Risk::Critical, "a fork bomb");
    }
    let mut left = false;
    for simple in &script.commands {
        for file in &simple.writes {
            writes(file, left, found);
        }
        for file in &simple.reads {
            opens(file, found);
        }
        settings(simple, found);
        let views = simple.views();
        for (n, view) in views.iter().enumerate() {
            assess_view(view, n == 0, left, found);
        }
        if views.len() > 1 {
            found.add(Risk::Medium, format!("runs something else: {}", file_name(&views[0][0].text)));
        }
        left |= views.first().is_some_and(|own| leaves_for_good(own));
    }
    downloads::assess_downloads(script, found);
}

/// Reports whether a command moves later commands out of the workspace: `cd` goes home.
fn leaves_for_good(own: &[ShellWord]) -> bool {
    let folder = own[1..].iter().find(|word| !word.text.starts_with('-') || word.text == "-");
    matches!(own[0].text.as_str(), "cd" | "pushd" | "chdir")
        && folder.is_none_or(|folder| folder.expanded || folder.text == "-" || leaves(&folder.text))
}

/// Assesses a file that the shell opens for reading.
fn opens(file: &str, found: &mut RiskFindings) {
    if file.starts_with("/dev/tcp/") || file.starts_with("/dev/udp/") {
        found.add(Risk::High, format!("talks to other machines: {file}"));
    } else if looks_secret(file) {
        found.add(Risk::High, format!("looks like a secret: {file}"));
    } else if leaves(file) && is_file(file) {
        found.add(Risk::Medium, format!("reads outside of the workspace: {file}"));
    }
}

/// Assesses a file that is written. `left`: the command runs outside of the workspace.
fn writes(file: &str, left: bool, found: &mut RiskFindings) {
    // `2>&1` writes to no file.
    if !is_file(file) {
        return;
    }
    let risk = if is_system(Path::new(file)) {
        Risk::Critical
    } else if left || looks_secret(file) || leaves(file) {
        Risk::High
    } else {
        Risk::Medium
    };
    found.add(risk, format!("writes to {file}"));
    if let Some(risk) = runs_later(file) {
        found.add(risk, format!("is run later by other programs: {file}"));
    }
}

/// Reports whether a path, by its text, leads out of the command's directory.
fn leaves(path: &str) -> bool {
    path.starts_with(['/', '~']) || path.split('/').any(|part| part == "..")
}

/// Assesses variables that change the program or its behaviour.
fn settings(simple: &SimpleCommand, found: &mut RiskFindings) {
    const NAMES: &[&str] = &[
        "PATH",
        "IFS",
        "ENV",
        "EDITOR",
        "VISUAL",
        "PAGER",
        "SHELL",
        "BASH_ENV",
        "NODE_OPTIONS",
        "HOME",
        "CC",
        "CXX",
    ];
    const BEGINNINGS: &[&str] =
        &["LD_", "DYLD_", "GIT_", "PYTHON", "PERL", "RUBY", "RUSTC", "CARGO_", "NPM_", "BASH_FUNC"];
    for word in simple.words.iter().filter(|word| is_assignment(&word.text)) {
        let name = word.text.split(['=', '+']).next().unwrap_or_default();
        let begins = BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
        if begins || NAMES.contains(&name) || name.ends_with("_COMMAND") || name.ends_with("_WRAPPER") {
            found.add(Risk::High, format!("sets {name}"));
        }
    }
    if simple.words.first().is_some_and(|word| is_assignment(&word.text)) {
        found.add(Risk::Medium, "sets variables");
    }
}

/// Assesses a command. `whole`: the command itself, and not a tail that it may run. `left`: it runs outside of the
/// workspace.
fn assess_view(view: &[ShellWord], whole: bool, left: bool, found: &mut RiskFindings) {
    let Some((program, words)) = view.split_first() else { return };
    let name = file_name(&program.text);
    let arguments: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let (risk, why) = by_program(&name, &arguments);
    // An unknown program at the start of a tail is no finding: it may be a file name.
    if risk > Risk::Medium || whole {
        found.add(risk, why);
    }
    for file in written(&name, view) {
        writes(file, left, found);
    }
    // All other findings of a tail are found in the whole command, too.
    if !whole {
        return;
    }
    let names_files = arguments.iter().any(|word| !word.starts_with('-'));
    if left && names_files && !only_reads(&name) {
        found.add(Risk::High, format!("works outside of the workspace: {name}"));
    } else if left && name != "cd" && name != "echo" {
        found.add(Risk::Medium, format!("works outside of the workspace: {name}"));
    }
    if program.wild {
        found.add(Risk::High, format!("what is run depends on files: {}", program.text));
    }
    if let Some(secret) = arguments.iter().find(|word| looks_secret(word)) {
        found.add(Risk::High, format!("looks like a secret: {secret}"));
    }
    if only_reads(&name) {
        reads(words, found);
    } else if let Some(system) =
        arguments.iter().find(|word| is_system(Path::new(word)) && **word != "/dev/null")
    {
        found.add(Risk::High, format!("outside of the workspace: {system}"));
    }
}

/// Records the risk of the files that a harmless program reads.
fn reads(words: &[ShellWord], found: &mut RiskFindings) {
    if let Some(word) = words.iter().find(|word| leaves(&word.text)) {
        found.add(Risk::Medium, format!("reads outside of the workspace: {}", word.text));
    }
    // `.e*` may be `.env`.
    let vague = |word: &&ShellWord| {
        word.wild && word.text.split('/').any(|part| part == "*" || part.starts_with('.'))
    };
    if let Some(word) = words.iter().find(vague) {
        found.add(Risk::Medium, format!("cannot tell what it reads: {}", word.text));
    }
}

fn by_program(name: &str, arguments: &[&str]) -> (Risk, String) {
    let has = |word: &str| arguments.contains(&word);
    let short = |letters: &[char]| {
        arguments
            .iter()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letters))
    };
    let first = arguments.iter().copied().find(|word| !word.starts_with('-')).unwrap_or_default();
    let known = TABLE.program.iter().find(|row| holds(&row.names, name));
    let (risk, why) = match name {
        "rm" | "rmdir" | "unlink" | "shred" | "srm" | "trash" => return deletes(name, arguments),
        "dd" if !arguments.iter().any(|word| word.starts_with("of=/dev/") && is_file(&word[3..])) => {
            (Risk::Medium, "copies data")
        }
        name if name.starts_with("mkfs") => (Risk::Critical, "writes to disks"),
        "chmod" | "chown" | "chgrp" | "setfacl" | "chattr" => {
            let wide =
                short(&['R']) || has("--recursive") || arguments.iter().any(|word| word.ends_with("777"));
            (if wide { Risk::High } else { Risk::Medium }, "changes permissions")
        }
        "curl" | "wget" | "aria2c" | "http" | "https" | "xh" => return fetches(arguments),
        "git" => return git(first, arguments),
        "find" if has("-delete") => (Risk::High, "deletes"),
        name => match known {
            Some(row) => (row.risk, row.why.as_str()),
            None if TABLE.publish.fits(name, arguments) => (Risk::High, "publishes"),
            None if TABLE.install.fits(&base(name), arguments) => {
                (Risk::High, "installs or removes packages")
            }
            None if matches!(name, "npm" | "pnpm" | "yarn" | "bun" | "cargo" | "go" | "make") => {
                (Risk::Medium, "runs code of the workspace")
            }
            None if only_reads(name) => return harmless(name, arguments),
            None => return unknown(name),
        },
    };
    (risk, format!("{why}: {name}"))
}

fn harmless(name: &str, arguments: &[&str]) -> (Risk, String) {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    match widening(name, &arguments) {
        Some(option) => (Risk::Medium, format!("more than reading: {name} {option}")),
        None => (Risk::Low, format!("changes nothing: {name}")),
    }
}

fn unknown(name: &str) -> (Risk, String) {
    match runs(&base(name)) {
        Some(_) => (Risk::Medium, format!("runs something else: {name}")),
        None => (Risk::Medium, format!("runs {name}")),
    }
}

fn deletes(name: &str, arguments: &[&str]) -> (Risk, String) {
    let recursive = arguments.iter().any(|word| {
        *word == "--recursive"
            || (word.starts_with('-') && !word.starts_with("--") && word.contains(['r', 'R']))
    });
    let wide = |word: &&str| {
        let path = word.trim_end_matches(['/', '*', '.']);
        path.is_empty() || path == "~" || leaves(word) || word.starts_with('*')
    };
    let targets = || arguments.iter().filter(|word| !word.starts_with('-'));
    if recursive && targets().any(wide) {
        return (Risk::Critical, format!("deletes without limits: {name} {}", arguments.join(" ")));
    }
    (Risk::High, format!("deletes: {name}"))
}

fn fetches(arguments: &[&str]) -> (Risk, String) {
    let sends = |word: &&str| {
        let long = ["--data", "--form", "--upload-file", "--post", "--body", "--json"];
        let method = matches!(*word, "POST" | "PUT" | "DELETE" | "PATCH");
        let short = ["-d", "-F", "-T"].iter().any(|option| word.starts_with(option));
        method || short || long.iter().any(|option| word.starts_with(option))
    };
    if arguments.iter().any(sends) {
        return (Risk::High, "sends data over the network".to_owned());
    }
    (Risk::Medium, "uses the network".to_owned())
}

fn git(subcommand: &str, arguments: &[&str]) -> (Risk, String) {
    let has = |words: &[&str]| arguments.iter().any(|word| words.contains(word));
    let forced = || {
        has(&["-f", "--force", "--mirror", "--delete", "-d", "--prune"])
            || arguments
                .iter()
                .any(|word| word.starts_with("--force") || word.starts_with('+') || word.starts_with(':'))
    };
    // With options before the subcommand, the first name may be the value of one.
    let is = |name: &str| {
        subcommand == name || (arguments.first().is_some_and(|a| a.starts_with('-')) && has(&[name]))
    };
    let own_options = arguments.first().is_some_and(|a| a.starts_with('-') && *a != "--no-pager");
    let (risk, why) = match () {
        () if is("push") && forced() => (Risk::Critical, "overwrites the work of others"),
        () if is("push") => (Risk::High, "publishes"),
        () if is("reset") && has(&["--hard"]) => (Risk::High, "discards work"),
        () if is("clean") || is("filter-branch") || is("filter-repo") || is("rm") => (Risk::High, "deletes"),
        () if (is("checkout") || is("restore") || is("switch")) && has(&["--", ".", "-f", "--force"]) => {
            (Risk::High, "discards work")
        }
        () if is("stash") && has(&["drop", "clear"]) => (Risk::High, "discards work"),
        () if is("branch") && has(&["-D", "-d", "--delete"]) => (Risk::High, "discards work"),
        () if is("config") || own_options => (Risk::High, "changes how git works"),
        () if is("clone") || is("fetch") || is("pull") || is("submodule") => {
            (Risk::Medium, "uses the network")
        }
        () if holds(&TABLE.git.reads, subcommand) => return harmless("git", arguments),
        () => (Risk::Medium, "changes the repository"),
    };
    (risk, format!("{why}: git {subcommand}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_the_table_has_the_risk_that_it_says() {
        let RiskTable { program, install, publish, git: GitReads { reads } } = &*TABLE;
        for ProgramRisk { names, risk, why } in program {
            assert!(!names.is_empty() && *risk > Risk::Low, "{why}");
            for name in names {
                assert_eq!(by_program(name, &["of=/dev/sda"]), (*risk, format!("{why}: {name}")));
            }
        }
        for (uses, expected) in [(install, "installs or removes packages"), (publish, "publishes")] {
            for name in
                uses.programs.iter().filter(|name| program.iter().all(|row| !row.names.contains(name)))
            {
                assert!(!uses.words.is_empty());
                for word in &uses.words {
                    assert_eq!(
                        by_program(name, &[word]),
                        (Risk::High, format!("{expected}: {name}")),
                        "{word}"
                    );
                }
            }
        }
        for subcommand in reads {
            assert_eq!(git(subcommand, &[subcommand]).0, Risk::Low, "{subcommand}");
            assert!(crate::git::only_reads(subcommand), "{subcommand}");
        }
    }
}
