//! The handle of a session, for everybody but its owner.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::actor::ProcessPlan;
use super::state::{CommandRefusal, SessionInput};
use intercom_host::ProcessObserver;
use intercom_store::StoreError;
use intercom_types::{Delivery, PromptId, SessionId, StopMode};

/// Commands waiting for a session. When full, a command is refused as overloaded and changes nothing.
const INBOX: usize = 1024;
/// The time that it is worth waiting to report that a decision has arrived.
const ARRIVING: Duration = Duration::from_secs(2);

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Refused(#[from] CommandRefusal),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A panic, and so a bug; nothing has changed.
    #[error("intercom failed at this command, which is a bug in intercom; nothing was changed: {0}")]
    Failed(String),
    #[error("too many commands wait for this session")]
    Overloaded,
}

/// The outcome of a stop: the steps that it needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopOutcome {
    pub steps: Vec<String>,
    pub killed: u32,
    /// The tree is gone, but the store does not work: the end is recorded as soon as it does.
    pub unrecorded: bool,
}

/// The result of a command once it is committed.
#[derive(Debug)]
pub struct CommandOutcome {
    /// The id of the prompt, if the command was one.
    pub prompt: Option<PromptId>,
    /// The number of the setting, if the command sets something.
    pub set: Option<u64>,
    pub arrival: ArrivalWatch,
}

/// Waits until the message of a command has arrived at the agent or never will; either is in the store by
/// then.
#[derive(Debug)]
pub struct ArrivalWatch(oneshot::Receiver<Delivery>);

/// The session's side: told how it ended, or dropped when there is nothing more to wait for.
pub(super) type DeliverySender = oneshot::Sender<Delivery>;

impl ArrivalWatch {
    pub(super) fn new() -> (DeliverySender, Self) {
        let (on_its_way, arrival) = oneshot::channel();
        (on_its_way, Self(arrival))
    }

    /// Waits a moment for it. The store says which.
    pub async fn wait(self) {
        self.outcome().await;
    }

    /// Waits a moment for it. `None` if there was nothing to wait for, or the agent went first.
    pub async fn outcome(self) -> Option<Delivery> {
        match tokio::time::timeout(ARRIVING, self.0).await {
            Ok(told) => told.ok(),
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
    /// The daemon stops its agents. Where there has been none, there is nothing to be stopped.
    Drain {
        by: String,
        reply: oneshot::Sender<Result<StopOutcome, CommandError>>,
    },
    /// Another agent, and how it is started.
    Agent {
        input: SessionInput,
        plan: Box<ProcessPlan>,
        reply: oneshot::Sender<Result<CommandOutcome, CommandError>>,
    },
}

/// Cloneable; the session's task owns everything behind it.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    pub id: SessionId,
    pub name: Option<String>,
    /// The generation of the process that this task starts.
    pub generation: u32,
    inbox: mpsc::Sender<SessionCommand>,
    /// Set by the session's task when a process starts; held for the moment of a copy.
    observer: Arc<Mutex<Option<ProcessObserver>>>,
}

/// The owner's side of a handle.
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

    /// Answers when the command is committed.
    pub async fn command(&self, input: SessionInput) -> Result<CommandOutcome, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.put(SessionCommand::Command { input, reply })?;
        answer.await.unwrap_or(Err(CommandError::Refused(CommandRefusal::Ended)))
    }

    /// Answers when the process and its group are gone.
    pub async fn stop(&self, mode: StopMode, by: String) -> Result<StopOutcome, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.put(SessionCommand::Stop { mode, by, reply })?;
        answer.await.unwrap_or(Err(CommandError::Refused(CommandRefusal::Ended)))
    }

    /// Stops gently, but leaves a session that waits for its first prompt: the next daemon continues with it.
    pub async fn drain(&self, by: String) -> Result<StopOutcome, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.put(SessionCommand::Drain { by, reply })?;
        answer.await.unwrap_or(Err(CommandError::Refused(CommandRefusal::Ended)))
    }

    /// Another agent for a session that has had none.
    pub async fn agent(
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

    /// Waits until the session's task takes no more commands: its session has ended.
    pub async fn closed(&self) {
        self.inbox.closed().await;
    }

    /// A look at the live process.
    pub fn observer(&self) -> Option<ProcessObserver> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
