//! What an agent tells about itself: what can be set, and what it has used.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::Api;
use super::access::By;
use super::error::ApiError;
use super::extract::{Body, Nothing};
use crate::bus::Ear;
use crate::domain::{
    Controls, Event, EventKind, Json as Raw, SessionId, Set, SettingAgreed, SettingChange, SettingSent,
    SettingWait, Spent, Told, Usage,
};
use crate::session::Input;

pub(super) fn controls(told: &Told) -> Option<Controls> {
    (told.controls != Controls::default()).then(|| told.controls.clone())
}

pub(super) fn spent(told: &Told) -> Option<Usage> {
    let spent = &told.spent;
    let Spent { turns, input_tokens, output_tokens, total_tokens, cost_micros, .. } = *spent;
    #[expect(clippy::cast_precision_loss, reason = "nobody spends that much")]
    let cost = cost_micros as f64 / 1e6;
    let (currency, capped) = (spent.currency.clone(), told.capped.clone());
    let usage = Usage { turns, input_tokens, output_tokens, total_tokens, cost, currency, capped };
    (*spent != Spent::default()).then_some(usage)
}

pub(super) async fn set(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(body): Body<SettingChange>,
) -> Result<Response, ApiError> {
    let SettingChange { mode, model, option, value, wait } = body;
    let set = match (mode, model, option, value) {
        (Some(mode), None, None, None) => Set::Mode(mode),
        (None, Some(model), None, None) => Set::Model(model),
        (None, None, Some(id), Some(value)) => Set::Option { id, value },
        _ => {
            let message = "exactly one of `mode`, `model`, and `option` with its `value` is needed";
            return Err(ApiError::bad_request(message));
        }
    };
    let record = api.session(&id).await?;
    let (session, mut ear) = (record.id, api.bell().listen());
    let after = ear.newest();
    let done = api.command(&record, Input::Set { set, by }).await?;
    if let (Some(SettingWait::Agent), Some(set)) = (wait, done.set) {
        let answered = tokio::time::timeout(AGREEING, api.agreed(record.id, set, after, ear));
        let answer = answered.await.map_err(|_| silent())??;
        return Ok(Json(SettingAgreed { session, set, answer }).into_response());
    }
    let delivery = super::sessions::arrived(done.arrival.outcome().await);
    let view = SettingSent { session, set: done.set, delivery };
    Ok((StatusCode::ACCEPTED, Json(view)).into_response())
}

fn silent() -> ApiError {
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "no_answer", "the agent does not answer")
}

impl Api {
    /// What the agent makes of what was set.
    async fn agreed(
        &self,
        session: SessionId,
        set: u64,
        mut after: u64,
        mut ear: Ear,
    ) -> Result<Raw, ApiError> {
        let gone = || ApiError::conflict("ended", "the agent ended before it answered");
        loop {
            let page = self.store().events(Some(after), Some(session), MANY).await?.unwrap_or_default();
            after = page.last().map_or(after, |event| event.seq);
            for event in &page {
                match event.event() {
                    Event::AgentExited(_) => return Err(gone()),
                    Event::SettingAccepted(accepted) if accepted.set == Some(set) => {
                        return Ok(accepted.result);
                    }
                    Event::SettingRefused(refused) if refused.set == Some(set) => {
                        let error: Value = serde_json::from_str(refused.error.as_str()).unwrap_or_default();
                        return Err(
                            ApiError::unprocessable("not_set", refused.reason).with("agent_error", error)
                        );
                    }
                    _ => {}
                }
            }
            if page.is_empty() && !ear.hear().await {
                return Err(gone());
            }
        }
    }
}

/// How much of the log is looked at in one go.
const MANY: usize = 1000;
/// How long an agent may take to agree.
const AGREEING: Duration = Duration::from_secs(30);
/// How long an agent may take to remember.
const REMEMBERING: Duration = Duration::from_secs(10);

/// What the agent answers, as it came.
pub(super) async fn list(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Value>, ApiError> {
    let record = api.session(&id).await?;
    let (session, mut ear) = (record.id, api.bell().listen());
    let after = ear.newest();
    api.command(&record, Input::List { by }).await?;
    let answered = async {
        loop {
            let page = api.store().events(Some(after), Some(session), MANY).await?.unwrap_or_default();
            let answers = [Some(EventKind::AgentSessions), Some(EventKind::SettingRefused)];
            let told = page.iter().find(|event| answers.contains(&event.known_kind()));
            if let Some(event) = told {
                return Ok(serde_json::from_str(event.data.as_str()).unwrap_or(Value::Null));
            }
            ear.hear().await;
        }
    };
    tokio::time::timeout(REMEMBERING, answered).await.map_err(|_| silent())?.map(Json)
}
