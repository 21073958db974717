//! Roles, tokens, web sessions and grants.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{EnumString, IntoStaticStr};

use super::time::rfc3339;
use super::{ClearanceId, GrantId, Json, Time, TokenId, WebSessionId};

/// A role. Each includes the rights of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(EnumString, IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Role {
    /// Reads, with secrets redacted.
    Viewer,
    /// Steers sessions and answers questions.
    Operator,
    /// Decides clearances.
    Approver,
    /// Starts and ends sessions, and changes policy.
    Admin,
}

/// A credential for access over the network. Its secret is known to its owner only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// Empty descriptions, here and in the other bodies, keep comments that are not for users of the API out of it.
#[schemars(description = "")]
pub struct Token {
    #[schemars(with = "String")]
    pub id: TokenId,
    /// The name of its owner.
    #[schemars(description = "")]
    pub name: String,
    #[schemars(with = "String")]
    pub role: Role,
    pub created_by: String,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub created_at: Time,
    #[serde(with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub expires_at: Option<Time>,
    #[serde(with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub revoked_at: Option<Time>,
    #[serde(with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub last_used_at: Option<Time>,
    pub last_used_from: Option<String>,
}

impl Token {
    pub fn is_valid(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| now < at)
    }
}

/// A token as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenView", description = "")]
pub struct ListedToken {
    #[serde(flatten)]
    pub token: Token,
    /// True if it gives access now.
    pub valid: bool,
}

impl From<Token> for ListedToken {
    fn from(token: Token) -> Self {
        Self { valid: token.is_valid(Time::now()), token }
    }
}

/// A request for a new token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Create", description = "")]
pub struct TokenRequest {
    /// The name of the person.
    pub name: String,
    /// `viewer`, `operator`, `approver` or `admin`.
    pub role: String,
    /// The lifetime, such as `30d`; unlimited if absent.
    pub ttl: Option<String>,
}

/// A new token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Created", description = "")]
pub struct CreatedToken {
    /// The secret. It is shown only once.
    pub secret: String,
    #[serde(flatten)]
    pub listed: ListedToken,
}

/// A sign-in to the web console. Only the browser knows its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "")]
pub struct WebSession {
    #[schemars(with = "String")]
    pub id: WebSessionId,
    pub name: String,
    #[schemars(with = "String")]
    pub role: Role,
    /// The token that was used instead of a code: if it is revoked, the sign-in ends as well.
    #[schemars(with = "Option<String>")]
    pub token: Option<TokenId>,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub created_at: Time,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub last_used_at: Time,
    pub last_used_from: String,
    /// The name that the browser reports.
    #[schemars(description = "")]
    pub browser: Option<String>,
}

/// A session of the console as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WebSessionView", description = "")]
pub struct ListedWebSession {
    #[serde(flatten)]
    pub session: WebSession,
    /// True for the caller's own sign-in.
    pub current: bool,
}

/// A one-time code that signs in to the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CodeView", description = "")]
pub struct ConsoleCode {
    pub code: String,
    /// The one-time link to the console.
    pub url: String,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub expires_at: Time,
}

/// Exactly one of a code and a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(description = "")]
pub struct SignIn {
    /// The code of the link, valid once.
    pub code: Option<String>,
    /// A token of the API, instead of a code.
    pub token: Option<String>,
}

impl WebSession {
    /// The number of days without use after which a sign-in expires.
    pub const IDLE_DAYS: i64 = 30;

    pub fn is_idle(&self, now: Time) -> bool {
        let idle = now.millis().saturating_sub(self.last_used_at.millis());
        idle > Self::IDLE_DAYS * 24 * 60 * 60 * 1000
    }
}

/// A rule that a person created from one clearance by allowing it always.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub id: GrantId,
    /// The rule, in the form of the configuration.
    pub rule: Json,
    pub clearance: ClearanceId,
    pub created_by: String,
    pub created_at: Time,
    pub expires_at: Option<Time>,
    pub revoked_at: Option<Time>,
}

impl Grant {
    pub fn is_valid(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| now < at)
    }
}

/// A grant as lists show it; `R` is a rule in the form of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GrantView", description = "")]
pub struct ListedGrant<R = Value> {
    #[schemars(with = "String")]
    pub id: GrantId,
    pub rule: R,
    #[schemars(with = "String")]
    pub(crate) clearance: ClearanceId,
    pub created_by: String,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub created_at: Time,
    #[serde(with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub expires_at: Option<Time>,
    #[serde(with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub revoked_at: Option<Time>,
    /// True if it allows anything now.
    pub valid: bool,
}

impl From<Grant> for ListedGrant {
    fn from(grant: Grant) -> Self {
        Self {
            valid: grant.is_valid(Time::now()),
            id: grant.id,
            rule: serde_json::from_str(grant.rule.as_str()).unwrap_or(Value::Null),
            clearance: grant.clearance,
            created_by: grant.created_by,
            created_at: grant.created_at,
            expires_at: grant.expires_at,
            revoked_at: grant.revoked_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_survive_printing() {
        let roles = [Role::Viewer, Role::Operator, Role::Approver, Role::Admin];
        assert!(roles.is_sorted());
        for role in roles {
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("agent"), None);
    }
}
