//! Sessions that wait for their first prompt.

use super::*;
use intercom_types::StopMode;

impl World {
    /// Created, and without a process.
    pub(super) fn defer(&mut self) {
        self.state = self.state.clone().deferred();
        let launch = SessionInput::Launch {
            by: "ana".into(),
            command: "agent".into(),
            prompt: None,
            ladder: LadderChoice::Configured,
        };
        assert_eq!(self.kinds(launch), ["session.created"]);
    }

    fn deferred() -> Self {
        let mut world = Self::new();
        world.defer();
        world
    }
}

/// Another one, of the same session.
pub(super) fn agent(name: &str) -> SessionInput {
    let spec = SessionSpec {
        agent: Some(name.to_owned()),
        turn_model: TurnModel::AgentOwned,
        ..World::new().state.spec().clone()
    };
    SessionInput::Agent { spec: Box::new(spec), command: name.to_owned(), by: "ana".into() }
}

fn spawns(effects: &[StepEffect]) -> usize {
    effects.iter().filter(|effect| **effect == StepEffect::Spawn).count()
}

#[test]
fn the_first_prompt_starts_it_and_waits_until_it_is_ready() {
    let mut world = World::deferred();
    assert_eq!((world.state.phase(), world.state.is_deferred()), (Phase::Created, true));
    let effects = world.go(prompt("first"));
    assert_eq!((spawns(&effects), sent(&effects)), (1, vec![]));
    assert_eq!((world.state.phase(), world.state.is_waking()), (Phase::Starting, true));
    assert_eq!(spawns(&world.go(prompt("second"))), 0, "one process is enough");
    let effects = world.go(SessionInput::Spawned { pid: 42 });
    let texts: Vec<AgentCommand> = sent(&effects).into_iter().map(|(_, message)| message).collect();
    let said = |text: &str| prompted(text.into());
    assert_eq!(texts, [said("first"), said("second")]);
    assert!(!world.state.is_waking());
}

#[test]
fn a_resume_starts_it_as_well() {
    let mut world = World::deferred();
    let effects = world.go(SessionInput::Resume { by: "ana".into() });
    assert_eq!(effects.iter().filter_map(kind).collect::<Vec<_>>(), ["session.resumed"]);
    assert_eq!((spawns(&effects), world.state.generation()), (1, 1));
    assert_eq!(world.try_go(SessionInput::Resume { by: "ana".into() }), Err(CommandRefusal::Running));
}

#[test]
fn what_needs_an_agent_is_refused_and_what_does_not_is_harmless() {
    let mut world = World::deferred();
    let by = || "ana".to_owned();
    for input in [
        SessionInput::Nudge { message: "go".into(), by: by() },
        SessionInput::Interrupt { reason: "no".into(), by: by() },
        SessionInput::Set { set: intercom_types::ControlChange::Mode("plan".into()), by: by() },
        SessionInput::List,
    ] {
        assert_eq!(world.try_go(input), Err(CommandRefusal::NotStarted));
    }
    world.go(SessionInput::Snooze { until: Some(Time::from_millis(99)), by: by() });
    world.go(SessionInput::Ladder { choice: LadderChoice::Configured, by: by() });
    for input in
        [SessionInput::Expire, SessionInput::Watch(None), SessionInput::Found, SessionInput::Listening]
    {
        assert_eq!(world.go(input), []);
    }
    assert!(world.state.is_deferred());
}

#[test]
fn a_stop_or_a_kill_ends_it_at_once() {
    for (mode, why) in [(StopMode::Stop, "stopped by ana"), (StopMode::Kill, "killed by ana")] {
        let mut world = World::deferred();
        let effects = world.go(SessionInput::Stop { mode, by: "ana".into() });
        assert_eq!(
            effects.iter().filter_map(kind).collect::<Vec<_>>(),
            ["session.stopping", "session.ended"]
        );
        assert!(!effects.contains(&StepEffect::Stop { mode }), "there is nobody to be stopped");
        assert_eq!((world.state.phase(), world.state.why()), (Phase::Ended, why.to_owned()));
    }
}

#[test]
fn if_it_cannot_be_started_what_was_to_start_it_has_failed() {
    let failed = |effects: &[StepEffect]| {
        let states = effects.iter().filter_map(|effect| match effect {
            StepEffect::Record(NewEvent { event: Event::PromptUndelivered(failed), .. }) => {
                Some(failed.cause.clone())
            }
            _ => None,
        });
        states.collect::<Vec<String>>()
    };
    let mut world = World::deferred();
    world.go(prompt("first"));
    world.go(prompt("second"));
    let effects = world.go(SessionInput::SpawnFailed { cause: "no such file".into() });
    assert_eq!(failed(&effects), ["spawn failed: no such file", "spawn failed: no such file"]);
    assert!(world.state.is_ended());
    // The same for one that runs and never comes to be ready.
    let mut world = World::with(|spec| spec.turn_model = TurnModel::AgentOwned);
    world.defer();
    world.go(prompt("first"));
    world.go(SessionInput::Spawned { pid: 42 });
    world.say(AgentMessage::Unusable { reason: "log in first".into() });
    assert_eq!(failed(&world.go(agent_exit())), ["log in first"]);
    // In a later life prompts wait as they always do.
    world.go(SessionInput::Resume { by: "ana".into() });
    world.go(prompt("kept"));
    assert_eq!(failed(&world.go(agent_exit())), Vec::<String>::new());
}

#[test]
fn what_was_to_be_started_and_was_not_is_started_in_the_next_generation() {
    let mut world = World::deferred();
    world.go(prompt("first"));
    let effects = world.go(SessionInput::Restart { prompt: None });
    assert_eq!((spawns(&effects), world.state.generation()), (1, 2));
    assert_eq!(sent(&world.go(SessionInput::Spawned { pid: 42 })).len(), 1);
    assert_eq!(world.go(SessionInput::Restart { prompt: None }), [], "it runs");
}

#[test]
fn another_agent_can_be_chosen_until_there_is_one() {
    let mut world = World::deferred();
    assert_eq!(world.kinds(agent("other")), ["session.agent"]);
    assert_eq!(
        (world.state.record().agent.as_deref(), world.state.agent_owns_turns()),
        (Some("other"), true)
    );
    world.go(prompt("first"));
    assert_eq!(world.try_go(agent("third")), Err(CommandRefusal::Started));
    assert_eq!(world.state.record().agent.as_deref(), Some("other"));
}
