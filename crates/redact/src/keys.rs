//! The classes of names that look like those of secrets.

use super::words::{SecretClass, SecretName, WORDS, holds};

/// The maximum length of a name; only the end of longer ones is examined.
const LONGEST: usize = 100;

/// Returns the class of a name as it is written: `DB_PASSWORD`, `x-api-key`, `clientSecret`,
/// `spring.datasource.password`.
pub(super) fn class(name: &str) -> Option<SecretClass> {
    // The name without separators and in lower case; the start of its last part, and the number of parts.
    let (mut flat, mut last, mut parts) = (String::with_capacity(name.len().min(LONGEST)), 0, 0);
    let mut was = b'_';
    let bytes = name.as_bytes();
    for &byte in &bytes[bytes.len().saturating_sub(LONGEST)..] {
        if byte.is_ascii_alphanumeric() {
            let begins =
                !was.is_ascii_alphanumeric() || (was.is_ascii_lowercase() && byte.is_ascii_uppercase());
            if begins {
                (last, parts) = (flat.len(), parts + 1);
            }
            flat.push(char::from(byte.to_ascii_lowercase()));
        }
        was = byte;
    }
    let last = &flat[last..];
    match flat.as_str() {
        "authorization" | "proxyauthorization" => return Some(SecretClass::Authorization),
        "cookie" | "setcookie" => return Some(SecretClass::Cookie),
        _ if holds(&WORDS.about, last) || name.starts_with("no-") || name.starts_with("no_") => return None,
        _ => {}
    }
    let is_named = |name: &&SecretName| name.words().iter().any(|word| flat.contains(word.as_str()));
    let named = WORDS.name.iter().find(is_named).map(SecretName::class);
    match (named, last) {
        (Some(SecretClass::Token("token")), _) if flat.contains("tokeniz") || flat.contains("tokenis") => {
            None
        }
        (Some(class), _) => Some(class),
        (None, "pat") if parts > 1 => Some(SecretClass::Maybe("token")),
        (None, "pass" | "pwd") if parts > 1 => Some(SecretClass::Maybe("password")),
        (None, "dsn") => Some(SecretClass::Address),
        (None, _) => None,
    }
}

/// Reports whether a text mentions secrets: a name or a sentence about one, rather than a secret itself.
pub(super) fn mentions_secret(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    WORDS.mentions.iter().any(|word| text.contains(word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_secret_makes_its_own_class() {
        for name in &WORDS.name {
            for word in name.words() {
                assert_eq!(class(word), Some(name.class()), "{word} is found by a word before it");
            }
        }
    }
}
