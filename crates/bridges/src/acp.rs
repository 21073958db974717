//! ACP clients: an editor, a tool or a script attaches to sessions that we host, beside everybody else.
//!
//! ```text
//!   client ─► transport ─► Inlet ─► connection ─► operations, as the person the client belongs to
//!   client ◄─ transport ◄─ Outlet ◄─ feeds, one per attached session ◄─ log
//! ```
//! A client acts through operations, with its person's role. Its updates come from the log, at the client's own pace:
//! all clients of a session see the same events in the same order, and a client that does not read delays nobody else.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod capabilities;
mod client;
mod client_requests;
mod connection;
mod content;
mod expiry;
mod feed;
mod methods;
mod metrics;
mod prompts;
mod queue;
mod refusal;
#[cfg(test)]
mod tests;
mod transport;
mod update_encoder;

use metrics::ClientMetrics;
pub(crate) use queue::ClientInlet;
pub(crate) use queue::ClientMessage;
pub(crate) use queue::ClientOutlet;
pub(crate) use queue::ConnectionClosed;

use intercom_daemon::ops::{Caller, Operations};
use intercom_types::{OnClientLeft, SessionId};

/// The ACP bridge: a cheap handle on state shared by all clients.
#[derive(Debug, Clone)]
pub struct AcpBridge(Arc<AcpShared>);

#[derive(Debug)]
struct AcpShared {
    ops: Operations,
    closing: CancellationToken,
    metrics: Arc<ClientMetrics>,
    /// The number of clients attached to each session, if any; locked only for one lookup.
    attached: Mutex<HashMap<SessionId, usize>>,
    /// Sessions whose first client attached or whose last client left since the last pass of the housekeeping; locked
    /// only for one change.
    changed: Mutex<HashSet<SessionId>>,
    client_changes: Notify,
    /// The tasks of the connections, their transports, feeds and slow requests.
    tasks: TaskTracker,
}

/// A client's preferences, as its transport knows them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectOptions {
    /// The profile of new sessions, unless the request names one.
    pub(crate) agent: Option<String>,
    /// The session that `session/new` attaches to, instead of starting one.
    pub(crate) attach: Option<String>,
    /// The treatment of its sessions when it disconnects, if the client states one.
    pub(crate) on_close: Option<OnClientLeft>,
    /// True for our own relay: it outlives the daemon and needs the position in the log with each message.
    pub(crate) relay: bool,
    /// True for Streamable HTTP.
    pub(crate) streamable: bool,
    /// True for a single request without a connection: no handshake, and no requests to the client.
    pub(crate) connectionless: bool,
}

impl AcpBridge {
    pub fn new(ops: Operations, closing: CancellationToken) -> Self {
        Self(Arc::new(AcpShared {
            ops,
            closing,
            metrics: Arc::default(),
            attached: Mutex::default(),
            changed: Mutex::default(),
            client_changes: Notify::new(),
            tasks: TaskTracker::new(),
        }))
    }

    fn attached(&self) -> MutexGuard<'_, HashMap<SessionId, usize>> {
        self.0.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients_of(&self, session: SessionId) -> usize {
        self.attached().get(&session).copied().unwrap_or(0)
    }

    fn changed(&self) -> MutexGuard<'_, HashSet<SessionId>> {
        self.0.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_change(&self, session: SessionId) {
        self.changed().insert(session);
        self.0.client_changes.notify_one();
    }

    fn take_changed(&self) -> HashSet<SessionId> {
        std::mem::take(&mut *self.changed())
    }

    /// Starts the task of a new client. Dropping the `ClientInlet` disconnects the client; the end of the
    /// `ClientOutlet` tells the transport to close the connection.
    pub(crate) fn connect(&self, who: Caller, options: ConnectOptions) -> (ClientInlet, ClientOutlet) {
        let (inlet, inbox) = queue::inlet();
        let (outbox, outlet) = queue::outlet();
        self.0.tasks.spawn(connection::handle_messages(self.clone(), who, options, inbox, outbox));
        (inlet, outlet)
    }
}
