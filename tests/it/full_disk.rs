//! Disks without room: full when the daemon starts, and nearly full while it works.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use intercom_testkit::harness::{Daemon, QUICK, Ran, alive, command, fixture, home};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::INTERCOM;

/// Commands are answered within this time, whatever the disk does.
const PROMPTLY: Duration = Duration::from_secs(5);

/// A mount namespace with a small disk in the place of the state directory, for several daemons one after the other.
struct SmallDisk {
    holder: Child,
    state: PathBuf,
}

impl SmallDisk {
    /// `None` where namespaces are not allowed.
    fn mount(dir: &Path) -> Option<Self> {
        let state = dir.join("state");
        std::fs::create_dir(&state).unwrap();
        let flags: &[&str] = if is_root() { &["--mount"] } else { &["--map-root-user", "--mount"] };
        let script = format!(
            "mount -t tmpfs -o size=16m,mode=700 tmpfs {0} && touch {0}/mounted && exec cat",
            state.display()
        );
        let mut unshare = Command::new("unshare");
        unshare.args(flags).args(["sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut holder = unshare.spawn().ok()?;
        let seen = Path::new(&format!("/proc/{}/root", holder.id())).join(state.strip_prefix("/").unwrap());
        while !seen.join("mounted").exists() {
            if holder.try_wait().unwrap().is_some() {
                eprintln!("not tested: no mount namespaces here");
                return None;
            }
            std::thread::yield_now();
        }
        std::fs::remove_file(seen.join("mounted")).unwrap();
        Some(Self { holder, state: seen })
    }

    fn serve(&self, dir: tempfile::TempDir, on_stop: &str) -> Daemon {
        let mut nsenter = Command::new("nsenter");
        nsenter.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        if !is_root() {
            nsenter.arg(format!("--user=/proc/{}/ns/user", self.holder.id())).arg("--preserve-credentials");
        }
        nsenter.args([INTERCOM, "serve", "--on-stop", on_stop]).env_clear();
        nsenter.envs(command(dir.path()).get_envs().filter_map(|(name, value)| Some((name, value?))));
        Daemon::launch(dir, &mut nsenter, |_| self.state.join("intercom.sock"))
    }

    /// Leaves this much room.
    fn fill(&self, room: u64) {
        let mut filler = std::fs::File::create(self.state.join("filler")).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
        let length = filler.metadata().unwrap().len();
        filler.set_len(length.saturating_sub(room)).unwrap();
    }

    fn make_room(&self) {
        std::fs::remove_file(self.state.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.holder.kill().ok(); // it may have ended by itself
        self.holder.wait().ok();
    }
}

fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

fn cli(daemon: &Daemon, args: &[&str]) -> Ran {
    let socket = daemon.socket();
    let mut all = vec!["--socket", socket.to_str().unwrap()];
    all.extend(args);
    daemon.cli(&all)
}

/// The daemon says that it is read-only, refuses commands, stops agents, and recovers by itself.
#[track_caller]
fn check_read_only(
    mut daemon: Daemon,
    agents: &[(String, i64); 2],
    make_room: impl FnOnce(&Daemon),
) -> Daemon {
    let read_only = |daemon: &Daemon| {
        let warnings = daemon.get("/api/v1/health").1["warnings"].clone();
        warnings.as_array().is_some_and(|all| all.iter().any(|text| text.to_string().contains("read-only")))
    };
    let [(stopped, first), (killed, second)] = agents;
    let begun = Instant::now();
    let (status, answer) =
        daemon.post(&format!("/api/v1/sessions/{stopped}/prompts"), &json!({ "text": "no" }));
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("store_unavailable")), "{answer}");
    assert!(begun.elapsed() < PROMPTLY, "{:?}", begun.elapsed());
    assert!(read_only(&daemon), "{}", daemon.get("/api/v1/health").1);
    for shown in [cli(&daemon, &["ls"]), cli(&daemon, &["show", stopped]), cli(&daemon, &["doctor"])] {
        let told = format!("{}{}", shown.stdout, shown.stderr);
        assert!(told.contains("read-only: the database cannot be written"), "{shown:?}");
    }
    for (id, how, pid) in [(stopped, "stop", *first), (killed, "kill", *second)] {
        let (answer, took) = daemon.end_session(id, how);
        assert_eq!(answer["phase"], "ended", "{answer}");
        assert!(!alive(pid) && took < Duration::from_secs(8), "{how}: {took:?}");
    }
    make_room(&daemon);
    daemon.until("the end of the failure", |daemon| (!read_only(daemon)).then_some(()));
    for (id, how) in [(stopped, "stopped by "), (killed, "killed by ")] {
        let events = daemon.all_events(id);
        let reason = events.last().unwrap()["data"]["reason"].as_str().unwrap().to_owned();
        assert!(reason.starts_with(how), "{reason}");
        assert!(
            !events.iter().any(|event| event["kind"] == "prompt.queued"),
            "what was refused did not happen"
        );
    }
    daemon.until("the record of the start", |daemon| {
        let audit = cli(daemon, &["audit"]).ok().stdout;
        (audit.matches("daemon.started").count() == 2).then_some(())
    });
    cli(&daemon, &["audit", "--verify"]).ok();
    let fresh = daemon.run(&["status:again", "exit:0"]);
    daemon.all_events(&fresh);
    daemon
}

fn two_agents(daemon: &Daemon) -> [(String, i64); 2] {
    [["status:ready", "expect:never"], ["status:ready", "hang"]].map(|steps| {
        let id = daemon.run(&steps);
        daemon.wait_status(&id, "ready");
        let pid = daemon.show(&id)["pid"].as_i64().unwrap();
        (id, pid)
    })
}

#[test]
fn a_daemon_that_starts_on_a_full_disk_says_that_it_is_read_only_and_stops_agents() {
    // After a clean stop SQLite's side files are gone, after a kill they are there.
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let dir = home(&format!("{QUICK}[limits]\nmin_free_disk_mib = 0\n"));
        let Some(disk) = SmallDisk::mount(dir.path()) else { return };
        let daemon = disk.serve(dir, "leave");
        let agents = two_agents(&daemon);
        let (dir, _) = daemon.end(signal);
        disk.fill(0);
        let daemon = disk.serve(dir, "drain");
        let daemon = check_read_only(daemon, &agents, |_| disk.make_room());
        drop(daemon);
    }
}

