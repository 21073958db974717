//! What a hard look at the watch brought to light.

use super::*;

#[test]
fn a_prompt_that_waits_for_a_heartbeat_is_work_and_a_full_queue_no_excuse() {
    for on_heartbeat in [true, false] {
        let mut sim = Sim::new(watch_policy());
        sim.world.state.spec.turn_model = turn_model(on_heartbeat);
        sim.world.state.spec.max_queued_prompts = 0;
        sim.say(status());
        sim.pass(Duration::from_hours(20));
        let steps = sim.steps();
        assert!(steps.contains(&"stall.step escalate".to_owned()), "{steps:?}");
        assert!(!steps.contains(&"stall.recovered".to_owned()), "{steps:?}");
    }
}

#[test]
fn a_part_that_is_stopped_is_no_stall_while_others_work_or_its_service_is_waited_for() {
    let mut sim = Sim::new(watch_policy());
    sim.say(status());
    (sim.busy, sim.stopped) = (true, true);
    sim.pass(Duration::from_mins(20));
    assert!(sim.steps().is_empty(), "{:?}", sim.steps());
    let mut sim = Sim::new(watch_policy());
    let resets = LimitResetTime::After(Duration::from_hours(3));
    sim.say(AgentMessage::Limited { kind: "rate".into(), resets, params: Json::trusted("{}") });
    sim.told.clear();
    sim.stopped = true;
    sim.pass(Duration::from_mins(20));
    assert!(sim.steps().is_empty(), "{:?}", sim.steps());
}

#[test]
fn limits_end_whatever_is_said_of_them() {
    let limited =
        |resets| AgentMessage::Limited { kind: "x".repeat(5000), resets, params: Json::trusted("{}") };
    let mut sim = Sim::new(watch_policy());
    sim.say(limited(LimitResetTime::After(Duration::from_secs(u64::MAX))));
    assert!(sim.world.state.oversight.condition.as_ref().unwrap().why.len() < 100);
    sim.pass(Duration::from_hours(24 * 20));
    assert!(sim.steps().contains(&"stall.step escalate".to_owned()), "{:?}", sim.steps());
    // One that is over already, of a session that nobody watches.
    let mut sim = Sim::new(watch_policy());
    sim.say(AgentMessage::TurnEnd {
        stop_reason: "end_turn".into(),
        tokens: intercom_types::TurnTokenCounts::default(),
        params: Json::trusted("{}"),
        failed: false,
        turn: None,
        message: Json::trusted("{}"),
    });
    sim.go(SessionInput::Ladder { choice: LadderChoice::Off, by: "ana".into() });
    sim.pass(Duration::from_mins(5));
    sim.say(limited(LimitResetTime::At(Time::from_millis(sim.now() - 3_600_000))));
    sim.pass(Duration::from_mins(5));
    assert!(sim.world.state.oversight.condition.is_none(), "{:?}", sim.world.state.oversight.condition);
}

#[test]
fn clocks_are_set_and_machines_sleep() {
    let mut sim = Sim::new(watch_policy());
    sim.say(status());
    sim.pass(Duration::from_secs(40));
    sim.world.time -= 24 * 3600 * 1000;
    sim.counted = sim.world.time;
    sim.pass(Duration::from_hours(3));
    assert!(sim.steps().contains(&"stall.step escalate".to_owned()), "{:?}", sim.steps());
    let mut sim = Sim::new(watch_policy());
    sim.say(status());
    sim.pass(Duration::from_mins(1));
    sim.world.time += 8 * 3600 * 1000;
    sim.pass(Duration::from_mins(4));
    assert!(sim.steps().is_empty(), "{:?}", sim.steps());
    sim.pass(Duration::from_mins(2));
    assert_eq!(sim.steps(), ["stall.step alert"]);
}

#[test]
fn a_ladder_that_becomes_shorter_still_ends_with_people() {
    let mut sim = Sim::new(watch_policy());
    sim.pass(Duration::from_mins(10));
    sim.world.watch_policy.ladder = vec![Rung::Alert, Rung::Escalate];
    sim.told.clear();
    sim.pass(Duration::from_hours(3));
    assert_eq!(sim.steps().last().map(String::as_str), Some("stall.step escalate"));
}

#[test]
fn silence_that_is_ours_is_not_held_against_it() {
    let mut sim = Sim::new(watch_policy());
    sim.pass(Duration::from_mins(4));
    sim.go(SessionInput::Listening);
    sim.pass(Duration::from_mins(4));
    assert!(sim.steps().is_empty(), "{:?}", sim.steps());
}

#[test]
fn names_that_agents_give_are_cut() {
    let mut sim = Sim::new(watch_policy());
    for n in 0..1000 {
        let (id, title) = (format!("{n}{}", "i".repeat(10_000)), "t".repeat(10_000));
        sim.say(AgentMessage::Tool {
            changes_something: false,
            call: Some(ToolCallState { id, title, open: true }),
            params: Json::trusted("{}"),
        });
    }
    let snapshot = serde_json::to_string(&sim.world.state).unwrap();
    assert!(snapshot.len() < 20_000, "{} bytes", snapshot.len());
}
