//! Clearances: list, show, decide.

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::json;

use super::Api;
use super::error::ApiError;
use super::extract::{Body, Nothing, Query, limit, the};
use super::peer::Operator;
use super::view::{self, ClearanceView, List};
use crate::domain::{Clearance, ClearanceStatus, Verdict};
use crate::session::{CommandError, Input, Refused};
use crate::store::ClearanceFilter;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    status: Option<ClearanceStatus>,
    session: Option<String>,
    limit: Option<usize>,
    cursor: Option<i64>,
}

pub(super) async fn list(
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<List<ClearanceView>>, ApiError> {
    let session = match &query.session {
        Some(typed) => Some(api.session(typed).await?.id),
        None => None,
    };
    let filter = ClearanceFilter { status: query.status, session };
    let page = api.store().clearances(filter, query.cursor, limit(query.limit)?).await?;
    Ok(Json(List::of(page, view::clearance)))
}

pub(super) async fn show(
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(Nothing {}): Query<Nothing>,
) -> Result<Json<ClearanceView>, ApiError> {
    Ok(Json(view::clearance(api.clearance(&id).await?)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Decision {
    #[serde(rename = "decision")]
    verdict: Verdict,
    reason: Option<String>,
    option: Option<String>,
    remember: Option<serde_json::Value>,
}

pub(super) async fn decide(
    State(api): State<Api>,
    Operator(by): Operator,
    Path(id): Path<String>,
    Body(decision): Body<Decision>,
) -> Result<Json<ClearanceView>, ApiError> {
    let clearance = api.clearance(&id).await?;
    let Decision { verdict, reason, option, remember } = decision;
    if remember.is_some_and(|remember| remember != serde_json::Value::Bool(false)) {
        return Err(ApiError::unprocessable("unsupported", "decisions cannot be remembered yet"));
    }
    if let Some(option) = option.as_ref().filter(|id| !clearance.options.iter().any(|known| known.id == **id))
    {
        let message = format!("the agent does not offer an option `{option}`");
        return Err(ApiError::unprocessable("unknown_option", message));
    }
    if clearance.status != ClearanceStatus::Pending {
        return Err(already(clearance));
    }
    let input = Input::Decide { clearance: clearance.id, verdict, reason, option, by };
    match api.supervisor().command(clearance.session, input).await {
        Ok(done) => done.arrival.wait().await,
        Err(CommandError::Refused(refused @ (Refused::NotOpen | Refused::Ended))) => {
            let now = api.clearance(&clearance.id.to_string()).await?;
            let pending = now.status == ClearanceStatus::Pending;
            return Err(if pending { CommandError::Refused(refused).into() } else { already(now) });
        }
        Err(error) => return Err(error.into()),
    }
    Ok(Json(view::clearance(api.clearance(&clearance.id.to_string()).await?)))
}

/// Somebody or something was first: who, what and when.
fn already(clearance: Clearance) -> ApiError {
    let by = clearance.decided_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let at = clearance.decided_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let message = format!("already {}{by}{at}", clearance.status.as_str());
    ApiError::conflict("already_decided", message).with("clearance", json!(view::clearance(clearance)))
}

impl Api {
    pub(super) async fn clearance(&self, typed: &str) -> Result<Clearance, ApiError> {
        the("clearance", typed, self.store().clearance(typed.to_owned()).await?)
    }
}
