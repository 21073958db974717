//! Slack is slow, down, rate-limiting, or delivers twice; the daemon is killed. Nothing is lost, nothing is done twice, and
//! in the end every card is right.

use std::time::Duration;

use intercom_testkit::harness;
use intercom_testkit::slack::{Fault, Kind, Redeliver};

use super::*;

/// Messages of ours, by key, each of which must be there once.
fn once(office: &Office) -> Vec<String> {
    let mut keys: Vec<String> = office
        .slack
        .messages()
        .iter()
        .filter(|message| message.ours)
        .map(|message| key(message).to_owned())
        .collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all, "something is there twice: {keys:?}");
    keys
}

pub(super) fn approve_by_click(office: &Office, session: &str) {
    let clearance = office.daemon.clearance(session);
    let card = office.card(&clearance);
    office.slack.wait_connected(1);
    office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(office, session)["status"], "approved");
    office.card_when(&clearance, |card| buttons(card).is_empty() && shown(card).contains("delivered"));
}

/// The daemon's own word about Slack, once it is this.
pub(super) fn says(daemon: &mut Daemon, words: &str) {
    daemon.until(words, |daemon| {
        let (_, health) = daemon.get("/api/v1/health");
        health["bridges"]["slack"].as_str().is_some_and(|said| said.contains(words)).then_some(())
    });
}

#[test]
fn without_tokens_or_with_bad_ones_the_daemon_works_and_says_what_is_wrong() {
    let slack = FakeSlack::start();
    let dir = home(&config(&slack, "", ""));
    let mut daemon = Daemon::start_in(dir, &[], &[]);
    let session = daemon.run(ASKS);
    daemon.decide(&daemon.clearance(&session), "approve");
    says(&mut daemon, "INTERCOM_SLACK_APP_TOKEN");
    let ls = daemon.cli(&["ls"]).ok();
    assert!(ls.stderr.contains("slack: there is no token"), "{ls:?}");
    let (dir, _) = daemon.end(Signal::SIGTERM);
    let bad = [("INTERCOM_SLACK_APP_TOKEN", "xapp-wrong"), ("INTERCOM_SLACK_BOT_TOKEN", "xoxb-wrong")];
    let mut daemon = Daemon::start_in(dir, &[], &bad);
    says(&mut daemon, "invalid_auth: the token is not valid");
    let doctor = daemon.cli(&["doctor"]);
    assert!(doctor.stdout.contains("slack") && doctor.stdout.contains("invalid_auth"), "{doctor:?}");
    let metrics = harness::http(&daemon.socket(), "GET", "/metrics", None, &[]).1;
    assert!(metrics.contains("\nintercom_slack_connected 0\n"), "{metrics}");
    assert!(!daemon.log().contains("xoxb-wrong") && !daemon.log().contains("xapp-wrong"));
}

#[test]
fn a_slack_that_never_answers_is_noticed_long_before_a_call_is_given_up() {
    let slack = FakeSlack::start();
    slack.fail("apps.connections.open", Fault::Hang, 1000);
    let dir = home(&config(&slack, "", "").replace("timeout_seconds = 2", "timeout_seconds = 300"));
    let mut daemon = Daemon::start_in(dir, &[], &tokens());
    says(&mut daemon, "no answer within 5 s");
    let ls = daemon.cli(&["ls"]).ok();
    assert!(ls.stderr.contains("slack: no connection for"), "{ls:?}");
    daemon.end(Signal::SIGTERM);
}

