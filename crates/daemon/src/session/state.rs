//! The life of a session as a pure function: inputs in, effects out. Without clock, I/O and randomness of its own.
//!
//! ```text
//!            Launch            Spawned                 Stop              Exited
//!  created ─────────► starting ───────► running ─────────────► stopping ─────────► ended
//!  (deferred: the first Prompt, or Resume)
//!                        │                 │ Exited                                  │
//!                        └─ SpawnFailed ───┴──┬─────────────► ended ◄────────────────┘
//!                        ▲                    │                 │ Resume: next generation
//!                        │ Restart            ▼                 │
//!                        ├───────────────── resting ──► parked ─┤
//!                        └──────────────────────────────────────┘
//!
//!  running, as people see it:  waiting  a request waits for an operator
//!                              working  a turn runs
//!                              idle     neither
//! ```
//!
//! Invariants, which the property tests try to break: an open request is closed exactly once; an outgoing
//! number is settled exactly once; nothing is open and nothing is in flight after the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch as channel;

use super::host_call::HostCallJob;
use super::stall::WatchPolicy;
use intercom_types::id::Seed;
use intercom_types::{
    AgentCommand, Clearance, ClearanceRequest, Event, Json, NewEvent, OnClientLeft, Preset, PromptId,
    RequestId, Risk, Ruling, SessionId, StopMode, Time, Verdict,
};

mod agent;
mod agent_reports;
mod client;
mod facts;
mod failure;
mod host_calls;
mod input;
mod interrupt;
mod life;
mod operator;
mod orphan;
mod outbox;
mod preset;
mod process;
mod requests;
mod stored;
#[cfg(test)]
mod tests;
mod tracked;
mod turn;
mod turn_model;
mod view;
mod watch;

use facts::AgentFacts;
pub(crate) use input::AgentExit;
pub(crate) use input::CommandRefusal;
pub(crate) use input::SessionInput;
use life::{LifeStage, SessionLife};
pub(crate) use orphan::AdoptedProcess;
pub(crate) use orphan::OpenRequests;
use outbox::{MessageOutbox, OutboundKind};
use requests::{DecisionTerms, OpenClearance, RequestSubject, RequestTable};
use stored::StoredState;
use tracked::Tracked;
use turn::{QueuedPrompt, TurnState};
pub(crate) use turn_model::TurnModel;
use watch::AgentOversight;

/// The maximum number of messages on their way to the agent. At the limit nothing is read from it: it must read first.
const MAX_IN_FLIGHT: usize = 256;
/// The maximum number of requests that wait for people. At the limit nothing is read from the agent: some must be
/// decided first.
const MAX_OPEN: usize = 1000;

/// The specification of a session. After its first process has started, only the preset and `on_client_left` change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionSpec {
    pub(crate) id: SessionId,
    pub(crate) name: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) protocol: String,
    pub(crate) workspace: PathBuf,
    pub(crate) created_at: Time,
    #[serde(flatten)]
    pub(crate) turn_model: TurnModel,
    pub(crate) max_queued_prompts: usize,
    /// The limit on the agent's permissions.
    #[serde(default)]
    pub(crate) preset: Preset,
    /// `None` if no ACP client started it.
    #[serde(default)]
    pub(crate) on_client_left: Option<OnClientLeft>,
}

/// A session. This is also its snapshot: recovery loads it and does not replay the log.
///
/// Each part tracks its own changes since the last snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredState")]
pub(crate) struct SessionState {
    spec: Tracked<SessionSpec>,
    life: Tracked<SessionLife>,
    turns: Tracked<TurnState>,
    requests: Tracked<RequestTable>,
    outbox: Tracked<MessageOutbox>,
    agent: Tracked<AgentFacts>,
    oversight: Tracked<AgentOversight>,
    /// The host calls that the agent has asked for.
    #[serde(rename = "errands")]
    host_calls: Tracked<host_calls::HostCalls>,
    failures: Tracked<failure::FailureState>,
}

/// The assessment of a request before it is recorded: the computed risk, the ruling of policy, and the terms of the
/// decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestAssessment {
    pub(crate) risk: Risk,
    pub(crate) computed: Risk,
    pub(crate) why: Vec<String>,
    pub(crate) ruling: Option<Ruling>,
    /// The number of different people who have to approve the request.
    pub(crate) needed: u32,
    /// The longest wait, and the verdict after it.
    pub(crate) limit: Option<(Duration, Verdict)>,
    /// The presets that forbid the request, whether or not the session has one of them now.
    pub(crate) forbidden_by: Vec<Preset>,
}

impl Default for RequestAssessment {
    fn default() -> Self {
        Self {
            risk: Risk::Low,
            computed: Risk::Low,
            why: Vec::new(),
            ruling: None,
            needed: 1,
            limit: None,
            forbidden_by: Vec::new(),
        }
    }
}

