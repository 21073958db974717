//! Lives of agents that work, wait, sleep and die, under a clock of their own: hours in milliseconds.

use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::session::restart;
use crate::session::stall::tests::{self, minutes};
use intercom_host::ProcessActivity;
use intercom_types::{LimitResetTime, Rung, StopMode, ToolCallState};

fn watch_policy() -> WatchPolicy {
    WatchPolicy {
        remind_after: minutes(30),
        nudge_text: "go on".to_owned(),
        reprompt_text: "go on, please".to_owned(),
        resume_after_limit: minutes(60),
        resume_text: "the limit is over".to_owned(),
        spend: crate::session::SpendCaps::default(),
        reason_as_prompt: true,
        restart: restart::RestartTerms {
            policy: restart::RestartCondition::OnFailure,
            budget: 3,
            window: Duration::from_mins(10),
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_mins(1),
            repeat_prompt: false,
        },
        ..tests::watch_policy()
    }
}

mod edges;

/// What the agent's processes are doing, and everything that was recorded.
struct Sim {
    world: World,
    busy: bool,
    stopped: bool,
    cpu: u64,
    counted: i64,
    told: Vec<(i64, String, Value)>,
}

impl Sim {
    fn new(watch_policy: WatchPolicy) -> Self {
        let mut world = World::new();
        (world.watch_policy, world.time) = (watch_policy, 1_000_000_000);
        let mut sim = Self { world, busy: false, stopped: false, cpu: 0, counted: 0, told: Vec::new() };
        sim.counted = sim.world.time;
        let launch = SessionInput::Launch {
            by: "ana".into(),
            command: "agent".into(),
            prompt: Some("work".into()),
            ladder: LadderChoice::Configured,
        };
        sim.go(launch);
        sim.go(SessionInput::Spawned { pid: 42 });
        sim.told.clear();
        sim
    }

    fn now(&self) -> i64 {
        self.world.time
    }

    fn try_go(&mut self, input: SessionInput) -> Result<(), CommandRefusal> {
        let effects = self.world.try_go(input)?;
        for effect in effects {
            match effect {
                StepEffect::Record(NewEvent { at, event }) => {
                    let data = serde_json::from_str(&event.data()).unwrap();
                    self.told.push((at.millis(), event.name().to_owned(), data));
                }
                // What is sent arrives, and what is to be stopped goes.
                StepEffect::Send { n, .. } => self.go(SessionInput::Delivered { n }),
                StepEffect::Stop { .. } => self.die(Exit { code: None, signal: Some(15) }),
                StepEffect::Spawn | StepEffect::Do { .. } => {}
            }
        }
        Ok(())
    }

    fn go(&mut self, input: SessionInput) {
        self.try_go(input).unwrap();
    }

    fn say(&mut self, said: AgentMessage) {
        if self.world.state.life.stage == LifeStage::Running {
            self.go(SessionInput::AgentMessage(Box::new(said)));
        }
    }

    fn die(&mut self, exit: Exit) {
        (self.busy, self.stopped) = (false, false);
        let agent_exit = AgentExit { exit, reason: "exited".to_owned(), ..AgentExit::default() };
        self.go(SessionInput::Exited(Box::new(agent_exit)));
    }

    fn activity(&mut self) -> ProcessActivity {
        if self.busy {
            self.cpu += u64::try_from(self.now() - self.counted).unwrap();
        }
        self.counted = self.now();
        ProcessActivity {
            cpu_millis: self.cpu,
            stopped: self.stopped.then(|| "agent".to_owned()),
            ..ProcessActivity::default()
        }
    }

    /// The daemon is killed and comes back: what is left is the snapshot.
    fn restart_daemon(&mut self) {
        let snapshot = serde_json::to_string(&self.world.state).unwrap();
        self.world.state = serde_json::from_str(&snapshot).unwrap();
    }

    /// Lets time pass; what is due by the clock happens.
    fn pass(&mut self, length: Duration) {
        let end = self.now() + i64::try_from(length.as_millis()).unwrap();
        let mut wakes = 0;
        loop {
            let now = Time::from_millis(self.now());
            let due = self.world.state.next_due(now, &self.world.watch_policy).map(Time::millis);
            match due {
                Some(due) if due <= end => {
                    self.cpu_until(due.max(self.now() + 1));
                    self.due();
                }
                _ => break,
            }
            wakes += 1;
            assert!(wakes < 100_000, "it never sleeps");
        }
        self.cpu_until(end.max(self.now() + 1));
    }

