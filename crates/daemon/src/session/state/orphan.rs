//! Orphans: processes that run, and of which the database does not know what they were told. It was restored from a backup
//! that is older than they are.
//!
//! ```text
//!            Adopt                      Stop              Exited           Resume
//!  (any) ─────────► running, an orphan ──────► stopping ─────────► ended ─────────► the next generation
//! ```
//! What was asked and answered since the backup is lost, and so are the numbers of the messages. An answer now could be the
//! second one to a question, or be taken by the shim for one that it has written before. So nothing is sent: what an orphan says is
//! kept in the log, and people can stop it.

use super::agent::unknown;
use super::watch::BY;
use super::{EffectSink, Input, LifeStage, Refused, SessionState};
use intercom_types::event::{
    ClearanceClosed, LineRejected, PromptUndelivered, QuestionClosed, RawMessage, SessionAdopted,
    UnknownMessage,
};
use intercom_types::{
    ClearanceId, ClearanceStatus, Event, Json, PromptId, QuestionId, QuestionStatus, Said, Situation,
    Standing,
};

/// Why it is in its phase, for people.
pub(super) const WHY: &str =
    "orphan: the database does not know what its agent was told; it can be stopped, not directed";
/// The same for what it asks for.
const UNANSWERED: &str = "nobody can answer it: the session is an orphan";

/// A process that was found running.
#[derive(Debug, Clone)]
pub struct AdoptedProcess {
    pub generation: u32,
    /// `None` if its shim has not said so yet.
    pub pid: Option<i32>,
    /// The program, if the database does not know the session at all.
    pub created: Option<String>,
    /// The gap in the database, as a part of a sentence.
    pub why: String,
    /// The open requests in the ledger of a session whose own record cannot be read.
    pub open: OpenRequests,
}

/// Requests and prompts that the ledger has open, whatever the state of their session says.
#[derive(Debug, Clone, Default)]
pub struct OpenRequests {
    pub clearances: Vec<ClearanceId>,
    pub questions: Vec<QuestionId>,
    pub prompts: Vec<PromptId>,
}

impl SessionState {
    /// Whatever the database says of the session was true at the time of the backup: what was open then is closed, and nothing
    /// of it is sent later.
    pub(super) fn adopt(&mut self, adoption: AdoptedProcess, out: &mut EffectSink<'_, '_>) {
        let AdoptedProcess { generation, pid, created, why, open } = adoption;
        if let Some(command) = created {
            self.record_creation(BY, &command, out);
        } else {
            let cause = format!("the database is older than the process: {why}");
            self.fail_in_flight(&cause, out);
            self.let_go(out);
            self.fail_queue(&cause, out);
            close(open, &cause, out);
        }
        self.next_generation();
        (self.life.generation, self.life.orphan, self.life.stage) = (generation, true, LifeStage::Running);
        (self.life.pid, self.life.started_at, self.life.deferred) = (pid, Some(out.now()), false);
        (self.turns.unfinished, self.life.left_at, self.spec.on_client_left) = (None, None, None);
        self.life.restarts.clear();
        self.oversight.tracker.reset(out.now());
        let (words, ladder_off) = (format!("{why}; it can be stopped, not directed"), true);
        self.oversight.condition =
            Some(Standing { why: words, ladder_off, ..Standing::new(Situation::Orphan, out.now()) });
        out.record(Event::SessionAdopted(SessionAdopted { generation, pid, why, by: BY.to_owned() }));
    }

    /// Handles an input of an adopted process: its output is kept, its end is recorded, and it can only be
    /// stopped.
    pub(super) fn step_orphan(&mut self, input: Input, out: &mut EffectSink<'_, '_>) -> Result<(), Refused> {
        match input {
            Input::Said(said) => keep(*said, out),
            Input::Asked(ask, _) => out.record(unanswered(ask.params)),
            Input::Errand(errand, _) => out.record(unanswered(errand.params)),
            Input::Exited(gone) => self.exited(*gone, out),
            Input::Spawned { pid } => self.life.pid = Some(pid),
            Input::Stop { how, by } => return self.stop(how, by, out),
            Input::Seen { at, by } => self.seen(at, &by, out),
            Input::Launch { .. } | Input::Resume { .. } => return Err(self.refusal(Refused::Running)),
            Input::Agent { .. }
            | Input::Prompt { .. }
            | Input::TakeBack { .. }
            | Input::Amend { .. }
            | Input::Decide { .. }
            | Input::Answer { .. }
            | Input::Nudge { .. }
            | Input::Interrupt { .. }
            | Input::List { .. }
            | Input::Set { .. }
            | Input::Snooze { .. }
            | Input::Ladder { .. }
            | Input::Preset { .. } => return Err(self.refusal(Refused::Orphan)),
            // Nothing is on its way, open, awaited or watched.
            Input::Adopt(_)
            | Input::Restart { .. }
            | Input::Keep { .. }
            | Input::Clients { .. }
            | Input::SpawnFailed { .. }
            | Input::Delivered { .. }
            | Input::Undelivered { .. }
            | Input::Done { .. }
            | Input::TerminalEnded { .. }
            | Input::Expire
            | Input::Ruled { .. }
            | Input::Found
            | Input::Listening
            | Input::Watch(_) => {}
        }
        Ok(())
    }

    fn refusal(&self, refused: Refused) -> Refused {
        match self.life.stage {
            LifeStage::Stopping { .. } => Refused::Stopping,
            _ => refused,
        }
    }
}

/// Closes what only the ledger knows.
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

/// Everything is in the log; nothing follows from it.
fn keep(said: Said, out: &mut EffectSink<'_, '_>) {
    match said {
        Said::Status { params } => out.record(Event::Status(RawMessage(params))),
        Said::Heartbeat { params, .. } => out.record(Event::Heartbeat(RawMessage(params))),
        Said::Update { params } | Said::Tool { params, .. } => out.record(Event::Update(RawMessage(params))),
        Said::Echo(event) => out.record(event),
        Said::Rejected { rejection, .. } => out.record(Event::LineRejected(LineRejected(rejection))),
        Said::Clearance(ask) => out.record(unanswered(ask.params)),
        Said::Errand(errand) => out.record(unanswered(errand.params)),
        Said::Question { params, .. } => out.record(unanswered(params)),
        Said::Unknown { message, .. }
        | Said::Withdrawn { message, .. }
        | Said::TurnEnd { message, .. }
        | Said::Limited { params: message, .. }
        | Said::Outcome { params: message, .. }
        | Said::Listed { result: message, .. }
        | Said::IsSet { result: message, .. }
        | Said::NotSet { error: message, .. }
        | Said::Ready { info: message, .. } => out.record(unknown(message)),
        Said::NotSteered { message, .. }
        | Said::LogInNeeded { reason: message, .. }
        | Said::Unusable { reason: message } => out.record(unknown(Json::of(&message))),
        // Read out of messages that are kept themselves, or words of ours that are not sent.
        Said::Steps(_) | Said::Title(_) | Said::Controls(_) | Said::Cost { .. } | Said::Tell { .. } => {}
    }
}

fn unanswered(message: Json) -> Event {
    Event::UnknownMessage(UnknownMessage { message, why: Some(UNANSWERED.to_owned()) })
}
