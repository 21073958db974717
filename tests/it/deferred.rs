//! Sessions that are created without a process and started by their first prompt.

use intercom_testkit::harness::{
    Daemon, QUICK, acp_fixture, fixture, home, http, of_kind, processes_in, profile, refused, wait_turns,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The fixture, to be started by its first prompt.
#[track_caller]
fn defer(daemon: &Daemon, more: Value) -> String {
    let mut body = json!({ "command": fixture(), "args": ["status:up", "echo"], "defer": true });
    let Value::Object(more) = more else { panic!("fields are an object: {more}") };
    body.as_object_mut().unwrap().extend(more);
    let (status, session) = daemon.ask_to_start(body);
    assert_eq!(status, 201, "{session}");
    assert_eq!(
        (&session["phase"], &session["deferred"], &session["pid"]),
        (&json!("created"), &json!(true), &Value::Null),
        "{session}"
    );
    session["id"].as_str().unwrap().to_owned()
}

fn count(daemon: &Daemon, session: &str, kind: &str) -> usize {
    of_kind(&daemon.so_far(session), kind).len()
}

/// The texts of the prompts that the fixture has received, once there are so many.
#[track_caller]
fn heard(daemon: &Daemon, session: &str, expected: usize) -> Vec<String> {
    let seen = std::cell::RefCell::new(Vec::new());
    daemon.wait_for(session, "what it has heard", |event| {
        if event["data"]["message"] == "received" {
            let line: Value = serde_json::from_str(event["data"]["line"].as_str().unwrap()).unwrap();
            seen.borrow_mut().extend(line["params"]["text"].as_str().map(str::to_owned));
        }
        seen.borrow().len() == expected
    });
    seen.into_inner()
}

#[test]
fn it_has_no_process_until_its_first_prompt() {
    let daemon = Daemon::quick("[limits]\nmax_sessions = 2\n");
    let session = defer(&daemon, json!({ "name": "later" }));
    assert_eq!(processes_in(&daemon.workspace()), []);
    assert!(!daemon.dir.path().join(format!("state/agents/{session}")).exists());
    assert_eq!(daemon.get("/api/v1/sessions").1["items"][0]["deferred"], true);
    // It has its name and its place.
    refused(daemon.ask_to_start(json!({ "command": fixture(), "name": "later" })), 409, "name_taken");
    defer(&daemon, json!({}));
    refused(daemon.ask_to_start(json!({ "command": fixture() })), 429, "too_many_sessions");
    // What needs an agent says so, what does not is harmless.
    for (verb, body) in [("nudge", json!({})), ("interrupt", json!({})), ("set", json!({ "mode": "plan" }))] {
        refused(daemon.post(&format!("/api/v1/sessions/{session}/{verb}"), &body), 409, "not_started");
    }
    let snoozed = daemon.post(&format!("/api/v1/sessions/{session}/snooze"), &json!({ "for": "1h" }));
    assert_eq!((snoozed.0, &snoozed.1["phase"]), (200, &json!("created")), "{snoozed:?}");
    let prompt = daemon.prompt("later", "first");
    assert_eq!(prompt["state"], "delivered", "{prompt}");
    assert_eq!(heard(&daemon, &session, 1), ["first"]);
    let shown = daemon.show(&session);
    assert_eq!((&shown["deferred"], &shown["generation"]), (&json!(false), &json!(1)), "{shown}");
    let kinds: Vec<Value> = daemon.so_far(&session).into_iter().map(|event| event["kind"].clone()).collect();
    assert_eq!(
        kinds[..5],
        ["session.created", "stall.snoozed", "prompt.queued", "agent.spawned", "agent.ready"]
    );
    let both = json!({ "command": fixture(), "defer": true, "prompt": "now" });
    refused(daemon.ask_to_start(both), 400, "bad_request");
}

#[test]
fn an_acp_agent_is_told_its_first_prompt_once_it_is_ready() {
    let daemon = Daemon::quick("");
    let session = defer(&daemon, json!({ "command": acp_fixture(), "args": [], "protocol": "acp" }));
    daemon.prompt(&session, "say:hello");
    daemon.prompt(&session, "say:again");
    wait_turns(&daemon, &session, 2);
    assert_eq!(count(&daemon, &session, "prompt.delivered"), 2);
    assert_eq!(count(&daemon, &session, "agent.spawned"), 1);
}

#[test]
fn it_survives_the_end_of_the_daemon_whatever_that_is() {
    let config = format!("{QUICK}[limits]\nmax_sessions = 1\n");
    let mut daemon = Daemon::with_config(&config);
    let session = defer(&daemon, json!({ "name": "later" }));
    // The second is told to stop all of its agents; there is none.
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let (dir, _) = daemon.end(signal);
        daemon = Daemon::start_in(dir, &[], &[]);
        let shown = daemon.show("later");
        assert_eq!((&shown["id"], &shown["phase"]), (&json!(session), &json!("created")), "{shown}");
        assert!(!daemon.log().contains("ERROR"), "{}", daemon.log());
        refused(daemon.ask_to_start(json!({ "command": fixture() })), 429, "too_many_sessions");
    }
    daemon.prompt(&session, "first");
    assert_eq!(heard(&daemon, &session, 1), ["first"]);
    assert_eq!(count(&daemon, &session, "session.created"), 1);
}

