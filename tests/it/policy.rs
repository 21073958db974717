//! Rules decide by themselves, say why, can be tried out, and never allow more than they say.

use std::time::Instant;

use intercom_testkit::harness::{self, Daemon, QUICK, home, of_kind, profile, refused, wait_turns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// An agent that asks once, and reports its answer.
fn asks(params: &Value) -> Vec<String> {
    vec![format!("clearance:1:{params}"), "answer:1".to_owned(), "serve".to_owned()]
}

fn ask(daemon: &Daemon, params: &Value) -> (String, Value) {
    let steps = asks(params);
    let session = daemon.run(&steps.iter().map(String::as_str).collect::<Vec<_>>());
    let requested = daemon.wait_kind(&session, "clearance.requested")["data"].clone();
    (session, requested)
}

const RULES: &str = r#"
[[rule]]
name = "no force"
command = "git push --force"
then = "deny"
reason = "history is shared"

[[rule]]
name = "tests"
command = "cargo test"
then = "allow"

[[rule]]
name = "sources"
tool = "edit"
path = "src/**"
max_diff_lines = 20
risk = "medium"
then = "allow"

[[rule]]
name = "the boss"
path = "deploy/**"
then = "ask"
ask = ["ben"]
"#;

#[test]
fn rules_allow_deny_and_ask_and_say_so_to_everybody() {
    let daemon = Daemon::with_config(RULES);
    let (session, _) =
        ask(&daemon, &json!({ "title": "Test", "command": "cargo test --lib", "risk_level": "low" }));
    let answered = daemon.wait_status(&session, "answered");
    assert_eq!(
        (&answered["status"], &answered["params"]["reason"]),
        (&json!("approved"), &json!("tests allows it"))
    );
    let clearance = &daemon.get(&format!("/api/v1/clearances?session={session}")).1["items"][0];
    assert_eq!(clearance["decided_by"], "tests");
    assert_eq!(clearance["decided_via"], "policy");
    assert_eq!(clearance["ruling"]["outcome"], "allow");

    let force =
        json!({ "title": "Push", "command": "cd x && git push origin main --force", "risk_level": "low" });
    let (session, requested) = ask(&daemon, &force);
    assert_eq!((&requested["risk"], &requested["claimed_risk"]), (&json!("critical"), &json!("low")));
    let answered = daemon.wait_status(&session, "answered");
    assert_eq!(answered["status"], "rejected");
    assert_eq!(answered["params"]["reason"], "no force denies it: history is shared");

    let (session, _) = ask(
        &daemon,
        &json!({ "title": "Test and more", "command": "cargo test; rm -rf /", "risk_level": "low" }),
    );
    assert_eq!(daemon.show(&session)["phase"], "waiting", "a compound command is for people");
    let id = daemon.clearance(&session);
    let explained = daemon.cli(&["policy", "explain", &id]).ok().stdout;
    assert!(explained.contains("now: ask (no rule matches)"), "{explained}");
    assert!(explained.contains("tests [allow] does not match"), "{explained}");
    assert!(explained.contains("always: not possible"), "{explained}");
}

#[test]
fn a_link_out_of_the_workspace_is_followed_before_a_rule_is_asked() {
    let daemon = Daemon::with_config(RULES);
    std::fs::create_dir(daemon.workspace().join("src")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", daemon.workspace().join("src/innocent.rs")).unwrap();
    let edit =
        |path: &str| json!({ "title": "Edit", "file_path": path, "diff": "-a\n+b\n", "risk_level": "low" });
    let (fine, _) = ask(&daemon, &edit("src/main.rs"));
    daemon.wait_status(&fine, "answered");
    for path in ["src/innocent.rs", "src/../../x", "/etc/hosts"] {
        let (session, requested) = ask(&daemon, &edit(path));
        assert_eq!(daemon.show(&session)["phase"], "waiting", "{path}");
        assert!(requested["risk_why"].to_string().contains("outside"), "{path}: {requested}");
    }
}

#[test]
fn whom_a_rule_wants_asked_decides() {
    let daemon = Daemon::with_config(&format!("{RULES}\n[api]\nlisten = \"127.0.0.1:0\"\n"));
    let (session, requested) =
        ask(&daemon, &json!({ "title": "Deploy", "file_path": "deploy/prod.yaml", "risk_level": "low" }));
    assert_eq!(requested["ruling"]["whom"], json!(["ben"]));
    let id = daemon.clearance(&session);
    let about: Value =
        serde_json::from_slice(&std::fs::read(daemon.dir.path().join("state/daemon.json")).unwrap()).unwrap();
    let url = about["url"].as_str().unwrap();
    let approve = |name: &str| {
        let token = daemon.cli(&["token", "create", "--name", name, "--role", "approver"]).ok().stdout;
        let mut command = harness::command(daemon.dir.path());
        harness::run(command.args(["approve", &id, "--url", url]).env("INTERCOM_TOKEN", token.trim()))
    };
    let ana = approve("ana");
    assert!(ana.stderr.contains("only ben may approve this"), "{}", ana.stderr);
    assert_eq!(approve("ben").code, 0);
}

#[test]
fn always_allow_shows_its_rule_sticks_narrowly_expires_and_is_revoked() {
    let agent = profile("coder", &[], "");
    let daemon = Daemon::with_config(&agent);
    let steps = |command: &str| asks(&json!({ "title": "Run", "command": command, "risk_level": "low" }));
    let start = |command: &str| {
        let config = profile("coder", &steps(command).iter().map(String::as_str).collect::<Vec<_>>(), "");
        std::fs::write(daemon.dir.path().join("config.toml"), format!("{config}\n[api]\nlisten = \"off\"\n"))
            .unwrap();
        daemon.cli(&["reload"]).ok();
        daemon.run_agent("coder")
    };
    let first = start("cargo build --release");
    let id = daemon.clearance(&first);
    let asked = daemon.cli(&["approve", &id, "--always"]);
    assert_eq!(asked.code, 1, "nobody at a terminal to confirm");
    assert!(asked.stderr.contains("beginning with `cargo build`"), "{}", asked.stderr);
    let path = format!("/api/v1/clearances/{id}/decision");
    let other = json!({ "decision": "approve", "remember": { "rule": { "then": "allow" } } });
    refused(daemon.post(&path, &other), 409, "rule_changed");
    assert_eq!(daemon.get(&format!("/api/v1/clearances/{id}")).1["status"], "pending");
    daemon.cli(&["approve", &id, "--always", "--yes", "--for", "1h"]).ok();

    let again = start("cargo build");
    let answered = daemon.wait_status(&again, "answered");
    assert!(answered["params"]["reason"].as_str().unwrap().starts_with("allowed always by "), "{answered}");
    for other in ["cargo publish", "cargo build; true", "cargo build --config x"] {
        let session = start(other);
        daemon.wait_kind(&session, "clearance.requested");
        assert_eq!(daemon.show(&session)["phase"], "waiting", "{other}");
    }
    // It outlives the daemon.
    let grants = daemon.cli(&["policy", "grants", "--json"]).ok().json();
    let grant = grants["items"][0]["id"].as_str().unwrap().to_owned();
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(daemon.cli(&["policy", "grants", "--json"]).ok().json()["items"][0]["valid"], true);
    daemon.cli(&["policy", "revoke", &grant]).ok();
    assert_eq!(daemon.cli(&["policy", "revoke", &grant]).code, 1);
    let audit = daemon.cli(&["audit"]).ok().stdout;
    assert!(audit.contains("grant.created") && audit.contains("grant.revoked"), "{audit}");
    let config = profile("coder", &steps("cargo build").iter().map(String::as_str).collect::<Vec<_>>(), "");
    std::fs::write(daemon.dir.path().join("config.toml"), format!("{config}\n[api]\nlisten = \"off\"\n"))
        .unwrap();
    daemon.cli(&["reload"]).ok();
    let session = daemon.run_agent("coder");
    daemon.wait_kind(&session, "clearance.requested");
    assert_eq!(daemon.show(&session)["phase"], "waiting", "what was revoked is asked again");
}

#[test]
fn a_reload_reaches_running_sessions_and_a_bad_file_changes_nothing() {
    let mut daemon = Daemon::with_config("");
    let session = daemon.run(&["serve"]);
    let request = |n: u32| {
        let params = json!({ "title": "Test", "command": "cargo test", "risk_level": "low" });
        daemon.prompt(&session, &json!([format!("clearance:{n}:{params}")]).to_string());
    };
    request(1);
    daemon.wait_kind(&session, "clearance.requested");
    assert_eq!(daemon.show(&session)["phase"], "waiting");
    let config = daemon.dir.path().join("config.toml");
    std::fs::write(&config, "[[rule]]\ncommand = \"cargo test\"\nthen = \"perhaps\"\n").unwrap();
    let ran = daemon.cli(&["reload"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("config.toml:3: rule[0].then"), "{}", ran.stderr);
    assert_eq!(daemon.cli(&["policy", "check", "--rules", config.to_str().unwrap()]).code, 2);
    std::fs::write(
        &config,
        "[api]\nlisten = \"off\"\n[[rule]]\ncommand = \"cargo test\"\nthen = \"allow\"\n",
    )
    .unwrap();
    kill(Pid::from_raw(daemon.pid()), Signal::SIGHUP).unwrap();
    daemon.until("the rules are in force", |daemon| {
        (daemon.get("/api/v1/policy").1["rules"].as_array().unwrap().len() == 1).then_some(())
    });
    let shown = daemon.cli(&["policy", "show"]).ok().stdout;
    assert_eq!(shown.trim(), "1. allow requests beginning with `cargo test`");
    let pending = daemon.wait_kind(&session, "clearance.decided")["data"].clone();
    assert_eq!(
        (&pending["by"], &pending["via"]),
        (&json!("rule 1"), &json!("policy")),
        "what was pending is decided, too"
    );
    let params = json!({ "title": "Test", "command": "cargo test", "risk_level": "low" });
    daemon.prompt(&session, &json!([format!("clearance:2:{params}")]).to_string());
    assert_eq!(daemon.wait_status(&session, "answered")["status"], "approved");
}

/// Has the session ask to run something.
#[track_caller]
fn asks_to_run(daemon: &Daemon, session: &str, id: &str, command: &str, risk: &str) -> String {
    let params = json!({ "title": "Run", "command": command, "risk_level": risk });
    daemon.prompt(session, &json!([format!("clearance:{id}:{params}")]).to_string());
    let requested = daemon.wait_for(session, "the request", |event| {
        event["kind"] == "clearance.requested" && event["data"]["request"]["id"] == id
    });
    requested["data"]["clearance"].as_str().unwrap().to_owned()
}

/// The decision on a clearance, once it is there.
#[track_caller]
fn decision(daemon: &Daemon, session: &str, clearance: &str) -> Value {
    let about =
        |event: &Value| event["kind"] == "clearance.decided" && event["data"]["clearance"] == clearance;
    daemon.wait_for(session, "the decision", about)["data"].clone()
}

fn status(daemon: &Daemon, clearance: &str) -> Value {
    daemon.get(&format!("/api/v1/clearances/{clearance}")).1["status"].clone()
}

/// Writes the configuration anew, with what a test's daemon needs.
fn reconfigure(daemon: &Daemon, text: &str) {
    let text = format!("[api]\nlisten = \"off\"\n{text}");
    std::fs::write(daemon.dir.path().join("config.toml"), text).unwrap();
    daemon.cli(&["reload"]).ok();
}

#[test]
fn always_releases_its_twins_in_every_session_and_nothing_else() {
    let agents = format!("{}{}", profile("coder", &["serve"], ""), profile("other", &["serve"], ""));
    let daemon = Daemon::quick(&agents);
    let (one, two, other) = (daemon.run_agent("coder"), daemon.run_agent("coder"), daemon.run_agent("other"));
    let first = asks_to_run(&daemon, &one, "1", "cargo build --release", "low");
    let same = asks_to_run(&daemon, &one, "2", "cargo build", "low");
    let twin = asks_to_run(&daemon, &two, "1", "cargo build", "low");
    let riskier = asks_to_run(&daemon, &two, "2", "cargo build", "high");
    let more = asks_to_run(&daemon, &two, "3", "cargo build; true", "low");
    let foreign = asks_to_run(&daemon, &other, "1", "cargo build", "low");
    daemon.cli(&["approve", &first, "--always", "--yes", "--for", "1h"]).ok();
    let grant = daemon.get("/api/v1/grants").1["items"][0]["id"].clone();
    for (session, clearance) in [(&one, &same), (&two, &twin)] {
        let decided = decision(&daemon, session, clearance);
        assert_eq!((&decided["status"], &decided["via"]), (&json!("approved"), &json!("policy")));
        assert_eq!(decided["by"], grant);
        let shown = daemon.get(&format!("/api/v1/clearances/{clearance}")).1;
        assert_eq!((&shown["decided_by"], &shown["ruling"]["outcome"]), (&grant, &json!("allow")), "{shown}");
        assert!(shown["reason"].as_str().unwrap().starts_with("allowed always by "), "{shown}");
    }
    // The agent hears of each once, and of the others nothing.
    let is_answer =
        |event: &Value, id: &str| event["data"]["message"] == "answered" && event["data"]["id"] == id;
    let answered = |session: &str| {
        let events = daemon.so_far(session);
        ["1", "2", "3"].map(|id| events.iter().filter(|event| is_answer(event, id)).count())
    };
    daemon.wait_for(&one, "the answer", |event| is_answer(event, "2"));
    daemon.wait_for(&two, "the answer", |event| is_answer(event, "1"));
    assert_eq!((answered(&one), answered(&two), answered(&other)), ([1, 1, 0], [1, 0, 0], [0, 0, 0]));
    for left in [&riskier, &more, &foreign] {
        assert_eq!(status(&daemon, left), "pending");
    }
}

#[test]
fn a_reload_decides_what_is_pending_by_allow_and_deny_rules_and_leaves_the_rest() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["serve"]);
    let tests = asks_to_run(&daemon, &session, "1", "cargo test", "low");
    let push = asks_to_run(&daemon, &session, "2", "git push --force", "low");
    let deploy = asks_to_run(&daemon, &session, "3", "./deploy", "low");
    // An ACP agent is answered with the option that fits.
    let acp = daemon.run_acp(&[]);
    daemon.prompt(&acp, "permission:yes=allow_once,no=reject_once:run:cargo test");
    let asked = daemon.clearance(&acp);
    reconfigure(&daemon, RULES);
    let decided = decision(&daemon, &session, &tests);
    assert_eq!((&decided["status"], &decided["by"]), (&json!("approved"), &json!("tests")));
    let decided = decision(&daemon, &session, &push);
    assert_eq!((&decided["status"], &decided["by"]), (&json!("denied"), &json!("no force")));
    assert_eq!(decided["reason"], "no force denies it: history is shared");
    let decided = decision(&daemon, &acp, &asked);
    assert_eq!((&decided["by"], &decided["option"]), (&json!("tests"), &json!("yes")));
    wait_turns(&daemon, &acp, 1);
    assert_eq!(status(&daemon, &deploy), "pending");
    // What a rule decided later counts as that when other rules are tried.
    let rules = daemon.dir.path().join("rules.toml");
    std::fs::write(&rules, RULES).unwrap();
    let tried = daemon.cli(&["policy", "test", "--rules", rules.to_str().unwrap(), "--json"]).ok().json();
    let counts = ["allowed", "denied", "different"].map(|key| tried[key].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 0], "{tried}");
}

