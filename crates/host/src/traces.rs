//! The traces of agents on a process: its marks, and the shims above it.

use super::environment::SESSION_VARIABLE;
use super::identity::{stat, variable};
use super::running_shims::is_shim;

/// More than the depth of any tree; pids that are reused while it is read must not form an endless loop.
const MAX_DEPTH: usize = 1000;

/// The evidence that a process belongs to an agent.
#[derive(Debug, Default)]
pub struct AgentTraces {
    /// The process itself, its parent, and so on.
    pub ancestors: Vec<i32>,
    /// The sessions that its marks name: in its environment, in that of a process above it, in the name of its cgroup.
    /// Of any daemon.
    pub sessions: Vec<String>,
    /// The ancestors that are shims, of any daemon.
    pub shims: Vec<i32>,
}

/// The number of attempts on a tree that changes meanwhile.
const ATTEMPTS: usize = 3;

/// Collects the traces of a process. `None` if the process has exited, or the tree above it keeps changing.
pub fn traces(pid: i32) -> Option<AgentTraces> {
    (0..ATTEMPTS).find_map(|_| look_up(pid))
}

fn look_up(pid: i32) -> Option<AgentTraces> {
    let mut ancestors = vec![pid];
    loop {
        let parent = stat(*ancestors.last()?)?.parent;
        if parent <= 1 {
            break;
        }
        ancestors.push(parent);
        if ancestors.len() > MAX_DEPTH {
            return None;
        }
    }
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    // A terminal's shim carries the mark of its session: processes below it cannot remove that mark.
    let above = ancestors.iter().filter_map(|pid| variable(*pid, SESSION_VARIABLE));
    let sessions = above.chain(sessions_in_cgroups(&cgroups)).collect();
    let shims = ancestors.iter().copied().filter(|pid| is_shim(*pid)).collect();
    is_still_parent_of(&ancestors).then_some(AgentTraces { ancestors, sessions, shims })
}

/// Returns the sessions named in `…/intercom-SESSION-GENERATION/…`.
fn sessions_in_cgroups(cgroups: &str) -> impl Iterator<Item = String> {
    let parts = cgroups.split(['/', '\n']).filter_map(|part| part.strip_prefix("intercom-"));
    parts.filter(|name| name.starts_with("ses_")).map(|name| {
        let session = name.split_once('-').map_or(name, |(session, _)| session);
        session.to_owned()
    })
}

/// Reports whether the parent links still hold. An exiting process hands on its children before its pid is free. So a
/// pid that is still the parent's meant the same process all the time while it was read, not one that reuses the pid of
/// a dead parent.
fn is_still_parent_of(ancestors: &[i32]) -> bool {
    ancestors.windows(2).all(|pair| stat(pair[0]).is_some_and(|stat| stat.parent == pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_names_its_session() {
        let text = "1:cpu:/\n0::/user.slice/intercom-ses_abc-2/inner\n";
        assert_eq!(sessions_in_cgroups(text).collect::<Vec<_>>(), ["ses_abc"]);
        for other in ["0::/intercom.service", "0::/intercom-probe-7", "0::/ses_abc", ""] {
            assert_eq!(sessions_in_cgroups(other).next(), None, "{other}");
        }
    }

    #[test]
    fn our_ancestors_begin_with_ourselves() {
        let me = i32::try_from(std::process::id()).unwrap();
        let traces = traces(me).unwrap();
        assert_eq!(traces.ancestors[0], me);
        assert!(traces.ancestors.len() > 1 || std::os::unix::process::parent_id() == 1);
    }
}
