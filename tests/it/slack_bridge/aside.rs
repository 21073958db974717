//! Messages that Slack cannot take, and calls that hang, delay nobody else; what is not taken is said until it is.

use std::time::{Duration, Instant};

use intercom_testkit::harness;
use intercom_testkit::slack::{self, Fault};

use super::trouble::{approve_by_click, says};
use super::*;

const POST: &str = "chat.postMessage";
/// Far less than a row waits that failed a few times; a busy machine needs a part of it.
const SOON: Duration = Duration::from_secs(6);

const ASK: &str = r#"["clearance:c1:{\"title\":\"May I?\",\"risk_level\":\"low\"}","answer:c1"]"#;

/// How long after `since` a card was first in Slack.
fn card_after(office: &Office, session: &str, since: Instant) -> Duration {
    office.card(&office.daemon.clearance(session)).versions[0].at.saturating_duration_since(since)
}

#[test]
fn five_messages_that_slack_cannot_take_delay_nobody() {
    let mut office = Office::open();
    office.slack.fail_those_with("poisoned", POST, Fault::Error("internal_error"), u32::MAX);
    let poisoned: Vec<String> = (0..5).map(|_| office.daemon.run(&["serve"])).collect();
    for session in &poisoned {
        office.root(session);
        office.daemon.prompt(session, "status:poisoned;turn-end");
    }
    let refused = |state: &slack::State| {
        let calls = state.calls.iter().filter(|call| call.method == POST);
        calls.filter(|call| call.args.to_string().contains("poisoned")).count()
    };
    office.slack.wait_until("each to be refused twice", |state| (refused(state) >= 10).then_some(()));
    // A new thread, and the threads in which something fails.
    let begun = Instant::now();
    let other = office.daemon.run(ASKS);
    let mut took = vec![card_after(&office, &other, begun)];
    for session in &poisoned {
        let begun = Instant::now();
        office.daemon.prompt(session, ASK);
        took.push(card_after(&office, session, begun));
    }
    eprintln!("from request to card beside five messages that fail: {took:?}");
    assert!(took.iter().all(|took| *took < SOON), "{took:?}");
    approve_by_click(&office, &other);
    says(&mut office.daemon, "messages are not taken: internal_error; 5 messages wait");
    assert_eq!(figure(&office.daemon, "intercom_slack_failing"), 5);
    assert_eq!(figure(&office.daemon, "intercom_slack_unsent_cards"), 0);
    // Each is tried less and less often, and nothing is lost.
    assert!(office.slack.look(refused) <= 5 * 10);
    office.slack.clear_faults();
    office.slack.drop_sockets();
    for session in &poisoned {
        office.says(session, "poisoned");
    }
    says(&mut office.daemon, "ok");
}

#[test]
fn a_channel_in_which_everything_fails_does_not_delay_another() {
    let slack = FakeSlack::start();
    slack.add_channel("C0OTHER", true);
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().to_str().unwrap();
    let other = format!("[workspaces.other]\npath = \"{path}\"\nslack = {{ channel = \"C0OTHER\" }}\n");
    let office = Office::unconnected(slack, "", &other);
    office.slack.wait_connected(1);
    office.slack.fail_those_with("C0OTHER", POST, Fault::Hang, u32::MAX);
    for _ in 0..8 {
        let session = office.daemon.run_with(ASKS, json!({ "workspace": path }));
        office.daemon.clearance(&session);
    }
    office.slack.wait_until("several that hang", |state| {
        let hang = state.calls.iter().filter(|call| call.method == POST && call.args["channel"] == "C0OTHER");
        (hang.count() >= 10).then_some(())
    });
    let begun = Instant::now();
    let here = office.daemon.run(ASKS);
    assert_eq!(office.root(&here).channel, CHANNEL);
    let took = card_after(&office, &here, begun);
    assert!(took < SOON, "{took:?}");
}

#[test]
fn a_card_that_slack_cannot_take_is_a_line_until_it_can() {
    let office = Office::open();
    office.slack.fail_those_with("\"actions\"", POST, Fault::Error("internal_error"), u32::MAX);
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    let card = office.card_when(&clearance, |card| !buttons(card).is_empty());
    let line = card.versions[0].blocks.to_string();
    assert!(!line.contains("actions") && line.contains("Edit main.rs"), "{line}");
    assert_eq!(card.thread_ts, Some(office.root(&session).ts));
    office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
}

