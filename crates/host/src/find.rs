//! The recovery of an agent after a restart: alive behind its shim, or dead with its last output on disk.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use bytes::BytesMut;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::client::{ShimClient, read_exit};
use super::frame::{OLDEST, ShimFrame, ShimHello, VERSION};
use super::record::{SOCKET, ShimMeta, read_meta};
use super::running_shims::belongs_to_other_daemon;
use super::{AgentProcess, RuntimeDir, leftovers};

/// The time limit for a shim's hello. A shim answers immediately, unless the machine is very busy.
const GREETING: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(50);

/// The reason why no process was found. Unless it belongs to another daemon, all that was left of it has been ended.
#[derive(Debug, thiserror::Error)]
pub enum LostProcess {
    #[error("it was never started")]
    NeverRan,
    #[error("its shim speaks version {0} of the protocol, which this intercom does not support")]
    Version(u32),
    #[error("its shim does not answer: {0}")]
    Silent(io::Error),
    /// The process belongs to another daemon and has not been ended.
    #[error("its shim accepts only another daemon")]
    Refused,
    /// Like `Refused`, this process has not been ended.
    #[error("its directory is a copy, and its agent belongs to another daemon")]
    Elsewhere,
}

impl AgentProcess {
    /// Finds the process of this directory, alive or dead. `consumed` is the length of its output that is in the log.
    pub async fn find(session: &str, runtime_dir: &RuntimeDir, consumed: u64) -> Result<Self, LostProcess> {
        let recorded = read_meta(&runtime_dir.dir);
        let was_never_started = recorded.is_none() && !runtime_dir.dir.join(SOCKET).exists();
        // A live shim identifies itself in its hello, so a missing record is no reason to give up.
        let meta = recorded.unwrap_or_else(|| ShimMeta::unknown(session, runtime_dir));
        let client = ShimClient {
            runtime_dir: runtime_dir.clone(),
            meta,
            consumed,
            stdout: None,
            child: None,
            accepted: None,
        };
        if was_never_started {
            // Without a directory it was not started from this state directory: a copy of the database may be in use
            // elsewhere, and its agent is not ours to end.
            if runtime_dir.dir.exists() {
                client.end_all().await;
                // A shim that is just starting cannot create its socket without the directory, and exits.
                super::remove(&runtime_dir.dir);
            }
            return Err(LostProcess::NeverRan);
        }
        client.reach().await
    }
}

impl ShimClient {
    /// Connects to the shim of an agent that was started, or reports its end. If the shim cannot be reached, the agent
    /// is ended: a session never ends without its tree.
    pub(super) async fn reach(self) -> Result<AgentProcess, LostProcess> {
        let deadline = tokio::time::Instant::now() + GREETING;
        loop {
            let error = match crate::socket::connect(&self.runtime_dir.dir.join(SOCKET)).await {
                Ok(stream) => match greeting(&stream).await {
                    // The shim hangs up on processes that do not hold the lock of its state directory. While daemons
                    // start and stop on a busy machine, that can be a temporary state, so retry until the deadline.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => error,
                    greeting => return self.greeted(stream, greeting).await,
                },
                Err(error) => error,
            };
            // Nobody listens: the shim has exited, with or without an exit record.
            if !self.meta.shim.is_running() || read_exit(&self.runtime_dir.dir).is_some() {
                let record = read_exit(&self.runtime_dir.dir);
                return Ok(self.attach_ended(record));
            }
            if tokio::time::Instant::now() > deadline {
                let is_refused = error.kind() == io::ErrorKind::UnexpectedEof;
                // A shim that we have just started is ours, even if it does not recognise us.
                if is_refused && self.child.is_none() {
                    return Err(LostProcess::Refused);
                }
                if self.child.is_none() && belongs_to_other_daemon(&self.meta, &self.runtime_dir.dir) {
                    return Err(LostProcess::Elsewhere);
                }
                self.end_all().await;
                return Err(LostProcess::Silent(error));
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn greeted(
        mut self,
        stream: UnixStream,
        greeting: io::Result<ShimGreeting>,
    ) -> Result<AgentProcess, LostProcess> {
        let lost = match greeting {
            Ok(ShimGreeting { hello, stdout, rest }) if (OLDEST..=VERSION).contains(&hello.version) => {
                self.meta.version = hello.version;
                self.meta.agent = hello.agent;
                self.meta.shim = hello.shim;
                (self.stdout, self.accepted) = (stdout, hello.accepted);
                return Ok(self.attach(stream, rest, hello.journal_end));
            }
            // The shim exited between our connect and its hello.
            Err(_) if read_exit(&self.runtime_dir.dir).is_some() || !self.meta.shim.is_running() => {
                let record = read_exit(&self.runtime_dir.dir);
                return Ok(self.attach_ended(record));
            }
            Ok(ShimGreeting { hello, .. }) => LostProcess::Version(hello.version),
            Err(error) => LostProcess::Silent(error),
        };
        self.end_all().await;
        Err(lost)
    }

    /// Ends the shim, the agent and everything below it, unless they belong to another daemon.
    pub(super) async fn end_all(&self) {
        let (meta, dir) = (self.meta.clone(), self.runtime_dir.dir.clone());
        let ended = tokio::task::spawn_blocking(move || {
            if !belongs_to_other_daemon(&meta, &dir) {
                meta.shim.kill();
                leftovers::end(&meta, &dir);
            }
        });
        ended.await.ok(); // it does not panic
    }
}

/// The first message of a shim.
struct ShimGreeting {
    hello: ShimHello,
    /// A second end of the agent's stdout.
    stdout: Option<OwnedFd>,
    /// The bytes received after the hello.
    rest: BytesMut,
}

async fn greeting(stream: &UnixStream) -> io::Result<ShimGreeting> {
    let mut rest = BytesMut::new();
    let greeting = tokio::time::timeout(GREETING, hello(stream, &mut rest)).await;
    let (hello, stdout) = greeting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    Ok(ShimGreeting { hello, stdout, rest })
}

/// Receives the first frame and the descriptor that comes with it.
async fn hello(stream: &UnixStream, buf: &mut BytesMut) -> io::Result<(ShimHello, Option<OwnedFd>)> {
    let mut stdout = None;
    loop {
        stream.readable().await?;
        let mut chunk = [0; 4096];
        let received = stream.try_io(Interest::READABLE, || receive(stream, &mut chunk));
        match received {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((read, fd)) => {
                buf.extend_from_slice(&chunk[..read]);
                stdout = fd.or(stdout);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        match ShimFrame::take(buf) {
            Ok(Some(ShimFrame::Hello(hello))) => return Ok((hello, stdout)),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[expect(unsafe_code, reason = "a descriptor received over a socket is a plain number until it is owned")]
fn receive(stream: &UnixStream, chunk: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = nix::cmsg_space!([i32; 1]);
    let mut slices = [IoSliceMut::new(chunk)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just created these descriptors for us, and nothing else owns them.
            fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok((message.bytes, fds.into_iter().next()))
}
