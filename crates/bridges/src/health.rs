//! The health of each bridge: reported by the bridge, shown by `GET /health`, `doctor`, `ls` and the metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The health of one bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BridgeHealth {
    /// "ok", or the problem, for people.
    pub(crate) status: String,
    /// The metrics: name, description, value.
    pub(crate) metrics: Vec<(&'static str, &'static str, u64)>,
}

/// The health of all configured bridges. Locked only to copy or replace an entry.
#[derive(Debug, Clone, Default)]
pub struct HealthRegistry(Arc<Mutex<BTreeMap<&'static str, HealthSource>>>);

#[derive(Clone)]
enum HealthSource {
    Reported(BridgeHealth),
    Polled(Arc<dyn Fn() -> BridgeHealth + Send + Sync>),
}

impl HealthRegistry {
    pub(crate) fn set(&self, bridge: &'static str, condition: BridgeHealth) {
        self.insert(bridge, HealthSource::Reported(condition));
    }

    /// Registers a bridge whose metrics change too often to be reported with each change.
    pub(crate) fn ask(
        &self,
        bridge: &'static str,
        condition: impl Fn() -> BridgeHealth + Send + Sync + 'static,
    ) {
        self.insert(bridge, HealthSource::Polled(Arc::new(condition)));
    }

    pub(crate) fn all(&self) -> BTreeMap<&'static str, BridgeHealth> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = |source| match source {
            HealthSource::Reported(condition) => condition,
            HealthSource::Polled(ask) => ask(),
        };
        all.into_iter().map(|(bridge, source)| (bridge, now(source))).collect()
    }

    fn insert(&self, bridge: &'static str, source: HealthSource) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(bridge, source);
    }
}

impl std::fmt::Debug for HealthSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reported(condition) => condition.fmt(f),
            Self::Polled(_) => f.write_str("asked"),
        }
    }
}
