//! Interrupts: a turn ends with its agent's word or after a silence, and no late word ends the next one.

use intercom_testkit::harness::{Daemon, of_kind, profile, wait_turns};
use intercom_testkit::seats::{Seat, Way, named};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// An agent that does not confirm an interrupt is waited for briefly.
const BRIEF: &str = "[acp]\ninterrupt_quiet_seconds = 0.3\n";

fn interrupt(daemon: &Daemon, session: &str) {
    let (status, body) = daemon.post(&format!("/api/v1/sessions/{session}/interrupt"), &json!({}));
    assert_eq!(status, 202, "{body}");
}

/// The step that waits until [`open`] is called.
fn gate(daemon: &Daemon, name: &str) -> String {
    format!("wait-file:{}", daemon.dir.path().join(name).display())
}

fn open(daemon: &Daemon, name: &str) {
    std::fs::write(daemon.dir.path().join(name), "").unwrap();
}

/// Waits until an agent's `turn/end` has ended nothing, the nth of them.
fn wait_late_end(daemon: &Daemon, session: &str, count: usize) {
    let seen = std::cell::Cell::new(0);
    daemon.wait_for(session, "a late end", |event| {
        let late = event["kind"] == "unknown" && event["data"]["message"]["method"] == "turn/end";
        seen.set(seen.get() + usize::from(late));
        seen.get() == count
    });
}

/// A session that was interrupted in its first turn and has not confirmed it, with the second prompt written.
fn unconfirmed(daemon: &Daemon, then: &[&str]) -> String {
    let first = ["expect:prompt/send", "status:one", "expect:session/interrupt"];
    let session = daemon.run(&[&first, then].concat());
    daemon.prompt(&session, "one");
    daemon.wait_status(&session, "one");
    interrupt(daemon, &session);
    let ended = wait_turns(daemon, &session, 1)["data"].clone();
    assert_eq!((&ended["stop_reason"], &ended["confirmed"]), (&json!("interrupted"), &json!(false)));
    assert_eq!(daemon.prompt(&session, "two")["state"], "delivered");
    session
}

fn turn(daemon: &Daemon, session: &str) -> Value {
    daemon.show(session)["turn"]["id"].clone()
}

#[test]
fn a_late_confirmation_does_not_end_the_next_turn() {
    let daemon = Daemon::quick(BRIEF);
    let (late, go) = (gate(&daemon, "late"), gate(&daemon, "go"));
    let session = unconfirmed(
        &daemon,
        &[&late, "turn-end", &go, "expect:prompt/send", "status:two", "turn-end", "serve"],
    );
    let second = turn(&daemon, &session);
    open(&daemon, "late");
    wait_late_end(&daemon, &session, 1);
    assert_eq!(turn(&daemon, &session), second);
    assert_eq!(daemon.show(&session)["phase"], "working");
    open(&daemon, "go");
    let ended = wait_turns(&daemon, &session, 2)["data"].clone();
    assert_eq!((&ended["turn"], &ended["stop_reason"]), (&second, &json!("end_turn")));
}

#[test]
fn another_daemon_knows_that_a_confirmation_may_come() {
    let daemon = Daemon::quick(BRIEF);
    let (late, go) = (gate(&daemon, "late"), gate(&daemon, "go"));
    let session = unconfirmed(&daemon, &[&late, "turn-end", &go, "expect:prompt/send", "turn-end", "serve"]);
    let second = turn(&daemon, &session);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    open(&daemon, "late");
    wait_late_end(&daemon, &session, 1);
    assert_eq!(turn(&daemon, &session), second);
    let (dir, _) = daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start_in(dir, &[], &[]);
    open(&daemon, "go");
    assert_eq!(wait_turns(&daemon, &session, 2)["data"]["turn"], second, "at most once per interrupt");
}

#[test]
fn an_agent_that_never_confirms_goes_on_with_the_next_prompt() {
    let daemon = Daemon::quick(BRIEF);
    let session = unconfirmed(&daemon, &["expect:prompt/send", "status:two", "turn-end", "serve"]);
    assert_eq!(wait_turns(&daemon, &session, 2)["data"]["stop_reason"], "end_turn");
    // Nothing is held against its later turns.
    daemon.prompt(&session, "turn-end");
    assert_eq!(wait_turns(&daemon, &session, 3)["data"]["stop_reason"], "end_turn");
}

#[test]
fn a_bare_end_answers_the_next_prompt_of_an_agent_that_has_confirmed() {
    let daemon = Daemon::quick("");
    let confirm = gate(&daemon, "confirm");
    let session = daemon.run(&[
        "expect:prompt/send",
        "status:one",
        "expect:session/interrupt",
        &confirm,
        "turn-end:stopped",
        "expect:prompt/send",
        "turn-end",
        "serve",
    ]);
    daemon.prompt(&session, "one");
    daemon.wait_status(&session, "one");
    interrupt(&daemon, &session);
    let shown = daemon.show(&session);
    assert_eq!(shown["why"], "interrupted: the agent has not ended its turn yet");
    assert_eq!(daemon.prompt(&session, "two")["state"], "queued", "it is for the next turn");
    open(&daemon, "confirm");
    let ended = wait_turns(&daemon, &session, 1)["data"].clone();
    assert_eq!(
        (&ended["stop_reason"], &ended["params"]["stop_reason"]),
        (&json!("interrupted"), &json!("stopped"))
    );
    assert_eq!(ended.get("confirmed"), None);
    assert_eq!(wait_turns(&daemon, &session, 2)["data"]["stop_reason"], "end_turn");
}

