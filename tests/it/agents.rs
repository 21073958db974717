//! Agents that need no configuration, and agents that are added to it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use intercom_testkit::harness::{Daemon, QUICK, Ran, acp_fixture, command, home, run};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const NAMES: &[&str] =
    &["claude", "codex", "copilot", "cursor", "gemini", "goose", "kimi", "opencode", "qwen", "vibe"];

/// A directory of programs for the search path; each is a shell script.
fn programs(dir: &Path, scripts: &[(&str, &str)]) -> String {
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    for (name, script) in scripts {
        let file = bin.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    bin.to_str().unwrap().to_owned()
}

fn agent(daemon: &Daemon, name: &str) -> Value {
    let (status, list) = daemon.get("/api/v1/agents");
    assert_eq!(status, 200);
    let items = list["items"].as_array().unwrap();
    items.iter().find(|item| item["name"] == name).cloned().unwrap_or_else(|| panic!("{name}: {list}"))
}

#[test]
fn the_agents_that_everybody_knows_are_listed_with_whether_they_are_there() {
    let dir = home("[agents.gemini]\ncommand = 'no-such-program'\n");
    let path = programs(dir.path(), &[("claude-agent-acp", ""), ("npx", "")]);
    let daemon = Daemon::start_in(dir, &[], &[("PATH", &path)]);
    for name in NAMES {
        agent(&daemon, name);
    }
    for (name, command, availability) in [
        ("claude", "claude-agent-acp", "installed"),
        ("codex", "npx", "on_demand"),
        ("goose", "goose", "missing"),
        ("gemini", "no-such-program", "missing"),
        ("demo", "(built in)", "built_in"),
    ] {
        let found = agent(&daemon, name);
        assert_eq!((&found["command"], &found["availability"]), (&json!(command), &json!(availability)));
    }
    assert_eq!(agent(&daemon, "gemini")["protocol"], "intercom", "the profile of the file, and only it");
    let listed = daemon.cli(&["agents"]).ok().stdout;
    let row = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    for (name, words) in [("claude", "acp  yes"), ("codex", "acp  when run"), ("goose", "acp  no")] {
        let row = row(name).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(row.starts_with(&format!("{name} {}", words.replace("  ", " "))), "{row}");
    }
}

#[test]
fn a_known_agent_runs_by_its_name_alone_and_gets_its_key_and_no_other() {
    let dir = home("");
    let seen = dir.path().join("seen");
    let script = format!("env > {}\nexec {} \"$@\"", seen.display(), acp_fixture().display());
    let path = format!("{}:/usr/bin:/bin", programs(dir.path(), &[("claude-agent-acp", &script)]));
    let env =
        [("PATH", path.as_str()), ("ANTHROPIC_API_KEY", "for-claude"), ("MISTRAL_API_KEY", "for-another")];
    let daemon = Daemon::start_in(dir, &[], &env);
    let ran = daemon.cli(&["run", "--agent", "claude", "--workspace", ".", "say:hello"]).ok();
    let id = ran.stdout.trim();
    daemon.wait_kind(id, "agent.ready");
    let shown = daemon.show(id);
    assert_eq!((&shown["agent"], &shown["protocol"]), (&json!("claude"), &json!("acp")));
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains("ANTHROPIC_API_KEY=for-claude"), "{seen}");
    assert!(!seen.contains("for-another"), "{seen}");

    let ran = daemon.cli(&["run", "--agent", "vibe"]);
    let told = "error: command not found: vibe-acp; install it: uv tool install mistral-vibe\n";
    assert!(ran.code == 1 && ran.stderr.starts_with(told), "{ran:?}");
    let resume = format!("`intercom resume {}`", &ran.stdout.trim()[..12]);
    assert!(ran.stderr.contains(&resume), "the session can be started once the program is there: {ran:?}");
}

#[track_caller]
fn line<'a>(ran: &'a Ran, name: &str) -> &'a str {
    let found = ran.stdout.lines().find(|line| line.contains(&format!("  {name} ")));
    found.unwrap_or_else(|| panic!("{name}: {ran:?}"))
}

