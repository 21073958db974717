//! From an ACP agent's stdout to ACP clients: how long a chunk takes with one session and with many, and beside clients
//! that read nothing; and what clients that do nothing cost. The agent is this program itself: it says when it spoke.

use std::io::{BufRead, Write};
use std::sync::Barrier;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::daemon::{Build, Daemon};
use crate::latency::now;
use crate::process;
use crate::report::{Report, percentile};
use crate::websocket::Seat;

const TICK: &str = "--tick-acp";
/// Words that an agent speaks in a second, as the faster models do.
const PACE: Duration = Duration::from_millis(50);
/// A chunk with all that goes with it.
const CHUNK: usize = 2048;
/// Clients that read nothing, and how many sessions each of them is attached to.
const SLOW: usize = 10;
const ATTACHED: usize = 10;

pub(crate) fn round(build: &Build, many: usize, ticks: usize, report: &mut Report) -> anyhow::Result<()> {
    let name = &build.name;
    let daemon = Daemon::start(build)?;
    let sessions = daemon.open_acp(many, &std::env::current_exe()?, &[TICK.to_owned()])?;
    let what = "chunk: agent's stdout to a WebSocket client";

    let one = listen(&daemon, &sessions[..1], ticks * 5)?;
    report.add_percentile(format!("{what}, 1 session, p50{name}"), &one, 50);
    report.add_percentile(format!("{what}, 1 session, p99{name}"), &one, 99);

    let all = listen(&daemon, &sessions, ticks)?;
    report.add_percentile(format!("{what}, {many} sessions, p50{name}"), &all, 50);
    let p99 = percentile(&all, 99);
    report.add_target(format!("{what}, {many} sessions, p99{name}"), "ms", p99, "< 20");

    // As many deliveries, once with clients that take them and once with clients that do not.
    let p99 = percentile(&beside(&daemon, &sessions, ticks, true)?, 99);
    let p99_slow = percentile(&beside(&daemon, &sessions, ticks, false)?, 99);
    let others = format!("{many} sessions beside {SLOW} more clients");
    report.add(format!("{what}, {others}, p99{name}"), "ms", p99);
    report.add_target(format!("{what}, {others} that read nothing, p99{name}"), "ms", p99_slow, "< 20");
    report.add(
        format!("p99 beside clients that read nothing, of that beside those that do{name}"),
        "x",
        p99_slow / p99,
    );
    Ok(())
}

/// The same beside clients that are attached to several sessions each, and read what comes, or nothing ever: then their
/// buffers are full long before the end.
fn beside(daemon: &Daemon, sessions: &[String], ticks: usize, read: bool) -> anyhow::Result<Vec<Duration>> {
    let others =
        (0..SLOW).map(|number| onlooker(daemon, sessions, number)).collect::<anyhow::Result<Vec<Seat>>>()?;
    let handles: Vec<_> = others.iter().map(Seat::handle).collect();
    std::thread::scope(|scope| {
        let mut idle = Vec::new();
        for mut other in others {
            if read {
                scope.spawn(move || while other.next().is_ok() {});
            } else {
                idle.push(other);
            }
        }
        let times = listen(daemon, sessions, ticks);
        for handle in handles {
            handle.hang_up();
        }
        times
    })
}

/// What so many clients cost that have introduced themselves, and that are attached to a session.
pub(crate) fn idle(build: &Build, clients: usize, report: &mut Report) -> anyhow::Result<()> {
    let name = &build.name;
    process::raise_file_limit()?;
    let daemon = Daemon::start(build)?;
    let sessions = daemon.open_acp(1, &std::env::current_exe()?, &[TICK.to_owned()])?;
    // Whatever the first ones bring along is not theirs.
    let warm = (0..20).map(|_| Seat::open(&daemon.socket())).collect::<anyhow::Result<Vec<Seat>>>()?;
    let before = daemon.settled_rss_kib()?;
    let mut seats =
        (0..clients).map(|_| Seat::open(&daemon.socket())).collect::<anyhow::Result<Vec<Seat>>>()?;
    let connected = daemon.settled_rss_kib()?;
    for seat in &mut seats {
        seat.ask("session/resume", &attach(&daemon, &sessions[0]))?;
    }
    let attached = daemon.settled_rss_kib()?;
    let each = f64::from(u32::try_from(clients)?);
    let figure = (connected - before) / each;
    report.add_target(format!("memory (RSS) per idle client of {clients}{name}"), "KiB", figure, "< 64");
    let figure = (attached - before) / each;
    report.add_target(format!("memory (RSS) per attached client of {clients}{name}"), "KiB", figure, "< 128");
    drop((seats, warm));
    Ok(())
}

