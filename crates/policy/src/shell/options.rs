//! Options on a command line, by the table of programs that run programs.

use crate::programs::ArgumentGrammar;

/// The meaning of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionValueRole {
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
pub(super) struct OptionMatch<'a> {
    pub(super) role: OptionValueRole,
    /// The value, if it is in the same word.
    pub(super) glued: Option<&'a str>,
    /// A cluster of letters, in which the value may be elsewhere.
    pub(super) is_cluster: bool,
}

/// Returns all options that a word may be.
pub(super) fn find<'a>(grammar: &ArgumentGrammar, word: &'a str) -> Vec<OptionMatch<'a>> {
    let roles = [
        (OptionValueRole::Text, &grammar.texts),
        (OptionValueRole::Code, &grammar.code),
        (OptionValueRole::Setting, &grammar.settings),
        (OptionValueRole::Script, &grammar.scripts),
        (OptionValueRole::Program, &grammar.programs),
        (OptionValueRole::Placeholder, &grammar.placeholders),
        (OptionValueRole::Other, &grammar.valued),
    ];
    let all =
        roles.iter().flat_map(|(role, options)| options.iter().map(move |option| (*role, option.as_str())));
    let found: Vec<OptionMatch<'a>> = all.filter_map(|(role, option)| matches(role, option, word)).collect();
    // The full name of an option is not an abbreviation of another.
    let name = word.split('=').next().unwrap_or(word);
    let is_exact = |role: OptionValueRole| {
        roles.iter().any(|(other, options)| *other == role && options.iter().any(|option| option == name))
    };
    if name.len() > 2 && found.iter().any(|found| is_exact(found.role)) {
        return found.into_iter().filter(|found| is_exact(found.role)).collect();
    }
    found
}

fn matches<'a>(role: OptionValueRole, option: &str, word: &'a str) -> Option<OptionMatch<'a>> {
    let found = |glued: Option<&'a str>, is_cluster: bool| Some(OptionMatch { role, glued, is_cluster });
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
        // `+` with any text after it.
        (Some('+'), None, _) => found(Some(word.strip_prefix('+')?), false),
        // A long option with one dash, or a plain word with its value: `SHELL=`.
        _ => match word.strip_prefix(option)? {
            "" => found(None, false),
            rest if option.ends_with('=') => found(Some(rest), false),
            rest => found(Some(rest.strip_prefix('=')?), false),
        },
    }
}
