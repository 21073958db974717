//! The view of a session that people see, derived from its state.

use super::{LifeStage, SessionState, orphan};
use intercom_types::{Phase, SessionRecord};

impl SessionState {
    pub(crate) fn phase(&self) -> Phase {
        match self.life.stage {
            LifeStage::Created => Phase::Created,
            LifeStage::Starting | LifeStage::Resting { .. } => Phase::Starting,
            LifeStage::Parked { .. } => Phase::Parked,
            LifeStage::Running if self.has_open() => Phase::Waiting,
            LifeStage::Running if self.turns.turn.is_some() => Phase::Working,
            LifeStage::Running => Phase::Idle,
            LifeStage::Stopping { .. } => Phase::Stopping,
            LifeStage::Ended { .. } => Phase::Ended,
        }
    }

    /// Returns the reason of the phase as a sentence for people.
    pub(crate) fn why(&self) -> String {
        match &self.life.stage {
            LifeStage::Created => "not started yet: its first prompt starts it".to_owned(),
            LifeStage::Starting if self.life.pid.is_some() => "the agent is getting ready".to_owned(),
            LifeStage::Starting => "the agent's process is starting".to_owned(),
            LifeStage::Resting { reason, attempt, .. } => {
                format!("restarting, attempt {attempt}: {}", self.end_in_words(reason))
            }
            LifeStage::Stopping { to_restart: true, .. } => "being stopped for a restart".to_owned(),
            LifeStage::Stopping { by, .. } => format!("being stopped by {by}"),
            LifeStage::Ended { reason, .. } | LifeStage::Parked { reason, .. } => self.end_in_words(reason),
            LifeStage::Running if self.life.orphan => orphan::WHY.to_owned(),
            LifeStage::Running => match self.phase() {
                Phase::Waiting => format!("waiting for you: {}", self.open_in_words()),
                Phase::Working if self.turns.cancel_deadline.is_some() => {
                    "interrupted: the agent has not ended its turn yet".to_owned()
                }
                Phase::Working => "working on a turn".to_owned(),
                _ => self.idle_in_words(),
            },
        }
    }

    /// Returns the reason why an idle agent does not work, in words.
    fn idle_in_words(&self) -> String {
        match (&self.agent.info.capped, self.failed(), &self.failures.last_turn) {
            (Some(capped), ..) => format!("no new turn begins: {capped}"),
            (None, Some(failed), _) => format!("failed: {}", failed.reason),
            (None, None, Some(error)) => format!("its last turn failed: {error}"),
            (None, None, None) if !self.turns.has_spoken => "ready, no output yet".to_owned(),
            (None, None, None) => "turn over, ready for a prompt".to_owned(),
        }
    }

    pub(super) fn open_in_words(&self) -> String {
        let count = |n: usize, what: &str| match n {
            0 => None,
            1 => Some(format!("1 {what}")),
            n => Some(format!("{n} {what}s")),
        };
        let words = [
            count(self.requests.clearances.len(), "clearance"),
            count(self.requests.questions.len(), "question"),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    pub(crate) fn record(&self) -> SessionRecord {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (ended_at, end_reason) = match &self.life.stage {
            LifeStage::Ended { reason, at } | LifeStage::Parked { reason, at } => {
                (Some(*at), Some(self.failures.exit.as_ref().unwrap_or(reason).clone()))
            }
            _ => (None, None),
        };
        SessionRecord {
            id: self.spec.id,
            name: self.spec.name.clone(),
            agent: self.spec.agent.clone(),
            protocol: self.spec.protocol.clone(),
            workspace: self.spec.workspace.clone(),
            phase: self.phase(),
            why: self.why(),
            pid: self.life.pid,
            generation: self.life.generation,
            turn: self.turns.turn.clone(),
            pending_clearances: count(self.requests.clearances.len()),
            pending_questions: count(self.requests.questions.len()),
            queue: count(self.turns.queue.len()),
            stderr_tail: self.life.stderr_tail.clone(),
            created_at: self.spec.created_at,
            started_at: self.life.started_at,
            ended_at,
            exit: self.life.exit.clone(),
            end_reason,
            failed: self.failed().cloned(),
            unenforced: self.requests.unenforced.clone(),
            preset: self.spec.preset,
            watch_state: self.watched_over(),
            agent_info: self.agent.info.clone(),
            updated_at: None,
        }
    }
}
