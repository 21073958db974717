//! Clearances: list, show, decide.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::Api;
use super::access::Caller;
use super::error::ApiError;
use super::extract::{Body, Nothing, Query, limit, the};
use super::view;
use crate::domain::{Clearance, ClearanceStatus, Decision, List, Quorum, RememberChoice, Role, Verdict};
use crate::session::{CommandError, Input, Refused};
use crate::store::ClearanceFilter;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClearanceQuery {
    #[schemars(with = "Option<String>")]
    status: Option<ClearanceStatus>,
    session: Option<String>,
    /// Leaves out each `description` and `diff`, which may be long; `GET /clearances/{id}` has them.
    #[serde(default)]
    brief: bool,
    limit: Option<usize>,
    cursor: Option<i64>,
}

pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<ClearanceQuery>,
) -> Result<Json<List<Clearance>>, ApiError> {
    let session = match &query.session {
        Some(typed) => Some(api.session(typed).await?.id),
        None => None,
    };
    let filter = ClearanceFilter { status: query.status, session };
    let page = api.store().clearances(filter, query.cursor, limit(query.limit)?).await?;
    Ok(Json(view::list(page, |clearance| {
        let view = view::clearance_for(caller.role, clearance);
        if query.brief { view.in_brief() } else { view }
    })))
}

pub(super) async fn show(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    Query(Nothing {}): Query<Nothing>,
) -> Result<Json<Clearance>, ApiError> {
    Ok(Json(view::clearance_for(caller.role, api.clearance(&id).await?)))
}

pub(super) async fn decide(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    Body(decision): Body<Decision>,
) -> Result<Response, ApiError> {
    let clearance = api.clearance(&id).await?;
    let Decision { verdict, reason, option, remember } = decision;
    if let Some(option) = option.as_ref().filter(|id| !clearance.options.iter().any(|known| known.id == **id))
    {
        let message = format!("the agent does not offer an option `{option}`");
        return Err(ApiError::unprocessable("unknown_option", message));
    }
    if clearance.status != ClearanceStatus::Pending {
        return Err(already(clearance));
    }
    if verdict == Verdict::Approve {
        api.may_approve(&caller, &clearance)?;
    }
    let remember = match remember {
        Some(RememberChoice::Rule(remember)) => Some(remember),
        Some(RememberChoice::Plain(true)) => {
            let message = "`remember` takes the rule that was shown: see the clearance's explanation";
            return Err(ApiError::unprocessable("rule_required", message));
        }
        Some(RememberChoice::Plain(false)) | None => None,
    };
    let rule = match &remember {
        Some(_) if verdict == Verdict::Deny => {
            return Err(ApiError::unprocessable("not_rememberable", "only an approval can be remembered"));
        }
        Some(remember) => Some(api.proposed(&clearance, remember).await?),
        None => None,
    };
    let Caller { name: by, via, .. } = caller.clone();
    let input = Input::Decide { clearance: clearance.id, verdict, reason, option, by, via };
    match api.supervisor().command(clearance.session, input).await {
        Ok(done) => done.arrival.wait().await,
        Err(CommandError::Refused(refused @ (Refused::NotOpen | Refused::Ended))) => {
            let now = api.clearance(&clearance.id.to_string()).await?;
            let pending = now.status == ClearanceStatus::Pending;
            return Err(if pending { CommandError::Refused(refused).into() } else { already(now) });
        }
        Err(error) => return Err(error.into()),
    }
    let now = api.clearance(&clearance.id.to_string()).await?;
    // After the decision: what is not approved, also for want of a second approval, is not allowed always, either.
    if let (Some(rule), Some(remember), true) = (&rule, &remember, now.status == ClearanceStatus::Approved) {
        api.remember(&caller, &clearance, rule, remember).await?;
    }
    if now.status == ClearanceStatus::Pending {
        let (approvals, needed) = (now.approvals.clone(), now.needed);
        let quorum = Quorum { approvals, needed, clearance: view::with_action(now) };
        return Ok((StatusCode::ACCEPTED, Json(quorum)).into_response());
    }
    Ok(Json(view::with_action(now)).into_response())
}

/// Somebody or something was first: who, what and when.
fn already(clearance: Clearance) -> ApiError {
    let by = clearance.decided_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let at = clearance.decided_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let why = clearance.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let message = format!("already {}{by}{at}{why}", clearance.status.as_str());
    ApiError::conflict("already_decided", message).with("clearance", json!(view::with_action(clearance)))
}

impl Api {
    /// What the role alone does not say: whom the rule wants asked, and from where.
    pub(super) fn may_approve(&self, caller: &Caller, clearance: &Clearance) -> Result<(), ApiError> {
        let forbidden = |code, message: String| Err(ApiError::new(StatusCode::FORBIDDEN, code, message));
        if self.supervisor().config().clearances.is_local_only(clearance.risk.level()) && !caller.local {
            let message = format!(
                "a {} clearance is approved on the daemon's own machine only",
                clearance.risk.as_str()
            );
            return forbidden("local_only", message);
        }
        let whom = clearance.ruling.as_ref().map(|ruling| ruling.whom.as_slice()).unwrap_or_default();
        let asked = |who: &String| *who == caller.name || who.strip_prefix('@') == Some(caller.role.as_str());
        if !whom.is_empty() && caller.role < Role::Admin && !whom.iter().any(asked) {
            return forbidden("not_asked", format!("this one is for {} to approve", whom.join(", ")));
        }
        Ok(())
    }

    pub(super) async fn clearance(&self, typed: &str) -> Result<Clearance, ApiError> {
        the("clearance", typed, self.store().clearance(typed.to_owned()).await?)
    }
}
