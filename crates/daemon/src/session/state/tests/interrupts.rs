//! Interrupts: a turn ends when its agent says so, or after a silence, and no late word ends the next one.

use super::prompts::{agent_owned, data};
use super::*;
use intercom_types::StopMode;

pub(super) fn end_of(turn: TurnId) -> AgentMessage {
    let AgentMessage::TurnEnd { stop_reason, tokens, params, failed, message, .. } = turn_end() else {
        unreachable!()
    };
    AgentMessage::TurnEnd { stop_reason, tokens, params, failed, turn: Some(turn), message }
}

/// A `turn/end`, and the turn that it names.
#[derive(Debug, Clone, Copy)]
pub(super) struct End(Option<TurnId>);

/// The `turn/end` that an input is.
pub(super) fn end_in(input: &SessionInput) -> Option<End> {
    match input {
        SessionInput::AgentMessage(said) => match &**said {
            AgentMessage::TurnEnd { turn, .. } => Some(End(*turn)),
            _ => None,
        },
        _ => None,
    }
}

/// What a `turn/end` may do to a session in this state; 1 if it named no turn and ended none although one runs.
pub(super) fn check_end(End(named): End, before: &SessionState, effects: &[StepEffect]) -> u32 {
    let ended = effects.iter().filter_map(kind).any(|kind| kind == "turn.ended");
    let running = before.turns.turn.as_ref().map(|turn| turn.id);
    match named {
        Some(named) => {
            assert_eq!(ended, running == Some(named), "it ends the turn that it names, and no other");
            0
        }
        None => u32::from(running.is_some() && !ended),
    }
}

fn interrupt() -> SessionInput {
    SessionInput::Interrupt { reason: "enough".into(), by: "ana".into() }
}

impl World {
    fn turn(&self) -> Option<TurnId> {
        self.state.turns.turn.as_ref().map(|turn| turn.id)
    }

    /// So long that an interrupted turn is over.
    fn quiet(&mut self) -> Vec<StepEffect> {
        self.time += 60_000;
        self.go(SessionInput::Watch(None))
    }

    /// The first turn was interrupted, never confirmed, and the second prompt is written.
    fn unconfirmed() -> Self {
        let mut world = Self::running();
        world.go(prompt("one"));
        world.say(status());
        world.go(interrupt());
        world.quiet();
        world.go(prompt("two"));
        world
    }
}

fn ended(effects: &[StepEffect]) -> Option<String> {
    let ended = effects.iter().filter_map(kind).any(|kind| kind == "turn.ended");
    ended.then(|| data(effects, EventKind::TurnEnded)["stop_reason"].as_str().unwrap().to_owned())
}

#[test]
fn an_interrupted_turn_ends_with_the_agents_word_and_leaves_open_what_is_open() {
    let mut world = World::running();
    let clr = world.ask("1");
    assert_eq!(world.kinds(interrupt()), ["interrupt"]);
    assert!(world.turn().is_some());
    let effects = world.say(turn_end());
    assert_eq!(ended(&effects).as_deref(), Some("interrupted"));
    assert_eq!(data(&effects, EventKind::TurnEnded).get("confirmed"), None);
    assert_eq!(world.state.phase(), Phase::Waiting);
    world.go(decide(clr, Verdict::Deny));
    assert_eq!(world.state.phase(), Phase::Idle);
}

#[test]
fn without_a_word_it_ends_after_a_silence_that_words_prolong_up_to_a_bound() {
    let mut world = World::running();
    world.say(status());
    world.go(interrupt());
    assert_eq!(world.state.why(), "interrupted: the agent has not ended its turn yet");
    let began = world.time;
    let mut spoken = 0;
    while world.turn().is_some() {
        world.time += 4_000;
        world.say(heartbeat(HeartbeatProgress::Open));
        world.say(status());
        spoken += 1;
        world.go(SessionInput::Watch(None));
    }
    assert!((28_000..40_000).contains(&(world.time - began)), "{spoken} {}", world.time - began);
    let mut world = World::running();
    world.say(status());
    world.go(interrupt());
    world.time += 4_900;
    world.say(heartbeat(HeartbeatProgress::Open));
    assert_eq!(world.go(SessionInput::Watch(None)), []);
    world.time += 100;
    let effects = world.go(SessionInput::Watch(None));
    assert_eq!(ended(&effects).as_deref(), Some("interrupted"), "a heartbeat says nothing of it");
    assert_eq!(data(&effects, EventKind::TurnEnded)["confirmed"], false);
}

