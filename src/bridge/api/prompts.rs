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
use super::view::{self, List, PromptView};
use crate::domain::{Content, Json as Raw, Prompt, PromptId, PromptState, Wording};
use crate::session::{CommandError, Input, Refused};
use crate::store::Found;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    limit: Option<usize>,
    cursor: Option<i64>,
}

pub(super) async fn list(
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Json<List<PromptView>>, ApiError> {
    let session = api.session(&id).await?.id;
    let page = api.store().prompts(session, query.cursor, limit(query.limit)?).await?;
    Ok(Json(List::of(page, view::prompt)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Send {
    /// An id of the caller's own making, `prm_` and 16 characters: sent again, it is the same prompt and not another one.
    id: Option<String>,
    /// In words. Without them, they are made of the content.
    text: Option<String>,
    /// All of it: content blocks as the Agent Client Protocol has them, told to agents that speak it as they came. Others
    /// are told the text.
    #[schemars(with = "Option<Vec<serde_json::Map<String, serde_json::Value>>>")]
    content: Option<Raw>,
    /// Whether to wait a moment for its delivery; it is waited for unless this is `false`.
    wait: Option<bool>,
}

impl Send {
    fn wording(&self) -> Result<Wording, ApiError> {
        let bad = || ApiError::bad_request("content must be a list of content blocks, each an object");
        let content = self.content.as_ref().map(|raw| Content::read(raw).ok_or_else(bad)).transpose()?;
        let content = content.filter(|content| !content.is_empty());
        let said = self.text.clone().filter(|text| !text.trim().is_empty());
        let text = said.or_else(|| content.as_ref().map(Content::text)).unwrap_or_default();
        if text.is_empty() {
            return Err(ApiError::bad_request("text must not be empty"));
        }
        Ok(Wording { text, content })
    }
}

pub(super) async fn send(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(send): Body<Send>,
) -> Result<(StatusCode, Json<PromptView>), ApiError> {
    let wording = send.wording()?;
    let session = api.session(&id).await?;
    let id = send.id.as_deref().map(str::parse::<PromptId>).transpose();
    let id = id.map_err(|error| ApiError::bad_request(format!("id: {error}")))?;
    if let Some(known) = api.known(id).await? {
        if known.session != session.id {
            return Err(ApiError::conflict("id_taken", "another session has a prompt with this id"));
        }
        return Ok((StatusCode::ACCEPTED, Json(view::prompt(known))));
    }
    let done = api.command(&session, Input::Prompt { id, wording, by }).await?;
    if send.wait != Some(false) {
        done.arrival.wait().await;
    }
    let id = done.prompt.map(|id| id.to_string()).unwrap_or_default();
    let prompt = api.prompt(&id).await?;
    Ok((StatusCode::ACCEPTED, Json(view::prompt(prompt))))
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

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Amend {
    /// Other words.
    text: Option<String>,
    /// Another place in the queue; 0 is the next to leave.
    place: Option<usize>,
}

pub(super) async fn amend(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(amend): Body<Amend>,
) -> Result<Json<PromptView>, ApiError> {
    let Amend { text, place } = amend;
    if text.is_none() && place.is_none() {
        return Err(ApiError::bad_request("`text` or `place` is needed"));
    }
    if text.as_deref().is_some_and(|text| text.trim().is_empty()) {
        return Err(ApiError::bad_request("text must not be empty"));
    }
    let prompt = api.prompt(&id).await?;
    let input = Input::Amend { prompt: prompt.id, text, place, by };
    api.supervisor().command(prompt.session, input).await?;
    Ok(Json(view::prompt(api.prompt(&prompt.id.to_string()).await?)))
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
