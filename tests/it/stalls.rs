//! Agents that are quiet, and why: left alone, nudged, climbed, started again, parked. Thresholds are a second here.

use std::net::TcpListener;
use std::time::Duration;

use intercom_testkit::harness::{Daemon, QUICK, home, of_kind, profile, refused};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A second for everything, and less for an interrupt: its prompt must be written before the next step is due.
const HASTY: &str = "[acp]\ninterrupt_quiet_seconds = 0.2\n[stall]\nsilent_after = '1s'\nno_cpu_after = '1s'\nstopped_after = '1s'\nverify = '1s'\n";
const AGAIN: &str = "[restart]\nfirst_wait = '1s'\n";

fn hasty(more: &str) -> Daemon {
    Daemon::with_config(&format!("{QUICK}{HASTY}{more}"))
}

/// The steps that were taken, by name.
fn steps(events: &[Value]) -> Vec<String> {
    let steps = of_kind(events, "stall.step").into_iter();
    steps.map(|event| event["data"]["name"].as_str().unwrap().to_owned()).collect()
}

fn wait_step(daemon: &Daemon, session: &str, name: &str) -> Value {
    let wanted = |event: &Value| event["kind"] == "stall.step" && event["data"]["name"] == name;
    daemon.wait_for(session, name, wanted)["data"].clone()
}

fn pid(daemon: &Daemon, session: &str) -> Pid {
    Pid::from_raw(i32::try_from(daemon.show(session)["pid"].as_i64().unwrap()).unwrap())
}

#[test]
fn an_agent_that_compiles_silently_is_left_alone() {
    let daemon = hasty("");
    let itself = daemon.run(&["status:go", "spin:4000", "turn-end", "serve"]);
    let child = daemon.run(&["status:go", "grandchild::spin:4000", "sleep:4000", "turn-end", "serve"]);
    for session in [&itself, &child] {
        daemon.wait_kind(session, "turn.ended");
        assert!(steps(&daemon.so_far(session)).is_empty(), "{:#?}", daemon.so_far(session));
    }
    // While it works, people can see what at.
    let shown = daemon.run(&["status:go", "sleep:3100", "grandchild::spin", "hang"]);
    let mut daemon = daemon;
    let why = daemon.until("it is busy", |daemon| {
        let shown = daemon.show(&shown);
        let why = shown["why"].as_str().unwrap().to_owned();
        why.ends_with(", busy").then_some((why, shown["standing"].clone()))
    });
    assert!(why.0.starts_with("working: fixture-agent") && why.0.contains(" running "), "{why:?}");
    assert_eq!(why.1["state"], "working");
}

#[test]
fn a_sleeper_is_nudged_and_recovers() {
    let daemon = hasty("");
    let session = daemon.run(&["status:go", "report:nudge", "turn-end", "serve"]);
    let recovered = daemon.wait_kind(&session, "stall.recovered")["data"].clone();
    assert_eq!((&recovered["after"], &recovered["by"]), (&json!("nudge 1"), &json!("output")));
    let events = daemon.so_far(&session);
    assert_eq!(steps(&events), ["alert", "nudge 1"]);
    let received = daemon.wait_status(&session, "received");
    let line: Value = serde_json::from_str(received["line"].as_str().unwrap()).unwrap();
    assert!(
        line["params"]["message"].as_str().unwrap().starts_with("You have been silent for a while."),
        "{line}"
    );
    // Whoever nudges without words says the same.
    daemon.cli(&["nudge", &session]).ok();
    let said = daemon.wait_for(&session, "the nudge", |event| {
        event["kind"] == "nudge" && event["data"]["by"] != "intercom"
    });
    assert_eq!(said["data"]["message"], line["params"]["message"]);
    assert_eq!(daemon.show(&session)["standing"]["state"], "idle");
    assert!(daemon.cli(&["logs", &session]).ok().stdout.contains(" after nudge 1, by "));
}

