//! Finding an agent again after a restart: alive behind its shim, or dead with its last words on disk.

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

/// A shim answers at once, unless the machine is very busy.
const GREETING: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(50);

/// Why there is nothing to be found. Unless it is another daemon's, whatever was there has been ended.
#[derive(Debug, thiserror::Error)]
pub enum LostProcess {
    #[error("it never came to run")]
    NeverRan,
    #[error("its shim speaks version {0} of the protocol, which this intercom does not")]
    Version(u32),
    #[error("its shim does not answer: {0}")]
    Silent(io::Error),
    /// It has not been ended: it is another daemon's.
    #[error("its shim takes another process for its daemon")]
    Refused,
    /// Neither has this.
    #[error("its directory is a copy, and its agent another daemon's")]
    Elsewhere,
}

impl AgentProcess {
    /// Finds the process that lives, or lived, there. `consumed` is the length of its output that is in the
    /// log.
    pub async fn find(session: &str, runtime_dir: &RuntimeDir, consumed: u64) -> Result<Self, LostProcess> {
        let known = read_meta(&runtime_dir.dir);
        let never = known.is_none() && !runtime_dir.dir.join(SOCKET).exists();
        // A shim that is there says itself who it is.
        let meta = known.unwrap_or_else(|| ShimMeta::unknown(session, runtime_dir));
        let client = ShimClient {
            runtime_dir: runtime_dir.clone(),
            meta,
            consumed,
            stdout: None,
            child: None,
            accepted: None,
        };
        if never {
            // Without even a directory it was not started from here: a copy of the database may be served elsewhere.
            if runtime_dir.dir.exists() {
                client.end_all().await;
                // A shim that is only about to start finds no place to put its socket, and does not.
                super::remove(&runtime_dir.dir);
            }
            return Err(LostProcess::NeverRan);
        }
        client.reach().await
    }
}

impl ShimClient {
    /// Begins to look after an agent that was started, whatever has become of it since. If it cannot be talked to, it is
    /// ended: a session never ends without its tree.
    pub(super) async fn reach(self) -> Result<AgentProcess, LostProcess> {
        let deadline = tokio::time::Instant::now() + GREETING;
        loop {
            let error = match crate::socket::connect(&self.runtime_dir.dir.join(SOCKET)).await {
                Ok(stream) => match greeting(&stream).await {
                    // It hangs up on those who hold no lock of its state directory, and on a machine that is busy with
                    // starting and stopping daemons that may be over in a moment.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => error,
                    greeting => return self.greeted(stream, greeting).await,
                },
                Err(error) => error,
            };
            // Nobody listens: the shim has gone, with or without a word.
            if !self.meta.shim.is_running() || read_exit(&self.runtime_dir.dir).is_some() {
                let left = read_exit(&self.runtime_dir.dir);
                return Ok(self.attach_ended(left));
            }
            if tokio::time::Instant::now() > deadline {
                let is_refused = error.kind() == io::ErrorKind::UnexpectedEof;
                // A shim that we have just started is ours, whatever it takes us for.
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
            // It went between our call and its answer.
            Err(_) if read_exit(&self.runtime_dir.dir).is_some() || !self.meta.shim.is_running() => {
                let left = read_exit(&self.runtime_dir.dir);
                return Ok(self.attach_ended(left));
            }
            Ok(ShimGreeting { hello, .. }) => LostProcess::Version(hello.version),
            Err(error) => LostProcess::Silent(error),
        };
        self.end_all().await;
        Err(lost)
    }

    /// Shim, agent and everything below it.
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

/// The first words of a shim.
struct ShimGreeting {
    hello: ShimHello,
    /// A second end of the agent's stdout.
    stdout: Option<OwnedFd>,
    /// The beginning of what comes after it.
    rest: BytesMut,
}

async fn greeting(stream: &UnixStream) -> io::Result<ShimGreeting> {
    let mut rest = BytesMut::new();
    let greeting = tokio::time::timeout(GREETING, hello(stream, &mut rest)).await;
    let (hello, stdout) = greeting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    Ok(ShimGreeting { hello, stdout, rest })
}

/// The first frame, with the descriptor that comes along.
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
            // SAFETY: the kernel has just made these descriptors for us, and nobody else knows of them.
            fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok((message.bytes, fds.into_iter().next()))
}
