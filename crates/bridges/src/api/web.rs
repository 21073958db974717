//! Signing in to the web console: a one-time code or a token becomes a session that lives in a cookie.
//!
//! ```text
//!   code, printed or asked for on the socket ──┐
//!                                              ├─► POST /web/sessions ─► cookie ─► the same Caller as everybody
//!   token, pasted ─────────────────────────────┘
//! ```
//! A browser sends a cookie with every request, so a write with one must also show that it is from our own page: see
//! [`guard::own_page`].

use std::net::SocketAddr;

use axum::Json;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::ApiBridge;
use super::access::KnownCaller;
use super::access::Peer;
use super::error::ApiError;
use super::extract::{JsonBody, NoFields, ShortList, StrictQuery};
use super::guard;
use intercom_daemon::ops::{ConsoleAccess, NewConsoleSession, SignInCredential};
use intercom_types::{ConsoleCode, List, ListedWebSession, SignIn};

/// The longest lifetime of a cookie in browsers; the daemon decides when the session ends.
const COOKIE_SECONDS: u32 = 400 * 24 * 60 * 60;

/// Returns the cookie's name. It has the port, because cookies ignore ports: two daemons would sign each other out.
fn cookie_name(local: SocketAddr, tls: bool) -> String {
    let port = local.port();
    if tls { format!("__Host-intercom_{port}") } else { format!("intercom_{port}") }
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

impl ApiBridge {
    pub(super) fn access_by_cookie(
        &self,
        headers: &HeaderMap,
        local: SocketAddr,
        tls: bool,
    ) -> Option<ConsoleAccess> {
        self.ops().console_access(cookie(headers, &cookie_name(local, tls))?)
    }

    async fn refuse_sign_in(&self, from: SocketAddr, sent: &SignInCredential) -> ApiError {
        let refused = self.refuse_token(from).await;
        if matches!(sent, SignInCredential::Token(_)) || refused.is_too_many() {
            return refused;
        }
        ApiError::new(StatusCode::UNAUTHORIZED, "bad_code", "this link was already used or has expired")
            .hint("`intercom console` prints a new one")
    }
}

pub(super) async fn code(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    JsonBody(NoFields {}): JsonBody<NoFields>,
) -> Result<(StatusCode, Json<ConsoleCode>), ApiError> {
    Ok((StatusCode::CREATED, Json(api.ops().console_code(&caller)?)))
}

pub(super) async fn sign_in(
    State(api): State<ApiBridge>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    headers: HeaderMap,
    JsonBody(sign_in): JsonBody<SignIn>,
) -> Result<Response, ApiError> {
    let sent = SignInCredential::try_from(sign_in)?;
    let Peer::Tcp { from, local, tls, recognition } = peer else {
        return Err(ApiError::unprocessable("not_local", "sign-in needs the port: it is for browsers"));
    };
    guard::own_page(&headers)?;
    // Before the lookup of the caller: a guess costs nothing. Checked without using it up: an agent that tries a code
    // must not spoil it.
    if !api.ops().may_sign_in(&sent) {
        return Err(api.refuse_sign_in(from, &sent).await);
    }
    api.refuse_agents(from, local, &recognition).await?;
    let browser = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let signed_in = api.ops().sign_in(&sent, from.ip(), browser).await?;
    let Some(NewConsoleSession { session, secret }) = signed_in else {
        return Err(api.refuse_sign_in(from, &sent).await);
    };
    let value = format!("{}.{secret}", session.id);
    let cookie = set_cookie(&cookie_name(local, tls), &value, tls, COOKIE_SECONDS);
    let listed = ListedWebSession { session, current: true };
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Json(listed)).into_response())
}

fn set_cookie(name: &str, value: &str, tls: bool, seconds: u32) -> String {
    let secure = if tls { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

pub(super) async fn list(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    StrictQuery(query): StrictQuery<ShortList>,
) -> Result<Json<List<ListedWebSession>>, ApiError> {
    Ok(Json(api.ops().console_sessions(&caller, query.limit)?))
}

pub(super) async fn sign_out(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(typed): Path<String>,
) -> Result<Response, ApiError> {
    let own = api.ops().sign_out(&caller, &typed).await?;
    match peer {
        Peer::Tcp { local, tls, .. } if own => {
            let cookie = set_cookie(&cookie_name(local, tls), "", tls, 0);
            Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
        }
        _ => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_tls_a_cookie_is_for_this_host_and_this_way_only() {
        let local = "127.0.0.1:7411".parse().unwrap();
        assert_eq!(cookie_name(local, false), "intercom_7411");
        let set = set_cookie(&cookie_name(local, true), "x", true, 1);
        assert_eq!(set, "__Host-intercom_7411=x; Path=/; Max-Age=1; HttpOnly; SameSite=Strict; Secure");
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "a=1; intercom_7411=x.y; b=2".parse().unwrap());
        headers.append(header::COOKIE, "intercom_80=z".parse().unwrap());
        assert_eq!(cookie(&headers, "intercom_7411"), Some("x.y"));
        assert_eq!(cookie(&headers, "intercom_80"), Some("z"));
        assert_eq!(cookie(&headers, "intercom_741"), None);
    }
}
