//! Events: the facts of the log, one payload type per kind.
//!
//! The JSON of a payload is public: the log stores it, the API serves it, and scripts read it. Its fields keep their
//! order, so that a log reads the same from release to release (`tests` compare every kind with recorded JSON). The
//! table below is the only place that spells the dotted names.

use std::borrow::Cow;

use strum::{EnumString, IntoStaticStr};

use super::{Json, SessionId, Time};

mod agent;
mod clearance;
mod host_call;
mod prompt;
mod question;
mod session;
mod stall;
#[cfg(test)]
mod tests;
mod turn;
mod update;

pub use agent::{
    AgentExited, AgentReady, AgentRestarting, AgentSetting, AgentSpawned, LineRejected, OutputIncomplete,
    RawMessage, SettingAccepted, SettingRefused, UnknownMessage,
};
pub use clearance::{
    AgentRequest, ClearanceApproved, ClearanceClosed, ClearanceDecided, ClearanceDelivered, ClearanceOutcome,
    ClearanceRequested, ClearanceUndelivered,
};
pub use host_call::{
    FileRead, FileWritten, HostCallFailed, TerminalEnded, TerminalKilled, TerminalOutput, TerminalReleased,
    TerminalStarted,
};
pub use prompt::{
    PromptAmended, PromptDelivered, PromptQueued, PromptRequeued, PromptSending, PromptUndelivered,
    PromptWithdrawn,
};
pub use question::{QuestionAnswered, QuestionAsked, QuestionClosed, QuestionDelivered, QuestionUndelivered};
pub use session::{
    SessionAdopted, SessionAgentChanged, SessionCreated, SessionEnded, SessionKept, SessionParked,
    SessionPresetChanged, SessionResumed, SessionSeen, SessionStopping, SessionUnenforced, SpendCapped,
};
pub use stall::{
    LadderChanged, LimitOver, LimitReached, StallRecovered, StallReminder, StallReset, StallSnoozed,
    StallStepFailed, StallStepTaken,
};
pub use turn::{Interrupted, MessageUndelivered, Nudged, TurnEnded, TurnStarted};
pub use update::{AgentUpdate, MessageChunk, PlanStep, Speaker};

/// The assumed size of a payload that is not a raw message.
const SMALL_PAYLOAD: usize = 256;

/// Declares every kind of event: its variant, its payload, and its name in the log.
macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident($payload:ty) = $name:literal,)*) => {
        /// The kinds of events that this version knows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, EnumString)]
        #[strum(const_into_str)]
        pub enum EventKind {
            $($(#[$doc])* #[strum(serialize = $name)] $variant,)*
        }

        impl EventKind {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the JSON schema of the payload.
            pub fn payload_schema(self, generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                match self {
                    $(Self::$variant => generator.subschema_for::<$payload>(),)*
                }
            }
        }

        /// A fact about one session.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Event {
            $($(#[$doc])* $variant($payload),)*
            /// A kind that this version does not know, or a payload that it cannot parse, kept completely.
            Other { kind: Box<str>, data: Json },
        }

        impl Event {
            /// Returns the kind; `None` for kinds that this version does not know.
            pub const fn kind(&self) -> Option<EventKind> {
                match self {
                    $(Self::$variant(_) => Some(EventKind::$variant),)*
                    Self::Other { .. } => None,
                }
            }

            /// Returns the name of its kind in the log.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Other { kind, .. } => kind,
                }
            }

            fn serialized(&self) -> serde_json::Result<String> {
                match self {
                    $(Self::$variant(payload) => serde_json::to_string(payload),)*
                    Self::Other { data, .. } => Ok(data.as_str().to_owned()),
                }
            }

            /// Parses an event of the log. An unknown kind or an invalid payload becomes `Other`, so that a reader can
            /// continue.
            pub fn parse(name: &str, data: &Json) -> Self {
                let other = || Self::Other { kind: name.into(), data: data.clone() };
                let kind = EventKind::parse(name);
                // These kinds are frequent, and their payloads are raw messages that need no parsing.
                if let Some(event) = kind.and_then(|kind| Self::said_by_agent(kind, data)) {
                    return event;
                }
                match kind {
                    $(Some(EventKind::$variant) => {
                        serde_json::from_str(data.as_str()).map_or_else(|_| other(), Self::$variant)
                    })*
                    None => other(),
                }
            }
        }
    };
}

