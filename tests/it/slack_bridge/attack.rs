//! Who wants to break it: agents, strangers, and a Slack that is not what it should be.

use std::time::{Duration, Instant};

use intercom_testkit::harness;
use intercom_testkit::slack::Fault;

use super::*;

/// A reply in a thread, as Slack writes it.
fn reply(event: &str, user: &str, thread: &str, text: &str) -> Value {
    json!({
        "type": "events_api", "envelope_id": format!("env-{event}"), "accepts_response_payload": false,
        "payload": { "type": "event_callback", "event_id": event, "event": {
            "type": "message", "user": user, "channel": CHANNEL, "ts": "1800000000.000100", "thread_ts": thread,
            "text": text,
        } },
    })
}

/// A click on a button that nobody was shown.
fn forged(user: &str, action: &str, value: &str, n: usize) -> Value {
    json!({
        "type": "interactive", "envelope_id": format!("forged-{user}-{action}-{n}"),
        "payload": {
            "type": "block_actions", "trigger_id": format!("t-{user}-{action}-{n}"), "user": { "id": user },
            "channel": { "id": CHANNEL }, "actions": [{ "action_id": action, "value": value }],
        },
    })
}

fn submission(user: &str, form: &str, about: &str, values: &Value, n: usize) -> Value {
    json!({
        "type": "interactive", "envelope_id": format!("form-{user}-{form}-{n}"),
        "payload": {
            "type": "view_submission", "trigger_id": format!("f-{user}-{form}-{n}"), "user": { "id": user },
            "view": { "callback_id": form, "private_metadata": about, "state": { "values": values } },
        },
    })
}

#[test]
fn a_word_decides_nothing_that_its_author_cannot_have_seen() {
    let office = Office::open();
    office.slack.echo(false);
    let session = office.daemon.run(&[
        r#"clearance:c1:{"title":"Read a file","risk_level":"low"}"#,
        "answer:c1",
        r#"clearance:c2:{"title":"Delete everything","risk_level":"critical"}"#,
        "answer:c2",
        "serve",
    ]);
    let first = office.daemon.clearance(&session);
    let card = office.card(&first);
    // On its way for a while, as after a broken connection; meanwhile somebody else is faster, and the agent goes on.
    office.slack.out_of_order(true);
    let said = office.slack.say(ANA, CHANNEL, card.thread_ts.as_deref(), "approve");
    office.daemon.decide(&first, "approve");
    let second = office.slack.message_with(|message| {
        shown(message).contains("Delete everything") && key(message).starts_with("clr_")
    });
    let second = key(&second).to_owned();
    office.slack.out_of_order(false);
    let told = said.wait_ephemeral();
    assert!(pending(&office, &second), "{told:?}");
}

#[test]
fn nobody_waits_for_an_answer_that_somebody_else_cannot_be_given() {
    let office = Office::open();
    let session = office.daemon.run(ASKS);
    let card = office.card(&office.daemon.clearance(&session));
    office.slack.fail("response_url", Fault::Hang, 100);
    for _ in 0..3 {
        office.slack.click(EVE, &card, "allow").wait_acked();
    }
    let before = Instant::now();
    office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
    assert!(before.elapsed() < Duration::from_secs(3), "{:?}", before.elapsed());
}

#[test]
fn an_agent_that_talks_without_end_cannot_hide_what_it_asks() {
    let office = Office::with("verbosity = 'stream'", "");
    let session = office.daemon.run(&[
        "flood:1000:2000",
        r#"clearance:c1:{"title":"May I?","risk_level":"low"}"#,
        "answer:c1",
        "serve",
    ]);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
}

