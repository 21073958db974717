//! ACP clients: an editor, a tool or a script attaches to sessions that we host, beside everybody else.
//!
//! ```text
//!   client ─► transport ─► Inlet ─► connection ─► operations, as the person the client belongs to
//!   client ◄─ transport ◄─ Outlet ◄─ feeds, one per attached session ◄─ log
//! ```
//! A client acts through operations, with its person's role; what it sees comes from the log, at its own pace. So all
//! clients of a session see the same in the same order, and one that does not read holds up nobody.

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
pub use queue::{ClientInlet, ClientMessage, ClientOutlet, ConnectionClosed};

use intercom_daemon::ops::{Caller, Operations};
use intercom_types::{OnClientLeft, SessionId};

/// The whole of the bridge.
#[derive(Debug, Clone)]
pub struct AcpBridge(Arc<AcpShared>);

#[derive(Debug)]
struct AcpShared {
    ops: Operations,
    closing: CancellationToken,
    metrics: Arc<ClientMetrics>,
    /// The number of clients attached to each session, if any; locked only for one lookup.
    attached: Mutex<HashMap<SessionId, usize>>,
    /// Sessions to which a first client has come, or from which the last has gone; held for the moment of a look.
    changed: Mutex<HashSet<SessionId>>,
    client_changes: Notify,
    /// The tasks of the connections and their transports, and the tasks beside them.
    tasks: TaskTracker,
}

/// A client's preferences, as its transport knows them.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// The profile for new sessions, if the client says nothing else.
    pub agent: Option<String>,
    /// A session to be attached to instead of a new one.
    pub attach: Option<String>,
    /// The fate of its sessions when it disconnects, if the client states one.
    pub on_close: Option<OnClientLeft>,
    /// It is our own relay, which survives us and needs to know where it was.
    pub relay: bool,
    /// It came by Streamable HTTP.
    pub streamable: bool,
    /// Nothing comes before the first request and nothing after its answer: no handshake, nothing asked back.
    pub connectionless: bool,
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

    /// A new client. It has gone when its `ClientInlet` is dropped; it is shown out when its `ClientOutlet` ends.
    pub(crate) fn connect(&self, who: Caller, manner: ConnectOptions) -> (ClientInlet, ClientOutlet) {
        let (inlet, inbox) = queue::inlet();
        let (outbox, outlet) = queue::outlet();
        self.0.tasks.spawn(connection::converse(self.clone(), who, manner, inbox, outbox));
        (inlet, outlet)
    }
}
