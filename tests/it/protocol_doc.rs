//! The agents printed in `docs/PROTOCOL.md` work as they are.

use intercom_testkit::harness::Daemon;
use serde_json::{Value, json};

/// The only block of this language in the document.
fn agent(language: &str) -> String {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/PROTOCOL.md")).unwrap();
    let blocks: Vec<&str> = text.split(&format!("\n```{language}\n")).skip(1).collect();
    assert_eq!(blocks.len(), 1, "one agent in {language}");
    blocks[0].split_once("\n```").unwrap().0.to_owned() + "\n"
}

fn start(daemon: &Daemon, command: &str, language: &str) -> String {
    std::fs::write(daemon.workspace().join("agent"), agent(language)).unwrap();
    let body = json!({ "command": command, "args": ["agent"], "workspace": daemon.workspace() });
    let (status, session) = daemon.post("/api/v1/sessions", &body);
    assert_eq!(status, 201, "{session}");
    session["id"].as_str().unwrap().to_owned()
}

#[track_caller]
fn check(command: &str, language: &str, decision: &str, outcome: &str) {
    let daemon = Daemon::start();
    let session = start(&daemon, command, language);
    daemon.wait_status(&session, "Hello! I would like to edit a file.");
    let clearance = daemon.wait_kind(&session, "clearance.requested")["data"].clone();
    assert_eq!((&clearance["title"], &clearance["risk"]), (&json!("Edit hello.txt"), &json!("low")));
    assert_eq!(daemon.show(&session)["phase"], "waiting");
    let decided = daemon.decide(clearance["clearance"].as_str().unwrap(), decision);
    assert_eq!(decided["delivery"], "delivered");
    daemon.wait_status(&session, outcome);
    let ended = daemon.wait_kind(&session, "turn.ended");
    assert_eq!(ended["data"]["stop_reason"], "end_turn");
    assert_eq!(daemon.show(&session)["phase"], "idle");

    let (answer, _) = daemon.end_session(&session, "stop");
    assert_eq!(answer["steps"], json!(["interrupt", "close_stdin"]), "it ends at EOF");
    let events = daemon.all_events(&session);
    let exit = &events.iter().find(|event| event["kind"] == "agent.exited").unwrap()["data"];
    assert_eq!((&exit["code"], &exit["stderr_tail"]), (&json!(0), &json!("")));
    assert!(!events.iter().any(|event| event["kind"] == "line.rejected"), "{events:#?}");
}

#[test]
fn the_python_agent_does_what_it_was_allowed() {
    check("python3", "python", "approve", "Editing it.");
}

#[test]
fn the_python_agent_leaves_what_it_was_denied() {
    check("python3", "python", "deny", "Leaving it alone.");
}

#[test]
fn the_shell_agent_does_what_it_was_allowed() {
    check("sh", "sh", "approve", "Editing it.");
}

#[test]
fn the_shell_agent_leaves_what_it_was_denied() {
    check("sh", "sh", "deny", "Leaving it alone.");
}

#[test]
fn the_python_agent_takes_prompts() {
    let daemon = Daemon::start();
    let session = start(&daemon, "python3", "python");
    daemon.decide(&daemon.clearance(&session), "approve");
    daemon.wait_kind(&session, "turn.ended");
    daemon.cli(&["send", &session, "Mind the \"quotes\""]).ok();
    daemon.wait_status(&session, "You said: Mind the \"quotes\"");
    let ended = daemon.follow(&session).filter(|event| event["kind"] == "turn.ended").nth(1);
    assert_ne!(ended, None::<Value>);
}