/// The same without a disk of its own: no file of the daemon may grow.
#[test]
fn a_daemon_that_starts_where_no_file_may_grow_says_that_it_is_read_only_and_stops_agents() {
    let dir = home(&format!("{QUICK}[limits]\nmin_free_disk_mib = 0\n"));
    let daemon = Daemon::start_in(dir, &["--on-stop", "leave"], &[]);
    let agents = two_agents(&daemon);
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let socket = dir.path().join("state/intercom.sock");
    let mut sh = Command::new("sh");
    // 4096 bytes: less than the database and its index.
    let script =
        format!("trap '' XFSZ; exec prlimit --fsize=4096:unlimited {INTERCOM} serve --on-stop drain");
    sh.args(["-c", &script]).env_clear();
    sh.envs(command(dir.path()).get_envs().filter_map(|(name, value)| Some((name, value?))));
    std::fs::remove_file(dir.path().join("daemon.log")).unwrap();
    let daemon = Daemon::launch(dir, &mut sh, |_| socket);
    let make_room = |daemon: &Daemon| {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &daemon.pid().to_string(), "--fsize=unlimited:unlimited"]);
        assert!(prlimit.status().unwrap().success());
    };
    check_read_only(daemon, &agents, make_room);
}

/// Each command with every amount of room, from none to enough for some: answered promptly, and recorded exactly if it succeeded.
#[test]
fn on_a_nearly_full_disk_commands_are_answered_promptly_and_only_what_succeeded_is_recorded() {
    let dir = home(&format!("{QUICK}[limits]\nmin_free_disk_mib = 0\n"));
    let Some(disk) = SmallDisk::mount(dir.path()) else { return };
    let daemon = disk.serve(dir, "drain");
    let talker = daemon.run(&["serve"]);
    let mut outcomes = Vec::new();
    for step in 0..12u64 {
        let waits = daemon.run(&["clearance:c:May I?", "answer:c", "serve"]);
        let clearance = daemon.clearance(&waits);
        disk.fill(step * 8192);
        let (text, name) = (format!("status:prompt {step}"), format!("session-{step}"));
        let start =
            json!({ "command": fixture(), "args": ["serve"], "name": name, "workspace": daemon.workspace() });
        let timed = |path: String, body: Value| {
            let begun = Instant::now();
            let (status, answer) = daemon.post(&path, &body);
            assert!(begun.elapsed() < PROMPTLY, "{path} with {step}: {:?} {answer}", begun.elapsed());
            assert!([200, 201, 202, 422, 503].contains(&status), "{path}: {status} {answer}");
            (status, answer)
        };
        let prompted = timed(format!("/api/v1/sessions/{talker}/prompts"), json!({ "text": text }));
        let decided =
            timed(format!("/api/v1/clearances/{clearance}/decision"), json!({ "decision": "approve" }));
        let started = timed("/api/v1/sessions".to_owned(), start);
        outcomes.push((prompted.0, decided.0, started.0));
        disk.make_room();

        let prompts = daemon.get(&format!("/api/v1/sessions/{talker}/prompts?limit=1000")).1;
        let known = prompts["items"].as_array().unwrap().iter().any(|prompt| prompt["text"] == text);
        assert_eq!(known, prompted.0 == 202, "{step}: {prompted:?} {prompts}");
        let status = daemon.get(&format!("/api/v1/clearances/{clearance}")).1["status"].clone();
        assert_eq!(status == "approved", decided.0 == 200, "{step}: {decided:?} {status}");
        let sessions = daemon.get("/api/v1/sessions?all=true&limit=1000").1;
        let named = sessions["items"].as_array().unwrap().iter().any(|session| session["name"] == name);
        assert_eq!(named, started.0 != 503, "{step}: {started:?}");
        daemon.end_session(&waits, "kill");
    }
    assert!(outcomes.iter().any(|(prompted, ..)| *prompted == 503), "{outcomes:?}");
}

