//! One id type per thing: a prefix and sixteen random characters, so that short prefixes are unique and people can
//! type them. A clearance id does not parse as a session id.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Lower-case Crockford base32: no `i`, `l`, `o` or `u`, which people misread.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The length of a prefix: three letters and an underscore.
const PREFIX: usize = 4;
const LEN: usize = 16;
/// The number of characters that people see and type.
const SHORT: usize = 8;

/// The eighty random bits of an id. Generated outside of the pure state machine and passed in.
pub type Seed = [u8; 10];

/// Returns eighty random bits from the operating system.
pub fn seed() -> Seed {
    // The fixed bits of a v4 UUID are in bytes 6 and 8; take the others.
    let b = uuid::Uuid::new_v4().into_bytes();
    [b[0], b[1], b[2], b[3], b[4], b[5], b[9], b[10], b[11], b[12]]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id of the form {prefix}… with {LEN} characters")]
pub struct BadId {
    prefix: &'static str,
}

/// An id as text, with its prefix.
type IdText = [u8; PREFIX + LEN];

fn encode(seed: Seed, prefix: &str) -> IdText {
    let mut bits = seed.iter().fold(0u128, |acc, byte| (acc << 8) | u128::from(*byte));
    let mut out = [0; PREFIX + LEN];
    out[..PREFIX].copy_from_slice(prefix.as_bytes());
    for slot in out[PREFIX..].iter_mut().rev() {
        *slot = ALPHABET[(bits & 31) as usize];
        bits >>= 5;
    }
    out
}

fn decode(text: &str, prefix: &'static str) -> Result<IdText, BadId> {
    let bad = BadId { prefix };
    let id: IdText = text.as_bytes().try_into().map_err(|_| bad)?;
    let is_id = text.starts_with(prefix) && id[PREFIX..].iter().all(|c| ALPHABET.contains(c));
    if is_id { Ok(id) } else { Err(bad) }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(IdText);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            pub fn from_seed(seed: Seed) -> Self {
                Self(encode(seed, $prefix))
            }

            pub fn mint() -> Self {
                Self::from_seed(seed())
            }

            /// Returns the id as people see and type it: the prefix and eight characters.
            pub fn short(&self) -> String {
                self[..PREFIX + SHORT].to_owned()
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                std::str::from_utf8(&self.0).expect("ids are made of ASCII")
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                decode(text, $prefix).map(Self)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": concat!("^", $prefix, "[0-9a-z]{16}$") })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    };
}

id!(/** One hosted agent at work in one workspace. */ SessionId, "ses_");
id!(/** From a prompt until the agent is done with it. */ TurnId, "trn_");
id!(/** An agent asks to be allowed something. */ ClearanceId, "clr_");
id!(/** An agent asks how to go on. */ QuestionId, "qst_");
id!(/** A prompt of an operator. */ PromptId, "prm_");
id!(/** A way in over the network. */ TokenId, "tok_");
id!(/** A rule that somebody made of one decision. */ GrantId, "grt_");
id!(/** Somebody signed in to the web console. */ WebSessionId, "web_");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_printing_and_parsing() {
        let id = SessionId::mint();
        assert_eq!(id.to_string().parse::<SessionId>(), Ok(id));
        assert_eq!(id.to_string().len(), 20);
    }

    #[test]
    fn a_clearance_id_is_not_a_session_id() {
        assert!(ClearanceId::mint().to_string().parse::<SessionId>().is_err());
    }

    #[test]
    fn odd_texts_are_refused() {
        for text in
            ["", "ses_", "ses_short", "ses_0123456789abcdeu", "ses_0123456789abcdefg", "SES_0123456789abcdef"]
        {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
    }

    #[test]
    fn short_prefixes_differ() {
        let firsts: std::collections::HashSet<String> =
            (0..200).map(|_| SessionId::mint().to_string()[4..9].to_owned()).collect();
        assert!(firsts.len() > 195, "the first characters of ids must be random");
    }
}
