//! Signing in to the web console: a one-time code or a token becomes a session.

use std::net::IpAddr;
use std::sync::Arc;

use nix::unistd::Uid;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::console_sessions::CODE_MILLIS;
use super::tokens::{hash, random_secret};
use super::{Caller, OpError, OperationKind, Operations, audited, limit};
use intercom_store::StoredWebSession;
use intercom_types::{
    ConsoleCode, Json as Raw, List, ListedWebSession, Role, SignIn, Time, WebSession, WebSessionId,
};

const LONGEST_BROWSER: usize = 200;

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
#[derive(Debug)]
pub struct ConsoleAccess {
    pub session: WebSession,
    /// Cancelled when the session or its token is revoked.
    pub gone: Arc<CancellationToken>,
    pub until: Option<Time>,
}

/// A new session with its secret, which only the browser keeps.
pub struct NewConsoleSession {
    pub session: WebSession,
    pub secret: String,
}

impl std::fmt::Debug for NewConsoleSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewConsoleSession").field("session", &self.session).finish_non_exhaustive()
    }
}

/// The credential of a sign-in.
pub enum SignInCredential {
    Code(String),
    Token(String),
}

impl std::fmt::Debug for SignInCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Code(_) => "a code",
            Self::Token(_) => "a token",
        })
    }
}

impl TryFrom<SignIn> for SignInCredential {
    type Error = OpError;

    fn try_from(sign_in: SignIn) -> Result<Self, OpError> {
        match sign_in {
            SignIn { code: Some(code), token: None } => Ok(Self::Code(code)),
            SignIn { code: None, token: Some(token) } => Ok(Self::Token(token)),
            _ => Err(OpError::bad_request("send exactly one of `code` and `token`")),
        }
    }
}

impl Operations {
    /// Sets the address of the console, once the port is open.
    pub fn set_console_url(&self, url: String) {
        self.0.console.url.set(url).ok(); // there is one port
    }

    /// Sets the reason why there is no console.
    pub fn set_console_unavailable(&self, missing: NoConsole) {
        self.0.console.missing.set(missing).ok(); // there is one port
    }

    /// Returns the address of the console; `None` without a port.
    pub fn console_url(&self) -> Option<&str> {
        self.0.console.url.get().map(String::as_str)
    }

    /// Returns a one-time link that signs in the daemon's own user; `None` without a port.
    pub fn first_link(&self) -> Option<String> {
        let url = self.console_url()?;
        let (name, role) = self.local_user(Uid::effective().as_raw())?;
        let code = self.0.console.mint(&name, role, Time::now()).ok()?;
        Some(link(url, &code))
    }

    /// Creates a one-time code that signs the caller in to the console.
    pub fn console_code(&self, caller: &Caller) -> Result<ConsoleCode, OpError> {
        self.admit(caller, OperationKind::Read)?;
        // A session from a code does not end with the token of the caller that asked for the code.
        if !caller.local {
            let message = "codes are created on the daemon's own machine only; sign in with the token itself";
            return Err(OpError::unprocessable("not_local", message));
        }
        let Some(url) = self.console_url() else {
            let none = "this daemon has no console";
            return Err(match self.0.console.missing.get() {
                Some(NoConsole { why, remedy }) => {
                    OpError::conflict("no_port", format!("{none}: {why}")).hint(remedy.clone())
                }
                None => OpError::conflict("no_port", format!("{none}, because it listens on no port"))
                    .hint("see [api] listen in the configuration, or `intercom serve --listen`"),
            });
        };
        let now = Time::now();
        let code = self.0.console.mint(&caller.name, caller.role, now)?;
        let expires_at = Time::from_millis(now.millis() + CODE_MILLIS);
        Ok(ConsoleCode { url: link(url, &code), code, expires_at })
    }

    /// Returns true if this credential is valid, without using up a code.
    pub fn may_sign_in(&self, credential: &SignInCredential) -> bool {
        match credential {
            SignInCredential::Code(code) => self.0.console.is_code(code.trim(), Time::now()),
            SignInCredential::Token(token) => self.find_token(token.trim()).is_some(),
        }
    }

