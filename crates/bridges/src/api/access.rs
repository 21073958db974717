//! Authentication and authorisation of callers.
//!
//! ```text
//!   unix socket ── the kernel says which user and process ──┐
//!                                                           ├─► Caller { name, role } ─► each endpoint's least role
//!   TCP ── Host and Origin checked ── bearer token ─────────┤
//!                                  └─ cookie of the console ┘
//! ```
//! A process below one of our shims is an agent, whatever its user and its token: it gets no access.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::ApiBridge;
use super::error::ApiError;
use super::guard;
use intercom_daemon::ops::{Caller, ConsoleAccess, RequiredRole};
use intercom_daemon::supervisor::ProcessOwner;
use intercom_redact::redact_json;
use intercom_types::{AGENT_PREFIX, Json, Role, Time};

mod lookups;
mod peer;

pub(super) use lookups::{OwnerLookups, UnixClient};
pub(crate) use peer::Peer;
pub(super) use peer::PeerRecognition;

/// The caller of a request, for endpoints that need one.
pub(crate) struct KnownCaller(pub(crate) Caller);

impl<S: Send + Sync> FromRequestParts<S> for KnownCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Caller>().cloned().map(Self).ok_or_else(unknown)
    }
}

fn unknown() -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", "a token is needed").hint(
        "`intercom token create` makes one; send it as `Authorization: Bearer …`, or set INTERCOM_TOKEN",
    )
}

/// The refusal of a process that may be an agent, because it cannot be inspected.
fn unknown_process() -> ApiError {
    let message = "the process that opened this connection has exited or cannot be inspected";
    ApiError::new(StatusCode::FORBIDDEN, "unknown_process", message)
}

/// Identifies the caller, once per request and before anything else. Requests without a caller reach only the endpoints
/// that allow it.
pub(super) async fn identify(
    State(api): State<ApiBridge>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = match &peer {
        Peer::Unix { uid, client, recognition } => api.local(*uid, client.as_ref(), recognition).await,
        Peer::Tcp { from, local, tls, recognition } => {
            api.remote(*from, *local, *tls, recognition, request.method(), request.headers()).await
        }
    };
    match caller {
        Ok(Some(caller)) => {
            request.extensions_mut().insert(caller);
        }
        Ok(None) => {}
        Err(error) => return error.into_response(),
    }
    next.run(request).await
}

/// Lets callers with at least this role through.
pub(super) async fn require(
    State((api, least)): State<(ApiBridge, RequiredRole)>,
    request: Request,
    next: Next,
) -> Response {
    let Some(caller) = request.extensions().get::<Caller>() else { return unknown().into_response() };
    if let Err(error) = api.ops().admit_to(caller, least) {
        return ApiError::from(error).into_response();
    }
    match caller.role {
        Role::Viewer => without_secrets(next.run(request).await).await,
        _ => next.run(request).await,
    }
}

/// Redacts every answer to a viewer. Streams redact themselves.
async fn without_secrets(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("application/json")) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return ApiError::internal("the answer could not be read").into_response();
    };
    let hiding =
        tokio::task::spawn_blocking(move || redact_json(&String::from_utf8_lossy(&bytes)).text.into_owned());
    let Ok(text) = hiding.await else {
        return ApiError::internal("the answer could not be redacted").into_response();
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(text))
}

impl ApiBridge {
    async fn local(
        &self,
        uid: Option<u32>,
        client: Option<&Arc<UnixClient>>,
        recognition: &PeerRecognition,
    ) -> Result<Option<Caller>, ApiError> {
        // Before any lookup: a user without access costs nothing.
        let (name, role) = self.user_of_socket(uid)?;
        // The process that connected counts for every request of the connection: a process that inherits the socket
        // does not act for one that has exited.
        let Some(client) = client.filter(|client| !client.has_exited()) else {
            return Err(unknown_process());
        };
        match recognition.owner(self.0.lookups.owner_of_unix(client)).await {
            ProcessOwner::Nobody => client.recognise(),
            other => {
                client.note_refusal();
                return Err(self.refuse_process(other, "unix socket").await);
            }
        }
        recognition.recognise();
        Ok(Some(Caller::new(name, role, "unix socket", true)))
    }

