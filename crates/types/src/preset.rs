//! Presets: the limit of a session's permissions, applied before any rule.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

/// A preset. The policy crate defines what each forbids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Preset {
    /// Nothing is forbidden; rules and people decide.
    #[default]
    Full,
    ReadOnly,
    Safe,
    Sandbox,
}

impl Preset {
    pub const ALL: [Self; 4] = [Self::Full, Self::ReadOnly, Self::Safe, Self::Sandbox];

    /// Returns the name that stands in place of a rule's name.
    pub fn rule(self) -> String {
        format!("preset {}", self.as_str())
    }

    /// Reports whether this preset forbids something that the other one permits. Neither `read-only` nor `safe`
    /// includes the other: the one leaves risky reading to people, the other harmless writing.
    pub fn widens_to(self, other: Self) -> bool {
        self != other && self != Self::Full && other != Self::Sandbox
    }
}
