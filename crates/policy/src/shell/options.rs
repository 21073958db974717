//! Options on a command line, by the table of programs that take programs.

use crate::programs::Grammar;

/// The meaning of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A command line.
    Text,
    /// Code in another language.
    Code,
    /// `NAME=VALUE`, where some names take command lines.
    Setting,
    /// A script file.
    Script,
    /// A program in the language of the operand: awk or sed.
    Program,
    /// A string that is replaced in the command.
    Placeholder,
    Other,
}

/// An option and the place of its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub(super) role: Role,
    /// The value, if it stands in the same word.
    pub(super) glued: Option<&'a str>,
    /// A cluster of letters, in which the value may be elsewhere.
    pub(super) is_cluster: bool,
}

/// All options that a word may be.
pub(super) fn find<'a>(grammar: &Grammar, word: &'a str) -> Vec<Found<'a>> {
    let roles = [
        (Role::Text, &grammar.texts),
        (Role::Code, &grammar.code),
        (Role::Setting, &grammar.settings),
        (Role::Script, &grammar.scripts),
        (Role::Program, &grammar.programs),
        (Role::Placeholder, &grammar.placeholders),
        (Role::Other, &grammar.valued),
    ];
    let all =
        roles.iter().flat_map(|(role, options)| options.iter().map(move |option| (*role, option.as_str())));
    let found: Vec<Found<'a>> = all.filter_map(|(role, option)| matches(role, option, word)).collect();
    // An option by its full name is no abbreviation of another.
    let name = word.split('=').next().unwrap_or(word);
    let is_exact = |role: Role| {
        roles.iter().any(|(other, options)| *other == role && options.iter().any(|option| option == name))
    };
    if name.len() > 2 && found.iter().any(|found| is_exact(found.role)) {
        return found.into_iter().filter(|found| is_exact(found.role)).collect();
    }
    found
}

fn matches<'a>(role: Role, option: &str, word: &'a str) -> Option<Found<'a>> {
    let found = |glued: Option<&'a str>, is_cluster: bool| Some(Found { role, glued, is_cluster });
    if let Some(name) = option.strip_prefix("--") {
        let given = word.strip_prefix("--")?;
        let (given, value) = given.split_once('=').map_or((given, None), |(name, value)| (name, Some(value)));
        return if !given.is_empty() && name.starts_with(given) { found(value, false) } else { None };
    }
    let mut letters = option.chars().skip(1);
    match (option.chars().next(), letters.next(), letters.next()) {
        // One letter, alone or in a cluster.
        (Some('-'), Some(letter), None) => {
            let cluster = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
            let at = cluster.find(letter)?;
            let rest = &cluster[at + letter.len_utf8()..];
            found(Some(rest).filter(|rest| !rest.is_empty()), at > 0)
        }
        // `+` with anything behind it.
        (Some('+'), None, _) => found(Some(word.strip_prefix('+')?), false),
        // A long option with one dash, or a plain word with its value: `SHELL=`.
        _ => match word.strip_prefix(option)? {
            "" => found(None, false),
            rest if option.ends_with('=') => found(Some(rest), false),
            rest => found(Some(rest.strip_prefix('=')?), false),
        },
    }
}
