//! Questions: list, show, answer.

use axum::Json;
use axum::extract::{Path, State};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::Api;
use super::access::By;
use super::error::ApiError;
use super::extract::{Body, Nothing, Query, limit, the};
use super::view;
use crate::domain::{Answer, List, Question, QuestionAnswer, QuestionStatus};
use crate::session::{CommandError, Input, Refused};
use crate::store::QuestionFilter;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QuestionQuery {
    #[schemars(with = "Option<String>")]
    status: Option<QuestionStatus>,
    session: Option<String>,
    limit: Option<usize>,
    cursor: Option<i64>,
}

pub(super) async fn list(
    State(api): State<Api>,
    Query(query): Query<QuestionQuery>,
) -> Result<Json<List<Question>>, ApiError> {
    let session = match &query.session {
        Some(typed) => Some(api.session(typed).await?.id),
        None => None,
    };
    let filter = QuestionFilter { status: query.status, session };
    let page = api.store().questions(filter, query.cursor, limit(query.limit)?).await?;
    Ok(Json(view::list(page, |question| question)))
}

pub(super) async fn show(
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(Nothing {}): Query<Nothing>,
) -> Result<Json<Question>, ApiError> {
    Ok(Json(api.question(&id).await?))
}

pub(super) async fn answer(
    State(api): State<Api>,
    By(by): By,
    Path(id): Path<String>,
    Body(body): Body<QuestionAnswer>,
) -> Result<Json<Question>, ApiError> {
    let question = api.question(&id).await?;
    let QuestionAnswer { decision: answer, instruction } = body;
    if answer == Answer::Refine && instruction.as_deref().is_none_or(|text| text.trim().is_empty()) {
        let message = "`refine` needs an instruction that says how";
        return Err(ApiError::unprocessable("instruction_required", message));
    }
    if question.status != QuestionStatus::Pending {
        return Err(already(&question));
    }
    let input = Input::Answer { question: question.id, answer, instruction, by };
    match api.supervisor().command(question.session, input).await {
        Ok(done) => done.arrival.wait().await,
        Err(CommandError::Refused(refused @ (Refused::NotOpen | Refused::Ended))) => {
            let now = api.question(&question.id.to_string()).await?;
            let pending = now.status == QuestionStatus::Pending;
            return Err(if pending { CommandError::Refused(refused).into() } else { already(&now) });
        }
        Err(error) => return Err(error.into()),
    }
    Ok(Json(api.question(&question.id.to_string()).await?))
}

fn already(question: &Question) -> ApiError {
    let by = question.answered_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let at = question.answered_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let message = format!("already {}{by}{at}", question.status.as_str());
    ApiError::conflict("already_decided", message).with("question", json!(question))
}

impl Api {
    async fn question(&self, typed: &str) -> Result<Question, ApiError> {
        the("question", typed, self.store().question(typed.to_owned()).await?)
    }
}
