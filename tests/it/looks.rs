//! Output as people read it on a terminal of 80 columns: names, whole words, local times, and no raw JSON.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use intercom_testkit::client::PATIENCE;
use intercom_testkit::harness::{Daemon, command, run, wait_turns};
use serde_json::json;

use crate::first_use::{on_a_terminal, on_a_terminal_until};

/// The words of a screen that is wrapped between words only are the words of the same text on one line.
fn words(text: &str) -> Vec<String> {
    let text = text.replace("  │ ", " ");
    text.split_whitespace().filter(|word| !word.ends_with("> ")).map(str::to_owned).collect()
}

#[test]
fn watch_names_sessions_and_shows_titles_on_a_whole_screen() {
    let daemon = Daemon::start();
    let named = daemon.run_with(&["serve"], json!({ "name": "shop" }));
    let bare = daemon.run(&["serve"]);
    daemon.prompt(&bare, "status:the basket is empty");
    daemon.wait_for(&bare, "its words", |event| event["data"]["message"] == "the basket is empty");
    let asks =
        "question:q:Shall I \"really\" go on with all of this until the end of the day, come what may?";
    daemon.prompt(&named, asks);
    daemon.wait_kind(&named, "question.asked");
    let shown = on_a_terminal_until(&daemon, "watch", |shown| shown.contains("asks qst_"));
    let rows: Vec<&str> = shown.lines().collect();
    assert!(rows[0].ends_with("Ctrl-C quits"), "the last column is there: {shown}");
    assert!(rows.iter().any(|row| row.starts_with("SESSION") && row.contains("TITLE")), "{shown}");
    assert!(
        rows.iter().any(|row| row.starts_with(&bare[..12]) && row.contains("status:the basket")),
        "{shown}"
    );
    assert!(rows.iter().any(|row| row.contains("  shop  asks qst_")), "{shown}");
    let waits = rows.iter().find(|row| row.starts_with("qst_")).unwrap_or_else(|| panic!("{shown}"));
    assert!(waits.contains("  shop  ") && waits.contains("“Shall I 'really' go on"), "{shown}");
    assert!(waits.ends_with("all of this…”"), "cut between words, and the quote is closed: {waits}");
}