    fn cpu_until(&mut self, time: i64) {
        self.world.time = time - 1; // each step takes a millisecond
        self.activity();
    }

    fn due(&mut self) {
        if self.world.state.resting().is_some() {
            self.go(SessionInput::Restart { prompt: None });
            self.go(SessionInput::Spawned { pid: 43 });
            return;
        }
        let seen = self.activity();
        self.go(SessionInput::Watch(Some(Box::new(seen))));
    }

    fn steps(&self) -> Vec<String> {
        let told =
            self.told.iter().filter(|(_, kind, _)| kind.starts_with("stall.") || kind == "session.parked");
        told.map(|(_, kind, data)| match data.get("name").and_then(Value::as_str) {
            Some(name) => format!("{kind} {name}"),
            None => kind.clone(),
        })
        .collect()
    }
}

#[test]
fn a_silent_agent_is_climbed_to_the_end() {
    let mut sim = Sim::new(watch_policy());
    sim.pass(Duration::from_hours(2));
    assert_eq!(
        sim.steps(),
        [
            "stall.step alert",
            "stall.step nudge 1",
            "stall.failed nudge 1",
            "stall.step nudge 2",
            "stall.failed nudge 2",
            "stall.step interrupt",
            "stall.failed interrupt",
            "stall.step restart",
            "stall.step escalate",
        ]
    );
    let prompts: Vec<_> = sim.told.iter().filter(|(_, kind, _)| kind == "prompt.queued").collect();
    assert_eq!(prompts.len(), 1, "{prompts:?}");
    assert_eq!(prompts[0].2["text"], "go on, please");
    let nudges: Vec<_> = sim.told.iter().filter(|(_, kind, _)| kind == "nudge").collect();
    assert_eq!(nudges[0].2["message"], "go on");
    let to_restart = nudges[1].2["message"].as_str().unwrap();
    assert!(to_restart.starts_with("go on (stuck 9m: "), "{to_restart}");
    assert_eq!(sim.world.state.phase(), Phase::Idle);
}

#[test]
fn a_nudge_that_works_is_told() {
    let mut sim = Sim::new(watch_policy());
    sim.pass(Duration::from_mins(8));
    sim.pass(Duration::from_secs(10));
    sim.say(status());
    let last = sim.told.iter().rfind(|(_, kind, _)| kind == "stall.recovered").unwrap();
    assert_eq!(last.2["after"], "nudge 1");
    assert_eq!(last.2["by"], "output");
    // Back asleep in the same turn: it goes on with the next step, not with the first.
    sim.told.clear();
    sim.pass(Duration::from_mins(6));
    assert_eq!(sim.steps(), ["stall.step nudge 2"]);
}

#[test]
fn a_person_begins_the_ladder_anew() {
    let mut sim = Sim::new(watch_policy());
    sim.pass(Duration::from_mins(8));
    sim.go(SessionInput::Nudge { message: "hello?".into(), by: "ana".into() });
    sim.told.clear();
    sim.pass(Duration::from_mins(4));
    assert!(sim.steps().is_empty());
    sim.pass(Duration::from_mins(2));
    assert_eq!(sim.steps(), ["stall.step alert"]);
}

#[test]
fn peace_is_peace() {
    let mut sim = Sim::new(watch_policy());
    let until = Time::from_millis(sim.now()).plus(Duration::from_mins(30));
    sim.go(SessionInput::Snooze { until: Some(until), by: "ana".into() });
    sim.told.clear();
    sim.pass(Duration::from_mins(29));
    assert!(sim.steps().is_empty(), "{:?}", sim.steps());
    sim.pass(Duration::from_mins(2));
    assert_eq!(sim.steps(), ["stall.step alert"]);
    sim.go(SessionInput::Ladder { choice: LadderChoice::Off, by: "ana".into() });
    sim.told.clear();
    sim.pass(Duration::from_hours(5));
    assert!(sim.steps().is_empty(), "{:?}", sim.steps());
    assert_eq!(
        sim.world.state.oversight.condition.as_ref().map(|condition| condition.state.as_str()),
        Some("stuck")
    );
    sim.go(SessionInput::Ladder { choice: LadderChoice::Own(vec![Rung::Escalate]), by: "ana".into() });
    sim.told.clear();
    sim.pass(Duration::from_mins(5));
    assert_eq!(sim.steps(), ["stall.step escalate"]);
}

