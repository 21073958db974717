//! Who is at the other end of the socket. Only the daemon's own user is let in.

use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use nix::unistd::{Uid, User};
use tokio::net::UnixListener;

use super::error::ApiError;

/// The user of the connected process, by the kernel's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    uid: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self { uid: stream.io().peer_cred().ok().map(|peer| peer.uid()) }
    }
}

/// Refuses everybody but the daemon's own user.
pub(super) async fn admit(ConnectInfo(peer): ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    if peer.uid == Some(Uid::effective().as_raw()) {
        return next.run(request).await;
    }
    tracing::warn!(uid = peer.uid, "a stranger was refused");
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", "only the daemon's own user may use this socket")
        .into_response()
}

/// The name under which a caller's commands are recorded.
pub(super) struct Operator(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let uid = parts.extensions.get::<ConnectInfo<Peer>>().and_then(|info| info.0.uid);
        let uid = uid.ok_or_else(|| ApiError::new(StatusCode::FORBIDDEN, "forbidden", "unknown caller"))?;
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        Ok(Self(user.map_or_else(|| format!("uid {uid}"), |user| user.name)))
    }
}
