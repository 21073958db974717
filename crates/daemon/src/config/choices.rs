//! Settings with a few possible words.
//!
//! They parse from strings only: serde's own enums would also accept `{ ndjson = {} }` and name the wrong key in
//! errors.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use intercom_types::{Risk, Role, Verdict};

/// An unknown word for a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    #[error("{given:?} is not known, use {}", quoted(known))]
    Unknown { given: String, known: &'static [&'static str] },
    #[error("{given:?} is not supported yet, use {}", quoted(known))]
    NotYet { given: String, known: &'static [&'static str] },
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ")
}

macro_rules! choice {
    (
        $(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }
        not yet: [$($later:literal),*]
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
        #[serde(try_from = "String")]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Returns the word as it is written in the file.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl FromStr for $name {
            type Err = ChoiceError;

            fn from_str(given: &str) -> Result<Self, ChoiceError> {
                let known = &[$($word,)+];
                let later: &[&str] = &[$($later,)*];
                match given {
                    $($word => Ok(Self::$variant),)+
                    _ if later.contains(&given) => Err(ChoiceError::NotYet { given: given.into(), known }),
                    _ => Err(ChoiceError::Unknown { given: given.into(), known }),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = ChoiceError;

            fn try_from(given: String) -> Result<Self, ChoiceError> {
                given.parse()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

choice! {
    /// The handling of a client's prompt while another one runs.
    Busy {
        /// The prompt waits for its turn.
        Queue = "queue",
        /// The prompt is refused at once.
        Refuse = "refuse",
    }
    not yet: []
}

choice! {
    /// The handling of the agents when the daemon stops.
    OnStop {
        /// The agents keep running, and the next daemon finds them.
        Leave = "leave",
        /// The agents are stopped, all at the same time, within five seconds.
        Drain = "drain",
    }
    not yet: []
}

choice! {
    /// The framing of messages on an agent's stdio.
    Framing {
        /// One JSON object per line.
        Ndjson = "ndjson",
        /// `Content-Length` headers, as language servers do.
        Lsp = "lsp",
    }
    not yet: []
}

choice! {
    /// The protocol of an agent.
    Protocol {
        Intercom = "intercom",
        /// The Agent Client Protocol.
        Acp = "acp",
    }
    not yet: []
}

choice! {
    /// The level of detail of a session's thread.
    Verbosity {
        /// Pending requests, stuck sessions and failures only.
        Quiet = "quiet",
        /// The same, and the result of each turn.
        Normal = "normal",
        /// The same, and the agent's output while it arrives.
        Stream = "stream",
    }
    not yet: []
}

choice! {
    /// The time at which a prompt that arrives during a turn is sent to the agent.
    PromptDelivery {
        /// The prompt is sent at once.
        Immediate = "immediate",
        /// Prompts queue, and one is sent with each heartbeat.
        Heartbeat = "heartbeat",
    }
    not yet: []
}

choice! {
    /// The condition of an automatic restart.
    RestartPolicy {
        Never = "never",
        /// A restart after an exit code that is not 0, a signal, or a lost process.
        OnFailure = "on-failure",
        Always = "always",
    }
    not yet: []
}

choice! {
    /// The role of a person or token.
    RoleName {
        Viewer = "viewer",
        Operator = "operator",
        Approver = "approver",
        Admin = "admin",
    }
    not yet: []
}

choice! {
    /// The least role that may start agents.
    #[derive(Default)]
    StartRole {
        Approver = "approver",
        #[default]
        Admin = "admin",
    }
    not yet: []
}

impl StartRole {
    pub fn role(self) -> Role {
        match self {
            Self::Approver => Role::Approver,
            Self::Admin => Role::Admin,
        }
    }
}

impl RoleName {
    pub fn role(self) -> Role {
        match self {
            Self::Viewer => Role::Viewer,
            Self::Operator => Role::Operator,
            Self::Approver => Role::Approver,
            Self::Admin => Role::Admin,
        }
    }
}

choice! {
    /// The level of risk.
    RiskName {
        Low = "low",
        Medium = "medium",
        High = "high",
        Critical = "critical",
    }
    not yet: []
}

impl RiskName {
    pub fn risk(self) -> Risk {
        match self {
            Self::Low => Risk::Low,
            Self::Medium => Risk::Medium,
            Self::High => Risk::High,
            Self::Critical => Risk::Critical,
        }
    }
}

choice! {
    /// The verdict on an expired clearance.
    #[derive(Default)]
    OnExpiry {
        #[default]
        Deny = "deny",
        Approve = "approve",
    }
    not yet: []
}

impl OnExpiry {
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Deny => Verdict::Deny,
            Self::Approve => Verdict::Approve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back_as_itself() {
        for word in ["ndjson", "lsp"] {
            assert_eq!(word.parse::<Framing>().unwrap().to_string(), word);
        }
        for word in ["immediate", "heartbeat"] {
            assert_eq!(word.parse::<PromptDelivery>().unwrap().to_string(), word);
        }
        assert_eq!("intercom".parse::<Protocol>().unwrap().to_string(), "intercom");
    }

    #[test]
    fn a_wrong_word_is_answered_with_the_right_ones() {
        let check = |error: ChoiceError, expect: &str| assert_eq!(error.to_string(), expect);
        check("NDJSON".parse::<Framing>().unwrap_err(), r#""NDJSON" is not known, use "ndjson" or "lsp""#);
        check("mcp".parse::<Protocol>().unwrap_err(), r#""mcp" is not known, use "intercom" or "acp""#);
    }
}