#[test]
fn a_stopped_agent_is_not_talked_to() {
    let mut sim = Sim::new(watch_policy());
    sim.say(status());
    sim.stopped = true;
    sim.pass(Duration::from_mins(30));
    let steps = sim.steps();
    assert_eq!(steps[..2], ["stall.step alert", "stall.step restart"], "{steps:?}");
    assert!(!sim.told.iter().any(|(_, kind, _)| kind == "nudge" || kind == "interrupt"));
}

#[test]
fn an_agent_that_always_dies_is_parked_with_its_last_words() {
    let mut sim = Sim::new(watch_policy());
    for _ in 0..3 {
        sim.die(Exit { code: Some(1), signal: None });
        assert_eq!(sim.world.state.phase(), Phase::Starting);
        sim.restart_daemon();
        sim.pass(Duration::from_mins(1));
        assert_eq!(sim.world.state.phase(), Phase::Idle);
    }
    sim.die(Exit { code: Some(1), signal: None });
    assert_eq!(sim.world.state.phase(), Phase::Parked);
    assert_eq!(sim.steps(), ["session.parked"]);
    sim.go(SessionInput::Resume { by: "ana".into() });
    sim.go(SessionInput::Spawned { pid: 44 });
    sim.die(Exit { code: Some(1), signal: None });
    assert_eq!(sim.world.state.phase(), Phase::Starting, "a person has given it another chance");
}

#[test]
fn what_was_asked_to_end_ends() {
    for exit in [Exit { code: Some(1), signal: None }, Exit { code: None, signal: Some(9) }] {
        let mut sim = Sim::new(WatchPolicy {
            restart: restart::RestartTerms {
                policy: restart::RestartCondition::Always,
                ..watch_policy().restart
            },
            ..watch_policy()
        });
        let stop = SessionInput::Stop { mode: StopMode::Stop, by: "ana".into() };
        sim.world.go(stop.clone());
        sim.die(exit.clone());
        assert_eq!(sim.world.state.phase(), Phase::Ended);
        // While it rests, too.
        let mut sim = Sim::new(watch_policy());
        sim.die(Exit { code: Some(1), signal: None });
        sim.go(stop.clone());
        assert_eq!(sim.world.state.phase(), Phase::Ended);
        // And when a restart was under way.
        let mut sim = Sim::new(watch_policy());
        sim.world.state.life.stage =
            LifeStage::Stopping { mode: StopMode::Stop, by: "intercom".into(), to_restart: true, why: None };
        sim.world.go(stop);
        sim.die(exit);
        assert_eq!(sim.world.state.phase(), Phase::Ended);
    }
}

#[test]
fn a_limit_is_waited_out() {
    let mut sim = Sim::new(watch_policy());
    let limited = |minutes| AgentMessage::Limited {
        kind: "usage".to_owned(),
        resets: LimitResetTime::After(Duration::from_mins(minutes)),
        params: Json::trusted("{}"),
    };
    sim.say(limited(50));
    sim.pass(Duration::from_mins(49));
    assert_eq!(sim.steps(), ["stall.limited"]);
    sim.pass(Duration::from_mins(2));
    assert_eq!(sim.steps(), ["stall.limited", "stall.limit_over"]);
    assert!(sim.told.iter().any(|(_, kind, data)| kind == "nudge" && data["message"] == "the limit is over"));
}

#[test]
fn whose_request_expires_is_not_stuck_at_once() {
    let mut sim = Sim::new(watch_policy());
    let limit = Some((Duration::from_mins(45), Verdict::Deny));
    let assessed = RequestAssessment { limit, ..RequestAssessment::default() };
    sim.go(SessionInput::ClearanceRequested(Box::new(ask("\"1\"")), Box::new(assessed)));
    sim.pass(Duration::from_mins(45));
    sim.told.clear();
    sim.go(SessionInput::Expire);
    sim.pass(Duration::from_mins(4));
    assert!(sim.steps().is_empty(), "{:?}", sim.steps());
    sim.pass(Duration::from_mins(2));
    assert_eq!(sim.steps(), ["stall.step alert"]);
}

#[test]
fn a_reminder_comes_after_a_snooze() {
    let mut sim = Sim::new(watch_policy());
    sim.say(clearance("\"1\""));
    let until = Time::from_millis(sim.now()).plus(Duration::from_mins(45));
    sim.go(SessionInput::Snooze { until: Some(until), by: "ana".into() });
    sim.told.clear();
    sim.pass(Duration::from_mins(44));
    assert!(sim.steps().is_empty(), "{:?}", sim.steps());
    sim.pass(Duration::from_mins(2));
    assert_eq!(sim.steps(), ["stall.reminder"]);
}