#[test]
fn the_doctor_says_in_words_what_is_missing() {
    let slack = FakeSlack::start();
    let office = Office::unconnected(slack, "", "");
    let run = |office: &Office, env: &[(&str, &str)]| {
        let mut command = harness::command(office.daemon.dir.path());
        harness::run(command.args(["slack", "doctor"]).envs(env.iter().copied()))
    };
    let all: Vec<&str> = intercom_bridges::slack::SCOPES.iter().map(|(scope, _)| *scope).collect();
    office.slack.set_scopes(&all.join(","));
    office.slack.wait_connected(1);
    let fine = run(&office, &tokens());
    assert_eq!(fine.code, 0, "{fine:?}");
    assert!(fine.stdout.contains("ana, bo, root may approve") && fine.stdout.contains("scopes"), "{fine:?}");
    let none = run(&office, &[]);
    assert!(none.code == 1 && none.stdout.contains("there is no token"), "{none:?}");
    office.slack.set_scopes("chat:write,commands");
    office.slack.add_channel(CHANNEL, false);
    let lacking = run(&office, &tokens());
    assert!(lacking.stdout.contains("missing: channels:history (to read replies"), "{lacking:?}");
    assert!(lacking.stdout.contains("/invite @intercom"), "{lacking:?}");
    let manifest = office.daemon.cli(&["slack", "manifest"]).ok();
    assert!(manifest.stdout.contains("socket_mode_enabled: true"), "{manifest:?}");
}

#[test]
fn slack_that_is_away_at_the_start_is_told_everything_when_it_is_back() {
    let slack = FakeSlack::start();
    slack.go_away();
    let office = Office::unconnected(slack, "", "");
    let session = office.daemon.run(ASKS);
    let over = office.daemon.run(ASKS);
    office.daemon.decide(&office.daemon.clearance(&over), "deny");
    assert_eq!(answered(&office, &over)["status"], "rejected");
    office.slack.come_back();
    approve_by_click(&office, &session);
    once(&office);
}

#[test]
fn slack_that_goes_away_in_the_middle_has_right_cards_in_the_end() {
    let office = Office::open();
    let (one, two) = (office.daemon.run(ASKS), office.daemon.run(ASKS));
    let (first, second) = (office.daemon.clearance(&one), office.daemon.clearance(&two));
    office.card(&first);
    let open = office.card(&second);
    office.slack.go_away();
    office.daemon.decide(&first, "deny");
    let third = office.daemon.run(ASKS);
    office.daemon.clearance(&third);
    office.slack.come_back();
    office.card_when(&first, |card| buttons(card).is_empty() && shown(card).contains("Denied"));
    office.slack.wait_connected(1);
    office.slack.click(ANA, &open, "allow");
    assert_eq!(answered(&office, &two)["status"], "approved");
    approve_by_click(&office, &third);
    once(&office);
}

#[test]
fn a_card_that_nobody_saw_leaves_no_file_behind() {
    let mut office = Office::open();
    let diff = "+line\n".repeat(200);
    let ask = |title: &str| json!({ "title": title, "file_path": "x", "diff": diff, "risk_level": "low" });
    let steps = [format!("clearance:c1:{}", ask("Unseen")), "answer:c1".to_owned()];
    let steps = [&steps[..], &[format!("clearance:c2:{}", ask("Seen")), "serve".to_owned()]].concat();
    office.slack.go_away();
    let session = office.daemon.run(&steps.iter().map(String::as_str).collect::<Vec<_>>());
    // The thread, the card and the file wait to be sent.
    office
        .daemon
        .until("three messages", |daemon| (figure(daemon, "intercom_slack_unsent") == 3).then_some(()));
    office.daemon.decide(&office.daemon.clearance(&session), "deny");
    answered(&office, &session);
    office.slack.come_back();
    office.slack.message_with(|message| key(message).starts_with("clr_") && shown(message).contains("Seen"));
    office.daemon.until("everything to be sent", |daemon| {
        (figure(daemon, "intercom_slack_unsent") == 0).then_some(())
    });
    let files: Vec<String> =
        office.slack.look(|state| state.files.iter().map(|file| file.title.clone()).collect());
    assert_eq!(files, ["Seen"]);
}

