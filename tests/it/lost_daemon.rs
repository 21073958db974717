//! The daemon goes away under a command: the command says so at once with advice that works, or waits for it and goes on.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use intercom_testkit::harness::{Daemon, Ran, acp_fixture, command, home, kill_all_in, output, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// An absence of the daemon is noticed within this time, far below the 30 s that `run` waits for its agent.
const AT_ONCE: Duration = Duration::from_secs(10);

fn start(dir: &Path, args: &[&str]) -> Child {
    let mut command = command(dir);
    command.args(args).current_dir(dir.join("work"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The directory of a test whose daemons are started by the advice; whatever is left there is ended.
struct Ground(tempfile::TempDir);

impl Drop for Ground {
    fn drop(&mut self) {
        kill_all_in(self.0.path());
    }
}

/// The commands between backticks, as somebody would type them.
fn commands(hint: &str) -> Vec<String> {
    hint.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Runs a command of the advice, whose `intercom` is the one under test.
fn follow_advice(dir: &Path, line: &str) -> Ran {
    let mut shell = Command::new("sh");
    let rest = line.strip_prefix("intercom ").unwrap_or_else(|| panic!("{line}"));
    shell.args(["-c", &format!("exec '{}' {rest}", crate::INTERCOM)]).env_clear();
    let own = command(dir);
    shell.envs(own.get_envs().filter_map(|(key, value)| Some((key, value?))));
    run(&mut shell)
}

/// The line on stderr that begins like this; what comes before it is skipped.
fn wait_line(stderr: &mut BufReader<ChildStderr>, beginning: &str) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "no {beginning}: {seen}");
        if line.starts_with(beginning) {
            return line;
        }
        seen += &line;
    }
}

/// A socket that leads to the daemon's, and the number of event streams that were opened through it: a client has received
/// the head of each.
fn relay(daemon: &Daemon) -> (PathBuf, Arc<AtomicUsize>) {
    let (path, target) = (daemon.dir.path().join("relay.sock"), daemon.socket());
    let listener = UnixListener::bind(&path).unwrap();
    let streams = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&streams);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            // While there is no daemon, its connections end at once.
            let (Ok(client), Ok(daemon)) = (client, UnixStream::connect(&target)) else { continue };
            let (up, counter) =
                ((client.try_clone().unwrap(), daemon.try_clone().unwrap()), Arc::clone(&counter));
            std::thread::spawn(move || pass_on(up.0, up.1, |_| {}));
            std::thread::spawn(move || {
                let mut is_head = true;
                pass_on(daemon, client, |bytes| {
                    let head = String::from_utf8_lossy(bytes).contains("text/event-stream");
                    counter.fetch_add(usize::from(std::mem::take(&mut is_head) && head), Ordering::Relaxed);
                });
            });
        }
    });
    (path, streams)
}

/// Passes bytes on until one side ends, then ends both. `passed` hears of them once they are there.
fn pass_on(mut from: UnixStream, mut to: UnixStream, mut passed: impl FnMut(&[u8])) {
    let mut bytes = vec![0; 65536];
    while let Ok(length) = from.read(&mut bytes) {
        if length == 0 || to.write_all(&bytes[..length]).is_err() {
            break;
        }
        passed(&bytes[..length]);
    }
    for side in [from, to] {
        side.shutdown(Shutdown::Both).ok(); // it may have ended already
    }
}

