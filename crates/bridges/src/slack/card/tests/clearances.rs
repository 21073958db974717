use super::*;

fn card(with: Value) -> String {
    shown(&clearance("key", &a_clearance(with), &session(json!({})), &people(), &["ana".into(), "cy".into()]))
}

#[test]
fn a_clearance_asks_with_all_that_one_needs_to_decide() {
    insta::assert_snapshot!(card(json!({"expires_at": "2026-03-04T12:30:00.000Z", "description": "To be *sure*.\n"})), @r"
    (shop: clearance requested, low risk: “Run the tests”)
    # 🟢 execute · shop
    <@U1>, cy are asked
    *Run the tests*
    | *Session* fix-login · demo
    | *Tool* execute
    | *Risk* low: only tests
    | *Reason for asking* no rule allows it
    > To be *sure*.
    > cargo test --workspace
    [Allow once allow !] [Always… always] [Deny deny !!] [Deny with reason… deny_reason] [Details details]
    -- expires at <!date^1772627400^{time}, {date_short_pretty}|2026-03-04 12:30 UTC> -- asked at <!date^1772625420^{time}, {date_short_pretty}|2026-03-04 11:57 UTC> -- `clr_0123456789abcdef`
    ");
}

#[test]
fn what_is_of_high_risk_is_confirmed_and_says_who_claims_what() {
    let with = json!({"risk": "high", "computed_risk": "high", "claimed_risk": "low", "risk_why": ["deletes", "outside"],
        "title": "Clean up", "tool": null, "command": null, "file_path": "src/a_b.rs", "more_paths": ["x", "y"],
        "diff": "--- a\n+++ b\n-x <!here>\n+y\n", "hidden": ["a token"]});
    insta::assert_snapshot!(card(with), @r"
    (shop: clearance requested, high risk: “Clean up”)
    # 🟠 change · shop
    <@U1>, cy are asked
    *Clean up*
    | *Session* fix-login · demo
    | *Path* src/a_b.rs (+2 more)
    | *Risk* high (the agent says low): deletes, outside
    | *Reason for asking* no rule allows it
    > --- a
    > +++ b
    > -x <!here>
    > +y
    [Allow once allow ! ? Allow a request of high risk? *high risk*: “Clean up”] [Always… always] [Deny deny !!] [Deny with reason… deny_reason] [Details details]
    -- asked at <!date^1772625420^{time}, {date_short_pretty}|2026-03-04 11:57 UTC> -- hidden here: a token -- `clr_0123456789abcdef`
    ");
}

#[test]
fn a_button_says_nothing_but_the_id() {
    let card = clearance("key", &a_clearance(json!({})), &session(json!({})), &people(), &[]);
    let values = values(&card);
    let actions: Vec<&str> = values.iter().map(|(action, _)| action.as_str()).collect();
    assert_eq!(actions, ["allow", "always", "deny", "deny_reason", "details"]);
    assert!(values.iter().all(|(_, value)| value == "clr_0123456789abcdef"));
    assert_eq!(json!(card)["blocks"][0]["block_id"], "key");
}

#[test]
fn the_own_options_of_an_agent_are_shown_where_they_say_more() {
    let option = |id: &str, name: &str, kind: &str| json!({"id": id, "name": name, "kind": kind});
    let actions = |options: Value| {
        let clearance_ = a_clearance(json!({ "options": options }));
        let card = clearance("key", &clearance_, &session(json!({})), &people(), &[]);
        limits(&json!(card));
        values(&card).into_iter().map(|(action, _)| action).collect::<Vec<_>>().join(" ")
    };
    let ours = "allow always deny deny_reason details";
    let (yes, no) = (option("a", "Allow", "allow_once"), option("r", "Reject", "reject_once"));
    assert_eq!(actions(json!([])), ours);
    assert_eq!(actions(json!([yes, no, option("w", "Always Allow", "allow_always")])), ours);
    let own = "option.0 option.1 always deny deny_reason details";
    assert_eq!(actions(json!([option("a", "Yes, and run the tests", "allow_once"), no])), own);
    assert_eq!(actions(json!([yes, option("b", "Allow", "allow_once")])), own);
    assert_eq!(actions(json!([no, option("x", "Never", "reject_always")])), own);
}

#[test]
fn a_quorum_tells_who_has_approved() {
    let card = card(json!({"needed": 2, "approvals": ["ana"]}));
    assert!(card.contains("\n1 of 2 approvals (ana)\n"), "{card}");
}

#[test]
fn a_long_diff_is_shown_in_part_and_says_so() {
    let lines = |n: usize| (0..n).map(|n| format!("+line {n}")).collect::<Vec<_>>().join("\n");
    let long = a_clearance(json!({"diff": lines(75), "command": null}));
    assert!(diff_is_cut(&long) && !diff_is_cut(&a_clearance(json!({"diff": lines(60)}))));
    let card = card(json!({"diff": lines(75), "command": null}));
    assert!(card.contains("> +line 59\n… 15 more lines: see the file below\n"), "{card}");
    let wide = a_clearance(json!({"command": "x".repeat(9_000), "diff": "y".repeat(9_000)}));
    assert!(command_is_cut(&wide) && diff_is_cut(&wide));
}

#[test]
fn a_card_full_of_everything_is_cut_only_where_it_says_so() {
    let long = "long & ".repeat(2_000);
    let diff = (0..75).map(|n| format!("+{n} {}", "x".repeat(70))).collect::<Vec<_>>().join("\n");
    let full = |status: &str| {
        let many = vec![long.as_str(); 9];
        let with = json!({"status": status, "title": long, "tool": long, "description": long, "file_path": long,
            "more_paths": many, "command": long, "diff": diff, "risk": "critical", "claimed_risk": long,
            "computed_risk": long, "risk_why": many, "ruling": {"outcome": "ask", "why": long}, "hidden": many,
            "decided_by": long, "decided_at": "2026-03-04T11:58:00Z", "reason": long, "outcome": long, "needed": 2,
            "approvals": many, "delivery": "failed", "delivery_cause": long, "expires_at": "2026-03-04T11:58:00Z"});
        let session = session(json!({"name": long, "agent": long, "workspace": long}));
        shown(&clearance(
            "key",
            &a_clearance(with),
            &session,
            &people(),
            &many.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
        ))
    };
    for status in ["pending", "approved", "denied"] {
        let card = full(status);
        let last = card.lines().rfind(|line| line.starts_with("> +")).unwrap();
        assert!(last.ends_with('x') && card.contains("more lines: see the file below"), "{last}");
    }
}

#[test]
fn a_decided_clearance_has_no_buttons_and_calls_nobody() {
    let decided = |with: Value| {
        let clearance_ = a_clearance(with);
        let card = clearance("key", &clearance_, &session(json!({})), &people(), &["ana".into()]);
        assert!(values(&card).is_empty() && calls(&json!(card)).is_empty());
        let shown = shown(&card);
        shown.lines().nth(2).unwrap().to_owned()
    };
    let at = "2026-03-04T11:58:00.000Z";
    let lines = [
        decided(
            json!({"status": "approved", "decided_by": "ana", "decided_at": at, "delivery": "delivered", "outcome": "ran"}),
        ),
        decided(json!({"status": "denied", "decided_by": "ana", "decided_at": at, "delivery": "failed",
            "delivery_cause": "stream closed", "reason": "use <make>"})),
        decided(
            json!({"status": "approved", "decided_by": "tests", "decided_via": "policy", "delivery": "pending"}),
        ),
        decided(json!({"status": "withdrawn", "reason": "the agent exited", "delivery": "none"})),
        decided(json!({"status": "expired"})),
        decided(json!({"status": "approved", "decided_by": "ana", "option": "b", "options": [
            {"id": "a", "name": "Yes", "kind": "allow_once"}, {"id": "b", "name": "Yes, all", "kind": "allow_once"}]})),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    ✅ Allowed by ana at <!date^1772625480^{time}, {date_short_pretty}|2026-03-04 11:58 UTC> · delivered · ran
    ⛔ Denied by ana at <!date^1772625480^{time}, {date_short_pretty}|2026-03-04 11:58 UTC>: use &lt;make&gt; · *not delivered*: stream closed
    ✅ Allowed by the rule tests · not delivered yet
    ⚪ Withdrawn: the agent exited
    ⌛ Expired
    ✅ Allowed by ana (Yes, all)
    ");
}

#[test]
fn a_question_is_asked_and_its_answer_told() {
    let ask = |with: Value| {
        shown(&question("key", &a_question(with), &session(json!({})), &people(), &["bo".into()]))
    };
    let answered = json!({"status": "answered", "decision": "refine", "instruction": "keep a copy", "answered_by": "bo",
        "answered_at": "2026-03-04T11:58:00.000Z", "delivery": "delivered"});
    insta::assert_snapshot!(format!("{}\n\n{}", ask(json!({})), ask(answered)), @r"
    (shop asks: Drop the table?⏎It is ∗old∗.)
    # ❓ Question · shop
    <@U2> is asked
    > Drop the table?
    > It is *old*.
    [Continue continue !] [Refine… refine] [Stop stop_question !! ? Stop here? The agent is told to stop.]
    -- fix-login · demo -- continuation -- asked at <!date^1772625420^{time}, {date_short_pretty}|2026-03-04 11:57 UTC> -- `qst_0123456789abcdef`

    (shop: ✏ Refined by bo at <!date^1772625480^{time}, {date_short_pretty}|2026-03-04 11:58 UTC>: keep a copy · delivered: Drop the table?⏎It is ∗old∗.)
    # ❓ Question · shop
    ✏ Refined by bo at <!date^1772625480^{time}, {date_short_pretty}|2026-03-04 11:58 UTC>: keep a copy · delivered
    > Drop the table?
    > It is *old*.
    -- fix-login · demo -- continuation -- asked at <!date^1772625420^{time}, {date_short_pretty}|2026-03-04 11:57 UTC> -- `qst_0123456789abcdef`
    ");
}