/// What was refused because nothing could be recorded was not done and is not remembered either: with the same key, it is done once.
#[test]
fn what_a_full_disk_refused_is_done_once_when_it_is_repeated_with_its_key() {
    let dir = home(&format!("{QUICK}[limits]\nmin_free_disk_mib = 0\n"));
    let Some(disk) = SmallDisk::mount(dir.path()) else { return };
    let daemon = disk.serve(dir, "drain");
    let talker = daemon.run(&["serve"]);
    cli(&daemon, &["token", "create", "--name", "ana", "--role", "viewer"]).ok();
    disk.fill(0);
    let path = format!("/api/v1/sessions/{talker}/prompts");
    let keyed = |n: usize| {
        let (text, key) = (format!("status:number {n}"), format!("key-{n}"));
        let body = json!({ "text": text }).to_string();
        daemon.request("POST", &path, Some(&body), &[("idempotency-key", &key)])
    };
    // The pages that the database has already may have room for some.
    let mut statuses: Vec<u16> = (0..40).map(|n| keyed(n).0).collect();
    assert!(statuses.contains(&503), "{statuses:?}");
    // Nor is a token there that nobody was told, or away that nobody saw go.
    let made = cli(&daemon, &["token", "create", "--name", "ben", "--role", "viewer"]);
    let revoked = cli(&daemon, &["token", "revoke", "ana"]);
    disk.make_room();
    let tokens = daemon.get("/api/v1/tokens").1.to_string();
    assert_eq!(tokens.contains("ben"), made.code == 0, "{made:?} {tokens}");
    let audit = cli(&daemon, &["audit", "--json"]).ok().stdout;
    assert_eq!(audit.contains("token.revoked"), revoked.code == 0, "{revoked:?} {audit}");
    for _ in 0..2 {
        statuses = (0..40).map(|n| keyed(n).0).collect();
        assert!(statuses.iter().all(|status| *status == 202), "{statuses:?}");
    }
    let prompts = daemon.get(&format!("{path}?limit=1000")).1;
    let mut texts: Vec<&str> =
        prompts["items"].as_array().unwrap().iter().map(|prompt| prompt["text"].as_str().unwrap()).collect();
    texts.sort_unstable();
    let count = texts.len();
    texts.dedup();
    assert_eq!((texts.len(), count), (40, 40), "each once: {texts:?}");
    cli(&daemon, &["audit", "--verify"]).ok();
}

/// Whether it was the shim or the daemon that had no room for it, and whether the daemon was killed meanwhile.
#[test]
fn an_agent_that_writes_on_while_the_disk_is_full_loses_no_line() {
    for is_killed in [false, true] {
        let dir = home(&format!("{QUICK}[limits]\nmin_free_disk_mib = 0\n"));
        let gate = dir.path().join("gate");
        let Some(disk) = SmallDisk::mount(dir.path()) else { return };
        let mut daemon = disk.serve(dir, "leave");
        let wait = format!("wait-file:{}", gate.display());
        let session = daemon.run(&["status:up", &wait, "flood:2000:1000", "exit:0"]);
        daemon.wait_status(&session, "up");
        disk.fill(32 * 1024);
        std::fs::write(&gate, "").unwrap();
        let read_only = |daemon: &mut Daemon| {
            let warnings = daemon.get("/api/v1/health").1["warnings"].to_string();
            warnings.contains("read-only").then_some(())
        };
        daemon.until("the daemon to find the disk full", read_only);
        if is_killed {
            let (dir, _) = daemon.end(Signal::SIGKILL);
            daemon = disk.serve(dir, "leave");
        }
        disk.make_room();
        let numbers = crate::leftovers::flooded(&daemon.all_events(&session));
        assert_eq!(numbers, (1..=2000).collect::<Vec<u64>>(), "is_killed: {is_killed}");
        cli(&daemon, &["audit", "--verify"]).ok();
    }
}
