//! The daemon itself: how it starts, what it leaves on the disk, how it ends, and what the next one makes of that.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use intercom_testkit::client::PATIENCE;
use intercom_testkit::harness::{
    Daemon, SERVE, alive, command, fixture, home, kill_all_in, processes_in, run,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::INTERCOM;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode()
        & 0o7777
}

#[track_caller]
fn healthy(daemon: &Daemon) {
    let (status, body) = daemon.get("/api/v1/health");
    assert_eq!((status, &body["status"]), (200, &json!("ok")));
}

#[test]
fn a_second_daemon_on_the_same_state_directory_is_refused() {
    let daemon = Daemon::start();
    let session = daemon.run(&["expect:nudge", "status:still here", "hang"]);
    let second = run(command(daemon.dir.path()).arg("serve"));
    assert_eq!((second.code, second.stdout.as_str()), (1, ""));
    let state = daemon.dir.path().join("state");
    let message = format!(
        "error: another intercom (pid {}) uses the state directory {}\n",
        daemon.pid(),
        state.display()
    );
    assert_eq!(second.stderr, message);
    healthy(&daemon);
    daemon.cli(&["nudge", &session]).ok();
    daemon.wait_status(&session, "still here");
    assert!(state.join("daemon.json").exists());
}

#[test]
fn what_a_dead_daemon_left_does_not_prevent_a_start() {
    let dir = home("");
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    drop(UnixListener::bind(state.join("intercom.sock")).unwrap());
    std::fs::write(state.join("daemon.lock"), "1").unwrap();
    std::fs::write(state.join("daemon.json"), "{").unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    healthy(&daemon);
    let about = std::fs::read_to_string(state.join("daemon.json")).unwrap();
    assert!(about.contains(&daemon.pid().to_string()), "{about}");
}

#[test]
fn a_file_in_the_place_of_the_socket_is_not_deleted() {
    let dir = home("");
    let precious = dir.path().join("precious.txt");
    std::fs::write(&precious, "not a socket").unwrap();
    let ran = run(command(dir.path()).args(["serve", "--socket"]).arg(&precious));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("precious.txt"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "not a socket");
}

#[test]
fn only_one_directory_is_made_for_the_socket() {
    let dir = home("");
    let deep = dir.path().join("no/such/place/s");
    let ran = run(command(dir.path()).args(["serve", "--socket"]).arg(&deep));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("no/such/place, does not exist"), "{ran:?}");
    assert!(!dir.path().join("no").exists());
    let socket = dir.path().join("one/s");
    let mut serve = command(dir.path());
    serve.args(SERVE).arg("--socket").arg(&socket);
    healthy(&Daemon::launch(dir, &mut serve, |_| socket));
}

#[test]
fn a_file_in_the_place_of_the_database_is_not_called_a_passing_fault() {
    let dir = home("");
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("intercom.db"), "notes ".repeat(1000)).unwrap();
    let ran = run(command(dir.path()).arg("serve"));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("is not an intercom database"), "{ran:?}");
    assert!(!ran.stderr.contains("at the moment"), "{ran:?}");
}

#[test]
fn nobody_else_can_read_what_is_kept() {
    let dir = home("");
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o755)).unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    let session = daemon.run(&["status:secret"]);
    daemon.all_events(&session);
    assert_eq!(mode(&state), 0o700, "also if it was there before");
    let files = ["intercom.sock", "intercom.db", "intercom.db-wal", "intercom.db-shm"];
    let modes = files.map(|file| (file, format!("{:o}", mode(&state.join(file)))));
    assert_eq!(modes, files.map(|file| (file, "600".to_owned())));
    let copy = daemon.dir.path().join("copy.db");
    daemon.cli(&["backup", copy.to_str().unwrap()]).ok();
    assert_eq!(mode(&copy), 0o600, "a backup holds the same secrets");
}

