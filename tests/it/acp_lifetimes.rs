//! The lives of sessions, agents and the daemon as an ACP client sees them: begun, prompted, closed, in time, nothing left.

mod process;

use std::time::{Duration, Instant};

use intercom_testkit::harness::{
    self, Daemon, QUICK, acp_fixture, alive, home, kill_all_in, of_kind, processes_in,
};
use intercom_testkit::seats::{Framing, Seat, WAYS, Way, fixture, named, prompt, refusal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn daemon(more: &str) -> Daemon {
    Daemon::quick(&format!("{}[acp_server]\nagent = 'fixture'\n{more}", fixture(&[])))
}

fn phase(daemon: &Daemon, session: &str) -> String {
    daemon.show(session)["phase"].as_str().unwrap().to_owned()
}

// Agents.

/// `initialize`: the version is the integer 1 whatever is asked for, prompts are among the capabilities, no way to log in,
/// and it does not fail.
#[test]
fn initialize_says_version_one_whatever_is_asked_for() {
    let daemon = daemon("");
    for way in WAYS {
        for version in [json!(1), json!(0), json!(2), json!(99), json!(65535)] {
            let mut seat = Seat::by(way, &daemon);
            let told = seat.ok("initialize", json!({ "protocolVersion": version }));
            assert_eq!(told["protocolVersion"], json!(1), "{way:?} {version}: {told}");
            assert!(told["agentCapabilities"]["promptCapabilities"].is_object(), "{way:?}: {told}");
            assert_eq!(told["authMethods"], json!([]), "{way:?}: {told}");
        }
    }
}

/// What is told as a capability works: the standard's methods that are named there are there.
#[test]
fn what_is_advertised_is_there() {
    let daemon = daemon("");
    let mut seat = Seat::by(Way::Lines, &daemon);
    let can = seat.ok("initialize", json!({ "protocolVersion": 1 }))["agentCapabilities"].clone();
    assert_eq!(can["loadSession"], true, "{can}");
    let session = seat.begun(&daemon);
    let here = json!({ "sessionId": session, "cwd": daemon.workspace(), "mcpServers": [] });
    let methods = [("list", json!({})), ("resume", here), ("close", json!({ "sessionId": session }))];
    for (name, params) in methods {
        assert!(can["sessionCapabilities"][name].is_object(), "{name}: {can}");
        seat.ok(&format!("session/{name}"), params);
    }
    assert!(can["sessionCapabilities"]["delete"].is_object(), "{can}");
    daemon.wait_for_end(&session);
    seat.ok("session/delete", json!({ "sessionId": session }));
    seat.refused("session/prompt", prompt(&session, "say:x"), -32002);
    assert_eq!(daemon.get(&format!("/api/v1/sessions/{session}")).0, 404);
}

/// `new_session`: "MUST NOT spawn process yet", `Created -> Active: Only via prompt()`. An agent that nobody has seen yet
/// has to be started to know what it can do; from then on it waits for its first prompt.
#[test]
fn a_new_session_has_no_process_until_it_is_prompted() {
    let daemon = daemon("");
    let mut seat = Seat::ready(Way::Lines, &daemon);
    let first = seat.ok("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }));
    seat.ok("session/close", json!({ "sessionId": first["sessionId"] }));
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let told = seat.ok("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }));
        let session = told["sessionId"].as_str().unwrap();
        // It is told as if it ran.
        assert_eq!(told["modes"], first["modes"], "{way:?}");
        let shown = daemon.show(session);
        assert_eq!((&shown["phase"], &shown["pid"]), (&json!("created"), &Value::Null), "{way:?}: {shown}");
        assert!(of_kind(&daemon.so_far(session), "agent.spawned").is_empty(), "{way:?}");
        // Looking at it, listing it and cancelling nothing does not start it, either.
        seat.ok("session/list", json!({}));
        seat.ok("session/cancel", json!({ "sessionId": session }));
        seat.resume(&daemon, session);
        assert_eq!(phase(&daemon, session), "created", "{way:?}");
        assert_eq!(seat.prompt(session, "say:here I am"), "end_turn", "{way:?}");
        let shown = daemon.show(session);
        assert!(shown["pid"].is_number() && shown["phase"] == "idle", "{way:?}: {shown}");
        assert_eq!(seat.words(session), ["here I am"], "{way:?}");
    }
}

/// `new_session`: it has the mode that was asked for, and a session that waits for its process keeps it.
#[test]
fn what_is_set_before_the_first_prompt_holds_in_it() {
    let daemon = daemon("");
    let mut seat = Seat::ready(Way::Lines, &daemon);
    let first = seat.begun(&daemon);
    seat.ok("session/close", json!({ "sessionId": first }));
    let session = seat.begun(&daemon);
    seat.ok("session/set_mode", json!({ "sessionId": session, "modeId": "code" }));
    seat.until("the mode", |message| {
        let update = &message["params"]["update"];
        update["sessionUpdate"] == "current_mode_update" && update["currentModeId"] == "code"
    });
    assert_eq!(seat.prompt(&session, "heard:session/set_mode"), "end_turn");
    let said = seat.until_words(&session, "last session/set_mode");
    assert!(said.contains("code"), "{said}");
    seat.refused("session/set_mode", json!({ "sessionId": session, "modeId": "flying" }), -32602);
}

/// `prompt`: "MUST stream output", "MUST send chunks as they arrive", "MUST preserve order", "MUST stream without
/// buffering entire response".
#[test]
fn chunks_come_as_they_are_said_and_in_order() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let go = daemon.workspace().join(format!("go-{way:?}"));
        let turn = seat.begin_prompt(&session, &format!("say:first;wait-file:{};flood:2000", go.display()));
        // The turn is held until its first chunk has been heard.
        seat.until_words(&session, "first");
        std::fs::write(go, "").unwrap();
        assert_eq!(seat.answer_to(&turn)["result"]["stopReason"], "end_turn", "{way:?}");
        let words = seat.words(&session);
        let expected: Vec<String> = (1..=2000).map(|number| format!("flood {number:010}")).collect();
        assert_eq!(words[0], "first", "{way:?}");
        assert_eq!(words[1..].len(), 2000, "{way:?}");
        assert!(words[1..].iter().map(|word| word.trim()).eq(expected.iter().map(String::as_str)), "{way:?}");
    }
}

