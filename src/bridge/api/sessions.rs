//! Sessions: list, start, show, steer, stop.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Api;
use super::access::{By, Caller};
use super::error::ApiError;
use super::extract::{Body, Nothing, Query, limit, the};
use super::view;
use super::watch::parse_ladder;
use crate::config::Protocol;
use crate::domain::{
    AgentChange, Delivery, FailureSeen, InterruptAnswer, InterruptRequest, Json as Raw, List, NewSession,
    NudgeAnswer, NudgeRequest, OnClientLeft, Phase, Preset, PresetChange, Role, Session, SessionId,
    SessionRecord, StopMode, StopResult, Time,
};
use crate::session::{CommandError, Done, Input, Refused};
use crate::store::Scope;
use crate::supervisor::{StartRefused, StartRequest};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionQuery {
    #[serde(default)]
    all: bool,
    /// Also those that have ended and failed, until an operator has seen that.
    #[serde(default)]
    failed: bool,
    /// Only those of this workspace: its path, exactly.
    workspace: Option<String>,
    /// Leaves out each `stderr_tail` and `controls`, which may be long; `GET /sessions/{id}` has them.
    #[serde(default)]
    brief: bool,
    limit: Option<usize>,
    cursor: Option<i64>,
}

pub(super) async fn list(
    State(api): State<Api>,
    Query(query): Query<SessionQuery>,
) -> Result<Json<List<Session>>, ApiError> {
    let most = limit(query.limit)?;
    let scope = match query {
        SessionQuery { all: true, .. } => Scope::All,
        SessionQuery { failed: true, .. } => Scope::Noticed,
        SessionQuery { .. } => Scope::NotEnded,
    };
    let page = api.store().sessions(scope, query.workspace, query.cursor, most).await?;
    Ok(Json(view::list(page, |record| {
        if query.brief {
            return view::session_in_brief(record);
        }
        let observer = api.supervisor().observer(record.id);
        view::session_in_list(record, observer.as_ref())
    })))
}

/// What lets whoever starts an agent run anything is for admins: they have chosen the commands of the profiles.
fn may_start(caller: &Caller, start: &NewSession) -> Result<(), ApiError> {
    let servers =
        start.mcp_servers.as_ref().and_then(Raw::objects).is_some_and(|servers| !servers.is_empty());
    let beyond = [
        ("a command of one's own", start.command.is_some()),
        ("`env`", !start.env.is_empty()),
        ("`mcp_servers`", servers),
    ];
    match beyond.into_iter().find(|(_, is_asked)| *is_asked && caller.role < Role::Admin) {
        Some((what, _)) => {
            let message = format!("{what} needs the role admin; {} is {}", caller.name, caller.role);
            Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message)
                .hint("start an agent that has a profile"))
        }
        None => Ok(()),
    }
}

pub(super) async fn start(
    State(api): State<Api>,
    caller: Caller,
    Body(start): Body<NewSession>,
) -> Result<(StatusCode, Json<Session>), ApiError> {
    may_start(&caller, &start)?;
    if start.agent.is_some() && start.protocol.is_some() {
        return Err(ApiError::bad_request("`protocol` goes with `command`; a profile has its own"));
    }
    let protocol = start.protocol.as_deref().map(str::parse::<Protocol>).transpose();
    let protocol = protocol.map_err(|error| ApiError::bad_request(format!("protocol: {error}")))?;
    check_env(&start.env)?;
    if start.mcp_servers.as_ref().is_some_and(|servers| servers.objects().is_none()) {
        return Err(ApiError::bad_request("mcp_servers must be a list of servers, each an object"));
    }
    let request = StartRequest {
        agent: start.agent,
        command: start.command,
        protocol,
        args: start.args,
        workspace: start.workspace,
        prompt: start.prompt,
        name: start.name,
        env: start.env,
        resume: start.resume,
        mcp_servers: start.mcp_servers.map(|servers| servers.on_one_line()),
        ladder: start.ladder.as_deref().map(parse_ladder).transpose()?.unwrap_or_default(),
        defer: start.defer,
        preset: start.preset.as_deref().map(parse_preset).transpose()?.unwrap_or_default(),
        on_client_left: start.on_client_left.as_deref().map(parse_on_client_left).transpose()?,
        by: caller.name,
    };
    let id = api.supervisor().start(request).await?;
    Ok((StatusCode::CREATED, Json(api.view(id).await?)))
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let bad = |name: &String, value: &String| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') || name.starts_with("INTERCOM_")
    };
    match env.iter().find(|(name, value)| bad(name, value)) {
        Some((name, _)) => Err(ApiError::bad_request(format!("env: `{name}` cannot be set"))),
        None => Ok(()),
    }
}

pub(super) async fn show(
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(Nothing {}): Query<Nothing>,
) -> Result<Json<Session>, ApiError> {
    let id = api.session(&id).await?.id;
    Ok(Json(api.view(id).await?))
}

/// Reading a session is no acknowledgement: scripts read, too. Whoever shows it to an operator says so here.
pub(super) async fn seen(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(seen): Body<FailureSeen>,
) -> Result<Json<Session>, ApiError> {
    let record = api.session(&id).await?;
    let at = seen.at.map(|at| Time::parse(&at).ok_or_else(|| ApiError::bad_request("at: must be a time")));
    let at = at.transpose()?;
    if record.failed.is_some() {
        api.supervisor().mark_seen(record.id, at, by).await?;
    }
    Ok(Json(api.view(record.id).await?))
}