#[test]
fn prompts_wait_for_the_end_of_an_interrupted_turn_and_begin_the_next() {
    for on_heartbeat in [false, true] {
        let mut world = World::with(|spec| spec.turn_model = turn_model(on_heartbeat));
        world.launch();
        world.say(status());
        let first = world.turn();
        world.go(interrupt());
        assert_eq!(sent(&world.go(prompt("next"))), []);
        assert_eq!(sent(&world.say(heartbeat(HeartbeatProgress::Open))), []);
        let mut effects = world.say(turn_end());
        effects.extend(world.say(heartbeat(HeartbeatProgress::Open)));
        assert_eq!(sent(&effects), [(2, prompted("next".into()))]);
        assert!(world.turn().is_some() && world.turn() != first);
    }
}

#[test]
fn a_prompt_says_its_turn() {
    let mut world = World::running();
    let turn_of = |effects: &[StepEffect]| {
        effects.iter().find_map(|effect| match effect {
            StepEffect::Send { message: AgentCommand::Prompt { turn, .. }, .. } => *turn,
            _ => None,
        })
    };
    let first = turn_of(&world.go(prompt("one")));
    assert!(first.is_some() && first == world.turn());
    assert_eq!(turn_of(&world.go(prompt("two"))), first, "it joins the turn");
}

#[test]
fn a_late_end_without_a_name_is_the_interrupted_turns_once() {
    let mut world = World::unconfirmed();
    let second = world.turn();
    assert_eq!(world.say(turn_end()).iter().filter_map(kind).collect::<Vec<_>>(), ["unknown"]);
    assert_eq!(world.turn(), second, "it was the first turn's");
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("end_turn"), "and this is the second's");
}

#[test]
fn that_an_end_was_late_is_known_across_daemons() {
    let mut world = World::unconfirmed();
    world.reload();
    assert_eq!(ended(&world.say(turn_end())), None);
    world.reload();
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("end_turn"));
    let mut world = World::unconfirmed();
    world.state.take_dirty();
    world.say(status());
    assert!(world.state.take_dirty(), "that it has spoken is kept");
    world.reload();
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("end_turn"));
}

#[test]
fn whoever_has_spoken_since_the_prompt_ends_its_own_turn() {
    let mut world = World::unconfirmed();
    world.say(status());
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("end_turn"));
    // It never confirms: its later turns are not taken for that.
    world.go(prompt("three"));
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("end_turn"));
}

#[test]
fn after_a_confirmed_interrupt_a_bare_end_answers_the_next_prompt() {
    let mut world = World::running();
    world.go(prompt("one"));
    world.go(interrupt());
    world.say(turn_end());
    world.go(prompt("two"));
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("end_turn"));
}

#[test]
fn an_interrupt_of_no_turn_may_be_confirmed_as_well() {
    let mut world = World::running();
    world.go(interrupt());
    world.go(prompt("one"));
    let turn = world.turn();
    assert_eq!(ended(&world.say(turn_end())), None);
    assert_eq!(world.turn(), turn);
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("end_turn"));
    // Before its first word, too: it begins no turn by it.
    let mut world = World::running();
    world.go(interrupt());
    world.say(turn_end());
    assert_eq!(world.turn(), None);
}

#[test]
fn two_interrupts_of_a_turn_may_be_confirmed_twice() {
    let mut world = World::running();
    world.go(prompt("one"));
    world.go(interrupt());
    world.go(interrupt());
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("interrupted"));
    world.go(prompt("two"));
    assert_eq!(ended(&world.say(turn_end())), None);
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("end_turn"));
}

#[test]
fn a_named_end_ends_its_own_turn_only() {
    let mut world = World::running();
    world.go(prompt("one"));
    let first = world.turn().unwrap();
    world.go(interrupt());
    world.quiet();
    world.go(prompt("two"));
    let second = world.turn().unwrap();
    world.say(status());
    assert_eq!(ended(&world.say(end_of(first))), None, "whatever came in between");
    assert_eq!(ended(&world.say(end_of(second))).as_deref(), Some("end_turn"));
    assert_eq!(ended(&world.say(end_of(second))), None);
}

#[test]
fn a_new_process_confirms_nothing_of_the_last_one() {
    let mut world = World::unconfirmed();
    world.go(agent_exit());
    world.go(SessionInput::Resume { by: "ana".into() });
    world.go(SessionInput::Spawned { pid: 43 });
    world.go(prompt("three"));
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("end_turn"));
}

