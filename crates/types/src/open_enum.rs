//! Open enums: sets of words that a newer daemon may extend.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An enum whose values are words, with the spellings that strum derives.
pub trait WordEnum: Copy + PartialEq + FromStr + Into<&'static str> + 'static {}

impl<T: Copy + PartialEq + FromStr + Into<&'static str> + 'static> WordEnum for T {}

macro_rules! words_to_text {
    ($($name:path),*) => {
        $(impl $name {
            /// The word in JSON, in the database and on the command line.
            pub const fn as_str(self) -> &'static str {
                self.into_str()
            }
        })*
    };
}

macro_rules! words_from_text {
    ($($name:path),*) => {
        words_to_text!($($name),*);
        $(impl $name {
            /// Returns the value of that word; none if a newer version wrote it.
            pub fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        })*
    };
}

words_to_text!(super::FaultCode, super::OnClientLeft, super::Outcome, super::StopMode);
words_from_text!(
    super::audit::Actor,
    super::Answer,
    super::ClearanceStatus,
    super::EventKind,
    super::FailureKind,
    super::Phase,
    super::Preset,
    super::QuestionStatus,
    super::Risk,
    super::Role,
    super::Rung,
    super::Situation
);

/// A word of `T`, or an unknown one, which is kept unchanged. It serializes as text.
#[derive(Clone, PartialEq, Eq)]
pub enum OpenEnum<T> {
    Known(T),
    Unknown(Box<str>),
}

impl<T: WordEnum> OpenEnum<T> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(value) => (*value).into(),
            Self::Unknown(word) => word,
        }
    }

    pub const fn known(&self) -> Option<T> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Unknown(_) => None,
        }
    }
}

impl<T> From<T> for OpenEnum<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

/// The value of a field that older daemons do not send.
impl<T> Default for OpenEnum<T> {
    fn default() -> Self {
        Self::Unknown("".into())
    }
}

impl<T: WordEnum> PartialEq<T> for OpenEnum<T> {
    fn eq(&self, other: &T) -> bool {
        self.known() == Some(*other)
    }
}

impl<T: WordEnum> Deref for OpenEnum<T> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<T: WordEnum> fmt::Display for OpenEnum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<T: WordEnum> fmt::Debug for OpenEnum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<T: WordEnum> Serialize for OpenEnum<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de, T: WordEnum> Deserialize<'de> for OpenEnum<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(word.parse().map_or_else(|_| Self::Unknown(word.into()), Self::Known))
    }
}

impl<T: JsonSchema> JsonSchema for OpenEnum<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Open{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "anyOf": [generator.subschema_for::<T>(), { "type": "string" }] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FailureKind, Phase, Preset, QuestionStatus, Risk, Situation};

    #[test]
    fn a_word_of_a_newer_daemon_is_kept() {
        let risks: Vec<OpenEnum<Risk>> = serde_json::from_str(r#"["low","dire"]"#).unwrap();
        assert_eq!(risks[0], Risk::Low);
        assert_eq!((risks[1].known(), risks[1].as_str()), (None, "dire"));
        assert_eq!(serde_json::to_string(&risks).unwrap(), r#"["low","dire"]"#);
    }

    #[test]
    fn a_word_is_the_same_for_serde_and_for_strum() {
        fn check<T: WordEnum + fmt::Debug + serde::de::DeserializeOwned>(words: &str) {
            for word in words.split(' ') {
                let read: T = serde_json::from_value(word.into()).unwrap();
                assert_eq!((word.parse().ok(), read.into()), (Some(read), word));
            }
        }
        check::<FailureKind>("turn log_in start exit");
        check::<Phase>("created starting idle working waiting stopping parked ended");
        check::<Preset>("full read-only safe sandbox");
        check::<QuestionStatus>("pending answered withdrawn expired");
        check::<Situation>("working waiting_for_you waiting_for_service idle quiet stuck gone orphan");
    }
}
