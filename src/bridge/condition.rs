//! How the bridges are: said by each of them, shown by `health`, `doctor`, `ls` and the metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How one bridge is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition {
    /// "ok", or what is wrong, for people.
    pub words: String,
    /// Name, what it says, value.
    pub figures: Vec<(&'static str, &'static str, u64)>,
}

/// Of all that are configured.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Arc<Mutex<BTreeMap<&'static str, Condition>>>); // for the moment of a copy

impl Conditions {
    pub fn set(&self, bridge: &'static str, condition: Condition) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(bridge, condition);
    }

    pub fn all(&self) -> BTreeMap<&'static str, Condition> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
