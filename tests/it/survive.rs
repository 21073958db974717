//! Agents outlive the daemon: killed at every step, it loses nothing, doubles nothing, and finds its agents again.

use intercom_testkit::harness::{self, Daemon, fixture, home, http, is_alive};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// What the fixture was sent, line by line, as it reported itself.
fn received(events: &[Value]) -> Vec<Value> {
    let reports =
        events.iter().filter(|event| event["kind"] == "status" && event["data"]["message"] == "received");
    reports
        .map(|event| serde_json::from_str(event["data"]["line"].as_str().unwrap().trim_end()).unwrap())
        .collect()
}

/// The numbers of flooded lines, in the order of the log.
fn flooded(events: &[Value]) -> Vec<u64> {
    let text = |event: &Value| event["data"]["message"].as_str().map(str::to_owned);
    let numbers = events
        .iter()
        .filter_map(text)
        .filter_map(|text| text.strip_prefix("flood ").and_then(|rest| rest.split(' ').next()?.parse().ok()));
    numbers.collect()
}

#[test]
fn a_killed_daemon_finds_its_agents_again_and_nothing_is_lost_or_doubled() {
    let daemon = Daemon::start();
    let session =
        daemon.run(&["flood:20000", "clearance:1:May I?", "answer:1", "flood:20000:100:20001", "serve"]);
    let pid = daemon.show(&session)["pid"].clone();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    assert!(is_alive(&pid), "the agent lives on");
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert!(daemon.log().contains("1 session re-attached, 0 ended while away"), "{}", daemon.log());
    let clearance = daemon.clearance(&session);
    assert_eq!(daemon.show(&session)["phase"], "waiting", "what was open stays open");
    assert_eq!(daemon.show(&session)["pid"], pid);
    daemon.decide(&clearance, "approve");
    daemon.wait_status(&session, "answered");
    let answer = daemon.post(&format!("/api/v1/sessions/{session}/stop"), &json!({}));
    assert_eq!(answer.0, 200, "{answer:?}");
    let events = daemon.all_events(&session);
    assert_eq!(flooded(&events), (1..=40_000).collect::<Vec<u64>>());
    assert!(!is_alive(&pid));
}

#[test]
fn a_daemon_that_leaves_its_agents_says_so_and_names_them() {
    let dir = harness::home(harness::QUICK);
    let daemon = Daemon::start_in(dir, &["--on-stop", "leave"], &[]);
    let session = daemon.run(&["status:up", "serve"]);
    daemon.wait_status(&session, "up");
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let log = std::fs::read_to_string(dir.path().join("daemon.log")).unwrap();
    let line = log.lines().find(|line| line.contains("the agent is left running"));
    assert!(line.is_some_and(|line| line.contains(&session)), "{log}");
    assert!(!log.contains("the session ended"), "{log}");
    Daemon::start_in(dir, &[], &[]).end_session(&session, "stop");
}

