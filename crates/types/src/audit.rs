//! The audit: actions and their actors, in a hash chain that reveals changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::time::rfc3339;
use super::{Json, OpenEnum, SessionId, Time};

/// A new row of the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAuditRow {
    pub at: Time,
    /// `clearance.decided`, `token.created`, …
    pub action: String,
    pub by: String,
    pub session: Option<SessionId>,
    pub data: Json,
}

/// A row of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditView", description = "")]
pub struct AuditRow {
    pub n: u64,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub at: Time,
    pub action: String,
    pub by: String,
    /// `person`, `rule`, `agent`, `intercom` or `nobody`.
    #[serde(default)]
    #[schemars(with = "String", !default)]
    pub actor: OpenEnum<Actor>,
    pub session: Option<String>,
    #[schemars(with = "serde_json::Value")]
    pub data: Json,
    /// The hash of this row and, through its predecessor, of all rows before it.
    #[schemars(description = "")]
    pub hash: String,
}

/// A page of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditPage", description = "")]
pub struct AuditPage<R = AuditRow> {
    pub items: Vec<R>,
    /// The value of `after`, or of `before`, for the next page.
    pub next: Option<u64>,
}

/// The result of a check of every row of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "VerifiedView", description = "")]
pub struct AuditVerdict {
    /// True if no problem was found.
    pub whole: bool,
    pub rows: u64,
    /// The hash of the last row. Stored elsewhere, it proves later that no row before it was rewritten.
    pub head: String,
    pub problems: Vec<AuditProblem>,
    /// Restores from a backup, with the rows that are missing because of them.
    #[serde(default)]
    #[schemars(!default)]
    pub notes: Vec<AuditProblem>,
    /// The number of compared lines of the anchor file.
    #[serde(default)]
    #[schemars(!default)]
    pub anchors: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ProblemView")]
pub struct AuditProblem {
    pub n: u64,
    pub what: String,
}

/// The kind of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Actor {
    Person,
    /// A rule or another part of policy.
    Rule,
    /// A process of a session.
    Agent,
    /// The daemon by itself.
    Intercom,
    /// An unknown actor.
    Nobody,
}

impl Actor {
    /// Returns the kind of actor of an entry by its name and data.
    pub fn of(by: &str, data: &Json) -> Self {
        #[derive(Deserialize)]
        struct AuditVia {
            via: Option<String>,
        }
        let recorded: Option<AuditVia> = serde_json::from_str(data.as_str()).ok();
        match by {
            _ if recorded.and_then(|recorded| recorded.via).as_deref() == Some(VIA_POLICY) => Self::Rule,
            by if DAEMON_ACTORS.contains(&by) || by.starts_with(PART_OF_OURS) => Self::Intercom,
            UNKNOWN => Self::Nobody,
            by if by.starts_with(AGENT_PREFIX) => Self::Agent,
            _ => Self::Person,
        }
    }
}

/// Names that are not a person's.
const DAEMON_ACTORS: &[&str] = &["intercom", "the demo", "SIGHUP"];
/// The prefix of the names of the daemon's parts, as in `intercom, unused`.
const PART_OF_OURS: &str = "intercom, ";
const UNKNOWN: &str = "nobody";
/// The prefix of the name of an agent's process; its session follows.
pub const AGENT_PREFIX: &str = "agent of ";

/// The `via` of a clearance that was decided without a person.
pub const VIA_POLICY: &str = "policy";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_kind_of_actor_it_was() {
        let actor = |by: &str, data: &str| Actor::of(by, &Json::trusted(data)).as_str();
        assert_eq!(actor("ana", r#"{"via":"unix"}"#), "person");
        assert_eq!(actor("tests", r#"{"via":"policy"}"#), "rule");
        assert_eq!(actor("intercom", "{}"), "intercom");
        assert_eq!(actor("intercom, left by its client", "{}"), "intercom");
        assert_eq!(actor("agent of ses_1", "{}"), "agent");
        assert_eq!(actor("nobody", "{}"), "nobody");
    }
}
