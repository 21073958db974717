//! Commands of others to a session, carried out one after the other.

use intercom_types::StopMode;
use tokio::sync::oneshot;

use super::{ProcessPlan, SessionActor};
use crate::session::handle::{CommandError, CommandOutcome, SessionCommand, StopOutcome};
use crate::session::state::SessionInput;
use intercom_store::StoreError;

impl SessionActor {
    pub(super) async fn serve(&mut self, message: SessionCommand) {
        match message {
            SessionCommand::Command { input, reply } => {
                let result = self.command(input).await;
                reply.send(result).ok(); // the caller may have hung up
            }
            SessionCommand::Stop { mode, by, reply } => self.stop(mode, by, reply).await,
            // Without a process there is nothing to stop: the task ends, and the session waits for the next daemon.
            SessionCommand::Drain { reply, .. } if self.state.is_deferred() => {
                self.leave.cancel();
                self.replies.stoppers.push(reply);
            }
            SessionCommand::Drain { by, reply } => self.stop(StopMode::Stop, by, reply).await,
            SessionCommand::Agent { input, plan, reply } => {
                let result = self.another_agent(input, *plan).await;
                reply.send(result).ok(); // the caller may have hung up
            }
        }
    }

    async fn stop(
        &mut self,
        mode: StopMode,
        by: String,
        reply: oneshot::Sender<Result<StopOutcome, CommandError>>,
    ) {
        match self.command(SessionInput::Stop { mode, by: by.clone() }).await {
            Ok(_) => self.replies.stoppers.push(reply),
            // A stop must work on a full disk, too.
            Err(CommandError::Store(StoreError::Unavailable(_))) => self.stop_unrecorded(mode, by, reply),
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// Replaces the plan of a session that has had no process; the stored launch description changes with it.
    async fn another_agent(
        &mut self,
        input: SessionInput,
        plan: ProcessPlan,
    ) -> Result<CommandOutcome, CommandError> {
        let launch = self.launch.replace(plan.launch.clone());
        let before = std::mem::replace(&mut self.plan, plan);
        let result = self.command(input).await;
        if result.is_err() {
            (self.plan, self.launch) = (before, launch);
        }
        result
    }
}
