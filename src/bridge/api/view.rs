//! How things look over the API. Absent values are `null`; times are RFC 3339.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{set, watch};
use crate::action::action;
use crate::domain::{
    AuditRow, Clearance, EventKind, List, LoggedEvent, PendingRequests, Phase, Role, Session, SessionExit,
    SessionFailure, SessionProcess, SessionRecord, SessionTurn, Time, Token, Told, Turn,
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

#[expect(clippy::cast_precision_loss, reason = "a process would have to run for ages")]
fn process(seen: Seen) -> SessionProcess {
    let Seen { pid, parent, name, state, cpu_millis, memory_bytes } = seen;
    SessionProcess { pid, parent, name, state, cpu_seconds: cpu_millis as f64 / 1000.0, memory_bytes }
}

/// A session, with a look at its process where it has one.
pub(super) fn session(record: SessionRecord, live: Option<&Observer>) -> Session {
    let processes = live.map(Observer::processes).unwrap_or_default();
    let processes = Some(processes.into_iter().map(process).collect());
    Session { processes, ..session_in_list(record, live) }
}

/// As [`session_in_list`], without what may be long.
pub(super) fn session_in_brief(record: SessionRecord) -> Session {
    Session { stderr_tail: String::new(), controls: None, ..session_in_list(record, None) }
}

/// As [`session`], without what takes a while to find out.
pub(super) fn session_in_list(record: SessionRecord, live: Option<&Observer>) -> Session {
    // What was kept on disk goes a moment before the one who looks at it.
    let live = live.filter(|_| record.phase.is_live());
    let now = Time::now();
    let (why, standing) = (watch::why(&record, now), watch::standing(&record, now));
    let (controls, spent) = (set::controls(&record.told), set::spent(&record.told));
    let label = record.name.clone().unwrap_or_else(|| short(&record.id.to_string()));
    let failed = record.failed.map(|failed| SessionFailure {
        hint: Some(failed.hint(record.phase, &label, record.queue)),
        after_log_in: failed.after_log_in(record.phase, &label, record.queue),
        kind: failed.kind.into(),
        reason: failed.reason,
        at: failed.at,
    });
    let status = record.exit.unwrap_or_default();
    let exit = record.end_reason.map(|reason| SessionExit { status, reason: Some(reason) });
    let Told { title, first_prompt, takes, steps, .. } = record.told;
    Session {
        id: record.id,
        title: title.or_else(|| record.name.clone()).or_else(|| first_prompt.clone()),
        first_prompt,
        name: record.name,
        agent: record.agent,
        protocol: record.protocol,
        workspace: record.workspace.display().to_string(),
        phase: record.phase.into(),
        since: record.watched.phase_since,
        deferred: record.phase == Phase::Created,
        preset: record.preset.into(),
        why,
        standing,
        controls,
        prompt_capabilities: takes,
        spent,
        progress: steps,
        pid: record.pid,
        generation: record.generation,
        turn: record.turn.map(|Turn { id, started_at }| SessionTurn { id, started_at }),
        pending: PendingRequests {
            clearances: record.pending_clearances as usize,
            questions: record.pending_questions as usize,
        },
        queue: record.queue as usize,
        stderr_tail: live.map_or(record.stderr_tail, Observer::stderr_tail),
        processes: None,
        created_at: Some(record.created_at),
        started_at: record.started_at,
        ended_at: record.ended_at,
        updated_at: record.updated_at,
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
