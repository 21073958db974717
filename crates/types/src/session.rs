//! The public view of a session.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::time::rfc3339;
use super::{
    AgentCondition, AgentInfo, Controls, Failure, FailureKind, LadderChoice, OpenEnum, Preset, ProgressStep,
    PromptCapabilities, SessionId, Situation, Time, TurnId,
};

/// The protocol of a session whose agent uses the Agent Client Protocol.
const ACP: &str = "acp";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(EnumString, IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case", const_into_str)]
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
    /// Reports whether a session in this phase has, or is about to have, a process.
    pub const fn is_live(self) -> bool {
        !matches!(self, Self::Parked | Self::Ended)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    pub started_at: Time,
}

/// The way in which a process tree is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum StopMode {
    /// The whole ladder, gentlest first.
    Stop,
    /// SIGKILL immediately.
    Kill,
}

/// The exit status of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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
    /// The reason for the phase, in a sentence for people.
    pub why: String,
    pub pid: Option<i32>,
    pub generation: u32,
    pub turn: Option<Turn>,
    pub pending_clearances: u32,
    pub pending_questions: u32,
    pub queue: u32,
    /// The stderr tail of the last process; the host has that of a running one.
    pub stderr_tail: String,
    pub created_at: Time,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    pub exit: Option<Exit>,
    pub end_reason: Option<String>,
    /// A failure that no operator has seen yet.
    pub failed: Option<Failure>,
    /// The reason why policy does not bind its agent; `None` if it does.
    pub unenforced: Option<String>,
    pub preset: Preset,
    pub watch_state: WatchState,
    pub agent_info: AgentInfo,
    /// The time of its newest event, which only the log has.
    pub updated_at: Option<Time>,
}

impl SessionRecord {
    pub fn is_busy(&self) -> bool {
        self.turn.is_some() || self.queue > 0
    }

    /// Reports whether its agent uses the Agent Client Protocol.
    pub fn is_acp(&self) -> bool {
        self.protocol == ACP
    }
}

/// The fate of a session that an ACP client started, when no client is attached to it any more. The configuration,
/// `intercom acp` and the address of a connection choose it with the same two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", try_from = "String")]
#[derive(EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[strum(parse_err_ty = OnClientLeftError, parse_err_fn = OnClientLeftError::from)]
pub enum OnClientLeft {
    /// It ends after a while if no other client has used it.
    Close,
    /// It stays until it is abandoned.
    Keep,
}

impl OnClientLeft {
    pub const ALL: [Self; 2] = [Self::Close, Self::Keep];
}

/// The error for any other word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not known, use \"close\" or \"keep\"")]
pub struct OnClientLeftError {
    given: String,
}

impl From<&str> for OnClientLeftError {
    fn from(given: &str) -> Self {
        Self { given: given.to_owned() }
    }
}

impl TryFrom<String> for OnClientLeft {
    type Error = OnClientLeftError;

    fn try_from(given: String) -> Result<Self, OnClientLeftError> {
        given.parse()
    }
}

/// The result of watching a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchState {
    /// The condition of its agent, if that is more specific than its phase.
    pub standing: Option<AgentCondition>,
    pub ladder: LadderChoice,
    pub snoozed_until: Option<Time>,
    /// The beginning of its phase; unknown for sessions of releases that did not record it.
    #[serde(default)]
    pub phase_since: Option<Time>,
    /// `None` if no ACP client started it.
    #[serde(default)]
    pub on_client_left: Option<OnClientLeft>,
    /// The time since which no ACP client is attached, for a session that an ACP client started.
    #[serde(default)]
    pub left_at: Option<Time>,
}

