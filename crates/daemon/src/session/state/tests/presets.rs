//! What a session may do at most.

use super::*;
use intercom_types::StopMode;

/// What these presets forbid, as it is found out under the preset of this session.
pub(super) fn forbidden(state: &SessionState, by: &[Preset]) -> RequestAssessment {
    let outcome = if by.contains(&state.spec.preset) { Outcome::Deny } else { Outcome::Ask };
    RequestAssessment { forbidden_by: by.to_vec(), ..decisions::ruled(outcome) }
}

fn preset(preset: Preset, widens: bool) -> SessionInput {
    SessionInput::Preset { preset, widens, by: "ana".into() }
}

fn ask_for(world: &mut World, request: &str, forbidden_by: &[Preset]) {
    let assessed = forbidden(&world.state, forbidden_by);
    world.go(SessionInput::ClearanceRequested(Box::new(ask(request)), Box::new(assessed)));
}

#[test]
fn what_waits_and_is_forbidden_from_now_on_is_denied_and_the_rest_waits_on() {
    let mut world = World::running();
    ask_for(&mut world, "1", &[Preset::ReadOnly, Preset::Sandbox]);
    ask_for(&mut world, "2", &[Preset::Safe, Preset::Sandbox]);
    let effects = world.go(preset(Preset::ReadOnly, false));
    assert_eq!(effects.iter().filter_map(kind).collect::<Vec<_>>(), ["session.preset", "clearance.decided"]);
    let [(_, AgentCommand::Decision { request, approved: false, .. })] = &sent(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(request.as_json(), "1");
    let decided = effects.iter().find_map(|effect| match effect {
        StepEffect::Record(NewEvent { event: Event::ClearanceDecided(decided), .. }) => {
            Some((decided.by.as_str(), decided.via.as_str()))
        }
        _ => None,
    });
    assert_eq!(decided, Some(("preset read-only", "policy")));
    assert_eq!((world.state.phase(), world.state.record().preset), (Phase::Waiting, Preset::ReadOnly));
}

#[test]
fn more_than_it_might_takes_somebody_who_may_decide() {
    let mut world = World::running();
    assert_eq!(world.kinds(preset(Preset::Full, false)), Vec::<&str>::new(), "nothing is new");
    world.go(preset(Preset::Safe, false));
    for to in [Preset::Full, Preset::ReadOnly] {
        let refused = Err(CommandRefusal::Widens { from: Preset::Safe, to });
        assert_eq!(world.try_go(preset(to, false)), refused);
    }
    world.go(preset(Preset::Sandbox, false));
    assert_eq!(world.kinds(preset(Preset::Full, true)), ["session.preset"]);
}

#[test]
fn it_holds_before_a_process_and_after_its_end() {
    let mut world = World::new();
    world.defer();
    world.go(preset(Preset::Safe, false));
    world.go(deferred::agent("other"));
    assert_eq!(world.state.record().preset, Preset::Safe, "another agent changes nothing of it");
    world.go(SessionInput::Stop { mode: StopMode::Stop, by: "ana".into() });
    world.go(preset(Preset::Sandbox, false));
    world.go(SessionInput::Resume { by: "ana".into() });
    assert_eq!(world.state.record().preset, Preset::Sandbox);
}

#[test]
fn a_host_call_that_waits_and_is_forbidden_is_not_done() {
    let mut world = World::running();
    let assessed = forbidden(&world.state, &[Preset::ReadOnly, Preset::Sandbox]);
    let effects = world.go(host_calls::to_write("7", assessed));
    assert_eq!(sent(&effects), []);
    let effects = world.go(preset(Preset::Sandbox, false));
    let [(_, AgentCommand::Fault(fault))] = &sent(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(fault.message, "denied: preset sandbox denies it");
    assert!(!effects.iter().any(|effect| matches!(effect, StepEffect::Do { .. })));
}
