//! From an agent's stdout to whoever watches the log. The agent is this program itself: it says when it spoke.

use std::io::Write;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use serde_json::json;

use crate::daemon::Daemon;
use crate::report::Report;

const TICK: &str = "--tick";
/// Until its reader has arrived, the agent says nothing.
const PAUSE: Duration = Duration::from_millis(50);
/// Slow enough that each message travels alone.
const PACE: Duration = Duration::from_millis(2);

pub(crate) fn round(daemon: &Daemon, ticks: u64, report: &mut Report) -> anyhow::Result<()> {
    let session = daemon.run(&std::env::current_exe()?, &[TICK.to_owned(), ticks.to_string()])?;
    let mut events = daemon.follow(&session)?;
    let mut times = Vec::new();
    for _ in 0..ticks {
        let event = events.until(|event| event["kind"] == "status")?;
        let spoke = event["data"]["message"].as_str().and_then(|text| text.parse().ok());
        times.push(now().saturating_sub(Duration::from_nanos(spoke.context("not a tick")?)));
    }
    events.until(|event| event["kind"] == "session.ended")?;
    let name = &daemon.build.name;
    report.add_percentile(format!("event: agent's stdout to a watcher, p50{name}"), &times, 50);
    report.add_percentile(format!("event: agent's stdout to a watcher, p99{name}"), &times, 99);
    Ok(())
}

/// Both ends of the measurement are on one machine and read one clock.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// How often to tick, if this process was started as the agent.
pub(crate) fn asked_to_tick() -> Option<u64> {
    let mut args = std::env::args().skip(1);
    (args.next()? == TICK).then(|| args.next()?.parse().ok()).flatten()
}

/// The agent: a status with the time, again and again.
pub(crate) fn tick(ticks: u64) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    std::thread::sleep(PAUSE);
    for _ in 0..ticks {
        std::thread::sleep(PACE);
        let message = json!({ "message": now().as_nanos().to_string() });
        writeln!(stdout, "{}", json!({ "method": "status/update", "params": message }))?;
    }
    Ok(())
}
