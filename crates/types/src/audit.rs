//! The audit: actions and their actors, in a hash chain that reveals changes.

use strum::IntoStaticStr;

use super::{Json, SessionId, Time};

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub n: u64,
    pub at: Time,
    pub action: String,
    pub by: String,
    pub session: Option<String>,
    pub data: Json,
    /// The hash of this row and, through its predecessor, of all rows before it.
    pub hash: String,
}

/// The kind of who acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
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

/// Names that are not a person's.
const DAEMON_ACTORS: &[&str] = &["intercom", "the demo", "SIGHUP"];
/// The prefix of the names of the daemon's parts, as in `intercom, unused`.
const PART_OF_OURS: &str = "intercom, ";
const UNKNOWN: &str = "nobody";
/// The prefix of the name of an agent's process; its session follows.
pub const AGENT_PREFIX: &str = "agent of ";

impl AuditRow {
    pub fn actor(&self) -> Actor {
        #[derive(serde::Deserialize)]
        struct AuditVia {
            via: Option<String>,
        }
        let recorded: Option<AuditVia> = serde_json::from_str(self.data.as_str()).ok();
        match self.by.as_str() {
            _ if recorded.and_then(|recorded| recorded.via).as_deref() == Some(VIA_POLICY) => Actor::Rule,
            by if DAEMON_ACTORS.contains(&by) || by.starts_with(PART_OF_OURS) => Actor::Intercom,
            UNKNOWN => Actor::Nobody,
            by if by.starts_with(AGENT_PREFIX) => Actor::Agent,
            _ => Actor::Person,
        }
    }
}

/// The `via` of a clearance that was decided without a person.
pub const VIA_POLICY: &str = "policy";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_kind_of_actor_it_was() {
        let actor = |by: &str, data: &str| {
            let row = AuditRow {
                n: 1,
                at: Time::from_millis(0),
                action: "x".to_owned(),
                by: by.to_owned(),
                session: None,
                data: Json::of(&serde_json::from_str::<serde_json::Value>(data).unwrap()),
                hash: String::new(),
            };
            row.actor().as_str()
        };
        assert_eq!(actor("ana", r#"{"via":"unix"}"#), "person");
        assert_eq!(actor("tests", r#"{"via":"policy"}"#), "rule");
        assert_eq!(actor("intercom", "{}"), "intercom");
        assert_eq!(actor("intercom, left by its client", "{}"), "intercom");
        assert_eq!(actor("agent of ses_1", "{}"), "agent");
        assert_eq!(actor("nobody", "{}"), "nobody");
    }
}
