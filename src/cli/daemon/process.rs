//! The running daemon as a process: its status, its stop, and its restart.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{UNIT, systemctl};
use crate::cli::daemon_info::{DaemonInfo, StartedBy};
use crate::cli::failure::CliFailure;
use crate::cli::start::{DaemonStarter, KeptVariables};
use crate::cli::time::{age, date_time_zone};
use crate::cli::url::url;
use crate::cli::{CliContext, output};
use intercom_host as host;
use intercom_types::text::{clean, plural};
use intercom_types::{Health, Time};

/// The time limit from the signal to the daemon's end, which may include the end of its agents.
const ENDS_WITHIN: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(super) async fn restart(cx: &CliContext) -> anyhow::Result<()> {
    let Some(mut starter) = DaemonStarter::local(cx) else {
        return Err(CliFailure::failed("the daemon is on another machine; restart it there").into());
    };
    // A daemon that could not be started again must not be stopped.
    starter.check_config()?;
    if let Some(running) = DaemonInfo::read(&cx.paths.daemon_json()) {
        report_kept_variables(&starter.keep_variables(&running));
        end(&running).await?;
    }
    starter.ensure_with_console(cx).await?;
    let running = DaemonInfo::read(&cx.paths.daemon_json()).map(|info| info.pid);
    if cx.json {
        return output::print(&format!("{}\n", json!({ "pid": running })));
    }
    Ok(())
}

/// Prints names only, because the values are secrets.
fn report_kept_variables(KeptVariables { kept, lost }: &KeptVariables) {
    if !kept.is_empty() {
        let names = kept.join(", ");
        output::advise(&format!(
            "kept from the previous daemon, because this shell does not set them: {names}; an empty value drops one: \
             `{}= intercom daemon restart`",
            kept[0]
        ));
    }
    if !lost.is_empty() {
        output::advise(&format!(
            "warning: the previous daemon had {}, and the installed service does not get them from it; set them for the service: \
             `systemctl --user import-environment NAME` in a shell that has them",
            lost.join(", ")
        ));
    }
}

pub(super) async fn stop(cx: &CliContext) -> anyhow::Result<()> {
    if DaemonStarter::local(cx).is_none() {
        return Err(CliFailure::failed("the daemon is on another machine; stop it there").into());
    }
    let running = DaemonInfo::read(&cx.paths.daemon_json());
    if let Some(running) = &running {
        end(running).await?;
    }
    let agents = agents_left(&cx.paths.state_dir);
    if cx.json {
        let pid = running.map(|running| running.pid);
        return output::print(&json!({ "stopped": pid, "agents_left": agents }).to_string());
    }
    output::print(&match running {
        Some(running) => format!("stopped the daemon (pid {})", running.pid),
        None => "no daemon is running".to_owned(),
    })?;
    if agents > 0 {
        let count = if agents == 1 {
            "1 agent keeps running".to_owned()
        } else {
            format!("{agents} agents keep running")
        };
        output::advise(&format!(
            "{count} without a daemon; `intercom daemon restart` starts one that finds every agent"
        ));
    }
    Ok(())
}

/// Returns the number of running agents of this state directory.
fn agents_left(state_dir: &Path) -> usize {
    let ours = state_dir.canonicalize().unwrap_or_else(|_| state_dir.to_owned());
    host::running_shims().iter().filter(|shim| shim.state_dir == ours && !shim.removed).count()
}