#[test]
fn who_ignores_everything_is_climbed_to_the_end_once() {
    let daemon = hasty(&format!("{AGAIN}{}", profile("deaf", &["status:go", "hang"], "")));
    let session = daemon.run_agent("deaf");
    wait_step(&daemon, &session, "nudge 1");
    let ls = daemon.cli(&["ls"]).ok().stdout;
    assert!(ls.contains("stuck ") && ls.contains("no output, nothing runs; nudged 1/2"), "{ls}");
    // Started again, nobody tells it what to do, which people are told; it falls asleep in the same way: so they are again.
    let first = daemon.wait_for(&session, "people", |event| event["data"]["step"] == "escalate");
    assert_eq!(first["data"]["state"], "idle");
    daemon.wait_for(&session, "people again", |event| {
        event["data"]["step"] == "escalate" && event["seq"].as_u64() > first["seq"].as_u64()
    });
    let events = daemon.so_far(&session);
    assert_eq!(
        steps(&events),
        ["alert", "nudge 1", "nudge 2", "interrupt", "restart", "escalate", "escalate"]
    );
    let failed = of_kind(&events, "stall.failed");
    let failed: Vec<&str> = failed.iter().map(|event| event["data"]["name"].as_str().unwrap()).collect();
    assert_eq!(failed, ["nudge 1", "nudge 2", "interrupt"]);
    let nudges = of_kind(&events, "nudge");
    assert!(nudges[1]["data"]["message"].as_str().unwrap().contains("(stuck "), "{nudges:?}");
    let prompts = of_kind(&events, "prompt.queued");
    assert_eq!((prompts.len(), &prompts[0]["data"]["by"]), (1, &json!("intercom")));
    let shown = daemon.show(&session);
    assert_eq!((&shown["generation"], &shown["phase"]), (&json!(2), &json!("working")));
    assert_eq!(shown["standing"]["done"], "nothing has helped: please take over");
}

#[test]
fn a_dead_connection_is_found_and_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let daemon = hasty("");
    let connect = format!("connect:{}", listener.local_addr().unwrap());
    let session = daemon.run(&["status:go", &connect, "status:back", "turn-end", "serve"]);
    let step = wait_step(&daemon, &session, "alert");
    assert_eq!(step["why"], "stuck 1s: no output, 1 connection without traffic");
    drop(listener.accept().unwrap());
    daemon.wait_kind(&session, "stall.recovered");
}

#[test]
fn a_stopped_agent_is_found_also_when_it_is_idle_and_its_nudges_are_spared() {
    let daemon = Daemon::quick(&format!("[stall]\nstopped_after = '1s'\nverify = '1s'\n{AGAIN}"));
    let session = daemon.run(&["status:go", "hang"]);
    daemon.wait_status(&session, "go");
    kill(pid(&daemon, &session), Signal::SIGSTOP).unwrap();
    let step = wait_step(&daemon, &session, "alert");
    assert_eq!(
        (&step["state"], &step["why"]),
        (&json!("gone"), &json!("gone 1s: fixture-agent is stopped by a signal"))
    );
    wait_step(&daemon, &session, "restart");
    daemon.wait_for(&session, "the second life", |event| {
        event["kind"] == "agent.spawned" && event["data"]["generation"] == 2
    });
    assert!(of_kind(&daemon.so_far(&session), "nudge").is_empty());
}

#[test]
fn whoever_waits_for_people_is_left_alone_but_they_are_reminded() {
    let daemon = hasty("remind_after = '1s'\n");
    let session = daemon.run(&["status:go", "clearance:1:t", "answer:1", "turn-end", "serve"]);
    let clearance = daemon.clearance(&session);
    let first = daemon.wait_kind(&session, "stall.reminder");
    assert_eq!(first["data"]["waiting_for"], "1 clearance");
    let after = first["seq"].clone();
    daemon.wait_for(&session, "a second reminder", |event| {
        event["kind"] == "stall.reminder" && event["seq"].as_u64() > after.as_u64()
    });
    daemon.decide(&clearance, "approve");
    daemon.wait_kind(&session, "turn.ended");
    assert!(steps(&daemon.so_far(&session)).is_empty());
}

#[test]
fn a_limit_is_waited_out_and_then_it_is_told() {
    let daemon = hasty("resume_after_limit = '1h'\n");
    let limit = r#"notify:service/limit:{"kind":"usage","retry_after_seconds":3}"#;
    let session = daemon.run(&["status:go", limit, "report:nudge", "turn-end", "serve"]);
    let limited = daemon.wait_kind(&session, "stall.limited")["data"].clone();
    assert_eq!((&limited["limit"], &limited["resumes"]), (&json!("usage"), &json!(true)));
    let shown = daemon.show(&session);
    assert_eq!(shown["standing"]["state"], "waiting_for_service");
    assert!(
        shown["why"].as_str().unwrap().starts_with("waiting for its service: usage limit, over in "),
        "{shown}"
    );
    daemon.wait_kind(&session, "turn.ended");
    let events = daemon.so_far(&session);
    assert!(steps(&events).is_empty() && of_kind(&events, "nudge").len() == 1, "{events:#?}");
}

