//! The decision whether the value of a secret-looking name is a secret, or code, a name, a type or an example.

use super::MARK;
use super::keys::mentions_secret;
use super::words::{SecretClass, WORDS, holds};

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValuePlace {
    /// Between quotes; `expands` for other than single ones, in which `$name` may mean a variable.
    Quoted { expands: bool },
    /// `KEY=value`, as in environment files and shells: everything is text.
    Env,
    /// After `--flag`, where prose may follow as well.
    Flag,
    /// The rest of the line after `key:`.
    Line,
    /// Elsewhere; mostly code.
    Code,
}

/// The length of code that is examined.
const LOOK: usize = 256;

/// Reports whether the value of a name is a secret.
pub(super) fn is_secret_value(value: &str, name: &str, class: SecretClass, place: ValuePlace) -> bool {
    let expands = place != ValuePlace::Quoted { expands: false };
    if value.contains(MARK) || is_reference(value, expands) || is_placeholder(value) {
        return false;
    }
    if class == SecretClass::Address {
        return value.contains("://") || value.contains('@') || value.contains(';');
    }
    let lower = start(value, 32).to_ascii_lowercase();
    if holds(&WORDS.values, &lower) || value.eq_ignore_ascii_case(name) || is_elsewhere(value) {
        return false;
    }
    if let SecretClass::Maybe(_) = class
        && place != ValuePlace::Env
        && !(value.len() >= 8 && has_digit(value) && has_letter(value))
    {
        return false;
    }
    match place {
        ValuePlace::Quoted { .. } => quoted(value, class),
        ValuePlace::Flag if holds(&WORDS.prose, &lower) => false,
        _ if starts_like_code(value, place) => false,
        ValuePlace::Env | ValuePlace::Flag => text(value, class, place),
        ValuePlace::Line | ValuePlace::Code => code(value, class, place),
    }
}

/// Reports whether a value is a reference to its source: `$TOKEN`, `${TOKEN}`, `{{ token }}`, `%TOKEN%`, `<token>`.
pub(super) fn is_reference(value: &str, expands: bool) -> bool {
    let name = |text: &str| {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        text.bytes().all(is_name) && text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
    };
    let inside = |open: char, close: char| {
        value
            .strip_prefix(open)
            .and_then(|rest| rest.strip_suffix(close))
            .is_some_and(|inner| !inner.is_empty())
    };
    let dollar = value.strip_prefix('$').is_some_and(|rest| {
        rest.starts_with(['{', '(']) || (name(rest) && (expands || !rest.contains(char::is_lowercase)))
    });
    let begins =
        ["{{", "<%", "#{", "%(", "%s", "%v", "%{", "op://", "arn:", "vault:", "ENC[", "env:", "secrets."];
    dollar
        || begins.iter().any(|begin| value.starts_with(begin))
        || inside('<', '>')
        || inside('{', '}')
        || (inside('%', '%') && name(value.trim_matches('%')))
}

/// Reports whether a value is a placeholder of an example: `xxxx`, `****`, `...`, `your-token-here`.
pub(super) fn is_placeholder(value: &str) -> bool {
    let dull = |c: char| matches!(c, 'x' | 'X' | '*' | '.' | '-' | '_' | '#' | '?' | '•' | '…' | '=' | ' ');
    if value.chars().all(dull) {
        return true;
    }
    let lower = start(value, 64).to_ascii_lowercase();
    lower.starts_with("your")
        || (lower.len() < 10 && (lower.ends_with("...") || lower.ends_with('…')))
        || ["your_", "your-", "-here", "_here", "placeholder", "redacted", "xxxxx", "*****"]
            .iter()
            .any(|word| lower.contains(word))
}

/// Reports whether a value is a file, an address or a digest.
fn is_elsewhere(value: &str) -> bool {
    let path = ["/", "./", "../", "~/"].iter().any(|begin| value.starts_with(begin))
        && !value.contains(['+', '='])
        && !(value.len() >= 32 && value.contains(|c: char| c.is_ascii_uppercase()) && !value.contains('.'));
    path || ["http://", "https://", "sha256:", "sha512:", "sha256-", "sha512-"]
        .iter()
        .any(|begin| value.starts_with(begin))
}

