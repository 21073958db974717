//! `intercom wait`: waits on the event stream, without polling.

use std::time::Duration;

use clap::ValueEnum;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use super::client::DaemonAnswer;
use super::failure::{CliFailure, DaemonRefusal};
use super::stream::{DaemonEventStream, DaemonStreamItem};
use super::time::parse_duration;
use super::url::url;
use super::{CliContext, client::DaemonClient, ctrl_c, lost_daemon, output};
use intercom_types::text::clean;
use intercom_types::{Event, EventKind, Health, Phase, ReceivedEvent, Session};

/// Wait until a session is idle, has a pending request, or has ended
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A new agent has two seconds to begin by itself before it counts as idle; an agent that has ended a turn \
is idle at once.

If the daemon goes away, the command waits for it, 5 minutes at most, and continues from its position; so do `logs -f` and `watch`.

Exit code 1 means that the time is up, that a turn failed, or that the session cannot reach the state by itself: it has ended or is \
parked, or the state is `waiting` and the turn has ended without a request.

Examples:
  intercom wait shop --for idle
  intercom wait shop --for waiting --timeout 5m && intercom clearances --session shop
  intercom wait shop --for ended --timeout 1h30m")]
pub(super) struct WaitForArgs {
    /// A session
    #[arg(value_name = "SES", value_parser = super::non_empty_id())]
    session: String,
    /// The state to wait for
    #[arg(long = "for", value_name = "PHASE")]
    goal: WaitGoal,
    /// The longest wait: seconds, or `30s`, `5m`, `1h30m`
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WaitGoal {
    /// The agent has nothing to do
    Idle,
    /// A clearance or a question is pending
    Waiting,
    /// The agent has ended
    Ended,
}

/// The time between the start of an agent and its first output.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, PartialEq, Eq)]
enum WaitVerdict {
    Reached,
    OutOfReach,
    NotYet,
}

pub(super) async fn run(args: WaitForArgs, cx: &CliContext) -> anyhow::Result<()> {
    ctrl_c::set_session_note(&args.session, cx);
    let waiting = wait(&args.session, args.goal, cx);
    let answer = match args.timeout {
        None => waiting.await?,
        Some(limit) => match tokio::time::timeout(limit, waiting).await {
            Ok(answer) => answer?,
            Err(_) => return Err(timeout_error(&args.session, limit, cx).await),
        },
    };
    warn_if_unenforced(&answer.parse()?);
    cx.print_answer(&answer, || Ok(clean(&answer.parse::<Session>()?.phase)))
}

/// Warns if an agent acts without asking, with advice.
pub(super) fn warn_if_unenforced(session: &Session) {
    if let Some(why) = &session.unenforced {
        output::advise(&format!("warning: {} is unenforced: {}", clean(&session.label()), clean(why)));
    }
}

/// Waits for the goal. The session's state is read after the position in the log, so that no change can fall between
/// them.
async fn wait(typed: &str, goal: WaitGoal, cx: &CliContext) -> anyhow::Result<DaemonAnswer> {
    let client = &cx.client;
    let after = last_seq(client).await?;
    let mut answer = client.get(&url(&["sessions", typed], &[])).await?;
    let session: Session = answer.parse()?;
    let mut begins_until = begins_until(&session, goal);
    if let Some(reached) = evaluate_goal(goal, None, begins_until.is_some(), answer, cx)? {
        return Ok(reached);
    }
    // One stream for the whole wait: it survives restarts of the daemon, and a new one could not be opened without a
    // daemon.
    let mut stream = DaemonEventStream::open(client, Some(&session.id), after).await?;
    let path = url(&["sessions", &session.id], &[]);
    loop {
        let event = match next(&mut stream, begins_until).await? {
            Some(DaemonStreamItem::Event(event)) if !changes_phase(&event.event) => continue,
            Some(DaemonStreamItem::Event(event)) => Some(event),
            Some(item) => {
                stream.report(&item);
                None
            }
            None => None, // the time to begin is over
        };
        answer = match client.get(&path).await {
            Ok(answer) => answer,
            Err(error) if error.is::<DaemonRefusal>() => return Err(error),
            Err(_) => {
                begins_until = None;
                continue; // the daemon is away; the stream reports its return
            }
        };
        begins_until = self::begins_until(&answer.parse()?, goal);
        if let Some(reached) = evaluate_goal(goal, event.as_deref(), begins_until.is_some(), answer, cx)? {
            return Ok(reached);
        }
    }
}

/// Returns the next item; `None` once the time to begin is over.
async fn next(
    stream: &mut DaemonEventStream,
    until: Option<Instant>,
) -> anyhow::Result<Option<DaemonStreamItem>> {
    match until {
        None => stream.next().await.map(Some),
        Some(until) => timeout_at(until, stream.next()).await.ok().transpose(),
    }
}

/// Returns the moment from which on the agent counts as idle; `None` if it has begun, or if the wait is for its end.
fn begins_until(session: &Session, goal: WaitGoal) -> Option<Instant> {
    time_left_to_begin(session).filter(|_| goal != WaitGoal::Ended).map(|left| Instant::now() + left)
}

/// Returns the time that an agent has left to begin by itself. A working or waiting agent has begun.
fn time_left_to_begin(session: &Session) -> Option<Duration> {
    let started = Timestamp::from_millisecond(session.started_at?.millis()).ok()?;
    let age = Duration::try_from(Timestamp::now().duration_since(started)).ok()?;
    let left = BEGIN_TIMEOUT.checked_sub(age).filter(|left| !left.is_zero())?;
    ["starting", "idle"].contains(&session.phase.as_str()).then_some(left)
}

fn evaluate_goal(
    goal: WaitGoal,
    event: Option<&ReceivedEvent>,
    young: bool,
    answer: DaemonAnswer,
    cx: &CliContext,
) -> anyhow::Result<Option<DaemonAnswer>> {
    let event = event.map(|received| &received.event);
    let session: Session = answer.parse()?;
    let verdict = goal_verdict(goal, &session, event.and_then(Event::kind), young);
    // A wait for the end succeeds, however the last turn ended.
    let is_over = goal == WaitGoal::Ended && verdict == WaitVerdict::Reached;
    if let Some(reason) = failure(&session, event).filter(|_| !is_over) {
        return Err(CliFailure::of_agent(&session, &reason, cx).into());
    }
    match verdict {
        WaitVerdict::Reached => Ok(Some(answer)),
        WaitVerdict::NotYet => Ok(None),
        WaitVerdict::OutOfReach => Err(out_of_reach(&session, cx).into()),
    }
}

/// Returns the reason why the session cannot reach the goal by itself, with advice.
fn out_of_reach(session: &Session, cx: &CliContext) -> CliFailure {
    let name = session.label();
    // A failed session would fail again, so the remedy of its failure comes first.
    if let Some(failed) = session.failed.as_ref().filter(|_| session.phase == Phase::Ended) {
        return CliFailure::of_agent(session, &failed.reason, cx);
    }
    let why = Some(session.why.as_str()).filter(|why| !why.is_empty()).map(|why| format!(": {why}"));
    let why = why.unwrap_or_default();
    let send = format!("give it work with `intercom send {name} PROMPT`, then wait again");
    match session.phase.as_str() {
        "ended" => CliFailure::failed(format!("{name} has ended{why}"))
            .hint(format!("`intercom resume {name}` starts it again")),
        "parked" => CliFailure::failed(format!("{name} is parked{why}"))
            .hint(format!("`intercom resume {name}` starts it again, `intercom stop {name}` ends it")),
        "idle" if session.queue > 0 => CliFailure::failed(format!(
            "{name} has no pending request, and its queue waits{why}"
        ))
        .hint(format!(
            "once that is fixed, restart the agent: `intercom stop {name} && intercom resume {name}`"
        )),
        "created" => CliFailure::failed(format!("{name} has no agent yet")).hint(send),
        _ => CliFailure::failed(format!("{name} has ended its turn without a request")).hint(send),
    }
}

/// Returns the reason of a failed turn: the turn that has just ended, or the last one of an idle agent.
pub(super) fn failure(session: &Session, event: Option<&Event>) -> Option<String> {
    let idle = session.failed.as_ref().filter(|_| session.phase == Phase::Idle);
    let ended = event.and_then(|event| match event {
        // An agent may answer a cancelled turn with an error; that is not a failure.
        Event::TurnEnded(ended) if ended.failed && ended.stop_reason != "cancelled" => {
            Some(ended.stop_reason.clone())
        }
        _ => None,
    });
    idle.map(|failed| failed.reason.clone()).or(ended)
}

/// Compares the session with the goal. A logged end counts for those who wait for it, even if the session was resumed
/// right away. An idle agent with an empty queue will not send a request by itself.
fn goal_verdict(goal: WaitGoal, session: &Session, kind: Option<EventKind>, young: bool) -> WaitVerdict {
    match (goal, session.phase.as_str()) {
        (WaitGoal::Idle | WaitGoal::Waiting, "idle") if young && kind != Some(EventKind::TurnEnded) => {
            WaitVerdict::NotYet
        }
        (WaitGoal::Ended, _) if kind == Some(EventKind::SessionEnded) => WaitVerdict::Reached,
        (WaitGoal::Idle, "idle") | (WaitGoal::Waiting, "waiting") | (WaitGoal::Ended, "ended") => {
            WaitVerdict::Reached
        }
        (WaitGoal::Waiting, "idle") if session.queue > 0 && !holds_prompts(session) => WaitVerdict::NotYet,
        (WaitGoal::Idle | WaitGoal::Waiting, "created")
        | (WaitGoal::Waiting, "idle")
        | (_, "ended" | "parked") => WaitVerdict::OutOfReach,
        _ => WaitVerdict::NotYet,
    }
}

/// Returns true if the prompts in the queue of an idle agent wait for a person: for a log-in, or for a higher spending
/// cap. Otherwise prompts for an ACP agent are sent at once, and those for others with the next heartbeat at the
/// latest.
fn holds_prompts(session: &Session) -> bool {
    let is_capped = session.spent.as_ref().is_some_and(|spent| spent.capped.is_some());
    is_capped || session.is_acp()
}

/// Returns true if the event may change the phase; most do not.
fn changes_phase(event: &Event) -> bool {
    !matches!(
        event,
        Event::Status(_)
            | Event::Update(_)
            | Event::Heartbeat(_)
            | Event::LineRejected(_)
            | Event::UnknownMessage(_)
            | Event::Nudged(_)
    )
}

/// Returns the end of the log. An older daemon does not report it; then the log is read from the beginning.
pub(super) async fn last_seq(client: &DaemonClient) -> anyhow::Result<u64> {
    let health: Health = client.get(&url(&["health"], &[])).await?.parse()?;
    Ok(health.more.map_or(0, |more| more.last_seq))
}

async fn timeout_error(typed: &str, limit: Duration, cx: &CliContext) -> anyhow::Error {
    let after = if limit.is_zero() { String::new() } else { format!(" after {limit:?}") };
    match super::logs::session(typed, cx).await {
        Ok(session) => {
            CliFailure::failed(format!("{} is still {}{after}", session.label(), session.phase)).into()
        }
        Err(error) if error.is::<DaemonRefusal>() => error,
        Err(_) => {
            CliFailure::failed(format!("{typed} has not reached the state{after}, and the daemon is away"))
                .hint(lost_daemon::restart_hint(&cx.client))
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use intercom_types::samples::sample;

    fn session(phase: &str, failed: &serde_json::Value) -> Session {
        let session = serde_json::json!({ "id": "ses_0123456789abcdef", "phase": phase, "failed": failed });
        serde_json::from_value(session).unwrap()
    }

    #[test]
    fn a_failed_turn_is_told_by_the_session_or_by_the_end_of_the_turn() {
        let unseen = serde_json::json!({ "reason": "no log-in", "at": "2026-03-04T11:58:00Z" });
        let ended = |stop_reason: &str, failed: bool| {
            let fields = serde_json::json!({ "stop_reason": stop_reason, "failed": failed });
            sample(EventKind::TurnEnded, &fields).event()
        };
        assert_eq!(failure(&session("idle", &unseen), None).as_deref(), Some("no log-in"));
        assert_eq!(failure(&session("working", &unseen), None), None, "it tries again");
        let seen = session("idle", &serde_json::Value::Null);
        let error = ended("error: no", true);
        assert_eq!(failure(&seen, Some(&error)).as_deref(), Some("error: no"), "somebody else saw it first");
        assert_eq!(failure(&seen, Some(&ended("cancelled", true))), None);
        assert_eq!(failure(&seen, Some(&ended("end_turn", false))), None);
    }

    #[test]
    fn a_goal_is_reached_missed_or_still_ahead() {
        let judge = |goal, phase: &str, kind: &str, young| {
            goal_verdict(goal, &session(phase, &serde_json::Value::Null), EventKind::parse(kind), young)
        };
        assert_eq!(judge(WaitGoal::Idle, "idle", "", false), WaitVerdict::Reached);
        assert_eq!(judge(WaitGoal::Idle, "idle", "agent.ready", true), WaitVerdict::NotYet);
        assert_eq!(judge(WaitGoal::Idle, "idle", "turn.ended", true), WaitVerdict::Reached);
        assert_eq!(judge(WaitGoal::Idle, "working", "turn.started", false), WaitVerdict::NotYet);
        assert_eq!(judge(WaitGoal::Waiting, "waiting", "clearance.requested", false), WaitVerdict::Reached);
        assert_eq!(judge(WaitGoal::Waiting, "ended", "session.ended", false), WaitVerdict::OutOfReach);
        assert_eq!(judge(WaitGoal::Waiting, "idle", "agent.ready", true), WaitVerdict::NotYet);
        assert_eq!(judge(WaitGoal::Waiting, "idle", "turn.ended", true), WaitVerdict::OutOfReach);
        assert_eq!(judge(WaitGoal::Waiting, "working", "turn.started", false), WaitVerdict::NotYet);
        for goal in [WaitGoal::Idle, WaitGoal::Waiting, WaitGoal::Ended] {
            assert_eq!(judge(goal, "parked", "", false), WaitVerdict::OutOfReach);
        }
        assert_eq!(judge(WaitGoal::Idle, "created", "", false), WaitVerdict::OutOfReach);
        assert_eq!(judge(WaitGoal::Ended, "created", "", false), WaitVerdict::NotYet);
        assert_eq!(judge(WaitGoal::Ended, "ended", "", false), WaitVerdict::Reached);
        assert_eq!(judge(WaitGoal::Ended, "starting", "session.ended", false), WaitVerdict::Reached);
    }
}
