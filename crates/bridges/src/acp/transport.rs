//! The ways in: what a client may speak to get here. Each of them only moves texts between a client and its connection.
//!
//! ```text
//!   GET /acp, upgraded ───────────────► socket ─────────┐
//!   POST, GET, DELETE /acp ───────────► http ──► hub ───┼─► connection
//!   POST /acp/rpc, GET /acp/sse ──────► pair ──► hub ───┤
//!   POST /acp on its own, GET /acp/events ────► alone ──┘
//! ```

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

/// The names of a connection and of one of its sessions, in requests and answers.
const CONNECTION: &str = "acp-connection-id";
const SESSION: &str = "acp-session-id";

/// State shared by all transports.
#[derive(Debug, Clone)]
struct TransportState {
    acp: AcpBridge,
    connections: Arc<Mutex<HashMap<ConnectionKey, Arc<HttpConnection>>>>, // for a look or a change
}

/// The key of a connection over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ConnectionKey {
    Given(String),
    /// By a person, with a role.
    Chosen(String, Role, String),
}

impl AcpBridge {
    pub fn router<S: Clone + Send + Sync + 'static>(&self, conditions: &HealthRegistry) -> Router<S> {
        let door = TransportState { acp: self.clone(), connections: Arc::default() };
        let figures = Arc::clone(&self.0.metrics);
        conditions.ask("acp", move || figures.condition());
        Router::new()
            .route("/acp", get(listen).post(http::post).delete(http::delete))
            .route("/acp/rpc", post(named_client::post))
            .route("/acp/sse", get(named_client::listen))
            .route("/acp/events", get(stateless::events))
            .layer(DefaultBodyLimit::disable()) // each has its own
            .layer(from_fn_with_state(door.clone(), require_enabled))
            .with_state(door)
    }
}

async fn require_enabled(State(door): State<TransportState>, request: Request, next: Next) -> Response {
    if door.settings().enabled {
        return next.run(request).await;
    }
    ApiError::new(StatusCode::NOT_FOUND, "not_found", "ACP clients are not taken here: see [seats] enabled")
        .into_response()
}

async fn listen(
    State(door): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    request: Request,
) -> Result<Response, ApiError> {
    if has_header_token(request.headers(), header::UPGRADE, "websocket") {
        return socket::open(door, caller, request);
    }
    http::listen(&door, caller, request.headers())
}

impl TransportState {
    fn settings(&self) -> AcpServerConfig {
        self.acp.0.ops.supervisor().config().seats.clone()
    }

    /// One of the connections that there may be.
    fn slot(&self) -> Result<ConnectionSlot, ApiError> {
        let most = self.settings().max_connections;
        let slot = ConnectionSlot(Arc::clone(&self.acp.0.metrics));
        // Counted from here on, and given back if it was one too many.
        if slot.0.connections.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(slot);
        }
        let message = format!("{most} ACP clients are connected, and no more are taken");
        Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message)
            .hint("close one, or raise max_connections under [seats] in the configuration"))
    }

    fn lock_connections(&self) -> MutexGuard<'_, HashMap<ConnectionKey, Arc<HttpConnection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody else's is as unknown as one that there is not.
    fn find(&self, name: &ConnectionKey, caller: &Caller) -> Result<Arc<HttpConnection>, ApiError> {
        self.lock_connections().get(name).filter(|hub| hub.is_of(caller)).cloned().ok_or_else(http::gone)
    }

    fn find_or_open(
        &self,
        name: ConnectionKey,
        caller: &Caller,
        manner: ConnectOptions,
    ) -> Result<Arc<HttpConnection>, ApiError> {
        let mut hubs = self.lock_connections();
        if let Some(hub) = hubs.get(&name) {
            return Ok(Arc::clone(hub));
        }
        let slot = self.slot()?;
        let (inlet, outlet) = self.acp.connect(caller.clone(), manner);
        let hub = HttpConnection::new(caller, inlet, Arc::clone(&self.acp.0.metrics), true);
        hubs.insert(name.clone(), Arc::clone(&hub));
        drop(hubs);
        self.run(name, Arc::clone(&hub), outlet, slot);
        Ok(hub)
    }

    fn register(
        &self,
        name: ConnectionKey,
        hub: Arc<HttpConnection>,
        outlet: ClientOutlet,
        slot: ConnectionSlot,
    ) {
        self.lock_connections().insert(name.clone(), Arc::clone(&hub));
        self.run(name, hub, outlet, slot);
    }

    fn forget(&self, name: &ConnectionKey) {
        self.lock_connections().remove(name);
    }

    /// It ends with the client, and with the daemon, which ends its outlet.
    fn run(&self, name: ConnectionKey, hub: Arc<HttpConnection>, outlet: ClientOutlet, slot: ConnectionSlot) {
        let (door, idle) = (self.clone(), self.settings().idle());
        self.acp.0.tasks.spawn(async move {
            hub.run(outlet, idle).await;
            // A newer one may have this name already.
            let mut hubs = door.lock_connections();
            if hubs.get(&name).is_some_and(|known| Arc::ptr_eq(known, &hub)) {
                hubs.remove(&name);
            }
            drop(slot);
        });
    }
}

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
    /// For two of the addresses.
    client_id: Option<String>,
}

impl ConnectQuery {
    fn read(uri: &Uri) -> Result<Self, ApiError> {
        let wishes = axum::extract::Query::try_from_uri(uri);
        wishes.map(|wishes| wishes.0).map_err(|rejection| ApiError::bad_request(rejection.body_text()))
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
fn has_header_token(headers: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    let said = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    said.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
}
