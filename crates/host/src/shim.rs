//! The shim: one small process per agent that outlives the daemon. It holds the agent's pipes, journals its output,
//! drains its stderr, remembers which message it accepted last, ends its tree, and keeps its exit status.
//!
//! One thread on `poll`, no async runtime, entered before the command line is even parsed. Its directory is its current
//! one: `sock`, `out.*` (the journal), `err.log`, `meta.json`, `exit`.
//!
//! ```text
//!   started by the daemon: specification on stdin, one line of answer on stdout
//!        │
//!        ▼             attach: the newest daemon wins
//!   ┌─────────┐   ◄──────────────────────────────────── daemon (or none, for hours)
//!   │  poll   │   hello, bell, sack, exit ─────────────►
//!   └─────────┘
//!     stdin│▲stdout, stderr
//!          ▼│
//!         agent and its tree; orphans become our children (subreaper)
//! ```

use std::io::{Read, Write};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::record::ShimMeta;
use super::{ProcessSpec, RuntimeDir};

mod agent;
mod daemon_lock;
mod errlog;
mod input;
mod ladder;
mod link;
mod run;

pub(super) use errlog::tail as stderr_tail;

/// The hidden mode of our own binary.
pub const MODE: &str = "__shim";

/// The daemon's order to a new shim.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShimOrder {
    pub(super) spec: ProcessSpec,
    pub(super) runtime_dir: RuntimeDir,
    /// The protocol version that it is to speak: always the newest, but for tests.
    pub(super) version: u32,
    /// The usual limit on open files: the daemon has raised its own.
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

/// Entered instead of the command line.
pub fn main() -> ExitCode {
    close_inherited();
    let mut order = Vec::new();
    let order = std::io::stdin()
        .read_to_end(&mut order)
        .map_err(|error| error.to_string())
        .and_then(|_| serde_json::from_slice::<ShimOrder>(&order).map_err(|error| error.to_string()));
    let started = order.and_then(|order| run::ShimLoop::start(&order).map_err(|error| error.to_string()));
    let (answer, shim) = match started {
        Ok(shim) => (ShimAnswer::Runs(Box::new(shim.meta().clone())), Some(shim)),
        Err(error) => (ShimAnswer::Failed(error), None),
    };
    let mut stdout = std::io::stdout();
    let line = serde_json::to_vec(&answer).expect("an answer has string keys only");
    // A daemon that has died meanwhile is no reason to go: the next one finds us.
    stdout.write_all(&line).and_then(|()| stdout.flush()).ok();
    match shim {
        Some(shim) => shim.run(),
        None => ExitCode::FAILURE,
    }
}

/// Whatever the daemon was started with and did not know of is not the agent's, either.
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        nix::unistd::close(fd).ok(); // the one that listed them is closed already
    }
}
