//! What an agent says and what we say to it, in no protocol's words. Drivers translate.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Answer, Choice, ControlChange, Controls, Event, HostCall, HostCallReply, Json, ProgressStep, PromptBody,
    PromptCapabilities, RequestId, Time, TurnId, TurnTokenCounts,
};

/// One thing an agent said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentMessage {
    Clearance(ClearanceRequest),
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
        /// The same as long as there is no progress.
        fingerprint: u64,
        steps: Vec<ProgressStep>,
    },
    /// The agent can be told what to do now.
    Ready {
        /// Takes words during a turn without being interrupted.
        supports_steering: bool,
        /// Tells which sessions it remembers.
        supports_session_list: bool,
        /// Goes on with a session of an earlier process.
        resumed: bool,
        prompt_capabilities: PromptCapabilities,
        /// What it told about itself.
        info: Json,
    },
    /// Somebody has to log in before the agent can work; the end of its turn, or of its start, follows.
    LogInNeeded {
        reason: String,
        /// The agent's own words.
        words: String,
        how: String,
        /// The agent has done nothing about the prompt of its turn but to say so.
        untouched: bool,
    },
    /// The agent cannot be worked with.
    Unusable {
        reason: String,
    },
    /// To be told to the agent, in the driver's own words.
    DriverText {
        text: String,
    },
    /// A request is taken back by the agent.
    Withdrawn {
        request: RequestId,
        message: Json,
    },
    /// What it means to do, and how far it has come.
    Steps(Vec<ProgressStep>),
    /// What it calls the session, if anything.
    Title(Option<String>),
    /// What can be set, all of it.
    Controls(Box<Controls>),
    /// The sessions that it remembers itself, or why it does not tell.
    SessionList {
        result: Json,
        ok: bool,
    },
    /// What was to be set is, with this number of ours.
    SettingAccepted {
        set: Option<u64>,
        result: Json,
    },
    /// Something could not be set.
    SettingRefused {
        set: Option<u64>,
        reason: String,
        error: Json,
    },
    /// What its life has cost so far, in millionths.
    Cost {
        micros: u64,
        currency: Option<String>,
    },
    /// Words for a turn that runs were not taken.
    SteeringRefused {
        message: String,
        /// To the agent none runs; its end is on the way if it does to us.
        no_turn: bool,
    },
    /// Our own words, as it repeats them: kept, but no sign of life.
    Echo(Event),
    /// Anything else that it tells while it works.
    Update {
        params: Json,
    },
    TurnEnd {
        stop_reason: String,
        tokens: TurnTokenCounts,
        params: Json,
        /// It is an error that the agent has answered.
        failed: bool,
        /// The turn that it names, where its protocol and the agent do.
        turn: Option<TurnId>,
        /// All of it, in case there is no turn to be ended.
        message: Json,
    },
    /// What it does, whether or not it has asked.
    Tool {
        /// Changes something: a file is written, a command is run.
        changes_something: bool,
        call: Option<ToolCallState>,
        params: Json,
    },
    /// Something that it wants us to do.
    HostCall(Box<HostCall>),
    /// A limit of the service that it depends on keeps it from going on.
    Limited {
        /// `usage`, `rate`, or what it calls it.
        kind: String,
        resets: LimitResetTime,
        params: Json,
    },
    /// What came of something that it was allowed.
    Outcome {
        request: RequestId,
        outcome: String,
        params: Json,
    },
    /// Valid, but not known to us: kept whole, and answered with an error if it was a request.
    Unknown {
        message: Json,
        fault: Option<RequestFault>,
    },
    /// Not usable: kept as an excerpt, and answered with an error where it can be.
    Rejected {
        rejection: LineRejection,
        fault: Option<RequestFault>,
    },
}

/// A tool call, as it is told of more than once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallState {
    pub id: String,
    pub title: String,
    /// It is under way.
    pub open: bool,
}

/// When a limit is over.
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
    /// Other files that it is about.
    pub more_paths: Vec<String>,
    pub tool: Option<String>,
    pub command: Option<String>,
    /// Whether agents like this one say how risky something is; if one does and has not, that is a risk of its own.
    pub claims_risk: bool,
    pub claimed_risk: Option<String>,
    pub options: Vec<Choice>,
    /// Everything the agent sent, known or not.
    pub params: Json,
    pub line: LineExcerpt,
}

/// What is left of the line that a request came in, in case it has to be rejected after all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineExcerpt {
    pub excerpt: String,
    pub bytes: u64,
}

/// What a heartbeat's list of steps adds up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatProgress {
    Empty,
    Open,
    Completed,
}

/// Why a line was not usable, with a cut excerpt of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Rejection")]
pub struct LineRejection {
    pub reason: String,
    pub excerpt: String,
    pub bytes: u64,
    pub method: Option<String>,
    pub field: Option<String>,
}

/// An error answer to a request of the agent's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFault {
    pub request: RequestId,
    pub code: FaultCode,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    UnknownMethod,
    MissingField,
    InvalidField,
    DuplicateId,
    TooLong,
    /// It was taken back.
    Cancelled,
    /// What it is about is not there.
    NotFound,
    /// It was not allowed, or could not be done.
    Failed,
}

impl FaultCode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownMethod => "unknown_method",
            Self::MissingField => "missing_field",
            Self::InvalidField => "invalid_field",
            Self::DuplicateId => "duplicate_id",
            Self::TooLong => "too_long",
            Self::Cancelled => "cancelled",
            Self::NotFound => "not_found",
            Self::Failed => "failed",
        }
    }
}

/// One thing we say to an agent.
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
    /// A host call of the agent was performed.
    Reply {
        request: RequestId,
        reply: HostCallReply,
    },
    /// The first words, of a protocol that has them.
    Hello,
    /// A request of the agent's is not answered any more.
    Cancel {
        request: RequestId,
    },
    /// With a number, by which the answer is known.
    ChangeSetting {
        set: ControlChange,
        number: u64,
    },
    /// Which sessions do you remember?
    ListSessions,
    /// A turn that was cancelled and never confirmed is not waited for any more.
    AbandonTurn,
    /// The session ends: a last word, for agents that have one.
    Close,
    /// In the words of the driver itself, which knows what it means.
    Text(String),
}
