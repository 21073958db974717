//! Many at once: watchers of one busy log, a clearance beside agents that flood, thousands of quiet agents.

use std::time::Duration;

use anyhow::{Context, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::daemon::{Build, Daemon, PATIENCE};
use crate::latency::{self, MARK, now};
use crate::report::{Report, percentile};
use crate::{clearances, fleet, process, turns};

/// A thousand events in a second.
const PACE: Duration = Duration::from_millis(1);
/// Until all watchers have arrived.
const PAUSE: Duration = Duration::from_secs(5);
const CHUNK: usize = 64 * 1024;

/// How many of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrowdSize {
    pub(crate) watchers: usize,
    pub(crate) events: u64,
    pub(crate) clearances: u64,
    pub(crate) agents: usize,
}

pub(crate) fn round(
    builds: &[Build],
    round: usize,
    size: CrowdSize,
    report: &mut Report,
) -> anyhow::Result<()> {
    process::raise_file_limit()?;
    for build in turns(builds, round) {
        watch(build, 1, size.events, "<= 2.5", report).context("one watcher")?;
        watch(build, size.watchers, size.events, "<= 100", report).context("many watchers")?;
        let daemon = Daemon::start(build)?;
        clearances::beside_floods(&daemon, 10, size.clearances, Some("<= 15"), report)?;
        clearances::beside_floods(&daemon, 100, size.clearances / 5, None, report)?;
    }
    Ok(())
}

/// Once, not in every round.
pub(crate) fn fleets(builds: &[Build], agents: usize, report: &mut Report) -> anyhow::Result<()> {
    builds.iter().try_for_each(|build| fleet::round(build, agents, fleet::LARGE, report))
}

fn watch(
    build: &Build,
    watchers: usize,
    events: u64,
    target: &'static str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let daemon = Daemon::start(build)?;
    let session = latency::start(&daemon, events, PACE, PAUSE)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let times = runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..watchers {
            let stream = UnixStream::connect(daemon.socket()).await?;
            tasks.spawn(listen(stream, session.clone(), events));
        }
        let mut times = Vec::new();
        while let Some(heard) = tasks.join_next().await {
            times.extend(heard??);
        }
        anyhow::Ok(times)
    })?;
    let name = &build.name;
    let what = format!("{watchers} watchers of 1,000 events/s: agent's stdout to watcher");
    report.add_percentile(format!("{what}, p50{name}"), &times, 50);
    report.add_target(format!("{what}, p99{name}"), "ms", percentile(&times, 99), target);
    let all = f64::from(u32::try_from(watchers)?) * f64::from(u32::try_from(events)?);
    let received = f64::from(u32::try_from(times.len())?) / all;
    report.add_target(
        format!("{watchers} watchers of 1,000 events/s: received{name}"),
        "×",
        received,
        ">= 1",
    );
    Ok(())
}

/// Reads the stream as bytes and looks only for the times in it: the watchers share two cores with the daemon. Ends when
/// everything has come, or nothing more comes.
async fn listen(mut stream: UnixStream, session: String, events: u64) -> anyhow::Result<Vec<Duration>> {
    let request = format!(
        "GET /api/v1/events?after=0&session={session} HTTP/1.1\r\nhost: intercom\r\n\
         accept: text/event-stream\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mark = memmem::Finder::new(MARK);
    let (mut bytes, mut times) = (Vec::with_capacity(2 * CHUNK), Vec::new());
    while times.len() as u64 != events {
        let Ok(read) = tokio::time::timeout(PATIENCE / 6, stream.read_buf(&mut bytes)).await else { break };
        ensure!(read? > 0, "the stream ended");
        let heard = now();
        let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
        for at in mark.find_iter(&bytes[..whole]) {
            let digits = bytes[at + MARK.len()..whole].iter().take_while(|byte| byte.is_ascii_digit());
            let spoke = digits.fold(0, |sum: u64, digit| sum * 10 + u64::from(digit - b'0'));
            times.push(heard.saturating_sub(Duration::from_nanos(spoke)));
        }
        bytes.drain(..whole);
    }
    Ok(times)
}
