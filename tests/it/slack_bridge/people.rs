//! Who may do what, by which words, and who is called.

use intercom_testkit::harness::profile;
use intercom_testkit::slack::{BOT_USER, Fault};

use super::*;

fn reacted(office: &Office, ts: &str, name: &str) {
    office.slack.wait_until(&format!("the reaction {name}"), |state| {
        let message = state.messages.iter().find(|message| message.ts == ts)?;
        message.reactions.iter().any(|(reaction, _)| reaction == name).then_some(())
    });
}

#[test]
fn strangers_and_viewers_may_do_nothing_and_it_is_written_down() {
    let office = Office::open();
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    let (root, card) = (office.root(&session), office.card(&clearance));
    let told = office.slack.click(EVE, &card, "allow").wait_ephemeral();
    assert!(told.text.contains("not an operator") && told.text.contains(EVE), "{told:?}");
    let told = office.slack.say(EVE, CHANNEL, Some(&root.ts), "approve").wait_ephemeral();
    assert!(told.text.contains("not an operator"), "{told:?}");
    let told = office.slack.slash(EVE, CHANNEL, "ls").wait_ephemeral();
    assert!(told.text.contains("not an operator") && !told.text.contains("ses_"), "{told:?}");
    let told = office.slack.slash(EVE, CHANNEL, "whoami").wait_ephemeral();
    assert!(told.text.contains(EVE) && told.text.contains("not an operator"), "{told:?}");
    office.slack.open_home(EVE);
    let home = office.slack.wait_until("a home", |state| state.homes.get(EVE).cloned());
    assert!(!home.body.to_string().contains("ses_") && !home.body.to_string().contains("Edit main.rs"));
    let told = office.slack.click(VIC, &card, "allow").wait_ephemeral();
    assert!(told.text.contains("needs the role approver"), "{told:?}");
    let told = office.slack.say(VIC, CHANNEL, Some(&root.ts), "verbosity quiet").wait_ephemeral();
    assert!(told.text.contains("needs the role operator"), "{told:?}");
    assert_eq!(office.daemon.get(&format!("/api/v1/clearances/{clearance}")).1["status"], "pending");
    let refused = audit(&office, "access.refused");
    let by: Vec<&str> = refused.iter().map(|row| row["by"].as_str().unwrap()).collect();
    assert_eq!(
        by,
        [&format!("slack {EVE}")[..], &format!("slack {EVE}"), &format!("slack {EVE}"), "vic", "vic"],
        "{refused:?}"
    );
    assert_eq!(refused[0]["data"]["what"], "click allow");
    // What a person does is in the record under their name, and how it came.
    office.slack.click(ANA, &card, "allow");
    answered(&office, &session);
    let decided = audit(&office, "clearance.decided");
    assert_eq!((&decided[0]["by"], &decided[0]["data"]["via"]), (&json!("ana"), &json!("slack")));
}

#[test]
fn words_in_a_thread_are_commands_and_everything_else_is_a_prompt() {
    let office = Office::open();
    let session = office.daemon.run(&[
        r#"clearance:c1:{"title":"One","risk_level":"low"}"#,
        r#"clearance:c2:{"title":"Two","risk_level":"low"}"#,
        "answer:c1",
        "answer:c2",
        "serve",
    ]);
    let root = office.root(&session).ts;
    let say = |text: &str| office.slack.say(ANA, CHANNEL, Some(&root), text);
    let titled = |title: &str| {
        let card = office
            .slack
            .message_with(|message| key(message).starts_with("clr_") && shown(message).contains(title));
        key(&card).to_owned()
    };
    let (first, second) = (titled("One"), titled("Two"));
    let several = say("approve").wait_ephemeral();
    assert!(
        several.text.contains("Several clearances") && several.text.contains(&first[..12]),
        "{several:?}"
    );
    let named = format!("<@{BOT_USER}> approve {}", &first[..12]);
    reacted(&office, &say(&named).ts, "white_check_mark");
    assert!(!pending(&office, &first));
    reacted(&office, &say("deny it breaks &amp; burns").ts, "white_check_mark");
    let (_, body) = office.daemon.get(&format!("/api/v1/clearances/{second}"));
    assert_eq!((&body["status"], &body["reason"]), (&json!("denied"), &json!("it breaks & burns")));
    let nothing = say("approve").wait_ephemeral();
    assert!(nothing.text.contains("No clearance is pending"), "{nothing:?}");
    // Now that nothing waits, it is a sentence like any other.
    let prompt = say("status:deny everything");
    reacted(&office, &prompt.ts, "white_check_mark");
    office.daemon.wait_status(&session, "deny everything");
    let status = say("status").wait_ephemeral();
    assert!(status.blocks.to_string().contains(&session), "{status:?}");
    assert!(say("queue").wait_ephemeral().text.contains("Nothing is queued"));
    assert!(say("help").wait_ephemeral().blocks.to_string().contains("/intercom"));
    // What other bots say, what is edited, and what is said elsewhere is nobody's order.
    office.slack.other_bot_says(Some(&root), "stop");
    office.slack.edit(ANA, &prompt.ts, "stop");
    office.slack.say(ANA, CHANNEL, None, "stop").wait_acked();
    reacted(&office, &say("nudge: are you there?").ts, "white_check_mark");
    office.daemon.wait_for(&session, "the nudge", |event| event["data"]["message"] == "are you there?");
    assert_ne!(office.daemon.show(&session)["phase"], "ended");
    reacted(&office, &say("Stop").ts, "white_check_mark");
    assert_eq!(office.daemon.show(&session)["phase"], "ended");
    let late = say("one more thing").wait_ephemeral();
    assert!(late.text.contains("ended"), "{late:?}");
}

