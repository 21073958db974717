//! How things look over the API. Absent values are `null`; times are RFC 3339.

use serde::{Serialize, Serializer};

use crate::domain::{Choice, Clearance, Event, Prompt, PromptState, Question, SessionRecord, Time};
use crate::host::{Observer, Seen};
use crate::store::Page;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn time<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

#[expect(clippy::ref_option, reason = "the form that serde asks for")]
fn maybe_time<S: Serializer>(time: &Option<Time>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(time),
        None => serializer.serialize_none(),
    }
}

/// One page of a list.
#[derive(Debug, Serialize)]
pub(super) struct List<T> {
    items: Vec<T>,
    next: Option<String>,
}

impl<T> List<T> {
    pub(super) fn of<D>(page: Page<D>, view: impl Fn(D) -> T) -> Self {
        let next = page.next.map(|key| key.to_string());
        Self { items: page.items.into_iter().map(view).collect(), next }
    }

    pub(super) fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SessionView {
    id: String,
    name: Option<String>,
    agent: Option<String>,
    protocol: String,
    workspace: String,
    phase: &'static str,
    why: String,
    pid: Option<i32>,
    generation: u32,
    turn: Option<TurnView>,
    pending: Pending,
    queue: u32,
    stderr_tail: String,
    /// Who belongs to it now; `null` in lists.
    processes: Option<Vec<ProcessView>>,
    #[serde(serialize_with = "time")]
    created_at: Time,
    #[serde(serialize_with = "maybe_time")]
    started_at: Option<Time>,
    #[serde(serialize_with = "maybe_time")]
    ended_at: Option<Time>,
    exit: Option<ExitView>,
}

#[derive(Debug, Serialize)]
struct TurnView {
    id: String,
    #[serde(serialize_with = "time")]
    started_at: Time,
}

#[derive(Debug, Serialize)]
struct Pending {
    clearances: u32,
    questions: u32,
}

#[derive(Debug, Serialize)]
struct ExitView {
    code: Option<i32>,
    signal: Option<i32>,
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct ProcessView {
    pid: i32,
    parent: i32,
    name: String,
    state: char,
    cpu_seconds: f64,
    memory_bytes: u64,
}

#[expect(clippy::cast_precision_loss, reason = "a process would have to run for ages")]
fn process(seen: Seen) -> ProcessView {
    let Seen { pid, parent, name, state, cpu_millis, memory_bytes } = seen;
    ProcessView { pid, parent, name, state, cpu_seconds: cpu_millis as f64 / 1000.0, memory_bytes }
}

/// A session, with a look at its process where it has one.
pub(super) fn session(record: SessionRecord, live: Option<&Observer>) -> SessionView {
    let processes = live.map(Observer::processes).unwrap_or_default();
    let processes = Some(processes.into_iter().map(process).collect());
    SessionView { processes, ..session_in_list(record, live) }
}

/// As [`session`], without what takes a while to find out.
pub(super) fn session_in_list(record: SessionRecord, live: Option<&Observer>) -> SessionView {
    // What was kept on disk goes a moment before the one who looks at it.
    let live = live.filter(|_| record.phase.is_live());
    let exit = record.end_reason.map(|reason| {
        let exit = record.exit.unwrap_or_default();
        ExitView { code: exit.code, signal: exit.signal, reason: Some(reason) }
    });
    SessionView {
        id: record.id.to_string(),
        name: record.name,
        agent: record.agent,
        protocol: record.protocol,
        workspace: record.workspace.display().to_string(),
        phase: record.phase.as_str(),
        why: record.why,
        pid: record.pid,
        generation: record.generation,
        turn: record.turn.map(|turn| TurnView { id: turn.id.to_string(), started_at: turn.started_at }),
        pending: Pending { clearances: record.pending_clearances, questions: record.pending_questions },
        queue: record.queue,
        stderr_tail: live.map_or(record.stderr_tail, Observer::stderr_tail),
        processes: None,
        created_at: record.created_at,
        started_at: record.started_at,
        ended_at: record.ended_at,
        exit,
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ClearanceView {
    id: String,
    session: String,
    title: String,
    description: Option<String>,
    diff: Option<String>,
    file_path: Option<String>,
    risk: &'static str,
    claimed_risk: Option<String>,
    options: Vec<Choice>,
    status: &'static str,
    delivery: &'static str,
    delivery_cause: Option<String>,
    #[serde(serialize_with = "time")]
    requested_at: Time,
    decided_by: Option<String>,
    #[serde(serialize_with = "maybe_time")]
    decided_at: Option<Time>,
    reason: Option<String>,
    option: Option<String>,
    #[serde(serialize_with = "maybe_time")]
    delivered_at: Option<Time>,
    outcome: Option<String>,
}

pub(super) fn clearance(c: Clearance) -> ClearanceView {
    ClearanceView {
        id: c.id.to_string(),
        session: c.session.to_string(),
        title: c.title,
        description: c.description,
        diff: c.diff,
        file_path: c.file_path,
        risk: c.risk.as_str(),
        claimed_risk: c.claimed_risk,
        options: c.options,
        status: c.status.as_str(),
        delivery: c.delivery.as_str(),
        delivery_cause: c.delivery.cause().map(str::to_owned),
        requested_at: c.requested_at,
        decided_by: c.decided_by,
        decided_at: c.decided_at,
        reason: c.reason,
        option: c.option,
        delivered_at: c.delivered_at,
        outcome: c.outcome,
    }
}

#[derive(Debug, Serialize)]
pub(super) struct QuestionView {
    id: String,
    session: String,
    text: String,
    r#type: Option<String>,
    status: &'static str,
    decision: Option<&'static str>,
    instruction: Option<String>,
    #[serde(serialize_with = "time")]
    asked_at: Time,
    answered_by: Option<String>,
    #[serde(serialize_with = "maybe_time")]
    answered_at: Option<Time>,
    reason: Option<String>,
    delivery: &'static str,
    delivery_cause: Option<String>,
    #[serde(serialize_with = "maybe_time")]
    delivered_at: Option<Time>,
}

pub(super) fn question(q: Question) -> QuestionView {
    QuestionView {
        id: q.id.to_string(),
        session: q.session.to_string(),
        text: q.text,
        r#type: q.sort,
        status: q.status.as_str(),
        decision: q.decision.map(crate::domain::Answer::as_str),
        instruction: q.instruction,
        asked_at: q.asked_at,
        answered_by: q.answered_by,
        answered_at: q.answered_at,
        reason: q.reason,
        delivery: q.delivery.as_str(),
        delivery_cause: q.delivery.cause().map(str::to_owned),
        delivered_at: q.delivered_at,
    }
}

#[derive(Debug, Serialize)]
pub(super) struct PromptView {
    id: String,
    session: String,
    text: String,
    state: &'static str,
    error: Option<String>,
    by: String,
    #[serde(serialize_with = "time")]
    at: Time,
    #[serde(serialize_with = "maybe_time")]
    delivered_at: Option<Time>,
}

pub(super) fn prompt(p: Prompt) -> PromptView {
    // To a caller, what is not in the agent's pipe yet is queued; whether it can be taken back, DELETE tells.
    let state = if p.state == PromptState::Sending { PromptState::Queued.as_str() } else { p.state.as_str() };
    PromptView {
        id: p.id.to_string(),
        session: p.session.to_string(),
        text: p.text,
        state,
        error: p.state.cause().map(str::to_owned),
        by: p.by,
        at: p.at,
        delivered_at: p.delivered_at,
    }
}

#[derive(Debug, Serialize)]
pub(super) struct EventView {
    seq: u64,
    session: String,
    #[serde(serialize_with = "time")]
    at: Time,
    kind: String,
    data: crate::domain::Json,
}

/// Written as it is: by way of a `Value`, what an agent said would not stay as it was.
#[derive(Debug, Serialize)]
pub(super) struct EventPage {
    pub(super) items: Vec<EventView>,
    pub(super) next: Option<u64>,
}

pub(super) fn event(event: Event) -> EventView {
    EventView {
        seq: event.seq,
        session: event.session.to_string(),
        at: event.at,
        kind: event.kind,
        data: event.data,
    }
}
