//! Stop means stopped: whatever an agent has forked, and wherever it has gone, nothing is left.

use intercom_testkit::harness::{self, Daemon, is_alive};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Ways to get away. Each is deaf to SIGTERM as well, so that only the end of the ladder helps.
const FLAGS: &[&str] =
    &["", "group", "setsid", "double", "nohup", "setsid,double,nohup,clean", "stdout,double"];

const QUICK: &str =
    "[stop]\nafter_interrupt_seconds = 0.1\nafter_stdin_closed_seconds = 0.1\nafter_sigterm_seconds = 0.2\n";

fn leave_nothing(config: &str, trees: usize) {
    let daemon = Daemon::with_config(config);
    let mut sessions = Vec::new();
    let mut pids = Vec::new();
    for n in 0..trees {
        let flags = FLAGS[n % FLAGS.len()];
        let step = format!("grandchild:{flags}:ignore:TERM|ignore:HUP|hang");
        sessions.push(daemon.run(&["ignore:TERM", "ignore:eof", &step, "serve"]));
    }
    for session in &sessions {
        pids.push(daemon.wait_status(session, "grandchild")["pid"].clone());
        pids.push(daemon.show(session)["pid"].clone());
    }
    assert!(pids.iter().all(is_alive));
    let started = std::time::Instant::now();
    let mut stop = vec!["stop"];
    stop.extend(sessions.iter().map(String::as_str));
    daemon.cli(&stop).ok();
    let took = started.elapsed();
    let left: Vec<&Value> = pids.iter().filter(|pid| is_alive(pid)).collect();
    assert!(left.is_empty(), "{left:?} of {} are left", pids.len());
    assert!(took < std::time::Duration::from_secs(10), "stopping took {took:?}");
}

#[test]
fn fifty_trees_are_gone_when_stop_answers_with_cgroups_where_they_can_be_made() {
    leave_nothing(QUICK, 50);
}

#[test]
fn fifty_trees_are_gone_when_stop_answers_without_cgroups() {
    leave_nothing(&format!("{QUICK}[daemon]\ncgroups = false\n"), 50);
}

/// A process that is another one every 3 ms. Bounded in number, so that a failure cannot fill the machine.
fn end_a_hopper(config: &str) {
    let daemon = Daemon::with_config(config);
    let session = daemon.run(&["grandchild:setsid,double:hop:2000", "serve"]);
    daemon.wait_status(&session, "grandchild");
    let (status, body) = daemon.post(&format!("/api/v1/sessions/{session}/kill"), &json!({}));
    assert_eq!(status, 200, "{body}");
    let marked = marked(&session);
    assert!(marked.is_empty(), "{marked:?} carry the session's mark still");
}

/// Who was started by this session, by the mark in its environment.
pub(crate) fn marked(session: &str) -> Vec<i32> {
    let mark = format!("INTERCOM_SESSION={session}");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let carries = |pid: &i32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(carries).filter(|pid| is_alive(&json!(pid))).collect()
}

#[test]
fn a_process_that_forks_itself_away_every_few_milliseconds_is_caught_with_a_cgroup() {
    end_a_hopper("");
}

#[test]
fn a_process_that_forks_itself_away_every_few_milliseconds_is_caught_without_one() {
    end_a_hopper("[daemon]\ncgroups = false\n");
}

#[test]
fn what_an_agent_leaves_running_at_its_own_exit_is_ended_too() {
    let daemon = Daemon::start();
    let session = daemon.run(&["grandchild:setsid,double,nohup,stdout", "exit:0"]);
    let pid = daemon.wait_status(&session, "grandchild")["pid"].clone();
    let events = daemon.all_events(&session);
    assert!(!is_alive(&pid));
    let exited = events.iter().find(|event| event["kind"] == "agent.exited").unwrap();
    assert_eq!((&exited["data"]["steps"], &exited["data"]["killed"]), (&json!(["sigkill"]), &json!(1)));
}

/// The agent is a shell that ends at SIGTERM, its child one that tidies up first, for `seconds`.
fn stop_a_tidy_child(after_sigterm: f64, seconds: f64) -> (Value, std::time::Duration, bool) {
    let mut daemon = Daemon::with_config(&format!(
        "[stop]\nafter_interrupt_seconds = 0\nafter_stdin_closed_seconds = 0.1\nafter_sigterm_seconds = {after_sigterm}\n"
    ));
    let (ready, tidy) = (daemon.workspace().join("ready"), daemon.workspace().join("tidy"));
    let child =
        format!("trap 'sleep {seconds}; touch tidy; exit' TERM; touch ready; while :; do sleep 0.05; done");
    std::fs::write(daemon.workspace().join("child.sh"), child).unwrap();
    let (status, session) =
        daemon.ask_to_start(json!({ "command": "sh", "args": ["-c", "sh child.sh; true"] }));
    assert_eq!(status, 201, "{session}");
    daemon.until("the child to be ready", |_| ready.exists().then_some(()));
    let (answer, took) = daemon.end_session(session["id"].as_str().unwrap(), "stop");
    assert!(marked(session["id"].as_str().unwrap()).is_empty());
    (answer, took, tidy.exists())
}

