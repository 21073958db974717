//! What people see, and what becomes of it.

use intercom_testkit::harness::profile;

use super::*;

#[test]
fn a_clearance_is_asked_decided_delivered_and_shown_so() {
    let office = Office::open();
    let session = office.daemon.run(ASKS);
    let root = office.root(&session);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    assert_eq!(card.thread_ts.as_deref(), Some(root.ts.as_str()), "in the session's thread");
    assert_eq!(buttons(&card), ["allow", "always", "deny", "deny_reason", "details"]);
    for (_, element) in card.elements() {
        assert_eq!(element["value"], clearance, "the value of a button is an id and nothing else");
    }
    assert!(shown(&card).contains("src/main.rs") && shown(&card).contains("medium"), "{}", shown(&card));
    let click = office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
    let done = office.card_when(&clearance, |card| shown(card).contains("delivered"));
    assert!(buttons(&done).is_empty() && shown(&done).contains("ana"), "{}", shown(&done));
    click.wait_acked();
    // Who comes late is told, and nobody else.
    let late = office.slack.click(BO, &card, "deny");
    let told = late.wait_ephemeral();
    assert!(told.text.contains("Already approved by ana"), "{told:?}");
    assert!(office.slack.ephemerals(ANA).is_empty());
    assert_eq!(office.slack.messages().iter().filter(|message| key(message) == clearance).count(), 1);
}

#[test]
fn what_is_decided_elsewhere_is_shown_on_the_card() {
    let office = Office::open();
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    office.card(&clearance);
    office.daemon.cli(&["deny", &clearance, "--reason", "not on a friday"]).ok();
    let card = office.card_when(&clearance, |card| shown(card).contains("not on a friday"));
    assert!(buttons(&card).is_empty(), "{}", shown(&card));
    // An agent that goes takes its questions along.
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    office.card(&clearance);
    office.daemon.cli(&["stop", &session]).ok();
    let card = office.card_when(&clearance, |card| buttons(card).is_empty());
    assert!(shown(&card).contains("Withdrawn"), "{}", shown(&card));
    office.says(&session, "stopped by");
    let root = office.card_when(&session, |root| buttons(root).is_empty());
    assert!(shown(&root).to_lowercase().contains("ended"), "{}", shown(&root));
}

#[test]
fn a_reason_is_asked_for_in_a_form_and_reaches_the_agent() {
    let office = Office::open();
    let session = office.daemon.run(ASKS);
    let card = office.card(&office.daemon.clearance(&session));
    office.slack.click(ANA, &card, "deny_reason");
    let view = office.slack.wait_until("a form", |state| state.views.last().cloned());
    office.slack.submit(ANA, &view, &json!({ "reason": "touches prod" }));
    let answer = answered(&office, &session);
    assert_eq!(
        (&answer["status"], &answer["params"]["reason"]),
        (&json!("rejected"), &json!("touches prod"))
    );
}

#[test]
fn always_shows_the_rule_and_stores_that_rule() {
    let ask =
        r#"clearance:c1:{"title":"Run tests","command":"cargo test","tool":"execute","risk_level":"low"}"#;
    let again =
        r#"clearance:c2:{"title":"Run tests","command":"cargo test","tool":"execute","risk_level":"low"}"#;
    let office = Office::with("", &profile("tester", &[ask, "answer:c1", "serve"], ""));
    let session = office.daemon.run_agent("tester");
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    office.slack.click(ANA, &card, "always");
    let view = office.slack.wait_until("a form", |state| state.views.last().cloned());
    let text = view.body.to_string();
    assert!(text.contains("exactly `cargo test`") || text.contains("beginning with `cargo test`"), "{text}");
    assert!(view.body["private_metadata"].as_str().unwrap().starts_with(&clearance));
    let told = office.slack.submit(ANA, &view, &json!({ "duration": "1h" })).wait_ephemeral();
    assert!(told.text.contains("From now on") && told.text.contains("cargo test"), "{told:?}");
    office.daemon.prompt(&session, &json!([again, "turn-end"]).to_string());
    // The second one is not asked about, and the summary counts it.
    let summary = office.says(&session, "1 allowed by rules");
    assert!(
        shown(&summary).contains("tool call") || shown(&summary).contains("allowed"),
        "{}",
        shown(&summary)
    );
    let grants = office.daemon.cli(&["policy", "grants", "--json"]).ok().json();
    assert_eq!(grants["items"][0]["created_by"], "ana", "{grants}");
    assert!(grants["items"][0]["expires_at"].is_string(), "{grants}");
    let cards =
        office.slack.messages().into_iter().filter(|message| key(message).starts_with("clr_")).count();
    assert_eq!(cards, 1, "what rules decide needs no card");
}