#[test]
fn snooze_and_ladder_are_peoples_own() {
    let daemon = hasty("");
    let session = daemon.run(&["status:go", "hang"]);
    wait_step(&daemon, &session, "alert");
    assert!(daemon.cli(&["snooze", &session, "30m"]).ok().stdout.contains("is snoozed until "));
    let ls = daemon.cli(&["ls"]).ok().stdout;
    assert!(ls.contains("snoozed for "), "{ls}");
    assert_eq!(daemon.cli(&["ladder", &session]).ok().stdout, "on, as configured in [stall]\n");
    assert_eq!(daemon.cli(&["ladder", &session, "off"]).ok().stdout, "off\n");
    daemon.cli(&["snooze", &session, "off"]).ok();
    let ls = daemon.cli(&["ls"]).ok().stdout;
    assert!(ls.contains("its ladder is off"), "{ls}");
    assert_eq!(daemon.cli(&["ladder", &session, "escalate"]).ok().stdout, "escalate\n");
    wait_step(&daemon, &session, "escalate");
    assert_eq!(steps(&daemon.so_far(&session)), ["alert", "escalate"]);
    // What makes no sense is said so.
    let post = |verb: &str, body: Value| daemon.post(&format!("/api/v1/sessions/{session}/{verb}"), &body);
    refused(post("snooze", json!({ "for": "soon" })), 400, "bad_request");
    refused(post("ladder", json!({ "ladder": "nudge" })), 400, "bad_request");
    refused(post("ladder", json!({ "ladder": "shout,escalate" })), 400, "bad_request");
    // A session may have its own from the start.
    let own = daemon.run_with(&["status:go", "hang"], json!({ "ladder": "escalate" }));
    wait_step(&daemon, &own, "escalate");
    assert_eq!(steps(&daemon.so_far(&own)), ["escalate"]);
    daemon.end_session(&own, "kill");
    let path = format!("/api/v1/sessions/{own}/snooze");
    refused(daemon.post(&path, &json!({ "for": "1m" })), 409, "ended");
}

#[test]
fn a_stuck_session_says_so_in_its_phase_column() {
    let daemon = hasty("ladder = []\n");
    let session = daemon.run(&["status:go", "hang"]);
    let mut daemon = daemon;
    daemon.until("it is stuck", |daemon| {
        let shown = daemon.show(&session);
        (shown["standing"]["state"] == "stuck").then(|| assert_eq!(shown["phase"], "working"))
    });
    let ls = daemon.cli(&["ls"]).ok().stdout;
    let row = ls.lines().nth(1).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert!(words.contains(&"stuck") && !words.contains(&"working"), "{ls}");
    assert!(daemon.cli(&["show", &session]).ok().stdout.contains("phase      stuck"));
    assert_eq!(daemon.cli(&["ls", "--json"]).ok().json()["items"][0]["phase"], "working");
}

/// Steps that are checked for two seconds each.
const PATIENT: &str = "[stall]\nsilent_after = '1s'\nno_cpu_after = '1s'\nverify = '2s'\nladder = ['nudge', 'nudge', 'escalate']\n";

#[test]
fn an_agent_that_only_reads_or_repeats_our_line_has_not_recovered() {
    let daemon = Daemon::quick(PATIENT);
    let run = |command: &str, args: &[&str]| {
        let (status, session) =
            daemon.ask_to_start(json!({ "command": command, "args": args, "prompt": "Go" }));
        assert_eq!(status, 201, "{session}");
        session["id"].as_str().unwrap().to_owned()
    };
    // Each line costs it some work, and nothing comes of it.
    let script = "while read line; do i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; done";
    let reads = run("sh", &["-c", script]);
    let repeats = run("cat", &[]);
    let chats = daemon.run_acp(&["script:user:Go on;hang"]);
    daemon.prompt(&chats, "hang");
    for session in [&reads, &repeats, &chats] {
        wait_step(&daemon, session, "nudge 2");
        let events = daemon.so_far(session);
        assert!(of_kind(&events, "stall.recovered").is_empty(), "{events:#?}");
    }
}

