//! The health of the daemon, and the counts for its metrics.

use std::collections::BTreeMap;

use super::{Caller, OpError, OperationKind, Operations};
use crate::session::{failed_commands, quarantined_lines};
use intercom_store::{ClearanceFilter, QuestionFilter};
use intercom_types::{ClearanceStatus, Health, HealthCaller, HealthDetails, QuestionStatus, SessionCounts};

/// The limit on counted pending requests.
const MOST_COUNTED: usize = 1000;

/// The counts for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaemonCounts {
    pub sessions: SessionCounts,
    pub pending_clearances: usize,
    pub pending_questions: usize,
    /// Events ever written to the log.
    pub events: u64,
    pub quarantined_lines: u64,
    pub failed_commands: u64,
}

impl Operations {
    /// Returns the health of the daemon, with details for callers with a role. `bridges` has the health of each bridge.
    pub async fn health(
        &self,
        caller: Option<&Caller>,
        bridges: BTreeMap<String, String>,
    ) -> Result<Health, OpError> {
        let more = match caller {
            None => None,
            Some(caller) => Some(HealthDetails {
                sessions: self.session_counts().await?,
                bridges,
                last_seq: self.bell().listen().newest(),
                warnings: self.warnings().await?,
                quarantined_lines: quarantined_lines(),
                log_migration: self.store().packing_progress().await?,
                you: HealthCaller {
                    name: caller.name.clone(),
                    role: caller.role.to_string(),
                    may_start: caller.role >= self.supervisor().config().access.start(),
                },
            }),
        };
        Ok(Health { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), more })
    }

    pub async fn counts(&self, caller: &Caller) -> Result<DaemonCounts, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let (store, sessions) = (self.store(), self.session_counts().await?);
        let pending = ClearanceFilter { status: Some(ClearanceStatus::Pending), session: None };
        let pending_clearances = store.clearances(pending, None, MOST_COUNTED).await?.items.len();
        let pending = QuestionFilter { status: Some(QuestionStatus::Pending), session: None };
        let pending_questions = store.questions(pending, None, MOST_COUNTED).await?.items.len();
        Ok(DaemonCounts {
            sessions,
            pending_clearances,
            pending_questions,
            events: self.bell().listen().newest(),
            quarantined_lines: quarantined_lines(),
            failed_commands: failed_commands(),
        })
    }

    async fn session_counts(&self) -> Result<SessionCounts, OpError> {
        let (live, total) = self.store().count_sessions().await?;
        Ok(SessionCounts { live, total })
    }

    async fn warnings(&self) -> Result<Vec<String>, OpError> {
        let read_only = self.store().probe_failure().await.map(|why| {
            format!(
                "read-only: the database cannot be written ({why}); commands are refused, agents can be stopped"
            )
        });
        let audit = self.store().audit_warnings().await?;
        let failed = Some(failed_commands()).filter(|count| *count > 0).map(|count| {
            format!("intercom failed at {count} commands and took them back; please report this bug with the daemon's log")
        });
        let audit = audit.into_iter().map(|warning| format!("audit: {warning}"));
        let damaged = self.store().damaged_blocks().into_iter().map(|(first, last)| {
            format!("the log is damaged: some of the events {first} to {last} cannot be read, all others can; restore a backup to have them")
        });
        Ok(read_only.into_iter().chain(failed).chain(audit).chain(damaged).collect())
    }
}
