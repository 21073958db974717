//! The daemon is killed at a bad moment, or its disk is full: what people did is done, and done once.

use std::time::Duration;

use intercom_testkit::harness::{self, SERVE, command};
use intercom_testkit::slack::{Kind, Redeliver};

use super::*;

use crate::INTERCOM;

/// A daemon whose files can be kept from growing, as on a full disk.
fn with_a_disk_to_fill(slack: FakeSlack) -> Office {
    let dir = home(&config(&slack, "", "[limits]\nmin_free_disk_mib = 0\n"));
    let socket = dir.path().join("state/intercom.sock");
    let mut sh = std::process::Command::new("sh");
    sh.args(["-c", &format!("trap '' XFSZ; exec {INTERCOM} {}", SERVE.join(" "))]).env_clear();
    sh.envs(command(dir.path()).get_envs().filter_map(|(name, value)| Some((name, value?)))).envs(tokens());
    Office { slack: Strict(slack), daemon: Daemon::launch(dir, &mut sh, |_| socket) }
}

fn limit_files(daemon: &Daemon, size: &str) {
    let mut prlimit = std::process::Command::new("prlimit");
    prlimit.args(["--pid", &daemon.pid().to_string(), &format!("--fsize={size}:unlimited")]);
    assert!(prlimit.status().unwrap().success());
}

#[test]
fn what_cannot_be_written_down_is_not_acknowledged_and_works_later() {
    let office = with_a_disk_to_fill(FakeSlack::start());
    office.slack.wait_connected(1);
    office.slack.echo(false);
    office.slack.ack_timeout(Duration::from_secs(2));
    let (one, two) = (office.daemon.run(ASKS), office.daemon.run(ASKS));
    let (first, second) =
        (office.card(&office.daemon.clearance(&one)), office.card(&office.daemon.clearance(&two)));
    limit_files(&office.daemon, "1"); // not even the log can be written
    let click = office.slack.click(ANA, &first, "allow");
    click.wait_failed();
    assert!(click.acked_at().is_none() && pending(&office, key(&first)));
    office.slack.redeliver(Kind::Interactive, Redeliver::Yes);
    let click = office.slack.click(ANA, &second, "allow");
    office.slack.wait_until("a second delivery", |state| {
        state.deliveries.last().filter(|delivery| delivery.retries > 0).map(drop)
    });
    limit_files(&office.daemon, "unlimited");
    click.wait_acked();
    assert_eq!(answered(&office, &two)["status"], "approved");
    office.slack.click(ANA, &first, "deny");
    assert_eq!(answered(&office, &one)["status"], "rejected");
    office.card_when(key(&first), |card| buttons(card).is_empty());
    office.card_when(key(&second), |card| buttons(card).is_empty());
}

#[test]
fn slack_is_away_while_many_ask_and_the_daemon_is_killed() {
    let office = Office::open();
    let early: Vec<String> = (0..4).map(|_| office.daemon.run(ASKS)).collect();
    let open: Vec<Message> =
        early.iter().map(|session| office.card(&office.daemon.clearance(session))).collect();
    office.slack.go_away();
    let sessions: Vec<String> = (0..10).map(|_| office.daemon.run(ASKS)).collect();
    let clearances: Vec<String> = sessions.iter().map(|session| office.daemon.clearance(session)).collect();
    office.daemon.decide(key(&open[0]), "deny");
    for clearance in &clearances[..3] {
        office.daemon.decide(clearance, "deny");
    }
    let office = office.restart(Signal::SIGKILL);
    office.daemon.decide(key(&open[1]), "deny");
    for clearance in &clearances[3..6] {
        office.daemon.decide(clearance, "deny");
    }
    office.slack.come_back();
    for card in &open[..2] {
        office.card_when(key(card), |card| buttons(card).is_empty() && shown(card).contains("Denied"));
    }
    office.slack.wait_connected(1);
    for clearance in &clearances[6..] {
        let card = office.card(clearance);
        office.slack.click(ANA, &card, "allow");
        office.card_when(clearance, |card| buttons(card).is_empty());
    }
    for card in &open[2..] {
        office.slack.click(ANA, card, "allow");
        office.card_when(key(card), |card| buttons(card).is_empty());
    }
    for clearance in &clearances[3..6] {
        let seen = office
            .slack
            .messages()
            .into_iter()
            .filter(|message| key(message) == clearance)
            .collect::<Vec<_>>();
        assert!(seen.iter().all(|card| buttons(card).is_empty()) && seen.len() <= 1);
    }
}

