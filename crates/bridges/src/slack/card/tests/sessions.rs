use std::cmp::Ordering;

use super::super::display_state::timeless;
use super::*;

fn plan(done: usize, all: usize) -> Value {
    let status = |n: usize| match n.cmp(&done) {
        Ordering::Less => "completed",
        Ordering::Equal => "in_progress",
        Ordering::Greater => "pending",
    };
    (0..all).map(|n| json!({"text": format!("step {n}"), "status": status(n)})).collect()
}

#[test]
fn lengths_of_time_are_taken_out_where_we_put_them() {
    assert_eq!(
        timeless("stuck 7m: cargo test running 6m, no CPU; nudged 1/2; snoozed for 30m"),
        "stuck: cargo test running, no CPU; nudged 1/2"
    );
    assert_eq!(
        timeless("waiting for its service: usage limit, over in 2h5m"),
        "waiting for its service: usage limit"
    );
    assert_eq!(timeless("waiting for its service: over in 2h5m; x"), "waiting for its service; x");
    assert_eq!(
        timeless("waiting for its service: usage limit, due now"),
        "waiting for its service: usage limit"
    );
    assert_eq!(timeless("quiet 40s: sleep 30s running 2h5m"), "quiet: sleep 30s running");
    assert_eq!(timeless("in 5m"), "in 5m");
    assert_eq!(timeless(""), "");
}