#[test]
fn killed_at_every_step_of_its_first_prompt_it_is_told_once() {
    // The first command is the launch, the second the prompt.
    let points = [
        "command.stepped:2",
        "command.committed:2",
        "command.performed:2",
        "process.spawned",
        "spawned.committed",
        "frame.writing",
        "frame.written",
        "news.heard",
        "news.committed",
    ];
    for point in points {
        let daemon = Daemon::start_in(home(QUICK), &[], &[("INTERCOM_FAILPOINT", point)]);
        let session = defer(&daemon, json!({ "name": "later" }));
        let path = format!("/api/v1/sessions/{session}/prompts");
        // The daemon dies before it can answer, or just after.
        std::panic::catch_unwind(|| http(&daemon.socket(), "POST", &path, Some(r#"{"text":"first"}"#), &[]))
            .ok();
        let (dir, status) = daemon.end(Signal::SIGCONT);
        assert!(!status.success(), "{point} was not reached");
        let daemon = Daemon::start_in(dir, &[], &[]);
        if point == "command.stepped:2" {
            assert_eq!(daemon.show(&session)["phase"], "created", "what was not committed has not happened");
            daemon.prompt(&session, "first");
        }
        assert_eq!(heard(&daemon, &session, 1), ["first"], "{point}");
        // Whatever is told next comes next: nothing was told twice.
        daemon.prompt(&session, "second");
        assert_eq!(heard(&daemon, &session, 2), ["first", "second"], "{point}");
        let of = |kind: &str| count(&daemon, &session, kind);
        assert_eq!((of("agent.spawned"), of("prompt.queued"), of("agent.exited")), (1, 2, 0), "{point}");
    }
}

#[test]
fn killed_as_it_is_created_it_is_there_or_it_is_not() {
    for (point, there) in [("command.stepped", 0), ("command.committed", 1), ("launch.committed", 1)] {
        let daemon = Daemon::start_in(home(QUICK), &[], &[("INTERCOM_FAILPOINT", point)]);
        let body = json!({
            "command": fixture(), "args": ["status:up", "echo"], "workspace": daemon.workspace(), "defer": true,
        });
        std::panic::catch_unwind(|| {
            http(&daemon.socket(), "POST", "/api/v1/sessions", Some(&body.to_string()), &[])
        })
        .ok();
        let (dir, status) = daemon.end(Signal::SIGCONT);
        assert!(!status.success(), "{point} was not reached");
        let daemon = Daemon::start_in(dir, &[], &[]);
        let sessions = daemon.get("/api/v1/sessions?all=true").1;
        assert_eq!(sessions["items"].as_array().unwrap().len(), there, "{point}");
        if let Some(session) = sessions["items"][0]["id"].as_str() {
            daemon.prompt(session, "first");
            assert_eq!(heard(&daemon, session, 1), ["first"], "{point}");
        }
    }
}

#[test]
fn if_it_cannot_be_started_its_first_prompt_has_failed() {
    let daemon = Daemon::quick("");
    let session = defer(&daemon, json!({ "command": "/no/such/agent", "args": [] }));
    let prompt = daemon.prompt(&session, "first");
    assert_eq!(prompt["state"], "failed", "{prompt}");
    assert!(prompt["error"].as_str().unwrap().starts_with("spawn failed: command not found"), "{prompt}");
    let events = daemon.all_events(&session);
    assert_eq!(of_kind(&events, "prompt.undelivered")[0]["data"]["prompt"], prompt["id"]);
    let shown = daemon.show(&session);
    assert_eq!((&shown["phase"], &shown["queue"]), (&json!("ended"), &json!(0)), "{shown}");
    assert!(shown["exit"]["reason"].as_str().unwrap().starts_with("spawn failed"), "{shown}");
    refused(
        daemon.post(&format!("/api/v1/sessions/{session}/prompts"), &json!({ "text": "x" })),
        409,
        "ended",
    );
    // One that runs and cannot be worked with is no better.
    let session = defer(
        &daemon,
        json!({ "command": acp_fixture(), "args": ["version:7"], "protocol": "acp", "name": "odd" }),
    );
    let prompt = daemon.prompt(&session, "first")["id"].clone();
    let events = daemon.all_events(&session);
    assert_eq!(of_kind(&events, "prompt.undelivered")[0]["data"]["prompt"], prompt);
    // And whoever starts it in another way is told at once.
    let session = defer(&daemon, json!({ "command": "/no/such/agent", "args": [] }));
    let refusal =
        refused(daemon.post(&format!("/api/v1/sessions/{session}/resume"), &json!({})), 422, "spawn_failed");
    assert_eq!(refusal["session"], json!(session));
}

#[test]
fn of_many_first_prompts_each_is_told_once_to_one_agent() {
    let daemon = Daemon::quick("");
    let session = defer(&daemon, json!({}));
    std::thread::scope(|scope| {
        for n in 0..12 {
            let (daemon, session) = (&daemon, &session);
            scope.spawn(move || daemon.prompt(session, &format!("prompt {n}")));
        }
    });
    let mut told = heard(&daemon, &session, 12);
    let queued: Vec<String> = of_kind(&daemon.so_far(&session), "prompt.queued")
        .into_iter()
        .map(|event| event["data"]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(told, queued, "in the order in which they came");
    told.sort();
    told.dedup();
    assert_eq!((told.len(), count(&daemon, &session, "agent.spawned")), (12, 1));
}

#[test]
fn it_is_stopped_killed_and_started_without_a_prompt() {
    let daemon = Daemon::quick("");
    for (how, reason) in [("stop", "stopped by "), ("kill", "killed by ")] {
        let session = defer(&daemon, json!({ "name": how }));
        let (ended, _) = daemon.end_session(&session, how);
        assert_eq!((&ended["phase"], &ended["killed"]), (&json!("ended"), &json!(0)), "{ended}");
        assert!(daemon.show(&session)["why"].as_str().unwrap().starts_with(reason));
        assert_eq!(count(&daemon, &session, "agent.spawned"), 0);
        defer(&daemon, json!({ "name": how })); // its name is free again
    }
    let session = defer(&daemon, json!({}));
    let resume = || daemon.post(&format!("/api/v1/sessions/{session}/resume"), &json!({}));
    let (status, shown) = resume();
    assert_eq!(
        (status, &shown["generation"], &shown["deferred"]),
        (200, &json!(1), &json!(false)),
        "{shown}"
    );
    daemon.wait_status(&session, "up");
    refused(resume(), 409, "running");
    // After its end it is resumed as any other.
    daemon.end_session(&session, "stop");
    let (status, shown) = resume();
    assert_eq!((status, &shown["generation"]), (200, &json!(2)), "{shown}");
}

#[test]
fn it_can_have_another_agent_until_it_has_one() {
    let acp = format!("[agents.acp]\ncommand = {}\nprotocol = 'acp'\n", json!(acp_fixture()));
    let config = format!("{QUICK}{acp}{}", profile("native", &["status:up", "echo"], ""));
    let daemon = Daemon::with_config(&config);
    let session = defer(&daemon, json!({ "env": { "KEPT": "yes" }, "name": "mine" }));
    let choose = |daemon: &Daemon, agent: &str| {
        daemon.post(&format!("/api/v1/sessions/{session}/agent"), &json!({ "agent": agent }))
    };
    let (status, shown) = choose(&daemon, "acp");
    assert_eq!(
        (status, &shown["agent"], &shown["protocol"], &shown["phase"], &shown["name"]),
        (200, &json!("acp"), &json!("acp"), &json!("created"), &json!("mine")),
        "{shown}"
    );
    refused(choose(&daemon, "nobody"), 400, "bad_request");
    choose(&daemon, "native");
    let (_, shown) = choose(&daemon, "acp");
    assert_eq!(shown["protocol"], "acp");
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(daemon.show(&session)["agent"], "acp");
    daemon.prompt(&session, "say:hello");
    wait_turns(&daemon, &session, 1);
    refused(choose(&daemon, "native"), 409, "started");
    daemon.end_session(&session, "stop");
    refused(choose(&daemon, "native"), 409, "started");
    let running = daemon.run(&["serve"]);
    let path = format!("/api/v1/sessions/{running}/agent");
    refused(daemon.post(&path, &json!({ "agent": "native" })), 409, "started");
    let changes = of_kind(&daemon.so_far(&session), "session.agent").len();
    assert_eq!(changes, 3);
    let (_, audit) = daemon.get(&format!("/api/v1/audit?session={session}"));
    assert!(audit["items"].as_array().unwrap().iter().any(|row| row["action"] == "session.agent"), "{audit}");
}

#[test]
fn it_is_started_as_it_is_configured_then() {
    let config = |steps: &[&str]| format!("{QUICK}{}", profile("mine", steps, ""));
    let daemon = Daemon::with_config(&config(&["status:old", "echo"]));
    let (status, session) = daemon.ask_to_start(json!({ "agent": "mine", "defer": true }));
    assert_eq!(status, 201, "{session}");
    let session = session["id"].as_str().unwrap().to_owned();
    let file = daemon.dir.path().join("config.toml");
    std::fs::write(&file, format!("{}\n[api]\nlisten = \"off\"\n", config(&["status:new", "echo"]))).unwrap();
    assert_eq!(daemon.post("/api/v1/reload", &json!({})).0, 200);
    daemon.prompt(&session, "first");
    daemon.wait_status(&session, "new");
    assert_eq!(count(&daemon, &session, "prompt.delivered"), 1);
}