events! {
    SessionCreated(SessionCreated) = "session.created",
    /// A session that has had no process gets another agent.
    SessionAgentChanged(SessionAgentChanged) = "session.agent",
    SessionPresetChanged(SessionPresetChanged) = "session.preset",
    /// Another client than the ACP client that started the session uses it: it stays when that client leaves.
    SessionKept(SessionKept) = "session.kept",
    /// A running process was found that the database does not know, or not completely.
    SessionAdopted(SessionAdopted) = "session.adopted",
    AgentSpawned(AgentSpawned) = "agent.spawned",
    AgentReady(AgentReady) = "agent.ready",
    TurnStarted(TurnStarted) = "turn.started",
    TurnEnded(TurnEnded) = "turn.ended",
    /// The agent reports its status.
    Status(RawMessage) = "status",
    Heartbeat(RawMessage) = "heartbeat",
    /// The agent sends text or uses a tool.
    Update(RawMessage) = "update",
    FileRead(FileRead) = "file.read",
    FileWritten(FileWritten) = "file.written",
    TerminalStarted(TerminalStarted) = "terminal.started",
    TerminalOutput(TerminalOutput) = "terminal.output",
    TerminalKilled(TerminalKilled) = "terminal.killed",
    TerminalReleased(TerminalReleased) = "terminal.released",
    /// The command of a terminal has ended.
    TerminalEnded(TerminalEnded) = "terminal.ended",
    /// A file or terminal call of the agent was refused or failed.
    HostCallFailed(HostCallFailed) = "call.failed",
    ClearanceRequested(Box<ClearanceRequested>) = "clearance.requested",
    /// One of several needed approvals.
    ClearanceApproved(ClearanceApproved) = "clearance.approved",
    ClearanceDecided(ClearanceDecided) = "clearance.decided",
    ClearanceDelivered(ClearanceDelivered) = "clearance.delivered",
    ClearanceUndelivered(ClearanceUndelivered) = "clearance.undelivered",
    /// The agent reports the result of the action that was cleared.
    ClearanceOutcome(ClearanceOutcome) = "clearance.outcome",
    /// Withdrawn or expired.
    ClearanceClosed(ClearanceClosed) = "clearance.closed",
    QuestionAsked(QuestionAsked) = "question.asked",
    QuestionAnswered(QuestionAnswered) = "question.answered",
    QuestionDelivered(QuestionDelivered) = "question.delivered",
    QuestionUndelivered(QuestionUndelivered) = "question.undelivered",
    QuestionClosed(QuestionClosed) = "question.closed",
    PromptQueued(PromptQueued) = "prompt.queued",
    /// A prompt leaves the queue and joins a turn.
    PromptSending(PromptSending) = "prompt.sending",
    PromptDelivered(PromptDelivered) = "prompt.delivered",
    PromptUndelivered(PromptUndelivered) = "prompt.undelivered",
    PromptWithdrawn(PromptWithdrawn) = "prompt.withdrawn",
    /// The agent could not start with the prompt: it is in the queue again.
    PromptRequeued(PromptRequeued) = "prompt.requeued",
    /// A queued prompt gets another text or another place.
    PromptAmended(PromptAmended) = "prompt.amended",
    Nudged(Nudged) = "nudge",
    NudgeUndelivered(MessageUndelivered) = "nudge.undelivered",
    Interrupted(Interrupted) = "interrupt",
    InterruptUndelivered(MessageUndelivered) = "interrupt.undelivered",
    LineRejected(LineRejected) = "line.rejected",
    /// A valid message that the protocol does not define.
    UnknownMessage(UnknownMessage) = "unknown",
    /// The agent acts without ever having asked for a clearance.
    SessionUnenforced(SessionUnenforced) = "session.unenforced",
    SessionStopping(SessionStopping) = "session.stopping",
    /// Output of the agent may be missing: for a while no process held a reading end of its pipe.
    OutputIncomplete(OutputIncomplete) = "output.incomplete",
    AgentExited(AgentExited) = "agent.exited",
    SessionResumed(SessionResumed) = "session.resumed",
    SessionEnded(SessionEnded) = "session.ended",
    /// An operator has seen its failure.
    SessionSeen(SessionSeen) = "session.seen",
    /// The process has ended and will be started again.
    AgentRestarting(AgentRestarting) = "agent.restarting",
    /// The process was started again too often.
    SessionParked(SessionParked) = "session.parked",
    /// A step of the ladder is taken.
    StallStepTaken(StallStepTaken) = "stall.step",
    /// The last step has not helped.
    StallStepFailed(StallStepFailed) = "stall.failed",
    StallRecovered(StallRecovered) = "stall.recovered",
    /// A person acts: the ladder restarts at its first step.
    StallReset(StallReset) = "stall.reset",
    StallSnoozed(StallSnoozed) = "stall.snoozed",
    LadderChanged(LadderChanged) = "stall.ladder",
    /// A request has waited for people for a long time.
    StallReminder(StallReminder) = "stall.reminder",
    /// The agent waits for its service.
    LimitReached(LimitReached) = "stall.limited",
    LimitOver(LimitOver) = "stall.limit_over",
    /// An operator sets the agent's mode, its model or an option.
    AgentSetting(AgentSetting) = "agent.set",
    SettingAccepted(SettingAccepted) = "agent.set_done",
    SettingRefused(SettingRefused) = "agent.not_set",
    /// The sessions that the agent remembers itself.
    AgentSessions(RawMessage) = "agent.sessions",
    /// No new turn begins: the spending cap is reached.
    SpendCapped(SpendCapped) = "spend.capped",
}

