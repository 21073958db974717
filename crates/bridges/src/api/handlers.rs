//! Handlers of the endpoints that are one operation each: extract, operation, respond.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::Api;
use super::access::KnownCaller;
use super::error::ApiError;
use super::extract::{Body, Nothing, Query, ShortList};
use intercom_daemon::ops::{ClearanceQuery, Decided, PromptQuery, QuestionQuery, SessionQuery, SettingDone};
use intercom_types::{
    AgentChange, Decision, FailureSeen, InterruptRequest, LadderChange, NewPrompt, NewSession, NudgeRequest,
    PresetChange, PromptChange, QuestionAnswer, RulesTest, SettingChange, SnoozeRequest, StopMode,
};

/// The `{id}` of a path, as somebody typed it.
type Id = Path<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TakeBack {
    /// Only if it is a prompt of this session.
    session: Option<String>,
}

/// `name(extractors) = operation(arguments) => response`
macro_rules! handlers {
    ($($name:ident($($pattern:pat => $extractor:ty),+) = $operation:ident($($argument:expr),*) => $respond:ident;)+) => {$(
        pub(super) async fn $name(
            State(api): State<Api>,
            KnownCaller(caller): KnownCaller,
            $($pattern: $extractor),+
        ) -> Result<Response, ApiError> {
            Ok($respond(api.ops().$operation(&caller, $($argument),*).await?))
        }
    )+};
}

handlers! {
    agents(Query(query) => Query<ShortList>) = agents(query.limit) => ok;

    sessions(Query(query) => Query<SessionQuery>) = sessions(query) => ok;
    start(Body(new) => Body<NewSession>) = start(new) => created;
    session(Path(id) => Id, Query(Nothing {}) => Query<Nothing>) = session(&id) => ok;
    remove(Path(id) => Id, Query(Nothing {}) => Query<Nothing>) = remove(&id) => nothing;
    resume(Path(id) => Id, Body(Nothing {}) => Body<Nothing>) = resume(&id) => ok;
    stop(Path(id) => Id, Body(Nothing {}) => Body<Nothing>) = stop(&id, StopMode::Stop) => ok;
    kill(Path(id) => Id, Body(Nothing {}) => Body<Nothing>) = stop(&id, StopMode::Kill) => ok;
    nudge(Path(id) => Id, Body(body) => Body<NudgeRequest>) = nudge(&id, body) => accepted;
    interrupt(Path(id) => Id, Body(body) => Body<InterruptRequest>) = interrupt(&id, body) => accepted;
    seen(Path(id) => Id, Body(body) => Body<FailureSeen>) = acknowledge_failure(&id, body) => ok;
    snooze(Path(id) => Id, Body(body) => Body<SnoozeRequest>) = snooze(&id, body) => ok;
    ladder(Path(id) => Id, Body(body) => Body<LadderChange>) = change_ladder(&id, body) => ok;
    agent(Path(id) => Id, Body(body) => Body<AgentChange>) = change_agent(&id, body) => ok;
    preset(Path(id) => Id, Body(body) => Body<PresetChange>) = change_preset(&id, body) => ok;
    set(Path(id) => Id, Body(body) => Body<SettingChange>) = change_setting(&id, body) => setting_done;
    agent_sessions(Path(id) => Id, Body(Nothing {}) => Body<Nothing>) = agent_sessions(&id) => ok;

    prompts(Path(id) => Id, Query(query) => Query<PromptQuery>) = prompts(&id, query) => ok;
    send(Path(id) => Id, Body(body) => Body<NewPrompt>) = send(&id, body) => accepted;
    change_prompt(Path(id) => Id, Body(body) => Body<PromptChange>) = change_prompt(&id, body) => ok;
    take_back(Path(id) => Id, Query(query) => Query<TakeBack>) = take_back(&id, query.session) => nothing;

    clearances(Query(query) => Query<ClearanceQuery>) = clearances(query) => ok;
    clearance(Path(id) => Id, Query(Nothing {}) => Query<Nothing>) = clearance(&id) => ok;
    explanation(Path(id) => Id, Query(Nothing {}) => Query<Nothing>) = explain(&id) => ok;
    decide(Path(id) => Id, Body(body) => Body<Decision>) = decide(&id, body) => decided;

    questions(Query(query) => Query<QuestionQuery>) = questions(query) => ok;
    question(Path(id) => Id, Query(Nothing {}) => Query<Nothing>) = question(&id) => ok;
    answer(Path(id) => Id, Body(body) => Body<QuestionAnswer>) = answer(&id, body) => ok;

    policy(Query(Nothing {}) => Query<Nothing>) = policy() => ok;
    test_rules(Body(body) => Body<RulesTest>) = test_rules(body) => ok;
    grants(Query(query) => Query<ShortList>) = grants(query.limit) => ok;
    revoke_grant(Path(id) => Id) = revoke_grant(&id) => nothing;
    reload(Body(Nothing {}) => Body<Nothing>) = reload() => ok;
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

fn decided(decided: Decided) -> Response {
    match decided {
        Decided::Counted(quorum) => accepted(quorum),
        Decided::Settled(clearance) => ok(clearance),
    }
}

fn setting_done(done: SettingDone) -> Response {
    match done {
        SettingDone::Sent(sent) => accepted(sent),
        SettingDone::Agreed(agreed) => ok(agreed),
    }
}
