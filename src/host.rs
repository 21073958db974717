//! Processes: how an agent is started, talked to, watched and stopped. Everything above sees a [`Process`]: two
//! streams to receive from and three things to ask of it.
//!
//! ```text
//!              ┌────────── Process ──────────┐
//!   output ◄───┤ reader   bytes of stdout    │
//!   news   ◄───┤ keeper   written, exited    │◄── send, stop, kill
//!              └─────────────────────────────┘
//! ```
//! The two streams are apart so that a session which does not read output for a while still hears everything else.

mod environment;
mod identity;
mod keeper;
mod pipes;
mod spawn;
mod tail;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

pub use environment::agent_environment;
pub use identity::Identity;
pub use spawn::{SpawnError, resolve_program};

use crate::domain::Exit;
use tail::Tail;

/// What to start.
#[derive(Debug, Clone)]
pub struct Spec {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// All of it: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    /// How much of stderr's end is kept.
    pub stderr_tail_bytes: usize,
}

/// How to stop, gentlest first; each wait ends early when the process is gone.
#[derive(Debug, Clone)]
pub struct Ladder {
    /// The protocol's own request to stop, framed.
    pub interrupt: Vec<u8>,
    pub after_interrupt: Duration,
    pub after_stdin_closed: Duration,
    pub after_sigterm: Duration,
}

/// What a process lets us know.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// Wholly in the agent's pipe.
    Written { n: u64 },
    /// It will never be.
    Failed { n: u64, cause: String },
    /// The process and its group are gone. Output that was still in the pipe follows on the output stream until its end.
    Exited(Departure),
}

/// How a process and its group went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    pub exit: Exit,
    pub reason: &'static str,
    /// What was needed: any of `interrupt`, `close_stdin`, `sigterm`, `sigkill`, in order.
    pub steps: Vec<&'static str>,
    /// How many processes had to be killed.
    pub killed: u32,
    pub stderr_tail: String,
}

/// stdout closed before, or at, the end of the process.
pub const STREAM_CLOSED: &str = "stream closed";
/// The process ended while something else kept its stdout open.
pub const EXITED: &str = "exited";

/// A live agent.
#[derive(Debug)]
pub struct Process {
    pub identity: Identity,
    pub output: mpsc::Receiver<Bytes>,
    pub news: mpsc::Receiver<News>,
    control: mpsc::UnboundedSender<keeper::Control>,
    input: mpsc::UnboundedSender<(u64, Vec<u8>)>,
    stderr: Arc<Tail>,
}

impl Process {
    /// Queues one framed message for the agent's stdin and never waits. The caller bounds how many are under way.
    pub fn send(&self, n: u64, message: Vec<u8>) {
        self.input.send((n, message)).ok(); // the writer has gone: the exit is in the news
    }

    /// Starts the ladder; the end of it is in the news.
    pub fn stop(&self, ladder: Ladder) {
        self.control.send(keeper::Control::Stop(ladder)).ok(); // gone already: so is in the news
    }

    /// Straight to the end of the ladder.
    pub fn kill(&self) {
        self.control.send(keeper::Control::Kill).ok(); // as above
    }

    /// A look at the end of what it wrote to stderr, for those who do not own the process.
    pub fn stderr(&self) -> StderrTail {
        StderrTail(Arc::clone(&self.stderr))
    }
}

/// The end of an agent's stderr, as of now.
#[derive(Debug, Clone)]
pub struct StderrTail(Arc<Tail>);

impl StderrTail {
    pub fn text(&self) -> String {
        self.0.text()
    }
}
