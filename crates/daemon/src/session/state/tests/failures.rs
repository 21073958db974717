//! When a session has failed, in which words, and when that is over.

use super::prompts::agent_owned;
use super::*;
use intercom_types::{FailureKind, LineRejection, StopMode};

fn exited(code: i32, stderr: &str, unanswered: Option<&'static str>) -> SessionInput {
    SessionInput::Exited(Box::new(AgentExit {
        exit: Exit { code: Some(code), signal: None },
        reason: "stream closed".to_owned(),
        stderr_tail: stderr.to_owned(),
        unanswered,
        ..AgentExit::default()
    }))
}

fn error_end(stop_reason: &str) -> AgentMessage {
    let AgentMessage::TurnEnd { tokens, params, turn, message, .. } = turn_end() else { unreachable!() };
    AgentMessage::TurnEnd { stop_reason: stop_reason.to_owned(), tokens, params, failed: true, turn, message }
}

fn log_in() -> AgentMessage {
    let (reason, how) = ("claude needs a login".into(), "log in: run `claude`".into());
    AgentMessage::LogInNeeded { reason, words: "no".into(), how, untouched: true }
}

fn noise(excerpt: &str) -> AgentMessage {
    let rejection = LineRejection {
        reason: "bad".into(),
        excerpt: excerpt.to_owned(),
        bytes: 0,
        method: None,
        field: None,
    };
    AgentMessage::Rejected { rejection, fault: None }
}

fn failed(world: &World) -> Option<(FailureKind, String)> {
    world.state.record().failed.map(|failed| (failed.kind, failed.reason))
}

#[test]
fn a_turn_that_ends_with_an_error_fails_the_session_until_one_succeeds() {
    let mut world = agent_owned();
    world.go(prompt("one"));
    world.say(error_end("error: claude failed: disk full."));
    let failure = Some((FailureKind::Turn, "claude failed: disk full".to_owned()));
    assert_eq!((world.state.phase(), failed(&world)), (Phase::Idle, failure.clone()));
    assert_eq!(world.state.why(), "failed: claude failed: disk full");
    world.go(prompt("two"));
    assert_eq!(failed(&world), failure, "a turn that runs has not succeeded");
    world.say(turn_end());
    assert_eq!(failed(&world), None);
    assert_eq!(world.state.why(), "turn over, ready for a prompt");
}

#[test]
fn the_words_of_an_agent_without_a_handshake_are_quoted() {
    let mut world = World::new();
    world.go(prompt("one"));
    world.say(error_end("error: no model."));
    assert_eq!(failed(&world), Some((FailureKind::Turn, "“no model”".to_owned())));
}

#[test]
fn an_error_that_answers_a_cancel_is_no_failure() {
    for stop_reason in ["error: claude failed: aborted.", "cancelled"] {
        let mut world = agent_owned();
        world.go(prompt("one"));
        world.go(SessionInput::Interrupt { reason: "no".into(), by: "ana".into() });
        world.say(error_end(stop_reason));
        assert_eq!(failed(&world), None);
    }
}

#[test]
fn an_agent_that_wants_a_log_in_has_failed_at_its_start_and_in_its_turn() {
    let expected = Some((FailureKind::LogIn, "claude needs a login: “no”".to_owned()));
    let mut world = agent_owned();
    world.go(prompt("one"));
    world.say(log_in());
    world.say(error_end("error: claude needs a login: no. Log in."));
    assert_eq!(failed(&world), expected);
    // It may also say so in plain words, as if all were well.
    let mut world = agent_owned();
    world.go(prompt("one"));
    world.say(log_in());
    world.say(turn_end());
    assert_eq!(failed(&world), expected);
    let mut world = World::with(|spec| spec.turn_model = TurnModel::AgentOwned);
    world.launch();
    world.say(log_in());
    world.say(AgentMessage::Unusable { reason: "claude needs a login: no. Log in.".into() });
    assert_eq!((world.state.phase(), failed(&world)), (Phase::Stopping, expected.clone()));
    world.go(exited(0, "", None));
    assert_eq!((world.state.phase(), failed(&world)), (Phase::Ended, expected));
    let hint = world.state.record().failed.unwrap().hint(Phase::Ended, "shop", 0);
    assert_eq!(hint, "log in: run `claude`; then `intercom resume shop`");
}