pub(super) async fn nudge(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(nudge): Body<NudgeRequest>,
) -> Result<(StatusCode, Json<NudgeAnswer>), ApiError> {
    let record = api.session(&id).await?;
    let message =
        nudge.message.unwrap_or_else(|| api.supervisor().in_force().nudge_text(record.agent.as_deref()));
    let done = api.command(&record, Input::Nudge { message: message.clone(), by }).await?;
    let answer = NudgeAnswer { session: record.id, message, delivery: arrived(done.arrival.outcome().await) };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

pub(super) async fn interrupt(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(interrupt): Body<InterruptRequest>,
) -> Result<(StatusCode, Json<InterruptAnswer>), ApiError> {
    let record = api.session(&id).await?;
    let reason = interrupt.reason.unwrap_or_else(|| format!("interrupted by {by}"));
    let done = api.command(&record, Input::Interrupt { reason: reason.clone(), by }).await?;
    let delivery = match interrupt.wait {
        Some(false) => Some(Delivery::Pending),
        _ => done.arrival.outcome().await,
    };
    let answer = InterruptAnswer { session: record.id, reason, delivery: arrived(delivery) };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// An agent that went before it took the message has closed its stdin, whichever we heard of first.
pub(super) fn arrived(delivery: Option<Delivery>) -> Delivery {
    delivery.unwrap_or_else(|| Delivery::Failed(Delivery::STREAM_CLOSED.to_owned()))
}

pub(super) async fn stop(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<StopResult>, ApiError> {
    api.end(&id, StopMode::Stop, by).await
}

pub(super) async fn kill(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<StopResult>, ApiError> {
    api.end(&id, StopMode::Kill, by).await
}

pub(super) async fn resume(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Session>, ApiError> {
    let record = api.session(&id).await?;
    api.supervisor().resume(&record, by).await.map_err(|refused| match refused {
        StartRefused::Command(CommandError::Refused(Refused::Running)) => ApiError::from(refused)
            .hint("stop it first: `intercom stop SES && intercom resume SES`")
            .naming(&record),
        refused => refused.into(),
    })?;
    Ok(Json(api.view(record.id).await?))
}

pub(super) async fn agent(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(wanted): Body<AgentChange>,
) -> Result<Json<Session>, ApiError> {
    let id = api.session(&id).await?.id;
    api.supervisor().change_agent(id, wanted.agent, by).await?;
    Ok(Json(api.view(id).await?))
}

/// Whoever may decide may let more be decided.
pub(super) async fn preset(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    Body(wanted): Body<PresetChange>,
) -> Result<Json<Session>, ApiError> {
    let id = api.session(&id).await?.id;
    let preset = parse_preset(&wanted.preset)?;
    api.supervisor().set_preset(id, preset, caller.role >= Role::Approver, caller.name).await?;
    Ok(Json(api.view(id).await?))
}

fn parse_on_client_left(text: &str) -> Result<OnClientLeft, ApiError> {
    text.parse().map_err(|error| ApiError::bad_request(format!("on_client_left: {error}")))
}

fn parse_preset(text: &str) -> Result<Preset, ApiError> {
    Preset::parse(text).ok_or_else(|| {
        let known = Preset::ALL.map(Preset::as_str).join(", ");
        ApiError::bad_request(format!("preset: `{text}` is none of {known}"))
    })
}

pub(super) async fn remove(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Query(Nothing {}): Query<Nothing>,
) -> Result<StatusCode, ApiError> {
    let record = api.session(&id).await?;
    if api.supervisor().remove(&record, by).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let message = "the session has not ended: only one that has can be removed";
    Err(ApiError::conflict("running", message).hint("`intercom stop` ends it"))
}

impl Api {
    /// The session that a person meant.
    pub(super) async fn session(&self, typed: &str) -> Result<SessionRecord, ApiError> {
        the("session", typed, self.store().session(typed.to_owned()).await?)
    }

    /// Hands a command to a session. A refusal names the session in its hint.
    pub(super) async fn command(&self, session: &SessionRecord, input: Input) -> Result<Done, ApiError> {
        let done = self.supervisor().command(session.id, input).await;
        done.map_err(|error| ApiError::from(error).naming(session))
    }

    pub(super) async fn view(&self, id: SessionId) -> Result<Session, ApiError> {
        let record = self.session(&id.to_string()).await?;
        Ok(view::session(record, self.supervisor().observer(id).as_ref()))
    }

    async fn end(&self, typed: &str, how: StopMode, by: String) -> Result<Json<StopResult>, ApiError> {
        let record = self.session(typed).await?;
        let stopped = self.supervisor().stop(record.id, how, by).await?;
        // Without a store that works, the log does not know yet that it has ended.
        let phase =
            if stopped.unrecorded { Phase::Ended } else { self.session(&record.id.to_string()).await?.phase };
        Ok(Json(StopResult {
            session: record.id,
            phase: phase.into(),
            steps: stopped.steps,
            killed: stopped.killed,
            recorded: !stopped.unrecorded,
        }))
    }
}
