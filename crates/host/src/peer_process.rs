//! The process that opened a connection on a unix socket.
//!
//! A pid alone is not enough: once its process has exited, the kernel reuses the number, and an agent could wait until
//! it means a person's process. The kernel remembers the process itself from the moment it connected; holding it (a
//! pidfd) makes the exit visible, and until then its pid means no other process.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};

use super::identity::stat;
use super::traces::{AgentTraces, traces};

/// The process at the other end of a connection, from the moment it connected.
#[derive(Debug)]
pub struct PeerProcess {
    pid: i32,
    hold: PeerHold,
}

#[derive(Debug)]
enum PeerHold {
    Pidfd(OwnedFd),
    /// The start time in clock ticks: no pid is reused within one tick. For TCP, and for Linux before 6.5, which has no
    /// pidfd of a peer: it is read when the connection is accepted.
    StartTime(u64),
}

impl PeerProcess {
    /// Identifies the process that called `connect`. `None` if the kernel does not name it or it was reaped.
    pub fn of(connection: &impl AsFd) -> Option<Self> {
        let pid = getsockopt(connection, PeerCredentials).ok()?.pid();
        // A process of an invisible pid namespace has the pid 0.
        if pid <= 0 {
            return None;
        }
        match getsockopt(connection, PeerPidfd) {
            Ok(pidfd) => Some(Self { pid, hold: PeerHold::Pidfd(pidfd) }),
            Err(Errno::ENOPROTOOPT) => Self::running(pid),
            Err(_) => None,
        }
    }

    /// Identifies the process that has this pid now.
    pub(super) fn running(pid: i32) -> Option<Self> {
        Some(Self { pid, hold: PeerHold::StartTime(stat(pid)?.started) })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn has_exited(&self) -> bool {
        match &self.hold {
            PeerHold::Pidfd(pidfd) => {
                let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
                // A pidfd becomes readable when no thread of the process runs any more. An interrupted poll is no proof
                // of life.
                poll(&mut fds, PollTimeout::ZERO) != Ok(0)
            }
            PeerHold::StartTime(started) => {
                stat(self.pid).is_none_or(|stat| stat.started != *started || stat.is_dead())
            }
        }
    }

    /// Returns the traces of an agent on exactly this process. `None` if it has exited or the traces cannot be read.
    pub fn traces(&self) -> Option<AgentTraces> {
        let found = traces(self.pid)?;
        // Checked last: a process that still runs had this pid all the time while its traces were read.
        (!self.has_exited()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A child that connects to `path`, says so, and stays until its stdin is closed.
    fn connected_child(path: &std::path::Path) -> Child {
        let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('up',flush=True); sys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        child
    }

    #[test]
    fn a_peer_is_the_process_that_connected_until_it_exits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let mut child = connected_child(&path);
        let (stream, _) = listener.accept().unwrap();
        let peer = PeerProcess::of(&stream).unwrap();
        let by_time = PeerProcess::running(peer.pid()).unwrap();
        assert_eq!(peer.pid(), i32::try_from(child.id()).unwrap());
        for peer in [&peer, &by_time] {
            assert!(!peer.has_exited() && peer.traces().is_some(), "{peer:?}");
        }
        child.kill().unwrap();
        // It is a zombie until it is waited for: its pid still has an entry, and it has exited all the same.
        while stat(peer.pid()).is_some_and(|stat| stat.state != 'Z') {
            std::thread::yield_now();
        }
        for peer in [&peer, &by_time] {
            assert!(peer.has_exited() && peer.traces().is_none(), "{peer:?}");
        }
        child.wait().unwrap();
        assert!(peer.has_exited() && by_time.has_exited());
    }

    #[test]
    fn a_peer_that_exited_before_it_was_accepted_is_not_taken_for_a_running_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let mut child = connected_child(&path);
        child.kill().unwrap();
        child.wait().unwrap();
        let (stream, _) = listener.accept().unwrap();
        assert!(PeerProcess::of(&stream).is_none_or(|peer| peer.has_exited()));
    }

    #[test]
    fn a_process_of_another_start_time_is_another_process() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let me = PeerProcess::of(&ours).unwrap();
        assert!(!me.has_exited());
        let started = stat(me.pid()).unwrap().started;
        let other = PeerProcess { pid: me.pid(), hold: PeerHold::StartTime(started + 1) };
        assert!(other.has_exited() && other.traces().is_none());
    }
}
