//! Entries of the audit that belong to no session's log.

use super::Operations;
use intercom_types::{Json, NewAuditRow, SessionId, Time};

pub fn audited(action: &str, by: &str, session: Option<SessionId>, data: Json) -> NewAuditRow {
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
}
