//! The table of `words.toml`, where the keys are described.

use std::sync::LazyLock;

use serde::Deserialize;

/// The kind of secret that a name indicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretClass {
    /// Any value may be one, also a word or a number.
    Password,
    /// A long, generated value.
    Token(&'static str),
    /// Like [`Self::Token`], but the name is also used for other things.
    Maybe(&'static str),
    /// An address with its password.
    Address,
    /// A scheme, and its credentials.
    Authorization,
    Cookie,
}

impl SecretClass {
    pub(super) fn sort(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Token(sort) | Self::Maybe(sort) => sort,
            Self::Address => "connection string",
            Self::Authorization => "authorization",
            Self::Cookie => "cookie",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WordTable {
    pub(super) about: Vec<String>,
    pub(super) mentions: Vec<String>,
    pub(super) values: Vec<String>,
    pub(super) prose: Vec<String>,
    pub(super) name: Vec<SecretName>,
}

/// Words in names of secrets of one class.
#[derive(Debug, Deserialize)]
#[serde(tag = "class", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum SecretName {
    Password { words: Vec<String> },
    Token { words: Vec<String>, sort: String },
    Address { words: Vec<String> },
}

impl SecretName {
    pub(super) fn words(&self) -> &[String] {
        let (Self::Password { words } | Self::Token { words, .. } | Self::Address { words }) = self;
        words
    }

    pub(super) fn class(&'static self) -> SecretClass {
        match self {
            Self::Password { .. } => SecretClass::Password,
            Self::Token { sort, .. } => SecretClass::Token(sort),
            Self::Address { .. } => SecretClass::Address,
        }
    }
}

pub(super) static WORDS: LazyLock<WordTable> = LazyLock::new(|| {
    toml::from_str(include_str!("words.toml")).expect("the table is part of the program, and tested")
});

/// Reports whether a list of the table contains a word.
pub(super) fn holds(list: &[String], word: &str) -> bool {
    list.iter().any(|known| known == word)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_of_the_table_can_match() {
        let WordTable { about, mentions, values, prose, name } = &*WORDS;
        for list in [about, mentions, values, prose]
            .into_iter()
            .map(Vec::as_slice)
            .chain(name.iter().map(SecretName::words))
        {
            assert_eq!(
                list.iter().collect::<BTreeSet<_>>().len(),
                list.len(),
                "one of {list:?} is there twice"
            );
            for word in list {
                assert!(
                    !word.is_empty() && *word == word.to_ascii_lowercase() && !word.contains(' '),
                    "{word:?}"
                );
            }
        }
    }
}
