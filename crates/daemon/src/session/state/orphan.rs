//! Orphans: running processes whose messages the database does not know, because it was restored from a backup that is
//! older than they are.
//!
//! ```text
//!            Adopt                      Stop              Exited           Resume
//!  (any) ─────────► running, an orphan ──────► stopping ─────────► ended ─────────► the next generation
//! ```
//! Requests and answers since the backup are lost, and so are the numbers of the messages. An answer now could be the
//! second one to a question, or the shim could take it for a message that it has already written. So nothing is sent:
//! the output of an orphan is kept in the log, and people can stop it.

use super::agent::unknown;
use super::watch::DAEMON;
use super::{CommandRefusal, EffectSink, LifeStage, SessionInput, SessionState};
use intercom_types::event::{
    ClearanceClosed, LineRejected, PromptUndelivered, QuestionClosed, RawMessage, SessionAdopted,
    UnknownMessage,
};
use intercom_types::{
    AgentCondition, AgentMessage, ClearanceId, ClearanceStatus, Event, Json, PromptId, QuestionId,
    QuestionStatus, Situation,
};

/// The reason of its phase, for people.
pub(super) const WHY: &str =
    "orphan: the database does not know the messages to its agent; it can only be stopped";
/// The reason why its requests are not answered.
const UNANSWERED: &str = "it cannot be answered: the session is an orphan";

/// A process that was found running without its messages.
#[derive(Debug, Clone)]
pub(crate) struct AdoptedProcess {
    pub(crate) generation: u32,
    /// `None` if its shim has not reported it yet.
    pub(crate) pid: Option<i32>,
    /// The program, if the database does not know the session at all.
    pub(crate) created: Option<String>,
    /// The gap in the database, as part of a sentence.
    pub(crate) why: String,
    /// The open requests in the ledger, for a session whose own record cannot be read.
    pub(crate) open: OpenRequests,
}

/// The requests and prompts that are open in the ledger, whatever the stored state contains.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenRequests {
    pub(crate) clearances: Vec<ClearanceId>,
    pub(crate) questions: Vec<QuestionId>,
    pub(crate) prompts: Vec<PromptId>,
}

impl SessionState {
    /// Adopts a process. The database is as old as the backup, so everything that was open then is closed, and nothing
    /// of it is sent later.
    pub(super) fn adopt(&mut self, adoption: AdoptedProcess, out: &mut EffectSink<'_, '_>) {
        let AdoptedProcess { generation, pid, created, why, open } = adoption;
        if let Some(command) = created {
            self.record_creation(DAEMON, &command, out);
        } else {
            let cause = format!("the database is older than the process: {why}");
            self.fail_in_flight(&cause, out);
            self.clear_process_state(out);
            self.fail_queue(&cause, out);
            close(open, &cause, out);
        }
        self.next_generation();
        (self.life.generation, self.life.orphan, self.life.stage) = (generation, true, LifeStage::Running);
        (self.life.pid, self.life.started_at, self.life.deferred) = (pid, Some(out.now()), false);
        (self.turns.unfinished, self.life.left_at, self.spec.on_client_left) = (None, None, None);
        self.life.restarts.clear();
        self.oversight.tracker.reset(out.now());
        let (words, ladder_off) = (format!("{why}; it can only be stopped"), true);
        self.oversight.condition = Some(AgentCondition {
            why: words,
            ladder_off,
            ..AgentCondition::new(Situation::Orphan, out.now())
        });
        out.record(Event::SessionAdopted(SessionAdopted { generation, pid, why, by: DAEMON.to_owned() }));
    }

