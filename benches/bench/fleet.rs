//! A fleet of agents: started, left by a daemon that is killed, found again, stopped, and what each of them takes.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::daemon::{Build, Daemon};
use crate::report::Report;

/// Several looks at each agent.
const WATCHED: Duration = Duration::from_mins(1);

pub(crate) fn round(build: &Build, agents: usize, report: &mut Report) -> anyhow::Result<()> {
    let name = &build.name;
    let mut daemon = Daemon::start(build)?;
    let started = Instant::now();
    daemon.open_idle(agents)?;
    let each = started.elapsed().as_secs_f64() * 1000.0 / f64::from(u32::try_from(agents)?);
    report.add(format!("starting one of {agents} agents{name}"), "ms", each);

    let memory = daemon.private_kib()? / f64::from(u32::try_from(agents)?);
    report.add_target(
        format!("private memory per agent, daemon and shim, {agents} agents{name}"),
        "KiB",
        memory,
        "< 1024",
    );

    // They have said something, and are in a turn: each is looked at to see whether it is stuck.
    std::thread::sleep(WATCHED / 2); // until they are known to be quiet
    let (before, began) = (daemon.cpu_seconds()?, Instant::now());
    std::thread::sleep(WATCHED);
    let busy = (daemon.cpu_seconds()? - before) / began.elapsed().as_secs_f64() * 100.0;
    report.add_target(format!("watching {agents} quiet agents{name}"), "% of a core", busy, "< 2");

    daemon.kill()?;
    let started = Instant::now();
    daemon.restart()?;
    let found = started.elapsed().as_secs_f64();
    report.add_target(format!("finding {agents} agents again after kill -9{name}"), "s", found, "< 5");
    ensure!(
        daemon.log().contains(&format!("{agents} sessions re-attached, 0 ended while away")),
        "not all were found: {}",
        daemon.log()
    );

    let started = Instant::now();
    daemon.stop()?;
    let stopped = started.elapsed().as_secs_f64();
    report.add_target(format!("stopping {agents} agents{name}"), "s", stopped, "< 5");
    ensure!(daemon.shims()?.is_empty(), "shims are left");
    Ok(())
}
