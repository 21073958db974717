//! An open clearance besides its request: how it is decided, and what its later events say it is about.

use serde::{Deserialize, Serialize};

use crate::action::{self, Parts};
use crate::domain::{Ask, Preset, Time, Verdict};

/// How a clearance that waits is decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Terms {
    pub(super) needed: u32,
    pub(super) approvals: Vec<String>,
    /// What those who have approved it chose.
    #[serde(default)]
    pub(super) option: Option<String>,
    pub(super) expires_at: Option<Time>,
    pub(super) on_expiry: Verdict,
    /// The presets that forbid it.
    #[serde(default)]
    pub(super) forbidden_by: Vec<Preset>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            needed: 1,
            approvals: Vec::new(),
            option: None,
            expires_at: None,
            on_expiry: Verdict::Deny,
            forbidden_by: Vec::new(),
        }
    }
}

/// What a clearance is about. Its decision is read, audited and sent on without its request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    pub(super) action: Option<String>,
    pub(super) title: String,
}

impl Subject {
    pub(super) fn of(ask: &Ask) -> Self {
        let action = action::action(Parts::from(ask));
        Self { action, title: action::title(&ask.title) }
    }
}
