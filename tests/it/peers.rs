//! Agents that are nobody's but their authors': on the Python and TypeScript SDKs, hosted like any other.

use std::path::{Path, PathBuf};

use intercom_testkit::harness::{Daemon, of_kind, wait_turns};
use serde_json::json;

use crate::INTERCOM;

/// Installed by `scripts/peers`.
pub(crate) fn peer(name: &str) -> PathBuf {
    let target = Path::new(INTERCOM).ancestors().nth(2).unwrap();
    let path = target.join("peers/bin").join(name);
    assert!(path.exists(), "{} is missing: run `scripts/peers`", path.display());
    path
}

fn run(daemon: &Daemon, name: &str) -> String {
    let (status, session) = daemon.ask_to_start(json!({ "command": peer(name), "protocol": "acp" }));
    assert_eq!(status, 201, "{session}");
    let session = session["id"].as_str().unwrap().to_owned();
    daemon.wait_kind(&session, "agent.ready");
    session
}

/// Everything that the agent has said, in one text.
fn said(daemon: &Daemon, session: &str) -> String {
    let events = daemon.so_far(session);
    let updates = of_kind(&events, "update").into_iter().map(|event| &event["data"]["update"]);
    let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
}

/// The clearance that is open, once there is one.
fn open(daemon: &mut Daemon, session: &str) -> String {
    daemon.until("a clearance", |daemon| {
        let (_, list) = daemon.get(&format!("/api/v1/clearances?status=pending&session={session}"));
        list["items"][0]["id"].as_str().map(str::to_owned)
    })
}

#[test]
fn agents_on_both_sdks_are_prompted_asked_approved_denied_and_cancelled() {
    for name in ["python-agent", "node-agent"] {
        let mut daemon = Daemon::quick("");
        let session = run(&daemon, name);
        daemon.prompt(&session, "good morning");
        assert_eq!(wait_turns(&daemon, &session, 1)["data"]["stop_reason"], "end_turn");
        assert!(said(&daemon, &session).contains("good morning"), "{name}: {}", said(&daemon, &session));

        daemon.prompt(&session, "ask");
        let clearance = open(&mut daemon, &session);
        assert_eq!(daemon.decide(&clearance, "approve")["option"], "yes");
        wait_turns(&daemon, &session, 2);
        assert!(said(&daemon, &session).contains("allowed yes"), "{name}: {}", said(&daemon, &session));

        daemon.prompt(&session, "edit");
        let clearance = open(&mut daemon, &session);
        let (_, card) = daemon.get(&format!("/api/v1/clearances/{clearance}"));
        assert!(card["diff"].as_str().is_some_and(|diff| diff.contains("+++")), "{name}: {card}");
        assert_eq!(daemon.decide(&clearance, "deny")["option"], "no");
        wait_turns(&daemon, &session, 3);
        assert!(said(&daemon, &session).contains("rejected no"), "{name}: {}", said(&daemon, &session));

        daemon.prompt(&session, "ask");
        open(&mut daemon, &session);
        daemon.cli(&["interrupt", &session]).ok();
        assert_eq!(wait_turns(&daemon, &session, 4)["data"]["stop_reason"], "cancelled", "{name}");
        daemon.prompt(&session, "wait");
        daemon.cli(&["interrupt", &session]).ok();
        assert_eq!(wait_turns(&daemon, &session, 5)["data"]["stop_reason"], "cancelled", "{name}");
        daemon.end_session(&session, "stop");
    }
}

#[test]
fn the_sdks_own_examples_answer() {
    for name in ["python-example-agent", "python-echo-agent"] {
        let daemon = Daemon::quick("");
        let session = run(&daemon, name);
        daemon.prompt(&session, "good morning");
        wait_turns(&daemon, &session, 1);
        assert!(!said(&daemon, &session).is_empty(), "{name}");
        daemon.end_session(&session, "stop");
    }
}
