//! Stored snapshots: in parts since this release, flat in earlier ones.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;

use super::facts::AgentFacts;
use super::failure::FailureState;
use super::host_calls::HostCalls;
use super::interrupt::PendingInterrupts;
use super::life::{LifeStage, SessionLife};
use super::outbox::{MessageOutbox, OutboundKind};
use super::requests::{DecisionTerms, OpenClearance, RequestSubject, RequestTable};
use super::tracked::Tracked;
use super::turn::{QueuedPrompt, TurnState};
use super::watch::AgentOversight;
use super::{SessionSpec, SessionState};
use crate::session::stall::ActivityTracker;
use intercom_types::{
    AgentCondition, AgentInfo, Choice, ClearanceId, Exit, Json, PromptId, QuestionId, RequestId, Time, Turn,
};

/// A snapshot of either layout, which its first field tells: `spec`, or `about`.
#[derive(Debug, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the flat layout has them")]
pub(super) struct StoredState {
    spec: Option<Tracked<SessionSpec>>,
    life: Option<Tracked<SessionLife>>,
    turns: Option<Tracked<TurnState>>,
    requests: Option<Tracked<RequestTable>>,
    outbox: Option<Tracked<MessageOutbox>>,
    agent: Option<Tracked<AgentFacts>>,
    oversight: Option<Tracked<AgentOversight>>,
    #[serde(default, rename = "errands")]
    host_calls: Tracked<HostCalls>,
    #[serde(default)]
    failures: Tracked<FailureState>,
    // The flat layout. Later releases of it added fields, hence the defaults.
    about: Option<SessionSpec>,
    stage: Option<LifeStage>,
    generation: Option<u32>,
    pid: Option<i32>,
    turn: Option<Turn>,
    #[serde(default)]
    spoke: bool,
    #[serde(default)]
    clearances: BTreeMap<ClearanceId, RequestId>,
    #[serde(default)]
    terms: BTreeMap<ClearanceId, DecisionTerms>,
    #[serde(default)]
    choices: BTreeMap<ClearanceId, Vec<Choice>>,
    #[serde(default)]
    subjects: BTreeMap<ClearanceId, RequestSubject>,
    #[serde(default)]
    questions: BTreeMap<QuestionId, RequestId>,
    #[serde(default)]
    queue: VecDeque<QueuedPrompt>,
    next_n: Option<u64>,
    #[serde(default)]
    in_flight: BTreeMap<u64, OutboundKind>,
    started_at: Option<Time>,
    #[serde(default)]
    stderr_tail: String,
    exit: Option<Exit>,
    #[serde(default)]
    decided: VecDeque<(RequestId, ClearanceId)>,
    #[serde(default)]
    asked: bool,
    unenforced: Option<String>,
    #[serde(default)]
    steers: bool,
    #[serde(default)]
    lists: bool,
    #[serde(default)]
    sets: u64,
    ready_by: Option<Time>,
    cancelled_by: Option<Time>,
    #[serde(default)]
    interrupts: PendingInterrupts,
    #[serde(default)]
    told: AgentInfo,
    driver: Option<Json>,
    #[serde(default)]
    watch: ActivityTracker,
    standing: Option<AgentCondition>,
    #[serde(default)]
    restarts: VecDeque<Time>,
    unfinished: Option<PromptId>,
    phase_since: Option<Time>,
    left_at: Option<Time>,
    #[serde(default)]
    deferred: bool,
    #[serde(default)]
    orphan: bool,
}

/// The error for a snapshot without one of its parts.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot has no `{0}`")]
pub(super) struct MissingPart(&'static str);

fn part<T>(part: Option<T>, name: &'static str) -> Result<T, MissingPart> {
    part.ok_or(MissingPart(name))
}

impl TryFrom<StoredState> for SessionState {
    type Error = MissingPart;

    fn try_from(mut stored: StoredState) -> Result<Self, MissingPart> {
        match stored.about.take() {
            Some(spec) => stored.into_parts(spec),
            None => Ok(Self {
                spec: part(stored.spec, "spec")?,
                life: part(stored.life, "life")?,
                turns: part(stored.turns, "turns")?,
                requests: part(stored.requests, "requests")?,
                outbox: part(stored.outbox, "outbox")?,
                agent: part(stored.agent, "agent")?,
                oversight: part(stored.oversight, "oversight")?,
                host_calls: stored.host_calls,
                failures: stored.failures,
            }),
        }
    }
}

impl StoredState {
    /// Takes the open clearances, each joined with the data that is stored beside it under the same id.
    fn open_clearances(&mut self) -> BTreeMap<ClearanceId, OpenClearance> {
        let clearances = std::mem::take(&mut self.clearances);
        let open = |(id, request)| {
            let open = OpenClearance {
                request,
                terms: self.terms.remove(&id).unwrap_or_default(),
                choices: self.choices.remove(&id).unwrap_or_default(),
                subject: self.subjects.remove(&id).unwrap_or_default(),
            };
            (id, open)
        };
        clearances.into_iter().map(open).collect()
    }

    fn into_parts(mut self, spec: SessionSpec) -> Result<SessionState, MissingPart> {
        let clearances = self.open_clearances();
        let requests = RequestTable {
            clearances,
            questions: self.questions,
            decided: self.decided,
            has_asked: self.asked,
            unenforced: self.unenforced,
        };
        let life = SessionLife {
            stage: part(self.stage, "stage")?,
            generation: part(self.generation, "generation")?,
            pid: self.pid,
            started_at: self.started_at,
            stderr_tail: self.stderr_tail,
            exit: self.exit,
            ready_deadline: self.ready_by,
            restarts: self.restarts,
            deferred: self.deferred,
            orphan: self.orphan,
            phase_since: self.phase_since,
            left_at: self.left_at,
        };
        let turns = TurnState {
            turn: self.turn,
            cancel_deadline: self.cancelled_by,
            interrupts: self.interrupts,
            has_spoken: self.spoke,
            queue: self.queue,
            unfinished: self.unfinished,
        };
        let outbox = MessageOutbox { next_n: part(self.next_n, "next_n")?, in_flight: self.in_flight };
        let agent = AgentFacts {
            info: self.told,
            driver: self.driver,
            supports_steering: self.steers,
            supports_session_list: self.lists,
            settings_sent: self.sets,
        };
        let oversight = AgentOversight { tracker: self.watch, condition: self.standing };
        Ok(SessionState {
            spec: Tracked::new(spec),
            life: Tracked::new(life),
            turns: Tracked::new(turns),
            requests: Tracked::new(requests),
            outbox: Tracked::new(outbox),
            agent: Tracked::new(agent),
            oversight: Tracked::new(oversight),
            host_calls: self.host_calls,
            failures: self.failures,
        })
    }
}