#[test]
fn faults_of_all_sorts_cost_time_and_nothing_else() {
    let office = Office::open();
    let post = "chat.postMessage";
    office.slack.fail(post, Fault::Status(500), 1);
    office.slack.fail(post, Fault::RateLimited { retry_after_seconds: 1 }, 1);
    office.slack.fail(post, Fault::Hang, 1);
    office.slack.fail(post, Fault::Garbage, 1);
    office.slack.fail(post, Fault::CloseBefore, 1);
    office.slack.fail("chat.update", Fault::Status(503), 1);
    office.slack.fail("chat.update", Fault::CloseAfter, 1);
    office.slack.fail("conversations.history", Fault::Status(500), 1);
    let steps = ["status:a", "turn-end", "clearance:c1:May I?", "answer:c1", "serve"];
    let session = office.daemon.run(&steps);
    approve_by_click(&office, &session);
    office.slack.fail(post, Fault::CloseAfter, 1);
    office.daemon.prompt(&session, "status:b;turn-end");
    office.says(&session, "\"b\"");
    office.daemon.prompt(&session, "status:c;turn-end");
    office.says(&session, "\"c\"");
    let root = office.root(&session).ts;
    let told: Vec<String> = office
        .slack
        .thread(&root)
        .iter()
        .map(|message| key(message).split(' ').next().unwrap()[..4].to_owned())
        .collect();
    assert_eq!(told, ["ses_", "turn", "clr_", "turn", "turn"], "in order");
    once(&office);
}

#[test]
fn a_post_whose_end_is_not_known_is_found_again() {
    let office = Office::open();
    office.slack.fail("chat.postMessage", Fault::CloseAfter, 4);
    let session = office.daemon.run(ASKS);
    approve_by_click(&office, &session);
    once(&office);
    assert!(!office.slack.calls_of("conversations.history").is_empty(), "the root was looked for");
    assert!(!office.slack.calls_of("conversations.replies").is_empty(), "and the card");
}

#[test]
fn a_reply_in_a_thread_whose_name_we_do_not_know_yet_is_not_lost() {
    let office = Office::open();
    office.slack.fail("chat.postMessage", Fault::CloseAfter, 1);
    let session = office.daemon.run(&["serve"]);
    let root = office.root(&session).ts;
    office.slack.say(ANA, CHANNEL, Some(&root), "status:heard");
    office.daemon.wait_status(&session, "heard");
}

#[test]
fn what_slack_refuses_is_said_plainly_and_holds_nobody_up() {
    let office = Office::open();
    let session = office.daemon.run(&["serve"]);
    let root = office.root(&session).ts;
    office.slack.fail("chat.postMessage", Fault::Error("invalid_blocks"), 1);
    office.daemon.prompt(&session, "status:one;turn-end");
    let plain = office.slack.message_with(|message| message.text.contains("one"));
    assert!(plain.blocks.is_null() && plain.thread_ts == Some(root), "{plain:?}");
    office.daemon.prompt(&session, "status:two;turn-end");
    office.says(&session, "two");
}

#[test]
fn what_is_delivered_twice_or_out_of_order_is_done_once() {
    let office = Office::open();
    office.slack.deliver_twice(true);
    office.slack.out_of_order(true);
    let session = office.daemon.run(ASKS);
    let root = office.root(&session).ts;
    let card = office.card(&office.daemon.clearance(&session));
    office.slack.click(ANA, &card, "allow");
    for n in 0..5 {
        office.slack.say(ANA, CHANNEL, Some(&root), &format!("status:word {n}"));
    }
    office.slack.out_of_order(false);
    office.slack.say(ANA, CHANNEL, Some(&root), "status:the end");
    answered(&office, &session);
    office.daemon.wait_status(&session, "the end");
    for n in 0..5 {
        office.daemon.wait_status(&session, &format!("word {n}"));
    }
    let events = office.daemon.so_far(&session);
    let prompts = events.iter().filter(|event| event["kind"] == "prompt.queued").count();
    assert_eq!(prompts, 6, "each once");
    assert_eq!(events.iter().filter(|event| event["kind"] == "clearance.decided").count(), 1);
    assert!(office.slack.ephemerals(ANA).is_empty(), "the second click is not a late one");
}

#[test]
fn sockets_that_break_are_renewed_and_clicks_go_on() {
    let office = Office::open();
    for breaking in 0..3 {
        let session = office.daemon.run(ASKS);
        let card = office.card(&office.daemon.clearance(&session));
        let greeted = office.slack.look(|state| state.greeted);
        match breaking {
            0 => office.slack.drop_sockets(),
            1 => office.slack.send_disconnect("refresh_requested"),
            _ => office.slack.send_disconnect("warning"),
        }
        office.slack.wait_until("a new connection", |state| (state.greeted > greeted).then_some(()));
        office.slack.click(ANA, &card, "allow");
        assert_eq!(answered(&office, &session)["status"], "approved", "{breaking}");
    }
}

