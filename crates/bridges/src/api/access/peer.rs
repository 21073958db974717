//! The other end of a connection, and the result of looking it up once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;

use super::lookups::UnixClient;
use intercom_daemon::supervisor::ProcessOwner;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub enum Peer {
    /// By the kernel's word.
    Unix {
        uid: Option<u32>,
        /// The process that connected, held since the connection was accepted; `None` if it had exited by then.
        client: Option<Arc<UnixClient>>,
        recognition: Arc<PeerRecognition>,
    },
    Tcp {
        from: SocketAddr,
        local: SocketAddr,
        /// True if nobody on the way can read along.
        tls: bool,
        recognition: Arc<PeerRecognition>,
    },
}

/// The findings about one connection, shared by all of its requests.
#[derive(Debug, Default)]
pub struct PeerRecognition {
    /// Somebody with a role was let in: the connection is no stranger's.
    recognised: AtomicBool,
    /// The owner of the process at the other end. Looked up once: looking at every process for every request would be too
    /// much.
    owner: OnceCell<ProcessOwner>,
}

impl PeerRecognition {
    pub fn is_recognised(&self) -> bool {
        self.recognised.load(Ordering::Relaxed)
    }

    pub(in crate::api) fn recognise(&self) {
        self.recognised.store(true, Ordering::Relaxed);
    }

    pub(super) async fn owner(&self, look_up: impl Future<Output = ProcessOwner>) -> ProcessOwner {
        *self.owner.get_or_init(|| look_up).await
    }
}