fn quoted(value: &str, class: SecretClass) -> bool {
    let password = class == SecretClass::Password;
    if value.contains(char::is_whitespace) {
        let sentence = value.trim_end().ends_with(['.', ':', '?', '!']) || mentions_secret(value);
        return value.len() <= 200 && !sentence && (password || has_digit(value));
    }
    if !password && (value.len() < 4 || is_amount(value)) {
        return false;
    }
    // The name of a variable, a field or a text: `"GITHUB_TOKEN"`, `"access_token"`.
    let is_name = value.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-' | b'.'));
    let shouts = value.contains('_') && !value.contains(|c: char| c.is_ascii_lowercase());
    !(is_name && mentions_secret(value) && (!password || shouts))
}

/// Reports whether an unquoted value is a call, a type or a path of names: `get_token()`, `Option<String>`,
/// `config.token`.
fn starts_like_code(value: &str, place: ValuePlace) -> bool {
    let value = start(value, LOOK);
    if value.starts_with(['(', '{', '|', '<', '[']) {
        return true;
    }
    if value.starts_with(['&', '*', '!', '@', '=']) && place != ValuePlace::Env {
        return true;
    }
    let is_path = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':');
    let names = &value[..super::skip(value.as_bytes(), 0, is_path)];
    let rest = &value[names.len()..];
    if !names.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return false;
    }
    let calls = rest.starts_with(['(', '[', '{']) || rest.starts_with("!(") || rest.starts_with("->");
    let typed = rest.starts_with('<') && (place != ValuePlace::Env || rest.contains('>'));
    let plain = !has_digit(names) || (place != ValuePlace::Env && mentions_secret(names));
    calls || typed || names.contains("::") || (names.trim_end_matches(['.', ':']).contains('.') && plain)
}

/// Reports whether a value in an environment file or after a flag is a secret.
fn text(value: &str, class: SecretClass, place: ValuePlace) -> bool {
    if class == SecretClass::Password {
        let metavar = value.len() > 1 && value.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        return place != ValuePlace::Flag || !metavar;
    }
    let is_name = value.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-'));
    let metavar = place == ValuePlace::Flag && !value.contains(|c: char| c.is_ascii_lowercase());
    value.len() >= 4 && !is_amount(value) && !(is_name && (metavar || mentions_secret(value)))
}

/// Reports whether a value in code is a secret: only if it cannot be code.
fn code(value: &str, class: SecretClass, place: ValuePlace) -> bool {
    let password = class == SecretClass::Password;
    let value = start(value, LOOK);
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        return value.len() >= if password { 4 } else { 10 };
    }
    if ["=>", "==", "&&", "||", "()"].iter().any(|operator| value.contains(operator)) || is_amount(value) {
        return false;
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if value.bytes().all(is_name) {
        if value.len() < 6 || mentions_secret(value) {
            return false;
        }
        if has_digit(value) && has_letter(value) {
            return !value.contains('_') || value.bytes().filter(u8::is_ascii_digit).count() > 2;
        }
        return place == ValuePlace::Line && value.bytes().all(|byte| byte.is_ascii_lowercase());
    }
    if value.len() < 4 || value.bytes().filter(u8::is_ascii_alphanumeric).count() < 3 || !has_letter(value) {
        return false;
    }
    let words = value.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_'));
    if words {
        return password && place == ValuePlace::Line && value.len() >= 8 && !value.ends_with('-');
    }
    let odd = value.trim_matches(['*', '_', '#', '!']).contains(['@', '#', '$', '%', '^', '!', '+', '/']);
    (has_digit(value) && value.len() >= 6) || (odd && value.len() >= if password { 5 } else { 12 })
}

/// Reports whether a value is a number, with or without a unit: `4096`, `1_000`, `0.5`, `200k`. Long numbers do not
/// count.
fn is_amount(value: &str) -> bool {
    let digits = value.trim_end_matches(['k', 'K', 'm', 'M', '%', 's']);
    value.len() < 10
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',' | b'_' | b'-'))
}

fn has_digit(value: &str) -> bool {
    value.bytes().any(|byte| byte.is_ascii_digit())
}

fn has_letter(value: &str) -> bool {
    value.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Returns the beginning of a value, at most `length` bytes.
fn start(value: &str, length: usize) -> &str {
    &value[..value.floor_char_boundary(length)]
}
