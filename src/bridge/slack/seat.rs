//! The bridge's own place at the API: it reads as a viewer, from whom secrets are hidden, and acts as the operator who
//! clicked or typed, with that person's role and nothing more.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bridge::api::Person;
use crate::bridge::api::inside::{Answer, Inside, quoted};
use crate::config::Config;
use crate::domain::{Clearance, List, Question};
use crate::domain::{Role, Session};
use crate::store::StoreError;
use crate::supervisor::Supervisor;

/// How many of those are looked at that began last, whether or not they have ended.
const RECENT: usize = 50;
/// Of what runs and of what waits, as many as the API gives at once: none of it may go unseen.
const ALL: usize = 1000;

/// What the record says.
const VIA: &str = "slack";

#[derive(Debug, Clone)]
pub(super) struct Seat {
    inside: Inside,
    supervisor: Supervisor,
    viewer: Person,
}

impl Seat {
    pub(super) fn new(inside: Inside, supervisor: Supervisor) -> Self {
        Self {
            inside,
            supervisor,
            viewer: Person { name: "slack".to_owned(), role: Role::Viewer, via: VIA, local: false },
        }
    }

    /// From whom secrets are hidden.
    pub(super) fn viewer(&self) -> &Person {
        &self.viewer
    }

    /// As it is now.
    pub(super) fn config(&self) -> Arc<Config> {
        self.supervisor.config()
    }

    /// Who a Slack user is here. Nobody, unless the configuration says so.
    pub(super) fn operator(&self, user: &str) -> Option<Person> {
        let config = self.config();
        let found = config.operators.iter().find(|operator| operator.slack.as_deref() == Some(user))?;
        Some(Person { name: found.name.clone(), role: found.role(), via: VIA, local: false })
    }

    /// `None` if there is no such thing. What cannot be read now is an error: it may be there all the same.
    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, StoreError> {
        let answer = self.inside.get(&self.viewer, path).await;
        if answer.is_fault() {
            return Err(StoreError::Unavailable(answer.why()));
        }
        Ok(answer.read())
    }

    async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, StoreError> {
        let list: Option<List<T>> = self.read(path).await?;
        Ok(list.map(|list| list.items).unwrap_or_default())
    }

    /// By its id, its name, or the beginning of either.
    pub(super) async fn session(&self, typed: &str) -> Result<Option<Session>, StoreError> {
        self.read(&format!("/sessions/{}", quoted(typed))).await
    }

    pub(super) async fn clearance(&self, id: &str) -> Result<Option<Clearance>, StoreError> {
        self.read(&format!("/clearances/{}", quoted(id))).await
    }

    pub(super) async fn question(&self, id: &str) -> Result<Option<Question>, StoreError> {
        self.read(&format!("/questions/{}", quoted(id))).await
    }

    /// Those that have not ended, newest first.
    pub(super) async fn sessions(&self) -> Result<Vec<Session>, StoreError> {
        self.list(&format!("/sessions?limit={ALL}")).await
    }

    /// Those that began last, also if they have ended.
    pub(super) async fn recent_sessions(&self) -> Result<Vec<Session>, StoreError> {
        self.list(&format!("/sessions?all=true&limit={RECENT}")).await
    }

    /// The riskiest first, of these the oldest.
    pub(super) async fn pending_clearances(
        &self,
        session: Option<&str>,
    ) -> Result<Vec<Clearance>, StoreError> {
        let of = session.map(|id| format!("&session={}", quoted(id))).unwrap_or_default();
        let mut pending: Vec<Clearance> =
            self.list(&format!("/clearances?status=pending&limit={ALL}{of}")).await?;
        Clearance::sort(&mut pending);
        Ok(pending)
    }

    /// The oldest first.
    pub(super) async fn pending_questions(&self, session: Option<&str>) -> Result<Vec<Question>, StoreError> {
        let of = session.map(|id| format!("&session={}", quoted(id))).unwrap_or_default();
        let mut pending: Vec<Question> =
            self.list(&format!("/questions?status=pending&limit={ALL}{of}")).await?;
        Question::sort(&mut pending);
        Ok(pending)
    }

    pub(super) async fn get(&self, who: &Person, path: &str) -> Answer {
        self.inside.get(who, path).await
    }

    pub(super) async fn post(&self, who: &Person, path: &str, body: &Value, key: &str) -> Answer {
        self.inside.post(who, path, body, Some(key)).await
    }
}
