//! The TCP connections of this machine, from the kernel (`man 7 sock_diag`): the bytes of each connection, and the
//! owner of the other end of one.
//!
//! The kernel walks all connections to report their bytes, so callers within a moment share one answer.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{self, AddressFamily, MsgFlags, SockProtocol};

use super::netlink::{self, HEADER};

/// The time for which an answer is used: this long, or as long as keeps the cost of queries at one percent.
const FRESH: Duration = Duration::from_secs(1);
const COST: u32 = 100;
/// The limit of a dump, about 40,000 connections; above it there is no answer.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// The maximum size of one piece of a dump, set by the kernel.
const MAX_PIECE_BYTES: usize = 32 << 10;

/// Constants of `linux/netlink.h`, `linux/sock_diag.h` and `linux/inet_diag.h`.
const DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_DUMP: u16 = 0x301;
const DIAG_INFO: u16 = 2;
const DIAG_MESSAGE: usize = 72;
const REMOTE_PORT: usize = 6;
const UID: usize = 64;
const INODE: usize = 68;
const ANY_COOKIE: [u8; 8] = [0xff; 8];
/// Offsets in `tcp_info` of `linux/tcp.h`, which only ever grows at its end, and the state of a connection.
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const ESTABLISHED: u8 = 1;
/// Established, FIN-WAIT-1 and -2, and CLOSE-WAIT: the states in which a process may still hold a socket that has
/// carried bytes.
const STATES: u32 = 1 << ESTABLISHED | 1 << 4 | 1 << 5 | 1 << 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TcpConnection {
    pub(super) established: bool,
    /// Bytes received, and sent and acknowledged; `None` if the kernel is too old to count.
    pub(super) bytes: Option<u64>,
}

/// Connections by the inode of their socket.
pub(super) type Connections = HashMap<u64, TcpConnection>;

struct NetlinkAnswer {
    until: Instant,
    connections: Option<Arc<Connections>>,
}

/// The last answer; locked while the kernel is queried, so that only one caller queries it.
static LAST: Mutex<Option<NetlinkAnswer>> = Mutex::new(None);

/// Returns all connections of our network namespace, at most [`FRESH`] old; `None` if the kernel does not answer.
pub(super) fn connections() -> Option<Arc<Connections>> {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let begin = Instant::now();
    if let Some(answer) = last.as_ref().filter(|answer| begin < answer.until) {
        return answer.connections.clone();
    }
    let connections = dump().map(Arc::new);
    let until = begin + FRESH.max(begin.elapsed() * COST);
    last.insert(NetlinkAnswer { until, connections }).connections.clone()
}

fn dump() -> Option<Connections> {
    let socket = netlink::open(SockProtocol::NetlinkSockDiag)?;
    let mut found = Connections::new();
    let mut piece = vec![0; MAX_PIECE_BYTES];
    let mut left = MAX_ANSWER_BYTES;
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        socket::send(socket.as_raw_fd(), &request(family), MsgFlags::empty()).ok()?;
        let mut done = false;
        while !done {
            // With this flag the returned length is that of the whole piece, even if it was truncated.
            let length = socket::recv(socket.as_raw_fd(), &mut piece, MsgFlags::MSG_TRUNC).ok()?;
            left = left.checked_sub(length.max(HEADER))?;
            done = parse(piece.get(..length)?, &mut found)?;
        }
    }
    Some(found)
}

/// Encodes a netlink header and an `inet_diag_req_v2` that requests the `tcp_info` of all sockets.
fn request(family: AddressFamily) -> Vec<u8> {
    let mut body = [0; 56];
    body[0] = family as u8;
    body[1] = SockProtocol::Tcp as u8;
    body[2] = 1 << (DIAG_INFO - 1);
    body[4..8].copy_from_slice(&STATES.to_ne_bytes());
    netlink::request(SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, &body)
}

/// Returns the inode and the user of the socket that is bound to `from` and connected to `to`. The kernel finds it
/// without walking the others. `None` if it does not find it, which includes sockets that are bound to an interface.
pub(super) fn socket_between(from: SocketAddr, to: SocketAddr) -> Option<(u64, u32)> {
    let answer = netlink::ask(SockProtocol::NetlinkSockDiag, &request_one(from, to))?;
    let (kind, body) = netlink::message(&answer)?;
    // Without such a connection the kernel answers with the socket that listens there.
    let found =
        kind == SOCK_DIAG_BY_FAMILY && body.get(REMOTE_PORT..)?.first_chunk()? == &to.port().to_be_bytes();
    found.then_some((u64::from(u32_at(body, INODE)?), u32_at(body, UID)?)).filter(|(inode, _)| *inode != 0)
}

