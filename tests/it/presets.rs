//! Presets bind: what they forbid is denied before any rule, whoever asks and in whatever way.

use intercom_testkit::harness::{Daemon, QUICK, acp_fixture, of_kind, refused, wait_turns};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::access::{call, token, with_port};

/// Everything is allowed, by a rule.
const ALL: &str = "[[rule]]\nname = 'all'\nrisk = 'critical'\nthen = 'allow'\n";

fn native(daemon: &Daemon, preset: &str) -> String {
    daemon.run_with(&["status:up", "serve"], json!({ "preset": preset }))
}

/// An ACP agent for which files are read and written and commands run.
fn served() -> String {
    let command = json!(acp_fixture());
    format!(
        "[agents.served]\ncommand = {command}\nprotocol = 'acp'\noffer_files = true\noffer_terminals = true\n"
    )
}

#[track_caller]
fn serve(daemon: &Daemon, preset: &str) -> String {
    let (status, session) = daemon.ask_to_start(json!({ "agent": "served", "preset": preset }));
    assert_eq!((status, &session["preset"]), (201, &json!(preset)), "{session}");
    let session = session["id"].as_str().unwrap().to_owned();
    daemon.wait_kind(&session, "agent.ready");
    session
}

/// What became of the nth request, and the rule that said so.
#[track_caller]
fn decided(daemon: &Daemon, session: &str, nth: usize) -> (String, String) {
    let seen = std::cell::Cell::new(0);
    let event = daemon.wait_for(session, "a decision", |event| {
        seen.set(seen.get() + usize::from(event["kind"] == "clearance.decided"));
        seen.get() == nth
    });
    let word = |key: &str| event["data"][key].as_str().unwrap().to_owned();
    (word("status"), word("by"))
}

#[track_caller]
fn set(daemon: &Daemon, session: &str, preset: &str) -> Value {
    let (status, shown) =
        daemon.post(&format!("/api/v1/sessions/{session}/preset"), &json!({ "preset": preset }));
    assert_eq!((status, &shown["preset"]), (200, &json!(preset)), "{shown}");
    shown
}

fn asks(id: usize, params: &Value) -> String {
    json!([format!("clearance:{id}:{params}")]).to_string()
}

#[test]
fn what_a_native_agent_asks_is_denied_before_any_rule() {
    let daemon = Daemon::quick(ALL);
    let requests = [
        json!({ "title": "Read", "tool": "read", "file_path": "a.rs", "risk_level": "low" }),
        json!({ "title": "Secret", "tool": "read", "file_path": ".env", "risk_level": "low" }),
        json!({ "title": "Edit", "file_path": "a.rs", "diff": "-a\n+b\n", "risk_level": "low" }),
        json!({ "title": "Test", "command": "cargo test", "risk_level": "low" }),
        json!({ "title": "Think", "tool": "think", "risk_level": "low" }),
        json!({ "title": "What is it?", "risk_level": "low" }),
        json!({ "title": "Grave", "tool": "fetch", "risk_level": "critical" }),
    ];
    // In the order of the requests: whether it is denied.
    let table = [
        ("full", [false, false, false, false, false, false, false]),
        ("read-only", [false, false, true, true, false, true, false]),
        ("safe", [false, true, false, false, false, false, true]),
        ("sandbox", [true, true, true, true, false, true, true]),
    ];
    for (preset, denied) in table {
        let session = native(&daemon, preset);
        for (n, (request, denied)) in requests.iter().zip(denied).enumerate() {
            daemon.prompt(&session, &asks(n, request));
            let by = if denied { format!("preset {preset}") } else { "all".to_owned() };
            let status = if denied { "denied" } else { "approved" };
            let expect = (status.to_owned(), by);
            assert_eq!(decided(&daemon, &session, n + 1), expect, "{preset}: {request}");
        }
    }
}