#[test]
fn a_card_whose_thread_cannot_be_begun_is_posted_beside_it() {
    let office = Office::open();
    office.slack.go_away();
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    let root = format!("\"block_id\":\"{session}\"");
    office.slack.fail_those_with(&root, POST, Fault::Error("internal_error"), u32::MAX);
    office.slack.come_back();
    let card = office.card_when(&clearance, |card| !buttons(card).is_empty());
    assert_eq!(card.thread_ts, None);
    office.slack.wait_connected(1);
    office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
    office.card_when(&clearance, |card| buttons(card).is_empty());
    office.slack.clear_faults();
    office.slack.drop_sockets();
    office.root(&session);
}

#[test]
fn a_word_that_is_not_known_and_a_refusal_are_said_and_the_pending_card_comes_in_the_end() {
    for (word, told) in
        [("brand_new_error", "brand_new_error: unknown error code"), ("msg_too_long", "msg_too_long")]
    {
        let mut office = Office::open();
        office.slack.fail_those_with("Edit main.rs", POST, Fault::Error(word), u32::MAX);
        let session = office.daemon.run(ASKS);
        let clearance = office.daemon.clearance(&session);
        says(&mut office.daemon, &format!("messages are not taken: {told}"));
        says(&mut office.daemon, "1 card of a pending request has not reached Slack for 1");
        says(&mut office.daemon, told);
        let doctor = office.daemon.cli(&["doctor"]);
        assert!(doctor.stdout.contains(told), "{doctor:?}");
        let ls = office.daemon.cli(&["ls"]).ok();
        assert!(ls.stderr.contains(told), "{ls:?}");
        assert_eq!(figure(&office.daemon, "intercom_slack_unsent_cards"), 1);
        assert_eq!(figure(&office.daemon, "intercom_slack_failing"), 1);
        office.slack.clear_faults();
        office.slack.drop_sockets();
        office.card_when(&clearance, |card| !buttons(card).is_empty());
        approve_by_click(&office, &session);
        says(&mut office.daemon, "ok");
    }
}

#[test]
fn what_nobody_waits_for_and_slack_refuses_in_every_form_is_counted() {
    let mut office = Office::open();
    let session = office.daemon.run(&["serve"]);
    office.root(&session);
    office.slack.fail_those_with("too much", POST, Fault::Error("msg_too_long"), u32::MAX);
    office.daemon.prompt(&session, "status:too much;turn-end");
    office
        .daemon
        .until("it to be given up", |daemon| (figure(daemon, "intercom_slack_given_up") == 1).then_some(()));
    says(&mut office.daemon, "ok");
}

/// Calls that hang do so for as long as the test lasts.
fn patient() -> Office {
    let slack = FakeSlack::start();
    let dir = home(&config(&slack, "", "").replace("timeout_seconds = 2", "timeout_seconds = 300"));
    let office = Office { slack: Strict(slack), daemon: Daemon::start_in(dir, &[], &tokens()) };
    office.slack.wait_connected(1);
    office
}

