//! Whose process is at the other end of a connection.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::environment::SESSION_VARIABLE;
use super::identity::{pids, stat, variable};
use super::leftovers::is_shim;
use super::observe::Observer;
use super::peer_process::PeerProcess;
use super::tcp;

/// More generations than any tree has; a loop cannot be, but a wrong answer must not become one.
const MAX_DEPTH: usize = 1000;

/// By what a process could be known as an agent's.
#[derive(Debug, Default)]
pub struct AgentTraces {
    /// Itself, its parent, and so on up.
    pub ancestors: Vec<i32>,
    /// Sessions that its marks name: in its environment, in that of a process above it, in the name of its cgroup. Of whatever
    /// daemon.
    pub sessions: Vec<String>,
    /// Those of the ancestors that are shims, of whatever daemon.
    pub shims: Vec<i32>,
}

/// Looks at a tree that changes this often before giving up.
const ATTEMPTS: usize = 3;

/// `None` if it cannot be told: the process has gone, or the tree above it changes all the time.
pub fn traces(pid: i32) -> Option<AgentTraces> {
    (0..ATTEMPTS).find_map(|_| look_up(pid))
}

fn look_up(pid: i32) -> Option<AgentTraces> {
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
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    // A terminal's shim carries the mark of its session: whatever is below it cannot take it off.
    let above = ancestors.iter().filter_map(|pid| variable(*pid, SESSION_VARIABLE));
    let sessions = above.chain(sessions_in_cgroups(&cgroups)).collect();
    let shims = ancestors.iter().copied().filter(|pid| is_shim(*pid)).collect();
    is_still_parent_of(&ancestors).then_some(AgentTraces { ancestors, sessions, shims })
}

/// The sessions that `…/intercom-SESSION-GENERATION/…` name.
fn sessions_in_cgroups(cgroups: &str) -> impl Iterator<Item = String> {
    let parts = cgroups.split(['/', '\n']).filter_map(|part| part.strip_prefix("intercom-"));
    parts.filter(|name| name.starts_with("ses_")).map(|name| {
        let session = name.split_once('-').map_or(name, |(session, _)| session);
        session.to_owned()
    })
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
    /// Its processes are ours to see.
    pub fn is_visible(self) -> bool {
        let own = nix::unistd::geteuid();
        own.is_root() || self.uid == own.as_raw()
    }
}

/// A process that has some of the sockets open that were looked for.
#[derive(Debug)]
pub struct SocketHolder {
    pub process: PeerProcess,
    pub ends: Vec<OtherEnd>,
}

/// Finds the processes that hold any of these sockets, in one pass. A socket that is on its way between processes has none.
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
    // Once more, now that it is identified: what is read from here on is about this process, if it is there afterwards.
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
    /// With their names; empty if they are another user's and not ours to see.
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

/// Finds who listens on this address, or on all addresses of its port.
pub fn listener(address: SocketAddr) -> Option<PortListener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let end = tables.iter().find_map(|table| listening_in(&std::fs::read_to_string(table).ok()?, address))?;
    let holders = if end.is_visible() { holders(&[end]) } else { Vec::new() };
    let named = |holder: SocketHolder| Some((holder.process.pid(), stat(holder.process.pid())?.name));
    Some(PortListener { uid: end.uid, processes: holders.into_iter().filter_map(named).collect() })
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

    #[test]
    fn a_cgroup_names_its_session() {
        let text = "1:cpu:/\n0::/user.slice/intercom-ses_abc-2/inner\n";
        assert_eq!(sessions_in_cgroups(text).collect::<Vec<_>>(), ["ses_abc"]);
        for other in ["0::/intercom.service", "0::/intercom-probe-7", "0::/ses_abc", ""] {
            assert_eq!(sessions_in_cgroups(other).next(), None, "{other}");
        }
    }

    #[test]
    fn our_ancestors_begin_with_ourselves() {
        let me = i32::try_from(std::process::id()).unwrap();
        let traces = traces(me).unwrap();
        assert_eq!(traces.ancestors[0], me);
        assert!(traces.ancestors.len() > 1 || std::os::unix::process::parent_id() == 1);
    }
}
