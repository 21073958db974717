//! Finds the traces of agents on a process: the marks of sessions, and the shims among its ancestors.

use super::environment::SESSION_VARIABLE;
use super::identity::{stat, variable};
use super::running_shims::is_shim;

/// The limit on ancestors, more than any process has. Pids that are reused during the reads could form an endless loop.
const MAX_DEPTH: usize = 1000;

/// The evidence that a process belongs to an agent.
#[derive(Debug, Default)]
pub struct AgentTraces {
    /// The process itself, its parent, and so on up to the child of init.
    pub ancestors: Vec<i32>,
    /// The sessions, of any daemon, that are named in its environment, in that of an ancestor or in the name of its
    /// cgroup.
    pub sessions: Vec<String>,
    /// The ancestors that are shims, of any daemon.
    pub shims: Vec<i32>,
}

/// The number of attempts to read the ancestors, which may change during a read.
const ATTEMPTS: usize = 3;

/// Collects the traces of a process; `None` if it has exited or its ancestors keep changing.
pub fn traces(pid: i32) -> Option<AgentTraces> {
    (0..ATTEMPTS).find_map(|_| traces_once(pid))
}

fn traces_once(pid: i32) -> Option<AgentTraces> {
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
    let in_environment = ancestors.iter().filter_map(|pid| variable(*pid, SESSION_VARIABLE));
    let sessions = in_environment.chain(sessions_in_cgroups(&cgroups)).collect();
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

/// Reports whether each process still has the same parent. A process that exits hands its children to another parent
/// before its pid is free. So a pid that is still the parent's belonged to the same process during all reads, and not to
/// a new process that reuses the pid of a dead parent.
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