#[test]
fn the_interrupt_of_a_stop_is_confirmed_as_one() {
    let mut world = World::running();
    world.go(prompt("one"));
    world.go(SessionInput::Stop { mode: StopMode::Stop, by: "ana".into() });
    assert_eq!(ended(&world.say(turn_end())).as_deref(), Some("interrupted"));
    assert_eq!(ended(&world.go(agent_exit())), None);
}

#[test]
fn an_agent_that_exits_when_it_is_interrupted_has_let_go_of_its_turn() {
    let mut world = World::running();
    world.go(prompt("one"));
    world.go(interrupt());
    assert_eq!(ended(&world.go(agent_exit())).as_deref(), Some("interrupted"));
}

#[test]
fn an_error_that_answers_a_cancelled_prompt_is_no_failure() {
    let mut world = agent_owned();
    world.go(prompt("one"));
    world.go(interrupt());
    let AgentMessage::TurnEnd { tokens, params, turn, message, .. } = turn_end() else { unreachable!() };
    let stop_reason = "error: aborted".to_owned();
    let effects =
        world.say(AgentMessage::TurnEnd { stop_reason, tokens, params, failed: true, turn, message });
    let ended = data(&effects, EventKind::TurnEnded);
    assert_eq!((&ended["stop_reason"], ended.get("failed")), (&"cancelled".into(), None));
}

/// Messages that an agent was sent and has not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unread {
    Prompt(TurnId),
    Interrupt,
}

/// An agent that reads in order, says something in each turn that it works on, ends it, and confirms every interrupt of its work, without
/// naming turns.
#[derive(Debug, Default)]
struct Confirming {
    unread: VecDeque<Unread>,
    working: Option<TurnId>,
}

impl Confirming {
    fn told(&mut self, effects: &[StepEffect]) {
        for effect in effects {
            match effect {
                StepEffect::Send { message: AgentCommand::Prompt { turn, .. }, .. } => {
                    self.unread.push_back(Unread::Prompt(turn.unwrap()));
                }
                StepEffect::Send { message: AgentCommand::Interrupt { .. }, .. } => {
                    self.unread.push_back(Unread::Interrupt);
                }
                _ => {}
            }
        }
    }

    /// It has read all but interrupts: prompts that it reads after the next turn began would be words of that turn.
    fn is_at(&self, turn: Option<TurnId>) -> bool {
        self.working == turn && self.unread.iter().all(|unread| *unread == Unread::Interrupt)
    }

    /// The next thing that it says, and the turn that it means.
    fn go_on(&mut self) -> Option<(AgentMessage, TurnId)> {
        match self.unread.pop_front() {
            Some(Unread::Interrupt) => self.working.take().map(|turn| (turn_end(), turn)),
            Some(Unread::Prompt(turn)) => {
                self.working = Some(turn);
                Some((status(), turn))
            }
            None => None,
        }
    }
}

proptest! {
    /// However slow it is, and whatever happens meanwhile: no turn ends by the end of another one, and each ends.
    #[test]
    fn no_late_end_of_an_agent_that_confirms_ends_the_next_turn(acts in proptest::collection::vec(0u8..8, 0..80)) {
        let (mut world, mut agent) = (World::running(), Confirming::default());
        world.say(status());
        world.say(turn_end());
        let say = |world: &mut World, agent: &mut Confirming, said: AgentMessage, meant: TurnId| {
            let running = world.turn();
            let effects = world.say(said);
            assert!(ended(&effects).is_none() || running == Some(meant), "it meant another turn");
            agent.told(&effects);
        };
        for act in acts {
            let effects = match act {
                0 | 1 => world.try_go(prompt("p")).unwrap_or_default(),
                2 if world.turn().is_some() && agent.is_at(world.turn()) => world.go(interrupt()),
                3 => world.quiet(),
                4 => {
                    world.reload();
                    Vec::new()
                }
                5 | 6 => {
                    if let Some((said, meant)) = agent.go_on() {
                        say(&mut world, &mut agent, said, meant);
                    }
                    Vec::new()
                }
                // It is done, and has not been told to stop.
                _ if agent.unread.is_empty() => {
                    if let Some(turn) = agent.working.take() {
                        say(&mut world, &mut agent, turn_end(), turn);
                    }
                    Vec::new()
                }
                _ => Vec::new(),
            };
            agent.told(&effects);
        }
        while !agent.unread.is_empty() || agent.working.is_some() {
            let next = agent.go_on().or_else(|| agent.working.take().map(|turn| (turn_end(), turn)));
            if let Some((said, meant)) = next {
                say(&mut world, &mut agent, said, meant);
            }
        }
        let effects = world.quiet();
        agent.told(&effects);
        prop_assert!(world.turn().is_none() || !agent.unread.is_empty());
    }
}
