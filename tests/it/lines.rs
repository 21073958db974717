//! What people read in one line: what a clearance would run or change, and agents whose words look like ours.

use intercom_testkit::harness::{Daemon, of_kind};
use serde_json::{Value, json};

fn named(daemon: &Daemon, name: &str, steps: &[&str]) -> String {
    daemon.run_with(steps, json!({ "name": name }))
}

#[test]
fn every_clearance_says_first_what_would_run_or_change() {
    let daemon = Daemon::quick("");
    let command = r#"{"title":"Tidy up","command":"rm -rf build\n# done"}"#;
    let diff = r#"{"title":"Small fix","diff":"--- a\n+++ b\n-x\n+y\n+z","file_path":"src/a.rs"}"#;
    let session = named(
        &daemon,
        "shop",
        &[&format!("clearance:1:{command}"), &format!("clearance:2:{diff}"), "clearance:3:Trust me", "hang"],
    );
    daemon.wait_for(&session, "the third", |event| event["data"]["title"] == "Trust me");
    let (_, list) = daemon.get("/api/v1/clearances");
    let shown: Vec<&Value> =
        list["items"].as_array().unwrap().iter().rev().map(|clearance| &clearance["action"]).collect();
    assert_eq!(shown, [&json!("rm -rf build ⏎ # done"), &json!("src/a.rs +2 -1"), &Value::Null]);
    assert!(list["items"].as_array().unwrap().iter().all(|clearance| clearance["session_name"] == "shop"));

    // The log, and so the audit and the webhook, say it with the request and again with the decision.
    daemon.decide(&daemon.clearance(&session), "approve");
    daemon.end_session(&session, "kill");
    let events = daemon.all_events(&session);
    let said = |kind: &str| -> Vec<Value> {
        of_kind(&events, kind)
            .iter()
            .map(|event| json!([event["data"]["action"], event["data"]["title"]]))
            .collect()
    };
    let first = json!(["rm -rf build ⏎ # done", "Tidy up"]);
    assert_eq!(said("clearance.requested")[0], first);
    assert_eq!(said("clearance.decided"), [first]);
    let closed = said("clearance.closed");
    assert_eq!(closed.len(), 2, "{closed:?}");
    for about in [json!(["src/a.rs +2 -1", "Small fix"]), json!([null, "Trust me"])] {
        assert!(closed.contains(&about), "{closed:?}");
    }
    let (_, audit) = daemon.get("/api/v1/audit");
    let rows = audit["items"].as_array().unwrap();
    let decided = rows.iter().find(|row| row["action"] == "clearance.decided").unwrap();
    assert_eq!(decided["data"]["action"], "rm -rf build ⏎ # done");
}

#[test]
fn a_secret_in_a_command_is_not_in_its_line() {
    let daemon = Daemon::quick("");
    let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
    let params =
        json!({ "title": "Fetch", "command": format!("curl -H 'Authorization: token {token}' example.com") });
    let session = daemon.run(&[&format!("clearance:1:{params}"), "hang"]);
    let (_, shown) = daemon.get(&format!("/api/v1/clearances/{}", daemon.clearance(&session)));
    assert!(shown["command"].as_str().unwrap().contains(&token), "{shown}");
    assert!(!shown["action"].as_str().unwrap().contains("ghp_"), "{shown}");
}

#[test]
fn lists_have_the_riskiest_first_and_then_the_oldest_with_session_names() {
    let daemon = Daemon::quick("");
    let ask = |id: u32, risk: &str, command: &str| {
        let params = json!({ "title": "Trust me", "risk_level": risk, "command": command });
        format!("clearance:{id}:{params}")
    };
    let shop = named(
        &daemon,
        "shop",
        &[
            &ask(1, "low", "ls"),
            &ask(2, "high", "make old"),
            &ask(3, "high", "make new"),
            "question:4:First?",
            "hang",
        ],
    );
    daemon.question(&shop);
    let mill = named(&daemon, "mill", &[&ask(1, "critical", "make all"), "question:2:Second?", "hang"]);
    daemon.question(&mill);
    let listed = daemon.cli(&["clearances"]).ok().stdout;
    let rows: Vec<Vec<&str>> =
        listed.lines().skip(1).map(|line| line.split("  ").map(str::trim).collect()).collect();
    let rows: Vec<String> = rows
        .into_iter()
        .map(|row| row.into_iter().filter(|cell| !cell.is_empty()).collect::<Vec<_>>())
        .map(|row| format!("{} {} {}", row[1], row[2], row[4]))
        .collect();
    assert_eq!(
        rows,
        [
            "mill critical make all “Trust me”",
            "shop high make old “Trust me”",
            "shop high make new “Trust me”",
            "shop low ls “Trust me”",
        ]
    );
    let asked = daemon.cli(&["questions"]).ok().stdout;
    let (first, second) = (asked.find("First?").unwrap(), asked.find("Second?").unwrap());
    assert!(first < second && asked.contains("shop") && asked.contains("mill"), "{asked}");
    let approved = daemon.cli(&["approve", &daemon.clearance(&mill)]).ok().stdout;
    assert!(approved.contains(": make all “Trust me” ("), "{approved}");
}

#[test]
fn the_log_of_an_acp_agent_is_messages_tools_and_plans() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    let forged = "say:2026-01-01 00:00:00  clearance clr_1 approved by ana\nclearance clr_2 approved";
    let steps = json!([
        "think:Look",
        "think:ing at it.",
        "say:I ",
        "say:see",
        "say:.\nDone.",
        "plan:look=completed,fix=pending",
        "tool:t1:run:make",
        "tool-update:t1:in_progress",
        "tool-update:t1:in_progress",
        "tool-update:t1:completed",
        "usage:5:100",
        forged
    ]);
    daemon.prompt(&session, &steps.to_string());
    daemon.wait_kind(&session, "turn.ended");
    let tidy = |text: &str| text.lines().map(|line| line[21..].to_owned()).collect::<Vec<_>>();
    let log = daemon.cli(&["logs", &session]).ok().stdout;
    assert!(!log.contains("sessionUpdate"), "{log}");
    let said: Vec<String> = tidy(&log).into_iter().filter(|line| line[..6].contains('>')).collect();
    assert_eq!(
        said,
        [
            "think> Looking at it.",
            "agent> I see.",
            "agent> Done.",
            "plan>  [x] look, [ ] fix",
            "tool>  `make` (pending)",
            "tool>  `make` (in_progress)",
            "tool>  `make` (completed)",
            "agent> 2026-01-01 00:00:00  clearance clr_1 approved by ana",
            "agent> clearance clr_2 approved",
        ]
    );
    // Every entry is one of the last N; the end of a turn is the last.
    let tail = tidy(&daemon.cli(&["logs", &session, "--tail", "3"]).ok().stdout);
    assert_eq!(tail[0], "tool>  `make` (completed)", "{tail:?}");
    assert_eq!((tail.len(), tail[3].as_str()), (4, "turn ended: end_turn"), "{tail:?}");
    assert_eq!(daemon.cli(&["logs", &session, "--tail", "2", "--json"]).ok().stdout.lines().count(), 2);
    assert!(daemon.cli(&["logs", &session, "--raw"]).ok().stdout.contains("\"sessionUpdate\":\"plan\""));
    assert_eq!(daemon.cli(&["logs", &session, "--since", "1h"]).ok().stdout, log);
    assert_eq!(daemon.cli(&["logs", &session, "--since", "2200-01-01T00:00:00Z"]).ok().stdout, "");
}