#[test]
fn a_form_that_was_carried_out_is_not_said_to_have_failed() {
    let slack = FakeSlack::start();
    slack.echo(false);
    slack.redeliver(Kind::Interactive, Redeliver::Yes);
    let ask =
        r#"clearance:c1:{"title":"Run tests","command":"cargo test","tool":"execute","risk_level":"low"}"#;
    let dir = home(&config(&slack, "", &harness::profile("tester", &[ask, "answer:c1", "serve"], "")));
    let [app, bot] = tokens();
    // The first is the click that opens the form.
    let daemon = Daemon::start_in(dir, &[], &[app, bot, ("INTERCOM_FAILPOINT", "slack.acted:2")]);
    let mut office = Office { slack: Strict(slack), daemon };
    office.slack.wait_connected(1);
    let session = office.daemon.run_agent("tester");
    let card = office.card(&office.daemon.clearance(&session));
    office.slack.click(ANA, &card, "always");
    let view = office.slack.wait_until("a form", |state| state.views.last().cloned());
    let sent = office.slack.submit(ANA, &view, &json!({ "duration": "1h" }));
    office.daemon.until("its death", |daemon| daemon.ended().then_some(()));
    let before = sent.ephemerals().len();
    let office = office.restart(Signal::SIGKILL);
    assert_eq!(answered(&office, &session)["status"], "approved");
    let told = office.slack.wait_until("an answer", |state| {
        let all: Vec<String> =
            state.ephemerals.iter().filter(|one| one.user == ANA).map(|one| one.text.clone()).collect();
        (all.len() > before).then_some(all)
    });
    assert!(!told.iter().any(|told| told.contains("nothing was done")), "{told:?}");
    let grants = office.daemon.cli(&["policy", "grants", "--json"]).ok().json();
    assert_eq!(grants["items"].as_array().unwrap().len(), 1, "{grants}");
}

#[test]
fn a_word_that_was_carried_out_is_not_carried_out_as_something_else() {
    let slack = FakeSlack::start();
    slack.echo(false);
    let dir = home(&config(&slack, "", ""));
    let [app, bot] = tokens();
    let daemon = Daemon::start_in(dir, &[], &[app, bot, ("INTERCOM_FAILPOINT", "slack.acted:1")]);
    let mut office = Office { slack: Strict(slack), daemon };
    office.slack.wait_connected(1);
    let session = office.daemon.run(ASKS);
    let card = office.card(&office.daemon.clearance(&session));
    let said = office.slack.say(ANA, CHANNEL, card.thread_ts.as_deref(), "deny it is friday");
    office.daemon.until("its death", |daemon| daemon.ended().then_some(()));
    let office = office.restart(Signal::SIGKILL);
    assert_eq!(answered(&office, &session)["status"], "rejected");
    office.slack.wait_connected(1);
    office.slack.say(ANA, CHANNEL, card.thread_ts.as_deref(), "status:later").wait_acked();
    office.daemon.wait_status(&session, "later");
    let prompts =
        office.daemon.so_far(&session).iter().filter(|event| event["kind"] == "prompt.queued").count();
    assert_eq!(prompts, 1, "the reason is no prompt");
    let told: Vec<String> = said.ephemerals().into_iter().map(|one| one.text).collect();
    assert!(told.iter().all(|text| !text.contains("Idempotency")), "{told:?}");
    office.slack.wait_until("the mark", |state| {
        state
            .messages
            .iter()
            .find(|message| message.ts == said.ts)
            .filter(|message| !message.reactions.is_empty())
            .map(drop)
    });
}

#[test]
fn a_prompt_arrives_once_whenever_the_daemon_is_killed() {
    for point in ["slack.received", "slack.acted"] {
        let slack = FakeSlack::start();
        slack.echo(false);
        let dir = home(&config(&slack, "", ""));
        let [app, bot] = tokens();
        let daemon = Daemon::start_in(dir, &[], &[app, bot, ("INTERCOM_FAILPOINT", &format!("{point}:1"))]);
        let mut office = Office { slack: Strict(slack), daemon };
        office.slack.wait_connected(1);
        let session = office.daemon.run(&["serve"]);
        let root = office.root(&session).ts;
        office.slack.say(ANA, CHANNEL, Some(&root), "status:only once");
        office.daemon.until("its death", |daemon| daemon.ended().then_some(()));
        let office = office.restart(Signal::SIGKILL);
        office.slack.wait_connected(1);
        office.slack.say(ANA, CHANNEL, Some(&root), "status:end");
        office.daemon.wait_status(&session, "end");
        let said = office.daemon.so_far(&session);
        let times = said
            .iter()
            .filter(|event| event["kind"] == "status" && event["data"]["message"] == "only once")
            .count();
        assert_eq!(times, 1, "{point}");
    }
}
