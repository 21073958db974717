//! Traffic for as long as one likes (`INTERCOM_SLACK_SOAK` seconds; a few here): memory stays flat, and in the end nothing
//! waits to be sent and every card is right.

use std::time::{Duration, Instant};

use intercom_testkit::slack::Fault;

use super::*;

fn memory_kib(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// One session: it asks, is answered by a click or by a word, talks, and ends.
fn life(office: &Office, n: usize) {
    let session = office.daemon.run(&["serve"]);
    let ask = json!([
        "heartbeat:a=in_progress,b=pending",
        r#"clearance:c1:{"title":"May I?","risk_level":"low"}"#,
        "answer:c1",
        "status:done",
        "done:a,b"
    ]);
    let root = office.root(&session).ts;
    office.slack.say(ANA, CHANNEL, Some(&root), &ask.to_string());
    let clearance = office.daemon.clearance(&session);
    let card = office.card(&clearance);
    let verdict = if n.is_multiple_of(2) { "allow" } else { "deny" };
    office.slack.wait_connected(1);
    office.slack.click(ANA, &card, verdict);
    office.daemon.wait_status(&session, "done");
    office.card_when(&clearance, |card| buttons(card).is_empty());
    office.daemon.cli(&["kill", &session]).ok();
    office.card_when(&session, |root| buttons(root).is_empty());
}

#[test]
fn traffic_for_a_while_leaves_nothing_behind() {
    let seconds = std::env::var("INTERCOM_SLACK_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let mut office = Office::open();
    let (begun, mut lives) = (Instant::now(), 0);
    let mut early = None;
    while begun.elapsed() < Duration::from_secs(seconds) {
        if lives % 10 == 3 {
            office.slack.fail("*", Fault::Status(503), 1);
            office.slack.fail("chat.postMessage", Fault::CloseAfter, 1);
        }
        if lives % 25 == 24 {
            office.slack.drop_sockets();
        }
        life(&office, lives);
        lives += 1;
        // The first quarter warms up.
        if begun.elapsed() >= Duration::from_secs(seconds) / 4 && early.is_none() {
            early = Some(memory_kib(&office.daemon));
        }
    }
    office.daemon.until("everything to be sent", |daemon| {
        (figure(daemon, "intercom_slack_unsent") == 0).then_some(())
    });
    let (early, late) = (early.unwrap(), memory_kib(&office.daemon));
    eprintln!("{lives} sessions in {:?}: {early} KiB early, {late} KiB late", begun.elapsed());
    // What is kept per session is on disk; the rest is the allocator's and the caches' business.
    assert!(late <= early + early / 4 + 4096, "{early} KiB early, {late} KiB late");
}