#[test]
fn a_frame_of_any_sort_does_no_harm() {
    let mut office = Office::open();
    let session = office.daemon.run(ASKS);
    let root = office.root(&session).ts;
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let large = format!(
        "{{\"type\":\"events_api\",\"envelope_id\":\"large\",\"payload\":{{\"event\":\"{}\"}}}}",
        "x".repeat(5 << 20)
    );
    for frame in [
        "",
        "nonsense",
        "null",
        "7",
        "[]",
        "{}",
        "\"hello\"",
        "{\"type\":7}",
        "{\"type\":\"hello\",\"num_connections\":\"many\"}",
        "{\"type\":\"later\",\"envelope_id\":\"e1\"}",
        "{\"type\":\"interactive\",\"envelope_id\":7,\"payload\":{}}",
        "{\"type\":\"interactive\",\"envelope_id\":\"e2\"}",
        "{\"type\":\"interactive\",\"envelope_id\":\"e3\",\"payload\":{\"type\":\"block_actions\",\"actions\":{}}}",
        "{\"type\":\"interactive\",\"envelope_id\":\"e4\",\"payload\":{\"type\":\"block_actions\",\"user\":7,\"actions\":[{\"action_id\":7,\"value\":[]}]}}",
        "{\"type\":\"interactive\",\"envelope_id\":\"e5\",\"payload\":{\"type\":\"view_submission\",\"user\":{\"id\":\"U0ANA\"},\"view\":{\"callback_id\":\"send\",\"state\":{\"values\":[1]}}}}",
        "{\"type\":\"slash_commands\",\"envelope_id\":\"e6\",\"payload\":{\"user_id\":[],\"text\":{}}}",
        "{\"type\":\"events_api\",\"envelope_id\":\"e7\",\"payload\":{\"event\":{\"type\":\"message\",\"user\":null,\"channel\":4,\"ts\":1.5}}}",
        "{\"type\":\"events_api\",\"envelope_id\":\"e8\",\"payload\":[]}",
        &deep,
        &large,
    ] {
        office.slack.send_frame(frame);
    }
    // Ids of any length and any characters are only names.
    for (n, id) in ["i".repeat(10_000), "ä\n\u{0}\u{7f}".to_owned(), " ".to_owned()].iter().enumerate() {
        let mut frame = reply(id, ANA, &root, &format!("status:id {n}"));
        frame["envelope_id"] = json!("e".repeat(10_000));
        office.slack.send_frame(&frame.to_string());
        office.slack.send_frame(&frame.to_string());
    }
    // Addresses for answers that lead nowhere.
    for (n, url) in
        ["http://127.0.0.1:1/x", "file:///etc/passwd", "not a url", "http://[::1", ""].iter().enumerate()
    {
        let mut frame = forged(EVE, "allow", &clearance, n);
        frame["payload"]["response_url"] = json!(url);
        office.slack.send_frame(&frame.to_string());
    }
    office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
    for n in 0..3 {
        office.daemon.wait_status(&session, &format!("id {n}"));
    }
    let prompts =
        office.daemon.so_far(&session).iter().filter(|event| event["kind"] == "prompt.queued").count();
    assert_eq!(prompts, 3, "each once");
    assert!(!office.daemon.ended());
}

#[test]
fn what_others_forge_changes_nothing() {
    let office = Office::with("", &harness::profile("helper", &["serve"], ""));
    let session = office.daemon.run(&[
        r#"clearance:c1:{"title":"Edit main.rs","risk_level":"low"}"#,
        "question:q1:Which?",
        "answer:c1",
        "serve",
    ]);
    let (clearance, question) = (office.daemon.clearance(&session), office.daemon.question(&session));
    let (root, _) = (office.root(&session).ts, office.card(&clearance));
    office.card(&question);
    for who in [EVE, VIC] {
        office.slack.add_user(who, who);
    }
    let before = office.daemon.so_far(&session).len();
    let mut n = 0;
    for who in [EVE, VIC, "", "ana", "U0ANA ", "u0ana"] {
        for (action, value) in [
            ("allow", &clearance),
            ("deny", &clearance),
            ("option.0", &clearance),
            ("always", &clearance),
            ("continue", &question),
            ("stop_question", &question),
            ("nudge", &session),
            ("interrupt", &session),
            ("kill", &session),
            ("stop", &session),
            ("snooze", &session),
            ("restart", &session),
        ] {
            n += 1;
            office.slack.send_frame(&forged(who, action, value, n).to_string());
        }
        let value = |block: &str, text: &str| json!({ block: { "input": { "value": text } } });
        let both = json!({ "session": { "s": { "selected_option": { "value": session } } }, "text": { "t": { "value": "status:x" } } });
        for (form, about, values) in [
            ("deny_reason", &clearance, value("reason", "x")),
            ("refine", &question, value("instruction", "x")),
            ("nudge_with", &session, value("message", "x")),
            ("always", &clearance, value("duration", "1h")),
            ("send", &session, both),
        ] {
            n += 1;
            office.slack.send_frame(&submission(who, form, about, &values, n).to_string());
        }
        for word in [
            "approve",
            "deny",
            "deny no",
            "continue",
            "stop",
            "interrupt",
            "nudge",
            "refine x",
            "verbosity quiet",
            "status:hello",
        ] {
            n += 1;
            office.slack.send_frame(&reply(&format!("EvF{n}"), who, &root, word).to_string());
        }
    }
    for who in [EVE, VIC] {
        for text in [
            format!("stop {session}"),
            format!("nudge {session}"),
            format!("send {session} x"),
            "start helper in / x".to_owned(),
        ] {
            office.slack.slash(who, CHANNEL, &text).wait_acked();
        }
    }
    // All of it was taken, and worked off in this order.
    for who in [EVE, VIC] {
        let last = office.slack.click(who, &office.card(&clearance), "allow");
        last.wait_ephemeral();
    }
    let after = office.daemon.so_far(&session);
    assert_eq!(after.len(), before, "{:?}", &after[before..]);
    assert!(pending(&office, &clearance));
    assert_eq!(office.daemon.get("/api/v1/sessions").1["items"].as_array().unwrap().len(), 1);
}

