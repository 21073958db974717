//! What ACP agents have done for them by their client: files and terminals.

use std::path::Path;

use intercom_testkit::harness::{Daemon, QUICK, acp_fixture, alive, home, of_kind, processes_in};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::INTERCOM;

/// An agent to which both are offered.
fn served() -> String {
    let command = json!(acp_fixture());
    format!(
        "[agents.served]\ncommand = {command}\nprotocol = 'acp'\noffer_files = true\noffer_terminals = true\n"
    )
}

fn daemon(more: &str) -> (Daemon, String) {
    let daemon = Daemon::quick(&format!("{}{more}", served()));
    let session = ready(&daemon);
    (daemon, session)
}

#[track_caller]
fn ready(daemon: &Daemon) -> String {
    let session = daemon.run_agent("served");
    daemon.wait_kind(&session, "agent.ready");
    session
}

/// The answers that the agent got in this turn, `answered METHOD ID RESULT` or `refused METHOD ID ERROR`, after its end.
#[track_caller]
fn turn(daemon: &Daemon, session: &str, steps: &str) -> Vec<String> {
    let before = daemon.so_far(session).len();
    daemon.prompt(session, steps);
    turn_ended(daemon, session, before)
}

#[track_caller]
fn turn_ended(daemon: &Daemon, session: &str, before: usize) -> Vec<String> {
    let seen = std::cell::Cell::new(0);
    daemon.wait_for(session, "the end of the turn", |event| {
        seen.set(seen.get() + 1);
        seen.get() > before && event["kind"] == "turn.ended"
    });
    heard(&daemon.so_far(session)[before..])
}

fn heard(events: &[Value]) -> Vec<String> {
    let texts = of_kind(events, "update").into_iter();
    let texts = texts.filter_map(|event| event["data"]["update"]["content"]["text"].as_str());
    texts
        .filter(|text| text.starts_with("answered ") || text.starts_with("refused "))
        .map(str::to_owned)
        .collect()
}

/// What came with an answer.
#[track_caller]
fn result(answer: &str) -> Value {
    serde_json::from_str(answer.splitn(4, ' ').nth(3).unwrap()).unwrap()
}

/// The nth request for a clearance, with its card.
#[track_caller]
fn asked(daemon: &Daemon, session: &str, nth: usize) -> (String, Value) {
    let seen = std::cell::Cell::new(0);
    let event = daemon.wait_for(session, "a clearance", |event| {
        seen.set(seen.get() + usize::from(event["kind"] == "clearance.requested"));
        seen.get() == nth
    });
    let id = event["data"]["clearance"].as_str().unwrap().to_owned();
    let card = daemon.get(&format!("/api/v1/clearances/{id}")).1;
    (id, card)
}