#[test]
fn no_grant_releases_what_takes_several_people_or_the_machine_itself() {
    let agent = format!("{QUICK}{}", profile("coder", &["serve"], ""));
    let quorum = "[clearances]\nquorum = { high = 2 }\n";
    let daemon = Daemon::with_config(&format!("{agent}{quorum}"));
    let session = daemon.run_agent("coder");
    let pending = asks_to_run(&daemon, &session, "1", "cargo build", "high");
    // People were told that it takes two; that one of them allows its twin always does not change it.
    reconfigure(&daemon, &agent);
    let twin = asks_to_run(&daemon, &session, "2", "cargo build", "high");
    let third = asks_to_run(&daemon, &session, "3", "cargo build", "high");
    daemon.cli(&["approve", &twin, "--always", "--yes"]).ok();
    decision(&daemon, &session, &third);
    assert_eq!(status(&daemon, &pending), "pending");
    // A rule of the configuration needs no quorum.
    reconfigure(
        &daemon,
        &format!("{agent}[[rule]]\nname = 'build'\ncommand = 'cargo build'\nthen = 'allow'\n"),
    );
    assert_eq!(decision(&daemon, &session, &pending)["by"], "build");

    let daemon = Daemon::with_config(&format!("{agent}[clearances]\nlocal_only_from = 'high'\n"));
    let session = daemon.run_agent("coder");
    let pending = asks_to_run(&daemon, &session, "1", "cargo build", "high");
    let twin = asks_to_run(&daemon, &session, "2", "cargo build", "high");
    daemon.cli(&["approve", &twin, "--always", "--yes"]).ok();
    // A rule for something else shows when the change has come through.
    let other = asks_to_run(&daemon, &session, "3", "cargo doc", "low");
    let docs = "[[rule]]\ncommand = 'cargo doc'\nthen = 'allow'\n";
    reconfigure(&daemon, &format!("{agent}[clearances]\nlocal_only_from = 'high'\n{docs}"));
    decision(&daemon, &session, &other);
    assert_eq!(status(&daemon, &pending), "pending");
}

