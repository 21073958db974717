//! The conversion of effects into one write of the store, and the actions after its commit.

use std::time::Duration;

use super::host_call::HostCallJob;
use super::stall::WatchPolicy;
use super::state::{CommandRefusal, SessionInput, SessionState, StepContext, StepEffect};
use intercom_store::{OutgoingChange, SessionSnapshot, SessionWrite};
use intercom_types::{AgentCommand, EventKind, NewEvent, RequestId, StopMode, Time, id};
use intercom_wire::driver::Driver;
use intercom_wire::framing::Framer;

/// An action that follows the commit.
#[derive(Debug)]
pub(super) enum AfterCommit {
    Send { n: u64, message: Vec<u8> },
    Stop(StopMode),
    Do { request: RequestId, job: HostCallJob },
}

/// The encoder of messages for one agent.
pub(super) struct MessageEncoder<'a> {
    pub(super) framer: &'a mut Framer,
    pub(super) driver: &'a mut Driver,
}

impl MessageEncoder<'_> {
    /// Returns the message's bytes; none if the protocol has no such message.
    pub(super) fn encode(&mut self, message: &AgentCommand) -> Vec<u8> {
        self.driver.encode(message).map(|text| self.framer.wrap(&text)).unwrap_or_default()
    }
}

/// The current settings of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepSettings<'a> {
    pub(super) now: Time,
    pub(super) watch_policy: &'a WatchPolicy,
    pub(super) startup: Duration,
    pub(super) command_fingerprint: &'a str,
    pub(super) spent_elsewhere: u64,
}

impl<'a> StepSettings<'a> {
    /// Returns the settings of a session that has no process, and gets none by this step.
    pub(super) fn without_process(watch_policy: &'a WatchPolicy) -> Self {
        let (now, startup) = (Time::now(), Duration::ZERO);
        Self { now, watch_policy, startup, command_fingerprint: "", spent_elsewhere: 0 }
    }
}

/// Performs one step with the system's randomness.
pub(super) fn step(
    state: &mut SessionState,
    settings: StepSettings<'_>,
    input: SessionInput,
    effects: &mut Vec<StepEffect>,
) -> Result<(), CommandRefusal> {
    let StepSettings { now, watch_policy, startup, command_fingerprint, spent_elsewhere } = settings;
    let seed = &mut id::seed;
    let mut cx = StepContext { now, seed, watch_policy, startup, command_fingerprint, spent_elsewhere };
    state.step(&mut cx, input, effects)
}

/// Sorts effects into the write and the actions after its commit, with a snapshot if the state has changed.
pub(super) fn prepare(
    state: &mut SessionState,
    effects: Vec<StepEffect>,
    mut voice: Option<MessageEncoder<'_>>,
) -> (SessionWrite, Vec<AfterCommit>) {
    let mut events = Vec::with_capacity(effects.len());
    let (mut outgoing, mut todo, mut consumed) = (Vec::new(), Vec::new(), None);
    for effect in effects {
        match effect {
            StepEffect::Record(event) => events.push(event),
            StepEffect::Send { n, message } => {
                let message = voice.as_mut().map(|voice| voice.encode(&message)).unwrap_or_default();
                outgoing.push(OutgoingChange::Sent { n, message: message.clone() });
                todo.push(AfterCommit::Send { n, message });
            }
            // The session's task does the spawning itself; the output of a new process begins at offset 0.
            StepEffect::Spawn => consumed = Some(0),
            StepEffect::Stop { mode } => todo.push(AfterCommit::Stop(mode)),
            StepEffect::Do { request, job } => todo.push(AfterCommit::Do { request, job }),
        }
    }
    // Bulk output goes into the store's normal queue, so that events that somebody waits for overtake it.
    let urgent = !events.iter().all(|new: &NewEvent| new.event.kind().is_some_and(EventKind::is_bulk));
    if let Some(saved) = voice.and_then(|voice| voice.driver.save()) {
        state.set_driver(saved);
    }
    let snapshot = state.take_dirty().then(|| {
        let json = serde_json::to_string(&*state).expect("a state has string keys only");
        Box::new(SessionSnapshot { record: state.record(), state: json, launch: None })
    });
    let (session, generation) = (state.id(), state.generation());
    let adopts = false;
    (SessionWrite { session, generation, events, outgoing, snapshot, consumed, urgent, adopts }, todo)
}