    /// Returns the name and role of a user on the unix socket.
    fn user_of_socket(&self, uid: Option<u32>) -> Result<(String, Role), ApiError> {
        uid.and_then(|uid| self.ops().local_user(uid)).ok_or_else(|| {
            if self.0.users_refused.is_news(uid, Time::now()) {
                tracing::warn!(
                    uid,
                    "a user without access was refused; further refusals within a minute are not logged"
                );
            }
            let message = "only the daemon's own user and configured operators may use this socket";
            ApiError::new(StatusCode::FORBIDDEN, "forbidden", message)
        })
    }

    async fn remote(
        &self,
        from: SocketAddr,
        local: SocketAddr,
        tls: bool,
        recognition: &PeerRecognition,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, ApiError> {
        guard::host_and_origin(headers, local, &self.supervisor().config().api.hosts)?;
        let via = format!("tcp {}", from.ip());
        let Some(sent) = headers.get(header::AUTHORIZATION) else {
            let Some(ConsoleAccess { session, gone, until }) = self.access_by_cookie(headers, local, tls)
            else {
                return Ok(None);
            };
            guard::refuse_foreign_page(method, headers)?;
            self.refuse_agents(from, local, recognition).await?;
            self.ops().note_console_use(&session, from.ip()).await;
            let role = self.ops().bounded_role(&session.name, session.role);
            let (name, web) = (session.name, Some(session.id));
            return Ok(Some(Caller {
                name,
                role,
                via: format!("web, {via}"),
                local: false,
                revoked: gone,
                until,
                web,
            }));
        };
        let secret = sent.to_str().ok().and_then(|text| bearer(text)).map(str::trim);
        let Some((token, gone)) = secret.and_then(|secret| self.ops().find_token(secret)) else {
            return Err(self.refuse_token(from).await);
        };
        self.refuse_agents(from, local, recognition).await?;
        let role = self.ops().bounded_role(&token.name, token.role);
        self.ops().note_token_use(&token, from.ip()).await;
        let until = token.expires_at;
        Ok(Some(Caller { name: token.name, role, via, local: false, revoked: gone, until, web: None }))
    }

    /// Checks that the process at the other end is no agent; once per connection.
    pub(super) async fn refuse_agents(
        &self,
        from: SocketAddr,
        local: SocketAddr,
        recognition: &PeerRecognition,
    ) -> Result<(), ApiError> {
        // The caller has presented a token, a cookie or a code: the connection is not closed to make room for others.
        recognition.recognise();
        match recognition.owner(self.0.lookups.owner_of_tcp(from, local)).await {
            ProcessOwner::Nobody => Ok(()),
            other => Err(self.refuse_process(other, &format!("tcp {from}")).await),
        }
    }

    /// Refuses and records a call of an agent.
    async fn refuse_process(&self, owner: ProcessOwner, via: &str) -> ApiError {
        let session = match owner {
            ProcessOwner::To(session) => Some(session),
            ProcessOwner::Elsewhere => None,
            ProcessOwner::Nobody | ProcessOwner::Unknown => return unknown_process(),
        };
        let name = session.map_or_else(|| "another daemon".to_owned(), |session| session.to_string());
        tracing::debug!(session.id = name, "an agent called the API and was refused");
        // Only once in a while: an agent in a loop must not fill the audit, which is never trimmed.
        if self.0.agents_refused.is_news(session, Time::now()) {
            let data = Json::of(&json!({ "session": session, "via": via }));
            self.ops().record("access.from_agent", &format!("{AGENT_PREFIX}{name}"), session, data).await;
        }
        ApiError::new(StatusCode::FORBIDDEN, "from_agent", "a process of a session may not use this API")
            .hint("an agent requests clearances through its own protocol")
    }

    pub(super) async fn refuse_token(&self, from: SocketAddr) -> ApiError {
        let failures = self.0.failures.count(from.ip(), Time::now());
        if failures.is_first {
            tracing::warn!(%from, "a token was refused; further refusals within a minute are not logged");
            let data = Json::of(&json!({ "from": from.ip().to_string() }));
            self.ops().record("access.refused", "nobody", None, data).await;
        }
        match failures.wait_seconds {
            Some(seconds) => ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_failures",
                "too many refused tokens from this address",
            )
            .hint(format!("try again in {seconds} s")),
            None => ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", "the token is not valid")
                .hint("it may have expired or been revoked; `intercom token list` shows it"),
        }
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, secret) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(secret)
}
