//! The stage that a session is in, and the process that it has there.
//!
//! Invariant: there is a pid only while there is, or may be, a process; an end has a reason and a time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use intercom_types::{Exit, StopMode, Time};

/// The life of one session, from its creation through its processes to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionLife {
    pub(super) stage: LifeStage,
    /// The number of its process.
    pub(super) generation: u32,
    pub(super) pid: Option<i32>,
    pub(super) started_at: Option<Time>,
    /// The end of the last process's stderr, kept after the process has ended.
    pub(super) stderr_tail: String,
    pub(super) exit: Option<Exit>,
    /// The time by which the agent must be ready, while it is not.
    #[serde(rename = "ready_by")]
    pub(super) ready_deadline: Option<Time>,
    /// The times of its restarts, past and planned.
    pub(super) restarts: VecDeque<Time>,
    /// True if its first prompt starts it, and no process of it has been ready yet.
    pub(super) deferred: bool,
    /// True if its process was found running and its messages are not known.
    pub(super) orphan: bool,
    /// The beginning of its phase.
    pub(super) phase_since: Option<Time>,
    /// The time since which no ACP client is attached, if one started the session.
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
    /// No process yet. The queue is empty, because a prompt starts it.
    Created,
    Starting,
    Running,
    Stopping {
        #[serde(rename = "how")]
        mode: StopMode,
        by: String,
        /// True if it will be restarted.
        #[serde(default, rename = "again")]
        to_restart: bool,
        /// The reason, if nobody asked for the stop.
        #[serde(default)]
        why: Option<String>,
    },
    /// No process until a restart at this time.
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

    /// Returns the time of the next restart, if it rests until then.
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

    /// Returns true if its first process is to be started, or was started without a known result.
    pub(super) fn is_waking(&self) -> bool {
        self.deferred && self.stage == LifeStage::Starting && self.pid.is_none()
    }
}
