//! A session while the store cannot be written: commands are refused, but an agent can always be stopped.

use intercom_types::StopMode;
use std::time::Duration;

use tokio::sync::oneshot;

use super::SessionActor;
use crate::session::commit::AfterCommit;
use crate::session::handle::{CommandError, SessionCommand, StopOutcome};
use crate::session::state::{SessionInput, StepEffect};
use intercom_host::ProcessEvent;
use intercom_store::StoreError;

impl SessionActor {
    /// Performs a stop before it is recorded. No other command may do that: an agent that fills the disk would
    /// otherwise be impossible to stop.
    pub(super) fn stop_unrecorded(
        &mut self,
        mode: StopMode,
        by: String,
        reply: oneshot::Sender<Result<StopOutcome, CommandError>>,
    ) {
        if self.state.is_ended() {
            let stopped = StopOutcome { unrecorded: true, ..self.replies.stopped.clone() };
            reply.send(Ok(stopped)).ok(); // the caller may have hung up
            return;
        }
        let mut effects = Vec::new();
        if let Err(refused) = self.step(SessionInput::Stop { mode, by }, &mut effects) {
            reply.send(Err(refused.into())).ok(); // as above
            return;
        }
        tracing::warn!(?mode, "stopped before it could be recorded");
        let (stop, recorded): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|effect| matches!(effect, StepEffect::Stop { .. }));
        self.unrecorded.extend(recorded);
        self.perform(if stop.is_empty() { Vec::new() } else { vec![AfterCommit::Stop(mode)] });
        self.replies.stoppers.push(reply);
        // The process may have ended meanwhile, or there was none.
        if self.state.is_ended()
            || self.deferred_news.iter().any(|news| matches!(news, ProcessEvent::Exited(_)))
        {
            self.tell_stoppers();
        }
    }

    /// Answers the callers that wait for the end of the process tree; they need not wait for the store as well.
    fn tell_stoppers(&mut self) {
        for reply in self.replies.stoppers.drain(..) {
            let stopped = StopOutcome { unrecorded: true, ..self.replies.stopped.clone() };
            reply.send(Ok(stopped)).ok(); // the caller may have hung up
        }
    }

    /// Refuses commands as unavailable (503) for the delay, and performs stops.
    pub(super) async fn refuse_for(&mut self, delay: Duration) {
        let deadline = tokio::time::sleep(delay);
        tokio::pin!(deadline);
        loop {
            let process = &mut self.process;
            let news = async {
                match process {
                    Some(process) => process.events.recv().await,
                    None => None,
                }
            };
            tokio::select! {
                biased;
                Some(message) = self.mailbox.inbox.recv() => match message {
                    SessionCommand::Command { reply, .. } | SessionCommand::Agent { reply, .. } => {
                        let busy = StoreError::Unavailable("an earlier write is being retried".to_owned());
                        reply.send(Err(busy.into())).ok(); // the caller may have hung up
                    }
                    SessionCommand::Stop { mode, by, reply } => self.stop_unrecorded(mode, by, reply),
                    SessionCommand::Drain { by, reply } => self.stop_unrecorded(StopMode::Stop, by, reply),
                },
                Some(news) = news => {
                    if let ProcessEvent::Exited(process_exit) = &news {
                        let (steps, killed) = (process_exit.steps.clone(), process_exit.killed);
                        self.replies.stopped = StopOutcome { steps, killed, unrecorded: false };
                        self.end_terminals_unrecorded().await;
                        self.tell_stoppers();
                    }
                    self.deferred_news.push_back(news);
                }
                () = &mut deadline => return,
            }
        }
    }
}
