//! The log as people read it: messages that nobody needs are left out, and long text below an entry is cut.

use intercom_testkit::harness::{Daemon, acp_fixture};
use serde_json::json;

#[test]
fn answers_that_are_over_and_titles_without_a_title_are_left_out_of_the_log() {
    let daemon = Daemon::quick("");
    let steps = [
        r#"update:{"sessionUpdate":"session_info_update","updatedAt":"2026-03-04T12:00:00Z"}"#,
        r#"update:{"sessionUpdate":"session_info_update","title":"Prices"}"#,
        r#"answer:#99:{"a":1}"#,
        r#"raw:{"jsonrpc":"2.0","id":98,"error":{"code":-32603,"message":"too late"}}"#,
        "say:all done",
    ];
    let started = json!({ "name": "shop", "command": acp_fixture(), "protocol": "acp", "prompt": json!(steps).to_string() });
    let session = daemon.started(started);
    daemon.wait_kind(&session, "turn.ended");
    // Its answer to `session/close` comes while it is stopped.
    daemon.cli(&["stop", "shop"]).ok();
    let logs = daemon.cli(&["logs", "shop"]).ok().stdout;
    assert!(logs.contains("agent> all done\n") && logs.contains("agent> title: Prices\n"), "{logs}");
    assert!(!logs.contains("without a method"), "{logs}");
    assert!(!logs.lines().any(|line| line.ends_with("agent> title")), "{logs}");
    assert!(
        logs.contains("  the agent answered with an error that no turn depends on: “too late”\n"),
        "{logs}"
    );
    let raw = daemon.cli(&["logs", "shop", "--raw"]).ok().stdout;
    assert!(raw.contains(r#""result":{"a":1}"#), "{raw}");
}

#[test]
fn a_tail_of_a_few_entries_is_a_few_lines_however_much_the_agent_wrote_to_stderr() {
    let daemon = Daemon::start();
    let lines: Vec<String> = (1..=30).map(|number| format!("stderr:warning {number}")).collect();
    let mut steps: Vec<&str> = lines.iter().map(String::as_str).collect();
    steps.extend(["status:working", "exit:3"]);
    let session = daemon.run_with(&steps, json!({ "name": "loud" }));
    daemon.wait_for_end(&session);
    let tail = daemon.cli(&["logs", "loud", "--tail", "4"]).ok().stdout;
    assert!(tail.lines().count() <= 10, "{tail}");
    let hidden = tail.lines().find_map(|line| line.strip_prefix("    │ … ")?.strip_suffix(" more lines"));
    let hidden: usize = hidden.unwrap_or_else(|| panic!("{tail}")).parse().unwrap();
    assert!(hidden >= 2 && tail.contains(&format!("    │ warning {}\n", 30)), "{tail}");
    // A prompt of many lines begins as it was typed.
    let prompt = (1..=12).map(|number| format!("step {number}")).collect::<Vec<_>>().join("\n");
    let talker = daemon.run_with(&["echo"], json!({ "name": "talker", "prompt": prompt }));
    daemon.wait_kind(&talker, "prompt.delivered");
    let logs = daemon.cli(&["logs", "talker"]).ok().stdout;
    let below =
        "    │ step 2\n    │ step 3\n    │ … 6 more lines\n    │ step 10\n    │ step 11\n    │ step 12\n";
    assert!(logs.contains(&format!(": step 1\n{below}")), "{logs}");
}
