//! The lookup of the processes that call us.
//!
//! A lookup reads about many processes, and everybody who can connect causes one. So each kind of connection has its
//! own queue, and the cost is bounded for any number of callers:
//!
//! ```text
//!   unix socket ── one lookup per process and second, two at a time
//!   port ───────── one pass over all processes at a time, for all waiting callers
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use intercom_daemon::supervisor::{ProcessOwner, Supervisor};
use intercom_host::PeerProcess;

/// The limit on concurrent lookups of callers of the unix socket.
const UNIX_LOOKS: usize = 2;
/// The time for which a result counts for other connections of the same process. It is short, because a process may
/// execute another program.
const FRESH: Duration = Duration::from_secs(1);
/// The limit on served connections of a process on the unix socket before it is recognised.
const TURNS: usize = 32;
/// The limit on refusals that a process gets an answer to within [`FRESH`]; then its new connections are closed at
/// once.
const REFUSALS: usize = 128;
/// The limit on connections that wait for a pass; more wait for a place.
const WAITING: usize = 1024;

/// A process with connections on the unix socket, which share the result of its lookup.
#[derive(Debug)]
pub(crate) struct UnixClient {
    process: PeerProcess,
    /// The owner and the time of the lookup. Locked during the lookup, so that the connections of a process share one.
    owner: Mutex<Option<(Instant, ProcessOwner)>>,
    /// Permits for concurrent connections; closed once the process is known to be a person's, which needs no limit.
    turns: Arc<Semaphore>,
    /// The number of refusals since then.
    refused: std::sync::Mutex<(Instant, usize)>,
}

impl UnixClient {
    pub(crate) fn new(process: PeerProcess) -> Self {
        let refused = std::sync::Mutex::new((Instant::now(), 0));
        Self { process, owner: Mutex::default(), turns: Arc::new(Semaphore::new(TURNS)), refused }
    }

    /// Waits until one more connection of this process may be served. An unrecognised process has a few at a time; the
    /// others cost no more than their descriptor.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok() // closed: no permit is needed
    }

    pub(super) fn recognise(&self) {
        self.turns.close();
    }

    pub(super) fn note_refusal(&self) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.0.elapsed() >= FRESH {
            *refused = (Instant::now(), 0);
        }
        refused.1 += 1;
    }

    /// Returns true if it was just refused so often, or has so many open connections, that another one gets no answer.
    pub(crate) fn exceeds_refusal_limit(&self) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let has_turns = self.turns.available_permits() > 0;
        refused.0.elapsed() < FRESH && (refused.1 >= REFUSALS || (refused.1 > 0 && !has_turns))
    }

    pub(crate) fn pid(&self) -> i32 {
        self.process.pid()
    }

    pub(crate) fn has_exited(&self) -> bool {
        self.process.has_exited()
    }
}

/// The two ends of a connection on the port, for the lookup of its caller.
struct TcpLookup {
    from: SocketAddr,
    local: SocketAddr,
    answer: oneshot::Sender<ProcessOwner>,
}

pub(in crate::api) struct OwnerLookups {
    supervisor: Supervisor,
    unix: Semaphore,
    tcp: mpsc::Sender<TcpLookup>,
    /// Answers the lookups of TCP connections; ends with this.
    #[expect(dead_code, reason = "dropping it is its use")]
    answering: AbortOnDropHandle<()>,
}

impl OwnerLookups {
    pub(in crate::api) fn start(supervisor: Supervisor) -> Self {
        let (tcp, asked) = mpsc::channel(WAITING);
        let answering = AbortOnDropHandle::new(tokio::spawn(answer(supervisor.clone(), asked)));
        Self { supervisor, unix: Semaphore::new(UNIX_LOOKS), tcp, answering }
    }

    pub(super) async fn owner_of_unix(&self, client: &Arc<UnixClient>) -> ProcessOwner {
        let mut owner = client.owner.lock().await;
        if let Some((at, belongs)) = *owner
            && at.elapsed() < FRESH
        {
            return belongs;
        }
        let Ok(_permit) = self.unix.acquire().await else { return ProcessOwner::Unknown };
        let (supervisor, looked_at) = (self.supervisor.clone(), Arc::clone(client));
        let look = tokio::task::spawn_blocking(move || supervisor.session_of(&looked_at.process));
        let belongs = look.await.unwrap_or(ProcessOwner::Unknown);
        *owner = Some((Instant::now(), belongs));
        belongs
    }

    pub(super) async fn owner_of_tcp(&self, from: SocketAddr, local: SocketAddr) -> ProcessOwner {
        // Only a process of this machine can be an agent; it can connect from any of the machine's addresses.
        if !intercom_host::is_own_address(from) {
            return ProcessOwner::Nobody;
        }
        let (answer, answered) = oneshot::channel();
        if self.tcp.send(TcpLookup { from, local, answer }).await.is_err() {
            return ProcessOwner::Unknown;
        }
        answered.await.unwrap_or(ProcessOwner::Unknown)
    }
}

async fn answer(supervisor: Supervisor, mut asked: mpsc::Receiver<TcpLookup>) {
    let mut waiting = Vec::new();
    while asked.recv_many(&mut waiting, WAITING).await > 0 {
        // Callers that have hung up meanwhile are skipped.
        waiting.retain(|lookup: &TcpLookup| !lookup.answer.is_closed());
        let ends: Vec<_> = waiting.iter().map(|lookup| (lookup.from, lookup.local)).collect();
        let supervisor = supervisor.clone();
        let pass = tokio::task::spawn_blocking(move || supervisor.sessions_of_tcp(&ends)).await;
        let found = pass.unwrap_or_default().into_iter().chain(std::iter::repeat(ProcessOwner::Unknown));
        for (lookup, belongs) in waiting.drain(..).zip(found) {
            lookup.answer.send(belongs).ok(); // the caller may have hung up
        }
    }
}
