//! A fleet of agents: started, left by a daemon that is killed, found again, stopped, and what each of them takes.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::daemon::{Build, Daemon};
use crate::loops::per_second;
use crate::report::{Report, percentile};
use crate::{clearances, process};

/// Several looks at each agent.
const WATCHED: Duration = Duration::from_mins(1);

/// What is asked of a fleet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FleetTargets {
    pub(crate) start_per_second: Option<&'static str>,
    pub(crate) list_millis: Option<&'static str>,
    pub(crate) found_seconds: &'static str,
    pub(crate) stopped_seconds: &'static str,
    pub(crate) clearance_millis: Option<&'static str>,
}

pub(crate) const USUAL: FleetTargets = FleetTargets {
    start_per_second: None,
    list_millis: None,
    found_seconds: "< 5",
    stopped_seconds: "< 5",
    clearance_millis: None,
};
/// With three thousand agents on two cores.
pub(crate) const LARGE: FleetTargets = FleetTargets {
    start_per_second: Some(">= 140"),
    list_millis: Some("<= 60"),
    found_seconds: "<= 1.2",
    stopped_seconds: "<= 3",
    clearance_millis: Some("<= 10"),
};
const LISTS: usize = 10;
const CLEARANCES: u64 = 200;

pub(crate) fn round(
    build: &Build,
    agents: usize,
    targets: FleetTargets,
    report: &mut Report,
) -> anyhow::Result<()> {
    process::raise_file_limit()?;
    let name = &build.name;
    let mut daemon = Daemon::start(build)?;
    let started = Instant::now();
    daemon.open_idle(agents)?;
    let started = per_second(agents as u64, started.elapsed().as_secs_f64());
    report.put(format!("starting {agents} agents{name}"), "/s", started, targets.start_per_second);

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

    let lists = (0..LISTS).map(|_| daemon.cli(&["ls"])).collect::<anyhow::Result<Vec<_>>>()?;
    let list = percentile(&lists, 50);
    report.put(format!("`ls` of {agents} agents, p50{name}"), "ms", list, targets.list_millis);
    let beside = format!("clearance beside {agents} quiet agents");
    clearances::measure(&daemon, &beside, CLEARANCES, targets.clearance_millis, report)?;

    daemon.kill()?;
    let started = Instant::now();
    daemon.restart()?;
    let found = started.elapsed().as_secs_f64();
    report.add_target(
        format!("finding {agents} agents again after kill -9{name}"),
        "s",
        found,
        targets.found_seconds,
    );
    ensure!(
        daemon.log().contains(&format!("{agents} sessions re-attached, 0 ended while away")),
        "not all were found: {}",
        daemon.log()
    );

    let started = Instant::now();
    daemon.stop()?;
    let stopped = started.elapsed().as_secs_f64();
    report.add_target(format!("stopping {agents} agents{name}"), "s", stopped, targets.stopped_seconds);
    ensure!(daemon.shims()?.is_empty(), "shims are left");
    Ok(())
}
