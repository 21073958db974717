//! Whether a command is meant by a deny or ask rule, read generously.

use super::glob::name_fits;
use super::programs::file_name;
use super::shell::{Script, Word};

/// Options this short are read letter by letter: `-fr` and `-r -f` are `-rf`.
const MAX_CLUSTER: usize = 4;

/// Whether any command inside the text begins with the rule's words; if the text cannot be read with certainty,
/// whether the words occur in it at all.
pub(super) fn meant(prefix: &[String], exact: bool, script: &Script, text: &str) -> bool {
    let within = script.commands.iter().flat_map(|simple| simple.views()).any(|view| is(prefix, exact, view));
    within || (script.opaque && prefix.iter().all(|word| occurs(word, text)))
}

fn is(prefix: &[String], exact: bool, words: &[Word]) -> bool {
    let [program, rest @ ..] = prefix else { return false };
    if !same(&file_name(program), &Word { text: file_name(&words[0].text), wild: words[0].wild }) {
        return false;
    }
    let arguments = &words[1..];
    if exact {
        return rest.len() == arguments.len()
            && rest.iter().zip(arguments).all(|(rule, word)| same(rule, word));
    }
    let (options, names): (Vec<_>, Vec<_>) = rest.iter().partition(|word| is_option(word));
    options.iter().all(|option| has_option(option, arguments)) && begins(&names, arguments)
}

fn same(rule: &str, word: &Word) -> bool {
    // What is all expansion could be anything; then the text as a whole is looked at instead.
    rule == word.text || (word.wild && !is_expansion(word) && name_fits(&word.text, rule))
}

fn is_expansion(word: &Word) -> bool {
    word.wild && word.text.chars().all(|c| c == '*')
}

fn is_option(word: &str) -> bool {
    word.starts_with('-') && word.len() > 1
}

/// The names come first, apart from options and what may be their values: `git -C x push` begins with `push`.
fn begins(names: &[&String], arguments: &[Word]) -> bool {
    let mut names = names.iter().peekable();
    let mut after_option = false;
    for word in arguments {
        let Some(name) = names.peek() else { return true };
        if is_option(&word.text) {
            after_option = !word.text.contains('=');
        } else if same(name, word) || is_expansion(word) {
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

/// Options may stand anywhere, be shortened, have a value, and be run together.
fn has_option(option: &str, arguments: &[Word]) -> bool {
    if let Some(name) = option.strip_prefix("--") {
        return arguments.iter().filter_map(|word| word.text.strip_prefix("--")).any(|given| {
            let given_name = given.split('=').next().unwrap_or(given);
            given == name || given_name == name || (given_name.len() > 2 && name.starts_with(given_name))
        });
    }
    if option.len() > MAX_CLUSTER {
        return arguments.iter().any(|word| same(option, word));
    }
    let given = |letter: char| {
        let short = arguments.iter().filter(|word| is_option(&word.text) && !word.text.starts_with("--"));
        short.into_iter().any(|word| word.text[1..].contains(letter))
    };
    option[1..].chars().all(given)
}

/// As a word of its own: `rm` occurs in `$(rm)` but not in `farm`.
fn occurs(word: &str, text: &str) -> bool {
    let word = if is_option(word) { word.to_owned() } else { file_name(word) };
    let text = if is_option(&word) { text.to_owned() } else { text.to_ascii_lowercase() };
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(&word)
        .any(|(at, found)| !text[..at].ends_with(in_word) && !text[at + found.len()..].starts_with(in_word))
}