/// Assesses requests. It may look at the file system, and decides nothing itself.
pub(crate) trait RequestAssessor: Send + Sync {
    fn assess(&self, spec: &SessionSpec, ask: &ClearanceRequest) -> RequestAssessment;

    /// Returns the current watch policy for sessions like this one.
    fn watch_policy(&self, spec: &SessionSpec) -> Arc<WatchPolicy>;

    /// Records the spending of this session today, in millionths, and returns that of the others.
    fn record_spend(&self, session: SessionId, day: i64, micros: u64) -> u64;

    /// Returns the worst assessment, for a request that cannot be assessed.
    fn unassessed(&self, spec: &SessionSpec) -> RequestAssessment;

    /// Returns the version of the policy, which rises with each change.
    fn policy(&self) -> channel::Receiver<u64>;

    /// Returns the ruling of the policy in force on a pending clearance. It may look at the file system.
    fn rule_pending(&self, spec: &SessionSpec, clearance: &Clearance) -> Ruling;
}

/// An effect of a step, in order: everything that is recorded is committed before anything is performed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepEffect {
    Record(NewEvent),
    Send {
        n: u64,
        message: AgentCommand,
    },
    /// A host call to perform. Its result is the input `Done`, or `TerminalEnded`.
    Do {
        request: RequestId,
        job: HostCallJob,
    },
    Spawn,
    Stop {
        mode: StopMode,
    },
}

/// The environment of a step.
pub(crate) struct StepContext<'a> {
    pub(crate) now: Time,
    pub(crate) seed: &'a mut dyn FnMut() -> Seed,
    /// The policy by which sessions like this one are watched.
    pub(crate) watch_policy: &'a WatchPolicy,
    /// The time within which its process must be ready. It depends on the command line, not only on the profile's name.
    pub(crate) startup: Duration,
    /// A hash of the agent's command line.
    pub(crate) command_fingerprint: &'a str,
    /// The spending of other sessions today, in millionths.
    pub(crate) spent_elsewhere: u64,
}

impl std::fmt::Debug for StepContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepContext").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The details of a decision.
struct DecisionDetails {
    reason: Option<String>,
    option: Option<String>,
    by: String,
    via: String,
    /// The ruling of a policy that was changed after the request.
    ruling: Option<Ruling>,
}

/// The effects of a step, in order.
struct EffectSink<'a, 'c> {
    cx: &'a mut StepContext<'c>,
    effects: &'a mut Vec<StepEffect>,
}

impl<'c> EffectSink<'_, 'c> {
    fn now(&self) -> Time {
        self.cx.now
    }

    fn watch_policy(&self) -> &'c WatchPolicy {
        self.cx.watch_policy
    }

    /// Returns the time by which a process that starts now must be ready.
    fn ready_deadline(&self) -> Time {
        self.now().plus(self.cx.startup)
    }

    fn seed(&mut self) -> Seed {
        (self.cx.seed)()
    }

    fn record(&mut self, event: Event) {
        let at = self.now();
        self.effects.push(StepEffect::Record(NewEvent { at, event }));
    }
}

impl SessionState {
    pub(crate) fn new(spec: SessionSpec) -> Self {
        Self {
            spec: Tracked::new(spec),
            life: Tracked::new(SessionLife::default()),
            turns: Tracked::default(),
            requests: Tracked::default(),
            outbox: Tracked::default(),
            agent: Tracked::default(),
            oversight: Tracked::default(),
            host_calls: Tracked::default(),
            failures: Tracked::default(),
        }
    }

    /// Makes the session wait for its first prompt before it starts a process.
    #[must_use]
    pub(crate) fn deferred(mut self) -> Self {
        self.life.deferred = true;
        self
    }

