//! What is left of an agent whose shim has died: found by more than one mark, and ended.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup::Cgroup;
use super::environment::{PART_VARIABLE, SESSION_VARIABLE};
use super::frame::Left;
use super::identity::{boot_id, pids, stat, with_variable};
use super::shim::{MODE, Meta};
use super::tree::descendants;
use super::{AGENTS_DIR, REBOOTED};

const LOOK_AGAIN: Duration = Duration::from_millis(5);
const GIVE_UP: Duration = Duration::from_secs(5);

/// Ends the tree and says what happened. After a restart of the machine there is nothing to end.
pub(super) fn end(meta: &Meta) -> Left {
    if meta.agent.boot != boot_id() {
        let reason = REBOOTED.to_owned();
        return Left { reason, ..Left::default() };
    }
    let cgroup = meta.cgroup.as_deref().and_then(Cgroup::existing);
    let members = || members(meta, cgroup.as_ref());
    let mut killed = HashSet::new();
    let deadline = Instant::now() + GIVE_UP;
    loop {
        let fresh: Vec<i32> = members().into_iter().filter(|pid| killed.insert(*pid)).collect();
        // Stopped before killed: what cannot run cannot fork away.
        for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
            for pid in &fresh {
                kill(Pid::from_raw(*pid), signal).ok(); // it may have just gone
            }
        }
        if let Some(cgroup) = &cgroup {
            cgroup.kill();
        }
        if members().is_empty() {
            break;
        }
        if Instant::now() > deadline {
            tracing::error!(
                session.id = meta.session,
                "processes of an agent whose shim died cannot be killed"
            );
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    if let Some(cgroup) = &cgroup {
        cgroup.remove();
    }
    Left {
        reason: "its shim died".to_owned(),
        steps: if killed.is_empty() { Vec::new() } else { vec!["sigkill".to_owned()] },
        killed: u32::try_from(killed.len()).unwrap_or(u32::MAX),
        ..Left::default()
    }
}

/// The agent itself, who is in its cgroup, who carries its mark, and all below them.
fn members(meta: &Meta, cgroup: Option<&Cgroup>) -> Vec<i32> {
    let (name, mark) = match &meta.part {
        Some(part) => (PART_VARIABLE, part),
        None => (SESSION_VARIABLE, &meta.session),
    };
    let marked = with_variable(name).into_iter().filter(|(_, found)| found == mark);
    let mut roots: HashSet<i32> = marked.map(|(pid, _)| pid).collect();
    roots.extend(cgroup.into_iter().flat_map(Cgroup::members));
    if meta.agent.exists() {
        roots.insert(meta.agent.pid);
    }
    let below: Vec<i32> = roots.iter().flat_map(|pid| descendants(*pid)).collect();
    roots.extend(below);
    roots.retain(|pid| stat(*pid).is_some_and(|stat| !stat.is_dead()));
    roots.into_iter().collect()
}

/// Processes that carry a session's mark and have no shim above them: left behind by a crash. With their session.
pub fn strays() -> Vec<(i32, String)> {
    let mut found: Vec<(i32, String)> =
        with_variable(SESSION_VARIABLE).into_iter().filter(|(pid, _)| !below_a_shim(*pid)).collect();
    found.sort();
    found
}

fn is_shim(pid: i32) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command.split(|byte| *byte == 0).nth(1) == Some(MODE.as_bytes())
}

fn below_a_shim(pid: i32) -> bool {
    let mut pid = pid;
    while pid > 1 {
        if is_shim(pid) {
            return true;
        }
        pid = stat(pid).map_or(0, |stat| stat.parent);
    }
    false
}

/// The shim of an agent, and where its session belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningShim {
    pub pid: i32,
    pub session: String,
    pub state_dir: PathBuf,
    /// Its own directory is gone: no daemon can find it any more.
    pub removed: bool,
}

/// The shims of all agents that we may see, of whatever state directory. A shim's current directory says where it belongs,
/// also after that was removed.
pub fn running_shims() -> Vec<RunningShim> {
    let found = pids().filter(|pid| is_shim(*pid)).filter_map(|pid| {
        let dir = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        shim_in(pid, &dir)
    });
    let mut shims: Vec<RunningShim> = found.collect();
    shims.sort_by_key(|shim| shim.pid);
    shims
}

/// `STATE/agents/SESSION/GENERATION`; what is deeper belongs to a terminal of the session.
fn shim_in(pid: i32, dir: &Path) -> Option<RunningShim> {
    let text = dir.to_str()?;
    // The kernel says so at the end of a path that is gone.
    let place = text.strip_suffix(" (deleted)");
    let session = Path::new(place.unwrap_or(text)).parent()?;
    let agents = session.parent().filter(|dir| dir.file_name().is_some_and(|name| name == AGENTS_DIR))?;
    Some(RunningShim {
        pid,
        session: session.file_name()?.to_str()?.to_owned(),
        state_dir: agents.parent()?.to_owned(),
        removed: place.is_some(),
    })
}

/// Whether a process of this number runs.
pub fn is_running(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| !stat.is_dead())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_belongs_where_its_directory_is_or_was() {
        let shim = |dir: &str| {
            shim_in(7, Path::new(dir))
                .map(|shim| (shim.session, shim.state_dir.display().to_string(), shim.removed))
        };
        let of = |removed| Some(("ses_1".to_owned(), "/home/ana/state".to_owned(), removed));
        assert_eq!(shim("/home/ana/state/agents/ses_1/2"), of(false));
        assert_eq!(shim("/home/ana/state/agents/ses_1/2 (deleted)"), of(true));
        assert_eq!(shim("/home/ana/state/agents/ses_1/2/trm_1"), None, "a terminal");
        assert_eq!(shim("/"), None);
    }
}