#[test]
fn an_agent_that_goes_to_work_after_a_nudge_has_recovered_by_its_activity() {
    let daemon = Daemon::quick(PATIENT);
    let session = daemon.run(&["status:go", "expect:nudge", "spin:5000", "turn-end", "serve"]);
    let recovered = daemon.wait_kind(&session, "stall.recovered")["data"].clone();
    assert_eq!((&recovered["after"], &recovered["by"]), (&json!("nudge 1"), &json!("activity")));
}

#[test]
fn a_nudge_without_words_says_what_the_profile_says() {
    let text = "nudge_text = 'Hello?'\n";
    let daemon = Daemon::quick(&profile(
        "coder",
        &["status:go", "report:nudge", "serve"],
        &format!("[agents.coder.stall]\n{text}"),
    ));
    let session = daemon.run_agent("coder");
    daemon.cli(&["nudge", &session]).ok();
    assert_eq!(daemon.wait_kind(&session, "nudge")["data"]["message"], "Hello?");
}

#[test]
fn a_person_who_acts_begins_the_ladder_anew() {
    let daemon = hasty("");
    let session = daemon.run(&["status:go", "expect:nudge", "expect:nudge", "expect:nudge", "hang"]);
    wait_step(&daemon, &session, "nudge 1");
    daemon.cli(&["nudge", &session, "hello?"]).ok();
    let reset = daemon.wait_kind(&session, "stall.reset");
    daemon.wait_for(&session, "a second alert", |event| {
        event["data"]["name"] == "alert" && event["seq"].as_u64() > reset["seq"].as_u64()
    });
}

#[test]
fn the_ladder_goes_on_where_a_killed_daemon_left_it() {
    let config =
        "[stall]\nsilent_after = '2s'\nverify = '2s'\nladder = ['alert', 'nudge', 'nudge', 'escalate']\n";
    let mut daemon = Daemon::start_in(home(&format!("{QUICK}{config}")), &["--on-stop", "leave"], &[]);
    let session = daemon.run(&["status:go", "hang"]);
    for name in ["alert", "nudge 1", "nudge 2"] {
        wait_step(&daemon, &session, name);
        let (dir, _) = daemon.end(Signal::SIGKILL);
        daemon = Daemon::start_in(dir, &["--on-stop", "leave"], &[]);
    }
    wait_step(&daemon, &session, "escalate");
    assert_eq!(steps(&daemon.so_far(&session)), ["alert", "nudge 1", "nudge 2", "escalate"]);
    daemon.end_session(&session, "kill");
}

#[test]
fn who_dies_again_and_again_is_parked_with_its_last_words() {
    let config = format!(
        "{AGAIN}policy = 'on-failure'\nbudget = 2\n{}",
        profile("weak", &["status:go", "stderr:boom", "exit:3"], "")
    );
    let daemon = hasty(&config);
    let session = daemon.run_agent("weak");
    let parked = daemon.wait_kind(&session, "session.parked")["data"].clone();
    assert_eq!(parked["stderr_tail"], "boom\n");
    let reason = "stream closed, and was restarted 2 times within 10m before";
    assert!(
        parked["reason"] == reason || parked["reason"] == reason.replace("stream closed", "exited"),
        "{parked}"
    );
    let shown = daemon.show(&session);
    assert_eq!(
        (&shown["phase"], &shown["generation"], &shown["exit"]["code"]),
        (&json!("parked"), &json!(3), &json!(3))
    );
    let events = daemon.so_far(&session);
    let again = of_kind(&events, "agent.restarting");
    assert_eq!(again.len(), 2);
    assert_eq!((&again[1]["data"]["attempt"], &again[1]["data"]["of"]), (&json!(2), &json!(2)));
    assert!(daemon.cli(&["ls"]).ok().stdout.contains("parked"), "who waits for people is listed");
    refused(daemon.post(&format!("/api/v1/sessions/{session}/nudge"), &json!({})), 409, "ended");
    // A person may give it another chance, or call it a day.
    daemon.cli(&["resume", &session, "--no-wait"]).ok();
    daemon.wait_for(&session, "parked again", |event| {
        event["kind"] == "session.parked" && event["seq"].as_u64() > events.last().unwrap()["seq"].as_u64()
    });
    daemon.cli(&["stop", &session]).ok();
    assert_eq!(daemon.show(&session)["phase"], "ended");
}

