//! An agent asks again and again, and an operator who watches its log decides at once.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intercom_testkit::client::Connection;
use intercom_testkit::harness::fixture;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::report::{Report, percentile};

/// The agent has its answer, and asks again, before the first decision is confirmed: a second one must not wait for it.
const DECIDERS: usize = 2;
/// Every transaction of a flooded writer takes its time; fewer are enough.
const FEWER: u64 = 5;

pub(crate) fn round(daemon: &Daemon, count: u64, report: &mut Report) -> anyhow::Result<()> {
    measure(daemon, "clearance", count, Some("< 5"), report)?;
    // Somebody else's agent that talks as fast as it can must cost this one little.
    beside_floods(daemon, 1, count / FEWER, None, report)
}

/// Beside so many agents that talk as fast as they can.
pub(crate) fn beside_floods(
    daemon: &Daemon,
    floods: usize,
    count: u64,
    target: Option<&'static str>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let flood = |_| daemon.run(&fixture(), &["flood:1000000000".to_owned()]);
    let floods = (0..floods).map(flood).collect::<anyhow::Result<Vec<String>>>()?;
    let what = match floods.len() {
        1 => "clearance beside a flood".to_owned(),
        many => format!("clearance beside {many} floods"),
    };
    measure(daemon, &what, count, target, report)?;
    floods.iter().try_for_each(|flood| daemon.end(flood, "kill"))
}

pub(crate) fn measure(
    daemon: &Daemon,
    what: &str,
    count: u64,
    target: Option<&'static str>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let name = &daemon.build.name;
    let (answers, trips) = decide_all(daemon, count)?;
    let micros = |key: &str| trips[key].as_f64().with_context(|| format!("no {key} in {trips}"));
    let mut add = |figure: &str, percent: usize, millis: f64| {
        let figure = format!("{what}: {figure}, p{percent}{name}");
        report.put(figure, "ms", millis, target.filter(|_| percent == 99));
    };
    for percent in [50, 99] {
        add("decision to its answer", percent, percentile(&answers, percent));
    }
    for percent in [50, 99] {
        add("agent asks to agent knows", percent, micros(&format!("p{percent}_us"))? / 1000.0);
    }
    Ok(())
}

/// How long each decision took, and what the agent says of its side.
pub(crate) fn decide_all(daemon: &Daemon, count: u64) -> anyhow::Result<(Vec<Duration>, Value)> {
    let (asked, pending) = mpsc::channel::<String>();
    let pending = Arc::new(Mutex::new(pending));
    let deciders: Vec<_> = (0..DECIDERS)
        .map(|_| {
            let (client, pending) = (daemon.client()?, Arc::clone(&pending));
            Ok(thread::spawn(move || decide(client, &pending)))
        })
        .collect::<anyhow::Result<_>>()?;
    let steps = [format!("clearance-loop:{count}"), "expect:session/interrupt".to_owned()];
    let session = daemon.run(&fixture(), &steps)?;
    let mut events = daemon.follow(&session)?;
    let trips = loop {
        let event = events.event()?.context("the stream of events ended")?;
        match event["kind"].as_str() {
            Some("clearance.requested") => {
                let id = event["data"]["clearance"].as_str().context("a clearance has an id")?;
                asked.send(id.to_owned()).context("the deciders have gone")?;
            }
            Some("status") => break event["data"].clone(),
            _ => {}
        }
    };
    drop(asked);
    let mut answers = Vec::new();
    for decider in deciders {
        answers.extend(decider.join().ok().context("a decider panicked")??);
    }
    ensure!(answers.len() as u64 == count, "{} decisions of {count}", answers.len());
    daemon.end(&session, "stop")?;
    Ok((answers, trips))
}

fn decide(mut client: Connection, pending: &Mutex<mpsc::Receiver<String>>) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    loop {
        let next = pending.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(clearance) = next else { return Ok(times) };
        let path = format!("/api/v1/clearances/{clearance}/decision");
        let start = Instant::now();
        let (status, body) = client.post(&path, &json!({ "decision": "approve" }))?;
        times.push(start.elapsed());
        ensure!(status == 200 && body["delivery"] == "delivered", "{status} {body}");
    }
}
