//! The table of `harmless.toml`, where the keys are described.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HarmlessTable {
    pub(crate) one_dash: Vec<String>,
    pub(crate) targets: Vec<String>,
    pub(crate) any_program: Vec<String>,
    pub(crate) maven_phases: Vec<String>,
    pub(crate) jq_reads: Vec<String>,
    pub(crate) plain: Vec<String>,
    pub(crate) subcommands: HashMap<String, Vec<String>>,
    pub(crate) git: GitTable,
    pub(crate) command: Vec<HarmlessOptions>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitTable {
    pub(crate) options: Vec<String>,
    pub(crate) valued: Vec<String>,
    pub(crate) reads: Vec<String>,
    pub(crate) changes: Vec<String>,
}

/// Options of some commands.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HarmlessOptions {
    pub(crate) names: Vec<String>,
    pub(crate) long: Vec<String>,
    pub(crate) flags: String,
    pub(crate) valued: String,
    pub(crate) text: Vec<String>,
    pub(crate) after: Vec<String>,
}

pub(crate) static TABLE: LazyLock<HarmlessTable> = LazyLock::new(|| {
    toml::from_str(include_str!("harmless.toml")).expect("the table is part of the program, and tested")
});

/// Reports whether a list of the table contains a word.
pub(crate) fn holds(list: &[String], word: &str) -> bool {
    list.iter().any(|known| known == word)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn assert_words_are_distinct(list: &[String]) {
        assert_eq!(list.iter().collect::<BTreeSet<_>>().len(), list.len(), "one of {list:?} is there twice");
        assert!(list.iter().all(|word| !word.trim().is_empty() && word.trim() == word), "{list:?}");
    }

    #[test]
    fn every_entry_of_the_table_can_match() {
        let HarmlessTable { one_dash, targets, any_program, maven_phases, jq_reads, plain, .. } = &*TABLE;
        let HarmlessTable { subcommands, git, command, .. } = &*TABLE;
        let GitTable { options, valued, reads, changes } = git;
        for list in [one_dash, targets, any_program, maven_phases, jq_reads, plain, options, valued] {
            assert_words_are_distinct(list);
        }
        for (program, names) in subcommands {
            assert_words_are_distinct(names);
            assert!(!names.is_empty() && holds(plain, program), "{program}");
        }
        assert_words_are_distinct(&[reads.as_slice(), changes].concat());
        assert!(options.iter().chain(valued).all(|option| option.starts_with('-')));
        for row in command {
            let HarmlessOptions { names, long, flags, valued, text, after } = row;
            assert!(
                !names.is_empty() && names.iter().all(|name| name.split(' ').all(|word| !word.is_empty()))
            );
            for list in [names, long, text, after] {
                assert_words_are_distinct(list);
            }
            assert!(
                long.iter().chain(after).all(|name| !name.starts_with('-') && !name.contains('=')),
                "{row:?}"
            );
            let letters: BTreeSet<char> = flags.chars().chain(valued.chars()).collect();
            assert_eq!(letters.len(), flags.len() + valued.len(), "a letter is there twice: {row:?}");
            for text in text {
                assert!(
                    long.contains(text) || valued.contains(text.as_str()),
                    "{text} is no option of {names:?}"
                );
            }
            let is_empty = [long, after].iter().all(|list| list.is_empty()) && letters.is_empty();
            assert!(!is_empty, "{names:?} has no options");
        }
    }

    #[test]
    fn no_option_is_harmless_and_widens_a_rule() {
        let programs: toml::Table = toml::from_str(include_str!("programs.toml")).unwrap();
        for widening in programs["widening"]["options"].as_array().unwrap() {
            let words =
                |key: &str| widening.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default();
            let short = widening.get("short").and_then(toml::Value::as_str).unwrap_or_default();
            for row in &TABLE.command {
                let is_of =
                    |name: &String| words("programs").iter().any(|of| of.as_str() == name.split(' ').next());
                if row.names.iter().any(is_of) {
                    let long = words("long")
                        .iter()
                        .any(|long| row.long.iter().any(|name| Some(&**name) == long.as_str()));
                    assert!(!long && !row.flags.contains(|c| short.contains(c)), "{row:?}");
                    assert!(!row.valued.contains(|c| short.contains(c)), "{row:?}");
                }
            }
        }
    }
}
