//! Open enums: words of a list that a newer daemon may have made longer.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An enum whose values are words.
pub trait WordEnum: Copy + PartialEq + 'static {
    fn word(self) -> &'static str;
    fn from_word(word: &str) -> Option<Self>;
}

macro_rules! word_enums {
    ($($name:path),* $(,)?) => {
        $(impl WordEnum for $name {
            fn word(self) -> &'static str {
                self.as_str()
            }

            fn from_word(word: &str) -> Option<Self> {
                Self::parse(word)
            }
        })*
    };
}

word_enums!(
    super::audit::Actor,
    super::Answer,
    super::ClearanceStatus,
    super::FailureKind,
    super::Phase,
    super::Preset,
    super::QuestionStatus,
    super::Risk,
    super::Situation,
);

/// A word of `T`, or one that this version does not know and shows as it came. It reads as text.
#[derive(Clone, PartialEq, Eq)]
pub enum OpenEnum<T> {
    Known(T),
    Unknown(Box<str>),
}

impl<T: WordEnum> OpenEnum<T> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(value) => value.word(),
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

/// A word that an older daemon does not say.
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
        Ok(T::from_word(&word).map_or_else(|| Self::Unknown(word.into()), Self::Known))
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
    use crate::Risk;

    #[test]
    fn a_word_of_a_newer_daemon_is_kept() {
        let risks: Vec<OpenEnum<Risk>> = serde_json::from_str(r#"["low","dire"]"#).unwrap();
        assert_eq!(risks[0], Risk::Low);
        assert_eq!((risks[1].known(), risks[1].as_str()), (None, "dire"));
        assert_eq!(serde_json::to_string(&risks).unwrap(), r#"["low","dire"]"#);
    }
}
