//! The classes of names that look like those of secrets.

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

/// Words to find in names without separators, the most specific first.
const WORDS: &[(&str, SecretClass)] = &[
    ("secretaccesskey", SecretClass::Token("AWS secret key")),
    ("awssecret", SecretClass::Token("AWS secret key")),
    ("privatekey", SecretClass::Token("private key")),
    ("apikey", SecretClass::Token("API key")),
    ("accesskey", SecretClass::Token("access key")),
    ("encryptionkey", SecretClass::Token("key")),
    ("signingkey", SecretClass::Token("key")),
    ("masterkey", SecretClass::Token("key")),
    ("authkey", SecretClass::Token("key")),
    ("password", SecretClass::Password),
    ("passwd", SecretClass::Password),
    ("passphrase", SecretClass::Password),
    ("connectionstring", SecretClass::Address),
    ("credential", SecretClass::Token("credential")),
    ("secret", SecretClass::Token("secret")),
    ("token", SecretClass::Token("token")),
];

/// The last part of names that describe a secret and do not hold it.
const ABOUT: &[&str] = &[
    "age",
    "at",
    "budget",
    "check",
    "class",
    "count",
    "dir",
    "enabled",
    "endpoint",
    "env",
    "error",
    "expires",
    "expiry",
    "field",
    "file",
    "format",
    "header",
    "hint",
    "id",
    "ids",
    "in",
    "index",
    "kind",
    "label",
    "len",
    "length",
    "limit",
    "limits",
    "manager",
    "max",
    "min",
    "name",
    "names",
    "parallelism",
    "path",
    "pattern",
    "placeholder",
    "policy",
    "prefix",
    "provider",
    "ref",
    "regex",
    "required",
    "rotation",
    "scope",
    "scopes",
    "size",
    "stdin",
    "store",
    "ttl",
    "type",
    "types",
    "uri",
    "url",
    "usage",
    "used",
    "version",
];

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
        _ if ABOUT.contains(&last) || name.starts_with("no-") || name.starts_with("no_") => return None,
        _ => {}
    }
    let named = WORDS.iter().find(|(word, _)| flat.contains(word)).map(|(_, class)| *class);
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
    const SPOKEN: &[&str] =
        &["password", "passwd", "secret", "token", "key", "credential", "passphrase", "auth"];
    let text = text.to_ascii_lowercase();
    SPOKEN.iter().any(|word| text.contains(word))
}
