//! The process at the other end of a TCP connection within this machine.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::identity::{pids, stat};
use super::peer_process::PeerProcess;
use super::process_observer::ProcessObserver;
use super::tcp;

/// The socket at the other end of a TCP connection within this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherEnd {
    inode: u64,
    uid: u32,
}

/// Finds the other end of a connection. `None` if it is closed.
pub fn other_end(from: SocketAddr, to: SocketAddr) -> Option<OtherEnd> {
    if let Some((inode, uid)) = tcp::socket_between(from, to) {
        return Some(OtherEnd { inode, uid });
    }
    // The netlink lookup misses sockets that are bound to an interface, and some kernels do not answer it.
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    tables
        .iter()
        .find_map(|table| end_in(&std::fs::read_to_string(table).ok()?, from, to))
        .filter(|end| end.inode != 0)
}

/// Finds a connection in a table of `/proc/net`. A line is `sl local remote state queues timer retransmits uid timeout
/// inode …`, with addresses as hexadecimal words in the machine's byte order.
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
    /// Reports whether we may see the processes that hold it.
    pub fn is_visible(self) -> bool {
        let own = nix::unistd::geteuid();
        own.is_root() || self.uid == own.as_raw()
    }
}

/// A process that holds some of the sockets of a search.
#[derive(Debug)]
pub struct SocketHolder {
    pub process: PeerProcess,
    pub ends: Vec<OtherEnd>,
}

/// Finds the processes that hold any of these sockets, in one pass. A socket that is being passed between processes has
/// no holder.
pub fn holders(ends: &[OtherEnd]) -> Vec<SocketHolder> {
    if ends.is_empty() {
        return Vec::new();
    }
    let by_inode: HashMap<u64, OtherEnd> = ends.iter().map(|end| (end.inode, *end)).collect();
    pids().filter_map(|pid| holder(pid, &by_inode)).collect()
}

fn holder(pid: i32, wanted: &HashMap<u64, OtherEnd>) -> Option<SocketHolder> {
    if held_by(pid, wanted).is_empty() {
        return None;
    }
    // Look again, now that the process is identified: what is read from here on is about this process, if it still
    // exists afterwards.
    let process = PeerProcess::running(pid)?;
    let ends = held_by(pid, wanted);
    Some(SocketHolder { process, ends })
}

fn held_by(pid: i32, wanted: &HashMap<u64, OtherEnd>) -> Vec<OtherEnd> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter_map(|link| wanted.get(&socket_inode(link.to_str()?)?).copied()).collect()
}

fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The processes that listen on an address of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortListener {
    uid: u32,
    /// Pids and names; empty if the processes belong to another user and are invisible to us.
    processes: Vec<(i32, String)>,
}

impl PortListener {
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.processes.iter().map(|(pid, _)| *pid)
    }
}

impl fmt::Display for PortListener {
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

/// Finds the processes that listen on this address, or on all addresses of its port.
pub fn listener(address: SocketAddr) -> Option<PortListener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let end = tables.iter().find_map(|table| listening_in(&std::fs::read_to_string(table).ok()?, address))?;
    let holders = if end.is_visible() { holders(&[end]) } else { Vec::new() };
    let with_name = |holder: SocketHolder| Some((holder.process.pid(), stat(holder.process.pid())?.name));
    Some(PortListener { uid: end.uid, processes: holders.into_iter().filter_map(with_name).collect() })
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

impl ProcessObserver {
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
        let found = holders(&[end]);
        let pids: Vec<i32> = found.iter().map(|holder| holder.process.pid()).collect();
        assert_eq!(pids, [i32::try_from(std::process::id()).unwrap()]);
        assert_eq!(found[0].ends, [end]);
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
}
