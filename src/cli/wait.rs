//! `intercom wait`: waits on the event stream, without polling.

use std::time::Duration;

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::client::Answer;
use super::failure::{Failure, Refusal};
use super::stream::{Item, Stream};
use super::time::parse_duration;
use super::url::url;
use super::{Context, client::Client, interrupted, lost_daemon, out};
use intercom_types::text::clean;
use intercom_types::{Event, EventKind, Phase, ReceivedEvent, Session};

/// Wait until a session is idle, waits for somebody, or has ended
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An agent that has just been started has two seconds to begin by itself before it counts as idle; one that has ended a turn \
is idle at once.

A daemon that goes away is waited for, 5 minutes at most, and the wait goes on where it was; so do `logs -f` and `watch`.

Exit code 1 means that the time was up, that a turn failed, or that the session cannot get there by itself any more: it has ended or is \
parked, or `waiting` was waited for and the turn has ended without a request.

Examples:
  intercom wait shop --for idle
  intercom wait shop --for waiting --timeout 5m && intercom clearances --session shop
  intercom wait shop --for ended --timeout 1h30m")]
pub(super) struct Args {
    /// A session
    #[arg(value_name = "SES", value_parser = super::id())]
    session: String,
    /// What to wait for
    #[arg(long = "for", value_name = "PHASE")]
    goal: Goal,
    /// How long at most: seconds, or `30s`, `5m`, `1h30m`
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Goal {
    /// The agent has nothing to do
    Idle,
    /// A clearance or a question waits for somebody
    Waiting,
    /// The agent is gone
    Ended,
}

/// The time that an agent may take from its start to its first word.
const TO_BEGIN: Duration = Duration::from_secs(2);

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Reached,
    OutOfReach,
    NotYet,
}

pub(super) async fn run(args: Args, cx: &Context) -> anyhow::Result<()> {
    interrupted::note_session(&args.session, cx);
    let waiting = wait(&args.session, args.goal, cx);
    let answer = match args.timeout {
        None => waiting.await?,
        Some(limit) => match tokio::time::timeout(limit, waiting).await {
            Ok(answer) => answer?,
            Err(_) => return Err(too_late(&args.session, limit, cx).await),
        },
    };
    say_unenforced(&answer.parse()?);
    cx.answer(&answer, || Ok(clean(&answer.parse::<Session>()?.phase)))
}

/// Says that an agent acts without asking, and what to do.
pub(super) fn say_unenforced(session: &Session) {
    if let Some(why) = &session.unenforced {
        out::advise(&format!("warning: {} is unenforced: {}", clean(&session.label()), clean(why)));
    }
}

/// The session's state is read after the place in the log, so that no change can fall between them.
async fn wait(typed: &str, goal: Goal, cx: &Context) -> anyhow::Result<Answer> {
    let client = &cx.client;
    let after = last_seq(client).await?;
    let mut answer = client.get(&url(&["sessions", typed], &[])).await?;
    let session: Session = answer.parse()?;
    let mut begins_until = begins_until(&session, goal);
    if let Some(reached) = settle(goal, None, begins_until.is_some(), answer, cx)? {
        return Ok(reached);
    }
    // One stream for the whole wait: it outlasts the daemon's restarts, and a new one would not open without a daemon.
    let mut stream = Stream::open(client, Some(&session.id), after).await?;
    let path = url(&["sessions", &session.id], &[]);
    loop {
        let event = match next(&mut stream, begins_until).await? {
            Some(Item::Event(event)) if !changes_phase(&event.event) => continue,
            Some(Item::Event(event)) => Some(event),
            Some(item) => {
                stream.tell(&item);
                None
            }
            None => None, // the agent has had its time to begin
        };
        answer = match client.get(&path).await {
            Ok(answer) => answer,
            Err(error) if error.is::<Refusal>() => return Err(error),
            Err(_) => {
                begins_until = None;
                continue; // the daemon is away: the stream says when it is back
            }
        };
        begins_until = self::begins_until(&answer.parse()?, goal);
        if let Some(reached) = settle(goal, event.as_deref(), begins_until.is_some(), answer, cx)? {
            return Ok(reached);
        }
    }
}

