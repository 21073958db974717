//! Processor time and memory of a process, read from `/proc`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{SysconfVar, sysconf};

/// Two ticks of the clock that processor time is counted in: less than that in a [`LOOK`] is idleness.
const IDLE_SECONDS: f64 = 0.02;
const LOOK: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn proc_dir(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Seconds of processor time that a process has used, without its children.
pub(crate) fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(proc_dir(pid).join("stat"))?;
    // The name in brackets may hold anything; user and system time are the 14th and 15th field.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).context("odd stat")?.split_whitespace();
    let ticks: Vec<f64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    let per_second = sysconf(SysconfVar::CLK_TCK)?.context("no clock tick")?;
    #[expect(clippy::cast_precision_loss, reason = "a hundred")]
    Ok(ticks.iter().sum::<f64>() / per_second as f64)
}

/// The same once the process has finished what it had to do: some of the work for a line follows its commit.
pub(crate) fn settled_cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let (start, mut before) = (Instant::now(), cpu_seconds(pid)?);
    loop {
        std::thread::sleep(LOOK);
        let now = cpu_seconds(pid)?;
        if now - before < IDLE_SECONDS || start.elapsed() > PATIENCE {
            return Ok(now);
        }
        before = now;
    }
}

/// Memory that a process has for itself alone.
pub(crate) fn private_kib(process: &Path) -> anyhow::Result<f64> {
    let rollup = process.join("smaps_rollup");
    Ok(kib(&rollup, "Private_Clean:")? + kib(&rollup, "Private_Dirty:")?)
}

/// The same with its share of what it has in common with others.
pub(crate) fn pss_kib(process: &Path) -> anyhow::Result<f64> {
    kib(&process.join("smaps_rollup"), "Pss:")
}

/// Resident memory once nothing changes any more.
pub(crate) fn settled_rss_kib(process: &Path) -> anyhow::Result<f64> {
    let mut before = rss_kib(process)?;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        let now = rss_kib(process)?;
        if (now - before).abs() < 8.0 {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

fn rss_kib(process: &Path) -> anyhow::Result<f64> {
    kib(&process.join("status"), "VmRSS:")
}

/// A line of a file in `/proc`.
fn kib(file: &Path, key: &str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let number = number.and_then(|number| number.trim().parse().ok());
    number.with_context(|| format!("no {key} in {}", file.display()))
}

/// As many open files as this process and those that it starts may have.
pub(crate) fn raise_file_limit() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}
