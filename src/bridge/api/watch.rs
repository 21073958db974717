//! The watch over a session: how its agent stands, its ladder, and peace from it for a while.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};

use super::Api;
use super::access::By;
use super::error::ApiError;
use super::extract::Body;
use crate::domain::{
    AgentStanding, LadderChange, LadderChoice, Phase, RunningTool, Session, SessionRecord, Situation,
    SnoozeRequest, Time, parse_duration,
};
use crate::session::Input;

/// Whoever wants more peace than this turns the ladder off.
const LONGEST_SNOOZE: Duration = Duration::from_hours(30 * 24);

/// `None` without anything to watch.
pub(super) fn standing(record: &SessionRecord, now: Time) -> Option<AgentStanding> {
    let watched = &record.watched;
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

/// Why it is in its phase, or how its agent stands if that says more.
pub(super) fn why(record: &SessionRecord, now: Time) -> String {
    let standing = record.watched.standing.as_ref();
    let standing = standing.filter(|_| matches!(record.phase, Phase::Working | Phase::Idle));
    standing.map_or_else(|| record.why.clone(), |standing| standing.sentence(now))
}

pub(super) async fn snooze(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(snooze): Body<SnoozeRequest>,
) -> Result<Json<Session>, ApiError> {
    let record = api.session(&id).await?;
    let until = match snooze.r#for.as_str() {
        "off" => None,
        text => {
            let length = parse_duration(text).filter(|length| !length.is_zero() && *length <= LONGEST_SNOOZE);
            let length = length.ok_or_else(|| {
                ApiError::bad_request(
                    "for: must be a time such as `90s`, `30m` or `2h`, at most 30 days, or `off`",
                )
            })?;
            Some(Time::now().plus(length))
        }
    };
    api.command(&record, Input::Snooze { until, by }).await?;
    Ok(Json(api.view(record.id).await?))
}

pub(super) async fn ladder(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(ladder): Body<LadderChange>,
) -> Result<Json<Session>, ApiError> {
    let record = api.session(&id).await?;
    let choice = parse_ladder(&ladder.ladder)?;
    api.command(&record, Input::Ladder { choice, by }).await?;
    Ok(Json(api.view(record.id).await?))
}

pub(super) fn parse_ladder(text: &str) -> Result<LadderChoice, ApiError> {
    LadderChoice::parse(text).map_err(|why| ApiError::bad_request(format!("ladder: {why}")))
}
