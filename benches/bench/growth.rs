//! A large log: how long everything takes that must not depend on its size.

mod filled;

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intercom_testkit::client::{Connection, Events};

use crate::clearances;
use crate::daemon::{Build, Daemon};
use crate::loops::per_second;
use crate::report::{Report, percentile};

use filled::Filled;

const STARTS: usize = 3;
const CALLS: usize = 20;
/// The pages that the console's first calls get.
const CONSOLE: &[&str] = &[
    "/api/v1/health",
    "/api/v1/sessions?all=true&brief=true&limit=1000",
    "/api/v1/clearances?status=pending&brief=true",
    "/api/v1/questions?status=pending",
];
/// Clearances beside the removal of a session: some are over before it begins.
const CLEARANCES: u64 = 1500;
const REMOVAL: Duration = Duration::from_millis(500);

pub(crate) fn round(build: &Build, events: u64, report: &mut Report) -> anyhow::Result<()> {
    let name = &build.name;
    let mut filled = None;
    let mut daemon = Daemon::start_after(build, |state| {
        filled = Some(Filled::create(state, events)?);
        Ok(())
    })?;
    let Filled { largest, in_largest } = filled.context("the log was filled")?;
    let of = format!("log of {events} events");

    let mut starts = Vec::new();
    for _ in 0..STARTS {
        daemon.stop()?;
        let start = Instant::now();
        daemon.restart()?;
        starts.push(start.elapsed());
    }
    report.add_target(format!("{of}: start-up{name}"), "ms", percentile(&starts, 50), "<= 50");

    let lists = (0..CALLS).map(|_| daemon.cli(&["ls"])).collect::<anyhow::Result<Vec<_>>>()?;
    report.add_target(format!("{of}: `ls`, p50{name}"), "ms", percentile(&lists, 50), "<= 15");
    let newest = daemon.cli(&["logs", &largest, "-n", "20"])?;
    report.add(format!("{of}: `logs -n 20` of a large session{name}"), "ms", millis(newest));

    let mut client = daemon.client()?;
    let newest = crate::daemon::last_seq(&mut client)?;
    let pages = (1..=CALLS as u64).map(|part| newest * part / CALLS as u64);
    let pages = pages.map(|before| {
        timed(&mut client, &format!("/api/v1/events?session={largest}&before={before}&limit=500"))
    });
    let pages = pages.collect::<anyhow::Result<Vec<_>>>()?;
    report.add_target(
        format!("{of}: page of a session's log, p50{name}"),
        "ms",
        percentile(&pages, 50),
        "<= 5",
    );
    let mut all = Vec::new();
    for _ in 0..CALLS {
        let calls = CONSOLE.iter().map(|path| timed(&mut client, path));
        all.push(calls.sum::<anyhow::Result<Duration>>()?);
    }
    report.add_target(
        format!("{of}: the console's first calls, p50{name}"),
        "ms",
        percentile(&all, 50),
        "<= 20",
    );
    let figures = timed(&mut client, "/api/v1/figures")?;
    report.add(format!("{of}: the console's figures{name}"), "ms", millis(figures));

    let session = format!("/api/v1/events?after=0&session={largest}");
    let rate = catch_up(&daemon, &session, in_largest)?;
    report.add_target(format!("{of}: catch-up with a session{name}"), "/s", rate, ">= 450000");
    let rate = catch_up(&daemon, "/api/v1/events?after=0", events / 5)?;
    report.add_target(format!("{of}: catch-up with all sessions{name}"), "/s", rate, ">= 450000");

    daemon.settled_cpu_seconds()?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let each = size_of(&daemon.database())? as f64 / events as f64;
    report.add_target(format!("{of}: bytes on disk per event{name}"), "B", each, "<= 72");
    let memory = daemon.settled_rss_kib()? / 1024.0;
    report.add(format!("{of}: memory (RSS) after all that{name}"), "MiB", memory);
    remove(&daemon, &largest, in_largest, report)
}

/// The worst clearance while a large session is removed, and without that.
fn remove(daemon: &Daemon, session: &str, events: u64, report: &mut Report) -> anyhow::Result<()> {
    let alone = clearances::decide_all(daemon, CLEARANCES)?.1;
    let (beside, took) = std::thread::scope(|scope| {
        let removing = scope.spawn(|| {
            let mut client = daemon.client()?;
            std::thread::sleep(REMOVAL); // until the agent asks
            let start = Instant::now();
            let path = format!("/api/v1/sessions/{session}");
            let answer = client.request("DELETE", &path, &[], "")?;
            ensure!(answer.status == 204, "not removed: {answer:?}");
            Ok(start.elapsed())
        });
        let beside = clearances::decide_all(daemon, CLEARANCES)?.1;
        let took = removing.join().map_err(|_| anyhow::anyhow!("the removal panicked"))??;
        anyhow::Ok((beside, took))
    })?;
    let name = &daemon.build.name;
    let worst =
        |trips: &serde_json::Value| trips["max_us"].as_f64().context("no worst").map(|max| max / 1000.0);
    let (alone, beside) = (worst(&alone)?, worst(&beside)?);
    report.add(format!("removing a session of {events} events{name}"), "ms", millis(took));
    report.add(format!("clearance: the worst of {CLEARANCES}{name}"), "ms", alone);
    report.add(format!("clearance: the worst of {CLEARANCES} beside that removal{name}"), "ms", beside);
    let more = beside - alone;
    report.add_target(format!("clearance: longer beside that removal by{name}"), "ms", more, "<= 20");
    Ok(())
}

fn timed(client: &mut Connection, path: &str) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let answer = client.request("GET", path, &[("accept", "application/json")], "")?;
    ensure!(answer.status == 200, "{path}: {answer:?}");
    Ok(start.elapsed())
}

/// Events per second of a stream from its beginning, read as bytes.
fn catch_up(daemon: &Daemon, path: &str, events: u64) -> anyhow::Result<f64> {
    let start = Instant::now();
    let (answer, stream) = Events::ask(&daemon.socket(), "GET", path, &[], "")?;
    let mut stream = stream.with_context(|| format!("{path}: {answer:?}"))?;
    let (mut bytes, mut seen, mut last) = (vec![0; 256 * 1024], 0, 0);
    while seen < events {
        let read = stream.connection.read(&mut bytes)?;
        ensure!(read > 0, "the stream ended");
        // An event ends with an empty line, which may be torn between two reads.
        for byte in &bytes[..read] {
            seen += u64::from(*byte == b'\n' && last == b'\n');
            last = *byte;
        }
    }
    Ok(per_second(events, start.elapsed().as_secs_f64()))
}

/// The database with its log of changes.
fn size_of(database: &Path) -> anyhow::Result<u64> {
    let wal = database.with_extension("db-wal");
    Ok(std::fs::metadata(database)?.len() + std::fs::metadata(wal).map_or(0, |wal| wal.len()))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