#[test]
fn a_daemon_that_dies_before_it_has_released_them_does_so_at_its_next_start() {
    let agent = format!("{QUICK}{}", profile("coder", &["serve"], ""));
    let failing = [("INTERCOM_FAILPOINT", "policy.ruled")];
    let mut daemon = Daemon::start_in(home(&agent), &["--on-stop", "leave"], &failing);
    let session = daemon.run_agent("coder");
    let first = asks_to_run(&daemon, &session, "1", "cargo build", "low");
    let twin = asks_to_run(&daemon, &session, "2", "cargo build", "low");
    let other = asks_to_run(&daemon, &session, "3", "cargo doc", "low");
    daemon.cli(&["approve", &first, "--always", "--yes"]); // it may die before it has answered
    daemon.until("it dies", |daemon| daemon.ended().then_some(()));
    let (dir, _) = daemon.end(Signal::SIGKILL);
    // And by a rule that came while nobody was there.
    let rule = "[[rule]]\nname = 'docs'\ncommand = 'cargo doc'\nthen = 'allow'\n";
    let config = std::fs::read_to_string(dir.path().join("config.toml")).unwrap();
    std::fs::write(dir.path().join("config.toml"), format!("{config}\n{rule}")).unwrap();
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(decision(&daemon, &session, &twin)["via"], "policy");
    assert_eq!(decision(&daemon, &session, &other)["by"], "docs");
    daemon.wait_for(&session, "its answer", |event| {
        event["data"]["message"] == "answered" && event["data"]["id"] == "3"
    });
    assert_eq!(of_kind(&daemon.so_far(&session), "clearance.decided").len(), 3);
}