#[test]
fn an_agent_can_say_anything_and_every_card_is_still_one() {
    let office = Office::open();
    let nasty = "<!channel> <@U0ANA> *x* `y` ~z~ _w_ & \u{202e}evil\u{200b} \u{0}\u{1b}[31m \"}]} {\"type\":\"button\"} https://evil.example/<|>\n```\n";
    let long = nasty.repeat(300);
    let asks: Vec<String> = (0..24)
        .map(|n| {
            let text = format!("{n} {long}");
            json!({
                "title": text, "description": text, "file_path": text, "tool": text, "command": text, "diff": text,
                "risk_level": if n % 2 == 0 { "low" } else { "unheard of" },
            })
        })
        .map(|ask| ask.to_string())
        .collect();
    let mut steps: Vec<String> =
        asks.iter().enumerate().map(|(n, ask)| format!("clearance:c{n}:{ask}")).collect();
    let question = json!({ "message": long, "question": long, "text": long });
    steps.push(format!("question:q1:{question}"));
    steps.push(format!(
        "heartbeat:{}",
        json!([{ "label": long, "status": "in_progress" }, { "label": "", "status": nasty }])
    ));
    steps.push("serve".to_owned());
    // Too much for arguments.
    let session = office.daemon.run(&["serve"]);
    office.root(&session);
    office.slack.open_home(ANA);
    for step in steps.chunks(1) {
        office.daemon.prompt(&session, &json!(step).to_string());
    }
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    assert!(
        !shown(&card).contains("<!channel>") || card.blocks.to_string().contains("rich_text"),
        "{}",
        shown(&card)
    );
    assert!(!card.text.contains("<!") && !card.text.contains("<@"), "{}", card.text);
    for action in ["details", "always", "deny_reason"] {
        let act = office.slack.click(ANA, &card, action);
        office.slack.wait_until(action, |state| {
            let opened = state
                .views
                .iter()
                .any(|view| view.body["callback_id"] == action || view.body.to_string().contains(&clearance));
            let told = state.ephemerals.iter().any(|one| one.user == ANA);
            (opened || told).then_some(())
        });
        act.wait_acked();
    }
    for text in ["ls", "clearances", "status"] {
        office.slack.slash(ANA, CHANNEL, text).wait_ephemeral();
    }
    office.slack.say(ANA, CHANNEL, card.thread_ts.as_deref(), "approve").wait_ephemeral();
    office.slack.wait_until("a home", |state| {
        state.homes.get(ANA).filter(|view| view.body.to_string().contains("clr_")).cloned()
    });
    office.slack.click(ANA, &card, "allow");
    office.daemon.wait_kind(&session, "clearance.delivered");
    office.card_when(&clearance, |card| buttons(card).is_empty());
}

