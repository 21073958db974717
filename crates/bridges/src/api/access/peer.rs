//! The other end of a connection, and the result of its lookup.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;

use super::lookups::UnixClient;
use intercom_daemon::supervisor::ProcessOwner;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Peer {
    /// A unix socket: the kernel names user and process.
    Unix {
        uid: Option<u32>,
        /// The process that connected, held since the connection was accepted; `None` if it had exited by then.
        client: Option<Arc<UnixClient>>,
        recognition: Arc<PeerRecognition>,
    },
    Tcp {
        from: SocketAddr,
        local: SocketAddr,
        /// True if the connection is encrypted.
        tls: bool,
        recognition: Arc<PeerRecognition>,
    },
}

/// The results about one connection, shared by all of its requests.
#[derive(Debug, Default)]
pub(crate) struct PeerRecognition {
    /// True once a caller with a role was accepted.
    recognised: AtomicBool,
    /// The owner of the process at the other end, looked up once: a lookup per request would be too expensive.
    owner: OnceCell<ProcessOwner>,
}

impl PeerRecognition {
    pub(crate) fn is_recognised(&self) -> bool {
        self.recognised.load(Ordering::Relaxed)
    }

    pub(in crate::api) fn recognise(&self) {
        self.recognised.store(true, Ordering::Relaxed);
    }

    pub(super) async fn owner(&self, look_up: impl Future<Output = ProcessOwner>) -> ProcessOwner {
        *self.owner.get_or_init(|| look_up).await
    }
}