/// When each rule ends, as the daemon has it.
fn ends(daemon: &Daemon) -> Vec<Option<String>> {
    serde_json::from_value(daemon.get("/api/v1/policy").1["ends_at"].clone()).unwrap()
}

#[test]
fn a_rule_that_lasts_for_a_time_counts_from_when_it_was_first_seen() {
    let rule = |name: &str| {
        format!("[[rule]]\nname = '{name}'\ncommand = 'cargo test'\nfor = '8h'\nthen = 'allow'\n")
    };
    let daemon = Daemon::with_config(&rule("tests"));
    let write = |daemon: &Daemon, rules: &str| {
        let text = format!("[api]\nlisten = \"off\"\n{rules}");
        std::fs::write(daemon.dir.path().join("config.toml"), text).unwrap();
    };
    let reload = |daemon: &Daemon, rules: &str| {
        write(daemon, rules);
        daemon.cli(&["reload"]).ok();
    };
    let first = ends(&daemon);
    assert!(matches!(first.as_slice(), [Some(_)]), "{first:?}");
    let shown = daemon.cli(&["policy", "show"]).ok().stdout;
    assert!(shown.contains(", for 8h; it ends in 7h59m, at "), "{shown}");
    // Beside others, taken out and put back, and with the next daemon it is the same rule.
    reload(&daemon, &format!("[[rule]]\ncommand = 'rm'\nthen = 'deny'\n{}", rule("tests")));
    assert_eq!(ends(&daemon), [None, first[0].clone()]);
    reload(&daemon, "");
    assert_eq!(ends(&daemon), []);
    reload(&daemon, &rule("tests"));
    assert_eq!(ends(&daemon), first);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    assert_eq!(ends(&daemon), first);
    // A changed rule is another one.
    reload(&daemon, &rule("other tests"));
    assert!(ends(&daemon)[0] > first[0], "{first:?}");
    // One that is over stays over, and says so.
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let nine_hours = 9 * 60 * 60 * 1000;
    let database = rusqlite::Connection::open(dir.path().join("state/intercom.db")).unwrap();
    database.execute("UPDATE rules_seen SET first_seen_at = first_seen_at - ?1", [nine_hours]).unwrap();
    drop(database);
    let daemon = Daemon::start_in(dir, &[], &[]);
    let shown = daemon.cli(&["policy", "show"]).ok().stdout;
    assert!(shown.contains(", for 8h; it ended 1h"), "{shown}");
    let (session, _) =
        ask(&daemon, &json!({ "title": "Test", "command": "cargo test", "risk_level": "low" }));
    assert_eq!(daemon.show(&session)["phase"], "waiting");
    // What was taken out long ago is forgotten.
    reload(&daemon, "");
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let database = rusqlite::Connection::open(dir.path().join("state/intercom.db")).unwrap();
    let month = 31_i64 * 24 * 60 * 60 * 1000;
    database.execute("UPDATE rules_seen SET removed_at = removed_at - ?1", [month]).unwrap();
    drop(database);
    let daemon = Daemon::start_in(dir, &[], &[]);
    reload(&daemon, &rule("other tests"));
    let shown = daemon.cli(&["policy", "show"]).ok().stdout;
    assert!(shown.contains("it ends in 7h59m, at "), "{shown}");
}

