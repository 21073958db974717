//! REST and server-sent events, under `/api/v1`, on a unix socket and, with a token, on a port.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::routing::get;

mod access;
mod console_files;
mod error;
mod events;
mod extract;
mod guard;
mod handlers;
mod health;
mod idempotency;
mod routes;
pub mod serve;
mod web;

pub(crate) use access::KnownCaller;
pub(crate) use error::ApiError;
pub(super) use error::{no_such_method, no_such_path};
pub(crate) use guard::own_address;

use super::health::HealthRegistry;
use intercom_daemon::ops::{Operations, RequiredRole};
use intercom_daemon::supervisor::Supervisor;
use intercom_store::StoreError;
use intercom_types::{Role, SessionId};
use tokio_util::sync::CancellationToken;

/// The state of all handlers.
#[derive(Debug, Clone)]
pub struct ApiBridge(Arc<ApiShared>);

struct ApiShared {
    ops: Operations,
    failures: guard::RefusedTokens,
    agents_refused: guard::NoticeLimiter<Option<SessionId>>,
    users_refused: guard::NoticeLimiter<Option<u32>>,
    lookups: access::OwnerLookups,
    /// The health of the other bridges.
    conditions: HealthRegistry,
    /// Streams end when the daemon does.
    closing: CancellationToken,
}

impl std::fmt::Debug for ApiShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("ops", &self.ops).finish_non_exhaustive()
    }
}

impl ApiBridge {
    /// `token` is an additional token from the daemon's environment.
    pub async fn open(
        ops: Operations,
        conditions: HealthRegistry,
        token: Option<String>,
        closing: CancellationToken,
    ) -> Result<Self, StoreError> {
        ops.load_access(token.as_deref()).await?;
        let supervisor = ops.supervisor().clone();
        supervisor.inspect_surroundings().await;
        let lookups = access::OwnerLookups::start(supervisor);
        Ok(Self(Arc::new(ApiShared {
            ops,
            failures: guard::RefusedTokens::default(),
            agents_refused: guard::NoticeLimiter::default(),
            users_refused: guard::NoticeLimiter::default(),
            lookups,
            conditions,
            closing,
        })))
    }

    fn ops(&self) -> &Operations {
        &self.0.ops
    }

    fn supervisor(&self) -> &Supervisor {
        self.ops().supervisor()
    }

    /// Returns the router of everything. Connections carry a [`serve::Peer`]; `others` is behind the same
    /// authentication and gets a [`Caller`](intercom_daemon::ops::Caller) with each request of a known caller.
    pub fn router(self, others: Router<Self>) -> Router {
        let limit = DefaultBodyLimit::max(self.supervisor().config().limits.max_body_bytes);
        let metrics = get(health::metrics)
            .layer(from_fn_with_state((self.clone(), RequiredRole::Role(Role::Viewer)), access::require));
        Router::new()
            .nest("/api/v1", routes::router(&self))
            .route("/metrics", metrics)
            .layer(limit)
            .merge(others)
            .fallback(console_files::serve)
            .method_not_allowed_fallback(error::no_such_method)
            .layer(from_fn_with_state(self.clone(), access::identify))
            .layer(map_response(console_files::protect))
            // Outermost: a viewer's answer must be redacted before it is compressed.
            .layer(from_fn(super::compress::compress))
            .with_state(self)
    }
}
