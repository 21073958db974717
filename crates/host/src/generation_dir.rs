//! The directories of processes: one for each generation of each session, independent of any database.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::AGENTS_DIR;
use super::environment::SESSION_VARIABLE;
use super::identity::{ProcessIdentity, with_variable};
use super::leftovers::{self, is_running};
use super::record::{EXIT, META, SOCKET, ShimMeta, read_meta};
use super::running_shims::{RunningShim, belongs_to_other_daemon, is_below_a_shim, running_shims, shims_in};

/// The time that the shim of a removed directory has to end its agent.
const ENDING: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A generation of a session and its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationDir {
    pub session: String,
    pub generation: u32,
    pub dir: PathBuf,
}

/// Lists all generations that have a directory, the newest of each session first.
pub fn list_generation_dirs(agents_dir: &Path) -> Vec<GenerationDir> {
    let mut found = Vec::new();
    for session in directories(agents_dir) {
        for dir in directories(&session) {
            let name = |dir: &Path| dir.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            let generation = name(&dir).and_then(|name| name.parse().ok());
            if let (Some(session), Some(generation)) = (name(&session), generation) {
                found.push(GenerationDir { session, generation, dir });
            }
        }
    }
    found.sort_by(|a, b| (&a.session, b.generation).cmp(&(&b.session, a.generation)));
    found
}

impl GenerationDir {
    /// Returns the description of the session, in the form in which its creator recorded it.
    pub fn memo(&self) -> Option<String> {
        read_meta(&self.dir)?.memo
    }

    /// Returns the pid of the agent if it runs.
    pub fn agent_pid(&self) -> Option<i32> {
        Some(read_meta(&self.dir)?.agent).filter(ProcessIdentity::is_running).map(|agent| agent.pid)
    }

    /// Returns the agent's current directory if it runs.
    pub fn workspace(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/cwd", self.agent_pid()?)).ok()
    }

    /// Reports whether a process was ever started for this generation.
    pub fn was_started(&self) -> bool {
        [META, SOCKET, EXIT].iter().any(|name| self.dir.join(name).exists())
    }

    fn meta(&self, dir: &Path) -> ShimMeta {
        read_meta(dir).unwrap_or_else(|| ShimMeta::unlisted(&self.session))
    }

    fn is_alive(&self, dir: &Path) -> bool {
        !belongs_to_other_daemon(&self.meta(dir), dir)
            && (!shims_in(dir).is_empty() || !leftovers::members(&self.meta(dir), dir).is_empty())
    }

    fn end(&self, dir: &Path) {
        if !belongs_to_other_daemon(&self.meta(dir), dir) {
            shims_in(dir).iter().for_each(ProcessIdentity::kill);
            leftovers::end(&self.meta(dir), dir);
        }
    }

    /// Returns the directories of the generation's parts, such as terminals, followed by its own.
    fn all(&self) -> Vec<PathBuf> {
        directories(&self.dir).into_iter().chain([self.dir.clone()]).collect()
    }
}

/// The outcome of the removal of a directory that is no longer needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearedDirectory {
    /// No process belonged to it any more.
    Removed,
    /// Processes still belonged to it and were ended.
    Ended,
    /// Processes belong to it and cannot be ended: the directory stays, so that the next attempt finds them.
    Alive,
}

/// Ends all processes of a directory and removes it.
pub async fn remove_generation(generation: GenerationDir) -> ClearedDirectory {
    let cleared = tokio::task::spawn_blocking(move || {
        let alive = || generation.all().iter().any(|dir| generation.is_alive(dir));
        let was_alive = alive();
        if was_alive {
            generation.all().iter().for_each(|dir| generation.end(dir));
        }
        if was_alive && alive() {
            return ClearedDirectory::Alive;
        }
        super::remove(&generation.dir);
        if was_alive { ClearedDirectory::Ended } else { ClearedDirectory::Removed }
    });
    cleared.await.unwrap_or(ClearedDirectory::Alive)
}

/// Ends an agent's parts, such as terminals, whose owner has exited.
pub async fn end_parts(generation: GenerationDir) {
    let end_all = move || directories(&generation.dir).iter().for_each(|part| generation.end(part));
    let ended = tokio::task::spawn_blocking(end_all);
    ended.await.ok(); // it does not panic
}

/// Returns processes that a crash left behind, with their session: processes that carry a session's mark and have no
/// shim above them, and those left of an agent of this directory whose shim has exited.
pub fn stray_processes(agents_dir: &Path) -> Vec<(i32, String)> {
    let marked = with_variable(SESSION_VARIABLE).into_iter().filter(|(pid, _)| is_running(*pid));
    let mut found: Vec<(i32, String)> = marked.filter(|(pid, _)| !is_below_a_shim(*pid)).collect();
    for generation in list_generation_dirs(agents_dir) {
        let meta = read_meta(&generation.dir).filter(|meta| !meta.shim.is_running());
        let left = meta.map(|meta| leftovers::members(&meta, &generation.dir)).unwrap_or_default();
        found.extend(left.into_iter().map(|process| (process.pid, generation.session.clone())));
    }
    found.sort();
    found.dedup();
    found
}

/// Ends the agents of this state directory whose own directories were removed: no daemon can reach their shims any
/// more. Returns their sessions.
pub async fn end_agents_without_directory(state_dir: PathBuf) -> Vec<String> {
    let ended = tokio::task::spawn_blocking(move || {
        let ours = |shim: &RunningShim| {
            shim.removed && shim.state_dir == state_dir && shares_mount_namespace(shim.pid)
        };
        let shims: Vec<(ProcessIdentity, String)> = running_shims()
            .into_iter()
            .filter(ours)
            .map(|shim| (ProcessIdentity::of(shim.pid), shim.session))
            .collect();
        // The shims climb the stop ladder and sweep what is left, which is gentler than killing them.
        for (shim, _) in &shims {
            shim.signal(Signal::SIGTERM);
            shim.wake();
        }
        let deadline = Instant::now() + ENDING;
        while shims.iter().any(|(shim, _)| shim.is_running()) && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN);
        }
        for (shim, session) in &shims {
            shim.kill();
            let dir = state_dir.join(AGENTS_DIR).join(session).join("removed");
            leftovers::end(&ShimMeta { shim: shim.clone(), ..ShimMeta::unlisted(session) }, &dir);
        }
        shims.into_iter().map(|(_, session)| session).collect()
    });
    ended.await.unwrap_or_default()
}

/// Reports whether the paths of a process are ours: in a container the same path may be another directory.
fn shares_mount_namespace(pid: i32) -> bool {
    let mounts = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    mounts(&pid.to_string()).is_some_and(|theirs| mounts("self") == Some(theirs))
}

fn directories(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}
