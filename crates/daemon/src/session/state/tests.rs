//! The life of a session, told step by step, and random lives that try to break what must stay true.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

mod agent_config;
mod clients;
mod decisions;
mod deferred;
mod failures;
mod host_calls;
mod interrupts;
mod ledger;
mod presets;
mod prompts;
mod snapshots;
mod stalls;
use intercom_types::event::{ClearanceDelivered, ClearanceUndelivered, QuestionAnswered, QuestionClosed};
use intercom_types::{
    AgentMessage, Answer, ClearanceId, ClearanceRequest, EventKind, Exit, FaultCode, HeartbeatProgress,
    LadderChoice, LineExcerpt, LineRejection, Outcome, Phase, PromptState, QuestionId, RequestFault,
    StopMode, TurnId,
};

/// A session with a clock and ids of its own.
struct World {
    state: SessionState,
    time: i64,
    seeds: u64,
    watch_policy: WatchPolicy,
}

const STARTUP: Duration = Duration::from_secs(30);

/// The models of our own protocol.
fn turn_model(on_heartbeat: bool) -> TurnModel {
    if on_heartbeat { TurnModel::OnHeartbeat } else { TurnModel::Immediate }
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut SessionSpec)) -> Self {
        let mut spec = SessionSpec {
            id: SessionId::from_seed([7; 10]),
            name: None,
            agent: None,
            protocol: "intercom".to_owned(),
            workspace: PathBuf::from("/project"),
            created_at: Time::from_millis(0),
            turn_model: TurnModel::Immediate,
            max_queued_prompts: 5,
            preset: Preset::Full,
            on_client_left: None,
        };
        change(&mut spec);
        Self { state: SessionState::new(spec), time: 0, seeds: 0, watch_policy: WatchPolicy::off() }
    }

    fn running() -> Self {
        let mut world = Self::new();
        world.launch();
        world
    }

    fn launch(&mut self) {
        self.go(SessionInput::Launch {
            by: "ana".into(),
            command: "agent".into(),
            prompt: None,
            ladder: LadderChoice::Configured,
        });
        self.go(SessionInput::Spawned { pid: 42 });
    }

    fn try_go(&mut self, input: SessionInput) -> Result<Vec<StepEffect>, CommandRefusal> {
        self.time += 1;
        let seeds = &mut self.seeds;
        let mut seed = || {
            *seeds += 1;
            let mut seed = [0; 10];
            seed[2..].copy_from_slice(&seeds.to_be_bytes());
            seed
        };
        let mut cx = StepContext {
            now: Time::from_millis(self.time),
            seed: &mut seed,
            watch_policy: &self.watch_policy,
            startup: STARTUP,
            command_fingerprint: "f",
            spent_elsewhere: 0,
        };
        let mut effects = Vec::new();
        self.state.step(&mut cx, input, &mut effects).map(|()| effects)
    }

    #[track_caller]
    fn go(&mut self, input: SessionInput) -> Vec<StepEffect> {
        self.try_go(input).unwrap()
    }

    #[track_caller]
    fn kinds(&mut self, input: SessionInput) -> Vec<&'static str> {
        self.go(input).iter().filter_map(kind).collect()
    }

    /// What is left of it in a snapshot.
    fn reload(&mut self) {
        self.state = serde_json::from_str(&serde_json::to_string(&self.state).unwrap()).unwrap();
    }

    fn say(&mut self, said: AgentMessage) -> Vec<StepEffect> {
        self.go(SessionInput::AgentMessage(Box::new(said)))
    }

    fn ask(&mut self, request: &str) -> ClearanceId {
        self.say(clearance(request));
        *self.state.requests.clearances.iter().find(|(_, open)| open.request.as_json() == request).unwrap().0
    }
}

fn kind(effect: &StepEffect) -> Option<&'static str> {
    match effect {
        StepEffect::Record(new) => new.event.kind().map(EventKind::as_str),
        _ => None,
    }
}

