//! A client's place at the API: everything it does goes through there, as the person it belongs to.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::refusal::Refusal;
use crate::bridge::api::inside::{Answer, Inside};
use crate::bridge::api::{ACP_CLIENT, Caller, Person};
use crate::domain::{List, Role, Session, SessionId};

#[derive(Debug, Clone)]
pub(super) struct Seat {
    inside: Inside,
    person: Person,
}

/// A profile.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Profile {
    pub(super) name: String,
    pub(super) protocol: String,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) availability: Option<String>,
    /// What an agent of it told when it was ready, `{initialize, session}`.
    #[serde(default)]
    pub(super) known: Option<Value>,
}

impl Seat {
    pub(super) fn new(inside: Inside, who: &Caller) -> Self {
        let person = Person { name: who.name.clone(), role: who.role, via: ACP_CLIENT, local: who.local };
        Self { inside, person }
    }

    pub(super) fn name(&self) -> &str {
        &self.person.name
    }

    pub(super) fn role(&self) -> Role {
        self.person.role
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        read(self.inside.get(&self.person, path).await)
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Refusal> {
        read(self.inside.post(&self.person, path, body, None).await)
    }

    /// Whatever came of it.
    pub(super) async fn try_post(&self, path: &str, body: &Value) -> Answer {
        self.inside.post(&self.person, path, body, None).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<(), Refusal> {
        let answer = self.inside.delete(&self.person, path).await;
        if answer.is_ok() { Ok(()) } else { Err(Refusal::of(&answer)) }
    }

    /// A session by its id. Clients are given ids and keep them: a prefix or a name that came to mean another one would be
    /// somebody else's session.
    pub(super) async fn session(&self, id: &str) -> Result<Session, Refusal> {
        let Ok(known) = id.parse::<SessionId>() else { return Err(Refusal::no_session(id)) };
        let answer = self.inside.get(&self.person, &format!("/sessions/{known}")).await;
        if answer.status == 404 { Err(Refusal::no_session(id)) } else { read(answer) }
    }

    pub(super) async fn profiles(&self) -> Result<Vec<Profile>, Refusal> {
        Ok(self.get::<List<Profile>>("/agents").await?.items)
    }
}

fn read<T: DeserializeOwned>(answer: Answer) -> Result<T, Refusal> {
    if !answer.is_ok() {
        return Err(Refusal::of(&answer));
    }
    serde_json::from_value(answer.body).map_err(|error| Refusal::internal(error.to_string()))
}
