//! Transports of ACP clients. A transport moves texts between a client and its connection and interprets as little of
//! them as possible.
//!
//! ```text
//!   GET /acp, upgraded ───────────────► socket ────────────────────────────┐
//!   POST, GET, DELETE /acp ───────────► http ─────────► http_connection ───┼─► ClientInlet ─► connection
//!   POST /acp/rpc, GET /acp/sse ──────► named_client ─► http_connection ───┤   ClientOutlet ◄─
//!   POST /acp on its own, GET /acp/events ───────────► stateless ──────────┘
//! ```
//!
//! # Theory of operation
//!
//! *Ownership.* Each client has one connection task (`acp::connection`), which owns its requests and feeds. The
//! transport owns the bytes. They share two bounded queues (`acp::queue`): the inlet holds 64 messages of the client,
//! the outlet 256 messages or 8 MiB for it. A full inlet makes the transport stop reading; a full outlet makes the
//! client's feeds stop reading the log. Nothing is dropped in between.
//!
//! *Tasks.* A WebSocket has one task that reads, writes and pings. An HTTP connection has one task that moves messages
//! from the outlet into the queues of its streams (`stream_queues`); each open stream reads its queue from its own
//! response body. A stateless request has no task: its response body reads the outlet.
//!
//! *Bounds.* `max_connections` limits all transports together; a [`ConnectionSlot`] is one of them, returned on drop. A
//! connection receives 8 bodies at a time, holds 1024 messages or 4 MiB for its streams, and keeps the last 512
//! messages or 256 KiB that it sent for replay. A client may open 16 streams for sessions that have no messages yet.
//!
//! *Order.* The outlet is one sequence. A WebSocket sends it as it is. Over HTTP each message goes to the stream of its
//! session or of the connection, in sequence within a stream; streams are independent, with one exception: the answer
//! to `session/load` or `session/resume` waits until the session's stream has taken the history before it.
//!
//! *Nothing is lost.* A message leaves a stream queue only with an id, and stays in the replay buffer. A stream that
//! reconnects with `Last-Event-ID` gets everything after that id; if that is no longer complete, it gets a 410 and
//! loads the session again, because the log has everything. If the connection ends from our side, its streams still
//! send what is queued; if the client closes it or stays idle too long, the queues are cleared.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use uuid::Uuid;

mod http;
mod http_connection;
mod inbound;
mod named_client;
mod socket;
mod stateless;
mod stream_queues;

use super::{AcpBridge, ClientOutlet, ConnectOptions};
use crate::api::ApiError;
use crate::api::KnownCaller;
use crate::health::HealthRegistry;
use http_connection::HttpConnection;
use intercom_daemon::config::AcpServerConfig;
use intercom_daemon::ops::Caller;
use intercom_types::{OnClientLeft, Role};

/// The headers with the id of a connection and of one of its sessions, in requests and answers.
const CONNECTION: &str = "acp-connection-id";
const SESSION: &str = "acp-session-id";

/// State shared by all transports.
#[derive(Debug, Clone)]
struct TransportState {
    acp: AcpBridge,
    /// The connections over HTTP. A WebSocket needs no entry: it is its own name. Locked only for one lookup or change.
    connections: Arc<Mutex<HashMap<ConnectionKey, Arc<HttpConnection>>>>,
}

/// The key of a connection over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ConnectionKey {
    /// The random id that `initialize` returned.
    Given(String),
    /// The person, the role, and the client's own name. The first two are a part of the key, so that two people who
    /// choose the same name get two connections.
    Chosen(String, Role, String),
}

impl AcpBridge {
    pub fn router<S: Clone + Send + Sync + 'static>(&self, health: &HealthRegistry) -> Router<S> {
        let state = TransportState { acp: self.clone(), connections: Arc::default() };
        let metrics = Arc::clone(&self.0.metrics);
        health.ask("acp", move || metrics.condition());
        Router::new()
            .route("/acp", get(listen).post(http::post).delete(http::delete))
            .route("/acp/rpc", post(named_client::post))
            .route("/acp/sse", get(named_client::listen))
            .route("/acp/events", get(stateless::events))
            .layer(DefaultBodyLimit::disable()) // `read_message` enforces max_message_bytes
            .layer(from_fn_with_state(state.clone(), require_enabled))
            .with_state(state)
    }
}

async fn require_enabled(State(state): State<TransportState>, request: Request, next: Next) -> Response {
    // Read with every request: a reload that turns clients off takes effect without a restart.
    if state.settings().enabled {
        return next.run(request).await;
    }
    ApiError::new(StatusCode::NOT_FOUND, "not_found", "ACP clients are turned off: see [acp_server] enabled")
        .into_response()
}

async fn listen(
    State(state): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    request: Request,
) -> Result<Response, ApiError> {
    // Both transports share this address in the protocol; only the upgrade header tells them apart.
    if has_header_token(request.headers(), header::UPGRADE, "websocket") {
        return socket::open(state, caller, request);
    }
    http::listen(&state, caller, request.headers())
}

