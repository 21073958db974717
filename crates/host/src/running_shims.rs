//! The shims that run on this machine, of any daemon, and the session and state directory of each.

use std::path::{Path, PathBuf};

use super::AGENTS_DIR;
use super::identity::{ProcessIdentity, pids, stat};
use super::record::{ShimMeta, is_copied};
use super::shim::MODE;

/// Reports whether this process is a shim, of any daemon.
pub(super) fn is_shim(pid: i32) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command.split(|byte| *byte == 0).nth(1) == Some(MODE.as_bytes())
}

pub(super) fn is_below_a_shim(pid: i32) -> bool {
    ancestors(pid).any(is_shim)
}

/// The shim of an agent, with its session and state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningShim {
    pub pid: i32,
    pub session: String,
    pub generation: Option<u32>,
    pub state_dir: PathBuf,
    /// Its directory was removed: no daemon can find it any more.
    pub removed: bool,
}

/// Returns the shims of all agents that we may see, of any state directory. A shim's current directory identifies its
/// session, even after the directory was removed.
pub fn running_shims() -> Vec<RunningShim> {
    let found = pids().filter(|pid| is_shim(*pid)).filter_map(|pid| {
        let dir = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        shim_in(pid, &dir)
    });
    let mut shims: Vec<RunningShim> = found.collect();
    shims.sort_by_key(|shim| shim.pid);
    shims
}

/// Returns the directory that a shim works in, which is below the state directory of its daemon.
pub fn shim_directory(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Parses `STATE/agents/SESSION/GENERATION`; a deeper directory belongs to a terminal of the session.
fn shim_in(pid: i32, dir: &Path) -> Option<RunningShim> {
    let text = dir.to_str()?;
    // The kernel appends this to the path of a removed directory.
    let place = text.strip_suffix(" (deleted)");
    let generation = Path::new(place.unwrap_or(text));
    let session = generation.parent()?;
    let agents = session.parent().filter(|dir| dir.file_name().is_some_and(|name| name == AGENTS_DIR))?;
    Some(RunningShim {
        pid,
        session: session.file_name()?.to_str()?.to_owned(),
        generation: generation.file_name()?.to_str()?.parse().ok(),
        state_dir: agents.parent()?.to_owned(),
        removed: place.is_some(),
    })
}

/// Returns the process itself, its parent, and so on.
pub(super) fn ancestors(pid: i32) -> impl Iterator<Item = i32> {
    /// More than the depth of any tree: pids that are reused meanwhile must not form a cycle.
    const MAX_DEPTH: usize = 1000;
    let parent = |pid: &i32| stat(*pid).map(|stat| stat.parent).filter(|parent| *parent > 1);
    std::iter::successors(Some(pid), parent).take(MAX_DEPTH)
}

/// Returns the shims whose current directory this is, regardless of the records in it.
pub(super) fn shims_in(dir: &Path) -> Vec<ProcessIdentity> {
    use std::os::unix::fs::MetadataExt;
    let place = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let Some(wanted) = place(dir) else { return Vec::new() };
    let here = |pid: &i32| place(Path::new(&format!("/proc/{pid}/cwd"))) == Some(wanted);
    let shims = pids().filter(|pid| is_shim(*pid)).filter(here);
    shims.filter(|pid| stat(*pid).is_some_and(|stat| !stat.is_dead())).map(ProcessIdentity::of).collect()
}

/// Reports whether the agent of `dir` belongs to another daemon: `dir` is a copy, or the shim that it names runs
/// elsewhere.
pub(super) fn belongs_to_other_daemon(meta: &ShimMeta, dir: &Path) -> bool {
    is_copied(meta, dir) || (meta.shim.is_running() && !shims_in(dir).contains(&meta.shim))
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
