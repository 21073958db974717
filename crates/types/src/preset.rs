//! Presets: what a session may do at most, before any rule is looked at.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

/// One of them. What each forbids, policy says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Preset {
    /// Nothing is forbidden: rules and people decide.
    #[default]
    Full,
    ReadOnly,
    Safe,
    Sandbox,
}

impl Preset {
    pub const ALL: [Self; 4] = [Self::Full, Self::ReadOnly, Self::Safe, Self::Sandbox];

    /// As it stands where else the name of a rule does.
    pub fn rule(self) -> String {
        format!("preset {}", self.as_str())
    }

    /// Whether something that it forbids is not forbidden by the other. Neither `read-only` nor `safe` is within the other: the
    /// one leaves risky reading to people, the other harmless writing.
    pub fn widens_to(self, other: Self) -> bool {
        self != other && self != Self::Full && other != Self::Sandbox
    }
}
