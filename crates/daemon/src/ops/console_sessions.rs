//! Unused sign-in codes and sessions of the console, kept in memory because each request looks at them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use super::OpError;
use super::console::NoConsole;
use super::tokens::{TokenRegistry, hash, random_hex};
use intercom_store::StoredWebSession;
use intercom_types::{Role, Time, WebSession, WebSessionId};

pub(super) const CODE_MILLIS: i64 = 10 * 60 * 1000;
/// The length of a code: impossible to guess within ten minutes, and short enough for a link of 80 columns.
const CODE_BYTES: usize = 16;
/// The limit on unused codes; beyond it, the oldest is dropped.
const CODES: usize = 32;
/// The limit on sessions; beyond it, the least recently used one ends.
const SESSIONS: usize = 1000;
/// The interval at which a use is recorded again. A use from another address is recorded at once.
const NOTE_EVERY_MILLIS: i64 = 60 * 60 * 1000;

/// The codes and sessions of the console.
#[derive(Debug, Default)]
pub(super) struct ConsoleSessions {
    /// The address of the console, if there is a port.
    pub(super) url: OnceLock<String>,
    /// The reason why there is none, if one is configured.
    pub(super) missing: OnceLock<NoConsole>,
    /// Locked only for one lookup or change.
    codes: Mutex<Vec<WebSignInCode>>,
    /// Read for each request, changed together with the store.
    sessions: Mutex<HashMap<WebSessionId, ActiveWebSession>>,
}

#[derive(Debug)]
struct WebSignInCode {
    hash: Vec<u8>,
    name: String,
    role: Role,
    until: Time,
}

#[derive(Debug)]
pub(super) struct ActiveWebSession {
    pub(super) session: WebSession,
    hash: Vec<u8>,
    pub(super) gone: Arc<CancellationToken>,
    noted_at: Time,
}

impl ConsoleSessions {
    pub(super) fn load(&self, sessions: Vec<StoredWebSession>, tokens: &TokenRegistry) {
        let now = Time::now();
        for StoredWebSession { session, hash } in sessions {
            // A session ends with the token that it was opened with.
            let parent = session.token.map(|id| tokens.get(id, now));
            if session.is_idle(now) || matches!(parent, Some(None)) {
                continue;
            }
            self.add(session, hash, parent.flatten().map(|(_, gone)| gone).as_deref());
        }
    }

    fn codes(&self) -> MutexGuard<'_, Vec<WebSignInCode>> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, HashMap<WebSessionId, ActiveWebSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mint(&self, name: &str, role: Role, now: Time) -> Result<String, OpError> {
        let code = random_hex::<CODE_BYTES>()?;
        let until = Time::from_millis(now.millis() + CODE_MILLIS);
        let mut codes = self.codes();
        codes.retain(|code| now < code.until);
        if codes.len() >= CODES {
            codes.remove(0);
        }
        codes.push(WebSignInCode { hash: hash(&code), name: name.to_owned(), role, until });
        Ok(code)
    }

    /// Returns true if this code is valid, without using it up.
    pub(super) fn is_code(&self, code: &str, now: Time) -> bool {
        let hash = hash(code);
        self.codes().iter().any(|known| now < known.until && bool::from(known.hash.ct_eq(&hash)))
    }

    /// Uses up a code; each is valid once.
    pub(super) fn redeem(&self, code: &str, now: Time) -> Option<(String, Role)> {
        let hash = hash(code);
        let mut codes = self.codes();
        let at = codes.iter().position(|known| now < known.until && bool::from(known.hash.ct_eq(&hash)))?;
        let WebSignInCode { name, role, .. } = codes.remove(at);
        Some((name, role))
    }

    pub(super) fn add(&self, session: WebSession, hash: Vec<u8>, token: Option<&CancellationToken>) {
        let gone = Arc::new(token.map(CancellationToken::child_token).unwrap_or_default());
        let noted_at = session.last_used_at;
        self.sessions().insert(session.id, ActiveWebSession { session, hash, gone, noted_at });
    }

    pub(super) fn remove(&self, id: WebSessionId) {
        if let Some(known) = self.sessions().remove(&id) {
            known.gone.cancel();
        }
    }

    /// Returns the least recently used session, if there are too many.
    pub(super) fn surplus(&self) -> Option<WebSession> {
        let sessions = self.sessions();
        let full = sessions.len() >= SESSIONS;
        let oldest =
            sessions.values().filter(|_| full).min_by_key(|known| known.session.last_used_at.millis());
        oldest.map(|known| known.session.clone())
    }

    pub(super) fn find(&self, cookie: &str, now: Time) -> Option<(WebSession, Arc<CancellationToken>)> {
        let (id, secret) = cookie.split_once('.')?;
        let id: WebSessionId = id.parse().ok()?;
        let mut sessions = self.sessions();
        let known = sessions.get_mut(&id)?;
        let right = bool::from(hash(secret).ct_eq(&known.hash));
        if !right || known.session.is_idle(now) || known.gone.is_cancelled() {
            return None;
        }
        known.session.last_used_at = now;
        Some((known.session.clone(), Arc::clone(&known.gone)))
    }

    /// Returns true if this use should be recorded, and remembers it.
    pub(super) fn is_news(&self, id: WebSessionId, from: &str, now: Time) -> bool {
        let mut sessions = self.sessions();
        let Some(known) = sessions.get_mut(&id) else { return false };
        let age = now.millis().saturating_sub(known.noted_at.millis());
        if age < NOTE_EVERY_MILLIS && known.session.last_used_from == from {
            return false;
        }
        known.noted_at = now;
        from.clone_into(&mut known.session.last_used_from);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_opens_once_and_not_after_ten_minutes() {
        let web = ConsoleSessions::default();
        let at = Time::from_millis;
        let code = web.mint("ana", Role::Admin, at(0)).unwrap();
        assert!(web.redeem("x", at(1)).is_none());
        assert_eq!(web.redeem(&code, at(1)), Some(("ana".to_owned(), Role::Admin)));
        assert!(web.redeem(&code, at(2)).is_none());
        let code = web.mint("ana", Role::Admin, at(0)).unwrap();
        assert!(web.redeem(&code, at(CODE_MILLIS)).is_none());
        let first = web.mint("ana", Role::Admin, at(0)).unwrap();
        for _ in 0..CODES {
            web.mint("ben", Role::Viewer, at(0)).unwrap();
        }
        assert!(web.redeem(&first, at(1)).is_none(), "there is a bound");
    }

    #[test]
    fn a_session_that_was_left_alone_for_a_month_lets_nobody_in() {
        let web = ConsoleSessions::default();
        let session = WebSession {
            id: WebSessionId::mint(),
            name: "ana".to_owned(),
            role: Role::Viewer,
            token: None,
            created_at: Time::from_millis(0),
            last_used_at: Time::from_millis(0),
            last_used_from: "127.0.0.1".to_owned(),
            browser: None,
        };
        let shown = format!("{}.secret", session.id);
        web.add(session, hash("secret"), None);
        let day = 24 * 60 * 60 * 1000;
        assert!(web.find(&format!("{shown}x"), Time::from_millis(day)).is_none());
        assert!(web.find(&shown, Time::from_millis(29 * day)).is_some());
        assert!(web.find(&shown, Time::from_millis(58 * day)).is_some(), "using it keeps it");
        assert!(web.find(&shown, Time::from_millis(89 * day)).is_none());
    }
}
