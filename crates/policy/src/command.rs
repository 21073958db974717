//! The match of a command against deny and ask rules, read broadly.

use super::glob::name_fits;
use super::harmless::is_plain;
use super::programs::{LaunchMode, base, file_name, runs};
use super::shell::{self, ShellScript, ShellWord, SimpleCommand};

/// The maximum length of an option that is also read letter by letter: `-fr` and `-r -f` are `-rf`.
const MAX_CLUSTER: usize = 4;
/// The maximum number of words after an unknown program that may start what it runs.
const MAX_TAILS: usize = 256;

/// Programs, and letters that they treat as a long option.
const EQUIVALENT_OPTIONS: &[(&[&str], &str, &str)] = &[
    (&["rm", "cp", "chmod", "chown", "chgrp"], "rR", "recursive"),
    (&["rm", "cp", "mv", "git"], "f", "force"),
];

/// Reports whether any command inside the text begins with the rule's words. An ambiguous text may run anything, so
/// every rule matches it.
pub(super) fn may_match(prefix: &[String], exact: bool, script: &ShellScript) -> bool {
    script.opaque
        || script.commands.iter().any(|simple| {
            simple.views().into_iter().any(|view| words_match(prefix, exact, view))
                || is_behind(prefix, exact, simple)
        })
}

/// Reports whether an unknown program may run the rule's words: any tail of its arguments, and the text of a shell
/// among them.
fn is_behind(prefix: &[String], exact: bool, simple: &SimpleCommand) -> bool {
    let views = simple.views();
    let Some(own) = views.first() else { return false };
    if runs(&base(&own[0].text)).is_some() || is_plain(&file_name(&own[0].text)) {
        return false;
    }
    let tails = || (1..own.len()).take(MAX_TAILS).map(|from| &own[from..]);
    if tails().any(|tail| words_match(prefix, exact, tail)) {
        return true;
    }
    let has_shell = tails().any(|tail| runs(&base(&tail[0].text)) == Some(LaunchMode::Shell));
    let given =
        own.iter().take(MAX_TAILS).filter(|word| has_shell && word.text.contains([' ', '\t', '\n', ';']));
    given.into_iter().any(|word| may_match(prefix, exact, &shell::read(&word.text)))
}

fn words_match(prefix: &[String], exact: bool, words: &[ShellWord]) -> bool {
    let [program, rest @ ..] = prefix else { return false };
    let program = file_name(program);
    let mut first = words[0].clone();
    first.text = file_name(&first.text);
    if !same(&program, &first) {
        return false;
    }
    let arguments = &words[1..];
    // An expansion may become any number of any words.
    let expanded = arguments.iter().any(|word| word.expanded);
    if exact {
        return expanded
            || (rest.len() == arguments.len()
                && rest.iter().zip(arguments).all(|(rule, word)| same(rule, word)));
    }
    let (options, names): (Vec<_>, Vec<_>) = rest.iter().partition(|word| is_option(word));
    let pushes = program == "git" && names.iter().any(|name| *name == "push");
    let has = |option: &&String| {
        expanded
            || has_option(&program, option, arguments)
            || (pushes && is_force(option) && forces(arguments))
    };
    options.iter().all(has) && begins(&names, arguments)
}

fn is_force(option: &str) -> bool {
    matches!(option, "-f" | "--force")
}

/// Reports whether a push is forced, in any spelling.
fn forces(arguments: &[ShellWord]) -> bool {
    arguments.iter().any(|word| word.text.starts_with('+') || word.text.starts_with("--force"))
        || has_long("mirror", arguments)
}

fn same(rule: &str, word: &ShellWord) -> bool {
    // A word that is only an expansion could be anything; the text as a whole decides about it.
    rule == word.text || (word.wild && !is_expansion(word) && name_fits(&word.text, rule))
}

fn is_expansion(word: &ShellWord) -> bool {
    word.wild && word.text.chars().all(|c| c == '*')
}

fn is_option(word: &str) -> bool {
    word.starts_with('-') && word.len() > 1
}

/// Reports whether the arguments begin with these names, except for options and their possible values: `git -C x push`
/// begins with `push`.
fn begins(names: &[&String], arguments: &[ShellWord]) -> bool {
    let mut names = names.iter().peekable();
    let mut after_option = false;
    for word in arguments {
        let Some(name) = names.peek() else { return true };
        if is_option(&word.text) {
            after_option = !word.text.contains('=');
        } else if same(name, word) || is_expansion(word) || word.expanded {
            names.next();
            after_option = false;
        } else if after_option {
            after_option = false;
        } else {
            return false;
        }
    }
    names.peek().is_none()
}

/// Reports whether the arguments have an option. Options may stand anywhere, be abbreviated, have a value, be
/// clustered, and have another name.
fn has_option(program: &str, option: &str, arguments: &[ShellWord]) -> bool {
    let known = || EQUIVALENT_OPTIONS.iter().filter(|(programs, ..)| programs.contains(&program));
    let any_of = |letters: &str| letters.chars().any(|letter| has_letter(letter, arguments));
    if let Some(name) = option.strip_prefix("--") {
        return has_long(name, arguments)
            || known().any(|(_, letters, long)| *long == name && any_of(letters));
    }
    if option.len() > MAX_CLUSTER {
        return arguments.iter().any(|word| same(option, word));
    }
    let given = |letter: char| {
        let other = |letters: &str, long: &str| {
            letters.contains(letter) && (any_of(letters) || has_long(long, arguments))
        };
        has_letter(letter, arguments) || known().any(|(_, letters, long)| other(letters, long))
    };
    option[1..].chars().all(given)
}

fn has_long(name: &str, arguments: &[ShellWord]) -> bool {
    arguments.iter().filter_map(|word| word.text.strip_prefix("--")).any(|given| {
        let given_name = given.split('=').next().unwrap_or(given);
        given == name || (!given_name.is_empty() && name.starts_with(given_name))
    })
}

fn has_letter(letter: char, arguments: &[ShellWord]) -> bool {
    let mut short = arguments.iter().filter(|word| is_option(&word.text) && !word.text.starts_with("--"));
    short.any(|word| word.text[1..].contains(letter))
}
