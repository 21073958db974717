//! Agent processes: starting, finding, messaging, watching and stopping them. The layers above see an [`AgentProcess`]:
//! two streams to receive from and a few methods. It behaves the same whether it was just spawned, found alive after a
//! restart, or found dead with its last output on disk.
//!
//! ```text
//!        daemon                                          one per agent, outlives the daemon
//!   ┌── Process ──┐   stdin, trim, stop, kill            ┌──────┐
//!   │ output ◄────┼── journal on disk ◄──────────────────┤ shim ├──► agent
//!   │ events ◄────┼── bell, ack, exit ◄─── unix socket ──┤      │
//!   └─────────────┘                                      └──────┘
//! ```
//! The two streams are separate so that a session that pauses reading output still receives all events. [`shim`] and
//! `client` describe the tasks and queues in between.

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
use files::original_open_files;
pub use files::raise_open_files;
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

/// The specification of a process to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// The session's id, which marks its processes.
    pub session: String,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The complete environment: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    /// The cgroup to create for it, if the system allows it.
    pub cgroup: Option<PathBuf>,
    pub limits: CgroupLimits,
    /// The user that it runs as, if not the daemon's.
    #[serde(default)]
    pub user: Option<RunAs>,
    /// The description of its session in its creator's format, recorded beside the process for a database that does not
    /// know the session.
    #[serde(default)]
    pub memo: Option<String>,
}

/// The directory of a process, and the limits of the files in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RuntimeDir {
    /// The directory of this generation of this session alone.
    pub dir: PathBuf,
    /// The size of the tail of stderr that is kept.
    pub stderr_tail_bytes: usize,
    /// The limit of output that is not in the log yet, from which the agent has to wait.
    pub journal_cap_bytes: u64,
    /// The name of the part of the session, if the process is only a part, such as a terminal: its end is not the
    /// session's.
    #[serde(default)]
    pub part: Option<String>,
}

/// The steps that stop a process, gentlest first; each wait ends early when the process has exited.
#[derive(Debug, Clone)]
pub struct StopLadder {
    /// The protocol's own request to stop, framed.
    pub interrupt: Vec<u8>,
    pub after_interrupt: Duration,
    pub after_stdin_closed: Duration,
    pub after_sigterm: Duration,
}

/// An event of a process.
#[derive(Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The message is completely in the agent's pipe.
    Written { n: u64 },
    /// The message will never reach the agent.
    Failed { n: u64, cause: String },
    /// The whole tree has ended. Unread output follows on the output stream until its end.
    Exited(ProcessExit),
}

/// The end of a process and its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessExit {
    pub exit: Exit,
    pub reason: String,
    /// The steps that were needed: any of `interrupt`, `close_stdin`, `sigterm`, `sigkill`, in order.
    pub steps: Vec<String>,
    /// The number of processes that had to be killed.
    pub killed: u32,
    pub stderr_tail: String,
    /// The last message that was completely in its pipe.
    pub written: u64,
    /// The number of bytes rescued from its stdout pipe, if nobody read that for a while: more may be missing.
    pub rescued: Option<u64>,
}

/// stdout closed before, or at, the end of the process.
pub const STREAM_CLOSED: &str = "stream closed";
/// The process ended while something else kept its stdout open.
pub(crate) const EXITED: &str = "exited";
/// The extra time that a shim may take after the ladder's own waits.
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
    /// The protocol version of its shim.
    version: u32,
    pub output: mpsc::Receiver<Bytes>,
    pub events: mpsc::Receiver<ProcessEvent>,
    control: mpsc::UnboundedSender<ShimFrame>,
    runtime_dir: RuntimeDir,
    trim: TrimPace,
    /// The exit record of its shim, if the process was found dead.
    exit_record: Option<ExitRecord>,
    /// The last message that its shim has accepted, if known.
    accepted: Option<u64>,
    alive: bool,
    /// Tells the shim what was queued.
    writer: JoinSet<()>,
    /// The other tasks that look after it.
    tasks: JoinSet<()>,
}

