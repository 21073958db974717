//! Processes: each on its own, stopped whole and in time, never in each other's way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use intercom_testkit::harness::{self, Daemon, alive, kill_all_in, processes_in};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The waits after the interrupt, after stdin is closed, and after SIGTERM.
fn waits(seconds: [f64; 3]) -> String {
    let [interrupt, stdin, sigterm] = seconds;
    format!(
        "[stop]\nafter_interrupt_seconds = {interrupt}\nafter_stdin_closed_seconds = {stdin}\nafter_sigterm_seconds = {sigterm}\n"
    )
}

/// Long enough to be sure that a step that works is not overtaken by the next one.
const LONG: f64 = 20.0;
const SHORT: f64 = 0.2;

fn exited(events: &[Value]) -> &Value {
    &events.iter().find(|event| event["kind"] == "agent.exited").unwrap()["data"]
}

fn grandchildren(daemon: &Daemon, session: &str, count: usize) -> Vec<i64> {
    let said = daemon.follow(session).filter(|event| event["data"]["message"] == "grandchild");
    said.take(count).map(|event| event["data"]["pid"].as_i64().unwrap()).collect()
}

fn at(event: &Value) -> jiff::Timestamp {
    event["at"].as_str().unwrap().parse().unwrap()
}

#[test]
fn an_agent_has_a_session_and_a_group_of_its_own_and_nothing_of_ours() {
    let daemon = Daemon::start();
    let session = daemon.run_with(&["whoami", "hang"], json!({ "prompt": "a secret task" }));
    let who = daemon.wait_status(&session, "whoami");
    assert_eq!(who["pid"], daemon.show(&session)["pid"]);
    assert_eq!((&who["pgid"], &who["sid"]), (&who["pid"], &who["pid"]));
    assert_eq!(who["cwd"].as_str(), daemon.workspace().to_str());
    assert_eq!(who["args"], json!(["whoami", "hang"]), "a prompt is never among the arguments");
    assert_eq!(who["env"]["INTERCOM_SESSION"], session.as_str());
    assert_eq!(who["env"].get("INTERCOM_STATE_DIR"), None);
    // Whatever else is open comes from whoever started us, and not from the daemon.
    let inherited: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().flatten().collect();
    let inherited: Vec<_> =
        inherited.iter().filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
    for (fd, file) in who["fds"].as_object().unwrap() {
        let known = inherited.iter().any(|path| path.to_str() == file.as_str());
        assert!(["0", "1", "2"].contains(&fd.as_str()) || known, "{fd} is {file}");
    }
    let open_files = |pid: &str| {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        limits.lines().find(|line| line.starts_with("Max open files")).unwrap().to_owned()
    };
    assert_eq!(open_files(&who["pid"].to_string()), open_files("self"), "the daemon's own is raised");
    let mask = |name: &str| u64::from_str_radix(who["signals"][name].as_str().unwrap(), 16).unwrap();
    assert_eq!(mask("SigBlk"), 0);
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGCHLD] {
        assert_eq!(mask("SigIgn") & 1 << (signal as u32 - 1), 0, "{signal} is ignored");
    }
}

/// Stops such an agent and checks that it took exactly these steps, told alike in the answer and in the log.
#[track_caller]
fn check_stop(agent: &[&str], seconds: [f64; 3], steps: &[&str], killed: u32, exit: &Value) {
    let daemon = Daemon::with_config(&waits(seconds));
    let agent = [&agent[..agent.len() - 1], &["status:ready"], &agent[agent.len() - 1..]].concat();
    let session = daemon.run(&agent);
    daemon.wait_status(&session, "ready");
    let pid = daemon.show(&session)["pid"].as_i64().unwrap();
    let (answer, took) = daemon.end_session(&session, "stop");
    assert!(!alive(pid), "it answers when the process is gone");
    assert_eq!(answer["phase"], "ended");
    assert_eq!((&answer["steps"], &answer["killed"]), (&json!(steps), &json!(killed)));

    // Every step that did not help was given its time, and none was given more.
    let waited: f64 = seconds.iter().take(steps.len() - 1).sum();
    assert!(took >= Duration::from_secs_f64(waited), "{took:?}");
    assert!(took < Duration::from_secs_f64(waited + 5.0), "{took:?}");

    let events = daemon.all_events(&session);
    let logged = exited(&events);
    assert_eq!((&logged["steps"], &logged["killed"]), (&json!(steps), &json!(killed)));
    assert_eq!((&logged["code"], &logged["signal"]), (&exit["code"], &exit["signal"]));
    let reason = events.last().unwrap()["data"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("stopped by "), "{reason}");
    assert_eq!(daemon.show(&session)["exit"]["reason"], reason);
}