/// The next item; `None` once the time to begin is over.
async fn next(stream: &mut Stream, until: Option<Instant>) -> anyhow::Result<Option<Item>> {
    match until {
        None => stream.next().await.map(Some),
        Some(until) => timeout_at(until, stream.next()).await.ok().transpose(),
    }
}

/// The moment from which on the agent counts as idle. `None` for one that has begun, and for a wait that is for its end.
fn begins_until(session: &Session, goal: Goal) -> Option<Instant> {
    still_young(session).filter(|_| goal != Goal::Ended).map(|left| Instant::now() + left)
}

/// Returns the time that an agent has left to begin by itself. One that works or waits has begun.
fn still_young(session: &Session) -> Option<Duration> {
    let started = Timestamp::from_millisecond(session.started_at?.millis()).ok()?;
    let age = Duration::try_from(Timestamp::now().duration_since(started)).ok()?;
    let left = TO_BEGIN.checked_sub(age).filter(|left| !left.is_zero())?;
    ["starting", "idle"].contains(&session.phase.as_str()).then_some(left)
}

fn settle(
    goal: Goal,
    event: Option<&ReceivedEvent>,
    young: bool,
    answer: Answer,
    cx: &Context,
) -> anyhow::Result<Option<Answer>> {
    let event = event.map(|received| &received.event);
    let session: Session = answer.parse()?;
    let verdict = judge(goal, &session, event.and_then(Event::kind), young);
    // Those who wait for the end have it, however its last turn went.
    let is_over = goal == Goal::Ended && verdict == Verdict::Reached;
    if let Some(reason) = failure(&session, event).filter(|_| !is_over) {
        return Err(Failure::of_agent(&session, &reason, cx).into());
    }
    match verdict {
        Verdict::Reached => Ok(Some(answer)),
        Verdict::NotYet => Ok(None),
        Verdict::OutOfReach => Err(out_of_reach(&session, cx).into()),
    }
}

/// Why the session does not get there by itself, and what to do.
fn out_of_reach(session: &Session, cx: &Context) -> Failure {
    let name = session.label();
    // One that has failed would fail again: its failure says what to do first.
    if let Some(failed) = session.failed.as_ref().filter(|_| session.phase == Phase::Ended) {
        return Failure::of_agent(session, &failed.reason, cx);
    }
    let why = Some(session.why.as_str()).filter(|why| !why.is_empty()).map(|why| format!(": {why}"));
    let why = why.unwrap_or_default();
    let send = format!("give it work with `intercom send {name} PROMPT`, then wait again");
    match session.phase.as_str() {
        "ended" => Failure::failed(format!("{name} has ended{why}"))
            .hint(format!("`intercom resume {name}` starts it again")),
        "parked" => Failure::failed(format!("{name} is parked{why}"))
            .hint(format!("`intercom resume {name}` starts it again, `intercom stop {name}` ends it")),
        "idle" if session.queue > 0 => {
            Failure::failed(format!("{name} asks for nothing, and its queue waits{why}")).hint(format!(
                "once that is mended, restart the agent: `intercom stop {name} && intercom resume {name}`"
            ))
        }
        "created" => Failure::failed(format!("{name} has no agent yet")).hint(send),
        _ => Failure::failed(format!("{name} has ended its turn and asks for nothing")).hint(send),
    }
}

/// The reason of a failed turn: the one that has just ended, or the last one of an agent that does nothing since.
pub(super) fn failure(session: &Session, event: Option<&Event>) -> Option<String> {
    let idle = session.failed.as_ref().filter(|_| session.phase == Phase::Idle);
    let ended = event.and_then(|event| match event {
        // A cancelled turn may be answered with an error, and has not failed.
        Event::TurnEnded(ended) if ended.failed && ended.stop_reason != "cancelled" => {
            Some(ended.stop_reason.clone())
        }
        _ => None,
    });
    idle.map(|failed| failed.reason.clone()).or(ended)
}

