//! One line never ends a session: blanks that are none to JSON, and lines at which the daemon itself fails.

use intercom_testkit::harness::{Daemon, QUICK, home, http, of_kind};
use serde_json::{Value, json};

/// VT, FF, NEL, NBSP, EM SPACE, LINE SEPARATOR, IDEOGRAPHIC SPACE.
const BLANKS: &[&str] = &["\u{b}", "\u{c}", "\u{85}", "\u{a0}", "\u{2003}", "\u{2028}", "\u{3000}"];

fn messages(events: &[Value]) -> Vec<&str> {
    of_kind(events, "status").iter().map(|event| event["data"]["message"].as_str().unwrap()).collect()
}

#[test]
fn foreign_blanks_around_any_message_cost_that_line_only() {
    let daemon = Daemon::quick("");
    let lines = [
        r#"{"method":"status/update","params":{"message":"no"}}"#,
        r#"{"method":"turn/end","params":{"stop_reason":"end_turn"}}"#,
        r#"{"method":"x/unknown","id":1}"#,
        "",
    ];
    let mut steps = Vec::new();
    for blank in BLANKS {
        for line in lines {
            steps.push(format!("raw:{blank}{line}"));
            steps.push(format!("raw:{line}{blank}"));
        }
    }
    let expected = steps.len();
    steps.extend(["status:still here".to_owned(), "serve".to_owned()]);
    let session = daemon.run(&steps.iter().map(String::as_str).collect::<Vec<_>>());
    daemon.wait_status(&session, "still here");
    let events = daemon.so_far(&session);
    assert_eq!(of_kind(&events, "line.rejected").len(), expected);
    assert_eq!(messages(&events), ["still here"]);

    let acp = daemon.run_acp(&[]);
    daemon.wait_kind(&acp, "agent.ready");
    let answer = r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#;
    let raw: Vec<String> =
        BLANKS.iter().flat_map(|b| [format!("raw:{b}{answer}"), format!("raw:{answer}{b}")]).collect();
    daemon.prompt(&acp, &serde_json::to_string(&raw).unwrap());
    daemon.wait_kind(&acp, "turn.ended");
    let events = daemon.so_far(&acp);
    assert_eq!(of_kind(&events, "line.rejected").len(), raw.len());
    assert_eq!(of_kind(&events, "turn.ended").len(), 1);
}

/// A daemon that fails at every line with `poison` in it, where that is said.
fn poisoned(point: &str) -> Daemon {
    Daemon::start_in(home(QUICK), &[], &[("INTERCOM_FAILPOINT", &format!("{point}~poison"))])
}

#[test]
fn a_line_at_which_the_daemon_fails_is_quarantined_and_nothing_else_is_lost_or_doubled() {
    for point in ["line.decoded", "line.stepped"] {
        let daemon = poisoned(point);
        let poison = "poison ".repeat(3);
        let session = daemon.run(&[
            "batch:status:one|clearance:1:First|status:two",
            &format!("batch:status:three|clearance:2:{poison}|status:four|status:{poison}|clearance:3:Third"),
            "status:five",
            "answer:2",
            "answer:1",
            "answer:3",
            "serve",
        ]);
        daemon.wait_for(&session, "the error", |event| event["data"]["status"] == "failed");
        let (_, list) = daemon.get(&format!("/api/v1/clearances?session={session}"));
        for clearance in list["items"].as_array().unwrap() {
            assert_eq!(daemon.decide(clearance["id"].as_str().unwrap(), "approve")["delivery"], "delivered");
        }
        daemon.wait_for(&session, "the third", |event| event["data"]["id"] == "3");
        let events = daemon.so_far(&session);
        let said = messages(&events);
        assert_eq!(said[..5], ["one", "two", "three", "four", "five"], "{point}");
        assert_eq!(said.iter().filter(|said| **said == "answered").count(), 3, "{point}");
        let titles: Vec<&Value> =
            of_kind(&events, "clearance.requested").iter().map(|event| &event["data"]["title"]).collect();
        assert_eq!(titles, ["First", "Third"], "{point}");
        let rejected = of_kind(&events, "line.rejected");
        assert_eq!(rejected.len(), 2, "{point}: {rejected:?}");
        for line in rejected {
            assert!(line["data"]["reason"].as_str().unwrap().contains("a bug in intercom"), "{line}");
            assert!(line["data"]["excerpt"].as_str().unwrap().contains("poison"), "{line}");
        }

        // Loudly.
        assert!(daemon.log().contains("a line of the agent is quarantined"), "{}", daemon.log());
        assert_eq!(daemon.get("/api/v1/health").1["quarantined_lines"], 2);
        let doctor = daemon.cli(&["doctor", "--json"]).json();
        let check =
            doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "daemon").unwrap();
        assert_eq!(check["status"], "wrong", "{check}");
        let metrics = http(&daemon.socket(), "GET", "/metrics", None, &[]).1;
        assert!(metrics.contains("intercom_lines_quarantined_total 2"), "{metrics}");

        // And the next daemon goes on behind it.
        let (dir, _) = daemon.end(nix::sys::signal::Signal::SIGKILL);
        let daemon = Daemon::start_in(dir, &[], &[]);
        daemon.prompt(&session, "status:after");
        daemon.wait_status(&session, "after");
        let events = daemon.so_far(&session);
        assert_eq!(of_kind(&events, "line.rejected").len(), 2, "{point}");
        assert_eq!(messages(&events)[..5], ["one", "two", "three", "four", "five"], "{point}");
    }
}