#[test]
fn whose_processes_cannot_be_seen_is_found_too() {
    let mut sim = Sim::new(watch_policy());
    sim.pass(Duration::from_secs(20));
    sim.go(SessionInput::Watch(None));
    sim.pass(Duration::from_mins(6));
    assert_eq!(sim.steps(), ["stall.step alert"]);
    for _ in 0..1000 {
        let now = Time::from_millis(sim.now());
        let due = sim.world.state.next_due(now, &sim.world.watch_policy).map(Time::millis).unwrap();
        sim.world.time = due.max(sim.now());
        sim.go(SessionInput::Watch(None));
        if sim.steps().iter().any(|step| step == "stall.step interrupt") {
            return;
        }
    }
    panic!("{:?}", sim.steps());
}

#[test]
fn a_restart_of_the_ladder_is_not_lost_with_the_daemon() {
    let terms = restart::RestartTerms { policy: restart::RestartCondition::Never, ..watch_policy().restart };
    let mut sim = Sim::new(WatchPolicy { restart: terms, ..watch_policy() });
    while sim.world.state.resting().is_none() {
        sim.pass(Duration::from_secs(1));
    }
    sim.pass(Duration::from_millis(1));
    sim.world.time = sim.world.state.resting().unwrap().millis();
    sim.go(SessionInput::Restart { prompt: None });
    sim.restart_daemon();
    let agent_exit = AgentExit { reason: "lost: it was never started".to_owned(), ..AgentExit::default() };
    sim.go(SessionInput::Exited(Box::new(agent_exit)));
    assert!(sim.world.state.resting().is_some(), "{}", sim.world.state.why());
}

#[test]
fn the_last_words_of_a_stuck_agent_are_not_its_recovery() {
    let mut sim = Sim::new(WatchPolicy { ladder: vec![Rung::Restart, Rung::Escalate], ..watch_policy() });
    sim.pass(Duration::from_mins(4));
    sim.world.state.oversight.tracker.record_sign_of_life(Time::from_millis(1_000_000_000));
    // As `Sim` lets it go at once, the step is taken by hand.
    while sim.world.state.life.stage == LifeStage::Running {
        sim.world.time += 15_000;
        let seen = sim.activity();
        sim.world.go(SessionInput::Watch(Some(Box::new(seen))));
    }
    sim.go(SessionInput::AgentMessage(Box::new(status())));
    sim.die(Exit { code: Some(0), signal: None });
    sim.pass(Duration::from_mins(1));
    assert_eq!(sim.steps(), ["stall.step escalate"]);
}

#[test]
fn what_is_repeated_is_what_a_person_has_asked() {
    let mut sim = Sim::new(watch_policy());
    let asked = sim.world.state.unfinished();
    sim.pass(Duration::from_mins(12));
    assert_eq!(sim.steps().last().unwrap(), "stall.step interrupt");
    assert_eq!((sim.world.state.unfinished(), asked.is_some()), (asked, true));
}

#[test]
fn nobody_is_told_of_a_limit_while_people_are_waited_for() {
    let mut sim = Sim::new(watch_policy());
    sim.say(clearance("\"1\""));
    let resets = LimitResetTime::After(Duration::from_mins(10));
    sim.say(AgentMessage::Limited { kind: "rate".into(), resets, params: Json::trusted("{}") });
    sim.pass(Duration::from_mins(40));
    assert_eq!(sim.steps(), ["stall.limited", "stall.reminder"]);
    assert!(!sim.told.iter().any(|(_, kind, _)| kind == "nudge"));
}

#[test]
fn a_daemon_that_was_away_hears_what_was_said_before_it_takes_a_step() {
    for away in [10, 300] {
        let mut sim = Sim::new(watch_policy());
        sim.say(status());
        sim.pass(Duration::from_mins(1));
        sim.restart_daemon();
        sim.world.time += away * 60_000;
        let seen = sim.activity();
        sim.go(SessionInput::Watch(Some(Box::new(seen))));
        assert!(sim.steps().is_empty(), "{:?}", sim.steps());
        sim.pass(Duration::from_mins(1));
        assert_eq!(sim.steps(), ["stall.step alert"]);
    }
}

