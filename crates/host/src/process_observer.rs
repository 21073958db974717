//! An outside view of an agent: the tail of its stderr, and its processes.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::tree::{self, ProcessBelow};
use super::{ProcessIdentity, RuntimeDir, record, shim};

/// A view of a process for callers that do not own it.
#[derive(Debug, Clone)]
pub struct ProcessObserver {
    pub(super) runtime_dir: RuntimeDir,
    pub(super) shim: ProcessIdentity,
}

/// One process of an agent's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedProcess {
    pub pid: i32,
    pub parent: i32,
    pub name: String,
    /// The kernel's letter for the state: `R` runs, `S` sleeps, `T` is stopped, …
    pub state: char,
    pub cpu_millis: u64,
    pub memory_bytes: u64,
}

impl ProcessObserver {
    /// Returns the current tail of its stderr.
    pub fn stderr_tail(&self) -> String {
        shim::stderr_tail(&self.runtime_dir.dir, self.runtime_dir.stderr_tail_bytes)
    }

    /// Ends the agent without its session, as a last resort: its shim climbs the stop ladder by itself, even without a
    /// daemon.
    pub fn end(&self) {
        for shim in self.parts().iter().chain([&self.shim]).filter(|shim| shim.exists()) {
            kill(Pid::from_raw(shim.pid), Signal::SIGTERM).ok(); // it may have just gone
            shim.wake();
        }
    }

    /// Returns the shims of its parts, such as terminals.
    pub(super) fn parts(&self) -> Vec<ProcessIdentity> {
        let entries = std::fs::read_dir(&self.runtime_dir.dir).into_iter().flatten().flatten();
        // The kind of an entry comes with the list; most are files of the shim.
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let metas = dirs.filter_map(|entry| record::read_meta(&entry.path()));
        metas.map(|meta| meta.shim).filter(ProcessIdentity::exists).collect()
    }

    /// Returns the agent and everything below it, as of now.
    pub fn processes(&self) -> Vec<ObservedProcess> {
        if !self.shim.exists() {
            return Vec::new();
        }
        let parts = self.parts();
        let shims = parts.iter().chain([&self.shim]);
        let mut processes: Vec<ObservedProcess> =
            shims.flat_map(|shim| tree::living(shim.pid)).map(observe).collect();
        processes.sort_by_key(|process| process.pid);
        processes
    }
}

fn observe(ProcessBelow { pid, stat }: ProcessBelow) -> ObservedProcess {
    let memory_bytes = stat.pages.saturating_mul(page_size());
    let cpu_millis = stat.ticks.saturating_mul(1000) / ticks_per_second();
    ObservedProcess { pid, parent: stat.parent, name: stat.name, state: stat.state, cpu_millis, memory_bytes }
}

fn page_size() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or(4096)
}

pub(super) fn ticks_per_second() -> u64 {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    ticks.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(100)
}
