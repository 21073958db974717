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
use std::sync::Arc;

use axum::Json;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::ApiBridge;
use super::access::KnownCaller;
use super::access::Peer;
use super::error::ApiError;
use super::extract::{JsonBody, NoFields, ShortList, StrictQuery};
use super::guard;
use super::tokens::{hash, random_secret};
use intercom_daemon::ops::{Caller, OpError, audited, limit};
use intercom_store::StoredWebSession;
use intercom_types::{Json as Raw, List, Role, Time, TokenId, WebSession, WebSessionId};

mod console_sessions;

use console_sessions::CODE_MILLIS;
pub(super) use console_sessions::ConsoleSessions;

/// The longest lifetime of a cookie in browsers; the daemon decides when the session ends.
const COOKIE_SECONDS: u32 = 400 * 24 * 60 * 60;
const LONGEST_BROWSER: usize = 200;

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

/// The reason why there is no console, and the remedy.
#[derive(Debug, Clone)]
pub struct NoConsole {
    pub why: String,
    pub remedy: String,
}

impl std::fmt::Display for NoConsole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.\nTo get one, {}", self.why, self.remedy)
    }
}

/// The session of a browser's cookie, and the end of its access.
pub(super) struct CookieSession {
    pub(super) session: WebSession,
    pub(super) gone: Arc<CancellationToken>,
    pub(super) until: Option<Time>,
}

impl ApiBridge {
    /// Finds the session of a cookie. An ended session is not an error: the request has no caller then.
    pub(super) fn session_of_cookie(
        &self,
        headers: &HeaderMap,
        local: SocketAddr,
        tls: bool,
    ) -> Option<CookieSession> {
        let now = Time::now();
        let cookie = cookie(headers, &cookie_name(local, tls))?;
        let (session, gone) = self.0.web.find(cookie, now)?;
        let until = match session.token {
            None => None,
            Some(id) => self.0.tokens.get(id, now)?.0.expires_at,
        };
        Some(CookieSession { session, gone, until })
    }

    pub(super) async fn note_web_use(&self, session: &WebSession, from: SocketAddr) {
        let (from, now) = (from.ip().to_string(), Time::now());
        if !self.0.web.is_news(session.id, &from, now) {
            return;
        }
        if let Err(error) = self.store().record_web_session_use(session.id.to_string(), now, from).await {
            tracing::warn!(%error, "the use of a web session could not be recorded");
        }
    }

    /// Sets the address of the console, once the port is open.
    pub fn set_console_url(&self, url: String) {
        self.0.web.url.set(url).ok(); // there is one port
    }

    /// Sets the reason why there is no console.
    pub fn set_console_unavailable(&self, missing: NoConsole) {
        self.0.web.missing.set(missing).ok(); // there is one port
    }

    /// Returns the address of the console; `None` without a port.
    pub fn console_url(&self) -> Option<&str> {
        self.0.web.url.get().map(String::as_str)
    }

    /// Returns a one-time link that signs in the daemon's own user; `None` without a port.
    pub fn first_link(&self) -> Option<String> {
        let url = self.0.web.url.get()?;
        let (name, role) = self.owner();
        let code = self.0.web.mint(&name, role, Time::now()).ok()?;
        Some(link(url, &code))
    }
}