#[test]
fn the_status_of_a_session_tells_where_it_stands() {
    let busy = session(json!({
        "why": "quiet 40s: cargo test running 6m, no CPU", "progress": plan(5, 12), "queue": 1,
        "standing": {"state": "quiet", "since": "2026-03-04T11:50:00Z", "running": {"name": "cargo test", "since": "2026-03-04T11:51:00Z"}},
        "pending": {"clearances": 2, "questions": 1}, "unenforced": "it never asks",
        "spent": {"turns": 3, "total_tokens": 12_345, "cost": 0.4242, "currency": "USD"},
    }));
    insta::assert_snapshot!(shown(&status("key", &busy)), @r"
    (shop: 🔵 *working, but quiet*)
    # shop · demo
    🔵 *working, but quiet* · cargo test running, no CPU · since <!date^1772625000^{time}, {date_short_pretty}|2026-03-04 11:50 UTC> · running since <!date^1772625060^{time}, {date_short_pretty}|2026-03-04 11:51 UTC>
    ▓▓▓▓░░░░░░ 5 of 12
    … 2 more above
    ✔ step 2
    ✔ step 3
    ✔ step 4
    ▶ step 5
    ○ step 6
    ○ step 7
    ○ step 8
    ○ step 9
    … 2 more below
    | *Name* fix-login
    | *Waiting for you* 2 clearances, 1 question
    | *Queue* 1 prompt queued
    | *Policy* ⚠ unenforced: it never asks
    | *Spent* 12,345 tokens, 0.42 USD
    [Interrupt interrupt] [Stop stop !! ? Stop this session? Its agent is asked to exit, and killed if it does not.]
    -- `ses_0123456789abcdef` -- /w/shop/ -- started at <!date^1772622000^{time}, {date_short_pretty}|2026-03-04 11:00 UTC>
    ");
}

#[test]
fn a_status_does_not_change_with_the_clock() {
    let at = |why: &str| {
        let standing = json!({"state": "stuck", "since": "2026-03-04T11:50:00Z"});
        json!(status("key", &session(json!({"why": why, "standing": standing}))))
    };
    assert_eq!(at("stuck 7m: x running 6m"), at("stuck 2h5m: x running 2h4m"));
}

#[test]
fn every_phase_has_its_words() {
    let line = |phase: &str| {
        let session = session(json!({"phase": phase, "why": "because"}));
        let card = status("key", &session);
        let buttons = values(&card).len();
        format!("{} {buttons}", shown(&card).lines().nth(2).unwrap())
    };
    let phases = ["created", "starting", "idle", "working", "waiting", "stopping", "parked", "ended", "new"];
    insta::assert_snapshot!(phases.map(line).join("\n"), @r"
    🔄 *starting* · because 2
    🔄 *starting* · because 2
    💤 *idle* · because 2
    🔵 *working* · because 2
    🙋 *waiting for you* · because 2
    🔄 *stopping* · because 0
    ⏸ *parked* · because 0
    ⚫ *ended* · because 0
    ⚪ *in an unknown state* · because 2
    ");
}

#[test]
fn a_failure_shows_its_reason_and_what_to_do() {
    let failed = json!({"kind": "log_in", "reason": "claude needs a login", "at": "2026-03-04T11:58:00Z",
        "hint": "log in: run `claude`; then restart the agent"});
    let idle = session(json!({"phase": "idle", "why": "failed: claude needs a login", "failed": failed}));
    let line = shown(&status("key", &idle)).lines().nth(2).unwrap().to_owned();
    insta::assert_snapshot!(line, @"🔴 *failed* · claude needs a login · log in: run ˋclaudeˋ; then restart the agent");
    let again = session(json!({"phase": "working", "why": "working on a turn", "failed": failed}));
    assert!(shown(&status("key", &again)).contains("🔵 *working*"), "it tries again");
    let ended = session(json!({"phase": "ended", "why": "exited with code 1: boom", "failed": failed,
        "exit": {"code": 1, "signal": null, "reason": "exited with code 1: boom"}}));
    let card = shown(&exit("key", &ended, None, &people(), &[]));
    assert!(card.contains("*exited with code 1: boom*") && card.contains("then restart the agent"), "{card}");
    assert!(!card.contains("Exit code 1"), "{card}");
}

#[test]
fn a_stall_shows_what_was_done_and_ends_without_buttons() {
    let stuck = session(json!({
        "why": "stuck 7m: cargo test running 6m, no CPU; nudged 1/2",
        "standing": {"state": "stuck", "since": "2026-03-04T11:50:00Z", "done": "nudged 1/2", "running": {"name": "cargo test", "since": "2026-03-04T11:51:00Z"}},
    }));
    let steps = ["nudged 1/2".to_owned(), "nudged 2/2: *wake*".to_owned()];
    let open = stall("key", &stuck, &steps, None, &people(), &["ana".into()]);
    let over = stall("key", &stuck, &steps, Some("recovered after 2 nudges"), &people(), &["ana".into()]);
    assert!(calls(&json!(over)).is_empty() && values(&over).is_empty());
    assert!(values(&open).iter().all(|(_, value)| value == "ses_0123456789abcdef"));
    insta::assert_snapshot!(format!("{}\n\n{}", shown(&open), shown(&over)), @r"
    (shop: *Stalled 7 min* (since <!date^1772625000^{time}, {date_short_pretty}|2026-03-04 11:50 UTC>); last: cargo test running, no CPU (running since <!date^1772625060^{time}, {date_short_pretty}|2026-03-04 11:51 UTC>))
    # 🔴 Stalled · shop
    <@U1>, please look
    *Stalled 7 min* (since <!date^1772625000^{time}, {date_short_pretty}|2026-03-04 11:50 UTC>); last: cargo test running, no CPU (running since <!date^1772625060^{time}, {date_short_pretty}|2026-03-04 11:51 UTC>)
    • nudged 1/2
    • nudged 2/2: ∗wake∗
    [Nudge nudge !] [Nudge with… nudge_with] [Interrupt interrupt] [Kill kill !! ? Kill this agent? Its process and all processes that it started are killed at once. Unsaved work is lost.] [Snooze 30 m snooze]
    -- fix-login · demo -- `ses_0123456789abcdef`

    (shop: Resolved: recovered after 2 nudges)
    # ✅ No longer stalled · shop
    Resolved: recovered after 2 nudges
    • nudged 1/2
    • nudged 2/2: ∗wake∗
    -- fix-login · demo -- `ses_0123456789abcdef`
    ");
}

#[test]
fn an_exit_shows_the_end_of_stderr() {
    let tail = (0..20).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
    let ended = session(json!({"phase": "ended", "stderr_tail": tail, "ended_at": "2026-03-04T11:58:00Z",
        "exit": {"code": null, "signal": 9, "reason": "killed by ana"}}));
    let open = shown(&exit("key", &ended, None, &people(), &["ana".into()]));
    assert!(!open.contains("> line 4\n") && open.contains("> line 5\n"));
    let again = exit("key", &ended, Some("restarted by bo"), &people(), &["ana".into()]);
    assert!(calls(&json!(again)).is_empty() && values(&again).is_empty());
    let short =
        |card: &str| card.lines().filter(|line| !line.starts_with("> line 1")).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(format!("{}\n\n{}", short(&open), short(&shown(&again))), @r"
    (shop: the agent has ended. *Signal 9*: killed by ana)
    # 💥 The agent has ended · shop
    <@U1>, please look
    *Signal 9*: killed by ana
    Last lines of stderr:
    > line 5
    > line 6
    > line 7
    > line 8
    > line 9
    [Restart restart !]
    -- fix-login · demo -- Ended at <!date^1772625480^{time}, {date_short_pretty}|2026-03-04 11:58 UTC> -- `ses_0123456789abcdef`

    (shop: the agent has ended. *Signal 9*: killed by ana)
    # 💥 The agent has ended · shop
    *Signal 9*: killed by ana
    Last lines of stderr:
    > line 5
    > line 6
    > line 7
    > line 8
    > line 9
    🔄 restarted by bo
    -- fix-login · demo -- Ended at <!date^1772625480^{time}, {date_short_pretty}|2026-03-04 11:58 UTC> -- `ses_0123456789abcdef`
    ");
}

#[test]
fn a_turn_is_summed_up() {
    let session = session(json!({}));
    let cards = [
        shown(&turn(
            "key",
            &session,
            "All *done*.\nSee https://x.example\n",
            Some("end_turn"),
            TurnCounts { turns: 1, tools: 9, is_partial: false, allowed: 3 },
        )),
        shown(&turn("key", &session, "", Some("max_tokens"), TurnCounts::default())),
        shown(&talk("key", &session, "Looking…")),
        shown(&note("key", MrkdwnText::new("Noted by ").and(people().show("ana")))),
    ];
    insta::assert_snapshot!(cards.join("\n\n"), @r"
    (shop: All ∗done∗.⏎See https[:]//x.example)
    > All *done*.
    > See https://x.example
    -- turn ended -- 9 tool calls, 3 allowed by rules

    (shop: the turn has ended)
    The turn ended without a message.
    -- turn ended -- reason: max_tokens

    (shop: Looking…)
    > Looking…

    (Noted by ana)
    Noted by ana
    ");
    let long = json!(turn(
        "key",
        &session,
        &"w ".repeat(5_000),
        None,
        TurnCounts { turns: 1, tools: 1, is_partial: true, allowed: 0 }
    ));
    let text = long["blocks"][0]["elements"][0]["elements"][0]["text"].as_str().unwrap();
    assert_eq!(text.chars().count(), 2_500);
}