    /// Signs a person in; `None` if the credential is not valid. `browser` is the name that the browser reports.
    pub async fn sign_in(
        &self,
        credential: &SignInCredential,
        from: IpAddr,
        browser: Option<&str>,
    ) -> Result<Option<NewConsoleSession>, OpError> {
        let now = Time::now();
        let found = match credential {
            SignInCredential::Code(code) => {
                self.0.console.redeem(code.trim(), now).map(|(name, role)| (name, role, None))
            }
            SignInCredential::Token(token) => {
                let found = self.find_token(token.trim());
                found.map(|(token, gone)| (token.name, token.role, Some((token.id, gone))))
            }
        };
        let Some((name, role, token)) = found else { return Ok(None) };
        if let Some(surplus) = self.0.console.surplus() {
            self.end_console_session(&surplus, "intercom", "too many").await?;
        }
        let secret = random_secret()?;
        let session = WebSession {
            id: WebSessionId::mint(),
            name: name.clone(),
            role,
            token: token.as_ref().map(|(id, _)| *id),
            created_at: now,
            last_used_at: now,
            last_used_from: from.to_string(),
            browser: browser.map(|name| name.chars().take(LONGEST_BROWSER).collect()),
        };
        let data = json!({
            "web_session": session.id, "token": session.token, "role": role, "via": format!("tcp {from}"),
        });
        let entry = audited("web.signed_in", &name, None, Raw::of(&data));
        let known = StoredWebSession { session: session.clone(), hash: hash(&secret) };
        self.store().add_web_session(known.clone(), entry).await?;
        self.0.console.add(session.clone(), known.hash, token.map(|(_, gone)| gone).as_deref());
        Ok(Some(NewConsoleSession { session, secret }))
    }

    /// Finds the session of a cookie. An ended session is not an error: the request has no caller then.
    pub fn console_access(&self, cookie: &str) -> Option<ConsoleAccess> {
        let now = Time::now();
        let (session, gone) = self.0.console.find(cookie, now)?;
        let until = match session.token {
            None => None,
            Some(id) => self.0.tokens.get(id, now)?.0.expires_at,
        };
        Some(ConsoleAccess { session, gone, until })
    }

    pub async fn note_console_use(&self, session: &WebSession, from: IpAddr) {
        let (from, now) = (from.to_string(), Time::now());
        if !self.0.console.is_news(session.id, &from, now) {
            return;
        }
        if let Err(error) = self.store().record_web_session_use(session.id.to_string(), now, from).await {
            tracing::warn!(%error, "the use of a web session could not be recorded");
        }
    }

    /// Lists the caller's own sign-ins, newest first; those of everybody for an admin.
    pub fn console_sessions(
        &self,
        caller: &Caller,
        most: Option<usize>,
    ) -> Result<List<ListedWebSession>, OpError> {
        self.admit(caller, OperationKind::Read)?;
        limit(most)?;
        let now = Time::now();
        let mut found: Vec<WebSession> = self
            .0
            .console
            .sessions()
            .values()
            .filter(|known| !known.session.is_idle(now) && !known.gone.is_cancelled())
            .map(|known| known.session.clone())
            .filter(|session| may_end(caller, session))
            .collect();
        found.sort_by_key(|session| std::cmp::Reverse(session.created_at.millis()));
        let listed =
            |session: WebSession| ListedWebSession { current: is_current(caller, &session), session };
        Ok(List::whole(found.into_iter().map(listed).collect()))
    }

    /// Ends a session; `current` is the caller's own. Returns true if it was the caller's own.
    pub async fn sign_out(&self, caller: &Caller, typed: &str) -> Result<bool, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let wanted = match typed {
            "current" => caller.web,
            typed => typed.parse().ok(),
        };
        let found =
            wanted.and_then(|id| self.0.console.sessions().get(&id).map(|known| known.session.clone()));
        let Some(session) = found.filter(|session| may_end(caller, session)) else {
            return Err(OpError::not_found("web session", typed));
        };
        self.end_console_session(&session, &caller.name, &caller.via).await?;
        Ok(is_current(caller, &session))
    }

    /// Ends a session. First in memory: access ends there, even if the store takes its time.
    async fn end_console_session(&self, session: &WebSession, by: &str, via: &str) -> Result<(), OpError> {
        self.0.console.remove(session.id);
        let data = json!({ "web_session": session.id, "name": session.name, "via": via });
        let entry = audited("web.signed_out", by, None, Raw::of(&data));
        Ok(self.store().end_web_session(session.id.to_string(), entry).await?)
    }
}

/// Returns the sign-in link. The code is in the fragment, which browsers never send: it is in no log and no header.
fn link(url: &str, code: &str) -> String {
    format!("{url}/#code={code}")
}

fn may_end(caller: &Caller, session: &WebSession) -> bool {
    caller.role == Role::Admin || session.name == caller.name
}

fn is_current(caller: &Caller, session: &WebSession) -> bool {
    caller.web == Some(session.id)
}
