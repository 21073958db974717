//! Agents that run without a daemon: of this state directory, of others, and of removed ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Check;
use super::leftovers::described;
use crate::cli::daemon_info::DaemonInfo;
use crate::cli::transport::is_listening;
use intercom_daemon::config::DaemonPaths;
use intercom_host::{self as host, RunningShim};
use intercom_types::text::{plural, shell_word};

const NAME: &str = "other shims";

/// Returns one check per state directory that has agents without a daemon, or that is not ours.
pub(in crate::cli) async fn shims(paths: &DaemonPaths) -> Vec<Check> {
    let mut by_state: BTreeMap<(PathBuf, bool), Vec<RunningShim>> = BTreeMap::new();
    for shim in host::running_shims() {
        by_state.entry((shim.state_dir.clone(), shim.removed)).or_default().push(shim);
    }
    let ours = paths.state_dir.canonicalize().unwrap_or_else(|_| paths.state_dir.clone());
    let mut checks = Vec::new();
    for ((state, removed), shims) in by_state {
        let served = !removed && has_daemon(&state).await;
        checks.extend(check(&state, removed, served, state == ours, &shims));
    }
    checks
}

fn check(state: &Path, removed: bool, served: bool, ours: bool, shims: &[RunningShim]) -> Option<Check> {
    let (agents, pids, place) = (plural(shims.len(), "agent"), pids(shims), state.display());
    if removed {
        return Some(Check::warning(
            NAME,
            format!("{agents} of {place}, which was removed: {}", named(shims)),
            format!("no daemon can find them; end them with `kill {pids}`"),
        ));
    }
    if served {
        return (!ours).then(|| Check::ok(NAME, format!("{agents} of {place}, which has a daemon")));
    }
    let restart = if ours {
        "intercom daemon restart".to_owned()
    } else {
        format!("intercom --state-dir {} daemon restart", shell_word(&place.to_string()))
    };
    Some(Check::warning(
        NAME,
        format!("{agents} of {place} without a daemon: {}", named(shims)),
        format!("`{restart}` reconnects to them; `kill {pids}` ends them"),
    ))
}

fn named(shims: &[RunningShim]) -> String {
    let named = |shim: &RunningShim| {
        let agent = host::agent_program(shim.pid).unwrap_or_else(|| "the agent has ended".to_owned());
        format!("pid {} of {}{}", shim.pid, shim.session, described(shim.pid, Some(&agent)))
    };
    shims.iter().map(named).collect::<Vec<_>>().join(", ")
}

fn pids(shims: &[RunningShim]) -> String {
    shims.iter().map(|shim| shim.pid.to_string()).collect::<Vec<_>>().join(" ")
}

async fn has_daemon(state: &Path) -> bool {
    match DaemonInfo::read(&state.join("daemon.json")) {
        Some(info) => is_listening(&info.socket).await,
        None => false,
    }
}
