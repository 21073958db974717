//! Tokens for access over the network. The secret is shown once; only its hash is stored.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use super::ApiBridge;
use super::access::KnownCaller;
use super::error::ApiError;
use super::extract::{JsonBody, ShortList, StrictQuery};
use super::view::{self, TokenView};
use intercom_daemon::config::OperatorConfig;
use intercom_daemon::ops::{audited, limit, require_one};
use intercom_store::{StoreError, StoredToken};
use intercom_types::{Json as Raw, List, Role, Time, Token, TokenId, hex, parse_duration};

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
    given: Option<ActiveToken>,
}

#[derive(Debug)]
struct ActiveToken {
    token: Token,
    hash: Vec<u8>,
    gone: Arc<CancellationToken>,
}

impl TokenRegistry {
    pub(super) fn load(tokens: Vec<StoredToken>) -> Self {
        let all = Self::default();
        for token in tokens {
            all.add(token);
        }
        all
    }

    /// Also accepts this token of the daemon's environment, with the role of the daemon's user.
    pub(super) fn with_given(self, secret: Option<&str>, role: Role) -> Self {
        let given = secret.map(|secret| {
            let (id, name, created_by) = (TokenId::mint(), GIVEN.to_owned(), GIVEN.to_owned());
            let (expires_at, revoked_at, last_used_at, last_used_from) = (None, None, None, None);
            let created_at = Time::now();
            let token = Token {
                id,
                name,
                role,
                created_by,
                created_at,
                expires_at,
                revoked_at,
                last_used_at,
                last_used_from,
            };
            ActiveToken { token, hash: hash(secret), gone: Arc::default() }
        });
        Self { given, ..self }
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
        if let Some(given) = self.given.as_ref().filter(|given| bool::from(hash(sent).ct_eq(&given.hash))) {
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
        self.given.is_none() && !self.known().values().any(|known| known.token.is_valid(now))
    }
}

pub(super) fn hash(secret: &str) -> Vec<u8> {
    digest(&SHA256, secret.as_bytes()).as_ref().to_vec()
}

/// Returns 256 random bits as text.
pub(super) fn random_secret() -> Result<String, ApiError> {
    random_hex::<32>()
}

/// Returns random bytes in hexadecimal digits.
pub(super) fn random_hex<const BYTES: usize>() -> Result<String, ApiError> {
    let mut secret = [0; BYTES];
    SystemRandom::new().fill(&mut secret).map_err(|_| ApiError::internal("the system has no randomness"))?;
    Ok(hex(&secret))
}

impl ApiBridge {
    /// Records the use of a token, now and then and whenever its address changes.
    pub(super) async fn note_use(&self, token: &Token, from: SocketAddr) {
        let address = from.ip().to_string();
        if !self.0.tokens.is_news(token.id, &address, Time::now()) {
            return;
        }
        let data = Raw::of(&json!({ "token": token.id, "from": address }));
        let entry = audited("token.used", &token.name, None, data);
        if let Err(error) = self.store().record_token_use(token.id.to_string(), address, entry).await {
            tracing::warn!(%error, "the use of a token could not be recorded");
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Create")]
pub(super) struct TokenRequest {
    /// The name of the person.
    name: String,
    /// `viewer`, `operator`, `approver` or `admin`.
    role: String,
    /// The lifetime, such as `30d`; unlimited if absent.
    ttl: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Created")]
pub(super) struct CreatedToken {
    /// The secret. It is shown only once.
    secret: String,
    #[serde(flatten)]
    token: TokenView,
}

pub(super) async fn create(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    JsonBody(create): JsonBody<TokenRequest>,
) -> Result<(StatusCode, Json<CreatedToken>), ApiError> {
    let TokenRequest { name, role, ttl } = create;
    let name = name.trim().to_owned();
    if name.is_empty() || name.chars().count() > 64 || name.chars().any(char::is_control) {
        return Err(ApiError::bad_request("name must have 1 to 64 visible characters"));
    }
    let role = Role::parse(&role)
        .ok_or_else(|| ApiError::bad_request("role must be viewer, operator, approver or admin"))?;
    let config = api.supervisor().config();
    let operator = config.operators.iter().find(|operator| operator.name == name);
    if let Some(bound) = operator.map(OperatorConfig::role).filter(|bound| role > *bound) {
        let message = format!("{name} is configured as {bound}, and a token cannot exceed that role");
        return Err(ApiError::unprocessable("above_role", message));
    }
    let ttl = ttl.map(|text| parse_duration(&text).filter(|ttl| !ttl.is_zero()).ok_or(text)).transpose();
    let ttl = ttl.map_err(|text| {
        ApiError::bad_request(format!("ttl: `{text}` is not a duration such as 30d or 12h"))
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
    api.store()
        .add_token(known.clone(), audited("token.created", &caller.name, None, Raw::of(&data)))
        .await?;
    api.0.tokens.add(known);
    let id = token.id.to_string();
    let secret = format!("{PREFIX}{}_{secret}", id.trim_start_matches(TokenId::PREFIX));
    Ok((StatusCode::CREATED, Json(CreatedToken { secret, token: view::token(token) })))
}

pub(super) async fn list(
    State(api): State<ApiBridge>,
    StrictQuery(query): StrictQuery<ShortList>,
) -> Result<Json<List<TokenView>>, ApiError> {
    limit(query.limit)?;
    let tokens = api.store().tokens().await?;
    Ok(Json(List::whole(tokens.into_iter().map(|known| view::token(known.token)).collect())))
}

pub(super) async fn revoke(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let token = require_one("token", &id, api.store().token(id.clone()).await?)?.token;
    let data = Raw::of(&json!({ "token": token.id, "name": token.name, "via": caller.via }));
    let entry = audited("token.revoked", &caller.name, None, data);
    // First in memory: access ends here, even if the store takes its time.
    api.0.tokens.revoke(token.id);
    let revoked: Result<bool, StoreError> =
        api.store().revoke_token(token.id.to_string(), Time::now(), entry).await;
    if revoked? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::conflict("revoked", "the token is already revoked"))
}