/// The pace of trim frames: the shim learns the log's position now and then, not at every commit.
#[derive(Debug)]
struct TrimPace {
    sent: u64,
    every: u64,
}

impl AgentProcess {
    /// Queues one framed message for the agent's stdin and never waits. A repeated message is harmless: the shim knows
    /// which messages it has accepted. The caller bounds the number of messages in flight.
    pub fn send(&self, n: u64, message: Vec<u8>) {
        self.send_frame(ShimFrame::Stdin(n, message));
    }

    /// Reports whether a message arrived, if the process was found dead; otherwise events tell.
    pub fn arrived(&self, n: u64) -> Option<bool> {
        self.exit_record.as_ref().map(|record| n <= record.written)
    }

    /// Returns the last message that its shim had accepted when it was found; unknown for shims of older daemons.
    pub fn accepted(&self) -> Option<u64> {
        self.accepted.or(self.exit_record.as_ref().map(|record| record.written))
    }

    /// Marks the output up to this offset as being in the log.
    pub fn consumed(&mut self, offset: u64) {
        if offset >= self.trim.sent + self.trim.every {
            self.trim.sent = offset;
            self.send_frame(ShimFrame::Trim(offset));
        }
    }

    /// Reports whether the process ran when it was spawned or found.
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// Starts the stop ladder; its result is [`ProcessEvent::Exited`].
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

    /// Kills the process and its tree, without the gentle steps.
    pub fn kill(&mut self) {
        if ShimFrame::Kill.since() <= self.version {
            self.send_frame(ShimFrame::Kill);
        } else {
            self.send_frame(ShimFrame::Stop(frame::LadderWaits::NONE, Vec::new()));
        }
        self.kill_after(KILL_GRACE);
    }

    /// Kills the process, and waits until the whole tree is gone.
    pub async fn end(mut self) {
        self.kill();
        while let Some(event) = self.events.recv().await {
            if matches!(event, ProcessEvent::Exited(_)) {
                return;
            }
        }
    }

    /// Leaves the agent running. Frames in the queue still reach its shim.
    pub async fn leave(self) {
        let Self { control, tasks, mut writer, .. } = self;
        drop((control, tasks)); // the writer ends when nobody can queue anything more
        // A shim that reads nothing gets them from the next daemon.
        tokio::time::timeout(LAST_FRAMES, writer.join_next()).await.ok();
    }

    /// Kills the shim itself if it does not end its agent in time, for example because the agent has stopped it.
    /// `listen` of the client then ends what is left of the tree.
    fn kill_after(&mut self, patience: Duration) {
        let shim = self.shim.clone();
        shim.wake();
        self.tasks.spawn(async move {
            tokio::time::sleep(patience).await;
            shim.wake();
            tokio::time::sleep(KILL_GRACE).await;
            if shim.is_running() {
                tracing::error!(shim = shim.pid, "a shim does not end its agent; both are killed");
                shim.kill();
            }
        });
    }

    fn send_frame(&self, frame: ShimFrame) {
        self.control.send(frame).ok(); // the shim has exited: the event stream says so
    }

    /// Removes the files of a process whose end is in the log.
    pub fn remove_files(self) {
        remove(&self.runtime_dir.dir);
    }

    /// Returns a view of the process for callers that do not own it.
    pub fn observer(&self) -> ProcessObserver {
        ProcessObserver { runtime_dir: self.runtime_dir.clone(), shim: self.shim.clone() }
    }
}

/// Returns the offset of the first output byte that is still on disk.
pub fn output_start(runtime_dir: &RuntimeDir) -> u64 {
    journal::start(&runtime_dir.dir).unwrap_or(0)
}

/// Removes the directory of a process, and the session's directory if it was the last.
pub fn remove(dir: &Path) {
    std::fs::remove_dir_all(dir).ok(); // it may not exist; the next start tries again
    if let Some(session) = dir.parent() {
        std::fs::remove_dir(session).ok(); // another generation may be there
    }
}