#[test]
fn one_of_two_approvals_allows_nothing_always() {
    let params = json!({ "title": "Run", "command": "cargo build", "risk_level": "high" });
    let steps = asks(&params);
    let agent = profile("coder", &steps.iter().map(String::as_str).collect::<Vec<_>>(), "");
    let daemon = Daemon::with_config(&format!("{agent}\n[clearances]\nquorum = {{ high = 2 }}\n"));
    let session = daemon.run_agent("coder");
    let id = daemon.clearance(&session);
    let ran = daemon.cli(&["approve", &id, "--always", "--yes"]).ok();
    assert!(ran.stdout.contains("1 of 2 approvals"), "{}", ran.stdout);
    assert_eq!(daemon.get("/api/v1/grants").1["items"], json!([]));
}

#[test]
fn an_agent_that_acts_and_never_asks_is_shown_as_unenforced() {
    let daemon = Daemon::start();
    let tool = r#"notify:tool/update:{"title":"rm -rf build","tool":"execute","status":"completed"}"#;
    let session = daemon.run(&[tool, "status:done", "serve"]);
    daemon.wait_kind(&session, "session.unenforced");
    assert!(daemon.show(&session)["unenforced"].is_string());
    assert!(daemon.cli(&["ls"]).ok().stdout.contains("unenforced"));
    assert!(daemon.cli(&["show", &session]).ok().stdout.contains("unenforced"));
}

