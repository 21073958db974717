//! Who may do what.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::{ClearanceId, GrantId, Json, Time, TokenId, WebSessionId};

/// Each may do what those before it may, and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(EnumString, IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Role {
    /// Sees, with secrets hidden.
    Viewer,
    /// Steers and answers.
    Operator,
    /// Decides clearances.
    Approver,
    /// Starts, stops for good, changes policy.
    Admin,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Approver, Self::Admin];
}

/// A way in over the network. Its secret is known to its owner only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: TokenId,
    /// Whose it is.
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

/// Somebody signed in to the web console. What the browser shows for it is known to the browser only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSession {
    pub id: WebSessionId,
    pub name: String,
    pub role: Role,
    /// The token that was shown instead of a code: without it, this ends as well.
    pub token: Option<TokenId>,
    pub created_at: Time,
    pub last_used_at: Time,
    pub last_used_from: String,
    /// What the browser calls itself.
    pub browser: Option<String>,
}

impl WebSession {
    /// Days without use after which it ends by itself.
    pub const IDLE_DAYS: i64 = 30;

    pub fn is_idle(&self, now: Time) -> bool {
        let idle = now.millis().saturating_sub(self.last_used_at.millis());
        idle > Self::IDLE_DAYS * 24 * 60 * 60 * 1000
    }
}

/// What somebody allowed always: a rule made of one clearance.
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