#[test]
fn watch_in_a_pipe_has_names_and_titles() {
    let daemon = Daemon::start();
    let named = daemon.run_with(&["serve"], json!({ "name": "shop" }));
    let bare = daemon.run(&["serve"]);
    daemon.prompt(&bare, "status:first");
    daemon.wait_for(&bare, "its words", |event| event["data"]["message"] == "first");
    let mut watch = command(daemon.dir.path()).arg("watch").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let labels = ["  shop  agent> n".to_owned(), format!("  {} “status:first”  agent> b", &bare[..12])];
    let (mut seen, start) = (Vec::<String>::new(), Instant::now());
    // The watch shows what comes after it has begun, so both speak until it does.
    while !labels.iter().all(|label| seen.iter().any(|line| line.contains(label.as_str()))) {
        assert!(start.elapsed() < PATIENCE, "{seen:#?}");
        daemon.prompt(&named, "status:n");
        daemon.prompt(&bare, "status:b");
        seen.extend(receiver.recv_timeout(Duration::from_millis(100)));
        seen.extend(receiver.try_iter());
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn messages_that_nobody_knows_are_one_quiet_line_and_part_no_message() {
    let daemon = Daemon::start();
    let session = daemon.run_acp(&[]);
    let unknown = r#"notify:_auth/status_update:{"status":"ok","detail":{"deep":[1,2]}}"#;
    let new = r#"update:{"sessionUpdate":"brand_new","detail":{"deep":[3]}}"#;
    let steps = json!(["say:Hel", unknown, "usage:5:100", new, "say:lo", unknown, new, "tool:t:run:make"]);
    daemon.prompt(&session, &steps.to_string());
    wait_turns(&daemon, &session, 1);
    let logs = daemon.cli(&["logs", &session]).ok().stdout;
    let told: Vec<&str> = logs.lines().filter_map(|line| line.get(21..)).collect();
    assert!(told.contains(&"agent> Hello"), "{logs}");
    assert_eq!(logs.matches("_auth/status_update").count() - 2, 1, "beside the prompt, once: {logs}");
    assert_eq!(told.iter().filter(|line| **line == "agent> update brand_new").count(), 1, "{logs}");
    assert!(told.iter().all(|line| line.starts_with("prompt ") || !line.contains("deep")), "{logs}");
    let raw = daemon.cli(&["logs", &session, "--raw"]).ok().stdout;
    assert!(raw.lines().any(|line| line.contains("  unknown {") && line.contains("deep")), "{raw}");
}

#[test]
fn long_lines_are_wrapped_between_words_and_lose_none() {
    let daemon = Daemon::with_config(
        "[[rule]]\nname = \"no force at all, whoever asks for it\"\nthen = \"deny\"\ncommand = [[\"git\", \"push\", \"--force\"], [\"git\", \"push\", \"--force-with-lease\"]]\n",
    );
    let deep = daemon.workspace().join("customers/with a long name/shop");
    std::fs::create_dir_all(&deep).unwrap();
    let ask = r#"clearance:c:{"title":"Remove what was built before the last release was made","command":"rm -rf target/release/build target/release/incremental target/debug/incremental"}"#;
    let session =
        daemon.run_with(&[ask, "hang"], json!({ "name": "a-name-of-some-length", "workspace": deep }));
    let clearance = daemon.clearance(&session);
    for verb in ["audit", "policy show", "clearances"] {
        let shown = on_a_terminal(&daemon, verb);
        let piped = daemon.cli(&verb.split(' ').collect::<Vec<_>>()).ok();
        let piped = piped.stdout + &piped.stderr;
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{verb}: {shown}");
        let (seen, all) = (words(&shown), words(&piped));
        // Times and ages may differ by the moment; every word is there, and no half of one.
        let odd = |word: &&String| !word.ends_with('s') && !all.contains(*word) && !word.contains(':');
        assert!(!seen.iter().any(|word| odd(&word)), "{verb}: {:?} of {shown}", seen.iter().find(odd));
        // A column whose cells all stand below their rows has no header.
        assert!(seen.len() + 1 >= all.len(), "{verb}: {shown}");
    }
    let shown = on_a_terminal(&daemon, "clearances");
    assert!(shown.contains(&clearance[..12]) && shown.contains("a-name-of-some-length"), "{shown}");
    let doctor = on_a_terminal(&daemon, "doctor");
    assert!(
        doctor.lines().filter(|line| !line.contains("hint: ")).all(|line| line.chars().count() <= 80),
        "{doctor}"
    );
    assert!(
        doctor.lines().any(|line| line.starts_with(&" ".repeat(23))),
        "details go on below themselves: {doctor}"
    );
}

#[test]
fn times_inside_of_a_line_are_local_with_their_zone() {
    let daemon = Daemon::start();
    let session = daemon.run(&["serve"]);
    let zone = |args: &[&str]| {
        run(command(daemon.dir.path()).env("TZ", "IST-5:30").args(args).current_dir(daemon.workspace()))
            .ok()
            .stdout
    };
    assert!(zone(&["snooze", &session, "2h"]).contains(" IST"));
    daemon.wait_kind(&session, "stall.snoozed");
    let until = daemon.show(&session)["standing"]["snoozed_until"].as_str().unwrap().to_owned();
    let logs = zone(&["logs", &session]);
    let line = logs.lines().find(|line| line.contains("snoozed until")).unwrap_or_else(|| panic!("{logs}"));
    assert!(line.contains(" IST by ") && !line.contains(&until[..16]), "{line}");
    let utc = zone(&["--utc", "logs", &session]);
    let line = utc.lines().find(|line| line.contains("snoozed until")).unwrap_or_else(|| panic!("{utc}"));
    let shown = until[..19].replace('T', " ");
    assert!(line.contains(&format!("{shown} UTC by ")), "{line}: {until}");
    // A refusal of the daemon, too.
    daemon.prompt(&session, "question:q:Go on?");
    daemon.wait_kind(&session, "question.asked");
    let question =
        daemon.get("/api/v1/questions?status=pending").1["items"][0]["id"].as_str().unwrap().to_owned();
    daemon.cli(&["answer", &question, "continue"]).ok();
    let late = run(command(daemon.dir.path()).env("TZ", "IST-5:30").args(["answer", &question, "stop"]));
    assert!(late.code == 1 && late.stderr.contains(" IST") && !late.stderr.contains('Z'), "{late:?}");
}
