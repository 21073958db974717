//! After a start: what an earlier daemon left behind.

use futures_util::stream::{self, StreamExt};

use super::Supervisor;
use crate::domain::{SessionId, Time, agent};
use crate::host::{self, Process};
use crate::session::actor::{Beginning, Found as FoundProcess};
use crate::session::{CommandError, Judge as _, Plan, StartError, State};
use crate::store::{Found, StoreError};

/// How many sessions are looked for at the same time.
const AT_ONCE: usize = 64;

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sessions whose agents run on.
    pub attached: usize,
    /// Sessions whose agents have ended meanwhile.
    pub ended: usize,
}

impl std::fmt::Display for Recovered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sessions = if self.attached == 1 { "session" } else { "sessions" };
        write!(f, "{} {sessions} re-attached, {} ended while away", self.attached, self.ended)
    }
}

impl Supervisor {
    /// Takes up every session that was live: reads on from where the log ends, and sends what was decided meanwhile.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let today = agent::day(Time::now());
        for (id, micros) in self.store().spent_on(today).await? {
            self.0.bench.spends(id, today, micros);
        }
        let live = self.store().live().await?;
        let found = stream::iter(live.iter().map(|id| self.recover_one(*id))).buffer_unordered(AT_ONCE);
        let found: Vec<Result<bool, StoreError>> = found.collect().await;
        let mut recovered = Recovered::default();
        for attached in found {
            match attached {
                Ok(true) => recovered.attached += 1,
                Ok(false) => recovered.ended += 1,
                // One session that cannot be read must not keep the others from their people.
                Err(error @ (StoreError::Corrupt { .. } | StoreError::Conflict(_))) => {
                    tracing::error!(%error, "a session cannot be taken up");
                }
                Err(error) => return Err(error),
            }
        }
        self.clear_out(&live);
        Ok(recovered)
    }

    /// Whether its agent is there.
    async fn recover_one(&self, id: SessionId) -> Result<bool, StoreError> {
        let (stored, state) = self.stored(id).await?;
        let plan = self.plan_again(&stored, &state)?;
        if state.resting().is_some() || state.is_deferred() {
            return self.take_up(state, plan, Beginning::Resting).await.map(|()| true);
        }
        let process = match Process::find(&id.to_string(), &plan.keep, stored.consumed).await {
            Ok(process) => process,
            // It was to be started, and was not: nobody has been told anything yet.
            Err(_) if state.is_waking() => {
                return self.take_up(state, plan, Beginning::Resting).await.map(|()| true);
            }
            Err(lost) => {
                tracing::warn!(session.id = %id, %lost, "a session was lost");
                let lost = Beginning::Lost(format!("lost: {lost}"));
                return self.take_up(state, plan, lost).await.map(|()| false);
            }
        };
        let alive = process.is_alive();
        let again = !alive && plan.resume_after_reboot;
        let found = FoundProcess { process, consumed: stored.consumed, outbox: stored.outbox };
        self.take_up(state, plan, Beginning::Found(Box::new(found))).await?;
        if again {
            self.resume_after_reboot(id);
        }
        Ok(alive)
    }

    async fn take_up(&self, state: State, plan: Plan, beginning: Beginning) -> Result<(), StoreError> {
        match self.host(state, plan, beginning).await {
            Err(StartError::Command(CommandError::Store(error))) => Err(error),
            // It is in the registry, or its end is in the log.
            _ => Ok(()),
        }
    }

    /// Once the end of its process is in the log: the next generation, if it was the machine that was restarted.
    fn resume_after_reboot(&self, id: SessionId) {
        let supervisor = self.clone();
        self.0.tasks.spawn(async move {
            if let Some(handle) = supervisor.find(id) {
                handle.closed().await;
            }
            let Ok(Found::One(record)) = supervisor.store().session(id.to_string()).await else { return };
            if record.end_reason.as_deref() == Some(host::REBOOTED)
                && let Err(error) = supervisor.resume(&record, "the restart of the machine".to_owned()).await
            {
                tracing::warn!(session.id = %id, %error, "it could not be resumed after the restart");
            }
        });
    }

    /// Directories of processes whose end is in the log, left by a daemon that was killed right after.
    fn clear_out(&self, live: &[SessionId]) {
        let Ok(entries) = std::fs::read_dir(self.agents_dir()) else { return };
        for entry in entries.flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok());
            if id.is_some_and(|id| !live.contains(&id)) {
                for generation in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                    host::remove(&generation.path());
                }
            }
        }
    }
}
