//! Counters of client activity, for the metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::prompts::Outcome;
use crate::condition::Condition;

#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) connections: AtomicUsize,
    heard: AtomicU64,
    told: AtomicU64,
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

impl Figures {
    pub(super) fn heard(&self) {
        count(&self.heard);
    }

    pub(super) fn told(&self) {
        count(&self.told);
    }

    pub(super) fn prompted(&self) {
        count(&self.prompts);
    }

    pub(super) fn prompt_over(&self, outcome: &Outcome, millis: u64) {
        let figure = match outcome {
            Ok(result) if result.as_str().contains("\"cancelled\"") => &self.cancelled,
            Ok(_) => &self.answered,
            Err(_) => &self.failed,
        };
        count(figure);
        self.waited_millis.fetch_add(millis, Ordering::Relaxed);
    }

    pub(super) fn condition(&self) -> Condition {
        let now = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let connections = self.connections.load(Ordering::Relaxed);
        let figures = vec![
            ("connections", "ACP clients that are connected.", connections as u64),
            ("messages_in", "Messages of ACP clients since the start.", now(&self.heard)),
            ("messages_out", "Messages to ACP clients since the start.", now(&self.told)),
            ("prompts", "Prompts of ACP clients since the start.", now(&self.prompts)),
            ("prompts_answered", "Of these, those whose turn ended.", now(&self.answered)),
            ("prompts_cancelled", "Of these, those that were cancelled.", now(&self.cancelled)),
            ("prompts_failed", "Of these, those that ended with an error.", now(&self.failed)),
            ("prompt_millis", "How long these took, all together.", now(&self.waited_millis)),
        ];
        Condition { words: "ok".to_owned(), figures }
    }
}