/// `prompt`: stop reasons as the agent gives them.
#[test]
fn stop_reasons_are_passed_on() {
    let daemon = daemon("");
    let mut seat = Seat::ready(Way::WebSocket, &daemon);
    let session = seat.begun(&daemon);
    for reason in ["end_turn", "max_tokens", "max_turn_requests", "refusal"] {
        assert_eq!(seat.prompt(&session, &format!("stop:{reason}")), reason);
    }
    let turn = seat.begin_prompt(&session, "say:x;hang");
    seat.until_words(&session, "x");
    seat.notify("session/cancel", json!({ "sessionId": session }));
    assert_eq!(seat.answer_to(&turn)["result"]["stopReason"], "cancelled");
}

// Runtime lifecycle.

/// `start`: "MUST be ready to accept requests". Nothing runs; the client's own `intercom acp` starts it.
#[test]
fn the_first_client_finds_a_daemon_ready_within_five_seconds() {
    /// Nothing that was started here outlives the test, also if it fails.
    struct Home(tempfile::TempDir);
    impl Drop for Home {
        fn drop(&mut self) {
            kill_all_in(self.0.path());
        }
    }
    let home = Home(home(&format!("{QUICK}{}", fixture(&[]))));
    let dir = &home.0;
    let start = Instant::now();
    let mut seat = Seat::relayed(dir.path(), &["--agent", "fixture"], Framing::Lines);
    seat.ok("initialize", json!({ "protocolVersion": 1 }));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let cwd = json!({ "cwd": dir.path().join("work"), "mcpServers": [] });
    let session = seat.ok("session/new", cwd)["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(seat.prompt(&session, "say:started for you"), "end_turn");
    seat.leave();
    // The daemon and the session outlive the client.
    let about = std::fs::read_to_string(dir.path().join("state/daemon.json")).unwrap();
    let pid = serde_json::from_str::<Value>(&about).unwrap()["pid"].as_i64().unwrap();
    assert!(alive(pid));
    harness::run(harness::command(dir.path()).args(["stop", &session])).ok();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGTERM).unwrap();
    let start = Instant::now();
    while !processes_in(dir.path()).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", processes_in(dir.path()));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `stop`: "MUST cancel all active sessions, kill all child processes, clean up resources, complete within 5 seconds",
/// with agents that do not want to and clients in the middle of a turn, and the waits that we ship with.
#[test]
fn stopping_takes_five_seconds_and_leaves_nothing() {
    let stubborn = named("stubborn", &["ignore:cancel", "ignore:eof"]);
    let config = format!("{}{stubborn}[acp_server]\nagent = 'fixture'\n", fixture(&[]));
    let daemon = Daemon::with_config(&config);
    let mut seats: Vec<Seat> = WAYS.iter().map(|way| Seat::ready(*way, &daemon)).collect();
    seats.push(Seat::stdio(&daemon, &["--agent", "stubborn"]).introduced());
    let mut turns = Vec::new();
    for (index, seat) in seats.iter_mut().enumerate() {
        for _ in 0..2 {
            let session = seat.begun(&daemon);
            turns.push((index, seat.begin_prompt(&session, "say:busy;hang")));
            seat.until_words(&session, "busy");
        }
    }
    let agents: Vec<i64> = daemon.get("/api/v1/sessions").1["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|session| session["pid"].as_i64())
        .collect();
    assert_eq!(agents.len(), 10);
    let start = Instant::now();
    let (dir, status) = daemon.end(Signal::SIGTERM);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(status.success(), "{status}");
    assert!(agents.iter().all(|pid| !alive(*pid)));
    for (index, turn) in turns {
        let answer = seats[index].answer_to(&turn);
        assert!(answer["result"]["stopReason"] == "cancelled" || answer.get("error").is_some(), "{answer}");
    }
    drop(seats); // their relays would go on with another daemon
    assert_eq!(processes_in(dir.path()), [] as [(i32, String); 0]);
}

// Sessions.

/// The states: Created, Active, Ending, Closed; "closed sessions MUST be removed" from what is live.
#[test]
fn a_session_is_created_then_active_then_closed() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let warm = seat.begun(&daemon);
        seat.ok("session/close", json!({ "sessionId": warm }));
        let session = seat.begun(&daemon);
        assert_eq!(phase(&daemon, &session), "created", "{way:?}");
        let turn = seat.begin_prompt(&session, "say:on;hang");
        seat.until_words(&session, "on");
        assert_eq!(phase(&daemon, &session), "working", "{way:?}");
        let pid = daemon.show(&session)["pid"].as_i64().unwrap();
        // Closing ends what runs; both are answered.
        seat.ok("session/close", json!({ "sessionId": session }));
        let answer = seat.answer_to(&turn);
        assert!(
            answer["result"]["stopReason"] == "cancelled" || answer.get("error").is_some(),
            "{way:?}: {answer}"
        );
        daemon.wait_for_end(&session);
        assert!(!alive(pid), "{way:?}");
        let (_, live) = daemon.get("/api/v1/sessions");
        assert!(live["items"].as_array().unwrap().iter().all(|other| other["id"] != *session), "{way:?}");
    }
}