#[test]
fn the_policy_says_who_comes_back() {
    let config = format!(
        "{AGAIN}{}{}{}",
        profile("well", &["status:go", "exit:0"], "restart.policy = 'on-failure'"),
        profile("always", &["status:go", "exit:0"], "restart.policy = 'always'"),
        profile("loyal", &["status:go", "serve"], "restart.policy = 'always'"),
    );
    let daemon = hasty(&config);
    let well = daemon.run_agent("well");
    daemon.wait_kind(&well, "session.ended");
    let always = daemon.run_agent("always");
    daemon.wait_kind(&always, "agent.restarting");
    // A stop while it rests, and one while it runs, are ends.
    daemon.end_session(&always, "stop");
    assert_eq!(daemon.show(&always)["phase"], "ended");
    let loyal = daemon.run_agent("loyal");
    daemon.end_session(&loyal, "kill");
    assert!(of_kind(&daemon.so_far(&loyal), "agent.restarting").is_empty());
    // Killed by somebody else, it comes back, and takes what was said meanwhile.
    let loyal = daemon.run_agent("loyal");
    kill(pid(&daemon, &loyal), Signal::SIGKILL).unwrap();
    daemon.wait_kind(&loyal, "agent.restarting");
    daemon.prompt(&loyal, "status:back");
    daemon.wait_status(&loyal, "back");
    assert_eq!(daemon.show(&loyal)["generation"], 2);
}

#[test]
fn what_was_asked_last_is_repeated_only_if_the_profile_says_so() {
    let config = format!(
        "{AGAIN}{}{}",
        profile("forgets", &["serve"], "restart = { policy = 'on-failure' }"),
        profile("repeats", &["serve"], "restart = { policy = 'on-failure', repeat_prompt = true }"),
    );
    let daemon = hasty(&config);
    for (agent, count) in [("forgets", 1), ("repeats", 2)] {
        let session = daemon.run_agent(agent);
        daemon.prompt(&session, "status:at it;sleep:100;exit:1");
        daemon.wait_kind(&session, "agent.restarting");
        daemon.wait_for(&session, "the second life", |event| {
            event["kind"] == "agent.ready" && event["data"]["generation"] == 2
        });
        if count == 2 {
            daemon.wait_for(&session, "it again", |event| {
                event["kind"] == "prompt.queued" && event["data"]["by"] == "intercom"
            });
        }
        let prompts = of_kind(&daemon.so_far(&session), "prompt.queued").len();
        assert_eq!(prompts, count, "{agent}");
        daemon.end_session(&session, "kill");
    }
}

#[test]
fn a_daemon_that_dies_while_an_agent_rests_starts_it_again() {
    let config = format!(
        "[restart]\nfirst_wait = '3s'\npolicy = 'on-failure'\n{}",
        profile("weak", &["status:go", "wait-file:go", "exit:3"], "")
    );
    let daemon = Daemon::start_in(home(&format!("{QUICK}{config}")), &["--on-stop", "leave"], &[]);
    let session = daemon.run_agent("weak");
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    daemon.wait_kind(&session, "agent.restarting");
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    daemon.wait_for(&session, "the second life", |event| {
        event["kind"] == "agent.spawned" && event["data"]["generation"] == 2
    });
    daemon.end_session(&session, "stop");
}

#[test]
fn a_daemon_that_dies_between_the_record_and_the_restart_tries_again() {
    let config = format!(
        "{AGAIN}policy = 'on-failure'\n{}",
        profile("weak", &["status:go", "wait-file:go", "exit:3"], "")
    );
    let failing = [("INTERCOM_FAILPOINT", "restart.committed")];
    let mut daemon = Daemon::start_in(home(&format!("{QUICK}{config}")), &["--on-stop", "leave"], &failing);
    let session = daemon.run_agent("weak");
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    daemon.until("it dies", |daemon| daemon.ended().then_some(()));
    let (dir, _) = daemon.end(Signal::SIGKILL);
    std::fs::remove_file(dir.path().join("work/go")).ok();
    let daemon = Daemon::start_in(dir, &[], &[]);
    daemon.wait_for(&session, "a later life", |event| {
        event["kind"] == "agent.spawned" && event["data"]["generation"].as_u64() > Some(2)
    });
    let patience = Duration::from_secs(20);
    let (_, took) = daemon.end_session(&session, "stop");
    assert!(took < patience, "{took:?}");
}
