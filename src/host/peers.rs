//! Whose process is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};

use super::environment::SESSION_VARIABLE;
use super::identity::{stat, variable, with_variable};
use super::observe::Observer;
use super::tree::descendants;

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

/// `None` if it cannot be told: the process, or one above it, has just gone.
pub fn traces(pid: i32) -> Option<Traces> {
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
    let marks = [variable(pid, SESSION_VARIABLE), cgroups].into_iter().flatten().collect();
    Some(Traces { ancestors, marks })
}

/// Who carries the mark of this session, wherever it has got to.
pub fn marked(session: &str) -> Vec<i32> {
    with_variable(SESSION_VARIABLE)
        .into_iter()
        .filter(|(_, mark)| mark == session)
        .map(|(pid, _)| pid)
        .collect()
}

/// The number of the socket at the other end of a TCP connection within this machine; `None` if it is closed.
pub fn socket_inode(from: SocketAddr, to: SocketAddr) -> Option<u64> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    tables
        .iter()
        .find_map(|table| inode_in(&std::fs::read_to_string(table).ok()?, from, to))
        .filter(|inode| *inode != 0)
}

/// A line is `sl local remote state … inode …`, with addresses as hexadecimal words in the machine's own order.
fn inode_in(table: &str, from: SocketAddr, to: SocketAddr) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, remote) = (address(fields.get(1)?)?, address(fields.get(2)?)?);
        (local == canonical(from) && remote == canonical(to)).then(|| fields.get(9)?.parse().ok()).flatten()
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

    /// Whether a process of this agent, of its tree or one of `others`, has it open.
    pub fn holds_socket(&self, inode: u64, others: &[i32]) -> bool {
        let wanted = format!("socket:[{inode}]");
        descendants(self.shim.pid).into_iter().chain(others.iter().copied()).any(|pid| {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            open.filter_map(|entry| std::fs::read_link(entry.path()).ok())
                .any(|target| target.as_os_str() == wanted.as_str())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_connection_is_found_in_the_systems_table() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inode = socket_inode(client.local_addr().unwrap(), listener.local_addr().unwrap()).unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&client)))
            .unwrap();
        assert_eq!(link.to_str().unwrap(), format!("socket:[{inode}]"));
        let stranger = "127.0.0.1:1".parse().unwrap();
        assert_eq!(socket_inode(stranger, listener.local_addr().unwrap()), None);
    }

    #[test]
    fn our_ancestors_begin_with_ourselves() {
        let me = i32::try_from(std::process::id()).unwrap();
        let traces = traces(me).unwrap();
        assert_eq!(traces.ancestors[0], me);
        assert!(traces.ancestors.len() > 1 || std::os::unix::process::parent_id() == 1);
    }
}
