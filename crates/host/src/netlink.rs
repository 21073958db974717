//! Netlink requests to the kernel that have one answer (`man 7 netlink`).

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, sockopt};
use nix::sys::time::TimeVal;

/// Constants of `linux/netlink.h`.
pub(super) const HEADER: usize = 16;
pub(super) const ERROR: u16 = 2;
pub(super) const REQUEST: u16 = 1;
/// The receive timeout: the kernel answers immediately or not at all.
const PATIENCE_MICROS: i64 = 200_000;
/// The limit of an answer: one route or one socket with all its attributes is far shorter.
const MAX_ANSWER_BYTES: usize = 8 << 10;

pub(super) fn open(protocol: SockProtocol) -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(AddressFamily::Netlink, SockType::Raw, flags, protocol).ok()?;
    socket::setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, PATIENCE_MICROS)).ok()?;
    Some(socket)
}

/// Encodes a message of this type with this body.
pub(super) fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut request = length.to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    request
}

/// Encodes an attribute whose value needs no padding.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
}

/// Sends one request and receives its answer. `None` if there is no answer, or it exceeds the limit.
pub(super) fn ask(protocol: SockProtocol, request: &[u8]) -> Option<Vec<u8>> {
    let socket = open(protocol)?;
    socket::send(socket.as_raw_fd(), request, MsgFlags::empty()).ok()?;
    let mut answer = vec![0; MAX_ANSWER_BYTES];
    // With this flag the returned length is that of the whole message, even if it was truncated.
    let length = socket::recv(socket.as_raw_fd(), &mut answer, MsgFlags::MSG_TRUNC).ok()?;
    answer.get(..length)?;
    answer.truncate(length);
    Some(answer)
}

/// Decodes the type and the body of the first message.
pub(super) fn message(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(*bytes.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    Some((kind, bytes.get(HEADER..length)?))
}
