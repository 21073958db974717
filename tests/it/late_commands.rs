//! Commands that come too late: the error says what happened, the hint names a command that works, and nothing is said twice.

use intercom_testkit::harness::Daemon;
use serde_json::json;

/// The error and the hint of a command that fails.
#[track_caller]
fn refusal(daemon: &Daemon, args: &[&str]) -> (String, String) {
    let ran = daemon.cli(args);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
    let (error, hint) = ran.stderr.split_once("\nhint: ").unwrap_or_else(|| panic!("{ran:?}"));
    (error.strip_prefix("error: ").unwrap().to_owned(), hint.trim_end().to_owned())
}

#[test]
fn a_second_decision_is_told_who_decided_and_what_can_still_be_done() {
    let daemon = Daemon::start();
    let ask = ["clearance:a:May I?", "clearance:b:And this?", "question:q:How?", "echo"];
    let session = daemon.run_with(&ask, json!({ "name": "shop" }));
    let question = daemon.question(&session);
    let (_, open) = daemon.get("/api/v1/clearances?status=pending");
    let ids: Vec<&str> =
        open["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    daemon.cli(&["approve", ids[0], "--reason", "looks right"]).ok();
    daemon.cli(&["deny", ids[1]]).ok();
    daemon.cli(&["answer", &question, "continue"]).ok();

    for verb in ["approve", "deny"] {
        let (error, hint) = refusal(&daemon, &[verb, ids[0]]);
        let shape = daemon.tidy(&error);
        assert_eq!(shape, "already approved by ME at DATE TIME UTC: looks right\n", "{error}");
        assert_eq!(
            hint,
            "a decision cannot be changed; `intercom interrupt shop` stops the agent's turn, `intercom stop shop` the agent"
        );
    }
    let (error, hint) = refusal(&daemon, &["approve", ids[1]]);
    assert!(error.starts_with("already denied by "), "{error}");
    assert_eq!(
        hint,
        "a decision cannot be changed; `intercom send shop TEXT` can tell the agent to ask again"
    );
    let (error, hint) = refusal(&daemon, &["answer", &question, "stop"]);
    assert!(error.starts_with("already answered by "), "{error}");
    assert_eq!(hint, "an answer cannot be changed; `intercom send shop TEXT` can tell the agent more");
    // The advice works.
    daemon.cli(&["send", "shop", "ask again"]).ok();
    daemon.cli(&["interrupt", "shop"]).ok();
    daemon.cli(&["stop", "shop"]).ok();
}

#[test]
fn commands_for_a_session_that_has_ended_name_it_in_their_hint() {
    let daemon = Daemon::start();
    let session = daemon.run_with(&["turn-end", "exit:0"], json!({ "name": "shop" }));
    daemon.wait_for_end(&session);
    for args in [
        &["send", "shop", "hello"][..],
        &["nudge", "shop"],
        &["interrupt", &session],
        &["snooze", "shop", "30m"],
    ] {
        let (_, hint) = refusal(&daemon, args);
        assert_eq!(hint, "`intercom resume shop` starts it again", "{args:?}");
    }
    let unnamed = daemon.run(&["exit:0"]);
    daemon.wait_for_end(&unnamed);
    let (_, hint) = refusal(&daemon, &["send", &unnamed, "hello"]);
    assert_eq!(hint, format!("`intercom resume {}` starts it again", &unnamed[..12]));
}

#[test]
fn an_agent_that_could_not_be_started_has_one_reason_and_no_exit_status() {
    let daemon = Daemon::start();
    daemon.cli(&["run", "--name", "bad", "go", "--", "/no/such/program"]);
    for is_seen in [false, true] {
        let shown = daemon.cli(&["show", "bad"]).ok().stdout;
        assert_eq!(
            shown.matches("command not found: /no/such/program").count(),
            1,
            "seen {is_seen}: {shown}"
        );
        assert!(!shown.contains("status unknown"), "seen {is_seen}: {shown}");
    }
}

#[test]
fn lists_say_that_their_json_is_newest_first() {
    let daemon = Daemon::start();
    let session = daemon.run(&["clearance:a:first", "clearance:b:second", "status:asked", "hang"]);
    daemon.wait_status(&session, "asked");
    let shown = daemon.cli(&["clearances"]).ok().stdout;
    assert!(shown.find("first") < shown.find("second"), "{shown}");
    let body = daemon.cli(&["clearances", "--json"]).ok().json();
    assert_eq!((&body["items"][0]["title"], &body["items"][1]["title"]), (&json!("second"), &json!("first")));
    assert_eq!(body, daemon.get("/api/v1/clearances?status=pending").1);
    for verb in ["clearances", "questions", "ls"] {
        let help = daemon.cli(&[verb, "--help"]).ok().stdout;
        assert!(
            help.contains("With --json the list is the daemon's own answer, newest first."),
            "{verb}: {help}"
        );
    }
}
