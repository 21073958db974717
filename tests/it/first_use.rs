//! The first minutes of somebody new: a port that is taken, no daemon, no browser, no log-in, another time zone.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use intercom_testkit::client::{PATIENCE, Place, exchange};
use intercom_testkit::harness::{
    self, Daemon, Ran, acp_fixture, alive, command, fixture, home, kill_all_in, run,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// A directory of programs that comes first on the search path.
fn programs(dir: &Path, scripts: &[(&str, &str)]) -> String {
    let bin = dir.join("bin");
    std::fs::create_dir(&bin).unwrap();
    for (name, script) in scripts {
        std::fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

/// The check of this name in `doctor --json`.
#[track_caller]
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {report:#}"))
}

#[track_caller]
fn doctor(command: &mut Command) -> Value {
    run(command.args(["doctor", "--json"])).ok().json()
}

/// A port that somebody else has, and a configuration that wants it.
fn taken() -> (TcpListener, u16, tempfile::TempDir) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let dir = home(&format!("[api]\nlisten = \"127.0.0.1:{port}\"\n"));
    (listener, port, dir)
}

/// The address of the console that the log tells. The link that signs in is for terminals only.
fn console_in(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("The console is at ")?;
    Some(rest.split_once("/;")?.0.to_owned())
}

#[test]
fn a_demo_whose_port_is_taken_takes_the_next_free_one_and_its_link_fits_80_columns() {
    let (_listener, port, dir) = taken();
    let mut daemon = Daemon::start_in(dir, &["--demo"], &[]);
    let told = daemon.until("the console's address", |daemon| console_in(&daemon.log()));
    let line = daemon.cli(&["console"]).ok().stdout;
    assert!(line.trim_end().len() <= 78, "two columns are its indent on a terminal: {line}");
    let shown = line.trim();
    let url = daemon.dir.path().join("state/daemon.json");
    let about: Value = serde_json::from_str(&std::fs::read_to_string(url).unwrap()).unwrap();
    let url = about["url"].as_str().unwrap();
    assert!(shown.starts_with(&format!("{url}/#code=")), "{shown} {url}");
    assert_eq!(told, url);
    assert_ne!(url, format!("http://127.0.0.1:{port}"));
    let address = url.strip_prefix("http://").unwrap();
    assert_eq!(exchange(Place::open_port(address), "GET", "/", &[], "").status, 200);
}

#[test]
fn a_port_that_was_asked_for_and_is_taken_is_an_error_that_names_its_holder_and_another() {
    let (_listener, port, dir) = taken();
    for args in [&["serve"][..], &["serve", "--demo", "--listen", &format!("127.0.0.1:{port}")]] {
        let ran = run(command(dir.path()).args(args));
        assert_eq!(ran.code, 1, "{ran:?}");
        let taken = format!("cannot listen on 127.0.0.1:{port}: it is taken by ");
        let pid = format!("(pid {}); use another port, such as --listen 127.0.0.1:", std::process::id());
        assert!(ran.stderr.contains(&taken) && ran.stderr.contains(&pid), "{ran:?}");
    }
    let ran = run(command(dir.path()).args(["serve", "--listen", "here"]));
    assert_eq!(ran.code, 2, "{ran:?}");
    let mut daemon = Daemon::start_in(dir, &["--listen", "127.0.0.1:0"], &[]);
    daemon.until("the console's address", |daemon| console_in(&daemon.log()));
    let ran = daemon.cli(&["console"]).ok();
    assert!(ran.stdout.trim_end().len() <= 80, "{ran:?}");
}

/// A network namespace has the default port to itself. Only where this is allowed is there anything to see.
#[test]
fn without_a_console_serve_says_so_last_and_what_to_type() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    let _busy = TcpListener::bind("127.0.0.1:7411"); // whoever has it already will do as well
    let mut daemon = Daemon::start_in(dir, &[], &[]);
    daemon.until("a word about the console", |daemon| {
        daemon.log().contains("There is no console: cannot listen on 127.0.0.1:7411").then_some(())
    });
    let log = daemon.log();
    let last: Vec<&str> = log.trim_end().lines().rev().take(3).collect();
    let [line, how, why] = last[..] else { panic!("{log}") };
    assert!(why.contains(" is taken by ") || why.contains("in use"), "{log}");
    assert_eq!(how, "To get one, stop this daemon and start it with a free port:");
    let ran = daemon.cli(&["open"]);
    assert!(ran.code == 1 && ran.stderr.contains("this daemon has no console: cannot listen"), "{ran:?}");
    // What it says works as it stands.
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let mut again = Command::new("sh");
    again.args(["-c", &format!("exec {}", line.trim())]).env_clear();
    again.env("HOME", dir.path()).env("INTERCOM_STATE_DIR", dir.path().join("state"));
    let socket = dir.path().join("state/intercom.sock");
    std::fs::remove_file(dir.path().join("daemon.log")).unwrap();
    let mut daemon = Daemon::launch(dir, &mut again, |_| socket);
    daemon.until("the console's address", |daemon| console_in(&daemon.log()));
}

#[test]
fn open_hands_the_link_to_the_browser_and_prints_it_if_there_is_none() {
    let daemon = Daemon::start_in(home("[api]\nlisten = \"127.0.0.1:0\"\n"), &[], &[]);
    let told = daemon.dir.path().join("told");
    let path = programs(daemon.dir.path(), &[("xdg-open", &format!("echo \"$1\" > '{}'", told.display()))]);
    let ran = run(command(daemon.dir.path()).arg("open").env("PATH", &path)).ok();
    assert_eq!(ran.stdout, "", "{ran:?}");
    let link = std::fs::read_to_string(&told).unwrap();
    assert!(link.starts_with("http://127.0.0.1:") && link.contains("/#code="), "{link}");
    let ran = run(command(daemon.dir.path()).args(["open", "--json"]).env("PATH", &path)).ok();
    assert_eq!(ran.json()["opened"], true);
    std::fs::write(daemon.dir.path().join("bin/xdg-open"), "#!/bin/sh\nexit 3\n").unwrap();
    let ran = run(command(daemon.dir.path()).arg("open").env("PATH", &path)).ok();
    assert!(ran.stdout.starts_with("http://127.0.0.1:") && ran.stdout.contains("/#code="), "{ran:?}");
    assert!(ran.stderr.contains("no browser could be started"), "{ran:?}");
}

/// Ends what a test has left running in its directory, also if it fails.
struct Ground(tempfile::TempDir);

impl Drop for Ground {
    fn drop(&mut self) {
        kill_all_in(self.0.path());
    }
}

#[test]
fn run_starts_a_daemon_if_there_is_none_and_the_next_one_uses_it() {
    let ground = Ground(home(""));
    let dir = ground.0.path();
    let agent = fixture();
    let ran = run(command(dir).args(["run", "--name", "a", "--"]).arg(&agent).arg("hang"));
    assert!(ran.code == 0 && ran.stdout.starts_with("ses_"), "{ran:?}");
    let pid = ran.stderr.split_once("started a daemon (pid ").unwrap().1.split_once(')').unwrap().0;
    let ran = run(command(dir).args(["run", "--name", "b", "--"]).arg(&agent).arg("hang")).ok();
    assert!(!ran.stderr.contains("started a daemon"), "{ran:?}");
    let list = run(command(dir).args(["ls", "--json"])).ok().json();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert!(alive(pid.parse().unwrap()));
    assert_eq!(run(command(dir).args(["stop", "a", "b"])).code, 0);
}

#[test]
fn agents_are_listed_without_a_daemon_as_with_one() {
    let daemon = Daemon::with_config("[agents.mine]\ncommand = 'sh'\ndescription = 'my own'\n");
    let with = daemon.cli(&["agents", "--json"]).ok().json();
    let shown = daemon.cli(&["agents"]).ok().stdout;
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let ran = run(command(dir.path()).args(["agents", "--json"])).ok();
    assert_eq!((ran.json(), ran.stderr.as_str()), (with, ""));
    let ran = run(command(dir.path()).arg("agents")).ok();
    assert_eq!(ran.stdout, shown);
    assert!(ran.stderr.starts_with("no daemon is running"), "{ran:?}");
}

#[test]
fn times_are_local_with_their_zone_and_in_utc_if_asked_for() {
    let daemon = Daemon::start();
    let session = daemon.run(&["status:hello", "hang"]);
    daemon.wait_status(&session, "hello");
    let started = daemon.show(&session)["started_at"].as_str().unwrap().to_owned();
    let at: jiff::Timestamp = started.parse().unwrap();
    let zone = jiff::tz::TimeZone::posix("IST-5:30").unwrap();
    let local = at.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S").to_string();
    let utc = at.strftime("%Y-%m-%d %H:%M:%S").to_string();
    let cli = |args: &[&str]| run(command(daemon.dir.path()).env("TZ", "IST-5:30").args(args)).ok().stdout;
    assert!(cli(&["show", &session]).contains(&format!("{local} IST (")), "{local}");
    assert!(cli(&["show", &session, "--utc"]).contains(&format!("{utc} UTC (")), "{utc}");
    assert!(cli(&["--utc", "logs", &session]).contains(&utc[..16]));
    let logs = cli(&["logs", &session]);
    assert!(logs.contains(&local[..16]) && !logs.contains(&utc[..16]), "{logs}");
    assert!(cli(&["show", &session, "--json"]).contains(&started), "JSON stays in UTC");
    // A time that was shown is taken back. The session was recorded before its process started, perhaps in the second before.
    let recorded = daemon.show(&session)["created_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let zone = jiff::tz::TimeZone::posix("IST-5:30").unwrap();
    let since = recorded.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S").to_string();
    assert!(cli(&["audit", "--since", &since]).contains("session.created"));
    let ran: Ran = run(command(daemon.dir.path()).env("TZ", "IST-5:30").args(["audit", "--since", &utc]));
    assert!(ran.stdout.contains("session.created"), "an earlier time: {ran:?}");
}

/// A terminal of 80 columns that runs one command; what it shows at the end.
pub(crate) fn on_a_terminal(daemon: &Daemon, args: &str) -> String {
    let shown = on_a_terminal_until(daemon, args, |shown| shown.contains("(end)"));
    shown.split("(end)").next().unwrap_or_default().to_owned()
}

/// The same for a command that does not end by itself.
pub(crate) fn on_a_terminal_until(daemon: &Daemon, args: &str, seen: impl Fn(&str) -> bool) -> String {
    // A server of its own: one that is ending takes no new session.
    static TERMINALS: AtomicUsize = AtomicUsize::new(0);
    let name = format!("intercom-{}-{}", daemon.pid(), TERMINALS.fetch_add(1, Ordering::Relaxed));
    let tmux = |args: &[&str]| {
        Command::new("tmux").args(["-L", &name, "-f", "/dev/null"]).args(args).output().unwrap()
    };
    let dir = daemon.dir.path().display();
    let line = format!(
        "env -i TERM=xterm PATH=\"$PATH\" HOME='{dir}' INTERCOM_STATE_DIR='{dir}/state' INTERCOM_CONFIG='{dir}/config.toml' '{}' {args}; \
         echo '(end)'; exec cat",
        crate::INTERCOM
    );
    tmux(&["new-session", "-d", "-x", "80", "-y", "40", &line]);
    let start = std::time::Instant::now();
    let shown = loop {
        let shown = String::from_utf8(tmux(&["capture-pane", "-p"]).stdout).unwrap();
        if seen(&shown) || start.elapsed() > PATIENCE {
            break shown;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    tmux(&["kill-server"]);
    shown
}

#[test]
fn ls_fits_80_columns_with_whole_ids_and_names_and_the_urgent_first() {
    let daemon = Daemon::start();
    let deep = daemon.workspace().join("a/very/deep/directory/of/some/customer/shop");
    std::fs::create_dir_all(&deep).unwrap();
    daemon.run_with(&["turn-end", "hang"], json!({ "name": "calm", "workspace": deep }));
    let asks = daemon.run_with(&["clearance:c:May I?", "hang"], json!({ "name": "a-name-of-some-length" }));
    daemon.clearance(&asks);
    let dead = daemon.run_with(&["exit:3"], json!({ "name": "dead", "prompt": "Fix the tests" }));
    daemon.wait_for_end(&dead);
    let shown = on_a_terminal(&daemon, "ls");
    let rows: Vec<&str> = shown.lines().filter(|line| line.starts_with("ses_")).collect();
    assert_eq!(rows.len(), 3, "{shown}");
    assert!(shown.lines().all(|row| row.chars().count() <= 80), "{shown}");
    // A reason is whole, beside the others or below them.
    assert!(shown.contains("\n  │ exited with code 3 before any output\n"), "{shown}");
    let order = ["dead", "a-name-of-some-length", "calm"];
    for (row, name) in rows.iter().zip(order) {
        let mut words = row.split_ascii_whitespace();
        let id = words.next().unwrap();
        assert_eq!(words.next(), Some(name), "{shown}");
        // What is shown can be typed.
        assert_eq!(daemon.cli(&["show", id, "--json"]).ok().json()["name"], name, "{shown}");
    }
    assert!(rows[0].contains("failed") && rows[1].contains("waiting"), "{shown}");
    assert!(rows[0].contains("Fix the"), "what it was asked is its title: {shown}");
    assert!(rows[2].contains('…') && rows[2].contains("shop"), "its workspace is shortened: {shown}");
    assert!(!shown.contains("waiting for you"), "nothing is said twice: {shown}");
    // Piped, nothing is cut.
    let piped = daemon.cli(&["ls", "--all"]).ok().stdout;
    assert!(piped.contains(deep.to_str().unwrap()) && !piped.contains('…'), "{piped}");
}

#[test]
fn the_audit_says_whether_a_person_or_a_rule_acted_and_on_what() {
    let rule = "[[rule]]\nname = \"tests\"\nthen = \"allow\"\ncommand = [[\"cargo\", \"test\"]]\n";
    let ask = r#"clearance:c:{"title":"Run the tests","command":"cargo test"}"#;
    let daemon = Daemon::with_config(rule);
    let by_rule = daemon.run_with(&[ask, "answer:c", "hang"], json!({ "name": "ruled" }));
    daemon.wait_kind(&by_rule, "clearance.decided");
    let by_hand = daemon.run_with(&["clearance:c:May I?", "answer:c", "hang"], json!({ "name": "asked" }));
    daemon.cli(&["approve", &daemon.clearance(&by_hand)]).ok();
    let audit = daemon.tidy(&daemon.cli(&["audit"]).ok().stdout);
    let row = |session: &str| {
        let wanted = format!("clearance.decided {session} by ");
        let found = audit.lines().find_map(|line| line.split_once(&wanted));
        found.unwrap_or_else(|| panic!("{session}: {audit}")).1.to_owned()
    };
    assert!(row("ruled").starts_with("rule tests: approved, "), "{audit}");
    assert!(row("ruled").contains("cargo test"), "{audit}");
    assert!(row("asked").starts_with("person "), "{audit}");
    assert!(row("asked").contains(": approved, ") && row("asked").contains("May I?"), "{audit}");
    assert!(!audit.contains('=') && !audit.contains("ses_"), "names and words, no keys and ids: {audit}");
    let rows = daemon.cli(&["audit", "--json"]).ok().stdout;
    assert!(rows.lines().any(|row| row.contains(r#""actor":"rule""#)), "{rows}");
}

#[test]
fn the_verbs_are_grouped_by_task_in_80_columns() {
    let dir = home("");
    let help = run(command(dir.path()).arg("--help")).ok().stdout;
    let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
    assert!(place("Start agents and give them work:") < place("\n  run "), "{help}");
    assert!(place("\n  run ") < place("See what they do:"));
    assert!(place("Decide and answer:") < place("\n  approve "));
    assert!(place("Run the daemon:") < place("\n  serve ") && place("\n  serve ") < place("Global options:"));
    assert!(!help.contains("\nCommands:"), "each verb is listed once");
}

#[test]
fn the_doctor_tells_the_port_the_console_and_how_many_sessions_fit() {
    let (listener, port, dir) = taken();
    let report = doctor(&mut command(dir.path()));
    let found = check(&report, "port");
    assert_eq!(found["status"], "warning");
    let expected = format!("127.0.0.1:{port} is taken by ");
    assert!(found["detail"].as_str().unwrap().starts_with(&expected), "{found}");
    assert!(found["detail"].as_str().unwrap().ends_with(&format!("(pid {})", std::process::id())), "{found}");
    drop(listener);
    let report = doctor(&mut command(dir.path()));
    assert_eq!(check(&report, "port")["detail"], format!("127.0.0.1:{port} is free"));
    let fit = check(&report, "sessions")["detail"].as_str().unwrap().to_owned();
    assert!(fit.starts_with("about ") && fit.contains("max_sessions for 1000"), "{fit}");
    let daemon = Daemon::start_in(dir, &[], &[]);
    let report = daemon.cli(&["doctor", "--json"]).ok().json();
    assert_eq!(check(&report, "port")["detail"], format!("127.0.0.1:{port} is the daemon's"));
    let console = check(&report, "console")["detail"].as_str().unwrap().to_owned();
    assert!(console.starts_with(&format!("http://127.0.0.1:{port}/")), "{console}");
}

#[test]
fn the_doctor_looks_where_intercom_url_points() {
    let daemon = Daemon::start_in(home("[api]\nlisten = \"127.0.0.1:0\"\n"), &[], &[]);
    let token = daemon.cli(&["token", "create", "--name", "me", "--role", "viewer", "--json"]).ok().json();
    let token = token["secret"].as_str().unwrap();
    let report = daemon.cli(&["doctor", "--json"]).ok().json();
    let url = check(&report, "console")["detail"].as_str().unwrap().split_once("/,").unwrap().0.to_owned();
    let elsewhere = home("");
    let report = doctor(command(elsewhere.path()).env("INTERCOM_URL", &url).env("INTERCOM_TOKEN", token));
    let found = check(&report, "daemon");
    let detail = found["detail"].as_str().unwrap();
    assert!(found["status"] == "ok" && detail.contains(&url) && detail.contains("(viewer)"), "{found}");
    assert_eq!(check(&report, "console")["detail"], format!("{url}/"));
    let ran = run(command(elsewhere.path()).env("INTERCOM_URL", &url).args(["doctor", "--json"]));
    assert_eq!((ran.code, &check(&ran.json(), "daemon")["status"]), (1, &json!("wrong")), "without a token");
    let nobody = "http://127.0.0.1:1";
    let ran = run(command(elsewhere.path()).env("INTERCOM_URL", nobody).args(["doctor", "--json"]));
    assert_eq!((ran.code, &check(&ran.json(), "daemon")["status"]), (1, &json!("wrong")));
}

#[test]
fn the_doctor_finds_shims_of_other_and_of_removed_state_directories() {
    let daemon = Daemon::start_in(home(""), &["--on-stop", "leave"], &[]);
    let session = daemon.run(&["hang"]);
    let state = daemon.dir.path().join("state").canonicalize().unwrap();
    let elsewhere = home("");
    let other = |report: &Value| -> Value {
        let checks = report["checks"].as_array().unwrap();
        let ours = checks.iter().filter(|check| check["name"] == "other shims");
        let mut found =
            ours.filter(|check| check["detail"].as_str().unwrap().contains(state.to_str().unwrap()));
        found.next().cloned().unwrap_or_else(|| panic!("{report:#}"))
    };
    let served = other(&doctor(&mut command(elsewhere.path())));
    assert_eq!(served["status"], "ok", "{served}");
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let ground = Ground(dir);
    let left = other(&doctor(&mut command(elsewhere.path())));
    assert_eq!(left["status"], "warning");
    assert!(left["detail"].as_str().unwrap().contains(&session), "{left}");
    let serve = format!("`intercom --state-dir {} daemon restart` reconnects to them", state.display());
    assert!(left["hint"].as_str().unwrap().contains(&serve), "{left}");
    // Whose process it is: nobody ends one by its number alone.
    let detail = left["detail"].as_str().unwrap();
    let agent: String = fixture().file_name().unwrap().to_str().unwrap().chars().take(15).collect();
    assert!(detail.contains(&format!("of {session} ({agent}, started ")), "{detail}");
    assert!(detail.contains("s ago)") && detail.contains(state.to_str().unwrap()), "{detail}");
    std::fs::remove_dir_all(&state).unwrap();
    let removed = other(&doctor(&mut command(elsewhere.path())));
    assert!(removed["detail"].as_str().unwrap().contains("which was removed: pid "), "{removed}");
    // What it says ends them.
    let hint = removed["hint"].as_str().unwrap();
    let line = hint.split('`').nth(1).unwrap();
    run(Command::new("sh").args(["-c", line])).ok();
    let start = std::time::Instant::now();
    while !harness::processes_in(ground.0.path()).is_empty() {
        assert!(start.elapsed() < PATIENCE, "{line} does not end them");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn the_doctor_says_that_node_is_too_old_and_which_log_in_is_missing() {
    let dir = home("");
    let path = programs(dir.path(), &[("node", "echo v18.2.0"), ("npx", ""), ("qwen", "")]);
    let report = doctor(command(dir.path()).env("PATH", &path).env("OPENAI_API_KEY", "x"));
    let node = check(&report, "node");
    assert_eq!(node["status"], "warning", "{node}");
    assert!(node["detail"].as_str().unwrap().contains("too old for claude, codex"), "{node}");
    let qwen = check(&report, "agent qwen");
    assert_eq!(qwen["status"], "warning", "{qwen}");
    assert!(qwen["detail"].as_str().unwrap().ends_with("not OPENAI_BASE_URL, OPENAI_MODEL"), "{qwen}");
    assert_eq!(check(&report, "agent codex")["status"], "ok", "{report}");
    let others = check(&report, "other agents");
    assert!(
        others["hint"]
            .as_str()
            .unwrap()
            .contains("claude: run `npx -y @anthropic-ai/claude-code` and `/login`"),
        "{others}"
    );
}

#[test]
fn provider_variables_reach_copilot() {
    let dir = home("");
    let told = dir.path().join("told");
    let script = format!("env > '{}'; exit 1", told.display());
    let path = programs(dir.path(), &[("copilot", &script)]);
    let names =
        ["COPILOT_PROVIDER_BASE_URL", "COPILOT_MODEL", "COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_TYPE"];
    let mut env: Vec<(&str, &str)> = names.iter().map(|name| (*name, "seen")).collect();
    env.extend([("PATH", path.as_str()), ("GITHUB_TOKEN", "hidden")]);
    let mut daemon = Daemon::start_in(dir, &[], &env);
    daemon.ask_to_start(json!({ "agent": "copilot" }));
    let got = daemon
        .until("its environment", |_| std::fs::read_to_string(&told).ok().filter(|t| t.ends_with('\n')));
    for name in names {
        assert!(got.lines().any(|line| line == format!("{name}=seen")), "{name}: {got}");
    }
    assert!(!got.contains("GITHUB_TOKEN"), "{got}");
}

#[test]
fn a_service_cannot_be_installed_without_systemd_and_it_is_said_what_to_do() {
    let dir = home("");
    let path = programs(
        dir.path(),
        &[("systemctl", "echo 'Failed to connect to bus: No medium found' >&2; exit 1")],
    );
    let ran = run(command(dir.path()).args(["daemon", "install"]).env("PATH", path));
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
    assert!(ran.stderr.contains("Failed to connect to bus") && ran.stderr.contains("hint: "), "{ran:?}");
    assert!(ran.stderr.contains("`intercom serve`"), "{ran:?}");
    assert!(!dir.path().join(".config/systemd").exists(), "nothing is written");
}

/// A key that is set after the first `run` counts once the daemon was started again, as the advice says.
#[test]
fn the_advice_about_a_variable_works_with_a_daemon_in_the_background() {
    let ground = Ground(home(""));
    let in_shell = |args: &[&str], key: Option<&str>| {
        let mut command = command(ground.0.path());
        command.args(args).envs(key.map(|key| ("ANTHROPIC_API_KEY", key)));
        run(&mut command)
    };
    let first = in_shell(&["--json", "daemon", "restart"], None).ok().json()["pid"].as_i64().unwrap();
    let second = in_shell(&["--json", "daemon", "restart"], Some("k")).ok().json()["pid"].as_i64().unwrap();
    assert_ne!(first, second);
    let environ = std::fs::read(format!("/proc/{second}/environ")).unwrap();
    assert!(environ.split(|byte| *byte == 0).any(|entry| entry == b"ANTHROPIC_API_KEY=k"));
}

/// From nothing to the first words of an agent that was not logged in: each step is the one that was advised.
#[test]
fn a_prompt_survives_the_missing_log_in_and_is_carried_out_once() {
    let ground = Ground(home(""));
    let dir = ground.0.path();
    let agent = format!("exec {} \"$@\"", acp_fixture().display());
    let path = programs(dir, &[("claude-agent-acp", &agent), ("claude", "")]);
    let shell = |key: Option<&str>, args: &[&str]| {
        run(command(dir).env("PATH", &path).args(args).envs(key.map(|key| ("ANTHROPIC_API_KEY", key))))
    };
    let prompt = "log-in:ANTHROPIC_API_KEY;say:all done";
    let ran = shell(None, &["run", "--agent", "claude", "--name", "shop", prompt]);
    assert!(ran.code == 1 && ran.stderr.contains("shop failed: claude needs a login: "), "{ran:?}");
    let hint = ran.stderr.split_once("hint: ").unwrap().1.trim_end();
    assert_eq!(
        hint,
        "log in: run `claude` and `/login` there, or set ANTHROPIC_API_KEY and run `intercom daemon restart`; then restart the \
         agent: `intercom stop shop && intercom resume shop`; your prompt is kept and is sent then"
    );
    // Also once somebody has seen it, nothing happens by itself.
    shell(None, &["show", "shop"]).ok();
    let ran = shell(None, &["wait", "shop", "--for", "waiting"]);
    let told = "error: shop has no pending request, and its queue waits: its last turn failed: claude needs a login: ";
    assert!(ran.code == 1 && ran.stderr.starts_with(told), "{ran:?}");
    shell(Some("k"), &["daemon", "restart"]).ok();
    let ran = shell(Some("k"), &["resume", "shop"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.stderr.ends_with("hint: stop it first: `intercom stop shop && intercom resume shop`\n"),
        "{ran:?}"
    );
    shell(Some("k"), &["stop", "shop"]).ok();
    let listed = shell(Some("k"), &["show", "shop", "--json"]).ok().json();
    assert_eq!((&listed["queue"], &listed["phase"]), (&json!(1), &json!("ended")));
    let ran = shell(Some("k"), &["resume", "shop"]).ok();
    assert_eq!(ran.stdout, "shop starting, generation 2\n");
    shell(Some("k"), &["wait", "shop", "--for", "idle"]).ok();
    let logs = shell(Some("k"), &["logs", "shop"]).ok().stdout;
    assert_eq!(logs.matches("agent> all done").count(), 1, "{logs}");
    assert_eq!(logs.matches("leaves the queue").count(), 2, "{logs}");
    assert_eq!(logs.matches("is kept and is sent again").count(), 1, "{logs}");
    // Another restart repeats nothing.
    shell(Some("k"), &["stop", "shop"]).ok();
    shell(Some("k"), &["resume", "shop"]).ok();
    let logs = shell(Some("k"), &["logs", "shop"]).ok().stdout;
    assert_eq!(logs.matches("leaves the queue").count(), 2, "{logs}");
    shell(Some("k"), &["stop", "shop"]).ok();
}

#[test]
fn run_says_that_a_new_daemon_has_no_console_and_how_to_get_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    let ground = Ground(dir);
    let _busy = TcpListener::bind("127.0.0.1:7411"); // whoever has it already will do as well
    let agent = fixture();
    let ran = run(command(ground.0.path()).args(["run", "--name", "a", "--"]).arg(&agent).arg("hang")).ok();
    let told: Vec<&str> = ran.stderr.lines().collect();
    let at = told.iter().position(|line| line.starts_with("started a daemon")).unwrap();
    assert!(
        told[at + 1].starts_with("this daemon has no console: cannot listen on 127.0.0.1:7411"),
        "{ran:?}"
    );
    assert!(told[at + 2].starts_with("to get one, set `listen = \"127.0.0.1:"), "{ran:?}");
    assert!(told[at + 2].ends_with("and run `intercom daemon restart`"), "{ran:?}");
    let ran = run(command(ground.0.path()).args(["run", "--name", "b", "--"]).arg(&agent).arg("hang")).ok();
    assert_eq!(ran.stderr, "", "it is said once");
    run(command(ground.0.path()).args(["stop", "a", "b"])).ok();
}

#[test]
fn the_doctor_looks_at_agents_of_ones_own_too() {
    let config = "[agents.mine]\ncommand = 'mine'\n\
        [agents.script]\ncommand = 'on-node'\n\
        [agents.work]\ncommand = 'claude-agent-acp'\nprotocol = 'acp'\n\
        [agents.fetched]\ncommand = 'npx'\nargs = ['-y', '@moonshot-ai/kimi-code@2.1.0', 'acp']\nprotocol = 'acp'\n\
        [agents.gone]\ncommand = 'codex-acp'\n";
    let dir = home(config);
    let path = programs(
        dir.path(),
        &[("node", "echo v21.0.0"), ("npx", ""), ("mine", ""), ("claude-agent-acp", "")],
    );
    let script = dir.path().join("bin/on-node");
    std::fs::write(&script, "#!/usr/bin/env node\n").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let ran =
        run(command(dir.path()).env("PATH", &path).env("ANTHROPIC_API_KEY", "k").args(["doctor", "--json"]));
    let report = ran.json();
    let told = |name: &str| {
        let found = check(&report, &format!("agent {name}"));
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        (text("status"), text("detail"), text("hint"))
    };
    let bin = dir.path().join("bin");
    assert_eq!(told("mine"), ("ok".into(), bin.join("mine").display().to_string(), String::new()));
    assert_eq!(told("script").0, "ok");
    let (status, detail, hint) = told("work");
    assert!(
        status == "warning" && detail.ends_with("no log-in was found"),
        "the key does not reach it: {detail}"
    );
    assert!(hint.contains("name it in `pass_env`"), "{hint}");
    let (status, detail, hint) = told("fetched");
    assert!(
        status == "warning" && detail.ends_with("it needs Node.js 22.19 or later, and v21.0.0 is installed")
    );
    assert_eq!(hint, "install Node.js 22.19 or later");
    let (status, detail, hint) = told("gone");
    assert_eq!((status.as_str(), detail.as_str()), ("wrong", "the command codex-acp was not found"));
    assert!(hint.starts_with("install it: npm install -g @agentclientprotocol/codex-acp, or "), "{hint}");
    let without = path.split(':').next().unwrap();
    std::fs::remove_file(bin.join("node")).unwrap();
    let ran = run(command(dir.path()).env("PATH", without).args(["doctor", "--json"]));
    let script = check(&ran.json(), "agent script").clone();
    assert!(
        script["detail"].as_str().unwrap().ends_with("it needs Node.js, which was not found"),
        "{script}"
    );
}

#[test]
fn run_tells_of_a_clearance_that_follows_its_first_words_with_the_command_first() {
    let daemon = Daemon::quick("");
    let agent = acp_fixture();
    let asks = "tool:t1:run:make all;permission:allow_once,reject_once:run:make all;hang";
    let line = format!("run --protocol acp --name shop '{asks}' -- {}", agent.display());
    let shown = on_a_terminal(&daemon, &line);
    assert!(
        shown.lines().any(|line| line.starts_with("it asks for clearance [") && line.contains("]: make all")),
        "{shown}"
    );
    let id = daemon.clearance("shop");
    let short = &id[..12];
    let next = format!("next: intercom clearances {short}, then intercom approve {short} or");
    assert!(shown.contains(&next), "{shown}");
    daemon.cli(&["approve", short]).ok();
    let asks = r#"clearance:c:{"title":"Tidy up","command":"rm -rf build"}"#;
    let line = format!("run --name first go -- {} status:hello '{asks}' hang", fixture().display());
    let shown = on_a_terminal(&daemon, &line);
    assert!(shown.contains("]: rm -rf build “Tidy up”\n"), "{shown}");
}

/// A shell with a key, and a daemon that was started without it: the doctor and the hint of a failure say what is different.
#[test]
fn a_key_of_this_shell_that_the_daemon_lacks_is_told_as_such_and_the_advice_works() {
    let ground = Ground(home(""));
    let dir = ground.0.path();
    let agent = format!("exec {} \"$@\"", acp_fixture().display());
    let path = programs(dir, &[("claude-agent-acp", &agent), ("node", "echo v22.20.0"), ("claude", "")]);
    let shell = |key: Option<&str>, args: &[&str]| {
        run(command(dir).env("PATH", &path).args(args).envs(key.map(|key| ("ANTHROPIC_API_KEY", key))))
    };
    shell(None, &["daemon", "restart"]).ok();
    let secret = "hunter2-hunter2";
    let report = shell(Some(secret), &["doctor", "--json"]).ok();
    let found = check(&report.json(), "agent claude").clone();
    assert_eq!(found["status"], "warning", "{found}");
    let lacks = "ANTHROPIC_API_KEY is set in this shell, but the daemon was started without it";
    assert!(found["detail"].as_str().unwrap().ends_with(lacks), "{found}");
    assert_eq!(found["hint"], "`intercom daemon restart`");
    let prompt = "log-in:ANTHROPIC_API_KEY;say:all done";
    let ran = shell(Some(secret), &["run", "--agent", "claude", "--name", "shop", prompt]);
    let hint = format!(
        "hint: {lacks}: `intercom daemon restart`; then restart the agent: `intercom stop shop && intercom resume shop`; \
         your prompt is kept and is sent then\n"
    );
    assert!(ran.code == 1 && ran.stderr.ends_with(&hint), "{ran:?}");
    for args in [&["wait", "shop", "--for", "idle"][..], &["show", "shop"]] {
        let ran = shell(Some(secret), args);
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert!(told.contains(lacks) && !told.contains(secret), "{ran:?}");
    }
    shell(Some(secret), &["daemon", "restart"]).ok();
    let report = shell(Some(secret), &["doctor", "--json"]).ok().json();
    assert_eq!(check(&report, "agent claude")["status"], "ok", "{report}");
    shell(Some(secret), &["stop", "shop"]).ok();
    shell(Some(secret), &["resume", "shop"]).ok();
    shell(Some(secret), &["wait", "shop", "--for", "idle"]).ok();
    // Another value than the daemon's is told as well, once the agent is refused.
    let ran = shell(
        Some("newer"),
        &["run", "--agent", "claude", "--name", "other", "say:Invalid API key · Please run /login"],
    );
    assert!(
        ran.stderr.contains("the key of claude (ANTHROPIC_API_KEY) was refused: “Invalid API key"),
        "{ran:?}"
    );
    assert!(
        ran.stderr.contains("hint: the daemon was started with another value of ANTHROPIC_API_KEY: "),
        "{ran:?}"
    );
    shell(None, &["stop", "shop", "other"]).ok();
}

#[test]
fn a_restart_from_another_shell_keeps_the_keys_of_the_daemon_and_says_so() {
    let ground = Ground(home(""));
    let dir = ground.0.path();
    let restart = |env: &[(&str, &str)]| {
        run(command(dir).args(["--json", "daemon", "restart"]).envs(env.iter().copied())).ok()
    };
    let has = |ran: &Ran, entry: &str| {
        let pid = ran.json()["pid"].as_i64().unwrap();
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        environ.split(|byte| *byte == 0).any(|own| own == entry.as_bytes())
    };
    let secrets =
        [("OPENAI_API_KEY", "hunter2"), ("GEMINI_API_KEY", "g1"), ("INTERCOM_SLACK_APP_TOKEN", "xapp-1")];
    restart(&secrets);
    let ran = restart(&[("GEMINI_API_KEY", "g2"), ("ANTHROPIC_API_KEY", "a1")]);
    assert!(ran.stderr.contains("this shell does not set them: "), "{ran:?}");
    assert!(
        ran.stderr.contains("OPENAI_API_KEY") && ran.stderr.contains("INTERCOM_SLACK_APP_TOKEN"),
        "{ran:?}"
    );
    assert!(!ran.stderr.contains("GEMINI") && !ran.stderr.contains("hunter2"), "{ran:?}");
    for entry in [
        "OPENAI_API_KEY=hunter2",
        "GEMINI_API_KEY=g2",
        "ANTHROPIC_API_KEY=a1",
        "INTERCOM_SLACK_APP_TOKEN=xapp-1",
    ] {
        assert!(has(&ran, entry), "{entry}");
    }
    // An empty value drops a key.
    let ran = restart(&[("OPENAI_API_KEY", "")]);
    assert!(!has(&ran, "OPENAI_API_KEY=hunter2") && has(&ran, "GEMINI_API_KEY=g2"), "{ran:?}");
    assert!(!ran.stderr.contains("OPENAI_API_KEY"), "{ran:?}");
}

#[test]
fn a_key_that_the_agent_repeats_is_not_in_the_reason() {
    let ground = Ground(home(""));
    let dir = ground.0.path();
    let agent = format!("exec {} \"$@\"", acp_fixture().display());
    let path = programs(dir, &[("codex-acp", &agent)]);
    let key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789";
    let prompt = format!("fail:-32603:Incorrect API key provided: {key}");
    let ran = run(command(dir)
        .env("PATH", &path)
        .env("OPENAI_API_KEY", key)
        .args(["run", "--agent", "codex", "--name", "shop", &prompt]));
    assert!(
        ran.stderr.contains("the key of codex (OPENAI_API_KEY) was refused: “Incorrect API key provided: "),
        "{ran:?}"
    );
    assert!(
        ran.stderr
            .contains("hint: set a valid key (OPENAI_API_KEY) and run `intercom daemon restart`; then "),
        "{ran:?}"
    );
    let shown = run(command(dir).args(["show", "shop", "--json"])).ok().json();
    let told = format!("{ran:?} {}", shown["failed"]);
    assert!(!told.contains(key), "{told}");
    run(command(dir).args(["stop", "shop"])).ok();
}

#[test]
fn a_daemon_that_could_not_be_started_again_is_not_stopped() {
    let ground = Ground(home(""));
    let dir = ground.0.path();
    let daemon = |verb: &str| run(command(dir).args(["--json", "daemon", verb]));
    let pid = daemon("restart").ok().json()["pid"].as_i64().unwrap();
    let config = dir.join("config.toml");
    let sound = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, "[nonsense]\n").unwrap();
    let ran = daemon("restart");
    assert!(ran.code == 1 && ran.stdout.contains("no daemon can be started: "), "{ran:?}");
    std::fs::write(&config, sound).unwrap();
    assert_eq!(daemon("status").ok().json()["daemon"]["pid"], pid);
}

#[test]
fn the_daemon_is_shown_stopped_and_started_again_while_agents_run_on() {
    let ground = Ground(home(""));
    let dir = ground.0.path();
    let daemon = |args: &[&str]| run(command(dir).args(args));
    let ran = daemon(&["ls"]);
    assert!(ran.code == 1 && ran.stderr.contains("start one with `intercom daemon restart`"), "{ran:?}");
    let ran = daemon(&["daemon", "status"]);
    assert!(ran.code == 1 && ran.stdout.starts_with("daemon     none is running\n"), "{ran:?}");
    assert_eq!(daemon(&["daemon", "stop"]).ok().stdout, "no daemon is running\n");
    run(command(dir).args(["run", "--name", "a", "--"]).arg(fixture()).arg("hang")).ok();
    let status = daemon(&["daemon", "status", "--json"]).ok().json();
    let info: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("state/daemon.json")).unwrap()).unwrap();
    let own = &status["daemon"];
    assert_eq!((&own["pid"], &own["started_at"]), (&info["pid"], &info["started_at"]), "{status}");
    assert_eq!((&own["started_by"], &own["live_sessions"]), (&json!("background"), &json!(1)), "{status}");
    assert_eq!((&own["version"], &own["url"]), (&info["version"], &info["url"]), "{status}");
    assert_eq!((&status["reachable"], &status["installed"]), (&json!(true), &json!(false)), "{status}");
    let shown = daemon(&["daemon", "status"]).ok().stdout;
    let pid = &info["pid"];
    assert!(shown.starts_with(&format!("daemon     running, pid {pid}, since ")), "{shown}");
    for line in
        ["\nstarted    in the background", "\nsocket     /", "\nconsole    ", "\nsessions   1 live session\n"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let ran = daemon(&["daemon", "stop"]).ok();
    assert_eq!(ran.stdout, format!("stopped the daemon (pid {pid})\n"));
    assert!(
        ran.stderr.contains("1 agent keeps running without a daemon; `intercom daemon restart`"),
        "{ran:?}"
    );
    assert!(!alive(pid.as_i64().unwrap()));
    daemon(&["daemon", "restart"]).ok();
    assert_eq!(daemon(&["show", "a", "--json"]).ok().json()["phase"], "idle");
    daemon(&["stop", "a"]).ok();
    let ran = daemon(&["--json", "daemon", "stop"]).ok().json();
    assert!(ran["stopped"].is_i64() && ran["agents_left"] == 0, "{ran}");
}

#[test]
fn hints_are_wrapped_between_words_and_never_inside_a_command() {
    let daemon = Daemon::quick("");
    let ends = |shown: &str| -> Vec<String> { shown.trim_end().lines().map(str::to_owned).collect() };
    let wide = daemon.cli(&["run", "--", "no-such-program"]);
    let hint = wide.stderr.lines().find(|line| line.starts_with("hint: ")).unwrap().to_owned();
    // Each attempt has an id of its own.
    let without_id = |hint: &str| hint.split_once("ses_").map_or(hint, |(before, _)| before).to_owned();
    assert!(hint.len() > 80, "without a width nothing is wrapped: {hint}");
    let in_a_pipe = run(command(daemon.dir.path())
        .args(["run", "--", "no-such-program"])
        .current_dir(daemon.workspace())
        .env("COLUMNS", "80"));
    for shown in [in_a_pipe.stderr, on_a_terminal(&daemon, "run -- no-such-program")] {
        let lines = ends(&shown);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{shown}");
        let at =
            lines.iter().position(|line| line.starts_with("hint: ")).unwrap_or_else(|| panic!("{shown}"));
        assert!(lines[at + 1..].iter().all(|line| line.starts_with("  ")), "{shown}");
        let joined = lines[at..].iter().map(|line| line.trim_start()).collect::<Vec<_>>().join(" ");
        assert_eq!(without_id(&joined), without_id(&hint), "no word is lost or parted");
        assert!(lines.iter().any(|line| line.contains("`intercom daemon restart`")), "{shown}");
    }
}

#[test]
fn the_hints_of_the_doctor_are_wrapped_between_words_too() {
    let shown = on_a_terminal(&Daemon::quick(""), "doctor");
    let lines: Vec<&str> = shown.lines().skip(1).filter(|line| !line.is_empty()).collect();
    assert!(lines.iter().any(|line| line.starts_with("         hint: ")), "{shown}");
    for line in lines {
        let begins = ["ok ", "warning ", "wrong ", "           ", "         hint: ", "error: "];
        assert!(begins.iter().any(|begin| line.starts_with(begin)), "{line:?} in {shown}");
    }
}

#[test]
fn the_answer_to_a_decision_is_wrapped_between_words() {
    let daemon = Daemon::quick("");
    let ask = r#"clearance:c:{"title":"Tidy up the caches of the last releases","command":"rm -rf target/old-cache-of-release-1"}"#;
    let session = daemon.run(&[ask, "answer:c", "hang"]);
    let id = daemon.clearance(&session)[..12].to_owned();
    let shown = on_a_terminal(&daemon, &format!("deny {id}"));
    let expected = format!(
        "denied {id}: rm -rf target/old-cache-of-release-1 “Tidy up the caches of the last releases” (delivered)"
    );
    let lines: Vec<&str> = shown.trim_end().lines().map(str::trim).collect();
    assert!(lines.len() == 2 && lines.join(" ") == expected, "{shown}");
}

#[test]
fn ls_has_no_column_without_cells_and_titles_end_with_a_word() {
    let daemon = Daemon::start();
    let prompt =
        "Please look through the whole repository for places where prices are rounded twice and mend them";
    let dead = daemon.run_with(&["exit:3"], json!({ "name": "dead", "prompt": prompt }));
    daemon.wait_for_end(&dead);
    let cut = "Please look through the whole repository for places where prices are rounded…";
    assert_eq!(daemon.show(&dead)["first_prompt"], cut);
    let shown = on_a_terminal(&daemon, "ls");
    let header = shown.lines().next().unwrap();
    assert!(header.ends_with("TITLE"), "every reason is below its row: {shown}");
    assert!(shown.contains("\n  │ exited with code 3 before any output\n"), "{shown}");
    let row = shown.lines().find(|line| line.starts_with("ses_")).unwrap();
    let title = row.split_once("Please").unwrap().1.trim_end();
    let kept = format!("Please{}", title.strip_suffix('…').unwrap_or_else(|| panic!("{shown}")));
    assert!(prompt.starts_with(&format!("{kept} ")), "{shown}");
}
