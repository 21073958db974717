//! What a session looks like from outside.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Failure, LadderChoice, Preset, SessionId, Standing, Time, Told, TurnId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Created,
    Starting,
    Idle,
    Working,
    Waiting,
    Stopping,
    Parked,
    Ended,
}

impl Phase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Working => "working",
            Self::Waiting => "waiting",
            Self::Stopping => "stopping",
            Self::Parked => "parked",
            Self::Ended => "ended",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "created" => Self::Created,
            "starting" => Self::Starting,
            "idle" => Self::Idle,
            "working" => Self::Working,
            "waiting" => Self::Waiting,
            "stopping" => Self::Stopping,
            "parked" => Self::Parked,
            "ended" => Self::Ended,
            _ => return None,
        })
    }

    /// Whether a session in this phase has, or is about to have, a process.
    pub const fn is_live(self) -> bool {
        !matches!(self, Self::Parked | Self::Ended)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    pub started_at: Time,
}

/// The manner in which a process tree is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopMode {
    /// The whole ladder, gentlest first.
    Stop,
    /// SIGKILL at once.
    Kill,
}

impl StopMode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Kill => "kill",
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("exit status unknown"),
        }
    }
}

/// A row of the session list: what every bridge shows of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    pub id: SessionId,
    pub name: Option<String>,
    /// The profile's name; `None` for an agent started by command.
    pub agent: Option<String>,
    pub protocol: String,
    pub workspace: PathBuf,
    pub phase: Phase,
    /// A sentence for people.
    pub why: String,
    pub pid: Option<i32>,
    pub generation: u32,
    pub turn: Option<Turn>,
    pub pending_clearances: u32,
    pub pending_questions: u32,
    pub queue: u32,
    /// The tail at the end of the last process; the live one is with the host.
    pub stderr_tail: String,
    pub created_at: Time,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    pub exit: Option<Exit>,
    pub end_reason: Option<String>,
    /// A failure that nobody has seen yet.
    pub failed: Option<Failure>,
    /// Why policy does not bind its agent, if it does not.
    pub unenforced: Option<String>,
    pub preset: Preset,
    pub watched: Watched,
    pub told: Told,
    /// The time of its newest event, which only the log knows.
    pub updated_at: Option<Time>,
}

/// The fate of a session that an ACP client started, when no client is attached to it any more. The configuration, `intercom acp` and
/// the address of a connection choose it with the same two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", try_from = "String")]
pub enum OnClientLeft {
    /// It ends after a while: nobody but that client has used it.
    Close,
    /// It stays until it is abandoned.
    Keep,
}

impl OnClientLeft {
    pub const ALL: [Self; 2] = [Self::Close, Self::Keep];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Keep => "keep",
        }
    }
}

/// A word that is neither of the two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not known, use \"close\" or \"keep\"")]
pub struct OnClientLeftError {
    given: String,
}

impl FromStr for OnClientLeft {
    type Err = OnClientLeftError;

    fn from_str(given: &str) -> Result<Self, OnClientLeftError> {
        let chosen = Self::ALL.into_iter().find(|choice| choice.as_str() == given);
        chosen.ok_or_else(|| OnClientLeftError { given: given.to_owned() })
    }
}

impl TryFrom<String> for OnClientLeft {
    type Error = OnClientLeftError;

    fn try_from(given: String) -> Result<Self, OnClientLeftError> {
        given.parse()
    }
}

/// What the watch over a session has come to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Where its agent stands, if that says more than its phase.
    pub standing: Option<Standing>,
    pub ladder: LadderChoice,
    pub snoozed_until: Option<Time>,
    /// Since when it is in its phase; not known of one from before this was kept.
    #[serde(default)]
    pub phase_since: Option<Time>,
    /// `None` if no ACP client started it.
    #[serde(default)]
    pub on_client_left: Option<OnClientLeft>,
    /// Since when no ACP client is attached, of one that was started by such a client.
    #[serde(default)]
    pub left_at: Option<Time>,
}