#[test]
fn a_reply_to_a_busy_agent_waits_and_is_shown_to_wait() {
    let steps = ["status:busy", "wait-file:go", "heartbeat", "serve"];
    let office = Office::with("", &profile("slow", &steps, "prompt_delivery = \"heartbeat\""));
    let session = office.daemon.run_agent("slow");
    let root = office.root(&session).ts;
    let said = office.slack.say(ANA, CHANNEL, Some(&root), "status:later");
    reacted(&office, &said.ts, "hourglass_flowing_sand");
    let queue = office.slack.say(ANA, CHANNEL, Some(&root), "queue").wait_ephemeral();
    assert!(queue.text.contains("status:later") && queue.text.contains("ana"), "{queue:?}");
    std::fs::write(office.daemon.workspace().join("go"), "").unwrap();
    reacted(&office, &said.ts, "white_check_mark");
    assert_eq!(office.slack.reactions(&said.ts), ["white_check_mark"]);
    office.daemon.wait_status(&session, "later");
}

#[test]
fn slash_commands_are_answered_privately() {
    let work = "[workspaces.work]\npath = \"/\"\n";
    let office = Office::with("", &(profile("helper", &["serve"], "") + work));
    let slash = |user: &str, text: &str| office.slack.slash(user, CHANNEL, text).wait_ephemeral().text;
    assert!(slash(ANA, "ls").contains("No session is running"));
    assert!(slash(ANA, "start helper hello").contains("needs the role admin"));
    let started = slash(ROOT, "start helper in work status:begun");
    assert!(started.contains("Started"), "{started}");
    let (_, list) = office.daemon.get("/api/v1/sessions");
    let session = list["items"][0]["id"].as_str().unwrap().to_owned();
    office.daemon.wait_status(&session, "begun");
    office.root(&session);
    assert!(slash(ANA, "ls").contains(&session[..12]));
    assert!(slash(ANA, &format!("send {session} status:again")).contains("Sent"));
    office.daemon.wait_status(&session, "again");
    assert!(slash(ANA, &format!("nudge {}", &session[..12])).contains("Nudged"));
    assert!(slash(ANA, &format!("status {session}")).contains("work") || !session.is_empty());
    assert!(slash(ANA, "clearances").contains("No clearance is pending"));
    assert!(slash(ANA, "policy").contains("no rules"));
    assert!(slash(ANA, "whoami").contains("ana, approver"));
    assert!(slash(ANA, "dance").contains("is not a command"));
    assert!(slash(ANA, "status nothing-like-it").contains("no session"));
    assert!(slash(ROOT, "start nobody x").contains("nobody"));
    assert!(slash(ANA, &format!("stop {session}")).contains("Stopped"));
    assert_eq!(office.daemon.show(&session)["phase"], "ended");
}

