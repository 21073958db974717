//! Handlers of the endpoints that are one operation each: extract, call the operation, respond.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::ApiBridge;
use super::access::KnownCaller;
use super::error::ApiError;
use super::extract::{JsonBody, NoFields, ShortList, StrictQuery};
use intercom_daemon::ops::{
    AuditQuery, ClearanceQuery, DecisionResult, PromptQuery, QuestionQuery, SessionQuery, SettingResult,
    StatsQuery,
};
use intercom_types::{
    AgentChange, BackupRequest, Decision, FailureSeen, InterruptRequest, LadderChange, NewPrompt, NewSession,
    NudgeRequest, PresetChange, PromptChange, QuestionAnswer, RulesTest, SettingChange, SnoozeRequest,
    StopMode, TokenRequest,
};

/// The `{id}` of a path, as typed: an id, a unique prefix, or a name.
type Id = Path<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WithdrawPromptQuery {
    /// Only if it is a prompt of this session.
    session: Option<String>,
}

/// `name(extractors) = operation(arguments) => response`
macro_rules! handlers {
    ($($name:ident($($pattern:pat => $extractor:ty),+) = $operation:ident($($argument:expr),*) => $respond:ident;)+) => {$(
        pub(super) async fn $name(
            State(api): State<ApiBridge>,
            KnownCaller(caller): KnownCaller,
            $($pattern: $extractor),+
        ) -> Result<Response, ApiError> {
            Ok($respond(api.ops().$operation(&caller, $($argument),*).await?))
        }
    )+};
}

handlers! {
    agents(StrictQuery(query) => StrictQuery<ShortList>) = agents(query.limit) => ok;

    sessions(StrictQuery(query) => StrictQuery<SessionQuery>) = sessions(query) => ok;
    start(JsonBody(new) => JsonBody<NewSession>) = start(new) => created;
    session(Path(id) => Id, StrictQuery(NoFields {}) => StrictQuery<NoFields>) = session(&id) => ok;
    remove(Path(id) => Id, StrictQuery(NoFields {}) => StrictQuery<NoFields>) = remove(&id) => nothing;
    resume(Path(id) => Id, JsonBody(NoFields {}) => JsonBody<NoFields>) = resume(&id) => ok;
    stop(Path(id) => Id, JsonBody(NoFields {}) => JsonBody<NoFields>) = stop(&id, StopMode::Stop) => ok;
    kill(Path(id) => Id, JsonBody(NoFields {}) => JsonBody<NoFields>) = stop(&id, StopMode::Kill) => ok;
    nudge(Path(id) => Id, JsonBody(body) => JsonBody<NudgeRequest>) = nudge(&id, body) => accepted;
    interrupt(Path(id) => Id, JsonBody(body) => JsonBody<InterruptRequest>) = interrupt(&id, body) => accepted;
    seen(Path(id) => Id, JsonBody(body) => JsonBody<FailureSeen>) = acknowledge_failure(&id, body) => ok;
    snooze(Path(id) => Id, JsonBody(body) => JsonBody<SnoozeRequest>) = snooze(&id, body) => ok;
    ladder(Path(id) => Id, JsonBody(body) => JsonBody<LadderChange>) = change_ladder(&id, body) => ok;
    agent(Path(id) => Id, JsonBody(body) => JsonBody<AgentChange>) = change_agent(&id, body) => ok;
    preset(Path(id) => Id, JsonBody(body) => JsonBody<PresetChange>) = change_preset(&id, body) => ok;
    set(Path(id) => Id, JsonBody(body) => JsonBody<SettingChange>) = change_setting(&id, body) => setting_done;
    agent_sessions(Path(id) => Id, JsonBody(NoFields {}) => JsonBody<NoFields>) = agent_sessions(&id) => ok;

    prompts(Path(id) => Id, StrictQuery(query) => StrictQuery<PromptQuery>) = prompts(&id, query) => ok;
    send(Path(id) => Id, JsonBody(body) => JsonBody<NewPrompt>) = send(&id, body) => accepted;
    change_prompt(Path(id) => Id, JsonBody(body) => JsonBody<PromptChange>) = change_prompt(&id, body) => ok;
    take_back(Path(id) => Id, StrictQuery(query) => StrictQuery<WithdrawPromptQuery>) = withdraw_prompt(&id, query.session) => nothing;

    clearances(StrictQuery(query) => StrictQuery<ClearanceQuery>) = clearances(query) => ok;
    clearance(Path(id) => Id, StrictQuery(NoFields {}) => StrictQuery<NoFields>) = clearance(&id) => ok;
    explanation(Path(id) => Id, StrictQuery(NoFields {}) => StrictQuery<NoFields>) = explain(&id) => ok;
    decide(Path(id) => Id, JsonBody(body) => JsonBody<Decision>) = decide(&id, body) => decided;

    questions(StrictQuery(query) => StrictQuery<QuestionQuery>) = questions(query) => ok;
    question(Path(id) => Id, StrictQuery(NoFields {}) => StrictQuery<NoFields>) = question(&id) => ok;
    answer(Path(id) => Id, JsonBody(body) => JsonBody<QuestionAnswer>) = answer(&id, body) => ok;

    policy(StrictQuery(NoFields {}) => StrictQuery<NoFields>) = policy() => ok;
    test_rules(JsonBody(body) => JsonBody<RulesTest>) = test_rules(body) => ok;
    grants(StrictQuery(query) => StrictQuery<ShortList>) = grants(query.limit) => ok;
    revoke_grant(Path(id) => Id) = revoke_grant(&id) => nothing;
    stats(StrictQuery(query) => StrictQuery<StatsQuery>) = stats(query) => ok;
    tokens(StrictQuery(query) => StrictQuery<ShortList>) = tokens(query.limit) => ok;
    create_token(JsonBody(body) => JsonBody<TokenRequest>) = create_token(body) => created;
    revoke_token(Path(id) => Id) = revoke_token(&id) => nothing;
    audit(StrictQuery(query) => StrictQuery<AuditQuery>) = audit(query) => ok;
    verify_audit(StrictQuery(NoFields {}) => StrictQuery<NoFields>) = verify_audit() => ok;
    reload(JsonBody(NoFields {}) => JsonBody<NoFields>) = reload() => ok;
}

pub(super) async fn backup(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    JsonBody(request): JsonBody<BackupRequest>,
) -> Result<Response, ApiError> {
    Ok(ok(api.ops().backup(&caller, request, &api.0.closing).await?))
}

pub(super) async fn backup_state(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    StrictQuery(NoFields {}): StrictQuery<NoFields>,
) -> Result<Response, ApiError> {
    Ok(ok(api.ops().backup_state(&caller)?))
}

fn ok(answer: impl Serialize) -> Response {
    Json(answer).into_response()
}

fn created(answer: impl Serialize) -> Response {
    (StatusCode::CREATED, Json(answer)).into_response()
}

fn accepted(answer: impl Serialize) -> Response {
    (StatusCode::ACCEPTED, Json(answer)).into_response()
}

fn nothing((): ()) -> Response {
    StatusCode::NO_CONTENT.into_response()
}

fn decided(decided: DecisionResult) -> Response {
    match decided {
        DecisionResult::Counted(quorum) => accepted(quorum),
        DecisionResult::Settled(clearance) => ok(clearance),
    }
}

fn setting_done(done: SettingResult) -> Response {
    match done {
        SettingResult::Sent(sent) => accepted(sent),
        SettingResult::Agreed(agreed) => ok(agreed),
    }
}