fn attach(daemon: &Daemon, session: &str) -> Value {
    json!({ "sessionId": session, "cwd": daemon.workspace(), "mcpServers": [] })
}

/// Attached to some sessions.
fn onlooker(daemon: &Daemon, sessions: &[String], number: usize) -> anyhow::Result<Seat> {
    let mut seat = Seat::open(&daemon.socket())?;
    for session in sessions.iter().cycle().skip(number * ATTACHED).take(ATTACHED.min(sessions.len())) {
        seat.ask("session/resume", &attach(daemon, session))?;
    }
    Ok(seat)
}

/// One client for each session; how long each chunk was on its way.
fn listen(daemon: &Daemon, sessions: &[String], ticks: usize) -> anyhow::Result<Vec<Duration>> {
    let together = Barrier::new(sessions.len());
    std::thread::scope(|scope| {
        // As strangers speak: not all at the same moment.
        let count = u32::try_from(sessions.len().max(1)).unwrap_or(u32::MAX);
        let offsets = (0..count).map(|number| PACE * number / count);
        let threads: Vec<_> = sessions
            .iter()
            .zip(offsets)
            .map(|(session, offset)| {
                let together = &together;
                scope.spawn(move || hear(daemon, session, ticks, offset, together))
            })
            .collect();
        let mut times = Vec::new();
        for thread in threads {
            times.extend(thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??);
        }
        Ok(times)
    })
}

fn hear(
    daemon: &Daemon,
    session: &str,
    ticks: usize,
    offset: Duration,
    together: &Barrier,
) -> anyhow::Result<Vec<Duration>> {
    let ready = attached(daemon, session);
    together.wait();
    let mut seat = ready?;
    let text = json!([{ "type": "text", "text": format!("{ticks} {}", offset.as_micros()) }]);
    let id = seat.begin("session/prompt", &json!({ "sessionId": session, "prompt": text }));
    let mut times = Vec::with_capacity(ticks);
    loop {
        let bytes = seat.next()?;
        let heard = now();
        let message: Value = serde_json::from_slice(&bytes)?;
        if message["id"] == id {
            ensure!(message["result"]["stopReason"] == "end_turn", "{message}");
            ensure!(times.len() == ticks, "{} of {ticks} chunks", times.len());
            return Ok(times);
        }
        let text = message["params"]["update"]["content"]["text"].as_str();
        let update = message["params"]["update"]["sessionUpdate"].as_str();
        if let (Some(text), Some("agent_message_chunk")) = (text, update) {
            let spoke = text.split(' ').next().and_then(|text| text.parse().ok()).context("not a tick")?;
            times.push(heard.saturating_sub(Duration::from_nanos(spoke)));
        }
    }
}

fn attached(daemon: &Daemon, session: &str) -> anyhow::Result<Seat> {
    let mut seat = Seat::open(&daemon.socket())?;
    seat.ask("session/resume", &attach(daemon, session))?;
    Ok(seat)
}

/// Whether this process was started as the agent.
pub(crate) fn asked_to_tick() -> bool {
    std::env::args().nth(1).is_some_and(|arg| arg == TICK)
}

/// The agent: a prompt says how many chunks are to follow, each with the time, and how many microseconds to wait before them.
pub(crate) fn tick() -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let pad = "x".repeat(CHUNK);
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else { continue };
        let result = match method {
            "initialize" => json!({ "protocolVersion": 1, "agentCapabilities": {}, "authMethods": [] }),
            "session/new" => json!({ "sessionId": "ticks" }),
            "session/prompt" => {
                let script = message["params"]["prompt"][0]["text"].as_str().unwrap_or_default();
                let (ticks, offset) = script.split_once(' ').context("no script")?;
                std::thread::sleep(Duration::from_micros(offset.parse()?));
                for _ in 0..ticks.parse::<usize>()? {
                    std::thread::sleep(PACE);
                    let content = json!({ "type": "text", "text": format!("{} {pad}", now().as_nanos()) });
                    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
                    let params = json!({ "sessionId": "ticks", "update": update });
                    writeln!(
                        stdout,
                        "{}",
                        json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })
                    )?;
                }
                json!({ "stopReason": "end_turn" })
            }
            _ => json!({}),
        };
        writeln!(stdout, "{}", json!({ "jsonrpc": "2.0", "id": id, "result": result }))?;
    }
    Ok(())
}