#[test]
fn a_home_that_cannot_be_shown_delays_no_decision() {
    let office = patient();
    let session = office.daemon.run(ASKS);
    office.daemon.clearance(&session);
    office.slack.open_home(ANA);
    let home = office.slack.wait_until("the clearance in the home", |state| {
        state.homes.get(ANA).filter(|view| view.body.to_string().contains("Edit main.rs")).cloned()
    });
    office.slack.fail("views.publish", Fault::Hang, u32::MAX);
    for _ in 0..3 {
        office.slack.open_home(ANA);
        office.slack.open_home(BO);
    }
    office.slack.wait_until("two that hang", |state| {
        let hang = |call: &&slack::Call| call.method == "views.publish" && call.answered.is_none();
        (state.calls.iter().filter(hang).count() == 2).then_some(())
    });
    office.slack.click_view(ANA, &home, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
    assert!(office.slack.slash(BO, CHANNEL, "whoami").wait_ephemeral().text.contains("bo, approver"));
    let shown = office.slack.calls_of("views.publish").iter().filter(|call| call.answered.is_none()).count();
    assert_eq!(shown, 2, "one at a time for each person");
}

#[test]
fn talk_in_other_threads_delays_no_decision() {
    let office = patient();
    let session = office.daemon.run(ASKS);
    let card = office.card(&office.daemon.clearance(&session));
    // A thread that may have begun: until that is known, any talk may be meant for its agent.
    office.slack.fail(POST, Fault::Hang, 1);
    let unknown = office.daemon.run(&["serve"]);
    office.slack.wait_until("its root to hang", |state| {
        let root = |call: &&slack::Call| call.method == POST && call.args.to_string().contains(&unknown);
        state.calls.iter().find(root).map(drop)
    });
    let talk: Vec<_> = (0..100)
        .map(|n| {
            let thread = office.slack.say(BO, CHANNEL, None, &format!("topic {n}"));
            office.slack.say(BO, CHANNEL, Some(&thread.ts), "what do you think?")
        })
        .collect();
    for said in &talk {
        said.wait_acked();
    }
    let clicked = office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
    assert!(clicked.at.elapsed() < SOON, "{:?}", clicked.at.elapsed());
}

#[test]
fn a_private_answer_that_takes_another_way_takes_no_arguments_along() {
    let office = Office::open();
    office.slack.fail("response_url", Fault::Status(404), 1);
    let answer = office.slack.slash(ANA, CHANNEL, "whoami").wait_ephemeral();
    assert_eq!(answer.by, "chat.postEphemeral");
    let call = office.slack.calls_of("chat.postEphemeral").pop().unwrap();
    assert!(
        call.args.get("response_type").is_none() && call.args.get("replace_original").is_none(),
        "{call:?}"
    );
}

#[test]
fn a_command_with_something_left_over_does_nothing_and_says_so() {
    let office = Office::open();
    let session = office.daemon.run(&["serve"]);
    let answer = office.slack.slash(ANA, CHANNEL, &format!("stop {session} tomorrow")).wait_ephemeral();
    assert!(answer.text.contains("“stop” does not take “tomorrow”, so nothing was done"), "{answer:?}");
    assert_ne!(office.daemon.show(&session)["phase"], "ended");
}

#[test]
fn the_home_does_not_allow_what_it_does_not_show() {
    let office = Office::open();
    let ask = json!({ "title": "Edit main.rs", "file_path": "src/main.rs", "diff": "-a\n+b\n", "risk_level": "low" });
    let session = office.daemon.run(&[&format!("clearance:c1:{ask}"), "answer:c1", "serve"]);
    let clearance = office.daemon.clearance(&session);
    office.slack.open_home(ANA);
    let home = office.slack.wait_until("the clearance in the home", |state| {
        state.homes.get(ANA).filter(|view| view.body.to_string().contains("Edit main.rs")).cloned()
    });
    let body = home.body.to_string();
    assert!(body.contains("Not shown in full: open Details") && !body.contains("\"allow\""), "{body}");
    office.slack.click_view(ANA, &home, "details");
    let details = office.slack.wait_until("the details", |state| state.views.last().cloned());
    assert!(details.body.to_string().contains("-a\\n+b"), "{}", details.body);
    assert!(pending(&office, &clearance));
}

#[test]
fn the_doctor_names_the_scope_that_the_apps_token_lacks() {
    let slack = FakeSlack::start();
    slack.set_app_scopes("authorizations:read");
    let dir = home(&config(&slack, "", ""));
    let mut daemon = Daemon::start_in(dir, &[], &tokens());
    let [app, bot] = tokens();
    let doctor = harness::run(harness::command(daemon.dir.path()).args(["slack", "doctor"]).envs([app, bot]));
    assert_eq!(doctor.code, 1);
    let line = doctor.stdout.lines().find(|line| line.contains("app token")).unwrap();
    assert!(line.contains("missing_scope: connections:write"), "{doctor:?}");
    assert!(doctor.stdout.contains("App-Level Tokens"), "{doctor:?}");
    says(&mut daemon, "missing_scope: connections:write: generate a token");
}
