//! REST and server-sent events, under `/api/v1`, on a unix socket and, with a token, on a port.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::routing::get;

mod access;
mod agents;
mod audit;
mod backup;
mod clearances;
mod error;
mod events;
mod extract;
mod figures;
mod guard;
mod health;
mod idempotency;
pub mod inside;
mod kept;
mod policy;
mod prompts;
mod questions;
mod routes;
pub mod serve;
mod sessions;
mod set;
mod tokens;
mod view;
mod watch;
mod web;

pub use access::Person;
pub(in crate::bridge) use access::{ACP_CLIENT, Caller};
pub use agents::agents_of;
pub(in crate::bridge) use error::ApiError;
pub(super) use error::{no_such_method, no_such_path};
pub(in crate::bridge) use guard::own_address;
pub use policy::ReadConfig;
pub use web::NoConsole;

use super::condition::Conditions;
use crate::bus::Bell;
use crate::domain::{Role, SessionId, Time};
use crate::store::{Store, StoreError};
use crate::supervisor::Supervisor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What every handler may use.
#[derive(Debug, Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    supervisor: Supervisor,
    bell: Bell,
    read_config: ReadConfig,
    idempotency: idempotency::Keys,
    backup: backup::RunningBackup,
    tokens: tokens::Tokens,
    web: web::Web,
    failures: guard::Failures,
    agents_refused: guard::Noted<Option<SessionId>>,
    users_refused: guard::Noted<Option<u32>>,
    lookups: access::Lookups,
    /// How the others are.
    conditions: Conditions,
    /// Requests that go on after their caller has hung up.
    tasks: TaskTracker,
    /// Streams end when the daemon does.
    closing: CancellationToken,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("supervisor", &self.supervisor).finish_non_exhaustive()
    }
}

impl Api {
    /// `token` lets somebody in besides those that were made here.
    pub async fn open(
        supervisor: Supervisor,
        bell: Bell,
        read_config: ReadConfig,
        conditions: Conditions,
        token: Option<String>,
        closing: CancellationToken,
    ) -> Result<Self, StoreError> {
        let tokens = tokens::Tokens::load(supervisor.store().tokens().await?);
        let tokens = tokens.with_given(token.as_deref(), Role::Admin);
        let web = web::Web::load(supervisor.store().web_sessions().await?, &tokens);
        supervisor.look_around().await;
        let lookups = access::Lookups::start(supervisor.clone());
        Ok(Self(Arc::new(Inner {
            supervisor,
            bell,
            read_config,
            idempotency: idempotency::Keys::default(),
            backup: backup::RunningBackup::default(),
            tokens,
            web,
            failures: guard::Failures::default(),
            agents_refused: guard::Noted::default(),
            users_refused: guard::Noted::default(),
            lookups,
            conditions,
            tasks: TaskTracker::new(),
            closing,
        })))
    }

    fn supervisor(&self) -> &Supervisor {
        &self.0.supervisor
    }

    fn store(&self) -> &Store {
        self.0.supervisor.store()
    }

    fn bell(&self) -> &Bell {
        &self.0.bell
    }

    /// Everything, as one service. Its connections carry a [`serve::Peer`]; `others` is behind the same door, and sees a
    /// [`Caller`] with each request of somebody whom it knows.
    pub fn router(self, others: Router<Self>) -> Router {
        let most = self.supervisor().config().limits.max_body_bytes;
        self.routes(others, DefaultBodyLimit::max(most))
    }

    /// For other bridges, which look at what they take themselves.
    pub fn inside(self) -> inside::Inside {
        inside::Inside::new(self.routes(Router::new(), DefaultBodyLimit::disable()))
    }

    fn routes(self, others: Router<Self>, limit: DefaultBodyLimit) -> Router {
        let metrics = get(health::metrics)
            .layer(from_fn_with_state((self.clone(), access::Least::Role(Role::Viewer)), access::require));
        Router::new()
            .nest("/api/v1", routes::router(&self))
            .route("/metrics", metrics)
            .layer(limit)
            .merge(others)
            .fallback(super::web::serve)
            .method_not_allowed_fallback(error::no_such_method)
            .layer(from_fn_with_state(self.clone(), access::identify))
            .layer(map_response(super::web::protect))
            // Outermost: secrets are hidden from viewers before it.
            .layer(from_fn(super::compress::compress))
            .with_state(self)
    }

    /// Whether anybody could come in over the network.
    pub fn has_tokens(&self) -> bool {
        !self.0.tokens.is_empty(Time::now())
    }
}