#[test]
fn what_was_decided_while_the_agent_was_not_listening_is_delivered_by_the_next_daemon() {
    let daemon = Daemon::start();
    // The agent asks, and reads nothing until a file appears.
    let gate = daemon.dir.path().join("gate");
    let session = daemon.run(&["clearance:1:May I?", &format!("wait-file:{}", gate.display()), "echo"]);
    let clearance = daemon.clearance(&session);
    let big = "x".repeat(200_000);
    daemon.post(&format!("/api/v1/sessions/{session}/prompts"), &json!({ "text": big }));
    let decided = daemon.decide(&clearance, "approve");
    assert_eq!(decided["delivery"], "pending", "the pipe is full");
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    std::fs::write(&gate, "").unwrap();
    daemon.wait_kind(&session, "clearance.delivered");
    daemon.cli(&["stop", &session]).ok();
    let lines = received(&daemon.all_events(&session));
    let methods: Vec<_> = lines.iter().map(|line| line["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["prompt/send", "clearance/response", "session/interrupt"], "each once, in order");
}

#[test]
fn an_agent_that_ends_while_the_daemon_is_away_is_found_with_its_exit_and_all_it_said() {
    let daemon = Daemon::start();
    let gate = daemon.dir.path().join("gate");
    let session =
        daemon.run(&[&format!("wait-file:{}", gate.display()), "flood:5000", "stderr:last words", "exit:7"]);
    let pid = daemon.show(&session)["pid"].clone();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    std::fs::write(dir.path().join("gate"), "").unwrap();
    while is_alive(&pid) {
        std::thread::yield_now();
    }
    let daemon = Daemon::start_in(dir, &[], &[]);
    let events = daemon.all_events(&session);
    assert_eq!(flooded(&events), (1..=5000).collect::<Vec<u64>>());
    let exited = events.iter().find(|event| event["kind"] == "agent.exited").unwrap();
    assert_eq!(exited["data"]["code"], 7);
    assert!(exited["data"]["stderr_tail"].as_str().unwrap().contains("last words"));
    let reason = "exited with code 7 during a turn: “last words”";
    assert_eq!(daemon.show(&session)["exit"]["reason"], reason);
    let left = std::fs::read_dir(daemon.dir.path().join("state/agents")).unwrap().count();
    assert_eq!(left, 0, "what is in the log needs no files any more");
}

#[test]
fn leaving_is_the_default_and_draining_is_asked_for() {
    let daemon = Daemon::start();
    let session = daemon.run(&["serve"]);
    let pid = daemon.show(&session)["pid"].clone();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &["--on-stop", "leave"], &[]);
    let (dir, status) = daemon.end(Signal::SIGTERM);
    assert!(status.success());
    assert!(is_alive(&pid));
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(daemon.show(&session)["phase"], "idle");
    let (_dir, status) = daemon.end(Signal::SIGTERM);
    assert!(status.success());
    assert!(!is_alive(&pid), "drained");
}

#[test]
fn a_killed_shim_takes_its_agent_along_and_nothing_it_said_is_lost() {
    let daemon = Daemon::start();
    let session = daemon.run(&["flood:3000", "grandchild:setsid", "clearance:1:May I?", "serve"]);
    let grandchild = daemon.wait_status(&session, "grandchild")["pid"].clone();
    daemon.clearance(&session);
    let pid = daemon.show(&session)["pid"].clone();
    let meta = daemon.dir.path().join(format!("state/agents/{session}/1/meta.json"));
    let meta: Value = serde_json::from_slice(&std::fs::read(meta).unwrap()).unwrap();
    let shim = i32::try_from(meta["shim"]["pid"].as_i64().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(shim), Signal::SIGKILL).unwrap();
    let events = daemon.all_events(&session);
    assert_eq!(flooded(&events), (1..=3000).collect::<Vec<u64>>());
    assert_eq!(events.last().unwrap()["data"]["reason"], "its shim died");
    let closed = events.iter().find(|event| event["kind"] == "clearance.closed").unwrap();
    assert_eq!(closed["data"]["status"], "withdrawn");
    assert!(!is_alive(&pid) && !is_alive(&grandchild), "nothing lingers");
    assert_eq!(daemon.cli(&["resume", &session]).ok().code, 0);
    daemon.cli(&["kill", &session]).ok();
}

#[test]
fn a_daemon_and_a_shim_that_both_died_leave_nothing_behind() {
    let daemon = Daemon::start();
    let session = daemon.run(&["flood:100", "status:ready", "serve"]);
    daemon.wait_status(&session, "ready");
    let pid = daemon.show(&session)["pid"].clone();
    let meta = daemon.dir.path().join(format!("state/agents/{session}/1/meta.json"));
    let meta: Value = serde_json::from_slice(&std::fs::read(meta).unwrap()).unwrap();
    let shim = i32::try_from(meta["shim"]["pid"].as_i64().unwrap()).unwrap();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(shim), Signal::SIGKILL).unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert!(daemon.log().contains("0 sessions re-attached, 1 ended while away"), "{}", daemon.log());
    let events = daemon.all_events(&session);
    assert_eq!(flooded(&events), (1..=100).collect::<Vec<u64>>());
    assert!(!is_alive(&pid));
}

