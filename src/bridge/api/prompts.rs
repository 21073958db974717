//! Prompts: send, list, take back.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Api;
use super::access::By;
use super::error::ApiError;
use super::extract::{Body, Query, limit, the};
use super::view;
use crate::domain::{Content, List, NewPrompt, Prompt, PromptChange, PromptId, PromptState, Wording};
use crate::session::{CommandError, Input, Refused};
use crate::store::Found;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PromptQuery {
    limit: Option<usize>,
    cursor: Option<i64>,
}

pub(super) async fn list(
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<PromptQuery>,
) -> Result<Json<List<Prompt>>, ApiError> {
    let session = api.session(&id).await?.id;
    let page = api.store().prompts(session, query.cursor, limit(query.limit)?).await?;
    Ok(Json(view::list(page, |prompt| prompt)))
}

fn wording(prompt: &NewPrompt) -> Result<Wording, ApiError> {
    let bad = || ApiError::bad_request("content must be a list of content blocks, each an object");
    let content = prompt.content.as_ref().map(|raw| Content::read(raw).ok_or_else(bad)).transpose()?;
    let content = content.filter(|content| !content.is_empty());
    let said = prompt.text.clone().filter(|text| !text.trim().is_empty());
    let text = said.or_else(|| content.as_ref().map(Content::text)).unwrap_or_default();
    if text.is_empty() {
        return Err(ApiError::bad_request("text must not be empty"));
    }
    Ok(Wording { text, content })
}

pub(super) async fn send(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(send): Body<NewPrompt>,
) -> Result<(StatusCode, Json<Prompt>), ApiError> {
    let wording = wording(&send)?;
    let session = api.session(&id).await?;
    let id = send.id.as_deref().map(str::parse::<PromptId>).transpose();
    let id = id.map_err(|error| ApiError::bad_request(format!("id: {error}")))?;
    if let Some(known) = api.known(id).await? {
        if known.session != session.id {
            return Err(ApiError::conflict("id_taken", "another session has a prompt with this id"));
        }
        return Ok((StatusCode::ACCEPTED, Json(known)));
    }
    let done = api.command(&session, Input::Prompt { id, wording, by }).await?;
    if send.wait != Some(false) {
        done.arrival.wait().await;
    }
    let id = done.prompt.map(|id| id.to_string()).unwrap_or_default();
    let prompt = api.prompt(&id).await?;
    Ok((StatusCode::ACCEPTED, Json(prompt)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TakeBack {
    /// Only if it is a prompt of this session.
    session: Option<String>,
}

pub(super) async fn take_back(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Query(query): Query<TakeBack>,
) -> Result<StatusCode, ApiError> {
    let session = match &query.session {
        Some(typed) => Some(api.session(typed).await?.id),
        None => None,
    };
    let prompt = api.prompt(&id).await?;
    if session.is_some_and(|session| session != prompt.session) {
        let hint = format!("it belongs to {}", prompt.session);
        return Err(ApiError::not_found("prompt of this session", &id).hint(hint));
    }
    if prompt.state == PromptState::Withdrawn {
        return Ok(StatusCode::NO_CONTENT);
    }
    if prompt.state != PromptState::Queued {
        return Err(CommandError::Refused(Refused::NotQueued).into());
    }
    api.supervisor().take_back(prompt.session, prompt.id, by).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn amend(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(amend): Body<PromptChange>,
) -> Result<Json<Prompt>, ApiError> {
    let PromptChange { text, place } = amend;
    if text.is_none() && place.is_none() {
        return Err(ApiError::bad_request("`text` or `place` is needed"));
    }
    if text.as_deref().is_some_and(|text| text.trim().is_empty()) {
        return Err(ApiError::bad_request("text must not be empty"));
    }
    let prompt = api.prompt(&id).await?;
    let input = Input::Amend { prompt: prompt.id, text, place, by };
    api.supervisor().command(prompt.session, input).await?;
    Ok(Json(api.prompt(&prompt.id.to_string()).await?))
}

impl Api {
    /// A prompt that was sent before.
    async fn known(&self, id: Option<PromptId>) -> Result<Option<Prompt>, ApiError> {
        let Some(id) = id else { return Ok(None) };
        Ok(match self.store().prompt(id.to_string()).await? {
            Found::One(prompt) => Some(prompt),
            _ => None,
        })
    }

    async fn prompt(&self, typed: &str) -> Result<Prompt, ApiError> {
        the("prompt", typed, self.store().prompt(typed.to_owned()).await?)
    }
}
