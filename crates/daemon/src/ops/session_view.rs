//! Sessions and clearances as callers see them. Absent values are `null`; times are RFC 3339.

use intercom_host::{ObservedProcess, ProcessObserver};
use intercom_redact::{RedactedText, redact};
use intercom_store::RowPage;
use intercom_types::action::action;
use intercom_types::text::short;
use intercom_types::{
    AgentInfo, AgentStanding, Clearance, Controls, List, PendingRequests, Phase, Role, RunningTool, Session,
    SessionExit, SessionFailure, SessionProcess, SessionRecord, SessionTurn, Situation, Time, Turn, Usage,
    UsageTotals,
};

pub(super) fn list<D, T>(page: RowPage<D>, view: impl Fn(D) -> T) -> List<T> {
    let next = page.next.map(|key| key.to_string());
    List { items: page.items.into_iter().map(view).collect(), next }
}

#[expect(clippy::cast_precision_loss, reason = "only a process that runs for ages exceeds the precision")]
fn process(seen: ObservedProcess) -> SessionProcess {
    let ObservedProcess { pid, parent, name, state, cpu_millis, memory_bytes } = seen;
    SessionProcess { pid, parent, name, state, cpu_seconds: cpu_millis as f64 / 1000.0, memory_bytes }
}

/// Returns a session, with the resource usage of its process if it has one.
pub(super) fn session(record: SessionRecord, live: Option<&ProcessObserver>) -> Session {
    let processes = live.map(ProcessObserver::processes).unwrap_or_default();
    let processes = Some(processes.into_iter().map(process).collect());
    Session { processes, ..session_in_list(record, live) }
}

/// Returns the same as [`session_in_list`], without long fields.
pub(super) fn session_in_brief(record: SessionRecord) -> Session {
    Session { stderr_tail: String::new(), controls: None, ..session_in_list(record, None) }
}

/// Returns the same as [`session`], without fields that take time to determine.
pub(super) fn session_in_list(record: SessionRecord, live: Option<&ProcessObserver>) -> Session {
    // A process that is recorded as ended may be visible for another moment.
    let live = live.filter(|_| record.phase.is_live());
    let now = Time::now();
    let (why, standing) = (why(&record, now), standing(&record, now));
    let (controls, spent) = (controls(&record.agent_info), spent(&record.agent_info));
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
    let AgentInfo { title, first_prompt, takes, steps, .. } = record.agent_info;
    Session {
        id: record.id,
        title: title.or_else(|| record.name.clone()).or_else(|| first_prompt.clone()),
        first_prompt,
        name: record.name,
        agent: record.agent,
        protocol: record.protocol,
        workspace: record.workspace.display().to_string(),
        phase: record.phase.into(),
        since: record.watch_state.phase_since,
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
        stderr_tail: live.map_or(record.stderr_tail, ProcessObserver::stderr_tail),
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

/// Returns a clearance as this caller may see it: secrets are hidden from viewers, and the card says so.
pub(super) fn clearance_for(role: Role, clearance: Clearance) -> Clearance {
    let mut view = with_action(clearance);
    if role > Role::Viewer {
        return view;
    }
    let mut hidden: Vec<&'static str> = Vec::new();
    let mut hide = |text: &mut String| {
        let RedactedText { text: without, hidden: found } = redact(text);
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

/// Adds the action, which is not stored.
pub(super) fn with_action(clearance: Clearance) -> Clearance {
    Clearance { action: action((&clearance).into()), ..clearance }
}

fn controls(info: &AgentInfo) -> Option<Controls> {
    (info.controls != Controls::default()).then(|| info.controls.clone())
}

fn spent(info: &AgentInfo) -> Option<Usage> {
    let spent = &info.spent;
    let UsageTotals { turns, input_tokens, output_tokens, total_tokens, cost_micros, .. } = *spent;
    #[expect(clippy::cast_precision_loss, reason = "nobody spends that much")]
    let cost = cost_micros as f64 / 1e6;
    let (currency, capped) = (spent.currency.clone(), info.capped.clone());
    let usage = Usage { turns, input_tokens, output_tokens, total_tokens, cost, currency, capped };
    (*spent != UsageTotals::default()).then_some(usage)
}

/// Returns the agent's standing; `None` if there is nothing to watch.
fn standing(record: &SessionRecord, now: Time) -> Option<AgentStanding> {
    let watched = &record.watch_state;
    let by_phase = match record.phase {
        Phase::Working => Some(Situation::Working),
        Phase::Waiting => Some(Situation::WaitingForYou),
        Phase::Idle => Some(Situation::Idle),
        Phase::Created | Phase::Starting | Phase::Stopping => None,
        Phase::Parked | Phase::Ended => return None,
    };
    let standing = watched.standing.as_ref();
    let running = standing.and_then(|standing| standing.running.clone());
    Some(AgentStanding {
        state: standing.map(|standing| standing.state).or(by_phase).map(Into::into),
        since: standing.map(|standing| standing.since),
        running: running.map(|running| RunningTool { name: running.name, since: running.since }),
        done: standing.and_then(|standing| standing.done.clone()),
        until: standing.and_then(|standing| standing.until),
        ladder: watched.ladder.to_string(),
        snoozed_until: watched.snoozed_until.filter(|until| *until > now),
    })
}

/// Returns the reason of the phase, or the agent's condition if that says more.
fn why(record: &SessionRecord, now: Time) -> String {
    let standing = record.watch_state.standing.as_ref();
    let standing = standing.filter(|_| matches!(record.phase, Phase::Working | Phase::Idle));
    standing.map_or_else(|| record.why.clone(), |standing| standing.sentence(now))
}
