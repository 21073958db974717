//! What everybody but its owner holds of a session.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::state::{How, Input, Refused};
use crate::domain::{PromptId, SessionId};
use crate::host::Observer;
use crate::store::StoreError;

/// Commands waiting for a session. When full, a command is refused as overloaded and changes nothing.
const INBOX: usize = 1024;

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("too many commands wait for this session")]
    Overloaded,
}

/// What a stop needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stopped {
    pub steps: Vec<String>,
    pub killed: u32,
}

pub(super) enum Message {
    Command { input: Input, reply: oneshot::Sender<Result<Option<PromptId>, CommandError>> },
    Stop { how: How, by: String, reply: oneshot::Sender<Result<Stopped, CommandError>> },
}

/// Cloneable; the session's task owns everything behind it.
#[derive(Debug, Clone)]
pub struct Handle {
    pub id: SessionId,
    pub name: Option<String>,
    /// Of the process that this task starts.
    pub generation: u32,
    inbox: mpsc::Sender<Message>,
    /// Set by the session's task when a process starts; held for the moment of a copy.
    observer: Arc<Mutex<Option<Observer>>>,
}

/// The owner's side of a handle.
pub(super) struct Desk {
    pub(super) inbox: mpsc::Receiver<Message>,
    observer: Arc<Mutex<Option<Observer>>>,
}

impl Desk {
    pub(super) fn publish(&self, observer: Observer) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(observer);
    }
}

impl Handle {
    pub(super) fn new(id: SessionId, name: Option<String>, generation: u32) -> (Self, Desk) {
        let (to, inbox) = mpsc::channel(INBOX);
        let observer = Arc::default();
        (Self { id, name, generation, inbox: to, observer: Arc::clone(&observer) }, Desk { inbox, observer })
    }

    /// Answers when the command is committed. For a prompt, with its id.
    pub async fn command(&self, input: Input) -> Result<Option<PromptId>, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.put(Message::Command { input, reply })?;
        answer.await.unwrap_or(Err(CommandError::Refused(Refused::Ended)))
    }

    /// Answers when the process and its group are gone.
    pub async fn stop(&self, how: How, by: String) -> Result<Stopped, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.put(Message::Stop { how, by, reply })?;
        answer.await.unwrap_or(Err(CommandError::Refused(Refused::Ended)))
    }

    fn put(&self, message: Message) -> Result<(), CommandError> {
        self.inbox.try_send(message).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CommandError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => CommandError::Refused(Refused::Ended),
        })
    }

    /// Waits until the session's task takes no more commands: its session has ended.
    pub async fn closed(&self) {
        self.inbox.closed().await;
    }

    /// A look at the live process.
    pub fn observer(&self) -> Option<Observer> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