#[test]
fn daemon_json_says_where_the_daemon_is_and_goes_with_it() {
    let daemon = Daemon::start();
    healthy(&daemon); // it answers only after it has told where it is
    let state = daemon.dir.path().join("state");
    let about: Value =
        serde_json::from_str(&std::fs::read_to_string(state.join("daemon.json")).unwrap()).unwrap();
    assert_eq!(about["pid"], daemon.pid());
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(about["socket"].as_str(), daemon.socket().to_str());
    assert_eq!(about["url"], Value::Null);
    assert!(about["started_at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{about}");
    let (_dir, status) = daemon.end(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
    assert!(!state.join("daemon.json").exists() && !state.join("intercom.sock").exists());
}

#[test]
fn a_wrong_configuration_is_named_by_file_line_and_key_before_anything_starts() {
    let dir = home("");
    let config = dir.path().join("config.toml");
    for (text, expect) in [
        ("[acp]\nframing = 'lsp'\nmax_line_lenght = 5\n", "3: acp.max_line_lenght: "),
        ("[limits]\n\nmax_sessions = 'many'\n", "3: limits.max_sessions: "),
        ("[retention]\ndays = -1\n", "2: retention.days: "),
        ("[acp]\nframing = lsp\n", "2: acp.framing: "),
        ("[agents.x]\nargs = []\n", "1: agents.x.command: "),
    ] {
        std::fs::write(&config, text).unwrap();
        let ran = run(command(dir.path()).arg("serve"));
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("error: {}:{expect}", config.display())), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        assert!(!dir.path().join("state").exists());
    }
    let ran = run(command(dir.path()).args(["serve", "--config", "/nowhere/config.toml"]));
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("/nowhere/config.toml") && ran.stderr.contains("No such file"), "{ran:?}");
}

