//! Roles, tokens, web sessions and grants.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

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

impl Role {
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Approver, Self::Admin];
}

/// A credential for access over the network. Its secret is known to its owner only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: TokenId,
    /// The name of its owner.
    pub name: String,
    pub role: Role,
    pub created_by: String,
    pub created_at: Time,
    pub expires_at: Option<Time>,
    pub revoked_at: Option<Time>,
    pub last_used_at: Option<Time>,
    pub last_used_from: Option<String>,
}

impl Token {
    pub fn is_valid(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| now < at)
    }
}

/// A sign-in to the web console. Only the browser knows its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSession {
    pub id: WebSessionId,
    pub name: String,
    pub role: Role,
    /// The token that was used instead of a code: if it is revoked, the sign-in ends as well.
    pub token: Option<TokenId>,
    pub created_at: Time,
    pub last_used_at: Time,
    pub last_used_from: String,
    /// The name that the browser reports.
    pub browser: Option<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_survive_printing() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("agent"), None);
    }
}
