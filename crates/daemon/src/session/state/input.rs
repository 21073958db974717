//! The inputs of a session, and the reasons why one is refused.

use super::{AdoptedProcess, RequestAssessment, SessionSpec};
use crate::session::host_call::{HostCallAssessment, HostCallError, HostCallResult};
use intercom_host::ProcessActivity;
use intercom_types::{
    Answer, ClearanceId, ClearanceRequest, ControlChange, Exit, HostCall, LadderChoice, Preset, PromptBody,
    PromptId, QuestionId, RequestId, Ruling, StopMode, Time, Verdict,
};

/// An input of a session.
#[derive(Debug, Clone)]
pub enum SessionInput {
    // from the supervisor
    Launch {
        by: String,
        command: String,
        prompt: Option<String>,
        ladder: LadderChoice,
    },
    Resume {
        by: String,
    },
    /// Another agent for a session that has had no process.
    Agent {
        spec: Box<SessionSpec>,
        command: String,
        by: String,
    },
    /// It has rested long enough. With what it was asked last, if that is to be repeated.
    Restart {
        prompt: Option<PromptBody>,
    },
    /// Its process was found running, and nobody knows what it was told.
    Adopt(Box<AdoptedProcess>),
    /// Somebody else than the ACP client that started it uses it.
    Keep {
        by: String,
    },
    /// ACP clients have come, or the last of them has left.
    Clients {
        attached: bool,
    },
    // from the host
    Spawned {
        pid: i32,
    },
    SpawnFailed {
        cause: String,
    },
    Delivered {
        n: u64,
    },
    Undelivered {
        n: u64,
        cause: String,
    },
    Exited(Box<AgentExit>),
    // from the driver
    AgentMessage(Box<intercom_types::AgentMessage>),
    /// A request for a clearance, with what was found out about it.
    ClearanceRequested(Box<ClearanceRequest>, Box<RequestAssessment>),
    /// Something that the agent wants us to do, with what was found out about it.
    HostCall(Box<HostCall>, Box<HostCallAssessment>),
    /// The result of a host call.
    HostCallDone {
        request: RequestId,
        result: Box<Result<HostCallResult, HostCallError>>,
    },
    /// The end of a terminal's command; `why` is set if the exit status is not known.
    TerminalEnded {
        terminal: String,
        exit: Exit,
        why: Option<String>,
    },
    // from the clock
    Expire,
    /// Policy has changed and decides a pending clearance.
    Ruled {
        clearance: ClearanceId,
        ruling: Ruling,
    },
    /// Another daemon goes on with its process.
    Found,
    /// We listen to it again: its silence was ours.
    Listening,
    /// A look at what its processes do, where that can be seen.
    Watch(Option<Box<ProcessActivity>>),
    // from operators
    Prompt {
        /// The id that the caller gave; without one, we choose it.
        id: Option<PromptId>,
        wording: PromptBody,
        by: String,
    },
    TakeBack {
        prompt: PromptId,
        by: String,
    },
    /// Changes a prompt that waits: its words, its place in the queue, or both.
    Amend {
        prompt: PromptId,
        text: Option<String>,
        place: Option<usize>,
        by: String,
    },
    Decide {
        clearance: ClearanceId,
        verdict: Verdict,
        reason: Option<String>,
        option: Option<String>,
        by: String,
        /// From where.
        via: String,
    },
    Answer {
        question: QuestionId,
        answer: Answer,
        instruction: Option<String>,
        by: String,
    },
    Nudge {
        message: String,
        by: String,
    },
    Interrupt {
        reason: String,
        by: String,
    },
    List {
        by: String,
    },
    Set {
        set: ControlChange,
        by: String,
    },
    /// No steps of the ladder until then.
    Snooze {
        until: Option<Time>,
        by: String,
    },
    Ladder {
        choice: LadderChoice,
        by: String,
    },
    /// A new limit on what it may do.
    Preset {
        preset: Preset,
        /// True if the caller permits more than before.
        widens: bool,
        by: String,
    },
    Stop {
        mode: StopMode,
        by: String,
    },
    /// An operator has seen that the session failed: this failure, or any.
    Seen {
        at: Option<Time>,
        by: String,
    },
}

/// The end of a process and its tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentExit {
    pub exit: Exit,
    /// Why, in words: "stream closed", "exited", …; overruled by an operator's stop.
    pub reason: String,
    pub steps: Vec<String>,
    pub killed: u32,
    pub stderr_tail: String,
    /// The request that it had not answered, where its protocol has answers.
    pub unanswered: Option<&'static str>,
    /// Bytes that were rescued from the pipe of its output, if nobody listened to it for a while: more may be missing.
    pub rescued: Option<u64>,
}

/// Why an operator's wish was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    #[error("the session has ended")]
    Ended,
    #[error("the session is parked: it is resumed first")]
    Parked,
    #[error("the session is stopping")]
    Stopping,
    #[error("the agent is still starting")]
    Starting,
    #[error("the session has no agent yet: its first prompt starts it")]
    NotStarted,
    #[error("the session has an agent already")]
    Started,
    #[error("the session is running: only an ended or parked one can be resumed")]
    Running,
    #[error(
        "the session is an orphan: the database does not know what its agent was told, so it can only be stopped"
    )]
    Orphan,
    #[error("it is not open any more")]
    NotOpen,
    #[error("you have approved it already: {0} different people have to")]
    Approved(u32),
    #[error("it takes one of the agent's own options: {0}")]
    OptionRequired(String),
    #[error("its agent does not tell which sessions it remembers")]
    NothingToList,
    #[error("there is nothing to be set: its protocol has no modes, models or options")]
    NothingToSet,
    #[error("the others who approved it chose another option: {0}")]
    OtherOption(String),
    #[error("the preset `{0}` forbids what `{1}` does not: an approver has to choose it", from.as_str(), to.as_str())]
    Widens { from: Preset, to: Preset },
    #[error("the prompt is on its way or delivered")]
    NotQueued,
    #[error("the agent does not read what it is sent: {0} messages are under way")]
    Unread(usize),
    #[error("the daemon stops and leaves the agent running")]
    Left,
    #[error("there are {0} prompts in the queue already")]
    QueueFull(usize),
}