/// A session as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Session {
    pub id: SessionId,
    pub name: Option<String>,
    /// The agent's title for it, else its name, else the beginning of its first prompt.
    pub title: Option<String>,
    /// The beginning of its first prompt.
    pub first_prompt: Option<String>,
    pub agent: Option<String>,
    #[serde(default)]
    pub protocol: String,
    #[serde(default)]
    pub workspace: String,
    pub phase: OpenEnum<Phase>,
    /// The beginning of the phase; `null` if an older daemon did not record it.
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Time>,
    #[serde(default)]
    pub why: String,
    /// The session has no process yet: its first prompt starts it.
    #[serde(default)]
    pub deferred: bool,
    /// The limit of its permissions: `full`, `read-only`, `safe` or `sandbox`.
    #[serde(default)]
    pub preset: OpenEnum<Preset>,
    pub pid: Option<i32>,
    #[serde(default)]
    pub generation: u32,
    pub turn: Option<SessionTurn>,
    #[serde(default)]
    pub pending: PendingRequests,
    /// The number of waiting prompts.
    #[serde(default)]
    pub queue: usize,
    #[serde(default)]
    pub stderr_tail: String,
    /// The current processes of the session; `null` in lists.
    pub processes: Option<Vec<SessionProcess>>,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "String")]
    pub created_at: Option<Time>,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Time>,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub ended_at: Option<Time>,
    /// The time of its newest event.
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub updated_at: Option<Time>,
    pub exit: Option<SessionExit>,
    /// Its last failure, until an operator has seen it or a turn succeeds; `null` otherwise.
    pub failed: Option<SessionFailure>,
    /// The reason why policy may not bind its agent; `null` if it does.
    pub unenforced: Option<String>,
    /// The condition of its agent; `null` if none runs.
    pub standing: Option<AgentStanding>,
    /// The settings of its agent; `null` if it has none.
    pub controls: Option<Controls>,
    /// The content that its agent accepts in a prompt besides text and links; `null` if the agent does not report it.
    pub prompt_capabilities: Option<PromptCapabilities>,
    /// The usage that its agent reports; `null` if it reports none.
    pub spent: Option<Usage>,
    /// The plan and progress that its agent reports.
    #[serde(default)]
    pub progress: Vec<ProgressStep>,
}

/// The running turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SessionTurn {
    pub id: TurnId,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub started_at: Time,
}

/// The number of requests that wait for people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct PendingRequests {
    pub clearances: usize,
    pub questions: usize,
}

/// The end of a process and its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SessionExit {
    #[serde(flatten)]
    pub status: Exit,
    pub reason: Option<String>,
}

/// A failure that no operator has seen yet, with advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SessionFailure {
    /// `turn`, `log_in`, `start` or `exit`.
    #[serde(default)]
    pub kind: OpenEnum<FailureKind>,
    pub reason: String,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub at: Time,
    /// Advice for the current phase.
    #[schemars(with = "String")]
    pub hint: Option<String>,
    /// The next step after the log-in; `null` if no log-in is missing.
    pub after_log_in: Option<String>,
}

/// One process of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SessionProcess {
    pub pid: i32,
    pub parent: i32,
    pub name: String,
    /// The kernel's letter for the state: `R` runs, `S` sleeps, `T` is stopped, …
    pub state: char,
    pub cpu_seconds: f64,
    pub memory_bytes: u64,
}

/// The condition of an agent, and the steps taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AgentStanding {
    /// `working`, `waiting_for_you`, `waiting_for_service`, `idle`, `quiet`, `stuck`, `gone` or `orphan`; `null` while
    /// it starts or stops.
    pub state: Option<OpenEnum<Situation>>,
    /// The time since which nothing has happened.
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Time>,
    /// A tool or a process that the agent runs.
    pub running: Option<RunningTool>,
    /// The steps taken so far: "nudged 1/2".
    pub done: Option<String>,
    /// The end of the limit of its service.
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Time>,
    /// `on`, `off`, or its own steps, separated by commas.
    #[serde(default)]
    pub ladder: String,
    #[serde(default, with = "rfc3339::optional")]
    #[schemars(with = "Option<String>")]
    pub snoozed_until: Option<Time>,
}

/// A tool or a process that an agent waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunningTool {
    pub name: String,
    #[serde(with = "rfc3339")]
    #[schemars(with = "String")]
    pub since: Time,
}

/// The usage of a session, as its agent reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Usage {
    pub turns: u64,
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
    pub total_tokens: u64,
    pub cost: f64,
    pub currency: Option<String>,
    /// The reason why no new turn begins; `null` if turns may begin.
    pub capped: Option<String>,
}

