//! Messages from and to an agent, independent of its protocol. Drivers translate.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{
    Answer, Choice, ControlChange, Controls, Event, HostCall, HostCallReply, Json, ProgressStep, PromptBody,
    PromptCapabilities, RequestId, Time, TurnId, TurnTokenCounts,
};

/// A message from an agent. Large ones are boxed: status lines and updates are far more frequent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentMessage {
    Clearance(Box<ClearanceRequest>),
    Question {
        request: RequestId,
        text: String,
        sort: Option<String>,
        params: Json,
        line: LineExcerpt,
    },
    Status {
        params: Json,
    },
    Heartbeat {
        params: Json,
        progress: HeartbeatProgress,
        /// A hash that stays the same as long as there is no progress.
        fingerprint: u64,
        steps: Vec<ProgressStep>,
    },
    /// The agent accepts prompts.
    Ready {
        /// The agent accepts text during a turn without an interrupt.
        supports_steering: bool,
        /// The agent can list the sessions that it remembers.
        supports_session_list: bool,
        /// The agent resumed a session of an earlier process.
        resumed: bool,
        prompt_capabilities: PromptCapabilities,
        /// The agent's description of itself.
        info: Json,
    },
    /// The agent needs a log-in; the end of its turn, or of its start, follows.
    LogInNeeded {
        reason: String,
        /// The agent's explanation.
        words: String,
        how: String,
        /// The agent did not process the prompt of its turn.
        untouched: bool,
    },
    /// The agent is unusable.
    Unusable {
        reason: String,
    },
    /// A message for the agent that the driver has composed.
    DriverText {
        text: String,
    },
    /// The agent withdraws a request.
    Withdrawn {
        request: RequestId,
        message: Json,
    },
    /// The agent's plan and its progress.
    Steps(Vec<ProgressStep>),
    /// The agent's title for the session, if any.
    Title(Option<String>),
    /// All settings of the agent.
    Controls(Box<Controls>),
    /// The sessions that the agent remembers, or the reason why it does not list them.
    SessionList {
        result: Json,
        ok: bool,
    },
    /// The agent applied the setting with this number of ours.
    SettingAccepted {
        set: Option<u64>,
        result: Json,
    },
    /// The agent refused a setting.
    SettingRefused {
        set: Option<u64>,
        reason: String,
        error: Json,
    },
    /// The cost of the agent's process so far, in millionths.
    Cost {
        micros: u64,
        currency: Option<String>,
    },
    /// The agent refused text for a running turn.
    SteeringRefused {
        message: String,
        /// For the agent no turn runs; if one runs for us, its end is in transit.
        no_turn: bool,
    },
    /// The agent repeats our own text: logged, but no sign of activity.
    Echo(Box<Event>),
    /// Any other report of a working agent.
    Update {
        params: Json,
    },
    TurnEnd {
        stop_reason: String,
        tokens: TurnTokenCounts,
        params: Json,
        /// The message is an error answer of the agent.
        failed: bool,
        /// The turn that the message names, if protocol and agent support it.
        turn: Option<TurnId>,
        /// The complete message, in case there is no turn to end.
        message: Json,
    },
    /// A tool call of the agent, with or without a clearance.
    Tool {
        /// The tool changes something: it writes a file or runs a command.
        changes_something: bool,
        call: Option<ToolCallState>,
        params: Json,
    },
    /// A call to the host.
    HostCall(Box<HostCall>),
    /// The agent is blocked by a limit of the service that it depends on.
    Limited {
        /// `usage`, `rate`, or the agent's name for the limit.
        kind: String,
        resets: LimitResetTime,
        params: Json,
    },
    /// The result of a cleared action.
    Outcome {
        request: RequestId,
        outcome: String,
        params: Json,
    },
    /// A valid but unknown message: logged in full, and answered with an error if it was a request.
    Unknown {
        message: Json,
        fault: Option<RequestFault>,
    },
    /// An unusable line: logged as an excerpt, and answered with an error if possible.
    Rejected {
        rejection: LineRejection,
        fault: Option<RequestFault>,
    },
}

/// The state of a tool call, which the agent reports more than once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallState {
    pub id: String,
    pub title: String,
    /// The call is in progress.
    pub open: bool,
}

/// The time when a limit ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitResetTime {
    At(Time),
    After(Duration),
    Unknown,
}

/// A request for a clearance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearanceRequest {
    pub request: RequestId,
    pub title: String,
    pub description: Option<String>,
    pub diff: Option<String>,
    pub file_path: Option<String>,
    /// Other files that it concerns.
    pub more_paths: Vec<String>,
    pub tool: Option<String>,
    pub command: Option<String>,
    /// Agents of this protocol claim a risk; if such an agent does not, that is a risk of its own.
    pub claims_risk: bool,
    pub claimed_risk: Option<String>,
    pub options: Vec<Choice>,
    /// Everything the agent sent, known or not.
    pub params: Json,
    pub line: LineExcerpt,
}

/// An excerpt of the line that a request came in, in case it is rejected later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineExcerpt {
    pub excerpt: String,
    pub bytes: u64,
}

/// The progress that a heartbeat's list of steps shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatProgress {
    Empty,
    Open,
    Completed,
}

/// The reason why a line was unusable, with a shortened excerpt of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Rejection")]
pub struct LineRejection {
    pub reason: String,
    pub excerpt: String,
    pub bytes: u64,
    pub method: Option<String>,
    pub field: Option<String>,
}

/// An error answer to an agent's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFault {
    pub request: RequestId,
    pub code: FaultCode,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum FaultCode {
    UnknownMethod,
    MissingField,
    InvalidField,
    DuplicateId,
    TooLong,
    /// The request was withdrawn.
    Cancelled,
    /// The subject of the request does not exist.
    NotFound,
    /// The action was denied or failed.
    Failed,
}

/// A command to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentCommand {
    Decision {
        request: RequestId,
        approved: bool,
        reason: Option<String>,
        option: Option<String>,
    },
    Answer {
        request: RequestId,
        decision: Answer,
        instruction: Option<String>,
    },
    Prompt {
        wording: PromptBody,
        /// The turn that it belongs to.
        turn: Option<TurnId>,
    },
    Interrupt {
        reason: String,
    },
    Nudge {
        message: String,
    },
    Fault(RequestFault),
    /// The answer to a host call of the agent.
    Reply {
        request: RequestId,
        reply: HostCallReply,
    },
    /// The first message, for protocols that have one.
    Hello,
    /// Cancels a request of the agent: it gets no answer any more.
    Cancel {
        request: RequestId,
    },
    /// Changes a setting, with a number that identifies the answer.
    ChangeSetting {
        set: ControlChange,
        number: u64,
    },
    /// Requests the list of sessions that the agent remembers.
    ListSessions,
    /// Stops waiting for the confirmation of a cancelled turn.
    AbandonTurn,
    /// Announces the end of the session, for protocols that support it.
    Close,
    /// Text that the driver itself has composed and understands.
    Text(String),
}