/// "MUST support at least 10 concurrent sessions": all of them work at the same time, on one connection.
#[test]
fn ten_sessions_of_one_client_work_at_once() {
    let daemon = daemon("");
    for way in [Way::Lines, Way::WebSocket, Way::Http] {
        let mut seat = Seat::ready(way, &daemon);
        let sessions: Vec<String> = (0..10).map(|_| seat.begun(&daemon)).collect();
        let go = daemon.workspace().join(format!("all-{way:?}"));
        let script = format!("say:ready;wait-file:{};say:$session", go.display());
        let turns: Vec<Value> = sessions.iter().map(|session| seat.begin_prompt(session, &script)).collect();
        let mut waiting: std::collections::HashSet<String> = sessions.iter().cloned().collect();
        while !waiting.is_empty() {
            let said =
                seat.until("ready", |message| message["params"]["update"]["content"]["text"] == "ready");
            waiting.remove(said["params"]["sessionId"].as_str().unwrap());
        }
        std::fs::write(go, "").unwrap();
        for (session, turn) in sessions.iter().zip(&turns) {
            assert_eq!(seat.answer_to(turn)["result"]["stopReason"], "end_turn", "{way:?}");
            assert_eq!(seat.words(session).len(), 2, "{way:?}");
            seat.ok("session/close", json!({ "sessionId": session }));
        }
    }
}