async fn end(running: &DaemonInfo) -> anyhow::Result<()> {
    let pid = Pid::from_raw(running.pid);
    kill(pid, Signal::SIGTERM)
        .map_err(|error| CliFailure::failed(format!("cannot stop the daemon (pid {pid}): {error}")))?;
    let until = Instant::now() + ENDS_WITHIN;
    while host::is_running(running.pid) {
        if Instant::now() >= until {
            let message = format!("the daemon (pid {pid}) has not ended after 60 s");
            return Err(CliFailure::failed(message).hint("check it with `intercom doctor`").into());
        }
        sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// The status of the daemon and of its service, as `--json` prints it.
#[derive(Debug, Serialize)]
struct DaemonStatusReport<'a> {
    /// `null` if none runs on this machine.
    daemon: Option<DaemonStatus>,
    /// True if a daemon answers, on this machine or at `INTERCOM_URL`.
    reachable: bool,
    unit: &'a Path,
    installed: bool,
    active: bool,
}

#[derive(Debug, Serialize)]
struct DaemonStatus {
    pid: i32,
    version: Option<String>,
    started_at: Option<String>,
    started_by: Option<StartedBy>,
    socket: String,
    /// The address of the console; `null` without one.
    url: Option<String>,
    state_dir: String,
    /// `null` if the daemon does not answer.
    live_sessions: Option<i64>,
}

pub(super) async fn status(file: &Path, cx: &CliContext) -> anyhow::Result<()> {
    let answer = cx.client.get(&url(&["health"], &[])).await;
    let reachable = answer.is_ok();
    let health = answer.ok().and_then(|answer| answer.parse::<Health>().ok());
    let (version, more) = health.map(|health| (health.version, health.more)).unzip();
    let local = DaemonStarter::local(cx).and_then(|_| DaemonInfo::read(&cx.paths.daemon_json()));
    let daemon = local.map(|info| DaemonStatus {
        pid: info.pid,
        version: version.or_else(|| info.version.clone()),
        started_by: info.started_by(),
        started_at: info.started_at,
        socket: info.socket.display().to_string(),
        url: info.url,
        state_dir: cx.paths.state_dir.display().to_string(),
        live_sessions: more.flatten().map(|more| more.sessions.live),
    });
    let installed = file.exists();
    let active = installed && systemctl(&["is-active", "--quiet", UNIT]).is_ok();
    let status = DaemonStatusReport { daemon, reachable, unit: file, installed, active };
    if cx.json {
        output::print(&serde_json::to_string(&status)?)?;
    } else {
        output::print(&shown(&status, Timestamp::now()))?;
    }
    if reachable {
        return Ok(());
    }
    let hint = "`intercom daemon restart` starts one in the background, and so does `intercom run`";
    Err(CliFailure::failed("no daemon answers").hint(hint).into())
}

fn shown(status: &DaemonStatusReport<'_>, now: Timestamp) -> String {
    let mut lines = Vec::new();
    match &status.daemon {
        Some(daemon) => {
            let since = daemon
                .started_at
                .as_deref()
                .map(|at| format!(", since {} ({})", date_time_zone(at), age(Time::parse(at), now)));
            let state = if status.reachable { "running" } else { "running, but it does not answer" };
            lines.push(("daemon", format!("{state}, pid {}{}", daemon.pid, since.unwrap_or_default())));
            lines.extend(daemon.started_by.map(|by| ("started", by.in_words().to_owned())));
            lines.extend(daemon.version.clone().map(|version| ("version", version)));
            lines.push(("socket", daemon.socket.clone()));
            lines.push(("console", daemon.url.as_ref().map_or("none".to_owned(), |url| format!("{url}/"))));
            lines.push(("state", daemon.state_dir.clone()));
            let count = |live: i64| usize::try_from(live).unwrap_or(usize::MAX);
            lines.extend(daemon.live_sessions.map(|live| ("sessions", plural(count(live), "live session"))));
        }
        None if status.reachable => lines.push(("daemon", "running on another machine".to_owned())),
        None => lines.push(("daemon", "none is running".to_owned())),
    }
    let service = match (status.installed, status.active) {
        (false, _) => "not installed",
        (true, false) => "installed, not active",
        (true, true) => "installed, active",
    };
    lines.push(("service", format!("{service} ({})", status.unit.display())));
    let mut text = String::new();
    for (name, value) in lines {
        writeln!(text, "{name:<10} {}", clean(&value)).expect("a string takes every write");
    }
    text
}
