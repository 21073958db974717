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
pub(crate) enum SessionInput {
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
    /// The end of a rest. `prompt` is the unfinished prompt, if it is to be repeated.
    Restart {
        prompt: Option<PromptBody>,
    },
    /// A process that was found running, whose messages are not known.
    Adopt(Box<AdoptedProcess>),
    /// Another user than the ACP client that started the session.
    Keep {
        by: String,
    },
    /// The arrival of ACP clients, or the departure of the last one.
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
    /// A request for a clearance, with its assessment.
    ClearanceRequested(Box<ClearanceRequest>, Box<RequestAssessment>),
    /// A host call, with its assessment.
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
    /// A ruling on a pending clearance after a change of policy.
    Ruled {
        clearance: ClearanceId,
        ruling: Ruling,
    },
    /// The start of another daemon, which continues with the process.
    Found,
    /// The end of a pause in reading: the agent's silence was ours.
    Listening,
    /// A sample of its processes' activity, where that can be seen.
    Watch(Option<Box<ProcessActivity>>),
    // from operators
    Prompt {
        /// The caller's id; without one, we choose it.
        id: Option<PromptId>,
        wording: PromptBody,
        by: String,
    },
    TakeBack {
        prompt: PromptId,
        by: String,
    },
    /// A change of a queued prompt: its text, its place in the queue, or both.
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
        /// The bridge or the address, in words.
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
    List,
    Set {
        set: ControlChange,
        by: String,
    },
    /// A suspension of the ladder's steps until then.
    Snooze {
        until: Option<Time>,
        by: String,
    },
    Ladder {
        choice: LadderChoice,
        by: String,
    },
    /// A new limit on the agent's permissions.
    Preset {
        preset: Preset,
        /// True if the new limit permits more than before.
        widens: bool,
        by: String,
    },
    Stop {
        mode: StopMode,
        by: String,
    },
    /// The acknowledgement of a failure: this one, or any.
    Seen {
        at: Option<Time>,
        by: String,
    },
}

/// The end of a process and its tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgentExit {
    pub(crate) exit: Exit,
    /// The reason in words: "stream closed", "exited", …; overruled by an operator's stop.
    pub(crate) reason: String,
    pub(crate) steps: Vec<String>,
    pub(crate) killed: u32,
    pub(crate) stderr_tail: String,
    /// The request that it had not answered, where its protocol has answers.
    pub(crate) unanswered: Option<&'static str>,
    /// The bytes that were rescued from its output pipe if nobody read it for a while: more may be missing.
    pub(crate) rescued: Option<u64>,
}

/// The reasons why an operator's command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    #[error("the session has ended")]
    Ended,
    #[error("the session is parked")]
    Parked,
    #[error("the session is stopping")]
    Stopping,
    #[error("the agent is still starting")]
    Starting,
    #[error("the session has no agent yet: its first prompt starts it")]
    NotStarted,
    #[error("the agent has already started")]
    Started,
    #[error("the session is running: only an ended or parked one can be resumed")]
    Running,
    #[error(
        "the session is an orphan: the database does not know the messages to its agent, so it can only be stopped"
    )]
    Orphan,
    #[error("it is not open any more")]
    NotOpen,
    #[error("you have approved it already: {0} different people have to")]
    Approved(u32),
    #[error("choose one of the agent's own options: {0}")]
    OptionRequired(String),
    #[error("its agent does not list its sessions")]
    NothingToList,
    #[error("its protocol has no modes, models or options")]
    NothingToSet,
    #[error("the others who approved it chose another option: {0}")]
    OtherOption(String),
    #[error("the preset `{0}` forbids what `{1}` does not: an approver has to choose it", from.as_str(), to.as_str())]
    Widens { from: Preset, to: Preset },
    #[error("the prompt has already been sent")]
    NotQueued,
    #[error("the agent does not read its input: {0} messages are pending")]
    Unread(usize),
    #[error("the daemon is stopping and leaves the agent running")]
    Left,
    #[error("there are {0} prompts in the queue already")]
    QueueFull(usize),
}