#[test]
fn the_doctor_tells_what_is_installed_and_what_is_missing() {
    let dir = home("");
    let doctor = |path: &str| run(command(dir.path()).arg("doctor").env("PATH", path)).ok();
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let ran = doctor(empty.to_str().unwrap());
    assert!(line(&ran, "node").starts_with("ok "), "{ran:?}");
    assert_eq!(
        line(&ran, "other agents"),
        format!("ok       other agents  not installed: {}", NAMES.join(", "))
    );
    assert!(!ran.stdout.contains("agent claude"), "{ran:?}");

    let path = programs(dir.path(), &[("node", "echo v18.2.0"), ("claude-agent-acp", "")]);
    let ran = doctor(&path);
    let node = line(&ran, "node");
    assert!(node.starts_with("warning") && node.contains("v18.2.0"), "{node}");
    assert!(node.contains("too old for claude, codex"), "{node}");
    assert!(ran.stdout.contains("hint: install Node.js 20 or later\n"), "{ran:?}");
    let claude = line(&ran, "agent claude");
    assert!(claude.starts_with("warning") && claude.ends_with("claude-agent-acp; no log-in was found"));
    assert!(ran.stdout.contains("hint: set ANTHROPIC_API_KEY\n"), "nothing is there to log in with: {ran:?}");
    programs(dir.path(), &[("claude", "")]);
    let ran = doctor(&path);
    assert!(ran.stdout.contains("hint: run `claude` and `/login` there"), "{ran:?}");

    programs(dir.path(), &[("node", "echo v22.1.0")]);
    std::fs::create_dir(dir.path().join(".claude")).unwrap();
    std::fs::write(dir.path().join(".claude/.credentials.json"), "a secret").unwrap();
    let ran = doctor(&path);
    assert!(line(&ran, "node").starts_with("ok "), "{ran:?}");
    let claude = line(&ran, "agent claude");
    assert!(claude.starts_with("ok ") && claude.ends_with("~/.claude/.credentials.json is there"));
    assert!(!ran.stdout.contains("a secret"));
}

fn entry(distribution: &Value) -> String {
    json!({"id": "mine", "name": "Mine", "version": "1.2.3", "description": "my own", "distribution": distribution})
        .to_string()
}

