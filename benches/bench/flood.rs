//! One agent that talks as fast as it can: from its stdout to the committed log.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intercom_store::Store;
use intercom_store::bus::Bell;
use intercom_testkit::harness::{acp_fixture, fixture};

use crate::daemon::{Build, Daemon, PATIENCE, last_seq};
use crate::loops::{self, per_second};
use crate::report::Report;
use crate::turns;

/// Rare enough to cost the daemon nothing, often enough to be exact to a few milliseconds.
const LOOK: Duration = Duration::from_millis(5);
/// Events per page of the check at the end.
const PAGE: usize = 5000;

/// Status lines of one size, and the same bytes in memory for the loops.
pub(crate) struct Flood {
    lines: u64,
    size: usize,
    bytes: Vec<u8>,
}

impl Flood {
    pub(crate) fn step(&self) -> String {
        step(self.lines, self.size)
    }

    /// Lines per second of the loop that only decodes.
    pub(crate) fn bare(&self) -> anyhow::Result<f64> {
        loops::typed(&self.bytes, self.lines)
    }

    pub(crate) fn lines(lines: u64, size: usize) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        let mut agent = agent(&step(lines, size))?;
        agent.stdout.take().context("a pipe")?.read_to_end(&mut bytes)?;
        agent.wait()?;
        ensure!(bytes.len() as u64 == lines * size as u64, "the agent wrote {} bytes", bytes.len());
        Ok(Self { lines, size, bytes })
    }

    /// How fast the agent is if nobody does anything with what it says.
    fn alone(&self) -> anyhow::Result<f64> {
        let start = Instant::now();
        let mut agent = agent(&self.step())?;
        let mut stdout = agent.stdout.take().context("a pipe")?;
        let mut chunk = vec![0; 64 * 1024];
        while stdout.read(&mut chunk)? > 0 {}
        agent.wait()?;
        Ok(per_second(self.lines, start.elapsed().as_secs_f64()))
    }

    pub(crate) fn round(&self, builds: &[Build], round: usize, report: &mut Report) -> anyhow::Result<()> {
        let Self { lines, size, bytes } = self;
        let alone = self.alone()?;
        let bare = self.bare()?;
        let value = loops::value(bytes, *lines)?;
        let inserting = loops::inserting(bytes, *lines, "status/update")?;
        let of = format!("lines of {size} bytes");
        report.add(format!("{of}: the agent alone, into a pipe"), "/s", alone);
        report.add(format!("{of}: bare loop, borrowed envelope"), "/s", bare);
        report.add(format!("{of}: bare loop, serde_json::Value"), "/s", value);
        report.add(format!("{of}: inserting loop"), "/s", inserting);
        for build in turns(builds, round) {
            let flooded = flood(Daemon::start(build)?, &self.step(), "status", *lines)?;
            let name = &build.name;
            report.add(format!("{of}: agent to log{name}"), "/s", flooded.rate);
            report.add(
                format!("{of}: processor time of the daemon per line{name}"),
                "µs",
                flooded.cpu_micros,
            );
            let ratio = flooded.rate / inserting;
            report.add_target(format!("{of}: … of the inserting loop{name}"), "×", ratio, ">= 0.5");
            report.add(format!("{of}: … of the bare loop, envelope{name}"), "×", flooded.rate / bare);
            report.add(format!("{of}: … of the bare loop, Value{name}"), "×", flooded.rate / value);
        }
        Ok(())
    }
}

pub(crate) fn heartbeats(
    builds: &[Build],
    round: usize,
    count: u64,
    report: &mut Report,
) -> anyhow::Result<()> {
    for build in turns(builds, round) {
        let flooded = flood(Daemon::start(build)?, &format!("flood-heartbeats:{count}"), "heartbeat", count)?;
        report.add_target(format!("heartbeats: agent to log{}", build.name), "/s", flooded.rate, "> 50000");
    }
    Ok(())
}

/// One ACP agent whose message comes in very many chunks.
pub(crate) struct Chunks {
    lines: u64,
    bytes: Vec<u8>,
}

impl Chunks {
    /// As many bytes as the fixture sends, 200 a line.
    pub(crate) fn new(lines: u64) -> Self {
        let text = "x".repeat(23);
        let line = |n: u64| {
            format!(
                concat!(
                    r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"acp-1","update":"#,
                    r#"{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"flood {:010} {}"}}}}}}}}"#,
                    "\n"
                ),
                n, text
            )
        };
        Self { lines, bytes: (1..=lines).flat_map(|n| line(n).into_bytes()).collect() }
    }