/// An end that was logged counts for those who wait for it, even if the session was resumed right away. An idle agent with
/// nothing in its queue asks for nothing by itself.
fn judge(goal: Goal, session: &Session, kind: Option<EventKind>, young: bool) -> Verdict {
    match (goal, session.phase.as_str()) {
        (Goal::Idle | Goal::Waiting, "idle") if young && kind != Some(EventKind::TurnEnded) => {
            Verdict::NotYet
        }
        (Goal::Ended, _) if kind == Some(EventKind::SessionEnded) => Verdict::Reached,
        (Goal::Idle, "idle") | (Goal::Waiting, "waiting") | (Goal::Ended, "ended") => Verdict::Reached,
        (Goal::Waiting, "idle") if session.queue > 0 && !holds_prompts(session) => Verdict::NotYet,
        (Goal::Idle | Goal::Waiting, "created") | (Goal::Waiting, "idle") | (_, "ended" | "parked") => {
            Verdict::OutOfReach
        }
        _ => Verdict::NotYet,
    }
}

/// Tells whether prompts in the queue of an idle agent wait for a person: for a log-in, or for more to spend. Prompts for an ACP
/// agent leave at once otherwise, those for others may leave with the next heartbeat.
fn holds_prompts(session: &Session) -> bool {
    let is_capped = session.spent.as_ref().is_some_and(|spent| spent.capped.is_some());
    is_capped || session.is_acp()
}

/// Tells whether the session is worth a look. Most events need none.
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

/// Where the log ends now. A daemon that does not say so makes us read from the beginning.
pub(super) async fn last_seq(client: &Client) -> anyhow::Result<u64> {
    #[derive(Deserialize)]
    struct Health {
        last_seq: Option<u64>,
    }
    let health: Health = client.get(&url(&["health"], &[])).await?.parse()?;
    Ok(health.last_seq.unwrap_or(0))
}

async fn too_late(typed: &str, limit: Duration, cx: &Context) -> anyhow::Error {
    let after = if limit.is_zero() { String::new() } else { format!(" after {limit:?}") };
    match super::logs::session(typed, cx).await {
        Ok(session) => {
            Failure::failed(format!("{} is still {}{after}", session.label(), session.phase)).into()
        }
        Err(error) if error.is::<Refusal>() => error,
        Err(_) => Failure::failed(format!("{typed} is not there yet{after}, and the daemon is away"))
            .hint(lost_daemon::way_back(&cx.client))
            .into(),
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
            judge(goal, &session(phase, &serde_json::Value::Null), EventKind::parse(kind), young)
        };
        assert_eq!(judge(Goal::Idle, "idle", "", false), Verdict::Reached);
        assert_eq!(judge(Goal::Idle, "idle", "agent.ready", true), Verdict::NotYet);
        assert_eq!(judge(Goal::Idle, "idle", "turn.ended", true), Verdict::Reached);
        assert_eq!(judge(Goal::Idle, "working", "turn.started", false), Verdict::NotYet);
        assert_eq!(judge(Goal::Waiting, "waiting", "clearance.requested", false), Verdict::Reached);
        assert_eq!(judge(Goal::Waiting, "ended", "session.ended", false), Verdict::OutOfReach);
        assert_eq!(judge(Goal::Waiting, "idle", "agent.ready", true), Verdict::NotYet);
        assert_eq!(judge(Goal::Waiting, "idle", "turn.ended", true), Verdict::OutOfReach);
        assert_eq!(judge(Goal::Waiting, "working", "turn.started", false), Verdict::NotYet);
        for goal in [Goal::Idle, Goal::Waiting, Goal::Ended] {
            assert_eq!(judge(goal, "parked", "", false), Verdict::OutOfReach);
        }
        assert_eq!(judge(Goal::Idle, "created", "", false), Verdict::OutOfReach);
        assert_eq!(judge(Goal::Ended, "created", "", false), Verdict::NotYet);
        assert_eq!(judge(Goal::Ended, "ended", "", false), Verdict::Reached);
        assert_eq!(judge(Goal::Ended, "starting", "session.ended", false), Verdict::Reached);
    }
}