    /// Handles an input of an adopted process: its output is kept, its end is recorded, and it can only be stopped.
    pub(super) fn step_orphan(
        &mut self,
        input: SessionInput,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        match input {
            SessionInput::AgentMessage(message) => keep(*message, out),
            SessionInput::ClearanceRequested(ask, _) => out.record(unanswered(ask.params)),
            SessionInput::HostCall(call, _) => out.record(unanswered(call.params)),
            SessionInput::Exited(agent_exit) => self.exited(*agent_exit, out),
            SessionInput::Spawned { pid } => self.life.pid = Some(pid),
            SessionInput::Stop { mode, by } => return self.stop(mode, by, out),
            SessionInput::Seen { at, by } => self.seen(at, &by, out),
            SessionInput::Launch { .. } | SessionInput::Resume { .. } => {
                return Err(self.refusal(CommandRefusal::Running));
            }
            SessionInput::Agent { .. }
            | SessionInput::Prompt { .. }
            | SessionInput::TakeBack { .. }
            | SessionInput::Amend { .. }
            | SessionInput::Decide { .. }
            | SessionInput::Answer { .. }
            | SessionInput::Nudge { .. }
            | SessionInput::Interrupt { .. }
            | SessionInput::List
            | SessionInput::Set { .. }
            | SessionInput::Snooze { .. }
            | SessionInput::Ladder { .. }
            | SessionInput::Preset { .. } => return Err(self.refusal(CommandRefusal::Orphan)),
            // Nothing is on its way, open, awaited or watched, so these cannot matter.
            SessionInput::Adopt(_)
            | SessionInput::Restart { .. }
            | SessionInput::Keep { .. }
            | SessionInput::Clients { .. }
            | SessionInput::SpawnFailed { .. }
            | SessionInput::Delivered { .. }
            | SessionInput::Undelivered { .. }
            | SessionInput::HostCallDone { .. }
            | SessionInput::TerminalEnded { .. }
            | SessionInput::Expire
            | SessionInput::Ruled { .. }
            | SessionInput::Found
            | SessionInput::Listening
            | SessionInput::Watch(_) => {}
        }
        Ok(())
    }

    fn refusal(&self, refused: CommandRefusal) -> CommandRefusal {
        match self.life.stage {
            LifeStage::Stopping { .. } => CommandRefusal::Stopping,
            _ => refused,
        }
    }
}

/// Closes requests and prompts that only the ledger knows.
fn close(open: OpenRequests, cause: &str, out: &mut EffectSink<'_, '_>) {
    let reason = || cause.to_owned();
    for clearance in open.clearances {
        out.record(Event::ClearanceClosed(ClearanceClosed {
            clearance,
            action: None,
            title: String::new(),
            status: ClearanceStatus::Withdrawn,
            decision: None,
            reason: reason(),
            option: None,
        }));
    }
    for question in open.questions {
        let status = QuestionStatus::Withdrawn;
        out.record(Event::QuestionClosed(QuestionClosed { question, status, reason: reason() }));
    }
    for prompt in open.prompts {
        out.record(Event::PromptUndelivered(PromptUndelivered { prompt, cause: reason() }));
    }
}

/// Records an agent's message without any effect.
fn keep(message: AgentMessage, out: &mut EffectSink<'_, '_>) {
    match message {
        AgentMessage::Status { params } => out.record(Event::Status(RawMessage(params))),
        AgentMessage::Heartbeat { params, .. } => out.record(Event::Heartbeat(RawMessage(params))),
        AgentMessage::Update { params } | AgentMessage::Tool { params, .. } => {
            out.record(Event::Update(RawMessage(params)));
        }
        AgentMessage::Echo(event) => out.record(*event),
        AgentMessage::Rejected { rejection, .. } => out.record(Event::LineRejected(LineRejected(rejection))),
        AgentMessage::Clearance(ask) => out.record(unanswered(ask.params)),
        AgentMessage::HostCall(call) => out.record(unanswered(call.params)),
        AgentMessage::Question { params, .. } => out.record(unanswered(params)),
        AgentMessage::Unknown { message, .. }
        | AgentMessage::Withdrawn { message, .. }
        | AgentMessage::TurnEnd { message, .. }
        | AgentMessage::Limited { params: message, .. }
        | AgentMessage::Outcome { params: message, .. }
        | AgentMessage::SessionList { result: message, .. }
        | AgentMessage::SettingAccepted { result: message, .. }
        | AgentMessage::SettingRefused { error: message, .. }
        | AgentMessage::Ready { info: message, .. } => out.record(unknown(message)),
        AgentMessage::SteeringRefused { message, .. }
        | AgentMessage::LogInNeeded { reason: message, .. }
        | AgentMessage::Unusable { reason: message } => out.record(unknown(Json::of(&message))),
        // Derived from messages that are recorded themselves, or our own texts, which are not sent.
        AgentMessage::Steps(_)
        | AgentMessage::Title(_)
        | AgentMessage::Controls(_)
        | AgentMessage::Cost { .. }
        | AgentMessage::DriverText { .. } => {}
    }
}

fn unanswered(message: Json) -> Event {
    Event::UnknownMessage(UnknownMessage { message, why: Some(UNANSWERED.to_owned()) })
}
