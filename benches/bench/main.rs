//! What `scripts/bench` runs: the real daemon and real agents, next to the loops they are measured against.
//!
//! Every round measures everything once, so that a busy machine disturbs all figures alike; a ratio is taken within a
//! round. `docs/PERFORMANCE.md` says what each figure means.

#![allow(clippy::print_stdout, reason = "the table goes there")]

mod clearances;
mod daemon;
mod fleet;
mod flood;
mod latency;
mod loops;
mod report;
mod seats;
mod store;
mod websocket;

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;

use daemon::Build;
use report::Report;

/// Measures intercom: lines per second from agent to log next to bare loops, heartbeats, clearances, latency, memory.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    /// Only these: any of `lines`, `heartbeats`, `acp` (chunks of one ACP agent's message), `sessions` (clearances, latency and memory with 100 sessions open), `seats` (ACP
    /// clients: chunks of 100 sessions, clients that read nothing, memory of 1,000 that do nothing), `fleet` (1,000 agents started, found again after a kill -9, stopped), `store` (the log alone, without a daemon; only on request)
    filter: Vec<String>,
    /// A short run of less than a minute: fewer and smaller rounds, more noise
    #[arg(long)]
    quick: bool,
    /// How often everything is measured
    #[arg(long)]
    rounds: Option<usize>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Another build of intercom to measure in the same rounds
    #[arg(long, value_name = "PROGRAM")]
    against: Vec<PathBuf>,
    /// What `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// How much is measured in one round.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Lines of 100 bytes; of those with 300 bytes, half as many.
    lines: u64,
    heartbeats: u64,
    clearances: u64,
    ticks: u64,
    /// Transactions of one row, for comparison.
    commits: u64,
    /// Sessions that are open beside the one that is measured.
    sessions: usize,
    /// Agents that are found again and stopped; once, not in every round.
    fleet: usize,
    /// Chunks of each session that has an ACP client.
    chunks: usize,
    /// ACP clients that do nothing.
    clients: usize,
    /// Events in the log of the store that is measured alone.
    stored: usize,
}

const FULL: Size = Size {
    lines: 1_000_000,
    heartbeats: 500_000,
    clearances: 2000,
    ticks: 1000,
    commits: 2000,
    sessions: 100,
    fleet: 1000,
    chunks: 100,
    clients: 1000,
    stored: 10_000_000,
};
const QUICK: Size = Size {
    lines: 200_000,
    heartbeats: 100_000,
    clearances: 500,
    ticks: 300,
    commits: 500,
    sessions: 100,
    fleet: 200,
    chunks: 40,
    clients: 1000,
    stored: 1_000_000,
};

fn main() -> anyhow::Result<()> {
    if let Some(ticks) = latency::asked_to_tick() {
        return latency::tick(ticks);
    }
    if seats::asked_to_tick() {
        return seats::tick();
    }
    let args = Args::parse();
    let known = ["lines", "heartbeats", "acp", "sessions", "seats", "fleet", "store"];
    if let Some(unknown) = args.filter.iter().find(|filter| !known.contains(&filter.as_str())) {
        anyhow::bail!("there is no `{unknown}`: choose from {}", known.join(", "));
    }
    let wanted = |what: &str| args.filter.is_empty() || args.filter.iter().any(|filter| filter == what);
    let size = if args.quick { QUICK } else { FULL };
    let rounds = args.rounds.unwrap_or(if args.quick { 3 } else { 5 });
    let builds = builds(&args.against)?;

    let mut report = Report::new(rounds);
    let floods = if wanted("lines") {
        vec![flood::Flood::lines(size.lines, 100)?, flood::Flood::lines(size.lines / 2, 300)?]
    } else {
        Vec::new()
    };
    let chunks = wanted("acp").then(|| flood::Chunks::new(size.lines));
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for flood in &floods {
            flood.round(&builds, round, &mut report)?;
        }
        if let Some(chunks) = &chunks {
            chunks.round(&builds, round, &mut report)?;
        }
        if wanted("heartbeats") {
            flood::heartbeats(&builds, round, size.heartbeats, &mut report)?;
        }
        if wanted("sessions") {
            let times = loops::one_row(size.commits)?;
            report.add_percentile("one row, one transaction, no daemon, p50".to_owned(), &times, 50);
            report.add_percentile("one row, one transaction, no daemon, p99".to_owned(), &times, 99);
            for build in turns(&builds, round) {
                with_many_sessions(build, size, &mut report).context("with many sessions")?;
            }
        }
        if wanted("seats") {
            for build in turns(&builds, round) {
                seats::round(build, size.sessions, size.chunks, &mut report).context("with ACP clients")?;
                seats::idle(build, size.clients, &mut report).context("with idle ACP clients")?;
            }
        }
    }
    // Only on request: it writes gigabytes.
    if args.filter.iter().any(|filter| filter == "store") {
        store::rounds(rounds, size.stored, &mut report).context("the store")?;
    }
    if wanted("fleet") {
        eprintln!("a fleet of {}", size.fleet);
        for build in &builds {
            fleet::round(build, size.fleet, &mut report).context("with a fleet")?;
        }
    }
    if args.json {
        println!("{}", report.json());
    } else {
        println!("{report}");
    }
    Ok(())
}

/// The build under test, and those it is compared with.
fn builds(against: &[PathBuf]) -> anyhow::Result<Vec<Build>> {
    let mut builds = vec![Build::this()];
    for path in against {
        let path = path.canonicalize().with_context(|| format!("cannot use {}", path.display()))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        builds.push(Build { name: format!(" [{name}]"), path });
    }
    Ok(builds)
}

/// Every other round goes the other way, so that nobody is always first.
fn turns<T>(all: &[T], round: usize) -> Vec<&T> {
    let mut all: Vec<&T> = all.iter().collect();
    if round % 2 == 1 {
        all.reverse();
    }
    all
}

/// One daemon: its memory with one session and with many, then its answers while they are all open.
fn with_many_sessions(build: &Build, size: Size, report: &mut Report) -> anyhow::Result<()> {
    let daemon = daemon::Daemon::start(build)?;
    let many = u32::try_from(size.sessions)?;
    daemon.open_idle(1)?;
    let one = daemon.settled_rss_kib()?;
    daemon.open_idle(size.sessions - 1)?;
    let all = daemon.settled_rss_kib()?;
    let name = &build.name;
    let each = (all - one) / f64::from(many - 1);
    report.add(format!("memory (RSS) with 1 session{name}"), "MiB", one / 1024.0);
    report.add(format!("memory (RSS) with {many} sessions{name}"), "MiB", all / 1024.0);
    report.add(format!("memory per further session{name}"), "KiB", each);
    report.add(format!("memory (PSS) of each session's shim{name}"), "KiB", daemon.shim_pss_kib()?);

    clearances::round(&daemon, size.clearances, report).context("clearances")?;
    latency::round(&daemon, size.ticks, report).context("latency")
}
