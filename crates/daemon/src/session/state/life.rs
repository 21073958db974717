//! The stage that a session is in, and the process that it has there.
//!
//! What must stay true: there is a pid only while there is, or may be, a process; an end has a reason and a time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use intercom_types::{Exit, StopMode, Time};

/// The life of one session, from its creation over its processes to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionLife {
    pub(super) stage: LifeStage,
    /// Counts its processes.
    pub(super) generation: u32,
    pub(super) pid: Option<i32>,
    pub(super) started_at: Option<Time>,
    /// The end of the last process's stderr: kept after the end.
    pub(super) stderr_tail: String,
    pub(super) exit: Option<Exit>,
    /// When the agent has to be ready, while it is not.
    #[serde(rename = "ready_by")]
    pub(super) ready_deadline: Option<Time>,
    /// When its process was, or will be, started again by us.
    pub(super) restarts: VecDeque<Time>,
    /// It was to be started by its first prompt, and no process of it has been ready yet.
    pub(super) deferred: bool,
    /// Its process was found running, and nobody knows what it was told.
    pub(super) orphan: bool,
    /// Since when it is in its phase.
    pub(super) phase_since: Option<Time>,
    /// Since when no ACP client is attached to it, if one started it.
    pub(super) left_at: Option<Time>,
}

impl Default for SessionLife {
    fn default() -> Self {
        Self {
            stage: LifeStage::Created,
            generation: 1,
            pid: None,
            started_at: None,
            stderr_tail: String::new(),
            exit: None,
            ready_deadline: None,
            restarts: VecDeque::new(),
            deferred: false,
            orphan: false,
            phase_since: None,
            left_at: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LifeStage {
    /// It has no process yet. Nothing is in its queue: whatever is put there starts it.
    Created,
    Starting,
    Running,
    Stopping {
        #[serde(rename = "how")]
        mode: StopMode,
        by: String,
        /// To be started again.
        #[serde(default, rename = "again")]
        to_restart: bool,
        /// Why, if nobody asked for it.
        #[serde(default)]
        why: Option<String>,
    },
    /// It has no process, and will have one again at this time.
    Resting {
        reason: String,
        at: Time,
        attempt: u32,
    },
    Parked {
        reason: String,
        at: Time,
    },
    Ended {
        reason: String,
        at: Time,
    },
}

impl SessionLife {
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.stage, LifeStage::Ended { .. } | LifeStage::Parked { .. })
    }

    /// When its process is to be started again, if it has none and is.
    pub(super) fn resting(&self) -> Option<Time> {
        match self.stage {
            LifeStage::Resting { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Returns the mode of the stop that is under way, if any.
    pub(super) fn stopping(&self) -> Option<StopMode> {
        match self.stage {
            LifeStage::Stopping { mode, .. } => Some(mode),
            _ => None,
        }
    }

    /// Is true if its first process is to be started, or was started and nothing is known of it.
    pub(super) fn is_waking(&self) -> bool {
        self.deferred && self.stage == LifeStage::Starting && self.pid.is_none()
    }
}