#[test]
fn a_bare_end_of_an_agent_that_has_not_confirmed_is_taken_for_that_once() {
    let daemon = Daemon::quick(BRIEF);
    let session =
        unconfirmed(&daemon, &["expect:prompt/send", "turn-end", "expect:prompt/send", "turn-end", "serve"]);
    wait_late_end(&daemon, &session, 1);
    daemon.prompt(&session, "three");
    assert_eq!(wait_turns(&daemon, &session, 2)["data"]["stop_reason"], "end_turn");
}

#[test]
fn an_agent_that_names_its_turns_ends_no_other() {
    let daemon = Daemon::quick(BRIEF);
    let go = gate(&daemon, "go");
    let session =
        unconfirmed(&daemon, &["expect:prompt/send", "status:two", "end-turn:1", &go, "end-turn:2", "serve"]);
    wait_late_end(&daemon, &session, 1);
    assert_eq!(daemon.show(&session)["phase"], "working");
    let second = turn(&daemon, &session);
    open(&daemon, "go");
    let ended = wait_turns(&daemon, &session, 2)["data"].clone();
    assert_eq!((&ended["turn"], &ended["params"]["turn"]), (&second, &second));
}

#[test]
fn a_cancelled_prompt_is_answered_so_once_its_agent_has_stopped() {
    let daemon = Daemon::quick(&profile(
        "native",
        &[
            "expect:prompt/send",
            "status:begun",
            "expect:session/interrupt",
            "status:tidying up",
            "turn-end",
            "serve",
        ],
        "",
    ));
    let mut seat = Seat::ready(Way::Lines, &daemon);
    let session = seat.begun_with(&daemon, json!({ "_meta": { "intercom": { "agent": "native" } } }));
    let turn = seat.begin_prompt(&session, "one");
    seat.until_words(&session, "begun");
    seat.notify("session/cancel", json!({ "sessionId": session }));
    assert_eq!(seat.answer_to(&turn)["result"], json!({ "stopReason": "cancelled" }));
    assert_eq!(seat.words(&session), ["begun\n", "tidying up\n"], "all of it before the answer");
}

#[test]
fn what_is_said_after_a_cancelled_prompt_was_answered_is_kept_and_no_update() {
    let (native, deaf) =
        (profile("native", &["serve"], ""), named("deaf", &["ignore:cancel", "ignore:cancel-request"]));
    let daemon = Daemon::quick(&format!("{BRIEF}{native}{deaf}"));
    let (first, second) = (gate(&daemon, "native"), gate(&daemon, "deaf"));
    let cases = [
        (
            "native",
            format!("status:begun;expect:session/interrupt;{first};status:too late"),
            "status:next;turn-end",
        ),
        ("deaf", format!("say:begun;{second};say:too late"), "say:next"),
    ];
    for (agent, script, next) in cases {
        let mut seat = Seat::ready(Way::WebSocket, &daemon);
        let session = seat.begun_with(&daemon, json!({ "_meta": { "intercom": { "agent": agent } } }));
        let turn = seat.begin_prompt(&session, &script);
        seat.until_words(&session, "begun");
        seat.notify("session/cancel", json!({ "sessionId": session }));
        assert_eq!(seat.answer_to(&turn)["result"]["stopReason"], "cancelled");
        open(&daemon, agent);
        daemon.wait_for(&session, "its late words", |event| {
            let said = event["kind"] == "status" || event["kind"] == "update";
            said && event["data"].to_string().contains("too late")
        });
        assert_eq!(seat.prompt(&session, next), "end_turn");
        let words: Vec<String> = seat.words(&session).iter().map(|text| text.trim().to_owned()).collect();
        assert_eq!(words, ["begun", "next"]);
        // Nor are those told who come later.
        let mut other = Seat::ready(Way::WebSocket, &daemon);
        other.load(&daemon, &session);
        let words: Vec<String> = other.words(&session).iter().map(|text| text.trim().to_owned()).collect();
        assert_eq!(words, ["begun", "next"]);
    }
}

#[test]
fn a_cancelled_prompt_is_never_answered_with_the_agents_error() {
    let daemon = Daemon::quick(&named("fixture", &["cancel:error"]));
    let mut seat = Seat::ready(Way::Lines, &daemon);
    let session = seat.begun(&daemon);
    let turn = seat.begin_prompt(&session, "say:begun;hang");
    seat.until_words(&session, "begun");
    seat.notify("session/cancel", json!({ "sessionId": session }));
    assert_eq!(seat.answer_to(&turn)["result"], json!({ "stopReason": "cancelled" }));
    let ended = wait_turns(&daemon, &session, 1)["data"].clone();
    assert_eq!((&ended["stop_reason"], ended.get("failed")), (&json!("cancelled"), None));
}

#[test]
fn the_interrupt_of_a_stop_may_be_confirmed() {
    let daemon = Daemon::with_config(&profile(
        "native",
        &["expect:prompt/send", "status:begun", "expect:session/interrupt", "turn-end", "serve"],
        "",
    ));
    let mut seat = Seat::ready(Way::Lines, &daemon);
    let session = seat.begun_with(&daemon, json!({ "_meta": { "intercom": { "agent": "native" } } }));
    let turn = seat.begin_prompt(&session, "one");
    seat.until_words(&session, "begun");
    daemon.end_session(&session, "stop");
    assert_eq!(seat.answer_to(&turn)["result"], json!({ "stopReason": "cancelled" }));
    let events = daemon.so_far(&session);
    let ends = of_kind(&events, "turn.ended");
    assert_eq!((ends.len(), &ends[0]["data"]["stop_reason"]), (1, &json!("interrupted")));
}