    pub(crate) fn round(&self, builds: &[Build], round: usize, report: &mut Report) -> anyhow::Result<()> {
        let inserting = loops::inserting(&self.bytes, self.lines, "session/update")?;
        report.add("ACP chunks: inserting loop".to_owned(), "/s", inserting);
        for build in turns(builds, round) {
            let (rate, grown) = chunks(build, self.lines)?;
            let name = &build.name;
            report.add(format!("ACP chunks: agent to log{name}"), "/s", rate);
            let ratio = rate / inserting;
            report.add_target(format!("ACP chunks: … of the inserting loop{name}"), "×", ratio, ">= 0.5");
            report.add_target(
                format!("ACP chunks: memory grown by {} lines{name}", self.lines),
                "MiB",
                grown,
                "< 32",
            );
        }
        Ok(())
    }
}

/// Lines per second, and how much larger the daemon is afterwards.
fn chunks(build: &Build, lines: u64) -> anyhow::Result<(f64, f64)> {
    let mut daemon = Daemon::start(build)?;
    let (warm, go) = (lines / 20, daemon.file("go"));
    let prompt = format!("flood:{warm}:200;wait-file:{};flood:{lines}:200", go.display());
    let session = daemon.run_acp(&acp_fixture(), &prompt)?;
    let mut client = daemon.client()?;
    let mut events = daemon.follow(&session)?;
    let mut seen = 0;
    let mut last = 0;
    while seen < warm {
        let event = events.until(|event| event["kind"] == "update")?;
        (seen, last) = (seen + 1, event["seq"].as_u64().context("a seq")?);
    }
    drop(events);
    let before = daemon.settled_rss_kib()?;
    let start = Instant::now();
    std::fs::write(&go, "")?;
    while last_seq(&mut client)? < last + lines {
        ensure!(start.elapsed() < 2 * PATIENCE, "the flood does not end: {}", daemon.log());
        std::thread::sleep(LOOK);
    }
    let seconds = start.elapsed().as_secs_f64();
    let grown = (daemon.settled_rss_kib()? - before) / 1024.0;
    daemon.stop()?;
    check(&daemon, "update", lines + warm)?;
    Ok((per_second(lines, seconds), grown))
}

fn agent(step: &str) -> anyhow::Result<Child> {
    let agent = Command::new(fixture()).arg(step).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    agent.with_context(|| format!("cannot run {}", fixture().display()))
}

fn step(lines: u64, size: usize) -> String {
    format!("flood:{lines}:{size}")
}

pub(crate) struct Flooded {
    /// Lines per second, from the start of the flood until the last line is committed.
    pub(crate) rate: f64,
    /// Per line.
    pub(crate) cpu_micros: f64,
}

impl Flooded {
    pub(crate) fn new(lines: u64, seconds: f64, cpu_seconds: f64) -> Self {
        let rate = per_second(lines, seconds);
        Self { rate, cpu_micros: cpu_seconds * 1e6 / (rate * seconds) }
    }
}

/// The steps of an agent that floods once a file is there.
pub(crate) fn flooding(go: &Path, step: &str) -> Vec<String> {
    vec![format!("wait-file:{}", go.display()), step.to_owned()]
}

pub(crate) fn flood(mut daemon: Daemon, step: &str, kind: &str, lines: u64) -> anyhow::Result<Flooded> {
    let go = daemon.file("go");
    let mut steps = flooding(&go, step);
    steps.push("expect:session/interrupt".to_owned());
    daemon.run(&fixture(), &steps)?;
    let mut client = daemon.client()?;
    let last = last_seq(&mut client)? + 1 + lines; // the first line begins a turn, which is an event
    let cpu = daemon.settled_cpu_seconds()?;
    let start = Instant::now();
    std::fs::write(&go, "")?;
    while last_seq(&mut client)? < last {
        ensure!(start.elapsed() < 2 * PATIENCE, "the flood does not end: {}", daemon.log());
        std::thread::sleep(LOOK);
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = daemon.settled_cpu_seconds()? - cpu;
    daemon.stop()?;
    check(&daemon, kind, lines)?;
    Ok(Flooded::new(lines, seconds, cpu))
}

/// What was measured was also done: every line is in the log.
fn check(daemon: &Daemon, kind: &str, lines: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(async {
        let store = Store::open(&daemon.database(), Bell::new())?;
        let (mut found, mut after) = (0, 0);
        while let Ok(page) = store.events(Some(after), None, PAGE).await?
            && let Some(last) = page.last()
        {
            after = last.seq;
            found += page.iter().filter(|event| event.kind == kind).count() as u64;
        }
        anyhow::Ok(found)
    })?;
    ensure!(found == lines, "{found} events of {lines}: {}", daemon.log());
    Ok(())
}
