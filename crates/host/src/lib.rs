//! Processes: how an agent is started, found again, talked to, watched and stopped. Everything above sees a
//! [`AgentProcess`]: two streams to receive from and a few things to ask of it. Whether it was just spawned, found alive after
//! a restart, or found dead with its last words on disk, it looks the same.
//!
//! ```text
//!        daemon                                          one per agent, outlives the daemon
//!   ┌── Process ──┐   stdin, trim, stop, kill            ┌──────┐
//!   │ output ◄────┼── journal on disk ◄──────────────────┤ shim ├──► agent
//!   │ news   ◄────┼── bell, sack, exit ◄── unix socket ──┤      │
//!   └─────────────┘                                      └──────┘
//! ```
//! The two streams are apart so that a session which does not read output for a while still hears everything else.

mod activity;
mod addresses;
mod cgroup;
mod client;
mod confined;
mod description;
mod environment;
mod files;
mod find;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod generation_dir;
mod identity;
mod journal;
mod leftovers;
mod netlink;
mod peer_process;
mod peers;
mod process_observer;
mod record;
mod running_shims;
pub mod shim;
pub mod socket;
mod spawn;
mod tcp;
mod traces;
mod tree;
mod user;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub use activity::{ChildProcess, ProcessActivity};
pub use addresses::is_own_address;
pub use cgroup::{CgroupBase, CgroupLimits};
pub use confined::{Confined, FileError};
pub use description::{ProcessDescription, agent_program, describe_process};
pub use environment::{PART_VARIABLE, SESSION_VARIABLE, agent_environment};
pub use files::raise_open_files;
use files::usual_open_files;
pub use find::LostProcess;
pub use generation_dir::{
    ClearedDirectory, GenerationDir, end_agents_without_directory, end_parts, list_generation_dirs,
    remove_generation, stray_processes,
};
pub use identity::ProcessIdentity;
pub use leftovers::is_running;
pub use peer_process::PeerProcess;
pub use peers::{OtherEnd, PortListener, SocketHolder, holders, listener, other_end};
pub use process_observer::{ObservedProcess, ProcessObserver};
pub use running_shims::{RunningShim, running_shims, shim_directory};
pub use spawn::{SpawnError, resolve_program};
pub use traces::{AgentTraces, traces};
pub use user::RunAs;

use frame::{ExitRecord, ShimFrame};
use intercom_types::Exit;

/// What to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// The session's id: how its processes are known.
    pub session: String,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// All of it: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    /// A cgroup to be made for it, where one can be.
    pub cgroup: Option<PathBuf>,
    pub limits: CgroupLimits,
    /// Whom it runs as, if not as we do.
    #[serde(default)]
    pub user: Option<RunAs>,
    /// What its session is, kept beside the process for a database that does not know it. In the form of whoever starts it.
    #[serde(default)]
    pub memo: Option<String>,
}

/// What is kept of a process on disk, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RuntimeDir {
    /// Of this generation of this session alone.
    pub dir: PathBuf,
    /// How much of stderr's end is kept.
    pub stderr_tail_bytes: usize,
    /// Output that is not in the log yet, beyond which the agent waits.
    pub journal_cap_bytes: u64,
    /// What sets it apart from the rest of its session, if it is only a part of that: its end is not theirs.
    #[serde(default)]
    pub part: Option<String>,
}

/// How to stop, gentlest first; each wait ends early when the process is gone.
#[derive(Debug, Clone)]
pub struct StopLadder {
    /// The protocol's own request to stop, framed.
    pub interrupt: Vec<u8>,
    pub after_interrupt: Duration,
    pub after_stdin_closed: Duration,
    pub after_sigterm: Duration,
}

/// What a process lets us know.
#[derive(Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// Wholly in the agent's pipe.
    Written { n: u64 },
    /// It will never be.
    Failed { n: u64, cause: String },
    /// The whole tree is gone. Output that is not read yet follows on the output stream until its end.
    Exited(ProcessExit),
}

/// How a process and its tree went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessExit {
    pub exit: Exit,
    pub reason: String,
    /// What was needed: any of `interrupt`, `close_stdin`, `sigterm`, `sigkill`, in order.
    pub steps: Vec<String>,
    /// How many processes had to be killed.
    pub killed: u32,
    pub stderr_tail: String,
    /// The last message that was wholly in its pipe.
    pub written: u64,
    /// Bytes that were rescued from the pipe of its output, if nobody listened to it for a while: more may be missing.
    pub rescued: Option<u64>,
}

/// stdout closed before, or at, the end of the process.
pub const STREAM_CLOSED: &str = "stream closed";
/// The process ended while something else kept its stdout open.
pub const EXITED: &str = "exited";
/// How long a shim may take beyond what it was given.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// The time for a shim to take what it was told, when we let go of it.
const LAST_FRAMES: Duration = Duration::from_millis(200);
/// Below the state directory: a directory for each session, with one for each of its generations.
pub const AGENTS_DIR: &str = "agents";
/// Nothing outlives a restart of the machine.
pub const REBOOTED: &str = "the machine was restarted";