#[test]
fn sixty_options_are_not_too_many() {
    let office = Office::open();
    let session = office.daemon.run_acp(&[]);
    let options: Vec<String> =
        (0..60).map(|n| format!("o{n}=allow_once=<!here> *{}* {n}", "w".repeat(100))).collect();
    office
        .daemon
        .prompt(&session, &json!([format!("permission:{}:run:make", options.join(","))]).to_string());
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    let before = buttons(&card);
    assert!(before.contains(&"option.9".to_owned()) && before.contains(&"deny".to_owned()), "{before:?}");
    office.slack.click(ANA, &card, "details");
    office.slack.wait_until("details", |state| state.views.last().cloned());
    // One that is not on the card, and one that is not at all.
    office.slack.send_frame(&forged(ANA, "option.99999999999999999999", &clearance, 1).to_string());
    office.slack.send_frame(&forged(ANA, "option.-1", &clearance, 2).to_string());
    office.slack.send_frame(&forged(ANA, "option.60", &clearance, 3).to_string());
    assert!(pending(&office, &clearance));
    office.slack.click(ANA, &card, "option.3");
    office.daemon.wait_kind(&session, "clearance.delivered");
    let (_, done) = office.daemon.get(&format!("/api/v1/clearances/{clearance}"));
    assert_eq!(done["option"], "o3", "{done}");
}

#[test]
fn who_is_removed_may_do_nothing_from_then_on() {
    let office = Office::open();
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    office.slack.open_home(ANA);
    office.slack.wait_until("a home", |state| {
        state.homes.get(ANA).filter(|home| home.body.to_string().contains("clr_")).cloned()
    });
    office.slack.click(ANA, &card, "deny_reason");
    let view = office.slack.wait_until("a form", |state| state.views.last().cloned());
    let path = office.daemon.dir.path().join("config.toml");
    let text = std::fs::read_to_string(&path)
        .unwrap()
        .replace("slack = \"U0ANA\"", "")
        .replace("role = \"approver\"\nslack = \"U0BO\"", "role = \"operator\"\nslack = \"U0BO\"");
    std::fs::write(&path, text).unwrap();
    office.daemon.cli(&["reload"]).ok();
    assert!(office.slack.click(ANA, &card, "allow").wait_ephemeral().text.contains("not an operator"));
    assert!(
        office
            .slack
            .submit(ANA, &view, &json!({ "reason": "x" }))
            .wait_ephemeral()
            .text
            .contains("not an operator")
    );
    assert!(office.slack.click(BO, &card, "allow").wait_ephemeral().text.contains("approver"));
    assert!(pending(&office, &clearance));
    office.slack.click(ROOT, &card, "allow");
    answered(&office, &session);
    office.slack.wait_until("a home without anything", |state| {
        state.homes.get(ANA).filter(|home| !home.body.to_string().contains("clr_")).map(drop)
    });
}

#[test]
fn one_person_is_not_a_quorum_and_a_local_clearance_is_local() {
    let office = Office::with("", "[clearances]\nquorum = { high = 2 }\nlocal_only_from = \"critical\"\n");
    let session = office.daemon.run(&[
        r#"clearance:c1:{"title":"Deploy","risk_level":"high"}"#,
        "answer:c1",
        r#"clearance:c2:{"title":"Erase","risk_level":"critical"}"#,
        "answer:c2",
        "serve",
    ]);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    office.slack.click(ANA, &card, "allow");
    office.card_when(&clearance, |card| shown(card).contains("1 of 2"));
    office.slack.click(ANA, &card, "allow").wait_acked();
    office.slack.say(ANA, CHANNEL, card.thread_ts.as_deref(), "approve").wait_acked();
    office.slack.say(ANA, CHANNEL, card.thread_ts.as_deref(), "status").wait_ephemeral();
    assert!(pending(&office, &clearance));
    office.slack.click(BO, &card, "allow");
    answered(&office, &session);
    let local = office
        .slack
        .message_with(|message| shown(message).contains("Erase") && key(message).starts_with("clr_"));
    let root = local.thread_ts.clone();
    if buttons(&local).contains(&"allow".to_owned()) {
        let told = office.slack.click(ROOT, &local, "allow").wait_ephemeral();
        assert!(!told.text.is_empty());
    }
    office.slack.say(ROOT, CHANNEL, root.as_deref(), "approve").wait_ephemeral();
    office.slack.send_frame(&forged(ROOT, "option.0", key(&local), 1).to_string());
    office.slack.say(ROOT, CHANNEL, root.as_deref(), "status").wait_ephemeral();
    assert!(pending(&office, key(&local)));
}