#[test]
fn run_and_resume_notice_a_killed_daemon_at_once_and_their_advice_works() {
    let ground = Ground(home(""));
    let dir = ground.0.path();
    let agent = acp_fixture();
    run(command(dir).args(["daemon", "restart"])).ok();
    let line = ["run", "--protocol", "acp", "--name", "shop", "hang", "--", agent.to_str().unwrap()];
    for verb in ["run", "resume"] {
        let about: Value =
            serde_json::from_str(&std::fs::read_to_string(dir.join("state/daemon.json")).unwrap()).unwrap();
        let mut running = start(dir, if verb == "run" { &line } else { &["resume", "shop"] });
        let mut first = String::new();
        let mut stdout = BufReader::new(running.stdout.take().unwrap());
        stdout.read_line(&mut first).unwrap();
        // The first line is there at once, also in a pipe.
        let begins = if verb == "run" { "ses_" } else { "shop starting, generation 2\n" };
        assert!(first.starts_with(begins), "{first}");
        let began = Instant::now();
        kill(Pid::from_raw(i32::try_from(about["pid"].as_i64().unwrap()).unwrap()), Signal::SIGKILL).unwrap();
        let ran = output(running);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        assert_eq!(ran.code, 1, "{verb}: {ran:?}");
        let (error, hint) = ran.stderr.split_once("hint: ").unwrap_or_else(|| panic!("{verb}: {ran:?}"));
        assert_eq!(error, "error: the daemon went away; the agent of shop keeps running\n", "{verb}");
        let [restart, logs] = &commands(hint)[..] else { panic!("{hint}") };
        assert_eq!((restart.as_str(), logs.as_str()), ("intercom daemon restart", "intercom logs -f shop"));
        follow_advice(dir, restart).ok();
        let phase = run(command(dir).args(["show", "shop", "--json"])).ok().json()["phase"].clone();
        assert!(phase == "working" || phase == "starting" || phase == "idle", "the agent runs on: {phase}");
        follow_advice(dir, &logs.replace(" -f", "")).ok();
        run(command(dir).args(["stop", "shop"])).ok();
    }
}

#[test]
fn run_json_prints_the_session_once_and_fails_if_its_daemon_goes_away() {
    let daemon = Daemon::quick("");
    let agent = acp_fixture();
    let args =
        ["--json", "run", "--protocol", "acp", "--name", "shop", "hang", "--", agent.to_str().unwrap()];
    let running = start(daemon.dir.path(), &args);
    let mut daemon = daemon;
    daemon.until("the session", |daemon| {
        let (_, list) = daemon.get("/api/v1/sessions");
        list["items"]
            .as_array()
            .is_some_and(|items| items.iter().any(|one| one["phase"] == "working"))
            .then_some(())
    });
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let ran = output(running);
    assert_eq!((ran.code, &ran.json()["name"]), (1, &json!("shop")), "{ran:?}");
    Daemon::start_in(dir, &[], &[]).cli(&["stop", "shop"]).ok();
}