#[test]
fn cards_that_were_open_work_after_a_restart() {
    let office = Office::open();
    let session = office.daemon.run(ASKS);
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    let office = office.restart(Signal::SIGKILL);
    office.slack.wait_connected(1);
    office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(&office, &session)["status"], "approved");
    office.card_when(&clearance, |card| buttons(card).is_empty());
    once(&office);
}

#[test]
fn a_click_while_the_daemon_is_down_works_when_it_is_back_or_the_card_is_repaired() {
    let office = Office::open();
    let (one, two) = (office.daemon.run(ASKS), office.daemon.run(ASKS));
    let (first, second) = (office.daemon.clearance(&one), office.daemon.clearance(&two));
    let (cards, Office { slack, daemon }) = ((office.card(&first), office.card(&second)), office);
    // It is there and does not hear: what is sent to it is not acknowledged.
    slack.redeliver(Kind::Interactive, Redeliver::Yes);
    slack.ack_timeout(Duration::from_secs(20));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(daemon.pid()), Signal::SIGSTOP).unwrap();
    slack.click(ANA, &cards.1, "allow");
    let (dir, _) = daemon.end(Signal::SIGKILL);
    slack.wait_until("nobody to be there", |state| state.sockets.is_empty().then_some(()));
    slack.redeliver(Kind::Interactive, Redeliver::No);
    slack.click(ANA, &cards.0, "allow").wait_failed();
    let versions = slack
        .look(|state| state.messages.iter().find(|message| key(message) == first).unwrap().versions.len());
    slack.redeliver(Kind::Interactive, Redeliver::Yes);
    let office = Office { slack, daemon: Daemon::start_in(dir, &[], &tokens()) };
    // Delivered again: it works.
    assert_eq!(answered(&office, &two)["status"], "approved");
    // Not delivered again: the card is put right, and still works.
    let card = office.card_when(&first, |card| card.versions.len() > versions);
    assert!(!buttons(&card).is_empty());
    office.slack.click(ANA, &card, "deny");
    assert_eq!(answered(&office, &one)["status"], "rejected");
}

#[test]
fn a_daemon_that_dies_anywhere_loses_and_doubles_nothing() {
    for (point, nth) in [
        ("slack.received", 1),
        ("slack.acted", 1),
        ("slack.posting", 1),
        ("slack.posted", 1),
        ("slack.posting", 2),
        ("slack.posted", 2),
    ] {
        let slack = FakeSlack::start();
        slack.redeliver(Kind::Interactive, Redeliver::Yes);
        slack.ack_timeout(Duration::from_secs(20));
        slack.echo(false);
        let dir = home(&config(&slack, "", ""));
        let failpoint = format!("{point}:{nth}");
        let [app, bot] = tokens();
        let daemon = Daemon::start_in(dir, &[], &[app, bot, ("INTERCOM_FAILPOINT", &failpoint)]);
        let mut office = Office { slack: Strict(slack), daemon };
        let fixture = harness::fixture();
        // It may die before it can answer.
        let ran = office.daemon.cli(&[&["run", "--", fixture.to_str().unwrap()], ASKS].concat());
        let clicked = !point.starts_with("slack.post");
        if clicked {
            let clearance = office.daemon.clearance(ran.ok().stdout.trim());
            office.slack.click(ANA, &office.card(&clearance), "allow");
        }
        office.daemon.until("its death", |daemon| daemon.ended().then_some(()));
        let office = office.restart(Signal::SIGKILL);
        let (_, list) = office.daemon.get("/api/v1/sessions");
        // If it died before there was an agent, that session has ended.
        let session = list["items"][0]["id"].as_str().map(str::to_owned);
        let session = session.unwrap_or_else(|| office.daemon.run(ASKS));
        if clicked {
            assert_eq!(answered(&office, &session)["status"], "approved", "{failpoint}");
        } else {
            approve_by_click(&office, &session);
        }
        let decided =
            office.daemon.so_far(&session).into_iter().filter(|event| event["kind"] == "clearance.decided");
        assert_eq!(decided.count(), 1, "{failpoint}");
        once(&office);
    }
}