#[test]
fn the_same_words_twice_are_two_prompts_and_one_delivery_twice_is_one() {
    let office = Office::open();
    let session = office.daemon.run(&["serve"]);
    let root = office.root(&session).ts;
    office.slack.say(ANA, CHANNEL, Some(&root), "status:again").wait_acked();
    office.slack.say(ANA, CHANNEL, Some(&root), "status:again").wait_acked();
    let one = reply("EvSame", ANA, &root, "status:once");
    for n in 0..5 {
        let mut frame = one.clone();
        frame["envelope_id"] = json!(format!("other {n}"));
        frame["retry_attempt"] = json!(n);
        office.slack.send_frame(&frame.to_string());
    }
    office.slack.say(ANA, CHANNEL, Some(&root), "status:end");
    office.daemon.wait_status(&session, "end");
    let said: Vec<Value> =
        office.daemon.so_far(&session).into_iter().filter(|event| event["kind"] == "status").collect();
    let count = |text: &str| said.iter().filter(|event| event["data"]["message"] == text).count();
    assert_eq!((count("again"), count("once")), (2, 1), "{said:?}");
}

#[test]
fn connections_that_break_all_the_time_cost_nothing_but_time() {
    let office = Office::open();
    let session = office.daemon.run(ASKS);
    let card = office.card(&office.daemon.clearance(&session));
    for n in 0..12 {
        office.slack.wait_connected(1);
        match n % 3 {
            0 => office.slack.drop_sockets(),
            1 => office.slack.send_disconnect("warning"),
            _ => office.slack.send_frame("{\"type\":\"disconnect\"}"),
        }
    }
    office.slack.wait_connected(2);
    let click = office.slack.click(ANA, &card, "allow");
    click.wait_acked();
    assert_eq!(answered(&office, &session)["status"], "approved");
    let connections = office.slack.connections();
    assert!(connections <= 3, "{connections} connections");
}

#[test]
fn clicks_on_what_was_removed_are_answered() {
    let office = Office::with("", "[retention]\ndays = 30\n");
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    office.slack.add_user(ROOT, "root");
    for (n, (action, value)) in [
        ("allow", "clr_gone"),
        ("always", "clr_gone"),
        ("details", "clr_gone"),
        ("refine", "qst_gone"),
        ("nudge_with", "ses_gone"),
        ("kill", ""),
        ("allow", ""),
        ("allow", ".."),
        ("allow", "../../reload"),
        ("allow", "x/../y?z#"),
        ("option.0", ""),
    ]
    .iter()
    .enumerate()
    {
        let act = Instant::now();
        office.slack.send_frame(&forged(ROOT, action, value, n).to_string());
        office.slack.wait_until(&format!("an answer to {action} {value}"), |state| {
            state.ephemerals.iter().find(|one| one.user == ROOT && one.at >= act).map(drop)
        });
    }
    assert!(pending(&office, &clearance));
    office.slack.click(ANA, &card, "allow");
    answered(&office, &session);
}

#[test]
fn forty_sessions_get_their_threads_within_slacks_limits() {
    let office = Office::with("", "[limits]\nmax_sessions = 100\n");
    office.slack.rate_limit(1.0, 25);
    let before = Instant::now();
    let sessions: Vec<String> = (0..40).map(|_| office.daemon.run(&["serve"])).collect();
    for session in &sessions {
        office.root(session);
    }
    let refused = office.slack.calls().iter().filter(|call| call.status == 429).count();
    eprintln!("40 roots in {:?}, {refused} refused as too fast", before.elapsed());
    assert!(refused <= 3, "{refused} calls were too fast");
}

#[test]
fn what_agents_say_does_not_keep_decided_cards_from_being_shown_so() {
    let office = Office::with("verbosity = 'stream'", "");
    let talk: Vec<&str> = std::iter::repeat_n(["status:and so on", "sleep:1000"], 60).flatten().collect();
    let talkers: Vec<String> = (0..14).map(|_| office.daemon.run(&talk)).collect();
    for session in &talkers {
        office.says(session, "and so on");
    }
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    // What was saved up for a burst is spent.
    let edits = |office: &Office| office.slack.calls_of("chat.update").len();
    office.slack.wait_until("thirty edits", |state| {
        (state.calls.iter().filter(|call| call.method == "chat.update").count() >= 34).then_some(())
    });
    eprintln!("{} edits", edits(&office));
    office.slack.click(ANA, &card, "allow");
    answered(&office, &session);
    let before = Instant::now();
    office.card_when(&clearance, |card| buttons(card).is_empty());
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    for session in &talkers {
        office.daemon.cli(&["kill", session]).ok();
    }
}
