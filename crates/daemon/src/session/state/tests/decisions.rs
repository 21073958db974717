//! Rules, quorums, the clock, and what comes of it.

use super::*;
use intercom_types::{ClearanceStatus, Controls, NamedSetting, StopMode};

pub(super) fn ruled(outcome: Outcome) -> RequestAssessment {
    let ruling = Ruling { outcome, rule: Some("rule 1".into()), why: "because".into(), whom: vec![] };
    RequestAssessment { ruling: Some(ruling), ..RequestAssessment::default() }
}

pub(super) fn limited(millis: u64, verdict: Verdict) -> RequestAssessment {
    RequestAssessment {
        limit: Some((Duration::from_millis(millis), verdict)),
        ..RequestAssessment::default()
    }
}

fn asked(world: &mut World, assessed: RequestAssessment) -> (ClearanceId, Vec<StepEffect>) {
    let effects = world.go(SessionInput::ClearanceRequested(Box::new(ask("1")), Box::new(assessed)));
    let opened = effects.iter().find_map(|effect| match effect {
        StepEffect::Record(NewEvent { event: Event::ClearanceRequested(requested), .. }) => {
            Some(requested.clearance)
        }
        _ => None,
    });
    (opened.unwrap(), effects)
}

fn kinds(effects: &[StepEffect]) -> Vec<&'static str> {
    effects.iter().filter_map(kind).filter(|kind| kind.starts_with("clearance")).collect()
}

#[test]
fn a_rule_decides_in_the_same_step_and_nobody_can_decide_again() {
    for (outcome, approved) in [(Outcome::Allow, true), (Outcome::Deny, false)] {
        let mut world = World::running();
        let (id, effects) = asked(&mut world, ruled(outcome));
        assert_eq!(kinds(&effects), ["clearance.requested", "clearance.decided"]);
        let reason = Some("because".to_owned());
        let expected = AgentCommand::Decision { request: super::id("1"), approved, reason, option: None };
        assert_eq!(sent(&effects), [(1, expected)]);
        assert_eq!(world.try_go(decide(id, Verdict::Approve)), Err(CommandRefusal::NotOpen));
    }
}

pub(super) fn to_restart(id: ClearanceId, outcome: Outcome) -> SessionInput {
    SessionInput::Ruled { clearance: id, ruling: ruled(outcome).ruling.unwrap() }
}

#[test]
fn a_rule_that_comes_later_decides_what_is_pending_and_nothing_else() {
    for (outcome, approved) in [(Outcome::Allow, true), (Outcome::Deny, false)] {
        let mut world = World::running();
        let (id, _) = asked(&mut world, RequestAssessment { needed: 2, ..ruled(Outcome::Ask) });
        world.go(decide_as("ana", id, Verdict::Approve));
        assert_eq!(kinds(&world.go(to_restart(id, Outcome::Ask))), [""; 0], "that leaves it to people");
        let effects = world.go(to_restart(id, outcome));
        assert_eq!(kinds(&effects), ["clearance.decided"]);
        let decided = effects.iter().find_map(|effect| match effect {
            StepEffect::Record(NewEvent { event: Event::ClearanceDecided(decided), .. }) => {
                Some((&*decided.by, &*decided.via, decided.ruling.clone()))
            }
            _ => None,
        });
        assert_eq!(decided, Some(("rule 1", "policy", ruled(outcome).ruling)));
        assert!(
            matches!(sent(&effects)[0].1, AgentCommand::Decision { approved: yes, .. } if yes == approved)
        );
        assert_eq!(kinds(&world.go(to_restart(id, outcome))), [""; 0], "once");
        assert_eq!(world.try_go(decide(id, Verdict::Approve)), Err(CommandRefusal::NotOpen));
    }
    let mut world = World::running();
    let (id, _) = asked(&mut world, RequestAssessment::default());
    world.go(decide(id, Verdict::Deny));
    assert_eq!(kinds(&world.go(to_restart(id, Outcome::Allow))), [""; 0], "a person was first");
    let (id, _) = asked(&mut world, RequestAssessment::default());
    world.go(SessionInput::Stop { mode: StopMode::Stop, by: "ana".into() });
    assert_eq!(kinds(&world.go(to_restart(id, Outcome::Allow))), [""; 0], "its end withdraws it");
}

#[test]
fn a_rule_that_asks_leaves_it_to_people() {
    let mut world = World::running();
    let (_, effects) = asked(&mut world, ruled(Outcome::Ask));
    assert_eq!(kinds(&effects), ["clearance.requested"]);
    assert_eq!(world.state.phase(), Phase::Waiting);
}

#[test]
fn two_approvals_are_needed_from_two_people_and_one_denial_is_enough() {
    let quorum = || RequestAssessment { needed: 2, ..RequestAssessment::default() };
    let mut world = World::running();
    let (id, _) = asked(&mut world, quorum());
    let first = world.go(decide_as("ana", id, Verdict::Approve));
    assert_eq!((kinds(&first), sent(&first).len()), (vec!["clearance.approved"], 0));
    assert_eq!(world.try_go(decide_as("ana", id, Verdict::Approve)), Err(CommandRefusal::Approved(2)));
    let second = world.go(decide_as("ben", id, Verdict::Approve));
    assert_eq!((kinds(&second), sent(&second).len()), (vec!["clearance.decided"], 1));

    let mut world = World::running();
    let (id, _) = asked(&mut world, quorum());
    world.go(decide_as("ana", id, Verdict::Approve));
    assert_eq!(kinds(&world.go(decide_as("ana", id, Verdict::Deny))), ["clearance.decided"]);
}