#[test]
fn an_entry_of_the_registry_becomes_a_profile_of_the_file() {
    let old = "# my settings\n[limits]\nmax_sessions = 7";
    let daemon = Daemon::with_config(old);
    let config = daemon.dir.path().join("config.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    let text = entry(&json!({"npx": {"package": "@me/mine@1.2.3", "args": ["--acp"], "env": {"MODE": "x"}}}));
    std::fs::write(daemon.workspace().join("agent.json"), &text).unwrap();

    let printed = daemon.cli_with_input(&["agents", "add", "-", "--print"], &text).ok().stdout;
    insta::assert_snapshot!(printed, @r#"
    [agents.mine]
    description = "my own"
    command = "npx"
    args = ["-y", "@me/mine@1.2.3", "--acp"]
    protocol = "acp"
    startup_timeout_seconds = 300
    env."MODE" = "x"
    "#);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), before, "nothing was added");

    let ran = daemon.cli(&["agents", "add", "agent.json"]).ok();
    assert_eq!(ran.stdout, format!("added `mine` to {}\n", config.display()));
    assert!(ran.stderr.contains("intercom reload"), "{ran:?}");
    let after = std::fs::read_to_string(&config).unwrap();
    assert_eq!(after, format!("{before}\n{printed}"));
    daemon.cli(&["reload"]).ok();
    assert_eq!(agent(&daemon, "mine")["command"], "npx");

    let again = daemon.cli(&["agents", "add", "agent.json"]);
    assert_eq!(again.code, 1);
    assert!(again.stderr.contains("already has an agent `mine`"), "{again:?}");
    let other = daemon.cli(&["agents", "add", "agent.json", "--name", "other", "--json"]).ok().json();
    assert_eq!((&other["name"], &other["file"]), (&json!("other"), &json!(config)));
    for (name, why) in [("demo", "built in and reserved"), ("../x", "the new profile:1"), ("X", "a name has")]
    {
        let ran = daemon.cli(&["agents", "add", "agent.json", "--name", name]);
        assert!(ran.code == 1 && ran.stderr.contains(why), "{ran:?}");
    }
    let hostile = entry(&json!({"npx": {"package": "git+https://h/x"}}));
    let ran = daemon.cli_with_input(&["agents", "add", "-", "--name", "y"], &hostile);
    assert!(ran.code == 1 && ran.stderr.contains("is not a name with one version"), "{ran:?}");
}

#[test]
fn an_archive_is_unpacked_only_with_the_right_checksum() {
    let dir = home("");
    let (archive, config) = (dir.path().join("a.tar.gz"), dir.path().join("config.toml"));
    let fixture = acp_fixture();
    std::fs::write(dir.path().join("agent"), format!("#!/bin/sh\nexec {} \"$@\"\n", fixture.display()))
        .unwrap();
    let packed =
        Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(dir.path()).arg("agent").status();
    assert!(packed.unwrap().success());
    let sum = Command::new("sha256sum").arg(&archive).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap()[..64].to_owned();
    let platform = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
    let url = "https://host.example/a.tar.gz";
    let text = entry(&json!({"binary": {platform: {"archive": url, "cmd": "./agent", "args": []}}}));
    std::fs::write(dir.path().join("agent.json"), text).unwrap();
    let before = std::fs::read_to_string(&config).unwrap();
    let add = |more: &[&str]| {
        run(command(dir.path()).current_dir(dir.path()).args(["agents", "add", "agent.json"]).args(more))
    };
    for (more, why) in [
        (&[][..], "hint: curl -fLo a.tar.gz 'https://host.example/a.tar.gz', then"),
        (&["--archive", "a.tar.gz"], "the entry has no checksum"),
        (&["--archive", "a.tar.gz", "--sha256", &"0".repeat(64)], "has the checksum"),
        (&["--archive", "a.tar.gz", "--sha256", "0"], "is not a SHA-256"),
        (&["--archive", "none.tar.gz", "--sha256", &sum], "none.tar.gz cannot be read"),
    ] {
        let ran = add(more);
        assert!(ran.code == 1 && ran.stderr.contains(why), "{ran:?}");
        assert_eq!(std::fs::read_to_string(&config).unwrap(), before);
        let left = std::fs::read_dir(dir.path().join("state/programs")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{more:?}");
    }
    add(&["--archive", "a.tar.gz", "--sha256", &sum]).ok();
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(agent(&daemon, "mine")["availability"], "installed");
    let id = daemon.run_agent("mine");
    daemon.wait_kind(&id, "agent.ready");
}

#[test]
fn what_an_agent_told_is_known_until_its_command_line_changes() {
    let config = |args: &[&str]| {
        let command = json!(acp_fixture());
        format!("{QUICK}[agents.mine]\ncommand = {command}\nargs = {}\nprotocol = 'acp'\n", json!(args))
    };
    let known = |daemon: &Daemon| {
        let (_, agents) = daemon.get("/api/v1/agents");
        let items = agents["items"].as_array().unwrap().clone();
        items.into_iter().find(|agent| agent["name"] == "mine").unwrap()["known"].clone()
    };
    let daemon = Daemon::with_config(&config(&["caps:modes,load"]));
    assert_eq!(known(&daemon), Value::Null);
    let session = daemon.run_agent("mine");
    let ready = daemon.wait_kind(&session, "agent.ready")["data"]["agent"].clone();
    let told = json!({ "initialize": ready["initialize"], "session": ready["session"] });
    assert!(told["session"]["modes"].is_object() && told["initialize"].is_object(), "{told}");
    assert_eq!(known(&daemon), told);
    // Whoever goes on with an old session tells less: what a new one told stays.
    daemon.end_session(&session, "stop");
    daemon.post(&format!("/api/v1/sessions/{session}/resume"), &json!({}));
    let again = |event: &Value| event["kind"] == "agent.ready" && event["data"]["generation"] == 2;
    daemon.wait_for(&session, "the next generation", again);
    assert!(known(&daemon)["session"]["modes"].is_object());
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert!(known(&daemon).is_object(), "it outlives the daemon");
    let file = daemon.dir.path().join("config.toml");
    let write = |args: &[&str]| {
        std::fs::write(&file, format!("{}\n[api]\nlisten = \"off\"\n", config(args))).unwrap();
        assert_eq!(daemon.post("/api/v1/reload", &json!({})).0, 200);
    };
    write(&["caps:load"]);
    assert_eq!(known(&daemon), Value::Null);
    let session = daemon.run_agent("mine");
    daemon.wait_kind(&session, "agent.ready");
    assert!(known(&daemon)["session"]["modes"].is_null(), "{}", known(&daemon));
}

/// A download takes longer than the start of an installed program: agents that are fetched have five minutes.
#[test]
fn an_agent_that_is_downloaded_first_may_take_longer_than_others() {
    let config = "[acp]\nstartup_timeout_seconds = 1\n\
        [agents.mine]\ncommand = 'npx'\nargs = ['-y', 'mine']\nprotocol = 'acp'\n\
        [agents.slow]\ncommand = 'slow-agent'\nprotocol = 'acp'\n";
    let dir = home(config);
    let script = format!("sleep 2; exec {}", acp_fixture().display());
    let path = programs(dir.path(), &[("npx", &script), ("slow-agent", &script)]);
    let daemon = Daemon::start_in(dir, &[], &[("PATH", &format!("{path}:/usr/bin:/bin"))]);
    for agent in ["codex", "mine"] {
        let ran = daemon.cli(&["run", "--agent", agent, "say:hello"]).ok();
        daemon.wait_kind(ran.stdout.trim(), "turn.ended");
    }
    daemon.cli(&["run", "--protocol", "acp", "say:hello", "--", "npx", "-y", "another"]).ok();
    let ran = daemon.cli(&["run", "--agent", "slow", "say:hello"]);
    assert!(ran.code == 1 && ran.stderr.contains("it was not ready within 1s"), "{ran:?}");
}