#[derive(Debug, Clone)]
enum Act {
    Output,
    Beat,
    Tool(bool),
    Busy(bool),
    Ask,
    Decide,
    TurnEnd,
    Prompt,
    Limit(u64),
    Stopped(bool),
    Die(bool),
    Snooze(u64),
    Restart,
    Nothing,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::Output),
        2 => Just(Act::Beat),
        2 => any::<bool>().prop_map(Act::Tool),
        3 => any::<bool>().prop_map(Act::Busy),
        2 => Just(Act::Ask),
        2 => Just(Act::Decide),
        1 => Just(Act::TurnEnd),
        2 => Just(Act::Prompt),
        1 => (0..200_u64).prop_map(Act::Limit),
        1 => any::<bool>().prop_map(Act::Stopped),
        1 => any::<bool>().prop_map(Act::Die),
        1 => (0..60_u64).prop_map(Act::Snooze),
        4 => Just(Act::Restart),
        4 => Just(Act::Nothing),
    ]
}

/// What really happened, kept apart from what is being tested.
#[derive(Default)]
struct Truth {
    life: i64,
    talk: i64,
    snoozed: i64,
    limited: i64,
    /// What its processes did around the death of a daemon, nobody has seen.
    restarted: i64,
    /// A process was stopped since the last step about one: that is another stall, and people are told again. The end of a
    /// stall of an agent without a turn is no event.
    stopped_anew: bool,
}

/// What may never be seen among the steps that were taken.
fn assessor(sim: &Sim, truth: &mut Truth, number: &mut u64) {
    let shortest = 60_000; // a stopped process
    for (at, kind, data) in &sim.told {
        match kind.as_str() {
            "stall.step" => {
                let next = data["number"].as_u64().unwrap();
                if data["state"] == "gone" && std::mem::take(&mut truth.stopped_anew) {
                    *number = 0;
                }
                assert!(next > *number, "a step twice: {:?}", sim.told);
                *number = next;
                if data["state"] == "idle" {
                    *number = 0; // started again, and told to people at once: that is the end of it
                    continue;
                }
                assert!(*at >= truth.snoozed, "while snoozed");
                let busy_for = at - truth.talk;
                let quiet_for = at - truth.life;
                let wait = if data["state"] == "gone" { shortest } else { 300_000 };
                assert!(
                    quiet_for + 31_000 >= wait
                        || busy_for >= 7_200_000
                        || (truth.life - truth.restarted).abs() <= 61_000,
                    "{data} after {quiet_for} ms of quiet and {busy_for} ms of silence"
                );
                if data["state"] == "stuck" {
                    assert!(*at >= truth.limited, "while it waits for its service");
                }
            }
            "stall.recovered" | "stall.reset" | "session.parked" | "session.resumed" | "stall.snoozed"
            | "turn.ended" | "turn.started" => *number = 0,
            _ => {}
        }
    }
}