#[test]
fn an_agent_that_takes_the_interrupt_for_its_end_needs_nothing_else() {
    let exit = json!({ "code": 0, "signal": null });
    check_stop(&["expect:session/interrupt"], [LONG; 3], &["interrupt"], 0, &exit);
}

#[test]
fn an_agent_that_ends_at_eof_needs_its_stdin_closed() {
    let exit = json!({ "code": 0, "signal": null });
    check_stop(&["expect:never"], [SHORT, LONG, LONG], &["interrupt", "close_stdin"], 0, &exit);
}

#[test]
fn an_agent_that_does_not_read_needs_a_sigterm() {
    let exit = json!({ "code": null, "signal": 15 });
    check_stop(&["hang"], [SHORT, SHORT, LONG], &["interrupt", "close_stdin", "sigterm"], 0, &exit);
}

#[test]
fn an_agent_that_ignores_everything_is_killed_after_the_last_wait() {
    let exit = json!({ "code": null, "signal": 9 });
    let steps = ["interrupt", "close_stdin", "sigterm", "sigkill"];
    check_stop(&["ignore:TERM", "hang"], [SHORT; 3], &steps, 1, &exit);
}

#[test]
fn a_profile_may_have_waits_of_its_own() {
    let fixture = harness::fixture();
    let daemon = Daemon::with_config(&format!(
        "{}[agents.deaf]\ncommand = {fixture:?}\nargs = ['ignore:TERM', 'status:ready', 'hang']\n\
         [agents.deaf.stop]\nafter_interrupt_seconds = 0\nafter_stdin_closed_seconds = 0.1\nafter_sigterm_seconds = 0.1\n",
        waits([LONG; 3])
    ));
    let (status, session) =
        daemon.post("/api/v1/sessions", &json!({ "agent": "deaf", "workspace": daemon.workspace() }));
    assert_eq!(status, 201, "{session}");
    let id = session["id"].as_str().unwrap();
    daemon.wait_status(id, "ready");
    let (answer, took) = daemon.end_session(id, "stop");
    assert_eq!(answer["killed"], 1);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_kill_asks_nobody() {
    let daemon = Daemon::with_config(&waits([LONG; 3]));
    let session = daemon.run(&["grandchild:nohup", "status:ready", "expect:never"]);
    daemon.wait_status(&session, "ready");
    let (answer, took) = daemon.end_session(&session, "kill");
    assert_eq!((&answer["steps"], &answer["killed"]), (&json!(["sigkill"]), &json!(2)));
    assert!(took < Duration::from_secs(5), "{took:?}");
    let events = daemon.all_events(&session);
    assert!(events.last().unwrap()["data"]["reason"].as_str().unwrap().starts_with("killed by "));
}

#[test]
fn a_kill_during_a_stop_ends_the_wait() {
    let daemon = Daemon::with_config(&waits([LONG; 3]));
    let session = daemon.run(&["ignore:TERM", "status:ready", "hang"]);
    daemon.wait_status(&session, "ready");
    thread::scope(|scope| {
        let stop = scope.spawn(|| daemon.end_session(&session, "stop"));
        daemon.wait_kind(&session, "session.stopping");
        let (killed, took) = daemon.end_session(&session, "kill");
        let (stopped, _) = stop.join().unwrap();
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_eq!((&killed["steps"], &killed["killed"]), (&json!(["interrupt", "sigkill"]), &json!(1)));
        assert_eq!(stopped, killed, "both are told the same");
    });
}

#[test]
fn stopping_what_has_ended_is_fine_and_takes_nothing() {
    let daemon = Daemon::start();
    let session = daemon.run(&["exit:0"]);
    let before = daemon.all_events(&session).len();
    for how in ["stop", "kill", "stop"] {
        let (answer, _) = daemon.end_session(&session, how);
        assert_eq!(answer["phase"], "ended");
        assert_eq!((&answer["steps"], &answer["killed"]), (&json!([]), &json!(0)));
    }
    assert_eq!(daemon.all_events(&session).len(), before, "nothing is logged for it");
    let (status, body) = daemon.post(&format!("/api/v1/sessions/{session}/nudge"), &json!({}));
    assert_eq!((status, &body["error"]["code"]), (409, &json!("ended")));
}

#[test]
fn the_code_or_the_signal_of_the_exit_is_kept() {
    let daemon = Daemon::start();
    for (step, code, signal) in [
        ("exit:0", json!(0), Value::Null),
        ("exit:3", json!(3), Value::Null),
        ("signal:SEGV", Value::Null, json!(11)),
        ("signal:KILL", Value::Null, json!(9)),
    ] {
        let session = daemon.run(&["status:here", step]);
        let events = daemon.all_events(&session);
        let logged = exited(&events);
        assert_eq!((&logged["code"], &logged["signal"]), (&code, &signal), "{step}");
        assert_eq!((&logged["steps"], &logged["killed"]), (&json!([]), &json!(0)), "{step}");
        let shown = &daemon.show(&session)["exit"];
        assert_eq!((&shown["code"], &shown["signal"]), (&code, &signal), "{step}");
        assert_eq!(daemon.show(&session)["pid"], Value::Null);
    }
}

#[test]
fn stop_answers_when_the_whole_group_is_gone() {
    let daemon = Daemon::with_config(&waits([LONG, LONG, SHORT]));
    let session = daemon.run(&[
        "grandchild:",
        "grandchild:stdout,stderr",
        "grandchild:nohup",
        "grandchild:nohup,stdout,stderr,double",
        "expect:session/interrupt",
    ]);
    let pids = grandchildren(&daemon, &session, 4);
    assert!(pids.iter().all(|pid| alive(*pid)));
    let (answer, took) = daemon.end_session(&session, "stop");
    let left: Vec<_> = pids.iter().filter(|pid| alive(**pid)).collect();
    assert!(left.is_empty(), "{left:?} live on after {answer}");
    let steps = json!(["interrupt", "sigterm", "sigkill"]);
    assert_eq!((&answer["steps"], &answer["killed"]), (&steps, &json!(2)), "two are deaf to SIGTERM");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn an_agent_that_leaves_a_child_on_its_stdout_does_not_keep_its_session_open() {
    let daemon = Daemon::start();
    let session = daemon.run(&["grandchild:nohup,stdout", "status:bye", "exit:4"]);
    let [child] = grandchildren(&daemon, &session, 1)[..] else { panic!("one grandchild") };
    let events = daemon.all_events(&session);
    assert!(!alive(child), "it ended with its session");
    assert_eq!((&exited(&events)["code"], &exited(&events)["killed"]), (&json!(4), &json!(1)));
    let bye = events.iter().find(|event| event["data"]["message"] == "bye").unwrap();
    let lasted = at(events.last().unwrap()).duration_since(at(bye));
    assert!(lasted < jiff::SignedDuration::from_secs(5), "{lasted:?}");
}

#[test]
fn what_an_agent_said_last_is_logged_also_if_it_exits_at_once() {
    let daemon = Daemon::start();
    // More than fits into the pipe and our buffers, so that most of it is read after the exit.
    let session =
        daemon.run(&["flood:5000", "part:{\"method\":\"status/update\",\"params\":{\"message\":\"end\"}}"]);
    let events = daemon.all_events(&session);
    let said: Vec<_> = events.iter().filter(|event| event["kind"] == "status").collect();
    assert_eq!(said.len(), 5001);
    assert_eq!(said[5000]["data"]["message"], "end", "a last line needs no line feed");
}

/// An agent with a child that left the session and the group, so that we do not find it; but it must not hold up
/// anything either. It talks when the agent has said all it has to say: they share a pipe.
fn run_with_stray(daemon: &Daemon, talk: &str) -> String {
    let go = daemon.workspace().join("go");
    let child = format!("grandchild:setsid,stdout:wait-file:{}|{talk}", go.display());
    let session = daemon.run(&[&child, "expect:session/interrupt"]);
    let talked = daemon.follow(&session);
    daemon.wait_status(&session, "grandchild");
    std::fs::write(go, "").unwrap();
    let talks = |event: &Value| event["kind"] == "status" && event["data"]["message"] != "grandchild";
    talked.into_iter().find(talks).unwrap();
    session
}

#[track_caller]
fn check_stray(talk: &str) {
    let daemon = Daemon::with_config(&waits([LONG; 3]));
    let session = run_with_stray(&daemon, talk);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| tell.send(daemon.end_session(&session, "stop")));
        let stopped = told.recv_timeout(Duration::from_secs(10));
        kill_strays(&daemon);
        assert!(stopped.is_ok(), "stop waits for a stray");
    });
}