#[test]
fn a_prompt_that_could_not_be_begun_for_want_of_a_log_in_is_sent_to_the_next_process_once() {
    let texts = |world: &World| -> Vec<String> {
        world.state.turns.queue.iter().map(|queued| queued.text.clone()).collect()
    };
    let mut world = agent_owned();
    world.go(prompt("one"));
    world.go(prompt("two"));
    world.say(log_in());
    let effects = world.say(error_end("error: no"));
    let sent = |effects: &[StepEffect]| {
        effects.iter().filter(|effect| matches!(effect, StepEffect::Send { .. })).count()
    };
    assert_eq!((texts(&world), sent(&effects)), (vec!["one".into(), "two".into()], 0), "the queue waits");
    assert!(!world.state.record().failed.unwrap().prompt_lost);
    // An agent whose queue waits for people is watched as one without a queue: it is not stuck.
    let (watch_policy, now) = (crate::session::stall::tests::watch_policy(), Time::from_millis(world.time));
    let mut without = world.state.clone();
    without.turns.queue.clear();
    assert_eq!(world.state.next_due(now, &watch_policy), without.next_due(now, &watch_policy));
    without.turns.queue.clone_from(&world.state.turns.queue);
    without.failures.awaits_log_in = false;
    assert_ne!(world.state.next_due(now, &watch_policy), without.next_due(now, &watch_policy), "others are");
    world.go(SessionInput::Delivered { n: world.state.outbox.next_n - 1 });
    world.go(exited(0, "", None));
    world.go(SessionInput::Resume { by: "ana".into() });
    world.go(SessionInput::Spawned { pid: 43 });
    let effects = world.say(super::prompts::ready());
    assert_eq!((texts(&world), sent(&effects)), (vec!["two".into()], 1));
    world.say(turn_end());
    assert_eq!(texts(&world), Vec::<String>::new());
    // A person who asks again in the same words asks once.
    let mut world = agent_owned();
    world.go(prompt("one"));
    world.say(log_in());
    world.say(error_end("error: no"));
    let kinds = world.kinds(prompt("one"));
    assert_eq!(kinds[..2], ["prompt.withdrawn", "prompt.queued"], "{kinds:?}");
    assert_eq!((texts(&world), world.state.phase()), (Vec::new(), Phase::Working));
    // What the agent has begun with is not repeated.
    let mut world = agent_owned();
    world.go(prompt("one"));
    world.say(AgentMessage::Tool { changes_something: true, call: None, params: Json::trusted("{}") });
    world.say(log_in());
    world.say(error_end("error: no"));
    assert_eq!((texts(&world), world.state.record().failed.unwrap().prompt_lost), (Vec::new(), true));
}

#[test]
fn a_failure_is_over_once_an_operator_has_seen_it() {
    let mut world = agent_owned();
    world.go(prompt("one"));
    world.say(error_end("error: no"));
    let at = world.state.record().failed.unwrap().at;
    let seen = |at| SessionInput::Seen { at, by: "ana".into() };
    assert_eq!(world.kinds(seen(Some(at.plus(Duration::from_secs(1))))), Vec::<&str>::new(), "another one");
    assert!(failed(&world).is_some());
    assert_eq!(world.kinds(seen(Some(at))), ["session.seen"]);
    assert_eq!(failed(&world), None);
    assert_eq!(world.state.why(), "its last turn failed: no", "it is not as if nothing had happened");
    assert_eq!(world.kinds(seen(None)), Vec::<&str>::new(), "there is none any more");
    world.go(prompt("two"));
    world.say(error_end("error: again"));
    world.go(exited(1, "", Some("session/prompt")));
    assert_eq!(world.kinds(seen(None)), ["session.seen"], "also after the end");
}

