//! What is found out about a request before it is recorded: the risk we see, what the rules say, how it is decided.

use std::sync::{Arc, PoisonError, RwLock};

use crate::config::Config;
use crate::domain::{Ask, Risk};
use crate::session::{About, Assessed, Judge};

/// What is in force now. Cloneable; clones share it, so that a reload reaches every session.
#[derive(Debug, Clone)]
pub(super) struct Bench(Arc<RwLock<Arc<InForce>>>);

/// Exchanged as a whole: a request is judged by one version of it.
#[derive(Debug)]
struct InForce {
    config: Arc<Config>,
}

impl Bench {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(InForce { config }))))
    }

    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.in_force().config)
    }

    fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Judge for Bench {
    fn assess(&self, _about: &About, ask: &Ask) -> Assessed {
        let now = self.in_force();
        let risk = Risk::of_claim(ask.claimed_risk.as_deref());
        let settings = &now.config.clearances;
        Assessed {
            needed: settings.needed(risk),
            limit: settings.limit(risk).map(|limit| (limit, settings.on_expiry.verdict())),
            ..Assessed::default()
        }
    }
}
