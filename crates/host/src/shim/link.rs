//! The shim's end of the control socket: at most one daemon at a time, the newest wins.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use bytes::BytesMut;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{ControlMessage, MsgFlags, getsockopt, sendmsg};

use crate::PeerProcess;
use crate::frame::ShimFrame;

/// The number of connections that one turn of the loop accepts.
const CONNECTIONS_PER_TURN: usize = 8;

pub(super) struct DaemonLink {
    listener: UnixListener,
    daemon: Option<DaemonPeer>,
}

struct DaemonPeer {
    stream: UnixStream,
    incoming: BytesMut,
    /// Bytes to send. Bounded: bells are coalesced, and there is at most one acknowledgement per message in flight.
    outgoing: Vec<u8>,
    bell: Option<u64>,
}

impl DaemonLink {
    /// Listens in the current directory, which only our user can enter.
    pub(super) fn listen(name: &str) -> io::Result<Self> {
        let listener = UnixListener::bind(name)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, daemon: None })
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Returns the connection, and whether data waits to be written to it.
    pub(super) fn connection(&self) -> Option<(BorrowedFd<'_>, bool)> {
        let daemon = self.daemon.as_ref()?;
        Some((daemon.stream.as_fd(), !daemon.outgoing.is_empty() || daemon.bell.is_some()))
    }

    /// Accepts new connections and sends a daemon's the hello with a second end of the agent's stdout. Other
    /// connections are closed, and the connected daemon stays: losing it would end the session.
    pub(super) fn accept_daemons(
        &mut self,
        hello: &ShimFrame,
        stdout: Option<BorrowedFd<'_>>,
        is_daemon: impl Fn(i32) -> bool,
    ) {
        // The rest is accepted in the next turn: a process that connects in a loop must not keep the shim from its
        // agent.
        for _ in 0..CONNECTIONS_PER_TURN {
            let Ok((stream, _)) = self.listener.accept() else { return };
            let is_ours = getsockopt(&stream, PeerCredentials)
                .is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw());
            // The peer is held while it is checked: its pid cannot mean another process until then.
            let peer = PeerProcess::of(&stream).filter(|_| is_ours);
            if !peer.is_some_and(|peer| is_daemon(peer.pid()) && !peer.has_exited()) {
                continue;
            }
            if stream.set_nonblocking(true).is_err() || greet(&stream, hello, stdout).is_err() {
                continue;
            }
            self.daemon =
                Some(DaemonPeer { stream, incoming: BytesMut::new(), outgoing: Vec::new(), bell: None });
        }
    }

    pub(super) fn send(&mut self, frame: &ShimFrame) {
        if let Some(daemon) = &mut self.daemon {
            match frame {
                ShimFrame::Bell(end) => daemon.bell = Some(*end),
                frame => daemon.outgoing.extend(frame.encode()),
            }
        }
    }

    /// Writes as much as the socket takes. A disconnected daemon is dropped.
    pub(super) fn flush(&mut self) {
        let Some(daemon) = &mut self.daemon else { return };
        // The bell goes last and alone: while older frames wait, later bells replace it.
        if let Some(end) = daemon.bell.take_if(|_| daemon.outgoing.is_empty()) {
            daemon.outgoing.extend(ShimFrame::Bell(end).encode());
        }
        while !daemon.outgoing.is_empty() {
            match daemon.stream.write(&daemon.outgoing) {
                Ok(written) if written > 0 => drop(daemon.outgoing.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.daemon = None;
                    return;
                }
            }
        }
    }

    /// Returns the daemon's frames. A daemon that hung up, or sent invalid frames, is dropped.
    pub(super) fn read(&mut self) -> Vec<ShimFrame> {
        let mut frames = Vec::new();
        let Some(daemon) = &mut self.daemon else { return frames };
        let mut chunk = [0; 4 * 1024];
        let hung_up = loop {
            match daemon.stream.read(&mut chunk) {
                Ok(0) => break true,
                Ok(read) => daemon.incoming.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error.kind() != io::ErrorKind::WouldBlock,
            }
        };
        let is_invalid = loop {
            match ShimFrame::take(&mut daemon.incoming) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        if hung_up || is_invalid {
            self.daemon = None;
        }
        frames
    }

    /// Sends the rest, waiting for at most a second per write: the exit frame.
    pub(super) fn flush_blocking(&mut self) {
        if let Some(daemon) = &self.daemon {
            daemon.stream.set_nonblocking(false).ok(); // then some of it may be lost; the exit record is on disk
            daemon.stream.set_write_timeout(Some(std::time::Duration::from_secs(1))).ok(); // as above
        }
        // Twice: the first call may end with the queued frames, and then a coalesced bell is still to be sent.
        self.flush();
        self.flush();
    }
}

fn greet(stream: &UnixStream, hello: &ShimFrame, stdout: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = hello.encode();
    let fds: Vec<i32> = stdout.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &rights[..0] } else { &rights[..] };
    let sent =
        sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&bytes)], rights, MsgFlags::MSG_NOSIGNAL, None)?;
    // A new socket has room for a few hundred bytes.
    if sent == bytes.len() { Ok(()) } else { Err(io::Error::other("the hello was truncated")) }
}