fn sent(effects: &[StepEffect]) -> Vec<(u64, AgentCommand)> {
    let sends = effects.iter().filter_map(|effect| match effect {
        // Turns have tests of their own.
        StepEffect::Send { n, message: AgentCommand::Prompt { wording, .. } } => {
            Some((*n, prompted(wording.clone())))
        }
        StepEffect::Send { n, message } => Some((*n, message.clone())),
        _ => None,
    });
    sends.collect()
}

fn prompted(wording: intercom_types::PromptBody) -> AgentCommand {
    AgentCommand::Prompt { wording, turn: None }
}

fn id(request: &str) -> RequestId {
    RequestId::parse(request).unwrap()
}

fn clearance(request: &str) -> AgentMessage {
    AgentMessage::Clearance(Box::new(ask(request)))
}

fn ask(request: &str) -> ClearanceRequest {
    ClearanceRequest {
        request: id(request),
        title: "t".to_owned(),
        description: None,
        diff: None,
        file_path: None,
        more_paths: Vec::new(),
        tool: None,
        command: None,
        claims_risk: true,
        claimed_risk: None,
        options: Vec::new(),
        params: Json::trusted("{}"),
        line: line(),
    }
}

fn line() -> LineExcerpt {
    LineExcerpt { excerpt: "{…".to_owned(), bytes: 5000 }
}

fn question(request: &str) -> AgentMessage {
    AgentMessage::Question {
        request: id(request),
        text: "?".to_owned(),
        sort: None,
        params: Json::trusted("{}"),
        line: line(),
    }
}