#[test]
fn a_child_may_tidy_up_at_sigterm_after_its_agent_has_gone_and_is_not_waited_for_longer() {
    let (answer, took, tidy) = stop_a_tidy_child(20.0, 1.0);
    assert_eq!(
        (&answer["steps"], &answer["killed"]),
        (&json!(["interrupt", "close_stdin", "sigterm"]), &json!(0))
    );
    assert!(tidy, "it had no time");
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_child_that_takes_too_long_to_tidy_up_is_killed_after_the_wait() {
    let (answer, took, tidy) = stop_a_tidy_child(0.3, 30.0);
    assert_eq!(answer["steps"], json!(["interrupt", "close_stdin", "sigterm", "sigkill"]));
    assert!(!tidy);
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
}

#[test]
fn what_an_agent_that_ends_at_eof_leaves_behind_gets_a_sigterm_too() {
    let daemon = Daemon::with_config(QUICK);
    let session = daemon.run(&["grandchild:nohup", "status:ready", "expect:never"]);
    daemon.wait_status(&session, "ready");
    let (answer, _) = daemon.end_session(&session, "stop");
    assert_eq!(answer["steps"], json!(["interrupt", "close_stdin", "sigterm", "sigkill"]));
    assert_eq!(answer["killed"], 1);
}

#[test]
fn the_ladder_goes_on_when_the_daemon_dies_in_the_middle_of_it() {
    let daemon = Daemon::with_config(
        "[stop]\nafter_interrupt_seconds = 1\nafter_stdin_closed_seconds = 0.1\nafter_sigterm_seconds = 0.1\n",
    );
    let session = daemon.run(&["ignore:TERM", "ignore:eof", "status:up", "serve"]);
    daemon.wait_status(&session, "up");
    let pid = daemon.show(&session)["pid"].clone();
    let socket = daemon.socket();
    let path = format!("/api/v1/sessions/{session}/stop");
    let stopping = std::thread::spawn(move || {
        // The daemon dies before it answers.
        std::panic::catch_unwind(|| harness::http(&socket, "POST", &path, Some("{}"), &[])).ok();
    });
    daemon.wait_kind(&session, "session.stopping");
    daemon.wait_for(&session, "the interrupt", |event| {
        event["data"]["message"] == "received"
            && event["data"]["line"].to_string().contains("session/interrupt")
    });
    let (dir, _) = daemon.end(Signal::SIGKILL);
    stopping.join().unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    let events = daemon.all_events(&session);
    assert!(!is_alive(&pid));
    let exited = events.iter().find(|event| event["kind"] == "agent.exited").unwrap();
    assert_eq!(exited["data"]["steps"], json!(["interrupt", "close_stdin", "sigterm", "sigkill"]));
    assert!(events.last().unwrap()["data"]["reason"].as_str().unwrap().starts_with("stopped by "));
}

#[test]
fn show_lists_the_processes_of_a_session_with_cpu_and_memory() {
    let daemon = Daemon::start();
    let session = daemon.run(&["grandchild:setsid,double", "spin:400", "status:up", "serve"]);
    let grandchild = daemon.wait_status(&session, "grandchild")["pid"].clone();
    daemon.wait_status(&session, "up");
    let shown = daemon.show(&session);
    let processes = shown["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{shown}");
    let agent = processes.iter().find(|process| process["pid"] == shown["pid"]).unwrap();
    assert!(
        agent["cpu_seconds"].as_f64().unwrap() > 0.0 && agent["memory_bytes"].as_u64().unwrap() > 100_000
    );
    assert!(processes.iter().any(|process| process["pid"] == grandchild));
}

#[test]
fn an_agent_that_stops_its_own_shim_is_ended_all_the_same() {
    for config in ["", "[daemon]\ncgroups = false\n"] {
        let daemon = Daemon::with_config(config);
        let script = "read go; kill -STOP $PPID; exec sleep 6666";
        let body = json!({ "command": "sh", "args": ["-c", script], "workspace": daemon.workspace() });
        let session = daemon.post("/api/v1/sessions", &body).1["id"].as_str().unwrap().to_owned();
        let pid = daemon.show(&session)["pid"].clone();
        daemon.prompt(&session, "go");
        let meta = daemon.dir.path().join(format!("state/agents/{session}/1/meta.json"));
        let meta: Value = serde_json::from_slice(&std::fs::read(meta).unwrap()).unwrap();
        let stat = format!("/proc/{}/stat", meta["shim"]["pid"]);
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
        let (answer, took) = daemon.end_session(&session, "kill");
        assert_eq!(answer["phase"], "ended");
        assert!(took < std::time::Duration::from_secs(8), "{took:?}");
        assert!(!is_alive(&pid));
    }
}
