//! Looking up the owners of processes that call us.
//!
//! It means reading about many processes, and anybody who can connect can ask for it. So it has a queue of its own for each
//! kind of connection, and a bound on what it costs, however many ask:
//!
//! ```text
//!   unix socket ── one look per process and second, two at a time
//!   port ───────── one pass over all processes at a time, for everybody who waits
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use intercom_daemon::supervisor::{ProcessOwner, Supervisor};
use intercom_host::PeerProcess;

/// Looks at callers of the unix socket at the same time.
const UNIX_LOOKS: usize = 2;
/// A look is good for other connections of the same process for this long: what it executes next may be something else.
const FRESH: Duration = Duration::from_secs(1);
/// Connections of one process on the unix socket that are served before it is recognised.
const TURNS: usize = 32;
/// Refusals that a process is answered within [`FRESH`]; then its new connections are closed as they come.
const REFUSALS: usize = 128;
/// Connections that wait for a pass; more wait to be allowed to wait.
const WAITING: usize = 1024;

/// A process with connections on the unix socket. They share it, and the findings about it.
#[derive(Debug)]
pub struct UnixClient {
    process: PeerProcess,
    /// The owner and the time of the look. Held during the look: the connections of one process wait for a single one.
    owner: Mutex<Option<(Instant, ProcessOwner)>>,
    /// Connections that are served at the same time; closed once the process is known to be a person's, who needs none.
    turns: Arc<Semaphore>,
    /// Refusals since then.
    refused: std::sync::Mutex<(Instant, usize)>,
}

impl UnixClient {
    pub fn new(process: PeerProcess) -> Self {
        let refused = std::sync::Mutex::new((Instant::now(), 0));
        Self { process, owner: Mutex::default(), turns: Arc::new(Semaphore::new(TURNS)), refused }
    }

    /// Waits until one more connection of this process may be served. A process that has not been recognised has a few at a
    /// time; the others cost us no more than their descriptor.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok() // closed: no turn is needed
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

    /// It was refused a moment ago, and so often, or has so many connections open, that one more is not worth an answer.
    pub fn exceeds_refusal_limit(&self) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let has_turns = self.turns.available_permits() > 0;
        refused.0.elapsed() < FRESH && (refused.1 >= REFUSALS || (refused.1 > 0 && !has_turns))
    }

    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    pub fn has_exited(&self) -> bool {
        self.process.has_exited()
    }
}

/// The two ends of a connection on the port whose caller is to be looked up.
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
        // Only a process of this machine can be an agent, and it can use any of its addresses.
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
        // Those who have hung up meanwhile are not looked for.
        waiting.retain(|lookup: &TcpLookup| !lookup.answer.is_closed());
        let ends: Vec<_> = waiting.iter().map(|lookup| (lookup.from, lookup.local)).collect();
        let supervisor = supervisor.clone();
        let pass = tokio::task::spawn_blocking(move || supervisor.sessions_of_tcp(&ends)).await;
        let found = pass.unwrap_or_default().into_iter().chain(std::iter::repeat(ProcessOwner::Unknown));
        for (lookup, belongs) in waiting.drain(..).zip(found) {
            lookup.answer.send(belongs).ok(); // it may have hung up
        }
    }
}
