//! An agent that floods costs the bridge nothing per line, and delays no card.

use super::*;

const LINES: u64 = 200_000;

#[test]
fn a_flood_is_not_read_for_slack_and_delays_no_card() {
    let office = Office::open();
    let [quiet, loud] = [office.daemon.run(&["serve"]), office.daemon.run(&["serve"])];
    office.root(&quiet);
    office.root(&loud);
    let read = |office: &Office| figure(&office.daemon, "intercom_slack_events_read");
    let before = read(&office);
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let steps = json!([format!("flood:{LINES}"), format!("status:the end of it is {secret}"), "turn-end"]);
    office.daemon.prompt(&loud, &steps.to_string());
    office.daemon.wait_for(&loud, "the first line", |event| event["kind"] == "status");
    office
        .daemon
        .prompt(&quiet, r#"["clearance:c1:{\"title\":\"May I?\",\"risk_level\":\"low\"}","answer:c1"]"#);
    let card = office.card(&office.daemon.clearance(&quiet));
    assert_eq!(office.daemon.show(&loud)["phase"], "working", "the flood goes on");
    office.slack.click(ANA, &card, "allow");
    assert_eq!(answered(&office, &quiet)["status"], "approved");
    // A command may take half a minute; the flood may take longer while other tests run.
    let is_over = || office.daemon.cli(&["wait", &loud, "--for", "idle", "--timeout", "20s"]).code == 0;
    assert!((0..10).any(|_| is_over()), "the flood does not end");
    let summary = office.says(&loud, "the end of it is");
    assert!(!shown(&summary).contains(secret) && !summary.text.contains(secret), "{}", shown(&summary));
    let read = read(&office) - before;
    assert!(read < LINES / 4, "{read} events were read");
}

#[test]
fn the_end_of_a_streamed_flood_is_shown_and_says_that_there_was_more() {
    let office = Office::with("verbosity = 'stream'", "");
    let session = office.daemon.run(&["serve"]);
    office.root(&session);
    office.daemon.prompt(&session, r#"["status:it begins","flood:20000","status:it ends","turn-end"]"#);
    office.daemon.wait_kind(&session, "turn.ended");
    let end = office.says(&session, "it ends");
    assert!(key(&end).starts_with("talk "), "{}", shown(&end));
    office.says(&session, "[…]");
}