#[test]
fn what_came_of_it_is_in_the_ledger() {
    let daemon = Daemon::start();
    let session = daemon.run(&[
        "clearance:1:May I?",
        "answer:1",
        r#"notify:clearance/outcome:{"request":"1","outcome":"done: 3 files"}"#,
        "serve",
    ]);
    let id = daemon.clearance(&session);
    daemon.cli(&["approve", &id, "--reason", "but be careful"]).ok();
    let answered = daemon.wait_status(&session, "answered");
    assert_eq!(answered["params"]["reason"], "but be careful", "a note reaches the agent");
    daemon.wait_kind(&session, "clearance.outcome");
    assert_eq!(daemon.get(&format!("/api/v1/clearances/{id}")).1["outcome"], "done: 3 files");
}

#[test]
fn a_dry_run_over_a_large_ledger_takes_seconds_and_changes_nothing() {
    const ROWS: usize = 100_000;
    let daemon = Daemon::with_config("");
    let (session, _) = ask(&daemon, &json!({ "title": "one", "command": "cargo test", "risk_level": "low" }));
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let database = rusqlite::Connection::open(dir.path().join("state/intercom.db")).unwrap();
    database
        .execute_batch(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
             INSERT INTO clearances (id, session, generation, request, title, risk, claimed_risk, options, status,
                 delivery, requested_at, decided_by, decided_at, tool, command, file_path, diff, computed_risk)
             SELECT printf('clr_%016d', i), 1, 1, '\"' || i || '\"', 'ask ' || i, 'low', 'low', '[]', 'approved',
                 'delivered', 1700000000000 + i, 'ana', 1700000000000 + i,
                 iif(i % 2, 'execute', 'edit'),
                 iif(i % 2, iif(i % 10 = 1, 'rm -rf /', 'cargo test -p crate' || i), NULL),
                 iif(i % 2, NULL, 'src/file' || i || '.rs'), iif(i % 2, NULL, '-a' || char(10) || '+b'), 'low' FROM n"
        ))
        .unwrap();
    let before: i64 = database.query_row("SELECT count(*) FROM audit", [], |row| row.get(0)).unwrap();
    drop(database);
    let daemon = Daemon::start_in(dir, &[], &[]);
    let rules = daemon.dir.path().join("rules.toml");
    std::fs::write(
        &rules,
        "[[rule]]\ncommand = \"cargo test\"\nthen = \"allow\"\n[[rule]]\ncommand = \"rm\"\nthen = \"deny\"\n",
    )
    .unwrap();
    let start = Instant::now();
    let tested = daemon.cli(&["policy", "test", "--rules", rules.to_str().unwrap(), "--json"]).ok().json();
    let took = start.elapsed();
    assert!(took.as_secs() < 60, "{took:?} in a debug build");
    assert_eq!(tested["requests"], ROWS + 1);
    assert_eq!((&tested["allowed"], &tested["denied"]), (&json!(ROWS * 4 / 10 + 1), &json!(ROWS / 10)));
    assert_eq!(tested["different"], json!(ROWS / 2 + 1));
    let first = &tested["differences"][0];
    assert_eq!(
        (&first["risk"], &first["would"]["outcome"]),
        (&json!("critical"), &json!("deny")),
        "riskiest first"
    );
    let start = Instant::now();
    daemon.get("/api/v1/clearances?status=pending");
    daemon.get("/api/v1/clearances?limit=100");
    assert!(start.elapsed().as_millis() < 500, "{:?}", start.elapsed());
    let rows = daemon.cli(&["audit", "--json"]).ok().stdout.lines().count();
    assert_eq!(rows, usize::try_from(before).unwrap() + 1, "only that a daemon was started");
    assert_eq!(daemon.show(&session)["phase"], "ended");
}