/// "MUST enforce `max_sessions` limit", "MUST queue or reject beyond limit", and the limit of the whole daemon as well.
#[test]
fn beyond_the_limit_a_session_is_refused() {
    let daemon = daemon("[limits]\nmax_sessions = 2\n");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let two = [seat.begun(&daemon), seat.begun(&daemon)];
        let mut refused = Vec::new();
        // Deferred ones count when they are begun or when they are prompted: somewhere the third is refused.
        let third = seat.ask("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }));
        if let Some(session) = third["result"]["sessionId"].as_str() {
            for session in &two {
                assert_eq!(seat.prompt(session, "say:x"), "end_turn", "{way:?}");
            }
            refused.push(seat.ask("session/prompt", prompt(session, "say:x")));
            seat.ok("session/close", json!({ "sessionId": session }));
        } else {
            refused.push(third);
        }
        assert!(refused[0]["error"]["code"].is_i64(), "{way:?}: {refused:?}");
        assert!(refused[0]["error"]["message"].as_str().unwrap().contains("session"), "{way:?}: {refused:?}");
        for session in two {
            seat.ok("session/close", json!({ "sessionId": session }));
            daemon.wait_for_end(&session);
        }
    }
}

// Errors.

/// The table of codes, each with a message for people; "MUST NOT expose internal state"; "MUST log details to stderr":
/// stdout has nothing but the protocol, which the readers of all these tests see to.
#[test]
fn every_kind_of_mistake_has_its_code() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        if way != Way::Http {
            // There it is the request itself that is refused.
            seat.send_text("not json");
            refusal(&seat.until("an error", |message| message.get("error").is_some()), -32700);
            seat.send(&json!({ "jsonrpc": "2.0", "id": "a", "method": 5 }));
            refusal(&seat.answer_to(&json!("a")), -32600);
        }
        seat.refused("no/such", json!({}), -32601);
        seat.refused("session/prompt", json!({ "sessionId": session, "prompt": 7 }), -32602);
        seat.refused("session/new", json!([]), -32602);
        let dead = seat.ask("session/prompt", prompt(&session, "exit:1"));
        refusal(&dead, -32603);
        // To one that has ended, a prompt is refused at once.
        let answer = seat.ask("session/prompt", prompt(&session, "say:x"));
        assert!(
            answer["error"]["code"].is_i64() || answer["result"]["stopReason"] == "end_turn",
            "{way:?}: {answer}"
        );
    }
}