/// Encodes a netlink header and an `inet_diag_req_v2` for one connection: ports and addresses in network order, from
/// the point of view of the wanted socket.
fn request_one(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let scope = match from {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let (from, from_port) = (from.ip().to_canonical(), from.port());
    let (to, to_port) = (to.ip().to_canonical(), to.port());
    let mut body = [0; 56];
    body[0] = if from.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 } as u8;
    body[1] = SockProtocol::Tcp as u8;
    body[8..10].copy_from_slice(&from_port.to_be_bytes());
    body[10..12].copy_from_slice(&to_port.to_be_bytes());
    for (place, ip) in [(12, from), (28, to)] {
        match ip {
            IpAddr::V4(v4) => body[place..place + 4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => body[place..place + 16].copy_from_slice(&v6.octets()),
        }
    }
    body[44..48].copy_from_slice(&scope.to_ne_bytes());
    body[48..56].copy_from_slice(&ANY_COOKIE);
    netlink::request(SOCK_DIAG_BY_FAMILY, netlink::REQUEST, &body)
}

/// Parses one piece of an answer. Returns whether it was the last; `None` if it is an error or invalid.
fn parse(mut bytes: &[u8], found: &mut Connections) -> Option<bool> {
    while !bytes.is_empty() {
        let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let body = bytes.get(HEADER..length)?;
        match u16_at(bytes, 4)? {
            // The last message carries the error that ended the dump, if any.
            DONE => return (u32_at(body, 0)? == 0).then_some(true),
            SOCK_DIAG_BY_FAMILY => {
                let inode = u64::from(u32_at(body, INODE)?);
                let established = *body.get(1)? == ESTABLISHED;
                let bytes = body.get(DIAG_MESSAGE..).and_then(info).and_then(carried);
                found.insert(inode, TcpConnection { established, bytes });
            }
            _ => return None,
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(false)
}

/// The `tcp_info` among the attributes of a socket.
fn info(mut attributes: &[u8]) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(attributes, 0)?);
        let value = attributes.get(4..length)?;
        if u16_at(attributes, 2)? == DIAG_INFO {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn carried(info: &[u8]) -> Option<u64> {
    Some(u64_at(info, BYTES_ACKED)?.saturating_add(u64_at(info, BYTES_RECEIVED)?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with a header, as the kernel would send it.
    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes
    }

    /// One socket's body, with as much of `tcp_info` as `info` says.
    fn socket(inode: u32, state: u8, info: usize) -> Vec<u8> {
        let mut body = vec![0; DIAG_MESSAGE];
        body[1] = state;
        body[INODE..].copy_from_slice(&inode.to_ne_bytes());
        let length = u16::try_from(4 + info).unwrap();
        // Another attribute comes first: one byte, padded.
        for half in [5, 8, 0, 0, length, DIAG_INFO] {
            body.extend(half.to_ne_bytes());
        }
        let mut value = [0; 200];
        value[BYTES_ACKED] = 3;
        value[BYTES_RECEIVED] = 4;
        body.extend(&value[..info]);
        body
    }

    #[test]
    fn an_answer_is_read_until_its_end() {
        let mut found = Connections::new();
        let mut piece = message(SOCK_DIAG_BY_FAMILY, &socket(7, ESTABLISHED, 200));
        piece.extend(message(SOCK_DIAG_BY_FAMILY, &socket(8, 4, BYTES_RECEIVED)));
        assert_eq!(parse(&piece, &mut found), Some(false));
        assert_eq!(found[&7], TcpConnection { established: true, bytes: Some(7) });
        assert_eq!(found[&8], TcpConnection { established: false, bytes: None });
        assert_eq!(parse(&message(DONE, &[0; 4]), &mut found), Some(true));
    }

    #[test]
    fn an_error_or_a_cut_message_is_no_answer() {
        let mut found = Connections::new();
        assert_eq!(parse(&message(2, &(-2_i32).to_ne_bytes()), &mut found), None);
        assert_eq!(parse(&message(DONE, &(-2_i32).to_ne_bytes()), &mut found), None);
        assert_eq!(parse(&message(DONE, &[]), &mut found), None);
        let whole = message(SOCK_DIAG_BY_FAMILY, &socket(7, ESTABLISHED, 200));
        for end in 1..whole.len() {
            assert_eq!(parse(&whole[..end], &mut found), None);
        }
        assert_eq!(parse(&[0; 64], &mut found), None, "a length of nothing does not go on for ever");
        assert!(found.is_empty());
    }

    #[test]
    fn a_connection_is_found_by_its_two_ends_and_a_listener_is_none() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
            let to = listener.local_addr().unwrap();
            let client = std::net::TcpStream::connect(to).unwrap();
            let from = client.local_addr().unwrap();
            let own = |fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
            let (inode, uid) = socket_between(from, to).unwrap();
            assert_eq!(own(client.as_raw_fd()).as_os_str(), format!("socket:[{inode}]").as_str());
            assert_eq!(uid, nix::unistd::geteuid().as_raw());
            assert_eq!(
                socket_between(to, from).map(|(other, _)| other == inode),
                None,
                "not yet accepted: no inode"
            );
            let stranger = SocketAddr::new(from.ip(), 1);
            assert_eq!(socket_between(to, stranger), None, "only its listener is there");
            drop((listener, client));
            assert_eq!(socket_between(from, to), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400),
            length in 0..500_u32,
        ) {
            parse(&bytes, &mut Connections::new());
            let attributes = bytes.len().min(2);
            info(&bytes[attributes..]);
            if bytes.len() >= HEADER {
                bytes[..4].copy_from_slice(&length.to_ne_bytes());
                bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
                parse(&bytes, &mut Connections::new());
            }
        }
    }
}
