//! Recovery after a start: the sessions of an earlier daemon.

use futures_util::stream::{self, StreamExt};

use super::Supervisor;
use crate::session::actor::{FoundProcess, TaskBeginning};
use crate::session::{CommandError, ProcessPlan, RequestAssessor as _, SessionState, StartError};
use intercom_host::{self as host, AgentProcess};
use intercom_store::{IdLookup, StoreError};
use intercom_types::{SessionId, Time, agent};

/// The maximum number of sessions that are recovered at the same time.
const AT_ONCE: usize = 64;

/// The result of recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The number of sessions whose agents still run.
    pub(crate) attached: usize,
    /// The number of sessions whose agents have ended meanwhile.
    pub(crate) ended: usize,
    /// The number of sessions whose agents the database did not know.
    pub(crate) adopted: usize,
}

impl std::fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sessions = if self.attached == 1 { "session" } else { "sessions" };
        write!(f, "{} {sessions} re-attached, {} ended while away", self.attached, self.ended)?;
        match self.adopted {
            0 => Ok(()),
            adopted => write!(f, ", {adopted} adopted as orphans"),
        }
    }
}

/// The outcome for a session that was live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecoveryOutcome {
    Attached,
    Ended,
    /// Its messages are not known. `known` is true if the session was not an orphan before.
    Orphan {
        known: bool,
    },
}

impl Supervisor {
    /// Recovers every live session: continues reading where the log ends, and sends messages that have not arrived.
    pub async fn recover(&self) -> Result<RecoveryReport, StoreError> {
        let today = agent::day(Time::now());
        for (id, micros) in self.store().spent_on(today).await? {
            self.0.policy_engine.record_spend(id, today, micros);
        }
        let adopted = self.adopt_kept(&self.store().live().await?).await?;
        let mut live = self.store().live().await?;
        let recover = |id| async move { (id, self.recover_one(id).await) };
        let found = stream::iter(live.clone().into_iter().map(recover)).buffer_unordered(AT_ONCE);
        let found: Vec<(SessionId, Result<RecoveryOutcome, StoreError>)> = found.collect().await;
        let mut recovered = RecoveryReport { adopted, ..RecoveryReport::default() };
        for (id, outcome) in found {
            match outcome {
                Ok(RecoveryOutcome::Attached) => recovered.attached += 1,
                Ok(RecoveryOutcome::Ended) => recovered.ended += 1,
                Ok(RecoveryOutcome::Orphan { known }) => recovered.adopted += usize::from(known),
                // One session that cannot be read must not prevent the recovery of the others.
                Err(error @ (StoreError::Corrupt { .. } | StoreError::Conflict(_))) => {
                    tracing::error!(session.id = %id, %error, "a session cannot be recovered");
                    if matches!(error, StoreError::Corrupt { .. }) && self.end_unreadable(id).await {
                        live.retain(|other| *other != id);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.clear_out(&live).await;
        Ok(recovered)
    }

    async fn recover_one(&self, id: SessionId) -> Result<RecoveryOutcome, StoreError> {
        let (stored, mut state) = self.stored(id).await?;
        let plan = self.plan_again(&stored, &state)?;
        if state.resting().is_some() || state.is_deferred() {
            return self
                .take_up(state, plan, TaskBeginning::Resting)
                .await
                .map(|()| RecoveryOutcome::Attached);
        }
        // The journal may have been trimmed beyond the position of an older database.
        let consumed = stored.consumed.max(host::output_start(&plan.runtime_dir));
        let process = match AgentProcess::find(&id.to_string(), &plan.runtime_dir, consumed).await {
            Ok(process) => process,
            // The start was recorded and did not happen: nothing was sent to any process.
            Err(_) if state.is_waking() => {
                return self
                    .take_up(state, plan, TaskBeginning::Resting)
                    .await
                    .map(|()| RecoveryOutcome::Attached);
            }
            Err(lost) => {
                tracing::warn!(session.id = %id, %lost, "a session was lost");
                let lost = TaskBeginning::Lost(format!("lost: {lost}"));
                return self.take_up(state, plan, lost).await.map(|()| RecoveryOutcome::Ended);
            }
        };
        let (alive, was_orphan) = (process.is_alive(), state.is_orphan());
        let (mut outbox, is_ahead) = (stored.outbox, is_ahead(&process, &state, stored.consumed, consumed));
        if is_ahead && !was_orphan {
            self.adopt_known(&mut state, &process, consumed).await?;
            outbox.clear();
        }
        let outcome = match (state.is_orphan(), alive) {
            (true, _) => RecoveryOutcome::Orphan { known: !was_orphan },
            (false, true) => RecoveryOutcome::Attached,
            (false, false) => RecoveryOutcome::Ended,
        };
        let again = outcome == RecoveryOutcome::Ended && plan.resume_after_reboot;
        let found = FoundProcess { process, consumed, outbox };
        self.take_up(state, plan, TaskBeginning::Found(Box::new(found))).await?;
        if again {
            self.resume_after_reboot(id);
        }
        Ok(outcome)
    }

    async fn take_up(
        &self,
        state: SessionState,
        plan: ProcessPlan,
        beginning: TaskBeginning,
    ) -> Result<(), StoreError> {
        match self.host(state, plan, beginning).await {
            Err(StartError::Command(CommandError::Store(error))) => Err(error),
            // Either the session is in the registry, or its end is in the log.
            _ => Ok(()),
        }
    }

    /// Resumes a session once the end of its process is in the log, if the restart of the machine ended it.
    fn resume_after_reboot(&self, id: SessionId) {
        let supervisor = self.clone();
        self.0.tasks.spawn(async move {
            if let Some(handle) = supervisor.find(id) {
                handle.closed().await;
            }
            let Ok(IdLookup::One(record)) = supervisor.store().session(id.to_string()).await else { return };
            if record.end_reason.as_deref() == Some(host::REBOOTED)
                && let Err(error) = supervisor.resume(&record, "the restart of the machine".to_owned()).await
            {
                tracing::warn!(session.id = %id, %error, "a session could not be resumed after the restart of the machine");
            }
        });
    }
}

/// Returns true if a process has received or sent more than the database knows. Then the database is older: every
/// message is recorded before it is sent, and output is trimmed only once it is in the log, so this takes a restored
/// backup.
fn is_ahead(process: &AgentProcess, state: &SessionState, stored: u64, kept: u64) -> bool {
    process.accepted().is_some_and(|accepted| accepted >= state.next_message()) || kept > stored
}
