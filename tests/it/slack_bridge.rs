//! The Slack bridge against a Slack of our own: real binary, real agents, real sockets.

use std::path::Path;

use intercom_testkit::harness::{self, Daemon, home};
use intercom_testkit::slack::{APP_TOKEN, BOT_TOKEN, CHANNEL, FakeSlack, Message};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

mod aside;
mod attack;
mod cards;
mod flood;
mod killed;
mod people;
mod soak;
mod speed;
mod trouble;

/// Who is who: ana approves, root may everything, vic looks on, and nobody knows eve.
const ANA: &str = "U0ANA";
const BO: &str = "U0BO";
const ROOT: &str = "U0ROOT";
const VIC: &str = "U0VIC";
const EVE: &str = "U0EVE";

const OPERATORS: &str = r#"
[[operator]]
name = "ana"
role = "approver"
slack = "U0ANA"
[[operator]]
name = "bo"
role = "approver"
slack = "U0BO"
[[operator]]
name = "root"
role = "admin"
slack = "U0ROOT"
[[operator]]
name = "vic"
role = "viewer"
slack = "U0VIC"
"#;

/// A daemon and its Slack.
struct Office {
    slack: Strict,
    daemon: Daemon,
}

/// A Slack to which nothing may be sent that breaks a rule.
struct Strict(FakeSlack);

impl std::ops::Deref for Strict {
    type Target = FakeSlack;

    fn deref(&self) -> &FakeSlack {
        &self.0
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.0.violations(), [] as [String; 0]);
        }
    }
}

/// `slack` goes into `[slack]`, `more` below it.
fn config(api: &FakeSlack, slack: &str, more: &str) -> String {
    format!(
        "{more}\n{OPERATORS}\n[slack]\nchannel = \"{CHANNEL}\"\napi_url = \"{}\"\ntimeout_seconds = 2\nreconnect_seconds = 1\n{slack}\n",
        api.api_url()
    )
}

fn tokens() -> [(&'static str, &'static str); 2] {
    [("INTERCOM_SLACK_APP_TOKEN", APP_TOKEN), ("INTERCOM_SLACK_BOT_TOKEN", BOT_TOKEN)]
}

impl Office {
    fn open() -> Self {
        Self::with("", "")
    }

    fn with(slack: &str, more: &str) -> Self {
        let office = Self::unconnected(FakeSlack::start(), slack, more);
        office.slack.wait_connected(1);
        office
    }

    fn unconnected(slack_server: FakeSlack, slack: &str, more: &str) -> Self {
        let dir = home(&config(&slack_server, slack, more));
        let daemon = Daemon::start_in(dir, &[], &tokens());
        let payloads = Path::new(env!("CARGO_TARGET_TMPDIR")).join("slack-payloads");
        std::fs::create_dir_all(&payloads).unwrap();
        let name = std::thread::current().name().unwrap_or("unnamed").replace("::", "-");
        slack_server.write_payloads_to(&payloads.join(format!("{name}.jsonl")));
        Self { slack: Strict(slack_server), daemon }
    }

    /// Kills the daemon, and starts the next one in its place.
    fn restart(self, signal: Signal) -> Self {
        let Self { slack, daemon } = self;
        let (dir, _) = daemon.end(signal);
        slack.wait_until("nobody to be there", |state| state.sockets.is_empty().then_some(()));
        let daemon = Daemon::start_in(dir, &[], &tokens());
        Self { slack, daemon }
    }

    /// The root of a session's thread, once it is there.
    fn root(&self, session: &str) -> Message {
        self.slack.message_with(|message| key(message) == session)
    }

    /// The card of a clearance or a question, once it is there.
    fn card(&self, id: &str) -> Message {
        self.slack.message_with(|message| key(message) == id)
    }

    /// A card as it is once this holds.
    fn card_when(&self, id: &str, wanted: impl Fn(&Message) -> bool) -> Message {
        self.slack.message_with(|message| key(message) == id && wanted(message))
    }

    fn says(&self, session: &str, text: &str) -> Message {
        let root = self.root(session).ts;
        self.slack.message_with(|message| {
            message.thread_ts.as_deref() == Some(root.as_str()) && shown(message).contains(text)
        })
    }
}

/// The name that we gave it.
fn key(message: &Message) -> &str {
    message.blocks.pointer("/0/block_id").and_then(Value::as_str).unwrap_or_default()
}

/// All of its text, as JSON.
fn shown(message: &Message) -> String {
    message.blocks.to_string()
}

fn buttons(message: &Message) -> Vec<String> {
    let elements = message.elements().into_iter();
    elements.filter_map(|(_, element)| element["action_id"].as_str().map(str::to_owned)).collect()
}

/// An agent that asks for one clearance and tells the answer.
const ASKS: &[&str] = &[
    r#"clearance:c1:{"title":"Edit main.rs","file_path":"src/main.rs","risk_level":"medium"}"#,
    "answer:c1",
    "serve",
];

fn answered(office: &Office, session: &str) -> Value {
    let told = office.daemon.wait_for(session, "the agent's word", |event| {
        event["kind"] == "status" && event["data"]["message"] == "answered"
    });
    told["data"].clone()
}

fn pending(office: &Office, clearance: &str) -> bool {
    office.daemon.get(&format!("/api/v1/clearances/{clearance}")).1["status"] == "pending"
}

fn audit(office: &Office, action: &str) -> Vec<Value> {
    let ran = office.daemon.cli(&["audit", "--json"]).ok();
    let rows = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or(json!(null)));
    rows.filter(|row| row["action"] == action).collect()
}

/// A number of the metrics.
fn figure(daemon: &Daemon, name: &str) -> u64 {
    let text = harness::http(&daemon.socket(), "GET", "/metrics", None, &[]).1;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
}
