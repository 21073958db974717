//! The registry of sessions: starts them, finds them, passes commands on, stops them all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod housekeeping;
mod launch;
mod recover;

pub use launch::{DEMO_MODE, StartRefused, StartRequest};
pub use recover::Recovered;

use crate::config::Config;
use crate::domain::{PromptId, SessionId};
use crate::session::actor::{Actor, Plan, StartError};
use crate::session::{CommandError, Handle, How, Input, Refused, State, Stopped};
use crate::store::Store;

/// All sessions are gone this long after they were told to stop, the hard way if need be.
const PATIENCE: Duration = Duration::from_millis(4500);

/// Cloneable; clones share the registry.
#[derive(Debug, Clone)]
pub struct Supervisor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    store: Store,
    /// Live sessions, and places taken for those that are about to be. Held for look-ups only.
    sessions: Mutex<HashMap<SessionId, Option<Handle>>>,
    tasks: TaskTracker,
    closing: CancellationToken,
    /// True while there is too little free disk to take more from agents.
    paused: watch::Sender<bool>,
}

impl Supervisor {
    pub fn new(config: Config, store: Store) -> Self {
        Self(Arc::new(Inner {
            config,
            store,
            sessions: Mutex::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            paused: watch::Sender::new(false),
        }))
    }

    pub fn config(&self) -> &Config {
        &self.0.config
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Option<Handle>>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: SessionId) -> Option<Handle> {
        self.sessions().get(&id).cloned().flatten()
    }

    /// Passes a command on; answers when it is committed. For a prompt, with its id.
    pub async fn command(&self, id: SessionId, input: Input) -> Result<Option<PromptId>, CommandError> {
        let handle = self.find(id).ok_or(CommandError::Refused(Refused::Ended))?;
        handle.command(input).await
    }

    /// Answers when the process tree is gone, also if it was before.
    pub async fn stop(&self, id: SessionId, how: How, by: String) -> Result<Stopped, CommandError> {
        let Some(handle) = self.find(id) else { return Ok(Stopped::default()) };
        match handle.stop(how, by).await {
            Err(CommandError::Refused(Refused::Ended)) => {
                handle.closed().await;
                Ok(Stopped::default())
            }
            result => result,
        }
    }

    /// The end of the live process's stderr.
    pub fn stderr_tail(&self, id: SessionId) -> Option<String> {
        self.find(id)?.stderr_tail()
    }

    /// Runs a session's task until its end. Answers once the process runs, or why it does not.
    async fn host(&self, state: State, plan: Plan, first: Input) -> Result<(), StartError> {
        let id = state.id();
        let (actor, handle, started) =
            Actor::new(state, plan, self.0.store.clone(), self.0.paused.subscribe());
        self.sessions().insert(id, Some(handle));
        let supervisor = self.clone();
        self.0.tasks.spawn(async move {
            let farewell = actor.run(first).await;
            supervisor.sessions().remove(&id);
            farewell.tell();
        });
        started.await.unwrap_or(Err(StartError::Command(CommandError::Refused(Refused::Ended))))
    }

    /// Stops every session, all at the same time, and waits until they are gone.
    pub async fn shut_down(&self) {
        self.0.closing.cancel();
        let handles: Vec<Handle> = self.sessions().values().flatten().cloned().collect();
        let by = || "the daemon's stop".to_owned();
        let gently = join_all(handles.iter().map(|handle| handle.stop(How::Stop, by())));
        if tokio::time::timeout(PATIENCE, gently).await.is_err() {
            join_all(handles.iter().map(|handle| handle.stop(How::Kill, by()))).await;
        }
        self.0.tasks.close();
        // What is left could not be recorded: the store does not work. Letting go of a process ends it.
        tokio::time::timeout(Duration::from_secs(1), self.0.tasks.wait()).await.ok();
    }
}