#[test]
fn the_home_shows_what_waits_first_and_follows() {
    let office = Office::open();
    office.slack.open_home(ANA);
    office.slack.wait_until("a home", |state| state.homes.get(ANA).cloned());
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    let home = office.slack.wait_until("the clearance in the home", |state| {
        state.homes.get(ANA).filter(|view| view.body.to_string().contains("Edit main.rs")).cloned()
    });
    office.slack.click_view(ANA, &home, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
    office.slack.wait_until("a home without it", |state| {
        state.homes.get(ANA).filter(|view| !view.body.to_string().contains("Edit main.rs")).map(drop)
    });
    office.card_when(&clearance, |card| buttons(card).is_empty());
}

#[test]
fn a_home_full_of_what_has_ended_still_shows_what_runs() {
    let office = Office::open();
    let long = office.daemon.run(&["serve"]);
    for _ in 0..51 {
        office.daemon.run(&["exit:0"]);
    }
    office.slack.open_home(ANA);
    office.slack.wait_until("a home with all of it", |state| {
        let home = state.homes.get(ANA)?.body.to_string();
        (home.contains(&long[..12]) && home.contains("that ended before")).then_some(())
    });
}

#[test]
fn a_message_of_anybody_can_be_sent_to_an_agent() {
    let office = Office::open();
    let session = office.daemon.run(&["serve"]);
    office.root(&session);
    office.slack.say(EVE, CHANNEL, None, "status:from a colleague");
    let message = office.slack.message_with(|message| message.text.contains("from a colleague"));
    office.slack.shortcut(ANA, &message, "send_to_agent");
    let view = office.slack.wait_until("a form", |state| state.views.last().cloned());
    office.slack.submit(ANA, &view, &json!({ "session": session, "text": "status:from a colleague" }));
    office.daemon.wait_status(&session, "from a colleague");
}

#[test]
fn a_form_that_does_not_open_says_what_to_type_instead() {
    let office = Office::open();
    let session = office.daemon.run(ASKS);
    let card = office.card(&office.daemon.clearance(&session));
    office.slack.fail("views.open", Fault::Error("expired_trigger_id"), 1);
    let told = office.slack.click(ANA, &card, "deny_reason").wait_ephemeral();
    assert!(told.text.contains("deny &lt;reason&gt;"), "{told:?}");
    office.slack.fail("views.open", Fault::Error("expired_trigger_id"), 1);
    let told = office.slack.click(ANA, &card, "details").wait_ephemeral();
    assert!(told.blocks.to_string().contains("*Rules*"), "{told:?}");
    office.slack.say(ANA, CHANNEL, card.thread_ts.as_deref(), "deny no forms today");
    assert_eq!(answered(&office, &session)["params"]["reason"], "no forms today");
}

#[test]
fn the_right_people_are_called_and_then_the_next_ones() {
    let office =
        Office::with("ping = ['ana', 'vic']\nescalate_after = '1s'\nescalate_to = ['vic', 'bo']", "");
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    assert!(
        shown(&card).contains("<@U0ANA>") && !shown(&card).contains("<@U0VIC>"),
        "a viewer cannot decide it"
    );
    let call = office.slack.message_with(|message| key(message).starts_with("call "));
    assert!(shown(&call).contains("<@U0BO>") && shown(&call).contains("Edit main.rs"), "{}", shown(&call));
    office.slack.click(BO, &card, "allow");
    answered(&office, &session);
    office.card_when(&clearance, |card| !shown(card).contains("<@"));
}

#[test]
fn in_quiet_hours_only_what_is_grave_calls() {
    // From a minute ago until one minute before that: it is always now.
    let office = Office::with("ping = ['ana']\nquiet_hours = '00:00-23:59'", "");
    let low = office.daemon.run(ASKS);
    let high = office.daemon.run(&[
        r#"clearance:c1:{"title":"Deploy","risk_level":"critical"}"#,
        "answer:c1",
        "serve",
    ]);
    let low = office.card(&office.daemon.clearance(&low));
    let high = office.card(&office.daemon.clearance(&high));
    assert!(
        !shown(&low).contains("<@") && shown(&high).contains("<@U0ANA>"),
        "{} {}",
        shown(&low),
        shown(&high)
    );
}

#[test]
fn what_waited_over_night_is_told_once_in_the_morning() {
    let slack = FakeSlack::start();
    let dir = home("");
    let daemon = Daemon::start_in(dir, &[], &[]);
    let session = daemon.run(ASKS);
    daemon.clearance(&session);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    // A night that was over a minute ago.
    let clock = |minutes: i64| {
        let at = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(minutes);
        at.strftime("%H:%M").to_string()
    };
    let night = format!("ping = ['ana', 'vic']\nquiet_hours = '{}-{}'", clock(180), clock(1));
    let config = config(&slack, &night, "") + "[api]\nlisten = \"off\"\n";
    std::fs::write(dir.path().join("config.toml"), config).unwrap();
    let office = Office { slack: Strict(slack), daemon: Daemon::start_in(dir, &[], &tokens()) };
    let digest = |message: &Message| key(message).starts_with("digest ");
    let told = office.slack.message_with(digest);
    assert!(shown(&told).contains("Edit main.rs") && shown(&told).contains("<@U0ANA>"), "{}", shown(&told));
    assert!(!shown(&told).contains("<@U0VIC>"), "who only looks on is not called");
    let office = office.restart(Signal::SIGKILL);
    let again = office.daemon.run(ASKS);
    office.card(&office.daemon.clearance(&again));
    assert_eq!(office.slack.messages().iter().filter(|message| digest(message)).count(), 1);
}

#[test]
fn each_workspace_has_its_own_channel() {
    let slack = FakeSlack::start();
    slack.add_channel("C0OTHER", true);
    let office =
        Office::unconnected(slack, "", "[workspaces.all]\npath = \"/\"\nslack = { channel = \"C0OTHER\" }\n");
    let session = office.daemon.run(ASKS);
    assert_eq!(office.root(&session).channel, "C0OTHER");
    let card = office.card(&office.daemon.clearance(&session));
    office.slack.click(ANA, &card, "deny");
    assert_eq!(answered(&office, &session)["status"], "rejected");
}
