//! From an agent's stdout to whoever watches the log. The agent is this program itself: it says when it spoke.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use serde_json::json;

use crate::daemon::Daemon;
use crate::report::Report;

const TICK: &str = "--tick";
/// Until its reader has arrived, the agent says nothing.
const PAUSE: Duration = Duration::from_millis(50);
/// Slow enough that each message travels alone.
const PACE: Duration = Duration::from_millis(2);
/// Before the time in a message.
pub(crate) const MARK: &str = r#""message":""#;

pub(crate) fn round(daemon: &Daemon, ticks: u64, report: &mut Report) -> anyhow::Result<()> {
    let session = start(daemon, ticks, PACE, PAUSE)?;
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

/// Starts an agent that ticks at this pace after a pause, in which its readers arrive; its session.
pub(crate) fn start(daemon: &Daemon, ticks: u64, pace: Duration, pause: Duration) -> anyhow::Result<String> {
    let numbers = [ticks.to_string(), pace.as_micros().to_string(), pause.as_micros().to_string()];
    let args: Vec<String> = [TICK.to_owned()].into_iter().chain(numbers).collect();
    daemon.run(&std::env::current_exe()?, &args)
}

/// How often to tick, at which pace and after which pause, if this process was started as the agent.
pub(crate) fn asked_to_tick() -> Option<(u64, Duration, Duration)> {
    let mut args = std::env::args().skip(1);
    if args.next()? != TICK {
        return None;
    }
    let mut number = || args.next()?.parse::<u64>().ok();
    let (ticks, pace, pause) = (number()?, number()?, number()?);
    Some((ticks, Duration::from_micros(pace), Duration::from_micros(pause)))
}

/// The agent: a status with the time, again and again. It keeps its pace also where a sleep takes longer than asked.
pub(crate) fn tick((ticks, pace, pause): (u64, Duration, Duration)) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    std::thread::sleep(pause);
    let mut due = Instant::now();
    for _ in 0..ticks {
        due += pace;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let message = json!({ "message": now().as_nanos().to_string() });
        writeln!(stdout, "{}", json!({ "method": "status/update", "params": message }))?;
    }
    Ok(())
}