/// Returns the sign-in link. The code is in the fragment, which browsers never send: it is in no log and no header.
fn link(url: &str, code: &str) -> String {
    format!("{url}/#code={code}")
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CodeView {
    code: String,
    /// The one-time link to the console.
    url: String,
    expires_at: String,
}

pub(super) async fn code(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    JsonBody(NoFields {}): JsonBody<NoFields>,
) -> Result<(StatusCode, Json<CodeView>), ApiError> {
    // A session from a code does not end with the token of the caller that asked for the code.
    if !caller.local {
        let message = "codes are created on the daemon's own machine only; sign in with the token itself";
        return Err(ApiError::unprocessable("not_local", message));
    }
    let Some(url) = api.0.web.url.get() else {
        let none = "this daemon has no console";
        return Err(match api.0.web.missing.get() {
            Some(missing) => {
                ApiError::conflict("no_port", format!("{none}: {}", missing.why)).hint(missing.remedy.clone())
            }
            None => ApiError::conflict("no_port", format!("{none}, because it listens on no port"))
                .hint("see [api] listen in the configuration, or `intercom serve --listen`"),
        });
    };
    let now = Time::now();
    let code = api.0.web.mint(&caller.name, caller.role, now)?;
    let expires_at = Time::from_millis(now.millis() + CODE_MILLIS).to_string();
    Ok((StatusCode::CREATED, Json(CodeView { url: link(url, &code), code, expires_at })))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SignIn {
    /// The code of the link, valid once.
    code: Option<String>,
    /// A token of the API, instead of a code.
    token: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WebSessionView {
    id: String,
    name: String,
    role: String,
    /// The token of the sign-in; `null` for a code.
    token: Option<String>,
    created_at: String,
    last_used_at: String,
    last_used_from: String,
    browser: Option<String>,
    /// True for the caller's own sign-in.
    current: bool,
}

fn view(session: WebSession, current: bool) -> WebSessionView {
    WebSessionView {
        id: session.id.to_string(),
        name: session.name,
        role: session.role.as_str().to_owned(),
        token: session.token.map(|id| id.to_string()),
        created_at: session.created_at.to_string(),
        last_used_at: session.last_used_at.to_string(),
        last_used_from: session.last_used_from,
        browser: session.browser,
        current,
    }
}

pub(super) async fn sign_in(
    State(api): State<ApiBridge>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    headers: HeaderMap,
    JsonBody(sign_in): JsonBody<SignIn>,
) -> Result<Response, ApiError> {
    let sent = match sign_in {
        SignIn { code: Some(code), token: None } => SignInCredential::Code(code),
        SignIn { code: None, token: Some(token) } => SignInCredential::Token(token),
        _ => return Err(ApiError::bad_request("send exactly one of `code` and `token`")),
    };
    let Peer::Tcp { from, local, tls, recognition } = peer else {
        return Err(ApiError::unprocessable("not_local", "sign-in needs the port: it is for browsers"));
    };
    guard::own_page(&headers)?;
    let now = Time::now();
    // Before the lookup of the caller: a guess costs nothing. Checked without using it up: an agent that tries a code
    // must not spoil it.
    let is_valid = match &sent {
        SignInCredential::Code(code) => api.0.web.is_code(code.trim(), now),
        SignInCredential::Token(token) => api.0.tokens.find(token.trim(), now).is_some(),
    };
    if !is_valid {
        return Err(api.refuse_sign_in(from, &sent).await);
    }
    api.refuse_agents(from, local, &recognition).await?;
    let found = match &sent {
        SignInCredential::Code(code) => {
            api.0.web.redeem(code.trim(), now).map(|(name, role)| (name, role, None))
        }
        SignInCredential::Token(token) => {
            let found = api.0.tokens.find(token.trim(), now);
            found.map(|(token, gone)| (token.name, token.role, Some((token.id, gone))))
        }
    };
    let Some((name, role, token)) = found else { return Err(api.refuse_sign_in(from, &sent).await) };
    if let Some(surplus) = api.0.web.surplus() {
        api.end_web(&surplus, "intercom", "too many").await?;
    }
    let secret = random_secret()?;
    let browser = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let session = WebSession {
        id: WebSessionId::mint(),
        name: name.clone(),
        role,
        token: token.as_ref().map(|(id, _): &(TokenId, _)| *id),
        created_at: now,
        last_used_at: now,
        last_used_from: from.ip().to_string(),
        browser: browser.map(|name| name.chars().take(LONGEST_BROWSER).collect()),
    };
    let data = json!({ "web_session": session.id, "token": session.token, "role": role, "via": format!("tcp {}", from.ip()) });
    let entry = audited("web.signed_in", &name, None, Raw::of(&data));
    let known = StoredWebSession { session: session.clone(), hash: hash(&secret) };
    api.store().add_web_session(known.clone(), entry).await?;
    api.0.web.add(session.clone(), known.hash, token.map(|(_, gone)| gone).as_deref());
    let value = format!("{}.{secret}", session.id);
    let cookie = set_cookie(&cookie_name(local, tls), &value, tls, COOKIE_SECONDS);
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Json(view(session, true))).into_response())
}

enum SignInCredential {
    Code(String),
    Token(String),
}

fn set_cookie(name: &str, value: &str, tls: bool, seconds: u32) -> String {
    let secure = if tls { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// Lists the caller's own sign-ins; those of everybody for an admin.
pub(super) async fn list(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    StrictQuery(query): StrictQuery<ShortList>,
) -> Result<Json<List<WebSessionView>>, ApiError> {
    limit(query.limit)?;
    let now = Time::now();
    let mut found: Vec<WebSession> = api
        .0
        .web
        .sessions()
        .values()
        .filter(|known| !known.session.is_idle(now) && !known.gone.is_cancelled())
        .map(|known| known.session.clone())
        .filter(|session| may_end(&caller, session))
        .collect();
    found.sort_by_key(|session| std::cmp::Reverse(session.created_at.millis()));
    let current = |session: &WebSession| caller.web == Some(session.id);
    Ok(Json(List::whole(
        found.into_iter().map(|session| (current(&session), session)).map(|(c, s)| view(s, c)).collect(),
    )))
}

pub(super) async fn sign_out(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(typed): Path<String>,
) -> Result<Response, ApiError> {
    let wanted = match typed.as_str() {
        "current" => caller.web,
        typed => typed.parse().ok(),
    };
    let found = wanted.and_then(|id| api.0.web.sessions().get(&id).map(|known| known.session.clone()));
    let Some(session) = found.filter(|session| may_end(&caller, session)) else {
        return Err(OpError::not_found("web session", &typed).into());
    };
    api.end_web(&session, &caller.name, &caller.via).await?;
    let own = caller.web == Some(session.id);
    match peer {
        Peer::Tcp { local, tls, .. } if own => {
            let cookie = set_cookie(&cookie_name(local, tls), "", tls, 0);
            Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
        }
        _ => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

fn may_end(caller: &Caller, session: &WebSession) -> bool {
    caller.role == Role::Admin || session.name == caller.name
}

impl ApiBridge {
    /// Ends a session. First in memory: access ends there, even if the store takes its time.
    async fn end_web(&self, session: &WebSession, by: &str, via: &str) -> Result<(), ApiError> {
        self.0.web.remove(session.id);
        let data = json!({ "web_session": session.id, "name": session.name, "via": via });
        let entry = audited("web.signed_out", by, None, Raw::of(&data));
        Ok(self.store().end_web_session(session.id.to_string(), entry).await?)
    }

    async fn refuse_sign_in(&self, from: SocketAddr, sent: &SignInCredential) -> ApiError {
        match sent {
            SignInCredential::Token(_) => self.refuse_token(from).await,
            SignInCredential::Code(_) => {
                let refused = self.refuse_token(from).await;
                if refused.is_too_many() {
                    return refused;
                }
                ApiError::new(
                    StatusCode::UNAUTHORIZED,
                    "bad_code",
                    "this link was already used or has expired",
                )
                .hint("`intercom console` prints a new one")
            }
        }
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
