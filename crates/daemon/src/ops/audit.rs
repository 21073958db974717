//! The audit: entries that belong to no session's log, pages of rows, and the verification of the chain.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Caller, OpError, OperationKind, Operations, limit};
use intercom_store::AuditFilter;
use intercom_types::{AuditPage, AuditProblem, AuditVerdict, Json, NewAuditRow, SessionId, Time};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Rows after this one.
    pub(crate) after: Option<u64>,
    /// Rows before this one, newest first.
    pub(crate) before: Option<u64>,
    /// Rows from this time on, RFC 3339.
    pub(crate) since: Option<String>,
    /// A session's id, even if retention has removed the session.
    pub(crate) session: Option<String>,
    pub(crate) limit: Option<usize>,
}

pub(super) fn audited(action: &str, by: &str, session: Option<SessionId>, data: Json) -> NewAuditRow {
    NewAuditRow { at: Time::now(), action: action.to_owned(), by: by.to_owned(), session, data }
}

impl Operations {
    /// Writes an entry. Returns false if that fails; the entry is then in the trace.
    pub async fn record(&self, action: &str, by: &str, session: Option<SessionId>, data: Json) -> bool {
        let written = self.store().audit(audited(action, by, session, data)).await;
        if let Err(error) = &written {
            tracing::error!(%error, action, by, "an audit entry could not be written");
        }
        written.is_ok()
    }

    /// Returns a page of the audit, oldest first, or newest first `before` a row.
    pub async fn audit(&self, caller: &Caller, query: AuditQuery) -> Result<AuditPage, OpError> {
        self.admit(caller, OperationKind::ReadAudit)?;
        let AuditQuery { after, before, since, session, limit: most } = query;
        if after.is_some() && before.is_some() {
            return Err(OpError::bad_request("`after` and `before` exclude each other"));
        }
        let since = since.map(|text| {
            Time::parse(&text).ok_or_else(|| OpError::bad_request("since must be an RFC 3339 time"))
        });
        let since = since.transpose()?;
        let session = match session {
            None => None,
            // A complete id needs no lookup: its session may have been removed.
            Some(typed) => Some(match typed.parse() {
                Ok(id) => id,
                Err(_) => self.session_record(&typed).await?.id,
            }),
        };
        let filter = AuditFilter { after: after.unwrap_or(0), before, since, session };
        let limit = limit(most)?;
        let items = self.store().audit_rows(filter, limit).await?;
        let next = items.last().filter(|_| items.len() == limit).map(|row| row.n);
        Ok(AuditPage { items, next })
    }

    /// Verifies every row and every link of the audit chain.
    pub async fn verify_audit(&self, caller: &Caller) -> Result<AuditVerdict, OpError> {
        self.admit(caller, OperationKind::ReadAudit)?;
        let found = self.store().verify_audit().await?;
        let listed = |rows: Vec<(u64, String)>| -> Vec<AuditProblem> {
            rows.into_iter().map(|(n, what)| AuditProblem { n, what }).collect()
        };
        Ok(AuditVerdict {
            whole: found.problems.is_empty(),
            rows: found.rows,
            head: found.head,
            problems: listed(found.problems),
            notes: listed(found.notes),
            anchors: found.anchors,
        })
    }
}