#[test]
fn a_state_directory_with_a_very_long_path_works() {
    let dir = tempfile::Builder::new().prefix(&"long".repeat(40)).tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert!(daemon.socket().as_os_str().len() > 107);
    assert_eq!(mode(&daemon.socket()), 0o600);
    let fixture = fixture();
    let ran = daemon.cli(&["run", "--name", "deep", "--", fixture.to_str().unwrap(), "status:here", "hang"]);
    let id = ran.ok().stdout.trim().to_owned();
    daemon.wait_status(&id, "here");
    assert!(daemon.cli(&["ls"]).ok().stdout.contains("deep"));
    assert!(daemon.cli(&["logs", "deep"]).ok().stdout.contains("here"));
    daemon.cli(&["doctor"]).ok();
    daemon.cli(&["stop", "deep"]).ok();
    let socket = daemon.socket();
    let (_dir, status) = daemon.end(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_database_of_a_newer_version_is_refused_and_left_alone() {
    let daemon = Daemon::start();
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let file = dir.path().join("state/intercom.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    database.pragma_update(None, "user_version", 9999).unwrap();
    drop(database);
    let before = std::fs::read(&file).unwrap();
    let ran = run(command(dir.path()).arg("serve"));
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains(file.to_str().unwrap()), "{ran:?}");
    assert!(ran.stderr.contains("schema version 9999; this intercom supports versions up to "), "{ran:?}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert!(!dir.path().join("state/intercom.sock").exists());
}

#[test]
fn ctrl_c_and_sigterm_stop_the_daemon_and_its_sessions_cleanly() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let daemon = Daemon::start();
        let session = daemon.run(&["clearance:c:May I?", "expect:never"]);
        daemon.clearance(&session);
        let (dir, status) = daemon.end(signal);
        assert_eq!(status.code(), Some(0), "{signal}");
        let left = kill_all_in(dir.path());
        assert!(left.is_empty(), "{left:?}");
        let log = std::fs::read_to_string(dir.path().join("daemon.log")).unwrap();
        assert!(log.contains(signal.as_str()), "{log}");
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
        let daemon = Daemon::start_in(dir, &[], &[]);
        let events = daemon.all_events(&session);
        assert!(events.iter().any(|event| event["kind"] == "clearance.closed"), "{events:#?}");
    }
}

#[test]
fn a_signal_during_the_start_is_clean() {
    let mut dir = home("");
    let state = dir.path().join("state");
    // From the first sign of life to the last; once the database is there, the signal is ours to handle.
    for (milestone, handled) in [
        ("", false),
        ("daemon.lock", false),
        ("intercom.db", true),
        ("intercom.sock", true),
        ("daemon.json", true),
    ] {
        std::fs::remove_dir_all(&state).ok();
        let mut child = command(dir.path()).arg("serve").stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while !state.join(milestone).exists() {
            assert!(start.elapsed() < PATIENCE, "{milestone}");
        }
        kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        let status = child.wait().unwrap();
        assert!(!handled || status.code() == Some(0), "{milestone}: {status}");
        assert!(!state.join("intercom.sock").exists() && !state.join("daemon.json").exists(), "{milestone}");
        let daemon = Daemon::start_in(dir, &[], &[]);
        healthy(&daemon);
        dir = daemon.end(Signal::SIGTERM).0;
    }
}

/// A daemon whose state is on a disk of 32 MB, in a mount namespace that goes with it; `None` where that is not allowed.
fn on_a_small_disk() -> Option<Daemon> {
    let root = nix::unistd::Uid::effective().is_root();
    let flags: &[&str] = if root { &["--mount"] } else { &["--map-root-user", "--mount"] };
    if !Command::new("unshare").args(flags).arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("not tested: no mount namespaces here");
        return None;
    }
    let dir = home("[limits]\nmin_free_disk_mib = 0\n");
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let script = format!("mount -t tmpfs -o size=32m,mode=700 tmpfs {} && {}", state.display(), exec());
    let mut unshare = Command::new("unshare");
    unshare.args(flags).args(["sh", "-c", &script]).env_clear();
    unshare.envs(command(dir.path()).get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(Daemon::launch(dir, &mut unshare, |pid| inside(pid, &state.join("intercom.sock"))))
}

/// For a shell: becomes the daemon.
fn exec() -> String {
    format!("exec {INTERCOM} {}", SERVE.join(" "))
}

/// A file as the daemon sees it.
fn inside(pid: i32, path: &Path) -> PathBuf {
    Path::new(&format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap())
}

fn filler(daemon: &Daemon) -> PathBuf {
    daemon.socket().with_file_name("filler")
}

fn fill(daemon: &Daemon) {
    let mut file = std::fs::File::create(filler(daemon)).unwrap();
    let error = loop {
        if let Err(error) = file.write_all(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

/// No room for a while: nothing is lost, nothing is doubled, and operators are told.
#[track_caller]
fn check_no_room(mut daemon: Daemon, take: impl FnOnce(&Daemon), give: impl FnOnce(&Daemon)) {
    const LINES: u64 = 20_000;
    let go = daemon.workspace().join("go");
    let talks = daemon.run(&[
        &format!("wait-file:{}", go.display()),
        &format!("flood:{LINES}"),
        "clearance:late:May I still?",
        "answer:late",
    ]);
    let waits = daemon.run(&["clearance:early:May I?", "answer:early"]);
    let early = daemon.clearance(&waits);
    take(&daemon);
    std::fs::write(&go, "").unwrap();
    daemon.until("the flood to be stuck", |daemon| {
        let log = daemon.log();
        (log.contains("will try again") || log.contains("cannot be journalled")).then_some(())
    });

    let decision = (format!("/api/v1/clearances/{early}/decision"), json!({ "decision": "approve" }));
    let commands = [
        decision.clone(),
        (format!("/api/v1/sessions/{talks}/nudge"), json!({})),
        (format!("/api/v1/sessions/{waits}/prompts"), json!({ "text": "Go on" })),
        ("/api/v1/sessions".to_owned(), json!({ "command": fixture(), "workspace": daemon.workspace() })),
    ];
    for (path, body) in &commands {
        let (status, answer) = daemon.post(path, body);
        assert_eq!(
            (status, &answer["error"]["code"]),
            (503, &json!("store_unavailable")),
            "{path}: {answer}"
        );
    }
    let (status, clearance) = daemon.get(&format!("/api/v1/clearances/{early}"));
    assert_eq!((status, &clearance["status"]), (200, &json!("pending")), "reading goes on");
    assert_eq!(daemon.get("/api/v1/sessions?all=true").1["items"].as_array().unwrap().len(), 2);

    give(&daemon);
    daemon.decide(&daemon.clearance(&talks), "deny");
    let events = daemon.all_events(&talks);
    let said =
        events.iter().filter_map(|event| event["data"]["message"].as_str()?.split(' ').nth(1)?.parse().ok());
    assert_eq!(said.collect::<Vec<u64>>(), (1..=LINES).collect::<Vec<_>>());
    assert!(!events.iter().any(|event| event["kind"] == "nudge"), "what was refused did not happen");
    assert_eq!(daemon.post(&decision.0, &decision.1).0, 200);
    assert_eq!(daemon.wait_status(&waits, "answered")["status"], "approved");
}

#[test]
fn on_a_full_disk_nothing_is_lost_and_commands_are_refused() {
    let Some(daemon) = on_a_small_disk() else { return };
    check_no_room(daemon, fill, |daemon| std::fs::remove_file(filler(daemon)).unwrap());
}

#[test]
fn when_files_may_not_grow_nothing_is_lost_and_commands_are_refused() {
    let dir = home("[limits]\nmin_free_disk_mib = 0\n");
    let socket = dir.path().join("state/intercom.sock");
    let mut sh = Command::new("sh");
    sh.args(["-c", &format!("trap '' XFSZ; {}", exec())]).env_clear();
    sh.envs(command(dir.path()).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let daemon = Daemon::launch(dir, &mut sh, |_| socket);
    let limit = |daemon: &Daemon, bytes: &str| {
        let limits = format!("--fsize={bytes}:unlimited");
        let mut prlimit = Command::new("prlimit");
        assert!(prlimit.args(["--pid", &daemon.pid().to_string(), &limits]).status().unwrap().success());
    };
    check_no_room(daemon, |daemon| limit(daemon, "4096"), |daemon| limit(daemon, "unlimited"));
}

#[test]
fn on_a_full_disk_agents_can_be_stopped_and_killed_and_it_is_recorded_later() {
    let Some(mut daemon) = on_a_small_disk() else { return };
    let go = daemon.workspace().join("go");
    let wait = format!("wait-file:{}", go.display());
    let agents = [
        // One says nothing: its stop is what cannot be written. The other two are in the middle of a write.
        (daemon.run(&["status:ready", "expect:never"]), "stop"),
        (daemon.run(&["status:ready", &wait, "flood:200000", "expect:never"]), "stop"),
        (daemon.run(&["status:ready", &wait, "flood:200000", "hang"]), "kill"),
    ];
    let mut pids = Vec::new();
    for (id, _) in &agents {
        daemon.wait_status(id, "ready");
        pids.push(daemon.show(id)["pid"].as_i64().unwrap());
    }
    fill(&daemon);
    std::fs::write(&go, "").unwrap();
    daemon.until("the floods to be stuck", |daemon| daemon.log().contains("will try again").then_some(()));
    for ((id, how), pid) in agents.iter().zip(&pids) {
        let (status, refusal) = daemon.post(&format!("/api/v1/sessions/{id}/interrupt"), &json!({}));
        assert_eq!(status, 503, "{refusal}");
        let (answer, took) = daemon.end_session(id, how);
        assert_eq!((&answer["phase"], &answer["recorded"]), (&json!("ended"), &json!(false)), "{answer}");
        assert!(!alive(*pid), "{how} answers when it is gone");
        assert!(took < Duration::from_secs(8), "{took:?}");
        assert_ne!(daemon.show(id)["phase"], "ended", "what is not recorded is not shown");
    }
    // Once more, and by the command line: it has ended, and that is still to be written.
    let told = daemon.cli(&["--socket", daemon.socket().to_str().unwrap(), "stop", &agents[0].0]).ok();
    assert!(told.stdout.contains("not recorded yet"), "{told:?}");
    std::fs::remove_file(filler(&daemon)).unwrap();
    for (id, how) in &agents {
        let events = daemon.all_events(id);
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "session.stopping").count(), 1, "{how}");
        let reason = events.last().unwrap()["data"]["reason"].as_str().unwrap();
        assert!(reason.starts_with(if *how == "stop" { "stopped by " } else { "killed by " }), "{reason}");
    }
}

#[test]
fn a_daemon_starts_without_daemon_json_where_it_cannot_be_written() {
    let dir = home("");
    std::fs::create_dir_all(dir.path().join("state/daemon.new/in the way")).unwrap();
    std::fs::write(dir.path().join("state/daemon.lock"), "").unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    healthy(&daemon);
    assert!(!daemon.dir.path().join("state/daemon.json").exists());
    assert!(daemon.log().contains("daemon.json"), "{}", daemon.log());
}

#[test]
fn a_daemon_on_a_full_disk_can_be_stopped_and_leaves_no_agent() {
    let Some(daemon) = on_a_small_disk() else { return };
    let ids: Vec<String> =
        (0..3).map(|_| daemon.run(&["ignore:TERM", "grandchild:nohup", "status:ready", "hang"])).collect();
    for id in &ids {
        daemon.wait_status(id, "ready");
    }
    fill(&daemon);
    let start = Instant::now();
    let (dir, status) = daemon.end(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(7), "{:?}", start.elapsed());
    // What could not be recorded is ended by the shims on their own, gently first.
    while !processes_in(dir.path()).is_empty() && start.elapsed() < Duration::from_secs(15) {
        std::thread::yield_now();
    }
    let left = kill_all_in(dir.path());
    assert!(left.is_empty(), "{left:#?}");
}

/// The log of three sessions, one after the other, more than a MiB each; the daemon is stopped.
fn three_sessions() -> (tempfile::TempDir, Vec<(String, Value)>) {
    let daemon = Daemon::start();
    let sessions = (0..3).map(|_| {
        let id = daemon.run(&["flood:8000:200"]);
        let events = daemon.all_events(&id);
        (id, events[0]["seq"].clone())
    });
    let sessions = sessions.collect();
    (daemon.end(Signal::SIGTERM).0, sessions)
}

#[track_caller]
fn check_swept(dir: tempfile::TempDir, sessions: &[(String, Value)], config: &str) {
    std::fs::write(dir.path().join("config.toml"), config).unwrap();
    let mut daemon = Daemon::start_in(dir, &[], &[]);
    let [(oldest, _), (old, _), (new, first)] = sessions else { panic!("{sessions:?}") };
    daemon.until("the sweep", |daemon| {
        let (status, body) = daemon.get("/api/v1/events?after=0");
        (status == 410 && body["oldest"] == *first).then_some(())
    });
    for gone in [oldest, old] {
        assert_eq!(daemon.get(&format!("/api/v1/sessions/{gone}")).0, 404);
    }
    let (_, body) = daemon.get("/api/v1/events?after=0");
    assert_eq!(body["error"]["code"], "trimmed");
    assert!(body["error"]["message"].as_str().unwrap().contains(&first.to_string()), "{body}");
    let after = first.as_u64().unwrap() - 1;
    let (status, page) = daemon.get(&format!("/api/v1/events?after={after}"));
    assert_eq!((status, &page["items"][0]["seq"], &page["items"][0]["session"]), (200, first, &json!(new)));
    assert_eq!(daemon.get("/api/v1/events").0, 200, "without a place to begin, it begins with what is there");
    assert!(daemon.all_events(new).len() > 8000, "the session that is kept is kept whole");
    assert!(daemon.cli(&["logs", new]).ok().stdout.contains("session created"));
    let ran = daemon.cli(&["logs", old]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
}

#[test]
fn sessions_that_ended_first_are_removed_when_the_log_is_too_large() {
    let (dir, sessions) = three_sessions();
    check_swept(dir, &sessions, "[retention]\nmax_mib = 2\n");
}

#[test]
fn sessions_that_ended_long_ago_are_removed() {
    let (dir, sessions) = three_sessions();
    let database = rusqlite::Connection::open(dir.path().join("state/intercom.db")).unwrap();
    for (id, _) in &sessions[..2] {
        let sql = "UPDATE sessions SET ended_at = ended_at - 3 * 86400000 WHERE id = ?1";
        assert_eq!(database.execute(sql, [id]).unwrap(), 1);
    }
    drop(database);
    check_swept(dir, &sessions, "[retention]\ndays = 2\n");
}

#[test]
fn a_backup_can_be_served_and_does_not_touch_the_agents_of_the_first_daemon() {
    let daemon = Daemon::start();
    let over = daemon.run(&["status:old", "exit:3"]);
    let events = daemon.all_events(&over);
    let live = daemon.run_with(&["clearance:c:May I?", "answer:c"], json!({ "name": "live" }));
    let clearance = daemon.clearance(&live);
    let agent = daemon.show(&live)["pid"].as_i64().unwrap();

    let dir = home("");
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let copy = dir.path().join("state/intercom.db");
    let made = daemon.cli(&["backup", copy.to_str().unwrap()]).ok();
    assert!(made.stdout.starts_with(copy.to_str().unwrap()), "{made:?}");
    let files: Vec<_> =
        copy.parent().unwrap().read_dir().unwrap().flatten().map(|file| file.file_name()).collect();
    assert_eq!(files, ["intercom.db"], "it stands for itself");

    let second = Daemon::start_in(dir, &[], &[]);
    assert_eq!(second.all_events(&over), events);
    assert_eq!(second.show(&live)["phase"], "ended", "its agent is another daemon's");
    assert_eq!(second.get(&format!("/api/v1/clearances/{clearance}")).1["status"], "withdrawn");
    let seq = |event: &Value| event["seq"].as_u64().unwrap();
    let fresh = second.run(&["exit:0"]);
    assert!(seq(&second.all_events(&fresh)[0]) > seq(events.last().unwrap()), "numbers are not used again");

    assert!(alive(agent), "the first daemon's agent was killed");
    daemon.decide(&clearance, "approve");
    assert_eq!(daemon.wait_status(&live, "answered")["status"], "approved");
}