/// An agent that cannot be started: "MUST handle spawn failures gracefully".
#[test]
fn an_agent_that_cannot_be_started_is_an_error_to_its_prompt_or_session() {
    let missing = "[agents.missing]\nprotocol = 'acp'\ncommand = '/nowhere/agent'\n";
    let silent = named("silent", &["never:initialize"]);
    let (locked, odd) = (named("locked", &["auth:key"]), named("odd", &["version:2"]));
    let script = format!("test -e broken && exec sleep 60; exec {}", acp_fixture().display());
    let moody =
        format!("[agents.moody]\nprotocol = 'acp'\ncommand = 'sh'\nargs = {}\n", json!(["-c", script]));
    let quick = "[acp]\nstartup_timeout_seconds = 1\n";
    let daemon = daemon(&format!("{missing}{silent}{locked}{odd}{moody}{quick}"));
    for (agent, why) in
        [("missing", "not found"), ("silent", "not ready"), ("locked", "log"), ("odd", "version 2")]
    {
        let mut seat = Seat::stdio(&daemon, &["--agent", agent]).introduced();
        let answer = seat.ask("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }));
        let error = refusal(&answer, -32603);
        assert!(error["message"].as_str().unwrap().to_lowercase().contains(why), "{agent}: {error}");
        // The client is still there.
        seat.ok("session/list", json!({}));
    }
    // The same when it is known what the agent can, and its process starts with the first prompt.
    let mut seat = Seat::stdio(&daemon, &["--agent", "moody"]).introduced();
    let session = seat.begun(&daemon);
    seat.ok("session/close", json!({ "sessionId": session }));
    std::fs::write(daemon.workspace().join("broken"), "").unwrap();
    let session = seat.begun(&daemon);
    let error = refusal(&seat.ask("session/prompt", prompt(&session, "say:x")), -32603);
    assert!(error["message"].as_str().unwrap().contains("not ready"), "{error}");
    let mut seat = Seat::stdio(&daemon, &["--agent", "no-such-profile"]).introduced();
    let answer = seat.ask("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }));
    assert!(answer["error"]["message"].as_str().unwrap().contains("no-such-profile"), "{answer}");
}

// Performance.

/// "≤150 ms end-to-end latency": from the moment at which the agent may speak, seen by looking every 5 ms, to the client.
#[test]
fn a_chunk_is_with_the_client_in_a_tenth_of_a_second() {
    let daemon = daemon("");
    for way in [Way::Lines, Way::WebSocket, Way::Http] {
        let mut seat = Seat::ready(way, &daemon);
        let session = seat.begun(&daemon);
        let files: Vec<_> =
            (0..21).map(|number| daemon.workspace().join(format!("{way:?}-{number}"))).collect();
        let steps = files.iter().map(|file| format!("wait-file:{};say:now", file.display()));
        let script = steps.collect::<Vec<String>>().join(";");
        let turn = seat.begin_prompt(&session, &format!("say:go;{script}"));
        seat.until_words(&session, "go");
        let mut times = Vec::new();
        for file in &files {
            let start = Instant::now();
            std::fs::write(file, "").unwrap();
            seat.until_words(&session, "now");
            times.push(start.elapsed());
        }
        assert_eq!(seat.answer_to(&turn)["result"]["stopReason"], "end_turn", "{way:?}");
        times.sort_unstable();
        assert!(times[10] < Duration::from_millis(150), "{way:?}: {times:?}");
    }
}

// Compatibility.

/// "MUST maintain exact JSONL format": one object a line, nothing else on stdout, also when everything is logged.
#[test]
fn stdout_carries_the_protocol_and_nothing_else() {
    let daemon = daemon("");
    let mut command = harness::command(daemon.dir.path());
    command.args(["acp", "--agent", "fixture"]).env("RUST_LOG", "trace").current_dir(daemon.workspace());
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let hello =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } });
    // Blank lines and line ends of another system are no messages.
    std::io::Write::write_all(&mut stdin, format!("\n{hello}\r\n\n  \n").as_bytes()).unwrap();
    drop(stdin);
    let ran = harness::output(child);
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["id"]), (1, &json!(1)), "{ran:?}");
}

/// Ids come back as they came: numbers, strings, large ones.
#[test]
fn ids_are_echoed_as_they_came() {
    let daemon = daemon("");
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let odd = [json!("text"), json!(""), json!(-7), json!(9_007_199_254_740_991_i64), json!("ä\"\\")];
        for id in odd {
            seat.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "session/list", "params": {} }));
            assert!(seat.answer_to(&id).get("result").is_some(), "{way:?} {id}");
        }
    }
}
