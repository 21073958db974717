//! The shim: one small process per agent that outlives the daemon. It holds the agent's pipes, journals its output,
//! drains its stderr, remembers the last message it accepted, ends its tree, and records its exit.
//!
//! One thread on `poll`, no async runtime, entered before the command line is parsed. It works in its own directory:
//! `sock`, `out.*` (the journal), `err.log`, `meta.json`, `exit`.
//!
//! ```text
//!   started by the daemon: order on stdin, one line of answer on stdout
//!        │
//!        ▼             attach: the newest daemon wins
//!   ┌─────────┐   ◄──────────────────────────────────── daemon (or none, for hours)
//!   │  poll   │   hello, bell, ack, exit ──────────────►
//!   └─────────┘
//!     stdin│▲stdout, stderr
//!          ▼│
//!         agent and its tree; orphans become our children (subreaper)
//! ```
//!
//! # Theory of operation
//!
//! The shim owns the agent's three pipes, its process tree and the journal. A daemon owns nothing of the agent: it
//! reads the journal from disk and sends frames. So a daemon may crash, be upgraded or be absent for hours, and the
//! agent sees only full or empty pipes.
//!
//! - **Output.** stdout moves into the journal by `splice`, so no byte is ever only in the shim's memory; killed at any
//!   moment, it loses none. The journal is bounded twice: by `journal_cap_bytes` of output that is not in the daemon's
//!   log yet, and, while a daemon listens, by its lead over what that has read (`AHEAD_OF_DAEMON`). At either bound,
//!   and while the disk is full, the shim stops reading and the agent blocks in `write`. stderr never blocks the agent:
//!   `ErrLog` keeps the tail and overwrites the rest.
//! - **Input.** `StdinQueue` holds accepted messages; the daemon's session bounds how many are in flight. Each has a
//!   number; a repeated one is not written again, but acknowledged again. So a daemon that comes back may send
//!   everything that it has no answer for: each message reaches the agent once, whole and in order.
//! - **Daemons.** At most one is connected, and the newest wins; only a process that holds the daemon's lock and is not
//!   part of the agent's tree is accepted. Its frames wait in `DaemonPeer::outgoing`, bounded because bells are
//!   coalesced and there is one acknowledgement per message.
//! - **The end.** A stop, a SIGTERM, or an agent that closed stdout and lingers starts the ladder: interrupt, close
//!   stdin, SIGTERM, SIGKILL, each after the previous one's wait. Once the agent has exited, the rest of its tree gets
//!   a short grace period and is swept. The loop ends when the agent is reaped, the tree is empty and both pipes are at
//!   their end (or only strangers hold them). Then the exit record is written to disk, *before* the daemon gets its
//!   frame: a daemon that misses that reads the file.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::record::ShimMeta;
use super::{ProcessSpec, RuntimeDir, limits};

mod agent;
mod daemon_lock;
mod errlog;
mod input;
mod ladder;
mod link;
mod run;

pub(super) use errlog::tail as stderr_tail;

/// The first argument of our own binary that selects this mode.
pub const MODE: &str = "__shim";

/// The daemon's order to a new shim.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShimOrder {
    pub(super) spec: ProcessSpec,
    pub(super) runtime_dir: RuntimeDir,
    /// The protocol version to use: always the newest, except in tests.
    pub(super) version: u32,
    /// The original limit on open files: the daemon has raised its own.
    #[serde(default)]
    pub(super) open_files: Option<u64>,
}

/// The answer of a new shim, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ShimAnswer {
    Runs(Box<ShimMeta>),
    Failed(String),
}

fn explained(error: &io::Error) -> String {
    limits::explain(error).unwrap_or_else(|| error.to_string())
}

/// Runs the shim; called instead of the command line.
pub fn main() -> ExitCode {
    close_inherited();
    let mut order = Vec::new();
    let order = std::io::stdin()
        .read_to_end(&mut order)
        .map_err(|error| error.to_string())
        .and_then(|_| serde_json::from_slice::<ShimOrder>(&order).map_err(|error| error.to_string()));
    let started = order.and_then(|order| run::ShimLoop::start(&order).map_err(|error| explained(&error)));
    let (answer, shim) = match started {
        Ok(shim) => (ShimAnswer::Runs(Box::new(shim.meta().clone())), Some(shim)),
        Err(error) => (ShimAnswer::Failed(error), None),
    };
    let mut stdout = std::io::stdout();
    let line = serde_json::to_vec(&answer).expect("an answer has string keys only");
    // A daemon that has died meanwhile is no reason to exit: the next one finds us.
    stdout.write_all(&line).and_then(|()| stdout.flush()).ok();
    match shim {
        Some(shim) => shim.run(),
        None => ExitCode::FAILURE,
    }
}

/// Closes descriptors that the daemon inherited without knowing: the agent must not inherit them.
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        nix::unistd::close(fd).ok(); // the descriptor of the listing is closed already
    }
}
