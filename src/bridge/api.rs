//! REST and server-sent events, under `/api/v1`, on a unix socket that only the daemon's own user may use.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{delete, get, post};

mod agents;
mod clearances;
mod error;
mod events;
mod extract;
mod health;
mod idempotency;
mod peer;
mod prompts;
mod questions;
mod sessions;
mod view;

pub use peer::Peer;

use crate::bus::Bell;
use crate::store::Store;
use crate::supervisor::Supervisor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What every handler may use.
#[derive(Debug, Clone)]
pub struct Api(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    supervisor: Supervisor,
    bell: Bell,
    idempotency: idempotency::Keys,
    /// Requests that go on after their caller has hung up.
    tasks: TaskTracker,
    /// Streams end when the daemon does.
    closing: CancellationToken,
}

impl Api {
    pub fn new(supervisor: Supervisor, bell: Bell, closing: CancellationToken) -> Self {
        let idempotency = idempotency::Keys::default();
        Self(Arc::new(Inner { supervisor, bell, idempotency, tasks: TaskTracker::new(), closing }))
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

    /// Everything, as one service.
    pub fn router(self) -> Router {
        let limit = self.supervisor().config().limits.max_body_bytes;
        let v1 = Router::new()
            .route("/health", get(health::health))
            .route("/agents", get(agents::list))
            .route("/backup", post(health::backup))
            .route("/sessions", get(sessions::list).post(sessions::start))
            .route("/sessions/{id}", get(sessions::show))
            .route("/sessions/{id}/prompts", get(prompts::list).post(prompts::send))
            .route("/sessions/{id}/nudge", post(sessions::nudge))
            .route("/sessions/{id}/interrupt", post(sessions::interrupt))
            .route("/sessions/{id}/stop", post(sessions::stop))
            .route("/sessions/{id}/kill", post(sessions::kill))
            .route("/sessions/{id}/resume", post(sessions::resume))
            .route("/prompts/{id}", delete(prompts::take_back))
            .route("/clearances", get(clearances::list))
            .route("/clearances/{id}", get(clearances::show))
            .route("/clearances/{id}/decision", post(clearances::decide))
            .route("/questions", get(questions::list))
            .route("/questions/{id}", get(questions::show))
            .route("/questions/{id}/answer", post(questions::answer))
            .route("/events", get(events::events))
            .layer(from_fn_with_state(self.clone(), idempotency::honour));
        Router::new()
            .nest("/api/v1", v1)
            .route("/metrics", get(health::metrics))
            .fallback(error::no_such_path)
            .method_not_allowed_fallback(error::no_such_method)
            .layer(DefaultBodyLimit::max(limit))
            .layer(from_fn(peer::admit))
            .with_state(self)
    }
}