#[test]
fn a_turn_does_not_run_on_because_the_daemon_failed_at_the_answer_that_ends_it() {
    for point in ["line.decoded", "line.stepped"] {
        let daemon = poisoned(point);
        let native = daemon.run(&["expect:prompt/send", "turn-end:poison", "serve"]);
        daemon.prompt(&native, "go");
        let acp = daemon.run_acp(&[]);
        daemon.wait_kind(&acp, "agent.ready");
        daemon.prompt(&acp, r#"["say:one","stop:{\"stopReason\":\"poison\"}"]"#);
        for session in [&native, &acp] {
            let ended = daemon.wait_kind(session, "turn.ended");
            let reason = ended["data"]["stop_reason"].as_str().unwrap();
            assert!(reason.contains("intercom failed at this line"), "{point}: {ended}");
            let events = daemon.so_far(session);
            assert_eq!(of_kind(&events, "line.rejected").len(), 1, "{point}");
            assert_eq!(of_kind(&events, "turn.ended").len(), 1, "{point}");
        }
        daemon.prompt(&native, "status:again");
        daemon.wait_status(&native, "again");
        daemon.prompt(&acp, "say:again");
        daemon.wait_for(&acp, "its next words", |event| {
            event["data"]["update"]["content"] == json!({ "type": "text", "text": "again" })
        });
    }
}

#[test]
fn a_command_at_which_the_daemon_fails_is_taken_back_and_the_session_goes_on() {
    // The first command is the start of the session.
    let daemon = Daemon::start_in(home(QUICK), &[], &[("INTERCOM_FAILPOINT", "command.accepted:2!")]);
    let session = daemon.run(&["clearance:1:First", "answer:1", "serve"]);
    let asked = daemon.wait_kind(&session, "clearance.requested");
    let (_, list) = daemon.get(&format!("/api/v1/clearances?session={session}"));
    let clearance = list["items"][0]["id"].as_str().unwrap().to_owned();
    let before = daemon.so_far(&session);
    assert_eq!(before.last().unwrap()["seq"], asked["seq"]);

    // The operator gets an error, and nothing has happened.
    let path = format!("/api/v1/clearances/{clearance}/decision");
    let (status, answer) = daemon.post(&path, &json!({ "decision": "approve" }));
    assert_eq!(status, 500, "{answer}");
    assert_eq!(answer["error"]["code"], "internal", "{answer}");
    assert_eq!(daemon.so_far(&session), before);
    assert_eq!(daemon.get(&format!("/api/v1/clearances/{clearance}")).1["status"], "pending");

    // Loudly.
    assert!(daemon.log().contains("a command failed and was undone"), "{}", daemon.log());
    let warnings = daemon.get("/api/v1/health").1["warnings"].to_string();
    assert!(warnings.contains("failed at 1 commands"), "{warnings}");
    let doctor = daemon.cli(&["doctor", "--json"]).json();
    let check = doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "daemon").unwrap();
    assert_eq!(check["status"], "warning", "{check}");
    let metrics = http(&daemon.socket(), "GET", "/metrics", None, &[]).1;
    assert!(metrics.contains("intercom_commands_failed_total 1"), "{metrics}");

    // The session goes on, and the same decision counts once.
    assert_eq!(daemon.decide(&clearance, "approve")["delivery"], "delivered");
    daemon.wait_status(&session, "answered");
    daemon.prompt(&session, "status:after");
    daemon.wait_status(&session, "after");
    assert_eq!(of_kind(&daemon.so_far(&session), "clearance.decided").len(), 1);
}