#[test]
fn high_risk_asks_twice_and_a_quorum_counts() {
    let office = Office::with("", "[clearances]\nquorum = { high = 2 }\n");
    let session =
        office.daemon.run(&[r#"clearance:c1:{"title":"Deploy","risk_level":"high"}"#, "answer:c1", "serve"]);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    let allow = card.elements().into_iter().find(|(_, element)| element["action_id"] == "allow").unwrap().1;
    assert!(allow["confirm"]["text"]["text"].as_str().unwrap().contains("high"), "{allow}");
    office.slack.click(ANA, &card, "allow");
    let card = office.card_when(&clearance, |card| shown(card).contains("1 of 2"));
    assert!(shown(&card).contains("ana") && !buttons(&card).is_empty(), "{}", shown(&card));
    office.slack.click(BO, &card, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
    office.card_when(&clearance, |card| buttons(card).is_empty());
}

#[test]
fn a_long_diff_is_cut_on_the_card_and_whole_in_a_file() {
    let office = Office::open();
    let lines: Vec<String> = (0..200).map(|n| format!("+line number {n}\n")).collect();
    let lines = lines.concat();
    let diff = format!("--- a/x\n+++ b/x\n@@ -0,0 +1,200 @@\n{lines}");
    let ask = json!({ "title": "Write x", "file_path": "x", "diff": diff, "risk_level": "low" });
    let session = office.daemon.run(&[&format!("clearance:c1:{ask}"), "answer:c1", "serve"]);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    assert!(shown(&card).contains("line number 40") && !shown(&card).contains("line number 150"));
    let file =
        office.slack.wait_until("a file", |state| state.files.iter().find(|file| file.completed).cloned());
    assert_eq!(file.content.as_deref(), Some(diff.as_bytes()));
    assert_eq!(file.thread_ts.as_deref(), Some(office.root(&session).ts.as_str()));
}

#[test]
fn questions_are_answered_by_buttons_forms_and_words() {
    let office = Office::open();
    let steps = [
        "question:q1:Which way?",
        "answer:q1",
        "question:q2:And now?",
        "answer:q2",
        "question:q3:Done?",
        "answer:q3",
    ];
    let session = office.daemon.run(&steps);
    let card = office.card(&office.daemon.question(&session));
    assert_eq!(buttons(&card), ["continue", "refine", "stop_question"]);
    office.slack.click(ANA, &card, "continue");
    let second = office
        .slack
        .message_with(|message| shown(message).contains("And now?") && key(message).starts_with("qst_"));
    office.slack.click(ANA, &second, "refine");
    let view = office.slack.wait_until("a form", |state| state.views.last().cloned());
    office.slack.submit(ANA, &view, &json!({ "instruction": "use sqlite" }));
    let third = office
        .slack
        .message_with(|message| shown(message).contains("Done?") && key(message).starts_with("qst_"));
    let said = office.slack.say(BO, CHANNEL, third.thread_ts.as_deref(), "refine it is not");
    office.daemon.wait_for_end(&session);
    let answers: Vec<Value> = office
        .daemon
        .all_events(&session)
        .into_iter()
        .filter(|event| event["data"]["message"] == "answered")
        .map(|event| event["data"].clone())
        .collect();
    let told: Vec<(&str, Option<&str>)> = answers
        .iter()
        .map(|answer| (answer["status"].as_str().unwrap(), answer["params"]["instruction"].as_str()))
        .collect();
    assert_eq!(told, [("continue", None), ("refine", Some("use sqlite")), ("refine", Some("it is not"))]);
    office.slack.wait_until("a reaction", |state| {
        state
            .messages
            .iter()
            .find(|message| message.ts == said.ts)
            .filter(|message| !message.reactions.is_empty())
            .map(drop)
    });
    let id = key(&third).to_owned();
    let done = office.card_when(&id, |card| buttons(card).is_empty());
    assert!(shown(&done).contains("bo") && shown(&done).contains("it is not"), "{}", shown(&done));
}

#[test]
fn an_exit_is_told_with_what_it_wrote_and_can_be_undone() {
    let steps = ["stderr:the disk is on fire", "status:hello", "exit:3"];
    let office = Office::with("", &profile("mortal", &steps, ""));
    let session = office.daemon.run_agent("mortal");
    let exit = format!("exit {session} 1");
    let card = office.card(&exit);
    assert!(shown(&card).contains("the disk is on fire") && shown(&card).contains('3'), "{}", shown(&card));
    assert_eq!(buttons(&card), ["restart"]);
    // Starting takes an admin.
    let refused = office.slack.click(ANA, &card, "restart").wait_ephemeral();
    assert!(refused.text.contains("admin"), "{refused:?}");
    office.slack.click(ROOT, &card, "restart");
    let card = office.card_when(&exit, |card| buttons(card).is_empty());
    assert!(shown(&card).contains("restarted by root"), "{}", shown(&card));
    office.card(&format!("exit {session} 2"));
}

#[test]
fn a_stall_has_one_card_that_climbs_with_the_ladder() {
    let stall = "[stall]\nsilent_after = '1s'\nno_cpu_after = '1s'\nverify = '1s'\nladder = ['alert', 'nudge', 'escalate']\n";
    let office = Office::with("ping = ['ana']", stall);
    let session = office.daemon.run(&["status:go", "hang"]);
    office.root(&session);
    let stalled = |message: &Message| key(message).starts_with("stall ");
    let card = office.slack.message_with(|message| stalled(message) && !buttons(message).is_empty());
    assert_eq!(buttons(&card), ["nudge", "nudge_with", "interrupt", "kill", "snooze"]);
    assert!(shown(&card).contains("<@U0ANA>"), "{}", shown(&card));
    let id = key(&card).to_owned();
    office.card_when(&id, |card| shown(card).contains("nudge") && shown(card).contains("did not help"));
    // Nobody is told of an edit, so the last step is a message of its own.
    office.says(&session, "needs a person");
    assert_eq!(office.slack.messages().iter().filter(|message| stalled(message)).count(), 1);
    let kill = card.elements().into_iter().find(|(_, element)| element["action_id"] == "kill").unwrap().1;
    assert!(kill["confirm"].is_object(), "{kill}");
    office.slack.click(ROOT, &card, "kill");
    let over = office.card_when(&id, |card| buttons(card).is_empty());
    assert!(shown(&over).to_lowercase().contains("resolved"), "{}", shown(&over));
    office.daemon.wait_for_end(&session);
}

#[test]
fn a_kill_does_not_wait_for_a_stop_that_takes_long() {
    let stall = "[stall]\nsilent_after = '1s'\nno_cpu_after = '1s'\nladder = ['alert', 'escalate']\n";
    let stop = "[stop]\nafter_interrupt_seconds = 60\n";
    let mut office = Office::with("", &(stop.to_owned() + stall));
    let session = office.daemon.run(&["status:go", "hang"]);
    let card = office.slack.message_with(|message| {
        key(message).starts_with("stall ") && buttons(message).contains(&"kill".to_owned())
    });
    office.slack.click(ROOT, &office.root(&session), "stop");
    office.daemon.until("the stop", |daemon| (daemon.show(&session)["phase"] == "stopping").then_some(()));
    office.slack.click(ROOT, &card, "kill");
    office.daemon.wait_for_end(&session);
}

#[test]
fn a_thread_says_as_much_as_it_is_asked_to() {
    let office = Office::open();
    let session = office.daemon.run(&["serve"]);
    let root = office.root(&session).ts;
    let thread = |text: &str| office.slack.say(ANA, CHANNEL, Some(&root), text);
    thread("status:first words;turn-end");
    office.says(&session, "first words");
    thread("verbosity quiet");
    office.slack.wait_until("the word to be taken", |state| {
        state
            .messages
            .iter()
            .find(|message| message.text == "verbosity quiet" && !message.reactions.is_empty())
            .map(drop)
    });
    // Its card is the sign that Slack's side has come past these words before the next one is sent.
    thread("status:second words;clearance:c1:May I?;turn-end");
    office.card(&office.daemon.clearance(&session));
    thread("verbosity stream");
    office.slack.wait_until("the word to be taken", |state| {
        state
            .messages
            .iter()
            .find(|message| message.text == "verbosity stream" && !message.reactions.is_empty())
            .map(drop)
    });
    thread("status:third words;status:fourth words;turn-end");
    let streamed = office.says(&session, "fourth words");
    assert!(
        key(&streamed).starts_with("talk ") && shown(&streamed).contains("third words"),
        "{}",
        shown(&streamed)
    );
    assert!(!office.slack.thread(&root).iter().any(|message| shown(message).contains("second words")));
}

#[test]
fn a_long_speech_is_streamed_in_full() {
    let office = Office::with("verbosity = 'stream'", "");
    let session = office.daemon.run(&["serve"]);
    office.root(&session);
    let speech: Vec<String> = (0..800).map(|n| format!("word{n}")).collect();
    office.daemon.prompt(&session, &json!([format!("status:{}", speech.join(" ")), "turn-end"]).to_string());
    office.says(&session, "word799");
    for n in [0, 400, 799] {
        office.says(&session, &format!("word{n}"));
    }
}

#[test]
fn the_status_card_follows_and_is_not_edited_too_often() {
    let office = Office::open();
    let beats: Vec<String> =
        (0..200).map(|n| format!("heartbeat:step {n}=in_progress,later=pending")).collect();
    let mut steps: Vec<&str> = beats.iter().map(String::as_str).collect();
    steps.push("serve");
    let session = office.daemon.run(&steps);
    office.card_when(&session, |root| shown(root).contains("step 199"));
    let root = office.root(&session);
    assert!(root.versions.len() <= 6, "{} edits", root.versions.len());
    for pair in root.versions.windows(2).skip(1) {
        let apart = pair[1].at - pair[0].at;
        assert!(apart.as_millis() >= 1_800, "{apart:?}");
    }
}

#[test]
fn agents_cannot_ping_link_or_hide() {
    let office = Office::with("", &profile("sly", &["serve"], ""));
    let hostile = "<!channel> @here <@U0ANA> <https://evil.example|click> *bold* `code` https://evil.example \u{202e}txt\u{200b}";
    let ask = json!({ "title": hostile, "description": hostile, "file_path": hostile, "command": hostile, "risk_level": "low" });
    let session = office.daemon.run(&[
        &format!("clearance:c1:{ask}"),
        &format!("question:q1:{}", json!({ "text": hostile })),
        "answer:c1",
        "serve",
    ]);
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let telling = office.daemon.run(&[&format!("status:the token is {secret}"), "turn-end", "serve"]);
    let card = office.card(&office.daemon.clearance(&session));
    let question = office.card(&office.daemon.question(&session));
    let summary = office.says(&telling, "the token is");
    for message in [&card, &question] {
        // Where Slack reads marks; rich text is shown as it is.
        let marked = marked(&message.blocks) + &message.text;
        assert!(
            !marked.contains("<!channel") && !marked.contains("<@U0ANA>") && !marked.contains("<https"),
            "{marked}"
        );
        assert!(!marked.contains("://"), "{marked}");
        let all = shown(message) + &message.text;
        assert!(!all.contains('\u{202e}') && !all.contains('\u{200b}') && all.contains("U+202E"), "{all}");
    }
    assert!(!shown(&summary).contains(secret) && !summary.text.contains(secret), "{}", shown(&summary));
}

#[test]
fn the_options_of_an_acp_agent_are_its_own() {
    let office = Office::open();
    let session = office.daemon.run_acp(&[]);
    office.daemon.prompt(
        &session,
        "permission:a=allow_once=Only this file,b=allow_once=This folder,n=reject_once=No:run:make",
    );
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    let names: Vec<String> = card
        .elements()
        .iter()
        .map(|(_, element)| element["text"]["text"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(
        names.contains(&"Only this file".to_owned()) && names.contains(&"This folder".to_owned()),
        "{names:?}"
    );
    office.slack.click(ANA, &card, "option.1");
    let done = office.card_when(&clearance, |card| buttons(card).is_empty());
    assert!(shown(&done).contains("ana"), "{}", shown(&done));
    let (_, body) = office.daemon.get(&format!("/api/v1/clearances/{clearance}"));
    assert_eq!((&body["status"], &body["option"]), (&json!("approved"), &json!("b")), "{body}");
}

/// All text that Slack looks at for marks.
fn marked(value: &Value) -> String {
    match value {
        Value::Object(map) if map.get("type").is_some_and(|kind| kind == "mrkdwn") => {
            map["text"].as_str().unwrap().to_owned()
        }
        Value::Object(map) => map.values().map(marked).collect(),
        Value::Array(items) => items.iter().map(marked).collect(),
        _ => String::new(),
    }
}
