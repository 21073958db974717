//! Ctrl-C in a command that waits: it ends at once, with code 130, whole lines, and a word about the agent.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use intercom_testkit::client::PATIENCE;
use intercom_testkit::harness::{Daemon, acp_fixture, command};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

fn start(daemon: &Daemon, args: &[&str]) -> Child {
    let mut command = command(daemon.dir.path());
    command.args(args).current_dir(daemon.workspace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the command would hear SIGINT, and sends it.
fn interrupt(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    let start = std::time::Instant::now();
    let hears = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap() & 0b10 != 0
    };
    while !hears() {
        assert!(start.elapsed() < PATIENCE, "it does not listen for SIGINT");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
}

/// The exit code and the end of what was written, once the command has ended.
fn ended(mut child: Child) -> (Option<i32>, String, String) {
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (child.wait().unwrap().code(), stdout, stderr)
}

#[test]
fn run_and_wait_end_at_once_and_say_that_the_agent_runs_on() {
    let daemon = Daemon::quick("");
    let agent = acp_fixture();
    let line = ["run", "--protocol", "acp", "--name", "shop", "hang", "--", agent.to_str().unwrap()];
    let mut running = start(&daemon, &line);
    let mut stdout = BufReader::new(running.stdout.take().unwrap());
    let mut id = String::new();
    stdout.read_line(&mut id).unwrap();
    // It is said once the session is known, which is after its id is printed.
    daemon.wait_kind(id.trim(), "prompt.delivered");
    interrupt(&running);
    let mut stderr = String::new();
    running.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130), "{stderr}");
    let told =
        "the agent of shop is not stopped; follow it: intercom logs -f shop; stop it: intercom stop shop\n";
    assert_eq!(stderr, told);
    for goal in ["idle", "ended"] {
        let waiting = start(&daemon, &["wait", "shop", "--for", goal]);
        interrupt(&waiting);
        let (code, stdout, stderr) = ended(waiting);
        assert_eq!((code, stdout.as_str()), (Some(130), ""), "{stderr}");
    }
    assert_eq!(daemon.show("shop")["phase"], "working", "nobody has stopped it");
}

#[test]
fn what_follows_a_log_ends_with_a_whole_line() {
    let daemon = Daemon::quick("");
    let prompt = json!({ "name": "shop", "command": acp_fixture(), "protocol": "acp", "prompt": "say:half of a;hang" });
    let session = daemon.started(prompt);
    daemon.wait_kind(&session, "update");
    for args in [&["logs", "-f", "shop"][..], &["watch", "shop"]] {
        let following = start(&daemon, args);
        interrupt(&following);
        let (code, stdout, stderr) = ended(following);
        assert_eq!(code, Some(130), "{args:?}: {stderr}");
        assert!(stdout.is_empty() || stdout.ends_with('\n'), "{args:?}: {stdout:?}");
    }
}
