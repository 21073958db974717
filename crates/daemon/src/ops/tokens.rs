//! Tokens for access over the network. The secret is shown once; only its hash is stored.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use super::{Caller, OpError, OperationKind, Operations, audited, limit, require_one};
use crate::config::OperatorConfig;
use intercom_store::{StoreError, StoredToken};
use intercom_types::{
    CreatedToken, Json as Raw, List, ListedToken, Role, Time, Token, TokenId, TokenRequest, hex,
    parse_duration,
};

/// The prefix of every token, so that scanners for leaked secrets can recognise it.
const PREFIX: &str = "intercom_";
/// The name of the owner of the environment's token.
const GIVEN: &str = "environment";
/// The interval at which the use of a token is recorded again. A use from another address is recorded at once.
const NOTE_EVERY_MILLIS: i64 = 60 * 60 * 1000;

/// The shortest interval, for a token that is used from several addresses at the same time.
const NOTE_MOVES_MILLIS: i64 = 60 * 1000;

/// All valid tokens by id: read for each request, changed together with the store.
#[derive(Debug, Default)]
pub(super) struct TokenRegistry {
    made: Mutex<HashMap<TokenId, ActiveToken>>,
    /// The token from the daemon's environment.
    given: OnceLock<ActiveToken>,
}

#[derive(Debug)]
struct ActiveToken {
    token: Token,
    hash: Vec<u8>,
    gone: Arc<CancellationToken>,
}

impl TokenRegistry {
    pub(super) fn load(&self, tokens: Vec<StoredToken>) {
        for token in tokens {
            self.add(token);
        }
    }

    /// Also accepts this token of the daemon's environment, with the role of the daemon's user.
    pub(super) fn set_given(&self, secret: &str, role: Role) {
        let token = Token {
            id: TokenId::mint(),
            name: GIVEN.to_owned(),
            role,
            created_by: GIVEN.to_owned(),
            created_at: Time::now(),
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
            last_used_from: None,
        };
        let given = ActiveToken { token, hash: hash(secret), gone: Arc::default() };
        self.given.set(given).ok(); // there is one environment
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TokenId, ActiveToken>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, StoredToken { token, hash }: StoredToken) {
        if token.revoked_at.is_none() {
            self.known().insert(token.id, ActiveToken { token, hash, gone: Arc::default() });
        }
    }

    /// Removes a token and ends the connections that use it.
    fn revoke(&self, id: TokenId) {
        if let Some(known) = self.known().remove(&id) {
            known.gone.cancel();
        }
    }

    /// Finds a token by its id, which is no secret. The secret is compared in constant time.
    pub(super) fn find(&self, sent: &str, now: Time) -> Option<(Token, Arc<CancellationToken>)> {
        if let Some(given) = self.given.get().filter(|given| bool::from(hash(sent).ct_eq(&given.hash))) {
            return Some((given.token.clone(), Arc::clone(&given.gone)));
        }
        let (id, secret) = sent.strip_prefix(PREFIX)?.split_once('_')?;
        let id: TokenId = format!("{}{id}", TokenId::PREFIX).parse().ok()?;
        let known = self.known();
        let known = known.get(&id)?;
        let right = bool::from(hash(secret).ct_eq(&known.hash));
        (right && known.token.is_valid(now)).then(|| (known.token.clone(), Arc::clone(&known.gone)))
    }

    /// Returns a valid token and the signal of its end.
    pub(super) fn get(&self, id: TokenId, now: Time) -> Option<(Token, Arc<CancellationToken>)> {
        let known = self.known();
        let known = known.get(&id).filter(|known| known.token.is_valid(now))?;
        Some((known.token.clone(), Arc::clone(&known.gone)))
    }

    /// Returns true if this use should be recorded, and remembers it.
    fn is_news(&self, id: TokenId, from: &str, now: Time) -> bool {
        let mut known = self.known();
        let Some(ActiveToken { token, .. }) = known.get_mut(&id) else { return false };
        let age = token.last_used_at.map_or(i64::MAX, |at| now.millis().saturating_sub(at.millis()));
        let moved = token.last_used_from.as_deref() != Some(from);
        if age < NOTE_MOVES_MILLIS || (age < NOTE_EVERY_MILLIS && !moved) {
            return false;
        }
        (token.last_used_at, token.last_used_from) = (Some(now), Some(from.to_owned()));
        true
    }

    /// Returns true if no token is valid, so that nobody has access over the network.
    pub(super) fn is_empty(&self, now: Time) -> bool {
        self.given.get().is_none() && !self.known().values().any(|known| known.token.is_valid(now))
    }
}

pub(super) fn hash(secret: &str) -> Vec<u8> {
    digest(&SHA256, secret.as_bytes()).as_ref().to_vec()
}

/// Returns 256 random bits as text.
pub(super) fn random_secret() -> Result<String, OpError> {
    random_hex::<32>()
}

