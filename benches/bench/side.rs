//! Next to a daemon that keeps nothing: intercom and the reference in turns, in the same rounds, connected to the same
//! imitation of Slack, which answers at once.

mod asking;
mod host;

use anyhow::Context;
use intercom_testkit::harness::fixture;
use intercom_testkit::slack::FakeSlack;

use crate::daemon::{Build, Daemon};
use crate::flood::{self, Flood, Flooded};
use crate::report::{Report, Row, Target, percentile};
use crate::{process, turns};

use asking::Legs;
pub(crate) use asking::{ask, asked_to_ask};
use host::Reference;

const REFERENCE: &str = "reference";
const SESSIONS: usize = 50;

/// Who is measured.
enum Side<'a> {
    Intercom(&'a Build),
    Reference,
}

impl Side<'_> {
    fn column(&self) -> String {
        match self {
            Self::Intercom(build) => format!("intercom{}", build.name),
            Self::Reference => REFERENCE.to_owned(),
        }
    }
}

/// What is said, and how often.
pub(crate) struct Sides {
    lines: u64,
    short: Flood,
    long: Flood,
    /// Daemons that follow one another, each with a few clearances.
    daemons: usize,
}

impl Sides {
    pub(crate) fn new(lines: u64, daemons: usize) -> anyhow::Result<Self> {
        Ok(Self { lines, short: Flood::lines(lines, 100)?, long: Flood::lines(lines, 200)?, daemons })
    }

    pub(crate) fn round(&self, builds: &[Build], round: usize, report: &mut Report) -> anyhow::Result<()> {
        let sides: Vec<Side> = builds.iter().map(Side::Intercom).chain([Side::Reference]).collect();
        let bare = self.short.bare()?;
        for side in turns(&sides, round) {
            let column = side.column();
            self.talk(side, bare, report).with_context(|| format!("lines: {column}"))?;
            let legs = ask_often(side, self.daemons).with_context(|| format!("clearances: {column}"))?;
            legs.report(&column, report);
            remember(side, report).with_context(|| format!("memory: {column}"))?;
        }
        Ok(())
    }

    fn talk(&self, side: &Side, bare: f64, report: &mut Report) -> anyhow::Result<()> {
        let Self { lines, short, long, .. } = self;
        let column = side.column();
        let slack = FakeSlack::start();
        let short_in_chat = flood(side, Some(&slack), &short.step(), *lines)?;
        let long_in_chat = flood(side, Some(&slack), &long.step(), *lines)?;
        drop(slack);
        let short_alone = flood(side, None, &short.step(), *lines)?;
        let long_alone = flood(side, None, &long.step(), *lines)?;
        let mut add = |name: &str, unit, target, sample| {
            report.compare(
                Row { name: name.to_owned(), unit, target, reference: REFERENCE },
                &column,
                sample,
            );
        };
        let faster = Some(Target::Ratio(">= 1.2"));
        add("lines of 100 bytes, chat on, until durable", "/s", faster, short_in_chat.rate);
        add("lines of 200 bytes, chat on, until durable", "/s", faster, long_in_chat.rate);
        let alone = Some(Target::Value("<= 1.5"));
        add("processor time per line of 200 bytes, chat on", "µs", None, long_in_chat.cpu_micros);
        add("processor time per line of 200 bytes, no chat", "µs", alone, long_alone.cpu_micros);
        let both = long_in_chat.cpu_micros / long_alone.cpu_micros;
        add("… with the chat, of that without", "×", Some(Target::Value("<= 1.1")), both);
        add("lines of 100 bytes, no chat", "/s", None, short_alone.rate);
        let of_bare = Some(Target::Value(">= 0.12"));
        add("… of the bare loop, borrowed envelope", "×", of_bare, short_alone.rate / bare);
        Ok(())
    }
}

fn flood(side: &Side, chat: Option<&FakeSlack>, step: &str, lines: u64) -> anyhow::Result<Flooded> {
    match side {
        Side::Intercom(build) => flood::flood(Daemon::start_in_chat(build, chat)?, step, "status", lines),
        Side::Reference => host::flood(chat, step, lines),
    }
}

fn ask_often(side: &Side, daemons: usize) -> anyhow::Result<Legs> {
    let mut legs = Legs::default();
    for _ in 0..daemons {
        let dir = tempfile::tempdir()?;
        let times = dir.path().join("times.json");
        let command = asking::command(&times)?;
        let slack = FakeSlack::start();
        match side {
            Side::Intercom(build) => {
                let daemon = Daemon::start_in_chat(build, Some(&slack))?;
                daemon.run(command[0].as_ref(), &command[1..])?;
                legs.add(&times, &slack, &asking::click_all(&slack))?;
            }
            Side::Reference => {
                let reference = Reference::start(Some(&slack), 1, &command)?;
                legs.add(&times, &slack, &asking::click_all(&slack))?;
                drop(reference);
            }
        }
    }
    Ok(legs)
}

impl Legs {
    fn report(&self, column: &str, report: &mut Report) {
        let no_slower = Some(Target::Ratio("<= 1"));
        let legs = [
            ("agent asks to card's request", &self.to_card, no_slower),
            ("… card's request to its answer", &self.posting, None),
            ("click to agent knows", &self.to_agent, no_slower),
            ("… click to acknowledgement", &self.to_acknowledgement, None),
            ("… agent knows to card's edit", &self.to_edit, None),
            ("agent asks to agent knows", &self.round_trip, no_slower),
        ];
        for (leg, times, target) in legs {
            for percent in [50, 99] {
                let name = format!("clearance in chat: {leg}, p{percent}");
                let row = Row { name, unit: "ms", target, reference: REFERENCE };
                report.compare(row, column, percentile(times, percent));
            }
        }
    }
}

/// Memory with agents that have said hello and wait, in MiB.
fn remember(side: &Side, report: &mut Report) -> anyhow::Result<()> {
    let slack = FakeSlack::start();
    let (private, shared) = match side {
        Side::Intercom(build) => {
            let daemon = Daemon::start_in_chat(build, Some(&slack))?;
            daemon.open_idle(SESSIONS)?;
            daemon.settled_rss_kib()?;
            (daemon.private_kib()?, daemon.pss_kib()?)
        }
        Side::Reference => {
            let fixture = fixture();
            let idle = [&fixture.to_string_lossy(), "status:hello", "expect:session/interrupt"];
            let reference = Reference::start(Some(&slack), SESSIONS, &idle.map(str::to_owned))?;
            reference.memory(process::settled_rss_kib)?;
            (reference.memory(process::private_kib)?, reference.memory(process::pss_kib)?)
        }
    };
    let mut add = |what: &str, target, kib: f64| {
        let name = format!("memory with {SESSIONS} sessions, shims included, {what}");
        report.compare(Row { name, unit: "MiB", target, reference: REFERENCE }, &side.column(), kib / 1024.0);
    };
    add("private", None, private);
    add("PSS", Some(Target::Value("<= 45")), shared);
    Ok(())
}
