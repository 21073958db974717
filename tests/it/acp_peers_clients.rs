//! Clients that are nobody's but their authors': on the Python, TypeScript and Rust SDKs, and acpx.
//!
//! One happy path each here; all transports, scenarios and agents with `INTERCOM_TEST_MATRIX`, as `scripts/test-full` has
//! it. `tests/peers/python/client.py` says what the clients do.

use std::process::Command;

use intercom_testkit::client::Place;
use intercom_testkit::harness::{Daemon, PORT, Ran, run};
use intercom_testkit::seats::{fixture, words};
use serde_json::Value;

use crate::INTERCOM;
use crate::peers::peer;

const CLIENTS: [&str; 3] = ["python-client", "node-client", "rust-client"];
const SCENARIOS: [&str; 7] = ["new", "prompt", "permission", "deny", "cancel", "load", "list"];

fn matrix() -> bool {
    std::env::var_os("INTERCOM_TEST_MATRIX").is_some()
}

/// A daemon with both kinds of agents, and a port.
struct Host {
    daemon: Daemon,
    address: String,
    token: String,
}

impl Host {
    /// Clients from afar get this agent.
    fn with(agent: &str) -> Self {
        let daemon = Daemon::quick(&format!("{}[acp_server]\nagent = '{agent}'\n{PORT}", fixture(&[])));
        let Place::Port { address, token: Some(token) } = Place::port(&daemon, "admin") else { panic!() };
        Self { daemon, address, token }
    }

    /// What a client gets to see of the world.
    fn command(&self, name: &str) -> Command {
        let dir = self.daemon.dir.path();
        let mut command = Command::new(peer(name));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", dir)
            .env("INTERCOM_STATE_DIR", dir.join("state"))
            .env("INTERCOM_CONFIG", dir.join("config.toml"))
            .current_dir(self.daemon.workspace());
        command
    }

    fn play(&self, client: &str, transport: &str, agent: &str, scenario: &str) -> Ran {
        let target = match transport {
            "stdio" => format!("{INTERCOM} acp --agent {agent}"),
            "ws" => format!("ws://{}/acp", self.address),
            _ => format!("http://{}/acp", self.address),
        };
        let mut command = self.command(client);
        if transport != "stdio" {
            command.env("INTERCOM_TOKEN", &self.token);
        }
        run(command.args([transport, &target, scenario, script(agent, scenario)]))
    }

    /// It goes as the scenario wants, or the SDK has no such thing.
    #[track_caller]
    fn plays(&self, client: &str, transport: &str, agent: &str, scenario: &str) -> Vec<Value> {
        let ran = self.play(client, transport, agent, scenario);
        let what = format!("{client} {transport} {agent} {scenario}");
        if ran.code == 3 {
            assert!(!ran.stderr.trim().is_empty(), "{what}: without a reason");
            return Vec::new();
        }
        let log = self.daemon.log();
        assert_eq!(ran.code, 0, "{what}: {}\n{}\nthe daemon said: {log}", ran.stderr, ran.stdout);
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// What the agent is prompted with.
fn script(agent: &str, scenario: &str) -> &'static str {
    match (agent, scenario) {
        ("demo", _) => "good morning",
        (_, "permission" | "deny") => "say:may I?;permission::run:make;say:done",
        (_, "cancel") => "say:working;hang",
        _ => "say:good;say: morning",
    }
}

fn saw<'a>(lines: &'a [Value], what: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["saw"] == what).collect()
}

fn said(lines: &[Value]) -> String {
    let updates: Vec<Value> = saw(lines, "update").into_iter().map(|line| line["update"].clone()).collect();
    words(&updates).concat()
}

#[test]
fn a_client_on_each_sdk_has_its_prompt_answered_over_stdio() {
    let host = Host::with("fixture");
    for client in CLIENTS {
        let lines = host.plays(client, "stdio", "fixture", "prompt");
        assert_eq!(said(&lines), "good morning", "{client}: {lines:?}");
        assert_eq!(saw(&lines, "stop")[0]["reason"], "end_turn", "{client}");
        assert!(
            saw(&lines, "initialize")[0]["result"]["agentCapabilities"]["loadSession"] == true,
            "{client}"
        );
    }
}