#[test]
fn whoever_resumes_a_session_knows_of_its_failure() {
    for (by, seen) in [("ana", true), ("intercom", false)] {
        let mut world = World::running();
        world.go(exited(1, "", None));
        world.go(SessionInput::Resume { by: by.into() });
        assert_eq!(failed(&world).is_none(), seen, "{by}");
    }
}

#[test]
fn an_exit_is_told_with_its_moment_and_the_last_line() {
    let check = |world: &mut World, input, expected: (FailureKind, &str)| {
        world.go(input);
        let (kind, reason) = expected;
        assert_eq!(failed(world), Some((kind, reason.to_owned())));
        assert_eq!(world.state.why(), reason);
    };
    let mut world = World::with(|spec| spec.turn_model = TurnModel::AgentOwned);
    world.launch();
    world.say(noise("Welcome!\n"));
    check(
        &mut world,
        exited(1, "warning\n\u{1b}[31mboom\u{1b}[0m\u{7}\n\n", Some("initialize")),
        (FailureKind::Start, "exited with code 1 before it answered `initialize`: “boom”"),
    );
    let mut world = World::running();
    world.say(noise("kimi is discontinued"));
    check(
        &mut world,
        exited(0, "", None),
        (FailureKind::Start, "exited with code 0 before any output: “kimi is discontinued”"),
    );
    let mut world = World::running();
    world.say(status());
    check(&mut world, exited(3, "", None), (FailureKind::Exit, "exited with code 3 during a turn"));
    let mut world = agent_owned();
    check(&mut world, exited(3, "bye", None), (FailureKind::Exit, "exited with code 3: “bye”"));
    let mut world = agent_owned();
    world.go(prompt("one"));
    let unanswered = Some("session/prompt");
    check(&mut world, exited(0, "", unanswered), (FailureKind::Exit, "exited with code 0 during a turn"));
    let mut world = World::new();
    world.go(SessionInput::Launch {
        by: "ana".into(),
        command: "agent".into(),
        prompt: None,
        ladder: LadderChoice::Configured,
    });
    world.go(SessionInput::SpawnFailed { cause: "no such file".into() });
    let failure = (FailureKind::Start, "could not be started: no such file".to_owned());
    assert_eq!(failed(&world), Some(failure));
}

#[test]
fn a_clean_exit_and_a_stop_are_no_failures() {
    let mut world = World::running();
    world.say(status());
    world.go(exited(0, "all done", None));
    let mut silent = World::running();
    silent.go(exited(0, "", None));
    assert_eq!(failed(&silent), None, "a command that was told nothing");
    assert_eq!(
        (failed(&world), world.state.why()),
        (None, "exited with code 0 during a turn: “all done”".into())
    );
    for mode in [StopMode::Stop, StopMode::Kill] {
        let mut world = World::running();
        world.go(SessionInput::Stop { mode, by: "ana".into() });
        world.go(exited(1, "", None));
        assert_eq!(failed(&world), None);
        assert!(world.state.why().ends_with("ed by ana (exit code 1)"), "{}", world.state.why());
    }
}

#[test]
fn a_reason_is_one_line_of_bounded_length() {
    let mut world = World::running();
    world.go(exited(1, &format!("{}\n", "é".repeat(1000)), None));
    let (_, reason) = failed(&world).unwrap();
    assert!(reason.chars().count() < 300 && reason.ends_with("…”"), "{reason}");
    let mut world = agent_owned();
    world.go(prompt("one"));
    world.say(error_end(&format!("error: a\nb\u{1b}[2J{}", "x".repeat(2000))));
    let (_, reason) = failed(&world).unwrap();
    assert!(reason.starts_with("a bxx") && reason.chars().count() <= 501, "{reason}");
}
