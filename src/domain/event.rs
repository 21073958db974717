//! Events: facts in the log.

use super::{Json, SessionId, Time};

/// What sort of fact. In the log it is text, so that a reader can meet kinds that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    SessionCreated,
    /// A session that has had no process has another agent.
    SessionAgent,
    /// What it may do at most is another.
    SessionPreset,
    /// It stays when the ACP client that started it leaves: somebody else uses it.
    SessionKept,
    /// A process that this database does not know, or knows too little of, was found running.
    SessionAdopted,
    AgentSpawned,
    AgentReady,
    TurnStarted,
    TurnEnded,
    Status,
    Heartbeat,
    /// Something that the agent does.
    Update,
    /// Done for the agent: a file was read.
    FileRead,
    FileWritten,
    TerminalStarted,
    TerminalOutput,
    TerminalKilled,
    TerminalReleased,
    /// The command of a terminal has ended.
    TerminalEnded,
    /// Not done for the agent, and why.
    ErrandFailed,
    ClearanceRequested,
    /// One of several approvals that are needed.
    ClearanceApproved,
    ClearanceDecided,
    ClearanceDelivered,
    ClearanceUndelivered,
    ClearanceClosed,
    /// What came of it, by the agent's own word.
    ClearanceOutcome,
    QuestionAsked,
    QuestionAnswered,
    QuestionDelivered,
    QuestionUndelivered,
    QuestionClosed,
    PromptQueued,
    /// One has left the queue, for this turn.
    PromptSending,
    PromptDelivered,
    PromptUndelivered,
    PromptWithdrawn,
    /// The agent could not begin with it, and it is in the queue again.
    PromptRequeued,
    /// One that waits was reworded or put elsewhere in the queue.
    PromptAmended,
    Nudge,
    NudgeUndelivered,
    Interrupt,
    InterruptUndelivered,
    LineRejected,
    Unknown,
    /// Its agent does things without ever having asked.
    SessionUnenforced,
    SessionStopping,
    /// Some of the agent's output may be missing: nobody held its pipe for a while.
    OutputIncomplete,
    AgentExited,
    SessionResumed,
    SessionEnded,
    /// An operator has seen that it failed.
    SessionSeen,
    /// Its process has ended and will be started again.
    AgentRestarting,
    /// Its process was started again too often.
    SessionParked,
    /// Something is done about a stall.
    StallStep,
    /// And has not helped.
    StallFailed,
    /// The agent has come back to life.
    StallRecovered,
    /// A person acts: the ladder begins anew.
    StallReset,
    StallSnoozed,
    /// A session has another ladder, or none.
    StallLadder,
    /// People are waited for.
    StallReminder,
    /// The agent waits for its service.
    StallLimited,
    StallLimitOver,
    /// Something of the agent was set: its mode, its model, an option.
    AgentSet,
    /// And the agent has said so.
    AgentSetDone,
    AgentNotSet,
    /// The sessions that it remembers itself.
    AgentSessions,
    /// No new turn begins: enough was spent.
    SpendCapped,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SessionCreated => "session.created",
            Self::SessionAgent => "session.agent",
            Self::SessionPreset => "session.preset",
            Self::SessionKept => "session.kept",
            Self::SessionAdopted => "session.adopted",
            Self::AgentSpawned => "agent.spawned",
            Self::AgentReady => "agent.ready",
            Self::TurnStarted => "turn.started",
            Self::TurnEnded => "turn.ended",
            Self::Status => "status",
            Self::Update => "update",
            Self::Heartbeat => "heartbeat",
            Self::FileRead => "file.read",
            Self::FileWritten => "file.written",
            Self::TerminalStarted => "terminal.started",
            Self::TerminalOutput => "terminal.output",
            Self::TerminalKilled => "terminal.killed",
            Self::TerminalReleased => "terminal.released",
            Self::TerminalEnded => "terminal.ended",
            Self::ErrandFailed => "call.failed",
            Self::ClearanceRequested => "clearance.requested",
            Self::ClearanceApproved => "clearance.approved",
            Self::ClearanceDecided => "clearance.decided",
            Self::ClearanceDelivered => "clearance.delivered",
            Self::ClearanceUndelivered => "clearance.undelivered",
            Self::ClearanceOutcome => "clearance.outcome",
            Self::ClearanceClosed => "clearance.closed",
            Self::QuestionAsked => "question.asked",
            Self::QuestionAnswered => "question.answered",
            Self::QuestionDelivered => "question.delivered",
            Self::QuestionUndelivered => "question.undelivered",
            Self::QuestionClosed => "question.closed",
            Self::PromptQueued => "prompt.queued",
            Self::PromptSending => "prompt.sending",
            Self::PromptDelivered => "prompt.delivered",
            Self::PromptUndelivered => "prompt.undelivered",
            Self::PromptWithdrawn => "prompt.withdrawn",
            Self::PromptRequeued => "prompt.requeued",
            Self::PromptAmended => "prompt.amended",
            Self::Nudge => "nudge",
            Self::NudgeUndelivered => "nudge.undelivered",
            Self::Interrupt => "interrupt",
            Self::InterruptUndelivered => "interrupt.undelivered",
            Self::LineRejected => "line.rejected",
            Self::Unknown => "unknown",
            Self::SessionUnenforced => "session.unenforced",
            Self::SessionStopping => "session.stopping",
            Self::OutputIncomplete => "output.incomplete",
            Self::AgentExited => "agent.exited",
            Self::SessionResumed => "session.resumed",
            Self::SessionEnded => "session.ended",
            Self::SessionSeen => "session.seen",
            Self::AgentRestarting => "agent.restarting",
            Self::SessionParked => "session.parked",
            Self::StallStep => "stall.step",
            Self::StallFailed => "stall.failed",
            Self::StallRecovered => "stall.recovered",
            Self::StallReset => "stall.reset",
            Self::StallSnoozed => "stall.snoozed",
            Self::StallLadder => "stall.ladder",
            Self::StallReminder => "stall.reminder",
            Self::StallLimited => "stall.limited",
            Self::StallLimitOver => "stall.limit_over",
            Self::AgentSet => "agent.set",
            Self::AgentSetDone => "agent.set_done",
            Self::AgentNotSet => "agent.not_set",
            Self::AgentSessions => "agent.sessions",
            Self::SpendCapped => "spend.capped",
        }
    }
}

impl Kind {
    /// What somebody decided, or started, or ended, and somebody else may ask about later.
    pub const fn is_audited(self) -> bool {
        matches!(
            self,
            Self::SessionCreated
                | Self::SessionAdopted
                | Self::SessionAgent
                | Self::SessionPreset
                | Self::SessionResumed
                | Self::SessionStopping
                | Self::SessionEnded
                | Self::SessionParked
                | Self::StallSnoozed
                | Self::StallLadder
                | Self::ClearanceApproved
                | Self::ClearanceDecided
                | Self::ClearanceClosed
                | Self::QuestionAnswered
        )
    }
}

/// A fact that is not in the log yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub at: Time,
    pub kind: Kind,
    pub data: Json,
}

/// A fact in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub seq: u64,
    pub session: SessionId,
    pub at: Time,
    pub kind: String,
    pub data: Json,
}