impl Session {
    /// The word of the phase column for an agent that is stuck, or whose process is stopped.
    pub const STUCK: &str = "stuck";
    /// The word of the phase column for a running agent whose history the database does not know.
    pub const ORPHAN: &str = "orphan";
    /// The word of the phase column for a failure that no operator has seen.
    pub const FAILED: &str = "failed";

    /// Returns the start of its process, else the session's own: a process that could not be started has no time.
    pub fn began_at(&self) -> Option<Time> {
        self.started_at.or(self.created_at)
    }

    /// Returns its name if it has one, else its short id.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.short())
    }

    /// Returns its name and its id, or its id alone.
    pub fn name_and_id(&self) -> String {
        let id = self.id.short();
        self.name.as_ref().map_or_else(|| id.clone(), |name| format!("{name} ({id})"))
    }

    /// Reports whether it has, or is about to have, a process; an unknown phase counts as one that has.
    pub fn is_live(&self) -> bool {
        self.phase.known().is_none_or(Phase::is_live)
    }

    pub fn is_busy(&self) -> bool {
        self.turn.is_some() || self.queue > 0
    }

    /// Reports whether its agent uses the Agent Client Protocol.
    pub fn is_acp(&self) -> bool {
        self.protocol == ACP
    }

    /// Returns the unseen failure, unless its agent works again.
    pub fn failure(&self) -> Option<&SessionFailure> {
        self.failed.as_ref().filter(|_| !matches!(self.phase.known(), Some(Phase::Waiting | Phase::Working)))
    }

    /// Returns the word of the phase column: the phase, unless its agent has failed or is stuck in it. *Parked* already
    /// implies a failure.
    pub fn phase_word(&self) -> &str {
        let state = self.standing.as_ref().and_then(|standing| standing.state.as_ref()?.known());
        match (self.phase.known(), state) {
            (phase, _) if self.failure().is_some() && phase != Some(Phase::Parked) => Self::FAILED,
            (Some(Phase::Working | Phase::Idle), Some(Situation::Stuck | Situation::Gone)) => Self::STUCK,
            (Some(Phase::Working | Phase::Idle), Some(Situation::Orphan)) => Self::ORPHAN,
            _ => &self.phase,
        }
    }

    /// Returns the rank in lists: a failure, a pending request, a stuck or parked agent, the rest.
    pub fn urgency(&self) -> u8 {
        match self.phase_word() {
            _ if self.failure().is_some() => 0,
            "waiting" => 1,
            Self::STUCK | Self::ORPHAN | "parked" => 2,
            _ => 3,
        }
    }

    /// Reports whether its agent's condition says more than its phase.
    pub fn is_watched_closely(&self) -> bool {
        self.standing.as_ref().is_some_and(|standing| standing.since.is_some())
    }

    /// Returns its title, or the beginning of its first prompt if its title is only its name.
    pub fn own_title(&self) -> Option<&str> {
        let title = self.title.as_deref().filter(|title| Some(*title) != self.name.as_deref());
        title.or(self.first_prompt.as_deref())
    }

    pub fn snoozed_until(&self) -> Option<Time> {
        self.standing.as_ref()?.snoozed_until
    }

    /// Returns the ladder, if it is not the configured one.
    pub fn ladder(&self) -> Option<&str> {
        let ladder = self.standing.as_ref()?.ladder.as_str();
        (!ladder.is_empty() && ladder != "on").then_some(ladder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_session_is_read_with_absent_and_unknown_fields() {
        let body = json!({"id": "ses_0123456789abcdef", "phase": "dreaming", "new": {"x": 1}, "name": null,
            "pending": {"clearances": 2, "questions": 1, "new": 3}});
        let session: Session = serde_json::from_value(body).unwrap();
        assert_eq!(session.label(), "ses_01234567");
        assert_eq!((session.pending.clearances, session.pending.questions, session.queue), (2, 1, 0));
        assert_eq!(session.phase_word(), "dreaming");
    }
}
