//! Agents that the database does not know, and processes that no session owns any more.

use std::collections::HashSet;

use jiff::Timestamp;
use rusqlite::OptionalExtension as _;

use super::{Check, open_database};
use crate::cli::time;
use intercom_daemon::config::DaemonPaths;
use intercom_host::{self as host, AGENTS_DIR, ProcessDescription, RunningShim};
use intercom_types::Time;

/// Returns the shims of this state directory that the database does not know, because it is older than they are. A
/// daemon adopts them when it starts.
pub(in crate::cli) fn orphans(paths: &DaemonPaths) -> Option<Check> {
    let ours = paths.state_dir.canonicalize().ok()?;
    let shims: Vec<RunningShim> =
        host::running_shims().into_iter().filter(|shim| shim.state_dir == ours && !shim.removed).collect();
    let database = open_database(&paths.database()).ok()?;
    let is_known = |shim: &RunningShim| {
        let sql = "SELECT generation, phase FROM sessions WHERE id = ?1";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u32>(0)?, row.get::<_, String>(1)?));
        // A table that cannot be read proves nothing.
        match database.query_row(sql, [&shim.session], row).optional() {
            Ok(Some((generation, phase))) => {
                shim.generation.is_none_or(|found| found == generation)
                    && phase != "ended"
                    && phase != "parked"
            }
            Ok(None) => false,
            Err(_) => true,
        }
    };
    let unknown: Vec<String> = shims
        .iter()
        .filter(|shim| !is_known(shim))
        .map(|shim| {
            let agent = host::agent_program(shim.pid);
            format!("pid {} of {}{}", shim.pid, shim.session, described(shim.pid, agent.as_deref()))
        })
        .collect();
    (!unknown.is_empty()).then(|| {
        Check::warning(
            "orphans",
            format!("agents run that the database does not know: {}", unknown.join(", ")),
            "`intercom daemon restart` adopts them; then `intercom ls` shows them and `intercom stop` ends them",
        )
    })
}

/// Returns the name, the age and, without a name of ours, the directory of a process, in brackets: a number alone is
/// not enough to decide about a kill.
pub(super) fn described(pid: i32, name: Option<&str>) -> String {
    let Some(ProcessDescription { name: own, age, directory }) = host::describe_process(pid) else {
        return String::new();
    };
    let now = Timestamp::now();
    let started = now.checked_sub(age).ok().map(|at| Time::from_millis(at.as_millisecond()));
    let since = format!("{} ago", time::age(started, now));
    match (name, directory) {
        (Some(name), _) => format!(" ({name}, started {since})"),
        (None, Some(directory)) => format!(" ({own}, started {since}, in {})", directory.display()),
        (None, None) => format!(" ({own}, started {since})"),
    }
}

/// Checks for processes that belonged to an agent of this daemon or of another one, and that no session owns any more.
pub(in crate::cli) fn strays(paths: &DaemonPaths) -> Check {
    let agents = paths.state_dir.join(AGENTS_DIR);
    let strays = host::stray_processes(&agents);
    if strays.is_empty() {
        return Check::ok("leftovers", "none");
    }
    let kept: HashSet<String> =
        host::list_generation_dirs(&agents).into_iter().map(|kept| kept.session).collect();
    let place = |session: &str| {
        if kept.contains(session) { "" } else { " (not of this state directory, or removed)" }
    };
    let named = |(pid, session): &(i32, String)| {
        format!("pid {pid} of {session}{}{}", described(*pid, None), place(session))
    };
    let list: Vec<String> = strays.iter().map(named).collect();
    let pids: Vec<String> = strays.iter().map(|(pid, _)| pid.to_string()).collect();
    Check::warning(
        "leftovers",
        list.join(", "),
        format!(
            "the next daemon ends those of its own sessions (`intercom daemon restart`); end the others with `kill {}`, if you know \
             them",
            pids.join(" ")
        ),
    )
}
