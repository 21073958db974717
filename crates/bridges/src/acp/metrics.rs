//! Counters of client activity, for the metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::prompts::PromptOutcome;
use crate::health::BridgeHealth;

#[derive(Debug, Default)]
pub(super) struct ClientMetrics {
    pub(super) connections: AtomicUsize,
    received: AtomicU64,
    sent: AtomicU64,
    prompts: AtomicU64,
    answered: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    /// The total waiting time of answered prompts.
    waited_millis: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl ClientMetrics {
    pub(super) fn count_received(&self) {
        count(&self.received);
    }

    pub(super) fn count_sent(&self) {
        count(&self.sent);
    }

    pub(super) fn prompted(&self) {
        count(&self.prompts);
    }

    pub(super) fn prompt_over(&self, outcome: &PromptOutcome, millis: u64) {
        let counter = match outcome {
            Ok(result) if result.as_str().contains("\"cancelled\"") => &self.cancelled,
            Ok(_) => &self.answered,
            Err(_) => &self.failed,
        };
        count(counter);
        self.waited_millis.fetch_add(millis, Ordering::Relaxed);
    }

    pub(super) fn condition(&self) -> BridgeHealth {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let connections = self.connections.load(Ordering::Relaxed);
        let metrics = vec![
            ("connections", "Connected ACP clients.", connections as u64),
            ("messages_in", "Messages from ACP clients since the start.", now(&self.received)),
            ("messages_out", "Messages to ACP clients since the start.", now(&self.sent)),
            ("prompts", "Prompts of ACP clients since the start.", now(&self.prompts)),
            ("prompts_answered", "Prompts of ACP clients whose turn ended.", now(&self.answered)),
            ("prompts_cancelled", "Prompts of ACP clients that were cancelled.", now(&self.cancelled)),
            ("prompts_failed", "Prompts of ACP clients that failed.", now(&self.failed)),
            ("prompt_millis", "Total time to the answers of these prompts.", now(&self.waited_millis)),
        ];
        BridgeHealth { status: "ok".to_owned(), metrics }
    }
}