#[test]
fn what_has_waited_long_enough_is_decided_by_the_clock_once() {
    let mut world = World::running();
    let (id, _) = asked(&mut world, limited(3, Verdict::Deny));
    let at = world.state.next_expiry().unwrap();
    assert_eq!(at.millis(), world.time + 3);
    assert_eq!(kinds(&world.go(SessionInput::Expire)), [""; 0], "not yet");
    world.time = at.millis();
    let effects = world.go(SessionInput::Expire);
    assert_eq!(kinds(&effects), ["clearance.closed"]);
    let AgentCommand::Decision { approved, reason, .. } = &sent(&effects)[0].1 else { panic!("{effects:?}") };
    assert_eq!((*approved, reason.as_deref()), (false, Some("expired")));
    let decided = effects.iter().find_map(|effect| match effect {
        StepEffect::Record(NewEvent { event: Event::ClearanceClosed(closed), .. }) => {
            Some((closed.status, closed.decision))
        }
        _ => None,
    });
    assert_eq!(decided, Some((ClearanceStatus::Expired, Some(Verdict::Deny))));
    assert_eq!(world.try_go(decide(id, Verdict::Approve)), Err(CommandRefusal::NotOpen));
    assert_eq!(world.state.next_expiry(), None);
    let settled = world.go(SessionInput::Delivered { n: 1 });
    assert!(settled.iter().filter_map(kind).any(|kind| kind == "clearance.delivered"));
}

#[test]
fn an_expiry_can_be_an_approval() {
    let mut world = World::running();
    asked(&mut world, limited(1, Verdict::Approve));
    world.time += 1;
    let effects = world.go(SessionInput::Expire);
    assert!(matches!(sent(&effects)[0].1, AgentCommand::Decision { approved: true, .. }));
}

#[test]
fn the_agent_says_what_came_of_it() {
    let mut world = World::running();
    let (id, _) = asked(&mut world, ruled(Outcome::Allow));
    let told = |request: &str| AgentMessage::Outcome {
        request: super::id(request),
        outcome: "done".to_owned(),
        params: Json::trusted("{}"),
    };
    let effects = world.say(told("1"));
    let outcome = effects.iter().find_map(|effect| match effect {
        StepEffect::Record(NewEvent { event: Event::ClearanceOutcome(outcome), .. }) => {
            Some((outcome.clearance, outcome.outcome.as_str()))
        }
        _ => None,
    });
    assert_eq!(outcome, Some((Some(id), "done")));
    assert_eq!(kinds(&world.say(told("2"))), ["clearance.outcome"], "kept, and about nothing");
}

#[test]
fn an_agent_that_acts_and_never_asks_is_marked_until_it_does() {
    let tool = |acts| AgentMessage::Tool { changes_something: acts, call: None, params: Json::trusted("{}") };
    let mut world = World::running();
    world.say(tool(false));
    assert_eq!(world.state.record().unenforced, None);
    let effects = world.say(tool(true));
    assert!(effects.iter().filter_map(kind).any(|kind| kind == "session.unenforced"));
    let why = world.state.record().unenforced.unwrap();
    assert!(why.ends_with("; to be asked, have the agent send `clearance/request` before it acts"), "{why}");
    assert_eq!(world.say(tool(true)).iter().filter_map(kind).collect::<Vec<_>>(), ["update"], "once");
    world.ask("7");
    assert_eq!(world.state.record().unenforced, None);
    world.say(tool(true));
    assert_eq!(world.state.record().unenforced, None);
}

#[test]
fn an_agent_that_never_asks_is_to_be_set_to_a_mode_that_asks_and_is_judged_anew_then() {
    let tool = || AgentMessage::Tool { changes_something: true, call: None, params: Json::trusted("{}") };
    let named = |id: &str| NamedSetting { id: id.to_owned(), name: id.to_owned() };
    let controls = |mode: &str| Controls {
        mode: Some(mode.to_owned()),
        modes: ["read-only", "agent"].map(named).into(),
        ..Controls::default()
    };
    let mut world = World::running();
    world.say(AgentMessage::Controls(Box::new(controls("agent"))));
    world.say(tool());
    let why = world.state.record().unenforced.unwrap();
    let name = intercom_types::text::short(&world.state.spec.id.to_string());
    assert!(why.ends_with(&format!("; to be asked, run `intercom mode {name} read-only`")), "{why}");
    world.say(AgentMessage::Controls(Box::new(controls("agent"))));
    assert!(world.state.record().unenforced.is_some(), "nothing has changed");
    world.say(AgentMessage::Controls(Box::new(controls("read-only"))));
    assert_eq!(world.state.record().unenforced, None);
    let effects = world.say(tool());
    assert!(effects.iter().filter_map(kind).any(|kind| kind == "session.unenforced"), "it acts again");
}