/// An agent. Dropping it leaves the agent alone, and ends our tasks for it.
#[derive(Debug)]
pub struct AgentProcess {
    pub identity: ProcessIdentity,
    shim: ProcessIdentity,
    /// What its shim speaks.
    version: u32,
    pub output: mpsc::Receiver<Bytes>,
    pub events: mpsc::Receiver<ProcessEvent>,
    control: mpsc::UnboundedSender<ShimFrame>,
    runtime_dir: RuntimeDir,
    trim: TrimPace,
    /// What its shim wrote down at its end, if it was found dead.
    exit_record: Option<ExitRecord>,
    /// The last message that its shim has accepted, where that is known.
    accepted: Option<u64>,
    alive: bool,
    /// Tells the shim what was queued.
    writer: JoinSet<()>,
    /// The other tasks that look after it.
    tasks: JoinSet<()>,
}

/// The shim is told what is in the log now and then, not at every commit.
#[derive(Debug)]
struct TrimPace {
    reported: u64,
    every: u64,
}

impl AgentProcess {
    /// Queues one framed message for the agent's stdin and never waits. Sending one again is harmless: the shim knows
    /// which it has accepted. The caller bounds how many are under way.
    pub fn send(&self, n: u64, message: Vec<u8>) {
        self.send_frame(ShimFrame::Stdin(n, message));
    }

    /// Whether a message arrived, if that is known without asking: of a process that was found dead.
    pub fn arrived(&self, n: u64) -> Option<bool> {
        self.exit_record.as_ref().map(|left| n <= left.written)
    }

    /// The last message that its shim had accepted when it was found. Not known of one that an older daemon started.
    pub fn accepted(&self) -> Option<u64> {
        self.accepted.or(self.exit_record.as_ref().map(|left| left.written))
    }

    /// Everything up to this offset of the output is in the log.
    pub fn consumed(&mut self, offset: u64) {
        if offset >= self.trim.reported + self.trim.every {
            self.trim.reported = offset;
            self.send_frame(ShimFrame::Trim(offset));
        }
    }

    /// Whether it ran when it was spawned or found.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// Starts the ladder; the end of it is in the news.
    pub fn stop(&mut self, ladder: StopLadder) {
        let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let waits = frame::LadderWaits {
            after_interrupt_ms: millis(ladder.after_interrupt),
            after_stdin_closed_ms: millis(ladder.after_stdin_closed),
            after_sigterm_ms: millis(ladder.after_sigterm),
        };
        let most = ladder.after_interrupt + ladder.after_stdin_closed + ladder.after_sigterm;
        self.send_frame(ShimFrame::Stop(waits, ladder.interrupt));
        self.kill_after(most + KILL_GRACE);
    }

    /// Straight to the end of the ladder.
    pub fn kill(&mut self) {
        if ShimFrame::Kill.since() <= self.version {
            self.send_frame(ShimFrame::Kill);
        } else {
            self.send_frame(ShimFrame::Stop(frame::LadderWaits::NONE, Vec::new()));
        }
        self.kill_after(KILL_GRACE);
    }

    /// Kills it, and waits until the whole tree is gone.
    pub async fn end(mut self) {
        self.kill();
        while let Some(event) = self.events.recv().await {
            if matches!(event, ProcessEvent::Exited(_)) {
                return;
            }
        }
    }

    /// Lets go of the agent, which lives on. What its shim was told by now still reaches it.
    pub async fn leave(self) {
        let Self { control, tasks, mut writer, .. } = self;
        drop((control, tasks)); // the writer ends when nobody can tell it anything more
        // A shim that takes nothing is told again by the next daemon.
        tokio::time::timeout(LAST_FRAMES, writer.join_next()).await.ok();
    }

    /// A shim that does not do it, because its agent has stopped it or worse, is ended itself; what is left of the tree is
    /// then ended by us.
    fn kill_after(&mut self, patience: Duration) {
        let shim = self.shim.clone();
        shim.wake();
        self.tasks.spawn(async move {
            tokio::time::sleep(patience).await;
            shim.wake();
            tokio::time::sleep(KILL_GRACE).await;
            if shim.is_running() {
                tracing::error!(shim = shim.pid, "a shim does not end its agent; both are ended");
                shim.kill();
            }
        });
    }

    fn send_frame(&self, frame: ShimFrame) {
        self.control.send(frame).ok(); // the shim has gone: the exit is in the news
    }

    /// Its end is in the log: what it left on disk may go.
    pub fn remove_files(self) {
        remove(&self.runtime_dir.dir);
    }

    /// For those who want to look at it and do not own it.
    pub fn observer(&self) -> ProcessObserver {
        ProcessObserver { runtime_dir: self.runtime_dir.clone(), shim: self.shim.clone() }
    }
}

/// Where what is kept of a process's output begins.
pub fn output_start(runtime_dir: &RuntimeDir) -> u64 {
    journal::start(&runtime_dir.dir).unwrap_or(0)
}

/// Removes what a process left on disk, and the session's directory if it was the last.
pub fn remove(dir: &Path) {
    std::fs::remove_dir_all(dir).ok(); // it may be gone; the next start looks again
    if let Some(session) = dir.parent() {
        std::fs::remove_dir(session).ok(); // another generation may be there
    }
}
