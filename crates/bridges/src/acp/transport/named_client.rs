//! Two addresses with a name of the client's own choice: it posts to one and listens at the other. Either may come first.

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
    State(door): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    request: Request,
) -> Result<Response, ApiError> {
    is_json(request.headers())?;
    let hub = connected(&door, &caller, request.uri())?;
    http::take(&hub, request, None, door.settings().max_message_bytes).await
}

pub(super) async fn listen(
    State(door): State<TransportState>,
    KnownCaller(caller): KnownCaller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let last = http::last_id(&headers)?;
    let hub = connected(&door, &caller, &uri)?;
    hub.listen(caller, None, last).map_err(http::closed)
}

/// The connection of this name, which is there from its first use on.
fn connected(
    door: &TransportState,
    caller: &Caller,
    uri: &Uri,
) -> Result<std::sync::Arc<HttpConnection>, ApiError> {
    let mut wishes = ConnectQuery::read(uri)?;
    let name = wishes.client_id.take().filter(|name| !name.is_empty() && name.len() <= http::LONGEST_NAME);
    let name = name.ok_or_else(|| ApiError::bad_request("client_id: a name of your own is needed"))?;
    let manner = wishes.into_options()?;
    if manner.relay {
        return Err(ApiError::bad_request("relay is for WebSockets"));
    }
    let name = ConnectionKey::Chosen(caller.name.clone(), caller.role, name);
    door.find_or_open(name, caller, manner)
}
