//! Failures of agents: recorded beside the phase until an operator has seen them or a turn succeeds.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::{Phase, Time};

/// The part of a session's life in which it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum FailureKind {
    /// A turn ended with an error.
    Turn,
    /// The agent requires a log-in.
    LogIn,
    /// The agent did not become ready.
    Start,
    /// The agent's process ended by itself.
    Exit,
}

/// The beginning of the reason of an agent whose program could not be run.
pub const NOT_STARTED: &str = "could not be started: ";

/// A failure of a session's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// One line for people.
    pub reason: String,
    pub at: Time,
    /// The way to log in, if a log-in is missing.
    #[serde(default)]
    pub log_in: Option<String>,
    /// A prompt was not processed because a log-in was missing, and is not in the queue either.
    #[serde(default)]
    pub prompt_lost: bool,
}

impl Failure {
    /// Returns the next step after the log-in, if one is missing.
    pub fn after_log_in(&self, phase: Phase, session: &str, queued: u32) -> Option<String> {
        self.log_in.as_ref()?;
        let prompt = match queued {
            0 if self.prompt_lost => format!("; send it the prompt again: `intercom send {session} PROMPT`"),
            0 => String::new(),
            1 => "; your prompt is kept and is sent then".to_owned(),
            queued => format!("; your {queued} prompts are kept and are sent then"),
        };
        Some(format!("{}{prompt}", restart(phase, session)))
    }

    /// Returns advice for the current phase. Each command works in this phase: `resume` needs a session that has ended.
    /// `queued` prompts are sent to the next process.
    pub fn hint(&self, phase: Phase, session: &str, queued: u32) -> String {
        let restart = restart(phase, session);
        match (&self.log_in, self.kind, phase) {
            (Some(log_in), ..) => {
                let after = self.after_log_in(phase, session, queued).unwrap_or_default();
                format!("{log_in}; then {after}")
            }
            (None, FailureKind::Start, Phase::Ended) if self.reason.starts_with(NOT_STARTED) => {
                format!("fix that, then start it again: {restart}")
            }
            (None, _, Phase::Ended | Phase::Parked | Phase::Stopping) => {
                format!("`intercom logs {session}` shows what it did last; start it again: {restart}")
            }
            (None, _, Phase::Created | Phase::Starting) => {
                format!("the agent is restarting; `intercom logs {session}` shows what happened")
            }
            (None, FailureKind::Turn | FailureKind::LogIn, _) => {
                format!(
                    "`intercom logs {session}` shows the turn; try again with `intercom send {session} PROMPT`, or {restart}"
                )
            }
            (None, FailureKind::Start | FailureKind::Exit, _) => {
                format!("the agent runs again; continue with `intercom send {session} PROMPT`")
            }
        }
    }
}

/// Returns the way to restart the agent's process.
fn restart(phase: Phase, session: &str) -> String {
    match phase {
        Phase::Ended | Phase::Parked => format!("`intercom resume {session}`"),
        Phase::Stopping => format!("once it has ended, `intercom resume {session}`"),
        _ => format!("restart the agent: `intercom stop {session} && intercom resume {session}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 8] = [
        Phase::Created,
        Phase::Starting,
        Phase::Idle,
        Phase::Working,
        Phase::Waiting,
        Phase::Stopping,
        Phase::Parked,
        Phase::Ended,
    ];

    fn hint(kind: FailureKind, log_in: Option<&str>, phase: Phase) -> String {
        let log_in = log_in.map(str::to_owned);
        let (reason, at, prompt_lost) = ("r".to_owned(), Time::from_millis(0), false);
        Failure { kind, reason, at, log_in, prompt_lost }.hint(phase, "shop", 0)
    }

    #[test]
    fn a_session_that_runs_is_never_to_be_resumed_without_a_stop() {
        for kind in [FailureKind::Turn, FailureKind::LogIn, FailureKind::Start, FailureKind::Exit] {
            for log_in in [None, Some("log in: run `x login`")] {
                for phase in PHASES {
                    let hint = hint(kind, log_in, phase);
                    let runs = phase.is_live() && phase != Phase::Stopping;
                    assert!(
                        !runs || !hint.contains("resume") || hint.contains("stop shop && intercom resume"),
                        "{kind:?} {phase:?}: {hint}"
                    );
                    assert_eq!(hint.contains("x login"), log_in.is_some(), "{hint}");
                }
            }
        }
    }

    #[test]
    fn a_missing_log_in_is_told_with_the_command_that_starts_the_agent_again() {
        assert_eq!(
            hint(FailureKind::LogIn, Some("log in: run `x login`"), Phase::Ended),
            "log in: run `x login`; then `intercom resume shop`"
        );
        assert_eq!(
            hint(FailureKind::LogIn, Some("log in: run `x login`"), Phase::Idle),
            "log in: run `x login`; then restart the agent: `intercom stop shop && intercom resume shop`"
        );
    }

    #[test]
    fn the_prompt_is_kept_or_to_be_sent_again() {
        let hint = |prompt_lost, queued| {
            let (log_in, at) = (Some("log in: run `x login`".to_owned()), Time::from_millis(0));
            let failure =
                Failure { kind: FailureKind::LogIn, reason: "r".to_owned(), at, log_in, prompt_lost };
            failure.hint(Phase::Ended, "shop", queued)
        };
        let begin = "log in: run `x login`; then `intercom resume shop`";
        assert_eq!(hint(false, 1), format!("{begin}; your prompt is kept and is sent then"));
        assert_eq!(hint(true, 2), format!("{begin}; your 2 prompts are kept and are sent then"));
        assert_eq!(hint(true, 0), format!("{begin}; send it the prompt again: `intercom send shop PROMPT`"));
    }
}
