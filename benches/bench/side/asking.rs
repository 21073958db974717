//! Clearances through a chat that answers at once, leg by leg: an agent that asks again as soon as it has its answer,
//! and a person who clicks as soon as the card is there.
//!
//! ```text
//!   agent asks ─► card's request ─► (its answer) ─► click ─► agent knows ─► card's edit
//! ```
//!
//! Slack takes a message per second in a channel after a burst of twenty, and intercom keeps to that. So each daemon
//! gets only as many clearances as fit into the burst, and many daemons follow one another.

use std::collections::HashSet;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intercom_testkit::slack::{Call, Clicked, FakeSlack};
use serde_json::{Value, json};

use crate::daemon::{PATIENCE, PERSON};
use crate::latency::now;

const MODE: &str = "--ask";
/// Clearances of one daemon: they fit into the burst next to the root of the thread.
pub(super) const EACH: usize = 16;
/// The first ones, which also open connections and threads, are not counted.
const WARM: usize = 2;

/// The times of all clearances, one list for each leg.
#[derive(Default)]
pub(super) struct Legs {
    pub(super) to_card: Vec<Duration>,
    pub(super) posting: Vec<Duration>,
    pub(super) to_agent: Vec<Duration>,
    pub(super) to_acknowledgement: Vec<Duration>,
    pub(super) to_edit: Vec<Duration>,
    pub(super) round_trip: Vec<Duration>,
}

/// The agent's command; its times are in the file when it has had all answers.
pub(super) fn command(times: &Path) -> anyhow::Result<Vec<String>> {
    let program = std::env::current_exe()?;
    let words = [program.as_path(), Path::new(MODE), times];
    Ok(words.iter().map(|word| word.to_string_lossy().into_owned()).collect())
}

/// The file for the times, if this process was started as the agent.
pub(crate) fn asked_to_ask() -> Option<String> {
    let mut args = std::env::args().skip(1);
    (args.next()? == MODE).then(|| args.next()).flatten()
}

/// The agent: asks, waits for the answer, asks again, and in the end writes down when.
pub(crate) fn ask(times: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let mut lines = std::io::stdin().lock().lines();
    let mut asked = Vec::new();
    for number in 0..EACH {
        let (id, params) = (title(number), json!({ "title": title(number), "risk_level": "low" }));
        let request = json!({ "method": "clearance/request", "id": id, "params": params });
        let begun = nanos(now());
        writeln!(stdout, "{request}")?;
        loop {
            let line = lines.next().context("stdin ended")??;
            let knows = nanos(now());
            if serde_json::from_str::<Value>(&line)?["id"] == id.as_str() {
                asked.push([begun, knows]);
                break;
            }
        }
    }
    let unfinished = format!("{times}.unfinished");
    std::fs::write(&unfinished, json!(asked).to_string())?;
    std::fs::rename(unfinished, times)?;
    lines.for_each(drop); // until the daemon lets go
    Ok(())
}

/// A number would be found in other numbers, too.
fn title(number: usize) -> String {
    format!("ask-{number:02}-")
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The person: clicks on each card as soon as Slack has taken it.
pub(super) fn click_all(slack: &FakeSlack) -> Vec<Clicked> {
    let mut seen = HashSet::new();
    let click_next = |_| {
        let card = slack.wait_until("the next card", |state| {
            let posted =
                state.calls.iter().enumerate().filter(|(_, call)| is_post(call) && call.answered.is_some());
            let (at, call) = posted.into_iter().find(|(at, call)| !seen.contains(at) && has_button(call))?;
            seen.insert(at);
            state.message(call.answer["ts"].as_str()?).cloned()
        });
        slack.click(PERSON, &card, "allow")
    };
    (0..EACH).map(click_next).collect()
}

fn is_post(call: &Call) -> bool {
    call.method == "chat.postMessage"
}

fn has_button(call: &Call) -> bool {
    call.args["blocks"].to_string().contains(r#""action_id":"allow""#)
}

impl Legs {
    /// Takes the times that the agent wrote down and those at Slack apart.
    pub(super) fn add(&mut self, times: &Path, slack: &FakeSlack, clicks: &[Clicked]) -> anyhow::Result<()> {
        let start = Instant::now();
        while !times.exists() {
            ensure!(start.elapsed() < PATIENCE, "the agent has not had all its answers");
            std::thread::sleep(Duration::from_millis(5));
        }
        let asked: Vec<[u64; 2]> = serde_json::from_str(&std::fs::read_to_string(times)?)?;
        let clock = Clock::new();
        for (number, [begun, knows]) in asked.into_iter().enumerate().skip(WARM) {
            let (begun, knows) = (Duration::from_nanos(begun), Duration::from_nanos(knows));
            let name = title(number);
            let about =
                |call: &Call, method: &str| call.method == method && call.args.to_string().contains(&name);
            let arrival = clicks.get(number).context("a card was not clicked")?;
            let clicked = arrival.delivery();
            let post = slack.wait_until("the card", |state| {
                state.calls.iter().find(|call| about(call, "chat.postMessage") && has_button(call)).cloned()
            });
            let edit = slack.wait_until("the edit of the card", |state| {
                let later = |call: &&Call| about(call, "chat.update") && call.at > clicked.made;
                state.calls.iter().find(later).cloned()
            });
            let answered = post.answered.context("a click is on a card that was answered")?;
            self.to_card.push(clock.of(post.at).saturating_sub(begun));
            self.posting.push(answered.duration_since(post.at));
            self.to_agent.push(knows.saturating_sub(clock.of(clicked.made)));
            self.to_acknowledgement.push(arrival.wait_acked().duration_since(clicked.made));
            self.to_edit.push(clock.of(edit.at).saturating_sub(knows));
            self.round_trip.push(knows.saturating_sub(begun));
        }
        let violations = slack.violations();
        ensure!(violations.is_empty(), "Slack refuses: {violations:?}");
        Ok(())
    }
}

/// The same moment on both clocks: that of this process, and that which the agent shares with it.
struct Clock {
    here: Instant,
    there: Duration,
}

impl Clock {
    fn new() -> Self {
        Self { here: Instant::now(), there: now() }
    }

    fn of(&self, moment: Instant) -> Duration {
        self.there.saturating_sub(self.here.saturating_duration_since(moment))
    }
}
