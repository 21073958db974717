//! The registry of sessions: starts them, finds them, passes commands on, and stops them all.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod adopt;
mod callers;
mod housekeeping;
mod launch;
pub(crate) mod policy;
pub(crate) mod policy_engine;
mod profiles;
mod recover;
mod watch_policies;

pub use callers::ProcessOwner;
pub(crate) use launch::StartRefusal;
pub use launch::{DEMO_MODE, StartRequest};
pub(crate) use profiles::NamedAgent;
pub(crate) use profiles::agents;
pub use recover::RecoveryReport;

use self::callers::DaemonSurroundings;
use self::policy_engine::PolicyEngine;
use crate::config::{AgentLimits, Config};
use crate::session::actor::{ProcessPlan, SessionActor, StartError, TaskBeginning, TaskExit};
use crate::session::recover::{amend, record_lost_process};
use crate::session::{
    CommandError, CommandOutcome, CommandRefusal, SessionHandle, SessionInput, SessionState, StopOutcome,
};
use intercom_host::{CgroupBase, ProcessObserver};
use intercom_store::{IdLookup, Store, StoreError, StoredSession};
use intercom_types::{OnClientLeft, Phase, Preset, PromptId, SessionId, SessionRecord, StopMode, Time};

/// The time that a graceful stop of all sessions may take; after it they are killed.
const PATIENCE: Duration = Duration::from_millis(3800);

/// The time that a kill may take before the processes are ended without the sessions' tasks.
const LAST_RESORT: Duration = Duration::from_millis(500);

/// A cloneable handle; clones share the registry.
#[derive(Debug, Clone)]
pub struct Supervisor(Arc<SupervisorInner>);

#[derive(Debug)]
struct SupervisorInner {
    /// The configuration and everything derived from it; a reload exchanges them.
    policy_engine: PolicyEngine,
    /// Locked while a grant is made or revoked, and during a reload, so that the policy in memory follows the store in
    /// order.
    granting: tokio::sync::Mutex<()>,
    store: Store,
    /// Live sessions, and slots reserved for sessions that are about to start. Locked for look-ups only.
    sessions: Mutex<HashMap<SessionId, Slot>>,
    /// Locked while a session without a process is changed, and while a slot is reserved for its next process or its
    /// removal: without it, either would be refused because of a change that takes only a moment.
    amending: tokio::sync::Mutex<()>,
    tasks: TaskTracker,
    closing: CancellationToken,
    /// Cancelled when the daemon ends and its agents keep running.
    leaving: CancellationToken,
    /// True while there is too little free disk to read more from agents.
    paused: watch::Sender<bool>,
    /// The cgroup for agents' own cgroups, if there is one.
    cgroups: Option<CgroupBase>,
    /// Set once the surroundings were inspected.
    surroundings: OnceLock<DaemonSurroundings>,
}

/// A live session, or the slot of one that is about to start: its name is reserved from the beginning.
#[derive(Debug, Default)]
struct Slot {
    name: Option<String>,
    handle: Option<SessionHandle>,
}

impl Supervisor {
    pub fn new(config: Config, store: Store) -> Self {
        let cgroups = config.daemon.cgroups.then(CgroupBase::find).flatten();
        let limited = config.agents.values().any(|profile| profile.limits != AgentLimits::default());
        if let Some(Err(error)) = cgroups.as_ref().filter(|_| limited).map(CgroupBase::enable_limits) {
            tracing::warn!(%error, "there are no cgroups: limits of agents apply to each process");
        }
        Self(Arc::new(SupervisorInner {
            cgroups,
            policy_engine: PolicyEngine::new(Arc::new(config)),
            granting: tokio::sync::Mutex::default(),
            store,
            sessions: Mutex::default(),
            amending: tokio::sync::Mutex::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            leaving: CancellationToken::new(),
            paused: watch::Sender::new(false),
            surroundings: OnceLock::new(),
        }))
    }

    /// Returns the current configuration, which a reload exchanges.
    pub fn config(&self) -> Arc<Config> {
        self.0.policy_engine.config()
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Slot>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: SessionId) -> Option<SessionHandle> {
        self.sessions().get(&id)?.handle.clone()
    }