fn kill_strays(daemon: &Daemon) {
    for (pid, line) in processes_in(daemon.dir.path()) {
        if line.contains(" setsid ready ") {
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
}

#[test]
fn a_stray_child_that_floods_does_not_keep_its_session_open() {
    check_stray("flood:2000000000");
}

#[test]
fn a_stray_child_that_talks_now_and_then_does_not_keep_its_session_open() {
    check_stray(&["status:still here", "sleep:20"].repeat(1000).join("|"));
}

#[test]
fn a_stray_child_that_floods_does_not_keep_the_daemon_from_stopping() {
    let mut daemon = Daemon::start();
    run_with_stray(&daemon, "flood:2000000000");
    kill(Pid::from_raw(daemon.pid()), Signal::SIGTERM).unwrap();
    let start = Instant::now();
    let in_time = daemon.until("the daemon's end", |daemon| {
        let over = daemon.ended();
        (over || start.elapsed() > Duration::from_secs(8)).then_some(over)
    });
    kill_strays(&daemon);
    assert!(in_time, "the daemon waits for a stray");
}

#[test]
fn two_hundred_megabytes_of_stderr_do_not_block_and_only_their_end_is_kept() {
    let mut daemon = Daemon::start();
    let session = daemon.run(&[
        "flood-stderr:200000000",
        "stderr:the very end",
        "status:done",
        "expect:session/interrupt",
    ]);
    daemon.wait_status(&session, "done");
    let tail = daemon.until("the end of stderr", |daemon| {
        let tail = daemon.show(&session)["stderr_tail"].as_str().unwrap().to_owned();
        tail.ends_with("eee\nthe very end\n").then_some(tail)
    });
    assert!(tail.len() <= 16_384, "{} bytes", tail.len());
    assert!(daemon.cli(&["show", &session]).ok().stdout.ends_with("e\n  │ the very end\n"));
    daemon.end_session(&session, "stop");
    assert_eq!(exited(&daemon.all_events(&session))["stderr_tail"], tail);
    assert_eq!(daemon.show(&session)["stderr_tail"], tail, "it is kept after the end");
}

#[test]
fn the_last_words_on_stderr_are_in_the_exit_event() {
    let daemon = Daemon::start();
    let ids: Vec<String> = (0..20)
        .map(|_| daemon.run(&["flood-stderr:300000", "stderr:panicked at main.rs:1", "exit:101"]))
        .collect();
    for id in ids {
        let events = daemon.all_events(&id);
        let tail = exited(&events)["stderr_tail"].as_str().unwrap();
        assert!(tail.ends_with("e\npanicked at main.rs:1\n"), "…{}", &tail[tail.len().saturating_sub(150)..]);
    }
}

#[test]
fn an_agent_that_closes_stdout_and_lives_on_is_stopped_after_two_seconds() {
    let daemon = Daemon::start();
    let session = daemon.run(&["status:bye", "close:stdout", "hang"]);
    let events = daemon.all_events(&session);
    assert_eq!(events.last().unwrap()["data"]["reason"], "stream closed");
    assert_eq!(exited(&events)["signal"], 15);
    let bye = events.iter().find(|event| event["data"]["message"] == "bye").unwrap();
    let lasted = at(events.last().unwrap()).duration_since(at(bye)).as_secs_f64();
    assert!((2.0..6.0).contains(&lasted), "{lasted} s");
}

#[test]
fn an_agent_that_has_closed_stdout_can_be_killed_at_once() {
    let mut daemon = Daemon::start();
    let closed = daemon.workspace().join("closed");
    let session = daemon.run(&["close:stdout", &format!("pid-file:{}", closed.display()), "hang"]);
    daemon.until("stdout to be closed", |_| closed.exists().then_some(()));
    let (answer, took) = daemon.end_session(&session, "kill");
    assert_eq!(answer["steps"], json!(["sigkill"]));
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn an_agent_that_has_closed_stdout_is_stopped_with_the_configured_waits() {
    let mut daemon = Daemon::with_config(&waits([SHORT; 3]));
    let closed = daemon.workspace().join("closed");
    let session =
        daemon.run(&["ignore:TERM", "close:stdout", &format!("pid-file:{}", closed.display()), "hang"]);
    daemon.until("stdout to be closed", |_| closed.exists().then_some(()));
    let (answer, took) = daemon.end_session(&session, "stop");
    assert_eq!(answer["steps"], json!(["interrupt", "close_stdin", "sigterm", "sigkill"]));
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// Stops a daemon whose sessions ignore everything but SIGKILL, and looks into the log afterwards.
#[track_caller]
fn check_shutdown(config: &str, sessions: usize) {
    let daemon = Daemon::with_config(config);
    let ids: Vec<String> = (0..sessions)
        .map(|_| daemon.run(&["ignore:TERM", "ignore:eof", "grandchild:nohup", "status:ready", "hang"]))
        .collect();
    for id in &ids {
        daemon.wait_status(id, "ready");
    }
    let start = Instant::now();
    let (dir, status) = daemon.end(Signal::SIGTERM);
    let took = start.elapsed();
    let left = kill_all_in(dir.path());
    assert!(left.is_empty(), "{left:#?}");
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");

    let daemon = Daemon::start_in(dir, &[], &[]);
    for id in &ids {
        let events = daemon.all_events(id);
        let gone = exited(&events);
        assert_eq!((&gone["signal"], &gone["killed"]), (&json!(9), &json!(2)), "{gone}");
        let reason = events.last().unwrap()["data"]["reason"].as_str().unwrap();
        assert!(reason.ends_with("ed by the daemon's stop"), "{reason}");
        assert_eq!(daemon.show(id)["phase"], "ended");
    }
}

#[test]
fn stopping_the_daemon_ends_twenty_stubborn_sessions_within_five_seconds() {
    check_shutdown("", 20);
}

#[test]
fn stopping_the_daemon_takes_five_seconds_whatever_waits_are_configured() {
    check_shutdown(&waits([30.0; 3]), 3);
}

/// Ends those who are busy as long as this is there, also if the test fails meanwhile.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn a_flooding_agent_can_be_commanded_while_others_read_its_log() {
    let daemon = Daemon::with_config(&waits([SHORT; 3]));
    let session = daemon.run(&["status:first", "flood:2000000", "hang"]);
    daemon.wait_status(&session, "first");
    let busy = AtomicBool::new(true);
    thread::scope(|scope| {
        let guard = Busy(&busy);
        for _ in 0..4 {
            scope.spawn(|| {
                while busy.load(Ordering::Relaxed) {
                    daemon.get(&format!("/api/v1/events?after=0&session={session}&limit=1000"));
                }
            });
        }
        let path = |what: &str| format!("/api/v1/sessions/{session}/{what}");
        let commands = [
            (path("nudge"), json!({})),
            (path("interrupt"), json!({})),
            (path("prompts"), json!({ "text": "Please be quiet" })),
        ];
        for (path, body) in commands.iter().cycle().take(12) {
            let start = Instant::now();
            let (status, answer) = daemon.post(path, body);
            assert_eq!(status, 202, "{answer}");
            assert!(start.elapsed() < Duration::from_secs(3), "{path} took {:?}", start.elapsed());
        }
        drop(guard);
        let (answer, took) = daemon.end_session(&session, "stop");
        assert_eq!(answer["steps"], json!(["interrupt", "close_stdin", "sigterm"]));
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
}

#[test]
fn a_flooding_agent_does_not_delay_the_clearances_of_another() {
    const ROUNDS: usize = 30;
    let daemon = Daemon::start();
    let loud = daemon.run(&["status:first", "flood:2000000", "status:last", "hang"]);
    daemon.wait_status(&loud, "first");
    let quiet = daemon.run(&[&format!("clearance-loop:{ROUNDS}")]);
    let asked = daemon.follow(&quiet).filter(|event| event["kind"] == "clearance.requested");
    for event in asked.take(ROUNDS) {
        daemon.decide(event["data"]["clearance"].as_str().unwrap(), "approve");
    }
    let figures = daemon.wait_status(&quiet, "clearance-loop");
    assert!(figures["max_us"].as_u64().unwrap() < 1_000_000, "{figures}");
    let (_, newest) = daemon.get("/api/v1/health");
    assert!(newest["last_seq"].as_u64().unwrap() < 2_000_000, "it was loud all the time: {newest}");
}
