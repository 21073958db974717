//! Whose process is at the other end of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::environment::SESSION_VARIABLE;
use super::identity::{pids, stat, variable};
use super::observe::Observer;
use super::peer_process::PeerProcess;
use super::tcp;

/// More generations than any tree has; a loop cannot be, but a wrong answer must not become one.
const MAX_DEPTH: usize = 1000;

/// By what a process could be known as an agent's.
#[derive(Debug, Default)]
pub struct Traces {
    /// Itself, its parent, and so on up.
    pub ancestors: Vec<i32>,
    /// Texts that name a session: its mark in the environment, its cgroups.
    pub marks: Vec<String>,
}

/// Looks at a tree that changes this often before giving up.
const ATTEMPTS: usize = 3;

/// `None` if it cannot be told: the process has gone, or the tree above it changes all the time.
pub fn traces(pid: i32) -> Option<Traces> {
    (0..ATTEMPTS).find_map(|_| look_up(pid))
}

fn look_up(pid: i32) -> Option<Traces> {
    let mut ancestors = vec![pid];
    loop {
        let parent = stat(*ancestors.last()?)?.parent;
        if parent <= 1 {
            break;
        }
        ancestors.push(parent);
        if ancestors.len() > MAX_DEPTH {
            return None;
        }
    }
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
    // A terminal's shim carries the mark of its session: whatever is below it cannot take it off.
    let above = ancestors.iter().filter_map(|pid| variable(*pid, SESSION_VARIABLE));
    let marks = above.chain(cgroups).collect();
    is_still_parent_of(&ancestors).then_some(Traces { ancestors, marks })
}

/// A process that exits gives its children away before its pid is free. So a pid that is still the parent's meant the same
/// process all the time while we read about it, and not one that has the number of a dead parent.
fn is_still_parent_of(ancestors: &[i32]) -> bool {
    ancestors.windows(2).all(|pair| stat(pair[0]).is_some_and(|stat| stat.parent == pair[1]))
}

/// The socket at the other end of a TCP connection within this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherEnd {
    inode: u64,
    uid: u32,
}

/// `None` if it is closed.
pub fn other_end(from: SocketAddr, to: SocketAddr) -> Option<OtherEnd> {
    if let Some((inode, uid)) = tcp::socket_between(from, to) {
        return Some(OtherEnd { inode, uid });
    }
    // A socket that is tied to an interface, or a kernel that does not answer.
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    tables
        .iter()
        .find_map(|table| end_in(&std::fs::read_to_string(table).ok()?, from, to))
        .filter(|end| end.inode != 0)
}

/// A line is `sl local remote state queues timer retransmits uid timeout inode …`, with addresses as hexadecimal words in
/// the machine's own order.
fn end_in(table: &str, from: SocketAddr, to: SocketAddr) -> Option<OtherEnd> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, remote) = (address(fields.get(1)?)?, address(fields.get(2)?)?);
        let ours = local == canonical(from) && remote == canonical(to);
        ours.then(|| end_of(&fields))?
    })
}

fn end_of(fields: &[&str]) -> Option<OtherEnd> {
    Some(OtherEnd { uid: fields.get(7)?.parse().ok()?, inode: fields.get(9)?.parse().ok()? })
}

impl OtherEnd {
    /// The processes that have it open; none, if it is on its way between processes. `None` if it belongs to a user whose
    /// processes are not ours to see, and who runs none of our agents.
    pub fn holders(self) -> Option<Vec<PeerProcess>> {
        let own = nix::unistd::geteuid();
        let seen = own.is_root() || self.uid == own.as_raw();
        // Identified before its descriptors are read: they are those of this process, if it is there afterwards.
        let holder = |pid| PeerProcess::running(pid).filter(|_| holds(pid, self.inode));
        seen.then(|| pids().filter_map(holder).collect())
    }
}

/// The processes that listen on an address of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    uid: u32,
    /// With their names; empty if they are another user's and not ours to see.
    processes: Vec<(i32, String)>,
}

impl Listener {
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.processes.iter().map(|(pid, _)| *pid)
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.processes.first() {
            Some((pid, name)) => write!(f, "{name} (pid {pid})"),
            None => match nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(self.uid)) {
                Ok(Some(user)) => write!(f, "a process of {}", user.name),
                _ => write!(f, "a process of user {}", self.uid),
            },
        }
    }
}

/// Finds who listens on this address, or on all addresses of its port.
pub fn listener(address: SocketAddr) -> Option<Listener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let end = tables.iter().find_map(|table| listening_in(&std::fs::read_to_string(table).ok()?, address))?;
    let holders = end.holders().unwrap_or_default();
    let named = |process: PeerProcess| Some((process.pid(), stat(process.pid())?.name));
    Some(Listener { uid: end.uid, processes: holders.into_iter().filter_map(named).collect() })
}

fn listening_in(table: &str, wanted: SocketAddr) -> Option<OtherEnd> {
    const LISTEN: &str = "0A";
    let (ip, port) = canonical(wanted);
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local_ip, local_port) = address(fields.get(1)?)?;
        let same = local_ip == ip || local_ip.is_unspecified() || ip.is_unspecified();
        (fields.get(3) == Some(&LISTEN) && local_port == port && same).then(|| end_of(&fields))?
    })
}

/// Whether a process has this socket open.
fn holds(pid: i32, inode: u64) -> bool {
    let wanted = format!("socket:[{inode}]");
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|target| target.as_os_str() == wanted.as_str())
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<[u8; 4]> = (0..ip.len() / 8)
        .map(|at| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes))
        .collect::<Option<_>>()?;
    let ip = match words.as_slice() {
        [word] => IpAddr::from(*word),
        [a, b, c, d] => {
            let bytes: [u8; 16] = [*a, *b, *c, *d].concat().try_into().ok()?;
            IpAddr::from(bytes)
        }
        _ => return None,
    };
    Some((ip.to_canonical(), port))
}

impl Observer {
    pub fn shim_pid(&self) -> i32 {
        self.shim.pid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_connection_is_found_in_the_systems_table() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let end = other_end(client.local_addr().unwrap(), listener.local_addr().unwrap()).unwrap();
        assert_eq!(end.uid, nix::unistd::geteuid().as_raw());
        let holders: Vec<i32> = end.holders().unwrap().iter().map(PeerProcess::pid).collect();
        assert_eq!(holders, [i32::try_from(std::process::id()).unwrap()]);
        let stranger = "127.0.0.1:1".parse().unwrap();
        assert_eq!(other_end(stranger, listener.local_addr().unwrap()), None);
    }

    #[test]
    fn who_listens_on_a_port_is_found_by_number_and_name() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let found = listener(address).unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(found.pids().collect::<Vec<_>>(), [me]);
        assert!(found.to_string().ends_with(&format!(" (pid {me})")), "{found}");
        let everywhere = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = everywhere.local_addr().unwrap().port();
        assert!(listener(SocketAddr::from(([127, 0, 0, 1], port))).is_some());
        drop(socket);
        assert_eq!(listener(address), None);
    }

    #[test]
    fn our_ancestors_begin_with_ourselves() {
        let me = i32::try_from(std::process::id()).unwrap();
        let traces = traces(me).unwrap();
        assert_eq!(traces.ancestors[0], me);
        assert!(traces.ancestors.len() > 1 || std::os::unix::process::parent_id() == 1);
    }
}
