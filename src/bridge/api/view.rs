//! How things look over the API. Absent values are `null`; times are RFC 3339.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::set::{self, ControlsView, SpentView};
use super::watch::{self, StandingView};
use crate::action::action;
use crate::domain::{
    AuditRow, Clearance, EventKind, List, LoggedEvent, Phase, Role, SessionRecord, Step, Takes, Time, Token,
};
use crate::host::{Observer, Seen};
use crate::redact::{Redacted, redact};
use crate::store::Page;
use crate::summary::Tone;
use crate::text::{cut, short};

fn stamp(time: Option<Time>) -> Option<String> {
    time.map(|time| time.to_string())
}

pub(super) fn list<D, T>(page: Page<D>, view: impl Fn(D) -> T) -> List<T> {
    let next = page.next.map(|key| key.to_string());
    List { items: page.items.into_iter().map(view).collect(), next }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SessionView {
    id: String,
    name: Option<String>,
    /// What its agent calls it, else its name, else the beginning of what it was asked first.
    title: Option<String>,
    /// The beginning of what it was asked first.
    first_prompt: Option<String>,
    agent: Option<String>,
    protocol: String,
    workspace: String,
    phase: &'static str,
    /// Since when; `null` if a daemon that did not write it down left it so.
    since: Option<String>,
    why: String,
    /// It has no process yet: its first prompt starts it.
    deferred: bool,
    /// What it may do at most: `full`, `read-only`, `safe` or `sandbox`.
    preset: &'static str,
    pid: Option<i32>,
    generation: u32,
    turn: Option<TurnView>,
    pending: Pending,
    queue: u32,
    stderr_tail: String,
    /// Who belongs to it now; `null` in lists.
    processes: Option<Vec<ProcessView>>,
    created_at: String,
    started_at: Option<String>,
    ended_at: Option<String>,
    /// The time of its newest event.
    updated_at: Option<String>,
    exit: Option<ExitView>,
    /// Its last failure, until an operator has seen it or a turn succeeds; `null` otherwise.
    failed: Option<FailedView>,
    /// Why policy cannot be shown to bind its agent; `null` while it can.
    unenforced: Option<String>,
    /// How its agent stands; `null` without one that runs.
    standing: Option<StandingView>,
    /// What can be set of its agent, and what is; `null` where nothing can.
    controls: Option<ControlsView>,
    /// What its agent takes in a prompt besides words and links; `null` where it does not tell.
    prompt_capabilities: Option<TakesView>,
    /// What it has used, by its agent's own word; `null` if that says nothing.
    spent: Option<SpentView>,
    /// What it means to do and how far it has come, by its agent's own word.
    progress: Vec<StepView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct StepView {
    text: String,
    /// `pending`, `in_progress` or `completed`, or what the agent says instead.
    status: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TakesView {
    image: bool,
    audio: bool,
    embedded_context: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TurnView {
    id: String,
    started_at: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Pending {
    clearances: u32,
    questions: u32,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ExitView {
    code: Option<i32>,
    signal: Option<i32>,
    reason: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FailedView {
    /// `turn`, `log_in`, `start` or `exit`.
    kind: &'static str,
    reason: String,
    at: String,
    /// What to do about it now.
    hint: String,
    /// What to do once somebody has logged in; `null` where no log-in is missing.
    after_log_in: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
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

/// As [`session_in_list`], without what may be long.
pub(super) fn session_in_brief(record: SessionRecord) -> SessionView {
    SessionView { stderr_tail: String::new(), controls: None, ..session_in_list(record, None) }
}

/// As [`session`], without what takes a while to find out.
pub(super) fn session_in_list(record: SessionRecord, live: Option<&Observer>) -> SessionView {
    // What was kept on disk goes a moment before the one who looks at it.
    let live = live.filter(|_| record.phase.is_live());
    let now = Time::now();
    let (why, standing) = (watch::why(&record, now), watch::standing(&record, now));
    let (controls, spent) = (set::controls(&record.told), set::spent(&record.told));
    let label = record.name.clone().unwrap_or_else(|| short(&record.id.to_string()));
    let failed = record.failed.map(|failed| FailedView {
        hint: failed.hint(record.phase, &label, record.queue),
        after_log_in: failed.after_log_in(record.phase, &label, record.queue),
        kind: failed.kind.as_str(),
        reason: failed.reason,
        at: failed.at.to_string(),
    });
    let exit = record.end_reason.map(|reason| {
        let exit = record.exit.unwrap_or_default();
        ExitView { code: exit.code, signal: exit.signal, reason: Some(reason) }
    });
    SessionView {
        id: record.id.to_string(),
        title: record.told.title.or_else(|| record.name.clone()).or_else(|| record.told.first_prompt.clone()),
        first_prompt: record.told.first_prompt,
        name: record.name,
        agent: record.agent,
        protocol: record.protocol,
        workspace: record.workspace.display().to_string(),
        phase: record.phase.as_str(),
        since: stamp(record.watched.phase_since),
        deferred: record.phase == Phase::Created,
        preset: record.preset.as_str(),
        why,
        standing,
        controls,
        prompt_capabilities: record.told.takes.map(|takes| {
            let Takes { image, audio, embedded_context } = takes;
            TakesView { image, audio, embedded_context }
        }),
        spent,
        progress: record
            .told
            .steps
            .into_iter()
            .map(|Step { text, status }| StepView { text, status })
            .collect(),
        pid: record.pid,
        generation: record.generation,
        turn: record
            .turn
            .map(|turn| TurnView { id: turn.id.to_string(), started_at: turn.started_at.to_string() }),
        pending: Pending { clearances: record.pending_clearances, questions: record.pending_questions },
        queue: record.queue,
        stderr_tail: live.map_or(record.stderr_tail, Observer::stderr_tail),
        processes: None,
        created_at: record.created_at.to_string(),
        started_at: stamp(record.started_at),
        ended_at: stamp(record.ended_at),
        updated_at: stamp(record.updated_at),
        exit,
        failed,
        unenforced: record.unenforced,
    }
}

/// As this caller may see it: what looks like a secret is hidden from viewers, and the card says so.
pub(super) fn clearance_for(role: Role, clearance: Clearance) -> Clearance {
    let mut view = with_action(clearance);
    if role > Role::Viewer {
        return view;
    }
    let mut hidden: Vec<&'static str> = Vec::new();
    let mut hide = |text: &mut String| {
        let Redacted { text: without, hidden: found } = redact(text);
        hidden.extend(found.iter().filter(|sort| !hidden.contains(sort)).copied().collect::<Vec<_>>());
        if let std::borrow::Cow::Owned(without) = without {
            *text = without;
        }
    };
    hide(&mut view.title);
    let texts =
        [&mut view.description, &mut view.diff, &mut view.file_path, &mut view.command, &mut view.reason];
    texts.into_iter().flatten().for_each(&mut hide);
    view.hidden = hidden.into_iter().map(str::to_owned).collect();
    view
}

/// The clearance with its action, which is not stored.
pub(super) fn with_action(clearance: Clearance) -> Clearance {
    Clearance { action: action((&clearance).into()), ..clearance }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EventView {
    seq: u64,
    session: String,
    at: String,
    kind: String,
    #[schemars(with = "serde_json::Value")]
    data: crate::domain::Json,
    /// The event in English. Words of an agent begin with a mark such as `agent> `; times are RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tone: Option<Tone>,
}

/// Columns of a summary: an agent's line may have megabytes, which the data has already.
const MAX_SUMMARY: usize = 1000;

/// The events that are given with their summaries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Summaries {
    #[default]
    True,
    False,
    /// Those about which intercom speaks; an agent's own words are in the data.
    Own,
}

/// A page of the log, oldest first.
// Written as it is: by way of a `Value`, what an agent said would not stay as it was.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EventPage {
    pub(super) items: Vec<EventView>,
    pub(super) next: Option<u64>,
}

pub(super) fn event(event: LoggedEvent, summaries: Summaries) -> EventView {
    let summary = match summaries {
        Summaries::True => Some(event.event().summary(|time| time.to_string())),
        Summaries::Own if event.known_kind().is_some_and(EventKind::is_said_by_agent) => None,
        Summaries::Own => Some(event.event().summary(|time| time.to_string())),
        Summaries::False => None,
    };
    EventView {
        tone: summary.as_ref().map(|summary| summary.tone),
        summary: summary.map(|summary| cut(&summary.sentence(), MAX_SUMMARY)),
        seq: event.seq,
        session: event.session.to_string(),
        at: event.at.to_string(),
        kind: event.kind,
        data: event.data,
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TokenView {
    id: String,
    name: String,
    role: String,
    created_by: String,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    last_used_at: Option<String>,
    last_used_from: Option<String>,
    /// Whether it lets anybody in now.
    valid: bool,
}

pub(super) fn token(t: Token) -> TokenView {
    TokenView {
        valid: t.is_valid(Time::now()),
        id: t.id.to_string(),
        name: t.name,
        role: t.role.as_str().to_owned(),
        created_by: t.created_by,
        created_at: t.created_at.to_string(),
        expires_at: stamp(t.expires_at),
        revoked_at: stamp(t.revoked_at),
        last_used_at: stamp(t.last_used_at),
        last_used_from: t.last_used_from,
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AuditView {
    n: u64,
    at: String,
    action: String,
    by: String,
    /// `person`, `rule`, `agent`, `intercom` or `nobody`.
    actor: &'static str,
    session: Option<String>,
    #[schemars(with = "serde_json::Value")]
    data: crate::domain::Json,
    hash: String,
}

pub(super) fn audit(row: AuditRow) -> AuditView {
    AuditView {
        actor: row.actor().as_str(),
        n: row.n,
        at: row.at.to_string(),
        action: row.action,
        by: row.by,
        session: row.session,
        data: row.data,
        hash: row.hash,
    }
}
