//! Connections of clients that are not identified yet, and a bound on them.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use tokio_util::sync::CancellationToken;

use super::super::access::{PeerRecognition, UnixClient};
use intercom_host::PeerProcess;

/// The number of connections closed at once, as a part of the bound. Searching all of them for each new connection
/// would let strangers cause work.
const PART: usize = 256;

/// The size of the process list at which entries without connections are removed.
const CLIENTS: usize = 1024;

/// The unidentified connections. If there are too many, the oldest of the client with most of them is closed: a client
/// with access identifies itself at once, and is no longer among them.
pub(super) struct UnrecognisedConnections {
    bound: usize,
    connections: VecDeque<UnrecognisedConnection>,
}

struct UnrecognisedConnection {
    client: i32,
    recognition: Arc<PeerRecognition>,
    gone: CancellationToken,
}

impl UnrecognisedConnections {
    pub(super) fn new(bound: usize) -> Self {
        Self { bound, connections: VecDeque::new() }
    }

    /// Adds a connection of this client and returns the token that closes it.
    pub(super) fn add(&mut self, client: i32) -> (Arc<PeerRecognition>, CancellationToken) {
        if self.connections.len() >= self.bound {
            self.make_room();
        }
        let (recognition, gone) = (Arc::<PeerRecognition>::default(), CancellationToken::new());
        let known =
            UnrecognisedConnection { client, recognition: Arc::clone(&recognition), gone: gone.clone() };
        self.connections.push_back(known);
        (recognition, gone)
    }

    fn make_room(&mut self) {
        // Identified and closed connections do not count.
        let is_stranger = |known: &UnrecognisedConnection| {
            !known.recognition.is_recognised() && Arc::strong_count(&known.recognition) > 1
        };
        self.connections.retain(is_stranger);
        let surplus = (self.connections.len() + (self.bound / PART).max(1)).saturating_sub(self.bound);
        let mut counts: HashMap<i32, usize> = HashMap::new();
        for known in &self.connections {
            *counts.entry(known.client).or_default() += 1;
        }
        for _ in 0..surplus {
            let Some((client, count)) = counts.iter_mut().max_by_key(|(_, count)| **count) else { return };
            *count -= 1;
            let oldest = self.connections.iter().position(|known| known.client == *client);
            if let Some(known) = oldest.and_then(|at| self.connections.remove(at)) {
                known.gone.cancel();
            }
        }
    }
}

/// The processes with connections on the unix socket, each once: thousands of connections cost one handle.
#[derive(Default)]
pub(super) struct UnixClients(HashMap<i32, Weak<UnixClient>>);

impl UnixClients {
    /// Returns the process that opened this connection; `None` if it has exited.
    pub(super) fn of(&mut self, connection: &impl AsFd) -> Option<Arc<UnixClient>> {
        let process = PeerProcess::of(connection).filter(|process| !process.has_exited())?;
        let pid = process.pid();
        // It ran a moment ago under this pid, and still does: a process that is alive keeps its pid.
        let known = self.0.get(&pid).and_then(Weak::upgrade).filter(|known| !known.has_exited());
        Some(known.unwrap_or_else(|| {
            if self.0.len() >= CLIENTS {
                self.0.retain(|_, known| known.strong_count() > 0);
            }
            let client = Arc::new(UnixClient::new(process));
            self.0.insert(pid, Arc::downgrade(&client));
            client
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_with_most_connections_loses_its_oldest_one() {
        let mut strangers = UnrecognisedConnections::new(4);
        let (_person, person_gone) = strangers.add(1);
        let hostile: Vec<_> = (0..20).map(|_| strangers.add(2)).collect();
        assert!(!person_gone.is_cancelled());
        let ended = hostile.iter().filter(|(_, gone)| gone.is_cancelled()).count();
        assert_eq!(ended, 17);
        assert!(hostile[17..].iter().all(|(_, gone)| !gone.is_cancelled()), "the oldest go");
    }

    #[test]
    fn those_who_are_recognised_or_have_gone_are_not_counted() {
        let mut strangers = UnrecognisedConnections::new(4);
        let recognised: Vec<_> = (0..4).map(|_| strangers.add(1)).collect();
        for (recognition, _) in &recognised {
            recognition.recognise();
        }
        for _ in 0..20 {
            drop(strangers.add(1));
        }
        let (_stays, gone) = strangers.add(1);
        assert!(!gone.is_cancelled() && recognised.iter().all(|(_, gone)| !gone.is_cancelled()));
    }

    #[test]
    fn connections_of_one_process_share_it() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut clients = UnixClients::default();
        let (one, two) = (clients.of(&ours).unwrap(), clients.of(&ours).unwrap());
        assert!(Arc::ptr_eq(&one, &two));
        drop((one, two));
        assert!(clients.of(&ours).is_some());
    }
}
