//! The handle of a session, for everybody but its task.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::actor::ProcessPlan;
use super::state::{CommandRefusal, SessionInput};
use intercom_host::ProcessObserver;
use intercom_store::StoreError;
use intercom_types::{Delivery, PromptId, SessionId, StopMode};

/// The capacity of a session's command queue. A command that finds it full is refused as overloaded and changes
/// nothing.
const INBOX: usize = 1024;
/// The longest wait for the delivery of a command's message.
const ARRIVING: Duration = Duration::from_secs(2);

/// The reasons why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Refused(#[from] CommandRefusal),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A panic, and so a bug of ours; nothing was changed.
    #[error("intercom failed at this command, which is a bug in intercom; nothing was changed: {0}")]
    Failed(String),
    #[error("too many commands wait for this session")]
    Overloaded,
}

/// The outcome of a stop: the steps that were needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopOutcome {
    pub(crate) steps: Vec<String>,
    pub(crate) killed: u32,
    /// True if the tree is gone but the store does not work: the end is recorded as soon as it does.
    pub(crate) unrecorded: bool,
}

/// The result of a command once it is committed.
#[derive(Debug)]
pub(crate) struct CommandOutcome {
    /// The id of the prompt, if the command was one.
    pub(crate) prompt: Option<PromptId>,
    /// The number of the setting, if the command changes a setting.
    pub(crate) set: Option<u64>,
    pub(crate) arrival: ArrivalWatch,
}

/// A wait for the delivery of a command's message. When it ends, the store has the outcome.
#[derive(Debug)]
pub(crate) struct ArrivalWatch(oneshot::Receiver<Delivery>);

/// The session's side of an [`ArrivalWatch`]: sent the outcome, or dropped if there is nothing to wait for.
pub(super) type DeliverySender = oneshot::Sender<Delivery>;

impl ArrivalWatch {
    pub(super) fn new() -> (DeliverySender, Self) {
        let (on_its_way, arrival) = oneshot::channel();
        (on_its_way, Self(arrival))
    }

    /// Waits a moment for the delivery and discards the outcome, which is in the store.
    pub(crate) async fn wait(self) {
        self.outcome().await;
    }

    /// Waits a moment for the delivery. `None` if there was nothing to wait for, or the agent ended first.
    pub(crate) async fn outcome(self) -> Option<Delivery> {
        match tokio::time::timeout(ARRIVING, self.0).await {
            Ok(delivery) => delivery.ok(),
            Err(_) => Some(Delivery::Pending),
        }
    }
}

pub(super) enum SessionCommand {
    Command {
        input: SessionInput,
        reply: oneshot::Sender<Result<CommandOutcome, CommandError>>,
    },
    Stop {
        mode: StopMode,
        by: String,
        reply: oneshot::Sender<Result<StopOutcome, CommandError>>,
    },
    /// The stop of a daemon that stops its agents. A session that has had no process is left as it is.
    Drain {
        by: String,
        reply: oneshot::Sender<Result<StopOutcome, CommandError>>,
    },
    /// Another agent, with the plan to start it.
    Agent {
        input: SessionInput,
        plan: Box<ProcessPlan>,
        reply: oneshot::Sender<Result<CommandOutcome, CommandError>>,
    },
}

/// A cloneable handle of a session; the session's task owns everything behind it.
#[derive(Debug, Clone)]
pub(crate) struct SessionHandle {
    pub(crate) id: SessionId,
    pub(crate) name: Option<String>,
    /// The generation of the task's first process.
    pub(crate) generation: u32,
    inbox: mpsc::Sender<SessionCommand>,
    /// Set by the session's task when a process starts; locked only to copy it.
    observer: Arc<Mutex<Option<ProcessObserver>>>,
}

/// The task's side of a handle.
pub(super) struct Mailbox {
    pub(super) inbox: mpsc::Receiver<SessionCommand>,
    observer: Arc<Mutex<Option<ProcessObserver>>>,
}

impl Mailbox {
    pub(super) fn publish(&self, observer: ProcessObserver) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(observer);
    }
}

impl SessionHandle {
    pub(super) fn new(id: SessionId, name: Option<String>, generation: u32) -> (Self, Mailbox) {
        let (to, inbox) = mpsc::channel(INBOX);
        let observer = Arc::default();
        (
            Self { id, name, generation, inbox: to, observer: Arc::clone(&observer) },
            Mailbox { inbox, observer },
        )
    }

    /// Sends a command; returns when it is committed.
    pub(crate) async fn command(&self, input: SessionInput) -> Result<CommandOutcome, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.put(SessionCommand::Command { input, reply })?;
        answer.await.unwrap_or(Err(CommandError::Refused(CommandRefusal::Ended)))
    }

    /// Stops the session; returns when the process and its group are gone.
    pub(crate) async fn stop(&self, mode: StopMode, by: String) -> Result<StopOutcome, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.put(SessionCommand::Stop { mode, by, reply })?;
        answer.await.unwrap_or(Err(CommandError::Refused(CommandRefusal::Ended)))
    }

    /// Stops the session gently. A session that waits for its first prompt is left to the next daemon.
    pub(crate) async fn drain(&self, by: String) -> Result<StopOutcome, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.put(SessionCommand::Drain { by, reply })?;
        answer.await.unwrap_or(Err(CommandError::Refused(CommandRefusal::Ended)))
    }

    /// Chooses another agent for a session that has had no process.
    pub(crate) async fn agent(
        &self,
        input: SessionInput,
        plan: ProcessPlan,
    ) -> Result<CommandOutcome, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.put(SessionCommand::Agent { input, plan: Box::new(plan), reply })?;
        answer.await.unwrap_or(Err(CommandError::Refused(CommandRefusal::Ended)))
    }

    fn put(&self, message: SessionCommand) -> Result<(), CommandError> {
        self.inbox.try_send(message).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CommandError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => CommandError::Refused(CommandRefusal::Ended),
        })
    }

    /// Waits until the session's task takes no more commands, because its session has ended.
    pub(crate) async fn closed(&self) {
        self.inbox.closed().await;
    }

    /// Returns an observer of the live process.
    pub(crate) fn observer(&self) -> Option<ProcessObserver> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