/// Returns random bytes in hexadecimal digits.
pub(super) fn random_hex<const BYTES: usize>() -> Result<String, OpError> {
    let mut secret = [0; BYTES];
    SystemRandom::new().fill(&mut secret).map_err(|_| OpError::internal("the system has no randomness"))?;
    Ok(hex(&secret))
}

impl Operations {
    /// Loads the stored tokens and console sessions; `given` is an additional token from the daemon's environment.
    pub async fn load_access(&self, given: Option<&str>) -> Result<(), StoreError> {
        self.0.tokens.load(self.store().tokens().await?);
        if let Some(secret) = given {
            self.0.tokens.set_given(secret, Role::Admin);
        }
        self.0.console.load(self.store().web_sessions().await?, &self.0.tokens);
        Ok(())
    }

    /// Returns the valid token with this secret, and the signal of its end.
    pub fn find_token(&self, secret: &str) -> Option<(Token, Arc<CancellationToken>)> {
        self.0.tokens.find(secret, Time::now())
    }

    /// Returns true if a token is valid, so that access over the network is possible.
    pub fn has_tokens(&self) -> bool {
        !self.0.tokens.is_empty(Time::now())
    }

    /// Records the use of a token, now and then and whenever its address changes.
    pub async fn note_token_use(&self, token: &Token, from: IpAddr) {
        let address = from.to_string();
        if !self.0.tokens.is_news(token.id, &address, Time::now()) {
            return;
        }
        let data = Raw::of(&json!({ "token": token.id, "from": address }));
        let entry = audited("token.used", &token.name, None, data);
        if let Err(error) = self.store().record_token_use(token.id.to_string(), address, entry).await {
            tracing::warn!(%error, "the use of a token could not be recorded");
        }
    }

    /// Creates a token. Its secret is only in the answer.
    pub async fn create_token(
        &self,
        caller: &Caller,
        request: TokenRequest,
    ) -> Result<CreatedToken, OpError> {
        self.admit(caller, OperationKind::ManageTokens)?;
        let TokenRequest { name, role, ttl } = request;
        let name = name.trim().to_owned();
        if name.is_empty() || name.chars().count() > 64 || name.chars().any(char::is_control) {
            return Err(OpError::bad_request("name must have 1 to 64 visible characters"));
        }
        let role = Role::parse(&role)
            .ok_or_else(|| OpError::bad_request("role must be viewer, operator, approver or admin"))?;
        let config = self.supervisor().config();
        let operator = config.operators.iter().find(|operator| operator.name == name);
        if let Some(bound) = operator.map(OperatorConfig::role).filter(|bound| role > *bound) {
            let message = format!("{name} is configured as {bound}, and a token cannot exceed that role");
            return Err(OpError::unprocessable("above_role", message));
        }
        let ttl = ttl.map(|text| parse_duration(&text).filter(|ttl| !ttl.is_zero()).ok_or(text)).transpose();
        let ttl = ttl.map_err(|text| {
            OpError::bad_request(format!("ttl: `{text}` is not a duration such as 30d or 12h"))
        })?;
        let secret = random_secret()?;
        let now = Time::now();
        let expires_at = ttl.map(|ttl| now.plus(ttl));
        let token = Token {
            id: TokenId::mint(),
            name,
            role,
            created_by: caller.name.clone(),
            created_at: now,
            expires_at,
            revoked_at: None,
            last_used_at: None,
            last_used_from: None,
        };
        let known = StoredToken { token: token.clone(), hash: hash(&secret) };
        let data = json!({
            "token": token.id, "name": token.name, "role": role, "via": caller.via,
            "expires_at": expires_at.map(|at| at.to_string()),
        });
        let entry = audited("token.created", &caller.name, None, Raw::of(&data));
        self.store().add_token(known.clone(), entry).await?;
        self.0.tokens.add(known);
        let id = token.id.to_string();
        let secret = format!("{PREFIX}{}_{secret}", id.trim_start_matches(TokenId::PREFIX));
        Ok(CreatedToken { secret, listed: token.into() })
    }

    /// Returns all tokens, newest first, whatever the limit: there are never many.
    pub async fn tokens(&self, caller: &Caller, most: Option<usize>) -> Result<List<ListedToken>, OpError> {
        self.admit(caller, OperationKind::ManageTokens)?;
        limit(most)?;
        let tokens = self.store().tokens().await?;
        Ok(List::whole(tokens.into_iter().map(|known| known.token.into()).collect()))
    }

    pub async fn revoke_token(&self, caller: &Caller, typed: &str) -> Result<(), OpError> {
        self.admit(caller, OperationKind::ManageTokens)?;
        let token = require_one("token", typed, self.store().token(typed.to_owned()).await?)?.token;
        let data = Raw::of(&json!({ "token": token.id, "name": token.name, "via": caller.via }));
        let entry = audited("token.revoked", &caller.name, None, data);
        // First in memory: access ends here, even if the store takes its time.
        self.0.tokens.revoke(token.id);
        if self.store().revoke_token(token.id.to_string(), Time::now(), entry).await? {
            return Ok(());
        }
        Err(OpError::conflict("revoked", "the token is already revoked"))
    }
}