fn status() -> AgentMessage {
    AgentMessage::Status { params: Json::trusted(r#"{"message":"m"}"#) }
}

fn heartbeat(progress: HeartbeatProgress) -> AgentMessage {
    AgentMessage::Heartbeat { params: Json::trusted("{}"), progress, fingerprint: 0, steps: Vec::new() }
}

fn turn_end() -> AgentMessage {
    AgentMessage::TurnEnd {
        stop_reason: "end_turn".to_owned(),
        tokens: intercom_types::TurnTokenCounts::default(),
        params: Json::trusted("{}"),
        failed: false,
        turn: None,
        message: Json::trusted(r#"{"method":"turn/end"}"#),
    }
}

fn rejected(request: Option<&str>) -> AgentMessage {
    let rejection =
        LineRejection { reason: "bad".into(), excerpt: String::new(), bytes: 0, method: None, field: None };
    let fault = request.map(|request| RequestFault {
        request: id(request),
        code: FaultCode::MissingField,
        message: "bad".to_owned(),
    });
    AgentMessage::Rejected { rejection, fault }
}

fn prompt(text: &str) -> SessionInput {
    SessionInput::Prompt { id: None, wording: text.into(), by: "ana".into() }
}

fn decide(clearance: ClearanceId, verdict: Verdict) -> SessionInput {
    decide_as("ana", clearance, verdict)
}

fn decide_as(by: &str, clearance: ClearanceId, verdict: Verdict) -> SessionInput {
    SessionInput::Decide { clearance, verdict, reason: None, option: None, by: by.into(), via: "here".into() }
}

fn agent_exit() -> SessionInput {
    SessionInput::Exited(Box::new(AgentExit { reason: "stream closed".to_owned(), ..AgentExit::default() }))
}

#[test]
fn a_session_starts_works_waits_and_ends() {
    let mut world = World::new();
    assert_eq!(world.state.phase(), Phase::Created);
    let launch = SessionInput::Launch {
        by: "ana".into(),
        command: "agent".into(),
        prompt: Some("go".into()),
        ladder: LadderChoice::Configured,
    };
    assert_eq!(world.kinds(launch), ["session.created", "prompt.queued"]);
    assert_eq!(world.state.phase(), Phase::Starting);
    let effects = world.go(SessionInput::Spawned { pid: 42 });
    let kinds: Vec<_> = effects.iter().filter_map(kind).collect();
    assert_eq!(kinds, ["agent.spawned", "agent.ready", "turn.started", "prompt.sending"]);
    assert_eq!(sent(&effects), [(1, prompted("go".into()))]);
    assert_eq!(world.kinds(SessionInput::Delivered { n: 1 }), ["prompt.delivered"]);
    assert_eq!(world.state.phase(), Phase::Working);
    let clr = world.ask("1");
    assert_eq!(world.state.phase(), Phase::Waiting);
    assert_eq!(world.state.why(), "waiting for you: 1 clearance");
    assert_eq!(world.kinds(decide(clr, Verdict::Approve)), ["clearance.decided"]);
    assert_eq!(world.kinds(SessionInput::Delivered { n: 2 }), ["clearance.delivered"]);
    assert_eq!(world.state.phase(), Phase::Working);
    let effects = world.say(turn_end());
    assert_eq!(effects.iter().filter_map(kind).collect::<Vec<_>>(), ["turn.ended"]);
    assert_eq!(world.state.phase(), Phase::Idle);
    assert_eq!(world.kinds(agent_exit()), ["agent.exited", "session.ended"]);
    assert_eq!(world.state.phase(), Phase::Ended);
}

#[test]
fn since_when_it_is_in_its_phase_is_kept_and_changes_with_the_phase_only() {
    let mut world = World::new();
    let since = |world: &World| world.state.record().watch_state.phase_since.map(Time::millis);
    assert_eq!(since(&world), None);
    world.launch();
    assert_eq!((world.state.phase(), since(&world)), (Phase::Idle, Some(2)));
    world.go(prompt("go"));
    world.say(status());
    assert_eq!((world.state.phase(), since(&world)), (Phase::Working, Some(3)));
    let clr = world.ask("1");
    world.ask("2");
    assert_eq!((world.state.phase(), since(&world)), (Phase::Waiting, Some(5)));
    world.go(decide(clr, Verdict::Approve));
    assert_eq!(since(&world), Some(5), "one still waits");
    world.go(agent_exit());
    assert_eq!((world.state.phase(), since(&world)), (Phase::Ended, Some(8)));
}

#[test]
fn the_first_usable_message_begins_a_turn_and_later_ones_while_idle_do_not() {
    let mut world = World::running();
    world.say(rejected(None));
    assert_eq!(world.state.phase(), Phase::Idle, "a banner is no work");
    world.say(status());
    assert_eq!(world.state.phase(), Phase::Working);
    world.say(turn_end());
    world.say(status());
    world.say(heartbeat(HeartbeatProgress::Open));
    assert_eq!(world.state.phase(), Phase::Idle);
    world.go(prompt("more"));
    assert_eq!(world.state.phase(), Phase::Working);
    world.say(heartbeat(HeartbeatProgress::Open));
    world.say(heartbeat(HeartbeatProgress::Empty));
    assert_eq!(world.state.phase(), Phase::Working);
    world.say(heartbeat(HeartbeatProgress::Completed));
    assert_eq!(world.state.phase(), Phase::Idle);
}

#[test]
fn a_request_id_may_be_open_once_and_used_again_afterwards() {
    let mut world = World::running();
    let clr = world.ask("1");
    let effects = world.say(question("1"));
    assert_eq!(effects.iter().filter_map(kind).collect::<Vec<_>>(), ["line.rejected"]);
    let [(_, AgentCommand::Fault(fault))] = &sent(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(fault.code, FaultCode::DuplicateId);
    world.go(decide(clr, Verdict::Approve));
    assert_ne!(world.ask("1"), clr);
}

#[test]
fn the_second_decision_is_refused_and_sends_nothing() {
    let mut world = World::running();
    let clr = world.ask("1");
    assert_eq!(sent(&world.go(decide(clr, Verdict::Approve))).len(), 1);
    assert_eq!(world.try_go(decide(clr, Verdict::Deny)), Err(CommandRefusal::NotOpen));
}

#[test]
fn the_end_withdraws_what_is_open_and_fails_what_is_under_way() {
    let mut world = World::running();
    let decided = world.ask("1");
    world.ask("2");
    world.say(question("3"));
    world.go(decide(decided, Verdict::Approve));
    let effects = world.go(agent_exit());
    let kinds: Vec<_> = effects.iter().filter_map(kind).collect();
    assert_eq!(
        kinds,
        [
            "clearance.undelivered",
            "agent.exited",
            "clearance.closed",
            "question.closed",
            "turn.ended",
            "session.ended"
        ]
    );
    for input in [
        prompt("x"),
        decide(decided, Verdict::Deny),
        SessionInput::Stop { mode: StopMode::Stop, by: "a".into() },
    ] {
        assert_eq!(world.try_go(input), Err(CommandRefusal::Ended));
    }
}

#[test]
fn prompts_that_wait_are_reworded_and_put_in_another_order() {
    let mut world = World::with(|spec| spec.turn_model = TurnModel::OnHeartbeat);
    world.launch();
    for text in ["a", "b", "c"] {
        world.go(prompt(text));
    }
    let (a, c) = (world.state.turns.queue[0].id, world.state.turns.queue[2].id);
    let amend = |prompt, text: Option<&str>, place| SessionInput::Amend {
        prompt,
        text: text.map(str::to_owned),
        place,
        by: "ana".into(),
    };
    world.go(amend(c, None, Some(0)));
    world.go(amend(a, Some("A"), Some(99)));
    for (n, text) in [(1, "c"), (2, "b"), (3, "A")] {
        let text = text.to_owned();
        assert_eq!(sent(&world.say(heartbeat(HeartbeatProgress::Open))), [(n, prompted(text.into()))]);
    }
    assert_eq!(world.try_go(amend(a, None, Some(0))), Err(CommandRefusal::NotQueued));
}

#[test]
fn with_delivery_on_heartbeats_one_prompt_leaves_with_each() {
    let mut world = World::with(|spec| spec.turn_model = TurnModel::OnHeartbeat);
    world.launch();
    assert_eq!(sent(&world.go(prompt("a"))), []);
    world.go(prompt("b"));
    let taken = world.state.turns.queue[1].id;
    world.go(prompt("c"));
    world.go(SessionInput::TakeBack { prompt: taken, by: "ana".into() });
    assert_eq!(world.state.record().queue, 2);
    assert_eq!(sent(&world.say(heartbeat(HeartbeatProgress::Open))), [(1, prompted("a".into()))]);
    assert_eq!(sent(&world.say(heartbeat(HeartbeatProgress::Open))), [(2, prompted("c".into()))]);
    assert_eq!(sent(&world.say(heartbeat(HeartbeatProgress::Open))), []);
    let too_late = SessionInput::TakeBack { prompt: taken, by: "ana".into() };
    assert_eq!(world.try_go(too_late), Err(CommandRefusal::NotQueued));
}

#[test]
fn the_queue_has_an_end() {
    let mut world = World::with(|spec| spec.turn_model = TurnModel::OnHeartbeat);
    world.launch();
    for _ in 0..5 {
        world.go(prompt("x"));
    }
    assert_eq!(world.try_go(prompt("x")), Err(CommandRefusal::QueueFull(5)));
}

#[test]
fn a_resumed_session_counts_from_one_again_and_sends_what_waited() {
    let mut world = World::with(|spec| spec.turn_model = TurnModel::OnHeartbeat);
    world.launch();
    world.go(prompt("kept"));
    world.say(rejected(Some("9")));
    world.go(agent_exit());
    assert_eq!(
        world.try_go(SessionInput::Spawned { pid: 1 }).map(drop),
        Ok(()),
        "late news changes nothing of note"
    );
    world.go(SessionInput::Resume { by: "ana".into() });
    assert_eq!(world.state.generation(), 2);
    world.go(SessionInput::Spawned { pid: 43 });
    let effects = world.say(heartbeat(HeartbeatProgress::Open));
    assert_eq!(sent(&effects), [(1, prompted("kept".into()))]);
    assert_eq!(world.try_go(SessionInput::Resume { by: "ana".into() }), Err(CommandRefusal::Running));
}

#[test]
fn what_needs_a_running_agent_is_refused_while_it_starts_and_a_prompt_waits() {
    let mut world = World::new();
    world.go(SessionInput::Launch {
        by: "ana".into(),
        command: "agent".into(),
        prompt: None,
        ladder: LadderChoice::Configured,
    });
    let nudge = SessionInput::Nudge { message: "go".into(), by: "ana".into() };
    assert_eq!(world.try_go(nudge), Err(CommandRefusal::Starting));
    let interrupt = SessionInput::Interrupt { reason: "no".into(), by: "ana".into() };
    assert_eq!(world.try_go(interrupt), Err(CommandRefusal::Starting));
    assert_eq!(sent(&world.go(prompt("later"))), []);
    assert_eq!(sent(&world.go(SessionInput::Spawned { pid: 1 })).len(), 1);
}

#[test]
fn a_kill_overtakes_a_stop_and_a_second_stop_changes_nothing() {
    let stop = |mode| SessionInput::Stop { mode, by: "ana".into() };
    let mut world = World::running();
    assert_eq!(world.kinds(stop(StopMode::Stop)), ["session.stopping"]);
    assert_eq!(world.go(stop(StopMode::Stop)), []);
    assert_eq!(world.go(stop(StopMode::Kill)).last(), Some(&StepEffect::Stop { mode: StopMode::Kill }));
    assert_eq!(world.go(stop(StopMode::Stop)), []);
    assert_eq!(world.try_go(prompt("x")), Err(CommandRefusal::Stopping));
    world.go(agent_exit());
    assert_eq!(world.state.why(), "killed by ana (exit status unknown)");
}

#[test]
fn reading_stops_while_too_much_is_open_or_under_way() {
    let mut world = World::running();
    for n in 0..MAX_IN_FLIGHT {
        assert!(world.state.may_read(), "{n}");
        world.say(rejected(Some("1")));
    }
    assert!(!world.state.may_read());
    world.go(SessionInput::Delivered { n: 3 });
    assert!(world.state.may_read());
}

#[test]
fn bulk_output_needs_no_new_snapshot() {
    let mut world = World::running();
    world.say(status());
    assert!(world.state.take_dirty());
    world.say(status());
    world.say(heartbeat(HeartbeatProgress::Open));
    world.say(rejected(None));
    assert!(!world.state.take_dirty());
}

/// Indexes stand for whatever the session has at that place at that moment.
#[derive(Debug, Clone)]
enum Act {
    Say(u8, u8),
    Ask(u8, u8),
    Expire,
    Prompt,
    TakeBack(usize),
    /// Other words, or another place in the queue.
    Amend(usize, Option<usize>),
    Decide(usize, bool),
    DecideAgain(usize),
    Rule(usize, u8),
    Answer(usize),
    Steer(bool),
    /// It ends a turn by name: the one that runs, or another.
    EndNamed(bool),
    /// So long that an interrupted turn is over.
    Quiet,
    /// The daemon is killed and comes back.
    Reload,
    Stop(bool),
    Deliver(usize, bool),
    DeliverAgain(usize),
    Exit,
    Resume,
    Agent,
    Preset(usize, bool),
    Spawn(bool),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (0u8..9, 0u8..6).prop_map(|(what, request)| Act::Say(what, request)),
        4 => (0u8..8, 0u8..6).prop_map(|(mode, request)| Act::Ask(mode, request)),
        2 => Just(Act::Expire),
        3 => Just(Act::Prompt),
        1 => any::<usize>().prop_map(Act::TakeBack),
        2 => (any::<usize>(), proptest::option::of(0usize..4)).prop_map(|(at, place)| Act::Amend(at, place)),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(at, yes)| Act::Decide(at, yes)),
        1 => any::<usize>().prop_map(Act::DecideAgain),
        2 => (any::<usize>(), 0u8..3).prop_map(|(at, outcome)| Act::Rule(at, outcome)),
        2 => any::<usize>().prop_map(Act::Answer),
        2 => any::<bool>().prop_map(Act::Steer),
        2 => any::<bool>().prop_map(Act::EndNamed),
        2 => Just(Act::Quiet),
        1 => Just(Act::Reload),
        1 => any::<bool>().prop_map(Act::Stop),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(at, fine)| Act::Deliver(at, fine)),
        1 => any::<usize>().prop_map(Act::DeliverAgain),
        1 => Just(Act::Exit),
        1 => Just(Act::Resume),
        1 => Just(Act::Agent),
        2 => (0usize..4, any::<bool>()).prop_map(|(preset, widens)| Act::Preset(preset, widens)),
        2 => any::<bool>().prop_map(Act::Spawn),
    ];
    proptest::collection::vec(act, 0..120)
}

/// What an outside observer has seen of one session.
#[derive(Default)]
struct Seen {
    opened: BTreeSet<ClearanceId>,
    closed: BTreeMap<ClearanceId, u32>,
    asked: BTreeSet<QuestionId>,
    answered: BTreeMap<QuestionId, u32>,
    settled: BTreeMap<ClearanceId, u32>,
    numbers: BTreeSet<(u32, u64)>,
    generation: u32,
    prompts: BTreeMap<PromptId, PromptState>,
    /// Its first prompt starts it, and has not yet.
    deferred: bool,
    /// Interrupts that were sent, and unnamed ends of a turn that ended none, in this generation.
    interrupts: u32,
    late_ends: u32,
}

impl Seen {
    fn look(&mut self, generation: u32, effects: &[StepEffect]) {
        if generation != self.generation {
            self.generation = generation;
            (self.interrupts, self.late_ends) = (0, 0);
        }
        for effect in effects {
            match effect {
                StepEffect::Record(new) => self.look_at(&new.event),
                StepEffect::Send { n, message } => {
                    self.interrupts += u32::from(matches!(message, AgentCommand::Interrupt { .. }));
                    assert!(self.numbers.insert((generation, *n)), "a number was used twice");
                }
                _ => {}
            }
        }
        assert!(self.closed.values().all(|times| *times == 1), "one winner");
        assert!(self.answered.values().all(|times| *times == 1), "one answer");
        assert!(self.settled.values().all(|times| *times == 1), "delivered or failed once");
    }

    fn close(&mut self, id: ClearanceId) {
        assert!(self.opened.contains(&id));
        *self.closed.entry(id).or_default() += 1;
    }

    fn look_at(&mut self, event: &Event) {
        match event {
            Event::AgentReady(_) => self.deferred = false,
            Event::ClearanceRequested(requested) => {
                assert!(self.opened.insert(requested.clearance), "opened twice");
            }
            Event::ClearanceDecided(decided) => self.close(decided.clearance),
            Event::ClearanceClosed(closed) => self.close(closed.clearance),
            Event::ClearanceDelivered(ClearanceDelivered { clearance: id })
            | Event::ClearanceUndelivered(ClearanceUndelivered { clearance: id, .. }) => {
                *self.settled.entry(*id).or_default() += 1;
            }
            Event::QuestionAsked(asked) => assert!(self.asked.insert(asked.question)),
            Event::QuestionAnswered(QuestionAnswered { question: id, .. })
            | Event::QuestionClosed(QuestionClosed { question: id, .. }) => {
                *self.answered.entry(*id).or_default() += 1;
            }
            Event::PromptQueued(queued) => {
                self.prompts.insert(queued.prompt, PromptState::Queued);
            }
            Event::PromptSending(sending) => self.moves(sending.prompt, PromptState::Sending),
            Event::PromptWithdrawn(withdrawn) => self.moves(withdrawn.prompt, PromptState::Withdrawn),
            Event::PromptDelivered(delivered) => self.moves(delivered.prompt, PromptState::Delivered),
            Event::PromptUndelivered(failed) => {
                self.moves(failed.prompt, PromptState::Failed(failed.cause.clone()));
            }
            Event::PromptRequeued(requeued) => self.moves(requeued.prompt, PromptState::Queued),
            _ => {}
        }
    }

    fn moves(&mut self, id: PromptId, state: PromptState) {
        let before = self.prompts[&id].clone();
        let fine = match &state {
            PromptState::Sending | PromptState::Withdrawn => before == PromptState::Queued,
            PromptState::Failed(_) if before == PromptState::Queued => self.deferred,
            PromptState::Delivered | PromptState::Failed(_) => before == PromptState::Sending,
            PromptState::Queued | PromptState::Other(_) => false,
        };
        assert!(fine, "{before:?} → {state:?}");
        self.prompts.insert(id, state);
    }
}

fn assessment(state: &SessionState, mode: u8) -> RequestAssessment {
    match mode {
        0 => decisions::ruled(Outcome::Allow),
        1 => decisions::ruled(Outcome::Deny),
        2 => decisions::ruled(Outcome::Ask),
        3 => decisions::limited(5, Verdict::Approve),
        4 => presets::forbidden(state, &[Preset::ReadOnly, Preset::Sandbox]),
        5 => presets::forbidden(state, &[Preset::Safe, Preset::Sandbox]),
        6 => presets::forbidden(state, &[Preset::ReadOnly, Preset::Safe, Preset::Sandbox]),
        _ => RequestAssessment { needed: 2, ..decisions::limited(5, Verdict::Deny) },
    }
}

fn input(world: &World, act: &Act, seen: &Seen) -> Option<SessionInput> {
    fn nth<T: Copy>(items: impl ExactSizeIterator<Item = T>, at: usize) -> Option<T> {
        let (len, mut items) = (items.len(), items);
        if len == 0 { None } else { items.nth(at % len) }
    }
    let by = || "ana".to_owned();
    let state = &world.state;
    Some(match act {
        Act::Say(what, request) => {
            // Only a process that runs can say something.
            state.pid()?;
            let request = request.to_string();
            SessionInput::AgentMessage(Box::new(match what {
                0 | 1 => clearance(&request),
                2 => question(&request),
                3 => status(),
                4 => heartbeat(HeartbeatProgress::Open),
                5 => heartbeat(HeartbeatProgress::Completed),
                6 => turn_end(),
                7 => rejected(Some(&request)),
                _ => rejected(None),
            }))
        }
        Act::Ask(mode, request) => {
            state.pid()?;
            let assessed = assessment(state, *mode);
            SessionInput::ClearanceRequested(Box::new(ask(&request.to_string())), Box::new(assessed))
        }
        Act::Expire => SessionInput::Expire,
        Act::Prompt => prompt("p"),
        Act::TakeBack(at) => {
            SessionInput::TakeBack { prompt: nth(seen.prompts.keys(), *at).copied()?, by: by() }
        }
        Act::Amend(at, place) => {
            let prompt = nth(seen.prompts.keys(), *at).copied()?;
            let text = place.is_none().then(|| "q".to_owned());
            SessionInput::Amend { prompt, text, place: *place, by: by() }
        }
        Act::Decide(at, yes) => {
            let verdict = if *yes { Verdict::Approve } else { Verdict::Deny };
            decide(nth(state.requests.clearances.keys(), *at).copied()?, verdict)
        }
        Act::DecideAgain(at) => decide(nth(seen.opened.iter(), *at).copied()?, Verdict::Approve),
        Act::Rule(at, outcome) => {
            let outcome = [Outcome::Allow, Outcome::Deny, Outcome::Ask][usize::from(*outcome)];
            decisions::to_restart(nth(seen.opened.iter(), *at).copied()?, outcome)
        }
        Act::Answer(at) => SessionInput::Answer {
            question: nth(seen.asked.iter(), *at).copied()?,
            answer: Answer::Continue,
            instruction: None,
            by: by(),
        },
        Act::EndNamed(running) => {
            state.pid()?;
            let running = state.turns.turn.as_ref().filter(|_| *running).map(|turn| turn.id);
            SessionInput::AgentMessage(Box::new(interrupts::end_of(
                running.unwrap_or(TurnId::from_seed([9; 10])),
            )))
        }
        Act::Quiet => SessionInput::Watch(None),
        Act::Reload => SessionInput::Found,
        Act::Steer(true) => SessionInput::Nudge { message: "go".into(), by: by() },
        Act::Steer(false) => SessionInput::Interrupt { reason: "no".into(), by: by() },
        Act::Stop(kill) => {
            SessionInput::Stop { mode: if *kill { StopMode::Kill } else { StopMode::Stop }, by: by() }
        }
        Act::Deliver(at, fine) => {
            let n = nth(state.outbox.in_flight.keys(), *at).copied()?;
            if *fine {
                SessionInput::Delivered { n }
            } else {
                SessionInput::Undelivered { n, cause: "closed".into() }
            }
        }
        Act::DeliverAgain(at) => SessionInput::Delivered { n: *at as u64 % 40 },
        Act::Exit => {
            state.pid()?;
            agent_exit()
        }
        Act::Resume => SessionInput::Resume { by: by() },
        Act::Agent => deferred::agent("other"),
        Act::Preset(at, widens) => {
            SessionInput::Preset { preset: Preset::ALL[*at], widens: *widens, by: by() }
        }
        Act::Spawn(fine) => {
            if state.phase() != Phase::Starting {
                return None;
            }
            if *fine {
                SessionInput::Spawned { pid: 9 }
            } else {
                SessionInput::SpawnFailed { cause: "no".into() }
            }
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_commands_and_events_breaks_an_invariant(
        acts in acts(), on_heartbeat in any::<bool>(), deferred in any::<bool>(),
    ) {
        let mut world = World::with(|spec| spec.turn_model = turn_model(on_heartbeat));
        if deferred {
            world.defer();
        } else {
            world.launch();
        }
        let mut seen = Seen { deferred, ..Seen::default() };
        for act in &acts {
            let Some(input) = input(&world, act, &seen) else { continue };
            match act {
                Act::Quiet => world.time += 60_000,
                Act::Reload => world.reload(),
                _ => {}
            }
            let before = world.state.clone();
            let end = interrupts::end_in(&input);
            if let Ok(effects) = world.try_go(input) {
                seen.look(world.state.generation(), &effects);
                if let Some(end) = end {
                    seen.late_ends += interrupts::check_end(end, &before, &effects);
                    prop_assert!(seen.late_ends <= seen.interrupts, "at most once per interrupt");
                }
            } else {
                prop_assert_eq!(&world.state, &before, "a refusal changes nothing");
            }
            let state = &world.state;
            // What is open in the state is exactly what was opened and not closed.
            let open: BTreeSet<_> =
                seen.opened.iter().filter(|id| !seen.closed.contains_key(id)).copied().collect();
            prop_assert_eq!(state.requests.clearances.keys().copied().collect::<BTreeSet<_>>(), open);
            if state.is_ended() {
                prop_assert!(state.requests.clearances.is_empty() && state.requests.questions.is_empty());
                prop_assert!(state.outbox.in_flight.is_empty() && state.turns.turn.is_none() && state.pid().is_none());
            }
            // Nothing waits for people that they could not allow.
            if state.steerable().is_ok() {
                let forbidden = |open: &OpenClearance| open.terms.forbidden_by.contains(&state.spec.preset);
                prop_assert!(!state.requests.clearances.values().any(forbidden));
            }
            // Whoever waits for a first prompt has nothing else, and what was to start it does not wait for another life.
            if state.is_deferred() {
                prop_assert!(state.turns.queue.is_empty() && state.outbox.in_flight.is_empty() && state.pid().is_none());
            }
            if state.is_ended() && seen.deferred {
                prop_assert!(state.turns.queue.is_empty());
                seen.deferred = false;
            }
            // A snapshot is the state.
            let copy: SessionState = serde_json::from_str(&serde_json::to_string(state).unwrap()).unwrap();
            prop_assert_eq!(&copy.record(), &state.record());
            prop_assert_eq!(&copy.outbox.in_flight, &state.outbox.in_flight);
        }
    }
}
