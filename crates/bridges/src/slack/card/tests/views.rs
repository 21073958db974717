use super::*;

#[test]
fn details_tell_what_every_rule_makes_of_it() {
    let explanation = json!({"now": {"why": "no rule allows it"}, "rules": [
        {"n": 1, "name": "no rm", "then": "deny", "matches": false, "decides": false, "unmet": "command", "why": "it is `cargo`"},
        {"n": 2, "name": "tests", "then": "ask", "matches": true, "decides": true, "unmet": null, "why": null},
        {"n": 3, "name": "all", "then": "ask", "matches": true, "decides": false, "unmet": null, "why": null}]});
    let clearance = a_clearance(json!({"file_path": "a.rs", "more_paths": ["b\n.rs"], "description": "why"}));
    insta::assert_snapshot!(shown(&clearance_details(&clearance, &session(json!({})), &explanation)), @r"
    title: Details
    close: Close
    private_metadata: clr_0123456789abcdef
    callback_id: details
    *Run the tests*
    | *Session* fix-login · demo
    | *Tool* execute
    | *Path* a.rs (+1 more)
    | *Risk* low: only tests
    | *Reason for asking* no rule allows it
    *Why this risk*
    • only tests
    *Files*
    > a.rs
    > b⏎.rs
    *The agent's description*
    > why
    *Rules*
    ○ no rm (deny): does not match, command: it is ˋcargoˋ
    ▶ tests (ask): *decides*
    ○ all (ask): would match, but an earlier rule decides
    Now: no rule allows it
    *Command*
    > cargo test --workspace
    -- asked at <!date^1772625420^{time}, {date_short_pretty}|2026-03-04 11:57 UTC> -- `clr_0123456789abcdef`
    ");
    shown(&clearance_details(&clearance, &session(json!({})), &Value::Null));
}

#[test]
fn forms_say_what_will_happen() {
    let clearance = a_clearance(json!({"risk": "high"}));
    let forms = [
        shown(&always(&clearance, "allow requests beginning with `cargo test`", "d1g35t")),
        shown(&deny_reason(&clearance)),
        shown(&refine(&a_question(json!({})))),
        shown(&nudge_with(&session(json!({})))),
        shown(&send_to_agent(&[session(json!({})), session(json!({"phase": "ended"}))], "do it\nnow")),
        shown(&send_to_agent(&[], "do it")),
        shown(&help("key")),
    ];
    insta::assert_snapshot!(forms.join("\n\n"), @r"
    title: Always allow
    submit: Allow always
    close: Cancel
    private_metadata: clr_0123456789abcdef d1g35t
    callback_id: always
    This request is allowed, and this rule is added:
    > allow requests beginning with `cargo test`
    The rule allows every request that it describes, in this session and in later ones.
    ⚠ The current request is of *high risk*.
    <duration: How long> 1 hour=1h, 8 hours=8h, 1 day=1d, 7 days=7d, until revoked=until_revoked 8h

    title: Deny with reason
    submit: Deny
    close: Cancel
    private_metadata: clr_0123456789abcdef
    callback_id: deny_reason
    *“Run the tests”*
    <reason: Reason, for the agent>

    title: Refine
    submit: Send
    close: Cancel
    private_metadata: qst_0123456789abcdef
    callback_id: refine
    > Drop the table?
    > It is *old*.
    <instruction: What should it do?>

    title: Nudge
    submit: Nudge
    close: Cancel
    private_metadata: ses_0123456789abcdef
    callback_id: nudge_with
    To fix-login · demo
    <message: Message to the agent>

    title: Send to agent
    submit: Send
    close: Cancel
    callback_id: send
    <session: Session> shop · fix-login · demo=ses_0123456789abcdef ses_0123456789abcdef
    <text: Prompt>  do it
    now

    title: Send to agent
    close: Close
    callback_id: send
    No session is running.

    (Commands of intercom)
    # intercom
    *Anywhere*; only you see the answer:
    • `/intercom ls` – list sessions; `/intercom status [session]` – show one
    • `/intercom start &lt;agent&gt; [in &lt;workspace&gt;] &lt;prompt&gt;` – start a session
    • `/intercom send &lt;session&gt; &lt;text&gt;`, `nudge`, `stop` – steer a session
    • `/intercom clearances`, `policy`, `whoami`, `help`
    *In the thread of a session*, a message is a prompt to its agent, unless it is exactly one of these commands:
    • `approve`, `deny &lt;reason&gt;`, `always` – decide its clearance
    • `continue`, `refine &lt;text&gt;` – answer its question
    • `nudge`, `nudge: &lt;text&gt;`, `interrupt`, `stop` – wake the agent, end its turn, stop the session
    • `status`, `queue` – show its state, or its queued prompts
    • `verbosity quiet`, `normal` or `stream` – set how much this thread shows
    -- The Home tab of this app shows everything that is waiting for you.
    ");
}

#[test]
fn the_home_shows_first_what_waits_for_you() {
    let sessions = [
        session(
            json!({"id": "ses_1111111111111111", "name": "one", "phase": "idle", "why": "turn over, ready for a prompt"}),
        ),
        session(
            json!({"phase": "waiting", "why": "waiting for you: 2 clearances", "pending": {"clearances": 2}}),
        ),
        session(
            json!({"id": "ses_2222222222222222", "name": "two", "phase": "ended", "why": "stopped by ana", "ended_at": "2026-03-04T11:00:00Z"}),
        ),
    ];
    let clearances = [
        a_clearance(json!({})),
        a_clearance(json!({"id": "clr_2222222222222222", "risk": "high", "title": "Deploy"})),
        a_clearance(json!({"id": "clr_3333333333333333", "status": "denied"})),
    ];
    let home_of = |role| home(&sessions, &clearances, &[a_question(json!({}))], Some(("ana", role)));
    let actions =
        |role| values(&home_of(role)).into_iter().map(|(action, _)| action).collect::<Vec<_>>().join(" ");
    assert_eq!(actions("viewer"), "details details");
    assert_eq!(actions("operator"), "details details continue refine stop_question");
    insta::assert_snapshot!(shown(&home_of("approver")), @r"
    -- You are ana, approver
    # Waiting for you
    🟠 *“Deploy”*
    `cargo test --workspace`
    shop · fix-login · high risk · asked at <!date^1772625420^{time}, {date_short_pretty}|2026-03-04 11:57 UTC>
    [Details details]
    🟢 *“Run the tests”*
    `cargo test --workspace`
    shop · fix-login · low risk · asked at <!date^1772625420^{time}, {date_short_pretty}|2026-03-04 11:57 UTC>
    [Allow once allow !] [Deny deny !!] [Details details]
    ❓ Drop the table?⏎It is ∗old∗.
    shop · fix-login · asked at <!date^1772625420^{time}, {date_short_pretty}|2026-03-04 11:57 UTC>
    [Continue continue !] [Refine… refine] [Stop stop_question !! ? Stop here? The agent is told to stop.]
    # Sessions
    *shop* · demo · fix-login
    🙋 *waiting for you* · 2 clearances
    *shop* · demo · one
    💤 *idle* · turn over, ready for a prompt
    *shop* · demo · two
    ⚫ *ended* · stopped by ana · <!date^1772622000^{time}, {date_short_pretty}|2026-03-04 11:00 UTC>
    ----
    *Start a session:* `/intercom start &lt;agent&gt; [in &lt;workspace&gt;] &lt;prompt&gt;`
    `/intercom help` lists all commands.
    ");
    insta::assert_snapshot!(shown(&home(&sessions, &clearances, &[], None)), @r"
    👋 This app shows coding agents to the people who run them. To use it, ask one of them to add you as an operator.
    ");
}

#[test]
fn what_does_not_fit_into_the_home_is_counted() {
    let sessions: Vec<Session> = (0..90)
        .map(|n| {
            session(json!({"id": format!("ses_{n:016}"), "phase": if n < 30 { "ended" } else { "idle" }}))
        })
        .collect();
    let clearances: Vec<Clearance> =
        (0..40).map(|n| a_clearance(json!({"id": format!("clr_{n:016}")}))).collect();
    let questions: Vec<Question> =
        (0..40).map(|n| a_question(json!({"id": format!("qst_{n:016}")}))).collect();
    let home = shown(&home(&sessions, &clearances, &questions, Some(("ana", "admin"))));
    for more in
        ["24 more clearances", "32 more questions", "25 more sessions", "25 more sessions that ended before"]
    {
        assert!(home.contains(&format!("\n… and {more}\n")), "{more}: {home}");
    }
    assert!(home.contains("/intercom start") && !home.contains("than fits here"));
}
