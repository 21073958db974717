//! Codes, tokens and cookies are in no log, however much is logged and wherever it goes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use intercom_testkit::client::{PATIENCE, Place, exchange};
use intercom_testkit::harness::{Daemon, PORT, command, fixture, home, kill_all_in, run, sign_in};
use intercom_testkit::seats::Seat;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::INTERCOM;

/// Every file of a run but the database, whose token hashes and messages are no log.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in dir.read_dir().unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&path)),
            kind if kind.is_file() && !name.starts_with("intercom.db") => found.push(path),
            _ => {}
        }
    }
    found
}

#[track_caller]
fn check_hidden(dir: &Path, secrets: &[(&str, &str)]) {
    let files = files(dir);
    assert!(files.iter().any(|file| file.ends_with("daemon.log")), "{files:?}");
    for file in files {
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        for (what, secret) in secrets {
            assert!(secret.len() >= 20, "{what}: {secret}");
            assert!(!text.contains(secret), "{what} is in {}", file.display());
        }
    }
}

/// A request over the port, with these headers.
fn over_port(address: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    exchange(Place::open_port(address), "GET", path, headers, "").status
}

#[test]
fn no_code_and_no_token_is_in_any_log_however_much_is_logged() {
    const WRONG: &str = "wrong-token-0123456789-abcdefghij";
    let mut daemon = Daemon::start_in(home(PORT), &[], &[("RUST_LOG", "trace")]);
    daemon.until("the console's address", |daemon| daemon.log().contains("The console is at ").then_some(()));
    assert!(!daemon.log().contains("#code="), "{}", daemon.log());
    let address = daemon.address();
    let made = daemon.cli(&["token", "create", "--name", "ana", "--role", "admin", "--json"]).ok().json();
    let token = made["token"].as_str().or(made["secret"].as_str()).unwrap_or_else(|| panic!("{made}"));
    let link = daemon.cli(&["console"]).ok().stdout;
    let code = link.trim().split_once("#code=").unwrap().1;
    let refused = format!("Bearer {WRONG}");
    assert_eq!(over_port(&address, "/api/v1/sessions", &[("authorization", &refused)]), 401);
    let allowed = format!("Bearer {token}");
    for path in ["/api/v1/sessions", "/api/v1/audit", "/metrics", "/api/v1/none", "/acp"] {
        over_port(&address, path, &[("authorization", &allowed)]);
    }
    let answer = sign_in(&address, &json!({ "code": code }));
    assert!([200, 201].contains(&answer.status), "{answer:?}");
    let cookie = answer.cookie();
    assert_eq!(over_port(&address, "/api/v1/sessions", &[("cookie", cookie)]), 200);
    let cookie = cookie.split_once('=').unwrap().1;
    let again = sign_in(&address, &json!({ "code": code }));
    assert_eq!(again.status, 401, "it works once: {again:?}");
    sign_in(&address, &json!({ "token": token }));
    let session = daemon.run(&["status:hello", "exit:0"]);
    daemon.all_events(&session);
    let secrets =
        [("the code", code), ("the token", token), ("a wrong token", WRONG), ("the cookie", cookie)];
    // The detailed lines are really there, also those about whoever showed the token.
    let mut seat = Seat::websocket(&Place::Port { address, token: Some(token.to_owned()) });
    seat.ok("initialize", json!({ "protocolVersion": 1 }));
    seat.refused("session/prompt", json!({ "sessionId": "ses_none", "prompt": [] }), -32002);
    seat.leave();
    for said in ["an ACP client initialised its connection", "an ACP client disconnected"] {
        daemon.until(said, |daemon| {
            let log = daemon.log();
            log.lines().any(|line| line.contains(" DEBUG ") && line.contains(said)).then_some(())
        });
    }
    check_hidden(daemon.dir.path(), &secrets);
}

#[test]
fn a_daemon_in_the_background_writes_no_link_into_its_log() {
    let dir = home(PORT);
    let work = dir.path().join("work");
    let start = [
        "run",
        "--no-wait",
        "--workspace",
        work.to_str().unwrap(),
        "--",
        fixture().to_str().unwrap(),
        "exit:0",
    ]
    .map(str::to_owned);
    run(command(dir.path()).args(&start)).ok();
    let log = dir.path().join("state/daemon.log");
    let begun = std::time::Instant::now();
    let told = loop {
        let told = std::fs::read_to_string(&log).unwrap_or_default();
        if told.contains("The console is at ") || begun.elapsed() > PATIENCE {
            break told;
        }
        std::thread::yield_now();
    };
    let about: Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("state/daemon.json")).unwrap()).unwrap();
    let pid = i32::try_from(about["pid"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    kill_all_in(dir.path());
    assert!(told.contains("The console is at http://127.0.0.1:"), "{told}");
    assert!(!told.contains("code="), "{told}");
}

#[test]
fn a_terminal_is_shown_the_link() {
    let dir = home(PORT);
    let typescript = dir.path().join("typescript");
    let mut script = Command::new("script");
    script.env_clear();
    script.envs(command(dir.path()).get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.args(["-qfec", &format!("{INTERCOM} serve --on-stop drain")]).arg(&typescript);
    let mut script = script.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let begun = std::time::Instant::now();
    let shown = loop {
        let shown = String::from_utf8_lossy(&std::fs::read(&typescript).unwrap_or_default()).into_owned();
        if shown.contains("works once") || begun.elapsed() > PATIENCE {
            break shown;
        }
        std::thread::yield_now();
    };
    kill_all_in(dir.path());
    script.wait().unwrap();
    assert!(shown.contains("/#code="), "{shown}");
}
