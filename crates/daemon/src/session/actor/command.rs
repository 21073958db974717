//! Commands of operators to one session. A command is committed as a whole, or changes nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::SessionActor;
use super::output::cause_of;
use crate::session::commit::AfterCommit;
use crate::session::handle::{ArrivalWatch, CommandError, CommandOutcome};
use crate::session::state::{CommandRefusal, SessionInput, StepEffect};
use intercom_failpoint as failpoint;
use intercom_store::{SessionWrite, StoreError};
use intercom_types::{AgentCommand, Event, NewEvent, PromptId};

static FAILED_COMMANDS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of commands at which this daemon has panicked since its start. More than none is a bug of ours.
pub(crate) fn failed_commands() -> u64 {
    FAILED_COMMANDS.load(Ordering::Relaxed)
}

/// A command that was accepted and is not committed yet.
struct AcceptedCommand {
    write: SessionWrite,
    todo: Vec<AfterCommit>,
    prompt: Option<PromptId>,
    set: Option<u64>,
    starts: bool,
}

impl SessionActor {
    /// Carries out a command of an operator. If the daemon panics at it, the operator gets an error and the session
    /// continues as before.
    pub(super) async fn command(&mut self, input: SessionInput) -> Result<CommandOutcome, CommandError> {
        // Copies, because a command must change nothing if it panics, or if the store refuses the write.
        let (before, driver) = (self.state.clone(), self.plan.driver.clone());
        // Unwind safe: state and driver are replaced by their copies, and the closure touches nothing else.
        let accepted = match catch_unwind(AssertUnwindSafe(|| self.accept(input))) {
            Ok(accepted) => accepted?,
            Err(panic) => {
                let cause = cause_of(&*panic);
                FAILED_COMMANDS.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%cause, "a command failed and was undone");
                (self.state, self.plan.driver) = (before, driver);
                return Err(CommandError::Failed(cause));
            }
        };
        let AcceptedCommand { write, todo, prompt, set, starts } = accepted;
        failpoint::visit("command.stepped");
        // One attempt only: the caller waits and can decide to retry, and while a write hangs nothing else is handled.
        if let Err(error) = self.store.write(Arc::new(write)).await {
            (self.state, self.plan.driver) = (before, driver);
            return Err(match error {
                // The ledger's compare-and-set found that the request is not pending any more.
                StoreError::Conflict(_) => CommandError::Refused(CommandRefusal::NotOpen),
                error => CommandError::Store(error),
            });
        }
        self.launch = None;
        self.unrecorded.clear();
        failpoint::visit("command.committed");
        // Registered before anything is performed, so that no acknowledgement can come first. A command without a
        // message drops its sender, which ends the caller's wait at once.
        let (on_its_way, arrival) = ArrivalWatch::new();
        let last = todo.iter().rev().find_map(|todo| match todo {
            AfterCommit::Send { n, .. } => Some(*n),
            AfterCommit::Stop(_) | AfterCommit::Do { .. } => None,
        });
        let done = todo.iter().find_map(|todo| match todo {
            AfterCommit::Do { request, .. } => self.state.cleared(request),
            _ => None,
        });
        match (last, done) {
            (Some(n), _) => self.replies.arrivals.push((n, on_its_way)),
            (None, Some(clearance)) => self.host_calls.wait_for(clearance, on_its_way),
            (None, None) if starts => self.replies.first_start = Some(on_its_way),
            (None, None) => {}
        }
        self.perform(todo);
        failpoint::visit("command.performed");
        Ok(CommandOutcome { prompt, set, arrival })
    }

    fn accept(&mut self, input: SessionInput) -> Result<AcceptedCommand, CommandRefusal> {
        let mut effects = self.unrecorded.clone();
        self.step(input, &mut effects)?;
        let prompt = effects.iter().find_map(|effect| match effect {
            StepEffect::Record(NewEvent { event: Event::PromptQueued(queued), .. }) => Some(queued.prompt),
            _ => None,
        });
        let set = effects.iter().find_map(|effect| match effect {
            StepEffect::Send { message: AgentCommand::ChangeSetting { number, .. }, .. } => Some(*number),
            _ => None,
        });
        let starts = effects.contains(&StepEffect::Spawn);
        let (write, todo) = self.write(effects, Vec::new(), None);
        failpoint::visit("command.accepted");
        Ok(AcceptedCommand { write, todo, prompt, set, starts })
    }
}
