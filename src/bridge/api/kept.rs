//! What a person does to a session shows that somebody needs it: it does not end when the ACP client that started it leaves.

use axum::extract::{RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

use super::Api;
use super::access::Caller;
use crate::domain::SessionId;
use crate::store::Found;

/// What the `{id}` of a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Session,
    Clearance,
    Question,
    Prompt,
}

impl Named {
    /// `None` if nothing is done to a session there.
    pub(super) fn by(method: &Method, path: &str) -> Option<Self> {
        if method == Method::GET {
            return None;
        }
        match path.split('/').collect::<Vec<_>>()[..] {
            // Whoever ends a session does not need it.
            ["", "sessions", "{id}", "stop" | "kill"] => None,
            ["", "sessions", "{id}", ..] => Some(Self::Session),
            ["", "clearances", "{id}", ..] => Some(Self::Clearance),
            ["", "questions", "{id}", ..] => Some(Self::Question),
            ["", "prompts", "{id}", ..] => Some(Self::Prompt),
            _ => None,
        }
    }
}

pub(super) async fn keep(
    State((api, named)): State<(Api, Named)>,
    params: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let by = request.extensions().get::<Caller>().filter(|caller| !caller.is_acp_client());
    let by = by.map(|caller| caller.name.clone());
    let id = params.iter().next().map(|(_, id)| id.to_owned());
    let response = next.run(request).await;
    if let (Some(by), Some(id), true) = (by, id, response.status().is_success())
        && let Some(session) = api.session_of(named, &id).await
    {
        api.supervisor().keep_session(session, by).await;
    }
    response
}

impl Api {
    async fn session_of(&self, named: Named, id: &str) -> Option<SessionId> {
        let id = id.to_owned();
        match named {
            Named::Session => one(self.store().session(id).await).map(|session| session.id),
            Named::Clearance => one(self.store().clearance(id).await).map(|clearance| clearance.session),
            Named::Question => one(self.store().question(id).await).map(|question| question.session),
            Named::Prompt => one(self.store().prompt(id).await).map(|prompt| prompt.session),
        }
    }
}

fn one<T, E>(found: Result<Found<T>, E>) -> Option<T> {
    match found {
        Ok(Found::One(found)) => Some(found),
        _ => None,
    }
}
