//! Settings with a few possible words.
//!
//! They parse from strings only: serde's own enums would also accept `{ ndjson = {} }` and name the wrong key in
//! errors.

use serde::Deserialize;
use strum::{EnumString, VariantNames};

use intercom_types::{Risk, Role, Verdict};

/// An unknown word for a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not known, use {}", quoted(known))]
pub struct ChoiceError {
    given: String,
    known: &'static [&'static str],
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ")
}

fn unknown<T: VariantNames>(given: &str) -> ChoiceError {
    ChoiceError { given: given.to_owned(), known: T::VARIANTS }
}

macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($variants:tt)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
        #[serde(try_from = "String")]
        #[derive(EnumString, VariantNames, strum::Display)]
        #[strum(serialize_all = "kebab-case", parse_err_ty = ChoiceError, parse_err_fn = unknown::<$name>)]
        pub enum $name { $($variants)+ }

        impl TryFrom<String> for $name {
            type Error = ChoiceError;

            fn try_from(given: String) -> Result<Self, ChoiceError> {
                given.parse()
            }
        }
    };
}

choice! {
    /// The handling of a client's prompt while another one runs.
    Busy {
        /// The prompt waits for its turn.
        Queue,
        /// The prompt is refused at once.
        Refuse,
    }
}

choice! {
    /// The handling of the agents when the daemon stops.
    OnStop {
        /// The agents keep running, and the next daemon finds them.
        Leave,
        /// The agents are stopped, all at the same time, within five seconds.
        Drain,
    }
}

choice! {
    /// The framing of messages on an agent's stdio.
    Framing {
        /// One JSON object per line.
        Ndjson,
        /// `Content-Length` headers, as language servers do.
        Lsp,
    }
}

choice! {
    /// The protocol of an agent.
    Protocol {
        Intercom,
        /// The Agent Client Protocol.
        Acp,
    }
}

choice! {
    /// The level of detail of a session's thread.
    Verbosity {
        /// Pending requests, stuck sessions and failures only.
        Quiet,
        /// The same, and the result of each turn.
        Normal,
        /// The same, and the agent's output while it arrives.
        Stream,
    }
}

choice! {
    /// The time at which a prompt that arrives during a turn is sent to the agent.
    PromptDelivery {
        /// The prompt is sent at once.
        Immediate,
        /// Prompts queue, and one is sent with each heartbeat.
        Heartbeat,
    }
}

choice! {
    /// The condition of an automatic restart.
    RestartPolicy {
        Never,
        /// After an exit code that is not 0, a signal, or a loss.
        OnFailure,
        Always,
    }
}

choice! {
    /// The role of a person or token.
    RoleName {
        Viewer,
        Operator,
        Approver,
        Admin,
    }
}

choice! {
    /// The least role that may start agents.
    #[derive(Default)]
    StartRole {
        Approver,
        #[default]
        Admin,
    }
}

impl StartRole {
    pub(crate) fn role(self) -> Role {
        match self {
            Self::Approver => Role::Approver,
            Self::Admin => Role::Admin,
        }
    }
}

impl RoleName {
    pub(crate) fn role(self) -> Role {
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
        Low,
        Medium,
        High,
        Critical,
    }
}

impl RiskName {
    pub(crate) fn risk(self) -> Risk {
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
        Deny,
        Approve,
    }
}

impl OnExpiry {
    pub(crate) fn verdict(self) -> Verdict {
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
