//! A quorum holds from the risk on that it is set for: no claim of an agent, and no trick with its requests, makes fewer people enough.

use intercom_testkit::harness::{Daemon, QUICK, profile, refused};
use serde_json::{Value, json};

use crate::access::{call, token, with_port};

const QUORUM: &str = "[clearances]\nquorum = { medium = 2, high = 3 }\n";

fn ask(daemon: &Daemon, session: &str, id: &str, params: &Value) -> String {
    daemon.prompt(session, &json!([format!("clearance:{id}:{params}")]).to_string());
    let asked =
        |event: &Value| event["kind"] == "clearance.requested" && event["data"]["request"]["id"] == id;
    let asked = daemon.wait_for(session, "the request", asked);
    asked["data"]["clearance"].as_str().unwrap().to_owned()
}

fn approve(address: &str, token: &str, clearance: &str) -> (u16, Value) {
    let path = format!("/api/v1/clearances/{clearance}/decision");
    call(address, Some(token), "POST", &path, Some(&json!({ "decision": "approve" })))
}

#[test]
fn no_claim_of_an_agent_makes_fewer_people_enough() {
    let (daemon, address) = with_port(&format!("{QUICK}{QUORUM}"));
    let people = ["ana", "ben", "cem"].map(|name| token(&daemon, name, "approver"));
    let again = token(&daemon, "ana", "approver");
    let session = daemon.run(&["status:up", "serve"]);
    let claims = [
        (json!("low"), 1),
        (json!("medium"), 2),
        (json!("high"), 3),
        (json!("critical"), 3),
        // Whatever is not one of these words counts as high.
        (json!("CRITICAL"), 3),
        (json!("LOW"), 3),
        (json!(" low "), 3),
        (json!("low\u{0}"), 3),
        (json!("catastrophic"), 3),
        (json!(""), 3),
        (json!(0), 3),
        (json!(-1), 3),
        (json!(true), 3),
        (json!(["low"]), 3),
        (json!({ "low": 1 }), 3),
    ];
    for (n, (claim, needed)) in claims.iter().enumerate() {
        let params = json!({ "title": "Think", "tool": "think", "risk_level": claim });
        let clearance = ask(&daemon, &session, &format!("c{n}"), &params);
        for (count, person) in (1..).zip(&people[..*needed]) {
            let (status, answer) = approve(&address, person, &clearance);
            if count == *needed {
                assert_eq!((status, &answer["status"]), (200, &json!("approved")), "{claim}: {answer}");
                break;
            }
            assert_eq!((status, &answer["needed"]), (202, &json!(needed)), "{claim}: {answer}");
            // The same person once more, by another token.
            if count == 1 {
                refused(approve(&address, &again, &clearance), 409, "already_approved");
            }
        }
    }
    // What we see ourselves counts as well, whatever the agent says.
    let params = json!({ "title": "Clean", "command": "rm -rf / --no-preserve-root", "risk_level": "low" });
    let clearance = ask(&daemon, &session, "seen", &params);
    let (status, answer) = approve(&address, &people[0], &clearance);
    assert_eq!((status, &answer["needed"]), (202, &json!(3)), "{answer}");
    daemon.end_session(&session, "stop");
}

#[test]
fn an_approval_is_for_one_request_and_not_for_its_number() {
    let (daemon, address) = with_port(&format!("{QUICK}{QUORUM}{}", profile("coder", &["serve"], "")));
    let people = ["ana", "ben"].map(|name| token(&daemon, name, "approver"));
    let session = daemon.run_agent("coder");
    let harmless = json!({ "title": "Test", "command": "cargo test", "risk_level": "medium" });
    let first = ask(&daemon, &session, "1", &harmless);
    assert_eq!(approve(&address, &people[0], &first).0, 202);
    // The same number again, for something else: refused, and what people approve is what they were shown.
    let grave = json!({ "title": "Publish", "command": "cargo publish", "risk_level": "low" });
    daemon.prompt(&session, &json!([format!("clearance:1:{grave}")]).to_string());
    daemon.wait_for(&session, "the refusal", |event| event.to_string().contains("duplicate_id"));
    let (status, answer) = approve(&address, &people[1], &first);
    assert_eq!((status, &answer["command"]), (200, &json!("cargo test")), "{answer}");
    // The number is free now. Nobody has approved what it stands for.
    daemon.prompt(&session, &json!([format!("clearance:1:{grave}")]).to_string());
    let asked =
        |event: &Value| event["kind"] == "clearance.requested" && event["data"]["clearance"] != json!(first);
    let asked = daemon.wait_for(&session, "the second request", asked);
    let second = asked["data"]["clearance"].as_str().unwrap();
    let shown = daemon.get(&format!("/api/v1/clearances/{second}")).1;
    assert_eq!((&shown["status"], &shown["approvals"]), (&json!("pending"), &json!([])), "{shown}");
    assert!(shown["needed"].as_u64().unwrap() >= 2, "publishing is not of low risk: {shown}");
    refused(approve(&address, &people[0], &first), 409, "already_decided");
    daemon.end_session(&session, "stop");
}
