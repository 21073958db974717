//! What `scripts/bench` runs: the real daemon and real agents, next to the loops they are measured against.
//!
//! Every round measures everything once, so that a busy machine disturbs all figures alike; a ratio is taken within a
//! round. `docs/PERFORMANCE.md` says what each figure means.

#![allow(clippy::print_stdout, reason = "the table goes there")]

mod clearances;
mod crowd;
mod daemon;
mod fleet;
mod flood;
mod growth;
mod latency;
mod loops;
mod process;
mod reference;
mod report;
mod seats;
mod side;
mod store;
mod websocket;

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;

use crowd::CrowdSize;
use daemon::Build;
use report::Report;

/// Measures intercom: lines per second from agent to log next to bare loops, heartbeats, clearances, latency, memory.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    /// Only these: any of `lines`, `heartbeats`, `acp` (chunks of one ACP agent's message), `sessions` (clearances, latency and memory with 100 sessions open), `seats` (ACP
    /// clients: chunks of 100 sessions, clients that read nothing, memory of 1,000 that do nothing), `fleet` (1,000 agents started, found again after a kill -9, stopped). Only by name: `side` (next to a daemon
    /// that keeps nothing: lines, processor time, clearances through a chat, memory), `growth` (a log of 10,000,000 events: start-up, pages, catch-up, removal), `crowd` (1,000
    /// watchers, clearances beside floods, 3,000 agents), `store` (the log alone, without a daemon)
    filter: Vec<String>,
    /// A short run of less than a minute: fewer and smaller rounds, more noise
    #[arg(long)]
    quick: bool,
    /// How many agents `fleet` starts; 1,000 unless given, or 200 with `--quick`
    #[arg(long, value_name = "N")]
    fleet: Option<usize>,
    /// How often everything is measured
    #[arg(long)]
    rounds: Option<usize>,
    /// Events in the log of `growth`
    #[arg(long)]
    events: Option<u64>,
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
    /// Daemons that follow one another, each with some clearances through a chat.
    chats: usize,
    /// Events in a large log.
    events: u64,
    crowd: CrowdSize,
}

/// The modes of a run that names none.
const USUAL: &[&str] = &["lines", "heartbeats", "acp", "sessions", "seats", "fleet"];
/// Those that take too long for that, or are about something else.
const BY_NAME: &[&str] = &["side", "growth", "crowd", "store"];

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
    chats: 20,
    events: 10_000_000,
    crowd: CrowdSize { watchers: 1000, events: 8000, clearances: 1000, agents: 3000 },
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
    chats: 5,
    events: 1_000_000,
    crowd: CrowdSize { watchers: 200, events: 2000, clearances: 200, agents: 500 },
};

fn main() -> anyhow::Result<()> {
    if let Some(ticks) = latency::asked_to_tick() {
        return latency::tick(ticks);
    }
    if seats::asked_to_tick() {
        return seats::tick();
    }
    if let Some(times) = side::asked_to_ask() {
        return side::ask(&times);
    }
    if let Some(setup) = reference::asked_to_serve() {
        return reference::serve(&setup);
    }
    let args = Args::parse();
    let known: Vec<&str> = USUAL.iter().chain(BY_NAME).copied().collect();
    if let Some(unknown) = args.filter.iter().find(|filter| !known.contains(&filter.as_str())) {
        anyhow::bail!("there is no `{unknown}`: choose from {}", known.join(", "));
    }
    let named = |what: &str| args.filter.iter().any(|filter| filter == what);
    let wanted = |what: &str| named(what) || (args.filter.is_empty() && USUAL.contains(&what));
    let mut size = if args.quick { QUICK } else { FULL };
    size.fleet = args.fleet.unwrap_or(size.fleet);
    let only_by_name = !args.filter.is_empty() && !USUAL.iter().any(|usual| named(usual));
    let rounds = args.rounds.unwrap_or(if args.quick || only_by_name { 3 } else { 5 });
    let builds = builds(&args.against)?;

    let mut report = Report::new(rounds);
    let floods = if wanted("lines") {
        vec![flood::Flood::lines(size.lines, 100)?, flood::Flood::lines(size.lines / 2, 300)?]
    } else {
        Vec::new()
    };
    let sides = wanted("side").then(|| side::Sides::new(size.lines, size.chats)).transpose()?;
    let chunks = wanted("acp").then(|| flood::Chunks::new(size.lines));
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for flood in &floods {
            flood.round(&builds, round, &mut report)?;
        }
        if let Some(sides) = &sides {
            sides.round(&builds, round, &mut report).context("side by side")?;
        }
        if let Some(chunks) = &chunks {
            chunks.round(&builds, round, &mut report)?;
        }
        if wanted("heartbeats") {
            flood::heartbeats(&builds, round, size.heartbeats, &mut report)?;
        }
        if wanted("crowd") {
            crowd::round(&builds, round, size.crowd, &mut report).context("in a crowd")?;
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
    if wanted("store") {
        store::rounds(rounds, usize::try_from(args.events.unwrap_or(size.events))?, &mut report)
            .context("the store")?;
    }
    if wanted("growth") {
        for build in &builds {
            growth::round(build, args.events.unwrap_or(size.events), &mut report)
                .context("with a large log")?;
        }
    }
    if wanted("crowd") {
        eprintln!("a fleet of {}", size.crowd.agents);
        crowd::fleets(&builds, size.crowd.agents, &mut report).context("with a large fleet")?;
    }
    if wanted("fleet") {
        eprintln!("a fleet of {}", size.fleet);
        for build in &builds {
            fleet::round(build, size.fleet, fleet::USUAL, &mut report).context("with a fleet")?;
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