#[track_caller]
fn last(daemon: &Daemon, session: &str, kind: &str) -> Value {
    of_kind(&daemon.so_far(session), kind).last().unwrap_or_else(|| panic!("no {kind}"))["data"].clone()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Trees are then ended by looking for them.
const NO_CGROUPS: &str = "[daemon]\ncgroups = false\n";
const ALL: &str = "[[rule]]\nname = 'all'\ntool = ['edit', 'execute']\nthen = 'allow'\n";

#[test]
fn what_is_not_offered_is_not_known() {
    let daemon = Daemon::quick("");
    let session = daemon.run_acp(&[]);
    std::fs::write(daemon.workspace().join("a.txt"), "x").unwrap();
    let answers = turn(&daemon, &session, "read:a.txt;write:a.txt:y;terminal-create:true;terminal-output:t");
    assert_eq!(answers.len(), 4, "{answers:?}");
    for answer in answers {
        assert!(answer.starts_with("refused") && result(&answer)["code"] == -32601, "{answer}");
    }
    daemon.prompt(&session, "client");
    let client = daemon.wait_for(&session, "what we are", |event| {
        event["data"]["update"]["content"]["text"].as_str().is_some_and(|text| text.starts_with("client "))
    });
    let client = client["data"]["update"]["content"]["text"].as_str().unwrap().to_owned();
    assert!(client.contains(r#""terminal":false"#) && client.contains(r#""readTextFile":false"#), "{client}");
    assert_eq!(text(&daemon.workspace().join("a.txt")), "x");
}

#[test]
fn files_are_read_in_the_workspace_and_nowhere_else() {
    let (daemon, session) = daemon("");
    let work = daemon.workspace();
    std::fs::write(work.join("a.txt"), "one\ntwo\nthree\n").unwrap();
    std::os::unix::fs::symlink("/etc", work.join("link")).unwrap();
    std::fs::write(work.join("large"), vec![b'x'; (10 << 20) + 1]).unwrap();
    let steps = "read:a.txt;read:a.txt:2:1;read:new.txt;read:/etc/passwd;read:link/passwd;read:large;read:../config.toml";
    let answers = turn(&daemon, &session, steps);
    let contents: Vec<Value> = answers[..3].iter().map(|answer| result(answer)["content"].clone()).collect();
    assert_eq!(contents, [json!("one\ntwo\nthree\n"), json!("two\n"), json!("")], "{answers:?}");
    for answer in &answers[3..] {
        assert!(answer.starts_with("refused fs/read_text_file"), "{answer}");
    }
    assert!(
        answers[3].contains("outside of the workspace") && answers[5].contains("larger than"),
        "{answers:?}"
    );
    let events = daemon.so_far(&session);
    let read: Vec<&Value> = of_kind(&events, "file.read").into_iter().map(|event| &event["data"]).collect();
    assert_eq!(
        (&read[0]["at"], &read[0]["bytes"], &read[2]["missing"]),
        (&json!("a.txt"), &json!(14), &json!(true))
    );
    assert_eq!(of_kind(&events, "call.failed").len(), 4);
    assert!(of_kind(&events, "clearance.requested").is_empty());
}

#[test]
fn what_looks_like_a_secret_is_asked_about_and_rules_hold_for_reading() {
    let (daemon, session) =
        daemon("[[rule]]\nname = 'private'\npath = 'private/**'\nthen = 'deny'\nreason = 'mine'\n");
    std::fs::write(daemon.workspace().join(".env"), "KEY=1").unwrap();
    std::fs::create_dir(daemon.workspace().join("private")).unwrap();
    std::fs::write(daemon.workspace().join("private/x"), "x").unwrap();
    let before = daemon.so_far(&session).len();
    daemon.prompt(&session, "read:.env;read:private/x");
    let (id, card) = asked(&daemon, &session, 1);
    assert_eq!((&card["tool"], &card["risk"]), (&json!("read"), &json!("high")), "{card}");
    let decided = daemon.decide(&id, "approve");
    assert_eq!(decided["delivery"], "delivered", "{decided}");
    let answers = turn_ended(&daemon, &session, before);
    assert_eq!(result(&answers[0])["content"], "KEY=1");
    assert!(answers[1].starts_with("refused") && answers[1].contains("mine"), "{answers:?}");
    assert_eq!(last(&daemon, &session, "file.read")["clearance"], json!(id));
}

#[test]
fn a_write_is_a_clearance_with_a_diff() {
    let (daemon, session) = daemon("");
    let file = daemon.workspace().join("a.txt");
    std::fs::write(&file, "old\n").unwrap();
    let before = daemon.so_far(&session).len();
    daemon.prompt(&session, "write:a.txt:new;write:dir/b.txt:made;write:a.txt:never;write:/etc/passwd:x");
    let (id, card) = asked(&daemon, &session, 1);
    assert_eq!((&card["tool"], &card["status"]), (&json!("edit"), &json!("pending")), "{card}");
    assert!(card["file_path"].as_str().unwrap().ends_with("a.txt"), "{card}");
    assert!(card["diff"].as_str().unwrap().contains("-old\n+new"), "{card}");
    assert_eq!(text(&file), "old\n");
    let decided = daemon.decide(&id, "approve");
    assert_eq!(
        (&decided["status"], &decided["delivery"]),
        (&json!("approved"), &json!("delivered")),
        "{decided}"
    );
    assert_eq!(text(&file), "new");
    let (id, _) = asked(&daemon, &session, 2);
    daemon.decide(&id, "approve");
    let (id, _) = asked(&daemon, &session, 3);
    let denied = daemon.post(
        &format!("/api/v1/clearances/{id}/decision"),
        &json!({ "decision": "deny", "reason": "not like this" }),
    );
    assert_eq!(denied.1["delivery"], "delivered", "{denied:?}");
    let answers = turn_ended(&daemon, &session, before);
    assert!(answers[0].starts_with("answered fs/write_text_file"), "{answers:?}");
    assert!(answers[1].starts_with("answered fs/write_text_file"), "{answers:?}");
    assert!(answers[2].starts_with("refused") && answers[2].contains("not like this"), "{answers:?}");
    assert!(answers[3].contains("outside of the workspace"), "{answers:?}");
    assert_eq!((text(&file), text(&daemon.workspace().join("dir/b.txt"))), ("new".into(), "made".into()));
    let events = daemon.so_far(&session);
    let written = of_kind(&events, "file.written");
    assert_eq!(written.len(), 2);
    assert_eq!((&written[1]["data"]["created"], &written[1]["data"]["bytes"]), (&json!(true), &json!(4)));
}

#[test]
fn a_rule_lets_writes_pass_and_a_cancel_withdraws_what_waits() {
    let (daemon, session) =
        daemon("[[rule]]\nname = 'src'\ntool = 'edit'\npath = 'src/**'\nthen = 'allow'\n");
    let answers = turn(&daemon, &session, "write:src/a.rs:1;write:src/a.rs:2;read:src/a.rs");
    assert_eq!(result(&answers[2])["content"], "2", "{answers:?}");
    assert_eq!(last(&daemon, &session, "clearance.decided")["via"], "policy");
    let before = daemon.so_far(&session).len();
    daemon.prompt(&session, "write:other:x");
    let (id, _) = asked(&daemon, &session, 3);
    daemon.cli(&["interrupt", &session]).ok();
    turn_ended(&daemon, &session, before);
    let refused = daemon.wait_for(&session, "its answer", |event| {
        event["data"]["update"]["content"]["text"].as_str().is_some_and(|text| text.contains("-32800"))
    });
    assert!(refused["data"]["update"]["content"]["text"].as_str().unwrap().starts_with("refused fs/write"));
    assert_eq!(daemon.get(&format!("/api/v1/clearances/{id}")).1["status"], "withdrawn");
    assert!(!daemon.workspace().join("other").exists());
}

#[test]
fn a_write_survives_a_killed_daemon_wherever_it_dies() {
    for failpoint in ["", "host_call.begun", "host_call.performed"] {
        let env = [("INTERCOM_FAILPOINT", failpoint)];
        let env = if failpoint.is_empty() { &[][..] } else { &env };
        let home = home(&format!("{QUICK}{}", served()));
        let mut daemon = Daemon::start_in(home, &["--on-stop", "leave"], env);
        let session = ready(&daemon);
        daemon.prompt(&session, "write:a.txt:new;say:after");
        let (id, _) = asked(&daemon, &session, 1);
        if failpoint.is_empty() {
            let (dir, _) = daemon.end(Signal::SIGKILL);
            daemon = Daemon::start_in(dir, &[], &[]);
            daemon.decide(&id, "approve");
        } else {
            daemon.cli(&["approve", &id]);
            daemon.until("its death", |daemon| daemon.ended().then_some(()));
            let (dir, _) = daemon.end(Signal::SIGKILL);
            daemon = Daemon::start_in(dir, &[], &[]);
        }
        daemon.wait_kind(&session, "turn.ended");
        assert_eq!(text(&daemon.workspace().join("a.txt")), "new");
        let events = daemon.so_far(&session);
        assert_eq!(heard(&events).len(), 1, "{failpoint}: {:?}", heard(&events));
        assert!(heard(&events)[0].starts_with("answered"), "{failpoint}: {:?}", heard(&events));
        assert_eq!(of_kind(&events, "file.written").len(), 1, "{failpoint}");
        daemon.wait_kind(&session, "clearance.delivered");
    }
}

#[test]
fn a_terminal_runs_what_was_approved() {
    let (daemon, session) = daemon("");
    let before = daemon.so_far(&session).len();
    daemon.prompt(&session, "terminal:echo out && echo err >&2 && pwd && exit 3;terminal-create:never");
    let (id, card) = asked(&daemon, &session, 1);
    assert_eq!(card["tool"], "execute");
    assert!(card["command"].as_str().unwrap().starts_with("/bin/sh -c 'echo out"), "{card}");
    assert_eq!(daemon.decide(&id, "approve")["delivery"], "delivered");
    let (id, _) = asked(&daemon, &session, 2);
    daemon.decide(&id, "deny");
    let answers = turn_ended(&daemon, &session, before);
    assert_eq!(answers.len(), 5, "{answers:?}");
    assert!(answers[0].starts_with("answered terminal/create"), "{answers:?}");
    assert_eq!(result(&answers[1])["exitCode"], 3, "{answers:?}");
    let output = result(&answers[2]);
    let work = daemon.workspace().canonicalize().unwrap();
    assert_eq!(output["output"], format!("out\nerr\n{}\n", work.display()));
    assert_eq!((&output["truncated"], &output["exitStatus"]["exitCode"]), (&json!(false), &json!(3)));
    assert!(answers[3].starts_with("answered terminal/release"), "{answers:?}");
    assert!(answers[4].starts_with("refused terminal/create"), "{answers:?}");
    let started = last(&daemon, &session, "terminal.started");
    assert!(!alive(started["pid"].as_i64().unwrap()), "{started}");
    assert_eq!(last(&daemon, &session, "terminal.ended")["code"], 3);
    // What was released is not known any more.
    let answers = turn(&daemon, &session, "terminal-output:term-1;terminal-wait:nothing");
    assert!(
        answers.iter().all(|answer| answer.starts_with("refused") && answer.contains("-32002")),
        "{answers:?}"
    );
}

#[test]
fn a_terminal_is_killed_waited_for_and_read_while_it_runs() {
    let (daemon, session) = daemon(ALL);
    let go = daemon.workspace().join("go");
    let waits = format!("while ! test -e {}", go.display());
    let steps = format!(
        "terminal-create:{waits}\ndo sleep 0.02\ndone\necho done;ask:terminal-wait;terminal-output;say:meanwhile;hang"
    );
    daemon.prompt(&session, &steps);
    daemon.wait_kind(&session, "terminal.output");
    std::fs::write(&go, "").unwrap();
    daemon.wait_kind(&session, "terminal.ended");
    daemon.wait_for(&session, "its exit", |event| {
        let text = event["data"]["update"]["content"]["text"].as_str().unwrap_or_default();
        text.starts_with("answered terminal/wait_for_exit")
    });
    daemon.cli(&["interrupt", &session]).ok();
    daemon.wait_kind(&session, "turn.ended");
    let answers = turn(
        &daemon,
        &session,
        "terminal-create:exec sleep 1000;ask:terminal-wait;terminal-kill;await;terminal-output;terminal-release",
    );
    let of = |method: &str| answers.iter().find(|answer| answer.contains(method)).unwrap();
    assert_eq!(result(of("terminal/wait_for_exit"))["signal"], "SIGTERM", "{answers:?}");
    assert!(of("terminal/kill").starts_with("answered") && of("terminal/release").starts_with("answered"));
    assert_eq!(result(of("terminal/output"))["exitStatus"]["signal"], "SIGTERM");
    // Released while it runs: it ends.
    let answers = turn(&daemon, &session, "terminal-create:exec sleep 1000;terminal-release");
    assert!(answers[1].starts_with("answered terminal/release"), "{answers:?}");
    assert!(!alive(last(&daemon, &session, "terminal.started")["pid"].as_i64().unwrap()));
    // What cannot be found is said at once.
    let answers = turn(&daemon, &session, r#"terminal-create:{"command":"no-such-program","args":["x"]}"#);
    assert!(answers[0].contains("command not found: no-such-program"), "{answers:?}");
    assert_eq!(daemon.show(&session)["phase"], "idle");
}

#[test]
fn output_is_kept_up_to_the_agents_limit_and_the_environment_is_the_agents() {
    let (daemon, session) = daemon(ALL);
    let params = json!({ "command": "/bin/sh", "args": ["-c", "for i in 1 2 3 4 5 6 7 8 9\ndo printf '%sä' $i\ndone"], "outputByteLimit": 7 });
    let answers = turn(&daemon, &session, &format!("terminal-create:{params};terminal-wait;terminal-output"));
    let output = result(&answers[2]);
    assert_eq!((&output["output"], &output["truncated"]), (&json!("8ä9ä"), &json!(true)), "{answers:?}");
    let params = json!({ "command": "env", "env": [{ "name": "MINE", "value": "a b" }] });
    let answers = turn(&daemon, &session, &format!("terminal-create:{params};terminal-wait;terminal-output"));
    let output = result(&answers[2])["output"].as_str().unwrap().to_owned();
    assert!(
        output.contains("MINE=a b\n") && output.contains(&format!("INTERCOM_SESSION={session}\n")),
        "{output}"
    );
    assert!(!output.contains("INTERCOM_STATE_DIR"), "{output}");
    let params = json!({ "command": "env", "env": [{ "name": "INTERCOM_SESSION", "value": "x" }] });
    let outside = json!({ "command": "ls", "cwd": "/etc" });
    let answers = turn(&daemon, &session, &format!("terminal-create:{params};terminal-create:{outside}"));
    assert!(answers.iter().all(|answer| answer.starts_with("refused terminal/create")), "{answers:?}");
    // Thirty-two of them, and no more.
    let answers = turn(&daemon, &session, "repeat:33:terminal-create:true");
    assert!(answers.last().unwrap().contains("32 terminals"), "{answers:?}");
}

#[test]
fn nothing_of_a_terminal_outlives_its_session() {
    let daemons = ["", NO_CGROUPS].map(|group| daemon(&format!("{ALL}{group}")).0);
    for (daemon, how) in daemons.iter().flat_map(|daemon| ["stop", "kill", "exit"].map(|how| (daemon, how))) {
        let session = ready(daemon);
        daemon.prompt(&session, "terminal-create:setsid sleep 1000 & setsid sleep 1001;hang");
        let pid = daemon.wait_kind(&session, "terminal.started")["data"]["pid"].as_i64().unwrap();
        assert!(alive(pid));
        let shown = daemon.show(&session);
        let listed = shown["processes"].as_array().cloned().unwrap_or_default();
        assert!(listed.iter().any(|process| process["pid"] == json!(pid)), "{shown}");
        match how {
            "exit" => {
                nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(i32::try_from(shown["pid"].as_i64().unwrap()).unwrap()),
                    Signal::SIGKILL,
                )
                .unwrap();
                daemon.wait_for_end(&session);
            }
            how => drop(daemon.end_session(&session, how)),
        }
        let left: Vec<_> = processes_in(&daemon.workspace())
            .into_iter()
            .filter(|(_, line)| line.contains("sleep 100"))
            .collect();
        assert!(left.is_empty(), "{how}: {left:?}");
        assert_eq!(of_kind(&daemon.so_far(&session), "terminal.ended").len(), 1, "{how}");
    }
}

#[test]
fn a_terminal_survives_a_killed_daemon() {
    let daemon = Daemon::start_in(home(&format!("{QUICK}{}{ALL}", served())), &["--on-stop", "leave"], &[]);
    let session = ready(&daemon);
    let go = daemon.workspace().join("go");
    let waits = format!("echo before\nwhile ! test -e {}\ndo sleep 0.02\ndone\necho after", go.display());
    daemon
        .prompt(&session, &format!("terminal-create:{waits};terminal-wait;terminal-output;terminal-release"));
    let pid = daemon.wait_kind(&session, "terminal.started")["data"]["pid"].as_i64().unwrap();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    assert!(alive(pid));
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert!(alive(pid));
    std::fs::write(&go, "").unwrap();
    daemon.wait_kind(&session, "turn.ended");
    let answers = heard(&daemon.so_far(&session));
    assert_eq!(result(&answers[1])["exitCode"], 0, "{answers:?}");
    assert_eq!(result(&answers[2])["output"], "before\nafter\n", "{answers:?}");
    assert!(answers[3].starts_with("answered terminal/release"), "{answers:?}");
    assert_eq!(of_kind(&daemon.so_far(&session), "terminal.started").len(), 1);
}

#[test]
fn a_terminal_that_was_started_and_not_recorded_is_not_started_twice() {
    let daemon = Daemon::start_in(
        home(&format!("{QUICK}{}{ALL}", served())),
        &["--on-stop", "leave"],
        &[("INTERCOM_FAILPOINT", "terminal.spawned")],
    );
    let session = ready(&daemon);
    let runs = daemon.workspace().join("runs");
    let mut daemon = daemon;
    daemon.post(
        &format!("/api/v1/sessions/{session}/prompts"),
        &json!({ "text": format!("terminal:echo run >> {}", runs.display()) }),
    );
    daemon.until("its death", |daemon| daemon.ended().then_some(()));
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    daemon.wait_kind(&session, "turn.ended");
    assert_eq!(text(&runs), "run\n");
    let answers = heard(&daemon.so_far(&session));
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.starts_with("answered")), "{answers:?}");
}

#[test]
fn who_calls_us_from_a_terminal_is_the_agent() {
    for group in ["", NO_CGROUPS] {
        let (daemon, session) = daemon(&format!("{ALL}{group}"));
        let (socket, home) = (daemon.socket(), daemon.dir.path().display().to_string());
        // Without a mark of its own, and in a session of its own.
        let command =
            format!("env -i HOME={home} INTERCOM_SOCKET={} setsid -w {INTERCOM} ls --json", socket.display());
        let steps = format!("terminal-create:{command};terminal-wait;terminal-output");
        let answers = turn(&daemon, &session, &steps);
        assert_eq!(result(&answers[1])["exitCode"], 1, "{answers:?}");
        assert!(answers[2].contains("from_agent"), "{answers:?}");
    }
}