    /// Passes a command on; returns when it is committed.
    pub(crate) async fn command(
        &self,
        id: SessionId,
        input: SessionInput,
    ) -> Result<CommandOutcome, CommandError> {
        match self.find(id) {
            Some(handle) => handle.command(input).await,
            None if self.is_parked(id).await => Err(CommandError::Refused(CommandRefusal::Parked)),
            None => Err(CommandError::Refused(CommandRefusal::Ended)),
        }
    }

    /// Withdraws a queued prompt, also of an ended session.
    pub(crate) async fn take_back(
        &self,
        id: SessionId,
        prompt: PromptId,
        by: String,
    ) -> Result<(), CommandError> {
        self.command_or_amend(id, SessionInput::TakeBack { prompt, by }).await
    }

    /// Sets the preset, also of an ended session, for its next generation.
    pub(crate) async fn set_preset(
        &self,
        id: SessionId,
        preset: Preset,
        widens: bool,
        by: String,
    ) -> Result<(), CommandError> {
        self.command_or_amend(id, SessionInput::Preset { preset, widens, by }).await
    }

    /// Records that an operator has seen a failure, also of an ended session.
    pub(crate) async fn mark_seen(
        &self,
        id: SessionId,
        at: Option<Time>,
        by: String,
    ) -> Result<(), CommandError> {
        self.command_or_amend(id, SessionInput::Seen { at, by }).await
    }

    /// Records that a session is used by somebody else than the ACP client that started it: it stays when that client
    /// leaves, also in its next generation. Most sessions stay anyway.
    pub async fn keep_session(&self, id: SessionId, by: String) {
        let found = self.store().session(id.to_string()).await;
        let closes = |record: &SessionRecord| record.watch_state.on_client_left == Some(OnClientLeft::Close);
        if matches!(&found, Ok(IdLookup::One(record)) if closes(record)) {
            // The use itself must not fail because of this; the next one tries again.
            self.command_or_amend(id, SessionInput::Keep { by }).await.ok();
        }
    }

    /// Records whether ACP clients are attached to a session, also to an ended one, for its next generation.
    pub async fn record_clients(&self, id: SessionId, attached: bool) -> Result<(), CommandError> {
        self.command_or_amend(id, SessionInput::Clients { attached }).await
    }

    /// Passes on a command that applies to a session without a process as well.
    async fn command_or_amend(&self, id: SessionId, input: SessionInput) -> Result<(), CommandError> {
        loop {
            match self.command(id, input.clone()).await {
                Err(CommandError::Refused(CommandRefusal::Ended | CommandRefusal::Parked)) => {}
                result => return result.map(drop),
            }
            // Nobody may resume the session between the look-up and the change.
            let amending = self.0.amending.lock().await;
            if !self.sessions().contains_key(&id) {
                let (_, state) = self.stored(id).await?;
                return amend(self.store(), state, input).await;
            }
            drop(amending);
            tokio::task::yield_now().await; // its task is about to end, or to start
        }
    }

    /// Returns the stored session, and its state.
    async fn stored(&self, id: SessionId) -> Result<(StoredSession, SessionState), StoreError> {
        let corrupt = StoreError::Corrupt { what: "a session's snapshot" };
        let stored = self.store().stored_session(id).await?.ok_or(corrupt.clone())?;
        let state = serde_json::from_str(&stored.state).map_err(|_| corrupt)?;
        Ok((stored, state))
    }

    /// Stops a session; returns when the process tree is gone, also if it was before.
    pub async fn stop(&self, id: SessionId, mode: StopMode, by: String) -> Result<StopOutcome, CommandError> {
        let Some(handle) = self.find(id) else { return self.stop_parked(id, mode, by).await };
        match handle.stop(mode, by).await {
            Err(CommandError::Refused(CommandRefusal::Ended)) => {
                handle.closed().await;
                Ok(StopOutcome::default())
            }
            result => result,
        }
    }