fn do_it(sim: &mut Sim, act: &Act, truth: &mut Truth) {
    let now = sim.now();
    let by = || "ana".to_owned();
    let speaks = sim.world.state.life.stage == LifeStage::Running;
    match act {
        Act::Output | Act::Beat | Act::Tool(_) | Act::Ask | Act::TurnEnd | Act::Limit(_) | Act::Die(_)
            if !speaks =>
        {
            return;
        }
        Act::Output => sim.say(status()),
        Act::Beat => {
            sim.say(AgentMessage::Heartbeat {
                params: Json::trusted("{}"),
                progress: HeartbeatProgress::Open,
                fingerprint: now.cast_unsigned(),
                steps: Vec::new(),
            });
        }
        Act::Tool(open) => sim.say(AgentMessage::Tool {
            changes_something: false,
            call: Some(ToolCallState { id: "1".into(), title: "make".into(), open: *open }),
            params: Json::trusted("{}"),
        }),
        Act::Busy(busy) => {
            sim.activity();
            sim.busy = *busy && !sim.stopped;
            return;
        }
        Act::Ask => sim.say(clearance(&format!("\"{now}\""))),
        Act::Decide => {
            let open: Vec<ClearanceId> = sim.world.state.requests.clearances.keys().copied().collect();
            if open.is_empty() {
                return;
            }
            for clearance in open {
                let (verdict, reason, option, via) = (Verdict::Approve, None, None, "test".to_owned());
                sim.go(SessionInput::Decide { clearance, verdict, reason, option, by: by(), via });
            }
        }
        Act::TurnEnd => sim.say(AgentMessage::TurnEnd {
            stop_reason: "end_turn".into(),
            tokens: intercom_types::TurnTokenCounts::default(),
            params: Json::trusted("{}"),
            failed: false,
            turn: None,
            message: Json::trusted("{}"),
        }),
        Act::Prompt => {
            if sim.try_go(SessionInput::Prompt { id: None, wording: "more".into(), by: by() }).is_err() {
                return;
            }
        }
        Act::Limit(length) => {
            let resets = LimitResetTime::After(Duration::from_mins(*length));
            if sim.world.state.life.stage == LifeStage::Running {
                truth.limited = now + i64::try_from(length * 60_000).unwrap();
            }
            sim.say(AgentMessage::Limited { kind: "rate".into(), resets, params: Json::trusted("{}") });
            (truth.life, truth.talk) = (now, now);
            return;
        }
        Act::Stopped(stopped) => {
            sim.activity();
            truth.stopped_anew |= !sim.stopped && *stopped;
            sim.stopped = *stopped;
            sim.busy &= !*stopped;
            return;
        }
        Act::Die(well) => {
            if sim.world.state.life.stage == LifeStage::Running {
                sim.die(Exit { code: Some(i32::from(!well)), signal: None });
            }
        }
        Act::Snooze(length) => {
            let until = Time::from_millis(now).plus(Duration::from_mins(*length));
            if sim.try_go(SessionInput::Snooze { until: Some(until), by: by() }).is_ok() {
                truth.snoozed = until.millis();
            }
            return;
        }
        Act::Restart => {
            sim.restart_daemon();
            truth.restarted = now;
            return;
        }
        Act::Nothing => return,
    }
    truth.limited = 0;
    (truth.life, truth.talk) = (now, now);
}

/// Lives through the acts, with the seconds that pass after each, and with a new daemon after the act `cut`.
fn live(acts: &[(Act, u64)], cut: usize) {
    let mut sim = Sim::new(watch_policy());
    let (mut truth, mut number) = (Truth { life: sim.now(), talk: sim.now(), ..Truth::default() }, 0);
    for (at, (act, pause)) in acts.iter().enumerate() {
        do_it(&mut sim, act, &mut truth);
        if at == cut {
            sim.restart_daemon();
            truth.restarted = sim.now();
        }
        assessor(&sim, &mut truth, &mut number);
        sim.told.clear();
        // In small pieces: what keeps it alive is known to the second.
        for _ in 0..pause.div_ceil(15) {
            sim.pass(Duration::from_secs(15));
            assessor(&sim, &mut truth, &mut number);
            sim.told.clear();
            if sim.busy {
                truth.life = sim.now();
            }
        }
    }
    // From here on nothing happens any more: who is in a turn, alone, unsnoozed, comes before a person in time.
    sim.activity();
    sim.busy = false;
    sim.restart_daemon();
    let forgotten = sim.world.state.life.stage == LifeStage::Running
        && sim.world.state.turns.turn.is_some()
        && !sim.world.state.has_open()
        && sim.world.state.oversight.tracker.limit.is_none()
        && !sim.world.state.oversight.tracker.is_snoozed(Time::from_millis(sim.now()));
    let told_before = sim.world.state.oversight.tracker.episode().is_some();
    sim.pass(Duration::from_mins(10 + 6 * 2 + 3));
    let reached = sim.told.iter().any(|(_, kind, data)| {
        kind == "session.parked" || data["step"] == "escalate" || data["step"] == "alert"
    });
    assert!(!forgotten || reached || told_before, "{:?}", sim.told);
}

#[test]
fn a_process_that_is_stopped_a_second_time_is_dealt_with_once_more() {
    use self::Act::{Die, Output, Restart, Stopped};
    let continued = [(Restart, 781), (Stopped(true), 106), (Stopped(false), 1), (Stopped(true), 106)];
    let replaced = [(Output, 781), (Stopped(true), 106), (Die(false), 0), (Stopped(true), 121)];
    for acts in [continued, replaced] {
        for cut in 0..acts.len() {
            live(&acts, cut);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Nobody who works or waits is disturbed, nothing is done twice, and silence always reaches a person.
    #[test]
    fn nobody_is_disturbed_and_nobody_forgotten(
        acts in prop::collection::vec((act(), 0..1200_u64), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        live(&acts, cut.index(acts.len()));
    }
}
