//! Snapshots as they are stored: those of this release in parts, those of earlier ones flat.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;

use super::errands::Errands;
use super::facts::AgentFacts;
use super::failure::Failures;
use super::interrupt::Interrupts;
use super::life::{SessionLife, Stage};
use super::outbox::{Carries, MessageOutbox};
use super::requests::{DecisionTerms, OpenClearance, RequestTable, Subject};
use super::tracked::Tracked;
use super::turn::{Queued, TurnState};
use super::watch::Oversight;
use super::{About, State};
use crate::domain::{
    Choice, ClearanceId, Exit, Json, PromptId, QuestionId, RequestId, Standing, Time, Told, Turn,
};
use crate::session::stall::Watch;

/// Either layout. Which one it is, its first field tells: `spec`, or `about`.
#[derive(Debug, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the flat layout has them")]
pub(super) struct StoredState {
    spec: Option<Tracked<About>>,
    life: Option<Tracked<SessionLife>>,
    turns: Option<Tracked<TurnState>>,
    requests: Option<Tracked<RequestTable>>,
    outbox: Option<Tracked<MessageOutbox>>,
    agent: Option<Tracked<AgentFacts>>,
    oversight: Option<Tracked<Oversight>>,
    #[serde(default)]
    errands: Tracked<Errands>,
    #[serde(default)]
    failures: Tracked<Failures>,
    // The flat layout. Later releases of it added fields, hence the defaults.
    about: Option<About>,
    stage: Option<Stage>,
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
    subjects: BTreeMap<ClearanceId, Subject>,
    #[serde(default)]
    questions: BTreeMap<QuestionId, RequestId>,
    #[serde(default)]
    queue: VecDeque<Queued>,
    next_n: Option<u64>,
    #[serde(default)]
    in_flight: BTreeMap<u64, Carries>,
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
    interrupts: Interrupts,
    #[serde(default)]
    told: Told,
    driver: Option<Json>,
    #[serde(default)]
    watch: Watch,
    standing: Option<Standing>,
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

/// A part that every snapshot of its layout has.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot has no `{0}`")]
pub(super) struct MissingPart(&'static str);

fn part<T>(part: Option<T>, name: &'static str) -> Result<T, MissingPart> {
    part.ok_or(MissingPart(name))
}

impl TryFrom<StoredState> for State {
    type Error = MissingPart;

    fn try_from(mut stored: StoredState) -> Result<Self, MissingPart> {
        match stored.about.take() {
            Some(about) => stored.into_parts(about),
            None => Ok(Self {
                spec: part(stored.spec, "spec")?,
                life: part(stored.life, "life")?,
                turns: part(stored.turns, "turns")?,
                requests: part(stored.requests, "requests")?,
                outbox: part(stored.outbox, "outbox")?,
                agent: part(stored.agent, "agent")?,
                oversight: part(stored.oversight, "oversight")?,
                errands: stored.errands,
                failures: stored.failures,
            }),
        }
    }
}

impl StoredState {
    /// What was kept beside an open clearance, under the same id, becomes a part of it.
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

    fn into_parts(mut self, about: About) -> Result<State, MissingPart> {
        let clearances = self.open_clearances();
        let requests = RequestTable {
            clearances,
            questions: self.questions,
            decided: self.decided,
            asked: self.asked,
            unenforced: self.unenforced,
        };
        let life = SessionLife {
            stage: part(self.stage, "stage")?,
            generation: part(self.generation, "generation")?,
            pid: self.pid,
            started_at: self.started_at,
            stderr_tail: self.stderr_tail,
            exit: self.exit,
            ready_by: self.ready_by,
            restarts: self.restarts,
            deferred: self.deferred,
            orphan: self.orphan,
            phase_since: self.phase_since,
            left_at: self.left_at,
        };
        let turns = TurnState {
            turn: self.turn,
            cancelled_by: self.cancelled_by,
            interrupts: self.interrupts,
            spoke: self.spoke,
            queue: self.queue,
            unfinished: self.unfinished,
        };
        let outbox = MessageOutbox { next_n: part(self.next_n, "next_n")?, in_flight: self.in_flight };
        let agent = AgentFacts {
            told: self.told,
            driver: self.driver,
            steers: self.steers,
            lists: self.lists,
            sets: self.sets,
        };
        let oversight = Oversight { tracker: self.watch, condition: self.standing };
        Ok(State {
            spec: Tracked::new(about),
            life: Tracked::new(life),
            turns: Tracked::new(turns),
            requests: Tracked::new(requests),
            outbox: Tracked::new(outbox),
            agent: Tracked::new(agent),
            oversight: Tracked::new(oversight),
            errands: self.errands,
            failures: self.failures,
        })
    }
}
