//! The audit over the API.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ApiBridge;
use super::error::ApiError;
use super::extract::{NoFields, StrictQuery};
use super::view::{self, AuditView};
use intercom_daemon::ops::limit;
use intercom_store::AuditFilter;
use intercom_types::Time;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    /// Rows after this one.
    after: Option<u64>,
    /// Rows before this one, newest first.
    before: Option<u64>,
    /// Rows from this time on, RFC 3339.
    since: Option<String>,
    /// A session's id, even if retention has removed the session.
    session: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AuditPage {
    items: Vec<AuditView>,
    /// The value of `after`, or of `before`, for the next page.
    next: Option<u64>,
}

pub(super) async fn list(
    State(api): State<ApiBridge>,
    StrictQuery(query): StrictQuery<AuditQuery>,
) -> Result<Json<AuditPage>, ApiError> {
    if query.after.is_some() && query.before.is_some() {
        return Err(ApiError::bad_request("`after` and `before` exclude each other"));
    }
    let since = match &query.since {
        None => None,
        Some(text) => {
            Some(Time::parse(text).ok_or_else(|| ApiError::bad_request("since must be an RFC 3339 time"))?)
        }
    };
    let session = match &query.session {
        None => None,
        // A complete id needs no lookup: its session may have been removed.
        Some(typed) => Some(match typed.parse() {
            Ok(id) => id,
            Err(_) => api.ops().session_record(typed).await?.id,
        }),
    };
    let filter = AuditFilter { after: query.after.unwrap_or(0), before: query.before, since, session };
    let limit = limit(query.limit)?;
    let rows = api.store().audit_rows(filter, limit).await?;
    let next = rows.last().filter(|_| rows.len() == limit).map(|row| row.n);
    Ok(Json(AuditPage { items: rows.into_iter().map(view::audit).collect(), next }))
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct VerifiedView {
    /// True if no problem was found.
    whole: bool,
    rows: u64,
    /// The hash of the last row. Stored elsewhere, it proves later that no row before it was rewritten.
    head: String,
    problems: Vec<ProblemView>,
    /// Restores from a backup, with the rows that are missing because of them.
    notes: Vec<ProblemView>,
    /// The number of compared lines of the anchor file.
    anchors: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ProblemView {
    n: u64,
    what: String,
}

pub(super) async fn verify(
    State(api): State<ApiBridge>,
    StrictQuery(NoFields {}): StrictQuery<NoFields>,
) -> Result<Json<VerifiedView>, ApiError> {
    let found = api.store().verify_audit().await?;
    let view = |rows: Vec<(u64, String)>| rows.into_iter().map(|(n, what)| ProblemView { n, what }).collect();
    let (problems, notes): (Vec<ProblemView>, _) = (view(found.problems), view(found.notes));
    let whole = problems.is_empty();
    let (rows, head, anchors) = (found.rows, found.head, found.anchors);
    Ok(Json(VerifiedView { whole, rows, head, problems, notes, anchors }))
}
