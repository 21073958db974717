//! A transport for clients that choose their own name: they post to `/acp/rpc` and listen at `/acp/sse`, in either
//! order. All messages come on one stream.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;

use super::http_connection::HttpConnection;
use super::inbound::is_json;
use super::{ConnectQuery, ConnectionKey, TransportState, http};
use crate::api::ApiError;
use crate::api::KnownCaller;
use intercom_daemon::ops::Caller;

pub(super) async fn post(
    State(state): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    request: Request,
) -> Result<Response, ApiError> {
    is_json(request.headers())?;
    let connection = find_or_connect(&state, &caller, request.uri())?;
    http::accept_message(&connection, request, None, state.settings().max_message_bytes).await
}

pub(super) async fn listen(
    State(state): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let last = http::last_id(&headers)?;
    let connection = find_or_connect(&state, &caller, &uri)?;
    connection.listen(caller, None, last).map_err(http::refusal_error)
}

/// Returns the connection of this name; its first use opens it.
fn find_or_connect(
    state: &TransportState,
    caller: &Caller,
    uri: &Uri,
) -> Result<std::sync::Arc<HttpConnection>, ApiError> {
    let mut query = ConnectQuery::read(uri)?;
    let name = query.client_id.take().filter(|name| !name.is_empty() && name.len() <= http::MAX_NAME_LENGTH);
    let name = name.ok_or_else(|| ApiError::bad_request("client_id is missing: choose a name"))?;
    let options = query.into_options()?;
    if options.relay {
        return Err(ApiError::bad_request("relay is for WebSockets"));
    }
    let name = ConnectionKey::Chosen(caller.name.clone(), caller.role, name);
    state.find_or_open(name, caller, options)
}