#[test]
fn clients_come_over_http_and_websocket_as_well() {
    let host = Host::with("fixture");
    for client in ["python-client", "node-client"] {
        for transport in ["http", "ws"] {
            let lines = host.plays(client, transport, "fixture", "permission");
            assert!(said(&lines).starts_with("may I?"), "{client} {transport}: {lines:?}");
            assert!(said(&lines).ends_with("done"), "{client} {transport}: {lines:?}");
            assert_eq!(saw(&lines, "permission").len(), 1, "{client} {transport}: {lines:?}");
        }
    }
}

#[test]
fn every_client_does_everything_over_every_transport_with_every_agent() {
    if !matrix() {
        return;
    }
    for agent in ["fixture", "demo"] {
        let host = Host::with(agent);
        std::thread::scope(|scope| {
            for client in CLIENTS {
                let host = &host;
                scope.spawn(move || everything(host, client, agent));
            }
        });
    }
}

fn everything(host: &Host, client: &str, agent: &str) {
    for transport in ["stdio", "http", "h2c", "ws"] {
        for scenario in SCENARIOS {
            let lines = host.plays(client, transport, agent, scenario);
            let (what, permissions) = (format!("{client} {transport}: {lines:?}"), saw(&lines, "permission"));
            match (agent, scenario) {
                _ if lines.is_empty() => assert!(client != "python-client" && transport == "h2c", "{what}"),
                ("fixture", "deny") => {
                    assert_eq!(permissions[0]["answer"]["optionId"], "reject_once", "{what}");
                    assert!(said(&lines).contains("reject_once"), "{what}");
                }
                ("demo", "permission") => {
                    // A question and two clearances; and a plan for its heartbeats.
                    assert!(permissions.len() >= 3, "{what}");
                    let is_plan = |line: &&Value| line["update"]["sessionUpdate"] == "plan";
                    assert!(saw(&lines, "update").iter().any(is_plan), "{what}");
                }
                _ => {}
            }
        }
    }
}

/// `exec` with acpx: what it printed as JSON.
fn exec(host: &Host, agent: &str, prompt: &str) -> Vec<Value> {
    let target = format!("{INTERCOM} acp --agent {agent}");
    let mut command = host.command("acpx");
    let ran = run(command.args(["--approve-all", "--format", "json", "--agent", &target, "exec", prompt]));
    assert_eq!(ran.code, 0, "{ran:?}; the daemon said: {}", host.daemon.log());
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn acpx_prompts_an_agent_that_we_host_and_finds_its_session_in_the_list() {
    let host = Host::with("fixture");
    let lines = exec(&host, "fixture", "say:from acpx;permission::run:make;say:done");
    let updates: Vec<Value> = lines.iter().map(|line| line["params"]["update"].clone()).collect();
    let words = words(&updates);
    assert!(words.first().is_some_and(|word| word == "from acpx"), "{lines:?}");
    assert!(words.last().is_some_and(|word| word == "done"), "{lines:?}");
    assert_eq!(lines.last().unwrap()["result"]["stopReason"], "end_turn");
    let session = lines.iter().find_map(|line| line["result"]["sessionId"].as_str()).unwrap();
    let target = format!("{INTERCOM} acp --agent fixture");
    let list = run(host.command("acpx").args(["--agent", &target, "sessions", "list"])).ok();
    assert!(list.stdout.contains(session), "{list:?}");
}

/// The command of the issue.
#[test]
fn acpx_hears_the_story_of_the_demo() {
    let host = Host::with("demo");
    let lines = exec(&host, "demo", "good morning");
    let text = lines.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("I am the demo agent"), "{text}");
    assert_eq!(lines.last().unwrap()["result"]["stopReason"], "end_turn", "{text}");
}