#[test]
fn after_a_reboot_sessions_are_shown_as_ended_by_it_and_resumed_if_the_profile_says_so() {
    let config = format!(
        "[agents.plain]\ncommand = {command:?}\nargs = ['status:up', 'serve']\n\
         [agents.again]\ncommand = {command:?}\nargs = ['status:up', 'serve']\nresume_after_reboot = true\n",
        command = fixture()
    );
    let daemon = Daemon::with_config(&config);
    let start = |agent: &str| {
        let body = json!({ "agent": agent, "workspace": daemon.workspace() });
        let (status, session) = daemon.post("/api/v1/sessions", &body);
        assert_eq!(status, 201, "{session}");
        let id = session["id"].as_str().unwrap().to_owned();
        daemon.wait_status(&id, "up");
        id
    };
    let (plain, again) = (start("plain"), start("again"));
    let (dir, _) = daemon.end(Signal::SIGKILL);
    // What a reboot leaves: no process, and a boot id that is not today's.
    for session in [&plain, &again] {
        let path = dir.path().join(format!("state/agents/{session}/1/meta.json"));
        let mut meta: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for who in ["shim", "agent"] {
            let pid = i32::try_from(meta[who]["pid"].as_i64().unwrap()).unwrap();
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            meta[who]["boot"] = json!("another boot");
        }
        std::fs::write(&path, meta.to_string()).unwrap();
    }
    let daemon = Daemon::start_in(dir, &[], &[]);
    let ended = daemon.wait_kind(&plain, "session.ended");
    assert_eq!(ended["data"]["reason"], "the machine was restarted");
    daemon.wait_kind(&again, "session.resumed");
    let up = |event: &Value| event["kind"] == "agent.spawned" && event["data"]["generation"] == 2;
    daemon.wait_for(&again, "the next generation", up);
    assert_eq!(daemon.show(&plain)["phase"], "ended");
}

