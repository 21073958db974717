//! Messages on their way to the agent.
//!
//! Invariant: a number is used once in a generation, and settled once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use intercom_types::{ClearanceId, PromptId, QuestionId};

/// The numbers of outgoing messages, and the subjects of those whose arrival is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MessageOutbox {
    pub(super) next_n: u64,
    pub(super) in_flight: BTreeMap<u64, OutboundKind>,
}

impl Default for MessageOutbox {
    fn default() -> Self {
        Self { next_n: 1, in_flight: BTreeMap::new() }
    }
}

impl MessageOutbox {
    /// Takes the next number for a message.
    pub(super) fn send(&mut self, kind: OutboundKind) -> u64 {
        let n = self.next_n;
        self.next_n += 1;
        self.in_flight.insert(n, kind);
        n
    }
}

/// The subject of an outgoing message: it decides which event records the arrival.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum OutboundKind {
    Clearance(ClearanceId),
    Question(QuestionId),
    Prompt(PromptId),
    Nudge,
    Interrupt,
    Other,
}