impl EventKind {
    /// Reports whether the audit includes it: a decision, a start or an end that may be questioned later.
    pub const fn is_audited(self) -> bool {
        matches!(
            self,
            Self::SessionCreated
                | Self::SessionAdopted
                | Self::SessionAgentChanged
                | Self::SessionPresetChanged
                | Self::SessionResumed
                | Self::SessionStopping
                | Self::SessionEnded
                | Self::SessionParked
                | Self::StallSnoozed
                | Self::LadderChanged
                | Self::ClearanceApproved
                | Self::ClearanceDecided
                | Self::ClearanceClosed
                | Self::QuestionAnswered
        )
    }

    /// Reports whether it is about a stall: its ladder, its recovery, or a limit of the agent's service.
    pub(crate) const fn is_of_stall(self) -> bool {
        matches!(
            self,
            Self::StallStepTaken
                | Self::StallStepFailed
                | Self::StallRecovered
                | Self::StallReset
                | Self::StallSnoozed
                | Self::LadderChanged
                | Self::StallReminder
                | Self::LimitReached
                | Self::LimitOver
        )
    }

    /// Reports whether its payload is an unchanged message of the agent.
    pub const fn is_said_by_agent(self) -> bool {
        matches!(self, Self::Status | Self::Heartbeat | Self::Update | Self::AgentSessions)
    }

    /// Reports whether agents send it in bulk: its commit has no priority, because no caller waits for it.
    pub const fn is_bulk(self) -> bool {
        matches!(
            self,
            Self::Status | Self::Heartbeat | Self::Update | Self::LineRejected | Self::UnknownMessage
        )
    }
}

impl Event {
    /// Returns the event of a kind whose payload is a message of the agent.
    fn said_by_agent(kind: EventKind, data: &Json) -> Option<Self> {
        let message = || RawMessage(data.clone());
        Some(match kind {
            EventKind::Status => Self::Status(message()),
            EventKind::Heartbeat => Self::Heartbeat(message()),
            EventKind::Update => Self::Update(message()),
            EventKind::AgentSessions => Self::AgentSessions(message()),
            _ => return None,
        })
    }

    /// Returns the person or rule that acted, for an audited event.
    pub fn by(&self) -> Option<&str> {
        Some(match self {
            Self::SessionCreated(created) => &created.by,
            Self::SessionAdopted(adopted) => &adopted.by,
            Self::SessionAgentChanged(changed) => &changed.by,
            Self::SessionPresetChanged(changed) => &changed.by,
            Self::SessionResumed(resumed) => &resumed.by,
            Self::SessionStopping(stopping) => &stopping.by,
            Self::StallSnoozed(snoozed) => &snoozed.by,
            Self::LadderChanged(changed) => &changed.by,
            Self::ClearanceApproved(approved) => &approved.by,
            Self::ClearanceDecided(decided) => &decided.by,
            Self::QuestionAnswered(answered) => &answered.by,
            _ => return None,
        })
    }

    /// Returns the payload's JSON, as the log stores it.
    pub fn data(&self) -> Cow<'_, str> {
        match self {
            // Most events of a log are raw messages, which need no serialization.
            Self::Status(RawMessage(json))
            | Self::Heartbeat(RawMessage(json))
            | Self::Update(RawMessage(json))
            | Self::AgentSessions(RawMessage(json))
            | Self::Other { data: json, .. } => Cow::Borrowed(json.as_str()),
            event => Cow::Owned(event.serialized().expect("payloads have string keys and no odd floats")),
        }
    }
}

impl Event {
    /// Returns the size of the payload's JSON, or an estimate of it: raw messages are measured, others are small.
    pub fn size_hint(&self) -> usize {
        match self {
            Self::Status(RawMessage(json))
            | Self::Heartbeat(RawMessage(json))
            | Self::Update(RawMessage(json))
            | Self::AgentSessions(RawMessage(json))
            | Self::Other { data: json, .. } => json.as_str().len(),
            _ => SMALL_PAYLOAD,
        }
    }
}

/// An event to log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub at: Time,
    pub event: Event,
}

/// An event of the log, with its payload as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedEvent {
    pub seq: u64,
    pub session: SessionId,
    pub at: Time,
    pub kind: String,
    pub data: Json,
}

impl LoggedEvent {
    pub fn event(&self) -> Event {
        Event::parse(&self.kind, &self.data)
    }

    /// Returns the kind, if this version knows it. Cheaper than [`Self::event`], for readers that skip most events.
    pub fn known_kind(&self) -> Option<EventKind> {
        EventKind::parse(&self.kind)
    }
}