#[test]
fn wait_and_logs_and_watch_outlast_a_killed_daemon_and_go_on_where_they_were() {
    let daemon = Daemon::quick("");
    let gate = daemon.dir.path().join("gate");
    let file = |gate: &Path| format!("wait-file:{}", gate.display());
    let end = daemon.dir.path().join("end");
    let steps = ["status:before", &file(&gate), "status:after", "turn-end", &file(&end), "exit:0"];
    let session = daemon.run_with(&steps, json!({ "name": "shop" }));
    daemon.wait_status(&session, "before");
    let (socket, streams) = relay(&daemon);
    let lines: [&[&str]; 4] = [
        &["wait", "shop", "--for", "ended"],
        &["wait", "shop", "--for", "idle"],
        &["logs", "-f", "shop"],
        &["watch", "shop"],
    ];
    let through =
        |args: &&[&str]| start(daemon.dir.path(), &[&["--socket", socket.to_str().unwrap()], *args].concat());
    let mut running: Vec<Child> = lines.iter().map(through).collect();
    // Each has its stream open before the daemon goes.
    let mut daemon = daemon;
    daemon.until("four streams", |_| (streams.load(Ordering::Relaxed) >= lines.len()).then_some(()));
    let mut errs: Vec<_> =
        running.iter_mut().map(|child| BufReader::new(child.stderr.take().unwrap())).collect();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    for stderr in &mut errs {
        let told = wait_line(stderr, "the daemon is away");
        let back =
            format!("get the daemon back with `intercom --socket {} daemon restart`\n", socket.display());
        assert!(told.ends_with(&back), "{told}");
    }
    let _daemon = Daemon::start_in(dir, &[], &[]);
    for stderr in &mut errs {
        wait_line(stderr, "the daemon is back");
    }
    std::fs::write(&gate, "").unwrap();
    let mut watching = running.pop().unwrap();
    let logging = running.pop().unwrap();
    let idle = output(running.pop().unwrap());
    assert_eq!((idle.code, idle.stdout.as_str()), (0, "idle\n"), "{idle:?}");
    std::fs::write(&end, "").unwrap();
    let ended = output(running.pop().unwrap());
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "ended\n"), "{ended:?}");
    let logs = output(logging).ok().stdout;
    for said in ["agent> before", "agent> after", "agent exited with code 0", "session ended"] {
        assert_eq!(logs.matches(said).count(), 1, "{said}: {logs}");
    }
    let mut watched = String::new();
    let mut stdout = BufReader::new(watching.stdout.take().unwrap());
    while !watched.contains("session ended") {
        assert_ne!(stdout.read_line(&mut watched).unwrap(), 0, "{watched}");
    }
    assert_eq!(watched.matches("agent> after").count(), 1, "{watched}");
    kill(Pid::from_raw(i32::try_from(watching.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(130));
}

/// A daemon that takes a request and dies before it answers, then a real one in its place.
#[test]
fn commands_in_flight_say_that_nobody_knows_and_where_to_look() {
    let dir = home("");
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["run", "--no-start", "--", "true"], "ls"),
        (&["send", "shop", "go"], "prompts shop"),
        (&["stop", "shop"], "show shop"),
        (&["kill", "shop"], "show shop"),
        (&["interrupt", "shop"], "show shop"),
        (&["nudge", "shop"], "show shop"),
        (&["approve", "clr_1"], "clearances clr_1"),
        (&["deny", "clr_1"], "clearances clr_1"),
        (&["answer", "qst_1", "continue"], "questions qst_1"),
    ];
    for (args, place) in cases {
        let socket = state.join("intercom.sock");
        std::fs::remove_file(&socket).ok(); // there is none before the first case
        let listener = UnixListener::bind(&socket).unwrap();
        let dying = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1];
            stream.read_exact(&mut request).unwrap();
        });
        let ran = run(command(dir.path()).args(args));
        dying.join().unwrap();
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.stderr.starts_with("error: the daemon went away before it answered\n"),
            "{args:?}: {ran:?}"
        );
        let hint = format!(
            "hint: get the daemon back with `intercom daemon restart`, then check whether it was done: `intercom {place}`\n"
        );
        assert!(ran.stderr.ends_with(&hint), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_stop_whose_daemon_dies_is_carried_on_by_the_advice() {
    let daemon = Daemon::with_config("[stop]\nafter_interrupt_seconds = 50\n");
    let steps = ["ignore:TERM", "status:up", "hang"];
    let session = daemon.run_with(&steps, json!({ "name": "shop" }));
    daemon.wait_status(&session, "up");
    let stopping = start(daemon.dir.path(), &["stop", "shop"]);
    daemon.wait_kind(&session, "session.stopping");
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let ran = output(stopping);
    assert_eq!(ran.code, 1, "{ran:?}");
    let ground = Ground(dir);
    let advice = commands(&ran.stderr);
    for line in &advice {
        follow_advice(ground.0.path(), line).ok();
    }
    assert_eq!(advice.last().map(String::as_str), Some("intercom show shop"), "{ran:?}");
    run(command(ground.0.path()).args(["kill", "shop"])).ok();
}

#[test]
fn waiting_for_a_session_without_a_daemon_fails_at_once() {
    let ground = Ground(home(""));
    let dir = ground.0.path();
    for args in
        [&["wait", "shop", "--for", "idle"][..], &["logs", "-f", "shop"], &["watch"], &["stop", "shop"]]
    {
        let began = Instant::now();
        let ran = run(command(dir).args(args));
        assert!(began.elapsed() < AT_ONCE, "{args:?}");
        assert_eq!(ran.code, 1, "{args:?}: {ran:?}");
        assert!(ran.stderr.starts_with("error: no daemon is running"), "{args:?}: {ran:?}");
    }
}