    /// Performs one step. Appends to `effects`; on `Err` nothing has changed.
    pub(crate) fn step(
        &mut self,
        cx: &mut StepContext<'_>,
        input: SessionInput,
        effects: &mut Vec<StepEffect>,
    ) -> Result<(), CommandRefusal> {
        let out = &mut EffectSink { cx, effects };
        let phase = self.phase();
        match input {
            SessionInput::Adopt(adoption) => self.adopt(*adoption, out),
            input if self.life.orphan => self.step_orphan(input, out)?,
            SessionInput::AgentMessage(message) => self.agent_message(*message, out),
            SessionInput::ClearanceRequested(ask, assessed) => self.clearance_requested(*ask, *assessed, out),
            SessionInput::HostCall(call, assessment) => self.request_host_call(*call, *assessment, out),
            SessionInput::HostCallDone { request, result } => self.host_call_done(&request, *result, out),
            SessionInput::TerminalEnded { terminal, exit, why } => {
                self.terminal_ended(&terminal, &exit, why.as_deref(), out);
            }
            SessionInput::Watch(activity) => self.observe_activity(activity.map(|activity| *activity), out),
            SessionInput::Clients { attached } => self.clients(attached, out),
            SessionInput::Keep { by } => self.keep(&by, out),
            SessionInput::Expire => self.expire(out),
            SessionInput::Ruled { clearance, ruling } => self.ruled(clearance, ruling, out),
            SessionInput::Found => self.restart_deadlines(out),
            SessionInput::Listening => {
                self.oversight.tracker.record_sign_of_life(out.now());
                self.restart_deadlines(out);
            }
            SessionInput::Launch { by, command, prompt, ladder } => {
                self.oversight.tracker.ladder_choice = ladder;
                self.launch(by, &command, prompt, out)?;
            }
            SessionInput::Resume { by } => self.resume(&by, out)?,
            SessionInput::Agent { spec, command, by } => self.choose_agent(*spec, &command, &by, out)?,
            SessionInput::Restart { prompt } => self.restart(prompt, out),
            SessionInput::Spawned { pid } => self.spawned(pid, out),
            SessionInput::SpawnFailed { cause } => self.spawn_failed(&cause, out),
            SessionInput::Delivered { n } => self.settle(n, None, out),
            SessionInput::Undelivered { n, cause } => self.settle(n, Some(&cause), out),
            SessionInput::Exited(agent_exit) => self.exited(*agent_exit, out),
            input => self.operator(input, out)?,
        }
        let has_open = self.has_open();
        self.oversight.mut_unchanged().tracker.waits(has_open, out.now());
        if self.phase() != phase {
            self.life.phase_since = Some(out.now());
        }
        Ok(())
    }

    pub(crate) fn spec(&self) -> &SessionSpec {
        &self.spec
    }

    pub(crate) fn id(&self) -> SessionId {
        self.spec.id
    }

    pub(crate) fn generation(&self) -> u32 {
        self.life.generation
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.life.pid
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.life.is_ended()
    }

    /// Returns the saved state of its driver.
    pub(crate) fn driver(&self) -> Option<&Json> {
        self.agent.driver.as_ref()
    }

    pub(crate) fn set_driver(&mut self, saved: Json) {
        self.agent.driver = Some(saved);
    }

    /// Returns true while clearances are pending.
    pub(crate) fn has_clearances(&self) -> bool {
        !self.requests.clearances.is_empty()
    }

    fn has_open(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Returns true if its process was adopted: the messages to and from it are not known.
    pub(crate) fn is_orphan(&self) -> bool {
        self.life.orphan
    }

    /// Returns the number of the next message to the agent.
    pub(crate) fn next_message(&self) -> u64 {
        self.outbox.next_n
    }

    /// Returns true while it has no process and waits for the command that starts its first.
    pub(crate) fn is_deferred(&self) -> bool {
        self.life.stage == LifeStage::Created
    }

    /// Returns true if it was deferred and its first process is to be started, or was started without a known result.
    pub(crate) fn is_waking(&self) -> bool {
        self.life.is_waking()
    }

    /// Returns the time of the next restart, if it rests until then.
    pub(crate) fn resting(&self) -> Option<Time> {
        self.life.resting()
    }

    /// Returns the last prompt, if the agent has not finished it.
    pub(crate) fn unfinished(&self) -> Option<PromptId> {
        self.turns.unfinished
    }

    /// Returns true while more may be read from the agent; otherwise its output stays in its pipe.
    pub(crate) fn may_read(&self) -> bool {
        self.outbox.in_flight.len() < MAX_IN_FLIGHT
            && self.requests.len() < MAX_OPEN
            && self.has_host_call_capacity()
    }

    /// Returns the mode of the stop that is under way, if any.
    pub(crate) fn stopping(&self) -> Option<StopMode> {
        self.life.stopping()
    }

    /// Returns the time at which the next clearance expires.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.requests.next_expiry()
    }

    /// Returns the messages up to this number whose arrival is not known.
    pub(crate) fn under_way(&self, up_to: u64) -> impl Iterator<Item = u64> {
        self.outbox.in_flight.range(..=up_to).map(|(n, _)| *n).collect::<Vec<_>>().into_iter()
    }

    /// Returns true if a snapshot is due, and clears that.
    pub(crate) fn take_dirty(&mut self) -> bool {
        let Self { spec, life, turns, requests, outbox, agent, oversight, host_calls, failures } = self;
        [
            spec.take_changed(),
            life.take_changed(),
            turns.take_changed(),
            requests.take_changed(),
            outbox.take_changed(),
            agent.take_changed(),
            oversight.take_changed(),
            host_calls.take_changed(),
            failures.take_changed(),
        ]
        .contains(&true)
    }

    /// Sends a message under the next number.
    fn send(&mut self, message: AgentCommand, kind: OutboundKind, out: &mut EffectSink<'_, '_>) {
        let n = self.outbox.send(kind);
        out.effects.push(StepEffect::Send { n, message });
    }
}
