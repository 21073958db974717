//! Operations: each act of a person, implemented once for every bridge.
//!
//! ```text
//!   HTTP ──┐
//!   Slack ─┼─► operation(&Caller, request) ─► role ─► checks ─► supervisor ─► audit ─► answer or OpError
//!   ACP ───┘
//! ```
//! An operation owns the role that it needs, its checks, its entry in the audit and its call of the supervisor. Bridges
//! translate and decide nothing. They read the ledger only through [`ReadModel`].

use std::sync::Arc;

use tokio_util::task::TaskTracker;

mod agents;
mod audit;
mod backup;
mod caller;
mod clearances;
mod console;
mod console_sessions;
mod error;
mod health;
mod log;
mod once;
mod policy;
mod prompts;
mod questions;
mod read;
mod roles;
mod session_view;
mod sessions;
mod settings;
mod stats;
mod steering;
mod tokens;
mod viewer_log;

pub use agents::agents_of;
pub use audit::AuditQuery;
use audit::audited;
pub use caller::Caller;
pub use clearances::{ClearanceQuery, DecisionResult};
pub use console::{ConsoleAccess, NewConsoleSession, NoConsole, SignInCredential};
pub use error::{ErrorKind, OpError};
pub use log::EventsQuery;
pub use once::StoredAnswer;
pub use policy::ConfigReader;
pub use prompts::PromptQuery;
pub use questions::QuestionQuery;
pub use read::{LogPosition, LogReader, ReadModel};
use read::{limit, require_one};
pub use roles::{OperationKind, RequiredRole};
pub use sessions::SessionQuery;
pub use settings::SettingResult;
pub use stats::StatsQuery;
pub use viewer_log::{ViewerLog, redacted};

use crate::supervisor::Supervisor;
use intercom_store::Store;
use intercom_store::bus::Bell;

/// All operations.
#[derive(Clone)]
pub struct Operations(Arc<OperationsInner>);

struct OperationsInner {
    supervisor: Supervisor,
    bell: Bell,
    read_config: ConfigReader,
    keys: once::InFlightKeys,
    backup: backup::RunningBackup,
    tokens: tokens::TokenRegistry,
    console: console_sessions::ConsoleSessions,
    /// Requests with a key, which continue after their caller has hung up.
    tasks: TaskTracker,
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").field("supervisor", &self.0.supervisor).finish_non_exhaustive()
    }
}

impl Operations {
    pub fn new(supervisor: Supervisor, bell: Bell, read_config: ConfigReader) -> Self {
        Self(Arc::new(OperationsInner {
            supervisor,
            bell,
            read_config,
            keys: once::InFlightKeys::default(),
            backup: backup::RunningBackup::default(),
            tokens: tokens::TokenRegistry::default(),
            console: console_sessions::ConsoleSessions::default(),
            tasks: TaskTracker::new(),
        }))
    }

    /// Waits for the requests that go on after their caller has hung up.
    pub async fn finish(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    pub fn supervisor(&self) -> &Supervisor {
        &self.0.supervisor
    }

    pub fn bell(&self) -> &Bell {
        &self.0.bell
    }

    /// Returns the store, for the tables of the bridges. They read everything else through the read model.
    pub fn store(&self) -> &Store {
        self.0.supervisor.store()
    }
}
