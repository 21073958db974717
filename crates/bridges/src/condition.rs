//! The condition of each bridge: reported by the bridge, shown by `health`, `doctor`, `ls` and the metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The condition of one bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition {
    /// "ok", or what is wrong, for people.
    pub words: String,
    /// Name, what it says, value.
    pub figures: Vec<(&'static str, &'static str, u64)>,
}

/// The conditions of all configured bridges.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Arc<Mutex<BTreeMap<&'static str, Source>>>); // for the moment of a copy

#[derive(Clone)]
enum Source {
    Said(Condition),
    Asked(Arc<dyn Fn() -> Condition + Send + Sync>),
}

impl Conditions {
    pub fn set(&self, bridge: &'static str, condition: Condition) {
        self.insert(bridge, Source::Said(condition));
    }

    /// Registers a bridge whose figures change too often to be reported each time.
    pub fn ask(&self, bridge: &'static str, condition: impl Fn() -> Condition + Send + Sync + 'static) {
        self.insert(bridge, Source::Asked(Arc::new(condition)));
    }

    pub fn all(&self) -> BTreeMap<&'static str, Condition> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = |source| match source {
            Source::Said(condition) => condition,
            Source::Asked(ask) => ask(),
        };
        all.into_iter().map(|(bridge, source)| (bridge, now(source))).collect()
    }

    fn insert(&self, bridge: &'static str, source: Source) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(bridge, source);
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Said(condition) => condition.fmt(f),
            Self::Asked(_) => f.write_str("asked"),
        }
    }
}