#[test]
fn killed_at_every_step_from_launch_to_exit_it_delivers_each_message_once() {
    // The first command is the launch itself, the second the decision.
    let second = intercom_failpoint::ALL.iter().filter(|point| point.starts_with("command."));
    let second: Vec<String> = second.map(|point| format!("{point}:2")).collect();
    for point in intercom_failpoint::ALL.iter().copied().chain(second.iter().map(String::as_str)) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let daemon = Daemon::start_in(dir, &[], &[("INTERCOM_FAILPOINT", point)]);
        let body = json!({
            "command": fixture(), "workspace": daemon.workspace(), "name": "it",
            "args": ["flood:50", "clearance:1:May I?", "echo:1", "flood:50:100:51", "exit:3"],
        });
        // The daemon may die at any moment from here on: no answer is expected.
        let ask = |method: &str, path: &str, body: Option<&str>| {
            std::panic::catch_unwind(|| {
                http(&daemon.socket(), method, path, body, &[("accept", "application/json")])
            })
        };
        ask("POST", "/api/v1/sessions", Some(&body.to_string())).ok();
        let pending = || {
            let (status, text) = ask("GET", "/api/v1/clearances?status=pending", None).ok()?;
            let list: Value = serde_json::from_str(&text).ok().filter(|_| status == 200)?;
            Some(list["items"][0]["id"].as_str().map(str::to_owned))
        };
        let mut dead = false;
        while !dead {
            match pending() {
                Some(Some(id)) => {
                    let path = format!("/api/v1/clearances/{id}/decision");
                    ask("POST", &path, Some(r#"{"decision":"approve"}"#)).ok();
                }
                Some(None) => std::thread::yield_now(),
                None => dead = true,
            }
        }
        let (dir, status) = daemon.end(Signal::SIGCONT);
        assert!(!status.success(), "{point} was not reached");
        let daemon = Daemon::start_in(dir, &[], &[]);
        let sessions = daemon.get("/api/v1/sessions?all=true").1;
        if point == "command.stepped" {
            assert_eq!(sessions["items"], json!([]), "what was not committed has not happened");
            continue;
        }
        let session = sessions["items"][0]["id"].as_str().unwrap().to_owned();
        if ["launch.committed", "command.committed", "command.performed"].contains(&point) {
            // No process was there yet: the session is shown as lost, and nothing else happened.
            let reason = daemon.wait_kind(&session, "session.ended")["data"]["reason"].clone();
            assert_eq!(reason, "lost: it was never started", "{point}");
            continue;
        }
        // Undecided if it died before the commit; then, and only then, it is decided now.
        let clearance = daemon.clearance(&session);
        let shown = daemon.get(&format!("/api/v1/clearances/{clearance}")).1;
        if shown["status"] == "pending" {
            daemon.decide(&clearance, "approve");
        }
        let events = daemon.all_events(&session);
        assert_eq!(flooded(&events), (1..=100).collect::<Vec<u64>>(), "{point}");
        let answers: Vec<_> = received(&events).into_iter().map(|line| line["method"].clone()).collect();
        assert_eq!(answers, ["clearance/response"], "{point}: the answer arrived once");
        let count = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
        for kind in [
            "clearance.requested",
            "clearance.decided",
            "clearance.delivered",
            "agent.exited",
            "session.ended",
        ] {
            assert_eq!(count(kind), 1, "{point}: {kind} in {events:#?}");
        }
        let exited = events.iter().find(|event| event["kind"] == "agent.exited").unwrap();
        assert_eq!(exited["data"]["code"], 3, "{point}");
    }
}

#[test]
fn a_daemon_talks_to_shims_of_the_version_before_its_own() {
    let daemon = Daemon::start();
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let daemon = Daemon::start_in(dir, &[], &[("INTERCOM_SHIM_VERSION", "1")]);
    let steps = ["flood:1000", "clearance:1:May I?", "answer:1", "flood:1000:100:1001", "serve"];
    let (old, deaf) =
        (daemon.run(&steps), daemon.run(&["ignore:TERM", "ignore:eof", "close:stdin", "status:up", "hang"]));
    let (dir, _) = daemon.end(Signal::SIGKILL);
    // The upgrade: this daemon would start shims of its own version, and finds older ones.
    let daemon = Daemon::start_in(dir, &[], &[]);
    let meta = daemon.dir.path().join(format!("state/agents/{old}/1/meta.json"));
    let meta: Value = serde_json::from_slice(&std::fs::read(meta).unwrap()).unwrap();
    assert_eq!(meta["version"], 1);
    daemon.decide(&daemon.clearance(&old), "approve");
    daemon.wait_for(&old, "the last line", |event| {
        event["data"]["message"].as_str().is_some_and(|text| text.starts_with("flood 0000002000"))
    });
    daemon.cli(&["stop", &old]).ok();
    assert_eq!(flooded(&daemon.all_events(&old)), (1..=2000).collect::<Vec<u64>>());
    // It cannot say that a message failed: that is known at its end.
    daemon.wait_status(&deaf, "up");
    let sent =
        daemon.post(&format!("/api/v1/sessions/{deaf}/prompts"), &json!({ "text": "anyone there?" })).1;
    let pid = daemon.show(&deaf)["pid"].clone();
    daemon.cli(&["kill", &deaf]).ok();
    assert!(!is_alive(&pid));
    let failed = daemon.wait_kind(&deaf, "prompt.undelivered");
    assert_eq!(failed["data"]["prompt"], sent["id"]);
}

#[test]
fn a_stop_that_was_recorded_and_not_begun_is_carried_out_by_the_next_daemon() {
    for how in ["stop", "kill"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        // The first command is the launch, the second the stop.
        let daemon = Daemon::start_in(dir, &[], &[("INTERCOM_FAILPOINT", "command.committed:2")]);
        let session = daemon.run(&["serve"]);
        let pid = daemon.show(&session)["pid"].clone();
        let path = format!("/api/v1/sessions/{session}/{how}");
        std::panic::catch_unwind(|| http(&daemon.socket(), "POST", &path, Some("{}"), &[])).ok();
        let (dir, status) = daemon.end(Signal::SIGCONT);
        assert!(!status.success());
        assert!(is_alive(&pid), "nobody had told it");
        let daemon = Daemon::start_in(dir, &[], &[]);
        daemon.wait_kind(&session, "session.ended");
        assert!(!is_alive(&pid));
    }
}

#[test]
fn a_daemon_killed_in_the_middle_of_a_resume_reads_the_new_process_from_its_first_line() {
    let daemon = Daemon::start();
    let session = daemon.run(&["flood:500", "exit:0"]);
    daemon.all_events(&session);
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let daemon = Daemon::start_in(dir, &[], &[("INTERCOM_FAILPOINT", "process.spawned")]);
    let path = format!("/api/v1/sessions/{session}/resume");
    std::panic::catch_unwind(|| http(&daemon.socket(), "POST", &path, Some("{}"), &[])).ok();
    let (dir, status) = daemon.end(Signal::SIGCONT);
    assert!(!status.success());
    let daemon = Daemon::start_in(dir, &[], &[]);
    let second = |event: &Value| event["kind"] == "agent.exited" && event["data"]["generation"] == 2;
    daemon.wait_for(&session, "the second end", second);
    let page = daemon.get(&format!("/api/v1/events?after=0&limit=1000&session={session}")).1;
    let mut events = page["items"].as_array().unwrap().clone();
    let next = page["next"].clone();
    let rest = daemon.get(&format!("/api/v1/events?after={next}&limit=1000&session={session}")).1;
    events.extend(rest["items"].as_array().unwrap().clone());
    assert_eq!(flooded(&events), (1..=500).chain(1..=500).collect::<Vec<u64>>());
}

#[test]
fn a_shim_that_has_lost_its_description_is_found_all_the_same() {
    let daemon = Daemon::start();
    let session = daemon.run(&["status:up", "serve"]);
    daemon.wait_status(&session, "up");
    let pid = daemon.show(&session)["pid"].clone();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    std::fs::write(dir.path().join(format!("state/agents/{session}/1/meta.json")), "{ torn").unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert!(daemon.log().contains("1 session re-attached"), "{}", daemon.log());
    assert_eq!(daemon.show(&session)["pid"], pid);
}

#[test]
fn a_session_whose_task_fails_ends_visibly_with_its_agent_and_the_others_go_on() {
    let dir = home("");
    let mut daemon = Daemon::start_in(dir, &[], &[("INTERCOM_FAILPOINT", "output.decoded:2!")]);
    let other = daemon.run(&["status:up", "echo"]);
    daemon.wait_status(&other, "up");
    let session = daemon.run_with(&["status:hello", "serve"], json!({ "name": "unlucky" }));
    let pid = daemon.show(&session)["pid"].clone();
    let ended = daemon.wait_kind(&session, "session.ended");
    assert_eq!(ended["data"]["reason"], "intercom failed; its log has the details");
    daemon.until("its agent has gone", |_| (!is_alive(&pid)).then_some(()));
    daemon.post(&format!("/api/v1/sessions/{other}/nudge"), &json!({ "message": "still there?" }));
    daemon.wait_status(&other, "received");
    let again = daemon.run_with(&["serve"], json!({ "name": "unlucky" }));
    assert_ne!(again, session, "its name and its place are free again");
}

#[test]
fn an_agent_cannot_take_the_place_of_the_daemon_at_its_shim() {
    let daemon = Daemon::start();
    let script = r#"
import json, os, socket, sys
shim = socket.socket(socket.AF_UNIX)
os.chdir(sys.argv[1] + "/agents/" + os.environ["INTERCOM_SESSION"] + "/1")
shim.connect("sock")
told = shim.recv(4096)
print(json.dumps({"method": "status/update", "params": {"message": "refused" if told == b"" else "welcome"}}), flush=True)
print(json.dumps({"method": "clearance/request", "id": "1", "params": {"title": "May I?", "description": "", "risk_level": "low"}}), flush=True)
sys.stdin.readline()
print(json.dumps({"method": "status/update", "params": {"message": "answered"}}), flush=True)
sys.stdin.read()
"#;
    std::fs::write(daemon.workspace().join("agent.py"), script).unwrap();
    let state = daemon.dir.path().join("state");
    let body = json!({ "command": "python3", "args": ["agent.py", state], "workspace": daemon.workspace() });
    let session = daemon.post("/api/v1/sessions", &body).1["id"].as_str().unwrap().to_owned();
    daemon.wait_status(&session, "refused");
    let clearance = daemon.clearance(&session);
    assert_eq!(daemon.decide(&clearance, "approve")["delivery"], "delivered");
    daemon.wait_status(&session, "answered");
}

#[test]
fn a_daemon_killed_while_it_packs_the_log_loses_nothing() {
    for point in ["pack.deleted", "pack.stored"] {
        let daemon = Daemon::start_in(home(""), &[], &[("INTERCOM_FAILPOINT", point)]);
        let session = daemon.run(&["flood:6000", "exit:3"]);
        // It dies as soon as it has time for packing.
        let (dir, status) = daemon.end(Signal::SIGCONT);
        assert!(!status.success(), "{point} was not reached");
        let daemon = Daemon::start_in(dir, &[], &[]);
        assert_eq!(flooded(&daemon.all_events(&session)), (1..=6000).collect::<Vec<u64>>(), "{point}");
        let database = rusqlite::Connection::open(daemon.dir.path().join("state/intercom.db")).unwrap();
        let packed = "SELECT coalesce(sum(events), 0) FROM blocks WHERE codec = 1";
        let begun = std::time::Instant::now();
        while database.query_row(packed, [], |row| row.get::<_, i64>(0)).unwrap() < 5000 {
            assert!(begun.elapsed() < std::time::Duration::from_mins(1), "{point}: it is not packed");
            std::thread::yield_now();
        }
        assert_eq!(flooded(&daemon.all_events(&session)), (1..=6000).collect::<Vec<u64>>(), "{point}");
    }
}