    /// Stops a parked session: it has no process, and does not wait to be resumed any more.
    async fn stop_parked(
        &self,
        id: SessionId,
        mode: StopMode,
        by: String,
    ) -> Result<StopOutcome, CommandError> {
        if self.is_parked(id).await {
            match self.command_or_amend(id, SessionInput::Stop { mode, by }).await {
                Ok(()) | Err(CommandError::Refused(CommandRefusal::Ended)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(StopOutcome::default())
    }

    async fn is_parked(&self, id: SessionId) -> bool {
        self.stored(id).await.is_ok_and(|(_, state)| state.phase() == Phase::Parked)
    }

    /// Returns an observer of the live process.
    pub(crate) fn observer(&self, id: SessionId) -> Option<ProcessObserver> {
        self.find(id)?.observer()
    }

    /// Runs a session's task until its end. Returns once the process runs, or the reason why it does not.
    async fn host(
        &self,
        state: SessionState,
        plan: ProcessPlan,
        beginning: TaskBeginning,
    ) -> Result<(), StartError> {
        let id = state.id();
        let (store, paused, leave) =
            (self.0.store.clone(), self.0.paused.subscribe(), self.0.leaving.child_token());
        let resumed = matches!(beginning, TaskBeginning::New(SessionInput::Resume { .. }));
        let generation = state.generation() + u32::from(resumed);
        let (actor, handle, started) = SessionActor::new(state, plan, store, paused, leave, generation);
        {
            let mut sessions = self.sessions();
            // Under the lock: `shut_down` collects the sessions either before this, and then `closing` is set, or after
            // it.
            if self.0.closing.is_cancelled() && matches!(beginning, TaskBeginning::New(_)) {
                sessions.remove(&id);
                return Err(StartError::Closing);
            }
            sessions.insert(id, Slot { name: handle.name.clone(), handle: Some(handle.clone()) });
        }
        let supervisor = self.clone();
        self.0.tasks.spawn(async move {
            let exit = AssertUnwindSafe(actor.run(beginning)).catch_unwind().await;
            if exit.is_err() {
                supervisor.salvage(id, handle.observer()).await;
            }
            supervisor.sessions().remove(&id);
            exit.into_iter().for_each(TaskExit::notify_stoppers);
        });
        started.await.unwrap_or(Err(StartError::Command(CommandError::Refused(CommandRefusal::Ended))))
    }

    /// Ends the agent of a session whose task panicked, because nobody would answer it any more, and records that.
    async fn salvage(&self, id: SessionId, observer: Option<ProcessObserver>) {
        tracing::error!(session.id = %id, "the task of a session failed; its agent is ended");
        observer.iter().for_each(ProcessObserver::end);
        let ended = match self.stored(id).await {
            Ok((_, state)) => {
                record_lost_process(self.store(), state, "intercom failed; its log has the details").await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::error!(session.id = %id, %error, "the end of a session is recorded at the next start");
        }
    }

    /// Stops all sessions at the same time and waits for them; kills the rest once `impatience` is over.
    pub async fn shut_down(&self, impatience: impl Future<Output = ()>) {
        self.0.closing.cancel();
        let handles: Vec<SessionHandle> =
            self.sessions().values().filter_map(|slot| slot.handle.clone()).collect();
        let by = || "the daemon's stop".to_owned();
        let gently = join_all(handles.iter().map(|handle| handle.drain(by())));
        let gently = tokio::time::timeout(PATIENCE, gently);
        let gone = tokio::select! {
            result = gently => result.is_ok(),
            () = impatience => false,
        };
        if !gone {
            let hard = join_all(handles.iter().map(|handle| handle.stop(StopMode::Kill, by())));
            tokio::time::timeout(LAST_RESORT, hard).await.ok(); // the rest is ended below
        }
        // A session that cannot record its end, because the store does not work, still has its process.
        for handle in self.sessions().values().filter_map(|slot| slot.handle.as_ref()) {
            tracing::error!(session.id = %handle.id, "the end of a session cannot be recorded before the next start");
            handle.observer().iter().for_each(ProcessObserver::end);
        }
        self.finish().await;
    }

    /// Leaves all agents running for the next daemon.
    pub async fn leave(&self) {
        self.0.closing.cancel();
        self.finish().await;
    }

    async fn finish(&self) {
        self.0.leaving.cancel();
        self.0.tasks.close();
        // The remaining tasks cannot record anything, because the store does not work.
        tokio::time::timeout(Duration::from_secs(1), self.0.tasks.wait()).await.ok();
    }
}

/// A reserved slot, which is released also if the caller hangs up.
struct SlotGuard<'a> {
    supervisor: &'a Supervisor,
    id: SessionId,
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        self.supervisor.sessions().remove(&self.id);
    }
}
