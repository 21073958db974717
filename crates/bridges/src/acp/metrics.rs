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

fn count(figure: &AtomicU64) {
    figure.fetch_add(1, Ordering::Relaxed);
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
        let figure = match outcome {
            Ok(result) if result.as_str().contains("\"cancelled\"") => &self.cancelled,
            Ok(_) => &self.answered,
            Err(_) => &self.failed,
        };
        count(figure);
        self.waited_millis.fetch_add(millis, Ordering::Relaxed);
    }

    pub(super) fn condition(&self) -> BridgeHealth {
        let now = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let connections = self.connections.load(Ordering::Relaxed);
        let figures = vec![
            ("connections", "ACP clients that are connected.", connections as u64),
            ("messages_in", "Messages of ACP clients since the start.", now(&self.received)),
            ("messages_out", "Messages to ACP clients since the start.", now(&self.sent)),
            ("prompts", "Prompts of ACP clients since the start.", now(&self.prompts)),
            ("prompts_answered", "Of these, those whose turn ended.", now(&self.answered)),
            ("prompts_cancelled", "Of these, those that were cancelled.", now(&self.cancelled)),
            ("prompts_failed", "Of these, those that ended with an error.", now(&self.failed)),
            ("prompt_millis", "How long these took, all together.", now(&self.waited_millis)),
        ];
        BridgeHealth { status: "ok".to_owned(), metrics: figures }
    }
}
