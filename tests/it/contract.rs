//! The seven cases of the protocol's test contract, through the real binary.

use intercom_testkit::harness::Daemon;
use serde_json::json;

#[test]
fn single_message_parsing() {
    let daemon = Daemon::start();
    let params =
        r#"{"title":"Create new module","diff":"+x","file_path":"src/m.rs","risk_level":"low","ticket":7}"#;
    let session = daemon.run(&[&format!("clearance:req-001:{params}"), "answer:req-001"]);
    let event = daemon.wait_kind(&session, "clearance.requested");
    assert_eq!(event["data"]["title"], "Create new module");
    assert_eq!(event["data"]["risk"], "low");
    assert_eq!(event["data"]["request"]["id"], "req-001");
    assert_eq!(event["data"]["request"]["params"]["ticket"], 7, "unknown fields are kept");
}

#[test]
fn batched_messages() {
    let daemon = Daemon::start();
    let session = daemon.run(&["batch:status:one|status:two"]);
    let said: Vec<_> =
        daemon.all_events(&session).into_iter().filter(|event| event["kind"] == "status").collect();
    assert_eq!(said.len(), 2);
    assert_eq!((&said[0]["data"]["message"], &said[1]["data"]["message"]), (&json!("one"), &json!("two")));
}

#[test]
fn partial_delivery() {
    let daemon = Daemon::start();
    // The fixture writes the second half only after it has heard from us.
    let session = daemon.run(&["halves:reassembled"]);
    daemon.cli(&["nudge", &session]).ok();
    daemon.wait_status(&session, "reassembled");
    let events = daemon.all_events(&session);
    assert!(!events.iter().any(|event| event["kind"] == "line.rejected"), "{events:#?}");
}

#[test]
fn malformed_line() {
    let daemon = Daemon::start();
    let session = daemon.run(&["raw:npm warn: this is no JSON", "status:still here"]);
    let events = daemon.all_events(&session);
    let bad = events.iter().find(|event| event["kind"] == "line.rejected").unwrap();
    assert_eq!(bad["data"]["excerpt"], "npm warn: this is no JSON");
    assert!(events.iter().any(|event| event["data"]["message"] == "still here"));
    let log = daemon.log();
    assert!(log.contains("WARN") && log.contains("npm warn: this is no JSON"), "{log}");
}

#[test]
fn unknown_method() {
    let daemon = Daemon::start();
    let session =
        daemon.run(&["notify:tea/brew:{\"cups\":2}", "request:tea/ask:#3", "answer:#3", "status:on"]);
    let answered = daemon.wait_status(&session, "answered");
    assert_eq!((&answered["id"], &answered["method"]), (&json!(3), &json!("error")));
    assert_eq!(answered["status"], "unknown_method");
    let events = daemon.all_events(&session);
    let unknown: Vec<_> = events.iter().filter(|event| event["kind"] == "unknown").collect();
    assert_eq!(unknown.len(), 2);
    assert_eq!(unknown[0]["data"]["message"], json!({"method": "tea/brew", "params": {"cups": 2}}));
    assert!(events.iter().any(|event| event["data"]["message"] == "on"));
}

#[test]
fn stream_eof() {
    let daemon = Daemon::start();
    let session = daemon.run(&["status:bye", "close:stdout", "hang"]);
    let events = daemon.all_events(&session);
    assert_eq!(events.last().unwrap()["data"]["reason"], "stream closed");
    assert_eq!(daemon.show(&session)["phase"], "ended");
    let reason = "stream closed: it closed its stdout during a turn, kept running, and was stopped";
    assert_eq!(daemon.show(&session)["exit"]["reason"], reason);
}

#[test]
fn write_serialization() {
    let daemon = Daemon::start();
    let session = daemon.run(&["clearance:req-9:May I?", "report:clearance/response"]);
    daemon.decide(&daemon.clearance(&session), "approve");
    let received = daemon.wait_status(&session, "received");
    let line = received["line"].as_str().unwrap();
    let value: serde_json::Value = serde_json::from_str(line.trim_end()).unwrap();
    assert_eq!(
        value,
        json!({"id": "req-9", "method": "clearance/response", "params": {"status": "approved", "reason": null}})
    );
}