#[test]
fn what_is_done_for_an_acp_agent_is_bound_as_well() {
    let daemon = Daemon::quick(&format!("{}{ALL}", served()));
    std::fs::write(daemon.workspace().join("a.txt"), "old").unwrap();
    let steps =
        "read:a.txt;write:b.txt:new;terminal-create:true;permission:yes=allow_once,no=reject_once:run:make";
    // Whether each is denied.
    let table = [
        ("full", [false, false, false, false]),
        ("read-only", [false, true, true, true]),
        ("safe", [false, false, false, false]),
        ("sandbox", [true, true, true, true]),
    ];
    for (preset, denied) in table {
        let file = daemon.workspace().join("b.txt");
        std::fs::remove_file(&file).ok();
        let session = serve(&daemon, preset);
        daemon.prompt(&session, steps);
        wait_turns(&daemon, &session, 1);
        let events = daemon.so_far(&session);
        let texts = of_kind(&events, "update").into_iter();
        let texts = texts.filter_map(|event| event["data"]["update"]["content"]["text"].as_str());
        let answers: Vec<&str> =
            texts.filter(|text| text.starts_with("answered ") || text.starts_with("refused ")).collect();
        let found: Vec<bool> = answers
            .iter()
            .map(|text| text.starts_with("refused ") || text.contains(r#""optionId":"no""#))
            .collect();
        assert_eq!(found, denied, "{preset}: {answers:?}");
        assert_eq!(file.exists(), !denied[1], "{preset}");
        assert_eq!(of_kind(&events, "terminal.started").len(), usize::from(!denied[2]), "{preset}");
        let name = json!(format!("preset {preset}"));
        let by_preset = |event: &&Value| event["data"]["by"] == name && event["data"]["via"] == "policy";
        let by_preset = of_kind(&events, "clearance.decided").into_iter().filter(by_preset).count();
        assert_eq!(by_preset, denied.iter().filter(|denied| **denied).count(), "{preset}");
        if denied[1] {
            assert!(answers[1].contains(&format!("denied: preset {preset} denies it")), "{answers:?}");
        }
    }
}

#[test]
fn what_is_risky_is_not_read_under_safe_although_a_rule_allows_it() {
    let daemon = Daemon::quick(&format!("{}{ALL}", served()));
    std::fs::write(daemon.workspace().join(".env"), "KEY=1").unwrap();
    let session = serve(&daemon, "safe");
    daemon.prompt(&session, "read:.env");
    wait_turns(&daemon, &session, 1);
    assert_eq!(decided(&daemon, &session, 1), ("denied".to_owned(), "preset safe".to_owned()));
    assert!(of_kind(&daemon.so_far(&session), "file.read").is_empty());
}

#[test]
fn it_is_changed_while_the_agent_works_and_what_waits_is_denied() {
    let daemon = Daemon::quick(&served());
    let session = serve(&daemon, "full");
    daemon.prompt(&session, "write:a.txt:new;say:after");
    let waiting = daemon.clearance(&session);
    set(&daemon, &session, "read-only");
    wait_turns(&daemon, &session, 1);
    assert!(!daemon.workspace().join("a.txt").exists());
    let path = format!("/api/v1/clearances/{waiting}");
    let (_, card) = daemon.get(&path);
    assert_eq!(
        (&card["status"], &card["decided_by"], &card["decided_via"], &card["delivery"]),
        (&json!("denied"), &json!("preset read-only"), &json!("policy"), &json!("delivered")),
        "{card}"
    );
    refused(
        daemon.post(&format!("{path}/decision"), &json!({ "decision": "approve" })),
        409,
        "already_decided",
    );
    let (_, explained) = daemon.get(&format!("{path}/explanation"));
    assert_eq!(
        (&explained["now"]["outcome"], &explained["now"]["rule"]),
        (&json!("deny"), &json!("preset read-only")),
        "{explained}"
    );
    // And back: people decide again.
    set(&daemon, &session, "full");
    daemon.prompt(&session, "write:a.txt:new");
    let seen = std::cell::Cell::new(0);
    let asked = daemon.wait_for(&session, "a second request", |event| {
        seen.set(seen.get() + usize::from(event["kind"] == "clearance.requested"));
        seen.get() == 2
    });
    daemon.decide(asked["data"]["clearance"].as_str().unwrap(), "approve");
    wait_turns(&daemon, &session, 2);
    assert!(daemon.workspace().join("a.txt").exists());
    let told: Vec<Value> = of_kind(&daemon.so_far(&session), "session.preset")
        .into_iter()
        .map(|event| event["data"]["preset"].clone())
        .collect();
    assert_eq!(told, ["read-only", "full"]);
    let (_, audit) = daemon.get(&format!("/api/v1/audit?session={session}"));
    let rows = audit["items"].as_array().unwrap().iter();
    assert_eq!(rows.filter(|row| row["action"] == "session.preset").count(), 2, "{audit}");
    set(&daemon, &session, "full");
    assert_eq!(of_kind(&daemon.so_far(&session), "session.preset").len(), 2, "nothing is new");
    let path = format!("/api/v1/sessions/{session}/preset");
    refused(daemon.post(&path, &json!({ "preset": "none" })), 400, "bad_request");
    let body = json!({ "agent": "served", "preset": "none" });
    refused(daemon.ask_to_start(body), 400, "bad_request");
}

#[test]
fn it_outlives_the_daemon_and_the_agent() {
    let daemon = Daemon::with_config(&format!("{QUICK}{ALL}"));
    let edit = json!({ "title": "Edit", "file_path": "a.rs", "diff": "-a\n+b\n", "risk_level": "low" });
    let session = native(&daemon, "read-only");
    daemon.wait_status(&session, "up");
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    daemon.prompt(&session, &asks(1, &edit));
    assert_eq!(decided(&daemon, &session, 1).1, "preset read-only");
    // After its end it can be changed, and holds in the next life.
    daemon.end_session(&session, "stop");
    let shown = set(&daemon, &session, "sandbox");
    assert_eq!(shown["phase"], "ended");
    daemon.post(&format!("/api/v1/sessions/{session}/resume"), &json!({}));
    daemon.prompt(&session, &asks(1, &edit));
    assert_eq!(decided(&daemon, &session, 2).1, "preset sandbox");
    let shown = daemon.cli(&["show", &session]).ok().stdout;
    assert!(shown.contains("preset     sandbox"), "{shown}");
    let plain = daemon.run(&["serve"]);
    assert!(!daemon.cli(&["show", &plain]).ok().stdout.contains("preset"));
}

#[test]
fn what_waits_is_denied_also_by_the_next_daemon() {
    let daemon = Daemon::with_config(QUICK);
    let session = daemon.run(&[
        r#"clearance:1:{"title":"Edit","file_path":"a.rs","diff":"+b","risk_level":"low"}"#,
        "answer:1",
        "serve",
    ]);
    daemon.clearance(&session);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    set(&daemon, &session, "read-only");
    assert_eq!(decided(&daemon, &session, 1), ("denied".to_owned(), "preset read-only".to_owned()));
    assert_eq!(daemon.wait_status(&session, "answered")["status"], "rejected");
}

#[test]
fn a_deferred_session_is_bound_from_its_first_prompt_on() {
    let daemon = Daemon::quick(&format!("{}{ALL}", served()));
    let (_, session) = daemon.ask_to_start(json!({ "agent": "served", "defer": true, "preset": "sandbox" }));
    let session = session["id"].as_str().unwrap().to_owned();
    daemon.prompt(&session, "write:a.txt:new");
    wait_turns(&daemon, &session, 1);
    assert!(!daemon.workspace().join("a.txt").exists());
    assert_eq!(decided(&daemon, &session, 1).1, "preset sandbox");
}

#[test]
fn narrowing_takes_an_operator_and_widening_an_approver() {
    let (daemon, address) = with_port(QUICK);
    let [viewer, operator, approver] =
        ["viewer", "operator", "approver"].map(|role| token(&daemon, role, role));
    let session = daemon.run(&["serve"]);
    let path = format!("/api/v1/sessions/{session}/preset");
    let set = |token: &str, preset: &str| {
        call(&address, Some(token), "POST", &path, Some(&json!({ "preset": preset })))
    };
    refused(set(&viewer, "safe"), 403, "forbidden");
    assert_eq!(set(&operator, "safe").0, 200);
    for wider in ["full", "read-only"] {
        refused(set(&operator, wider), 403, "forbidden");
    }
    assert_eq!(daemon.show(&session)["preset"], "safe");
    assert_eq!(set(&operator, "sandbox").0, 200);
    assert_eq!(set(&approver, "read-only").0, 200);
    assert_eq!(set(&approver, "full").0, 200);
    let by: Vec<Value> = of_kind(&daemon.so_far(&session), "session.preset")
        .into_iter()
        .map(|event| event["data"]["by"].clone())
        .collect();
    assert_eq!(by, ["operator", "operator", "approver", "approver"]);
}

#[test]
fn rules_that_are_tried_out_change_nothing_of_what_a_preset_denied() {
    let daemon = Daemon::quick("");
    let session = native(&daemon, "read-only");
    daemon.prompt(
        &session,
        &asks(1, &json!({ "title": "Test", "command": "cargo test", "risk_level": "low" })),
    );
    decided(&daemon, &session, 1);
    let (status, tried) = daemon.post("/api/v1/policy/test", &json!({ "rules": ALL }));
    assert_eq!((status, &tried["denied"], &tried["different"]), (200, &json!(1), &json!(0)), "{tried}");
}
