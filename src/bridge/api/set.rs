//! What an agent tells about itself: what can be set, and what it has used.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Api;
use super::access::By;
use super::error::ApiError;
use super::extract::{Body, Nothing};
use crate::domain::{Controls, Named, Set, Spent, Told};
use crate::session::Input;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ControlsView {
    mode: Option<String>,
    modes: Vec<NamedView>,
    model: Option<String>,
    models: Vec<NamedView>,
    /// As the agent tells them.
    options: Value,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NamedView {
    id: String,
    name: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SpentView {
    turns: u64,
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    cost: f64,
    currency: Option<String>,
    /// Why no new turn begins, if none does.
    capped: Option<String>,
}

pub(super) fn controls(told: &Told) -> Option<ControlsView> {
    if told.controls == Controls::default() {
        return None;
    }
    let Controls { mode, modes, model, models, options } = told.controls.clone();
    let named = |all: Vec<Named>| all.into_iter().map(|Named { id, name }| NamedView { id, name }).collect();
    let options = options.and_then(|raw| serde_json::from_str(raw.as_str()).ok()).unwrap_or(Value::Null);
    Some(ControlsView { mode, modes: named(modes), model, models: named(models), options })
}

pub(super) fn spent(told: &Told) -> Option<SpentView> {
    let spent = &told.spent;
    let Spent { turns, input_tokens, output_tokens, total_tokens, cost_micros, .. } = *spent;
    #[expect(clippy::cast_precision_loss, reason = "nobody spends that much")]
    let cost = cost_micros as f64 / 1e6;
    (*spent != Spent::default()).then(|| SpentView {
        turns,
        input_tokens,
        output_tokens,
        total_tokens,
        cost,
        currency: spent.currency.clone(),
        capped: told.capped.clone(),
    })
}

/// Exactly one of `mode`, `model`, and `option` with its `value`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetBody {
    mode: Option<String>,
    model: Option<String>,
    option: Option<String>,
    value: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SetView {
    session: String,
    /// Whether it is in the agent's pipe: `pending`, `delivered` or `failed`. What the agent makes of it is in the log.
    delivery: &'static str,
    delivery_cause: Option<String>,
}

pub(super) async fn set(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(body): Body<SetBody>,
) -> Result<(StatusCode, Json<SetView>), ApiError> {
    let set = match body {
        SetBody { mode: Some(mode), model: None, option: None, value: None } => Set::Mode(mode),
        SetBody { mode: None, model: Some(model), option: None, value: None } => Set::Model(model),
        SetBody { mode: None, model: None, option: Some(id), value: Some(value) } => {
            Set::Option { id, value }
        }
        _ => {
            let message = "exactly one of `mode`, `model`, and `option` with its `value` is needed";
            return Err(ApiError::bad_request(message));
        }
    };
    let record = api.session(&id).await?;
    let done = api.supervisor().command(record.id, Input::Set { set, by }).await?;
    let (delivery, delivery_cause) = super::sessions::told(done.arrival.outcome().await);
    Ok((StatusCode::ACCEPTED, Json(SetView { session: record.id.to_string(), delivery, delivery_cause })))
}

/// More can happen, but not before the answer.
const MANY: usize = 1000;
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
    api.supervisor().command(session, Input::List { by }).await?;
    let answered = async {
        loop {
            let page = api.store().events(Some(after), Some(session), MANY).await?.unwrap_or_default();
            let told =
                page.iter().find(|event| matches!(event.kind.as_str(), "agent.sessions" | "agent.not_set"));
            if let Some(event) = told {
                return Ok(serde_json::from_str(event.data.as_str()).unwrap_or(Value::Null));
            }
            ear.hear().await;
        }
    };
    let silent = || ApiError::new(StatusCode::GATEWAY_TIMEOUT, "no_answer", "the agent does not answer");
    tokio::time::timeout(REMEMBERING, answered).await.map_err(|_| silent())?.map(Json)
}