impl TransportState {
    fn settings(&self) -> AcpServerConfig {
        self.acp.0.ops.supervisor().config().acp_server.clone()
    }

    /// Reserves one of `max_connections` connections.
    fn slot(&self) -> Result<ConnectionSlot, ApiError> {
        let limit = self.settings().max_connections;
        let slot = ConnectionSlot(Arc::clone(&self.acp.0.metrics));
        // Counted before it is checked: two that arrive together must not both take the last one. Dropping the slot
        // takes the count back.
        if slot.0.connections.fetch_add(1, Ordering::Relaxed) < limit {
            return Ok(slot);
        }
        let message = format!("{limit} ACP clients are connected, which is the maximum");
        Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message)
            .hint("disconnect one, or raise max_connections under [acp_server] in the configuration"))
    }

    fn lock_connections(&self) -> MutexGuard<'_, HashMap<ConnectionKey, Arc<HttpConnection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a connection of this caller. Somebody else's gets the same error as an unknown one, so that an answer does
    /// not confirm a guessed id.
    fn find(&self, name: &ConnectionKey, caller: &Caller) -> Result<Arc<HttpConnection>, ApiError> {
        self.lock_connections()
            .get(name)
            .filter(|connection| connection.is_of(caller))
            .cloned()
            .ok_or_else(http::connection_closed)
    }

    fn find_or_open(
        &self,
        name: ConnectionKey,
        caller: &Caller,
        options: ConnectOptions,
    ) -> Result<Arc<HttpConnection>, ApiError> {
        // One lock over lookup and insert: the client's POST and GET may arrive together, and must share a connection.
        let mut connections = self.lock_connections();
        if let Some(connection) = connections.get(&name) {
            return Ok(Arc::clone(connection));
        }
        let slot = self.slot()?;
        let (inlet, outlet) = self.acp.connect(caller.clone(), options);
        let connection = HttpConnection::new(caller, inlet, Arc::clone(&self.acp.0.metrics), true);
        connections.insert(name.clone(), Arc::clone(&connection));
        // Released first: the task takes the lock when it ends.
        drop(connections);
        self.run(name, Arc::clone(&connection), outlet, slot);
        Ok(connection)
    }

    fn register(
        &self,
        name: ConnectionKey,
        connection: Arc<HttpConnection>,
        outlet: ClientOutlet,
        slot: ConnectionSlot,
    ) {
        self.lock_connections().insert(name.clone(), Arc::clone(&connection));
        self.run(name, connection, outlet, slot);
    }

    fn forget(&self, name: &ConnectionKey) {
        self.lock_connections().remove(name);
    }

    /// Runs the connection in a task of its own. It ends with the client, or with the daemon, which ends the outlet.
    fn run(
        &self,
        name: ConnectionKey,
        connection: Arc<HttpConnection>,
        outlet: ClientOutlet,
        slot: ConnectionSlot,
    ) {
        let (state, idle) = (self.clone(), self.settings().idle());
        self.acp.0.tasks.spawn(async move {
            connection.run(outlet, idle).await;
            // After a DELETE the client may have opened a new connection under this key: that one stays.
            let mut connections = state.lock_connections();
            if connections.get(&name).is_some_and(|known| Arc::ptr_eq(known, &connection)) {
                connections.remove(&name);
            }
            drop(slot);
        });
    }
}

/// One of `max_connections`, released on drop.
#[derive(Debug)]
struct ConnectionSlot(Arc<super::metrics::ClientMetrics>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Preferences that a client may put into the query of its address.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectQuery {
    agent: Option<String>,
    attach: Option<String>,
    on_close: Option<OnClientLeft>,
    relay: Option<u8>,
    /// The client's own name, for `/acp/rpc` and `/acp/sse`.
    client_id: Option<String>,
}

impl ConnectQuery {
    fn read(uri: &Uri) -> Result<Self, ApiError> {
        let query = axum::extract::Query::try_from_uri(uri);
        query.map(|query| query.0).map_err(|rejection| ApiError::bad_request(rejection.body_text()))
    }

    fn into_options(self) -> Result<ConnectOptions, ApiError> {
        if self.client_id.is_some() {
            return Err(ApiError::bad_request("client_id is for /acp/rpc and /acp/sse"));
        }
        let relay = match self.relay {
            None | Some(0) => false,
            Some(1) => true,
            Some(_) => return Err(ApiError::bad_request("relay must be 0 or 1")),
        };
        let Self { agent, attach, on_close, .. } = self;
        Ok(ConnectOptions { agent, attach, on_close, relay, ..ConnectOptions::default() })
    }
}

fn connect_options(uri: &Uri) -> Result<ConnectOptions, ApiError> {
    ConnectQuery::read(uri)?.into_options()
}

fn new_name() -> String {
    format!("con_{}", Uuid::new_v4().simple())
}

/// Returns true if a header contains this token.
fn has_header_token(headers: &HeaderMap, name: header::HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(token))
}
