//! The life of the process: found, started, looked at, restarted, ended.

use std::sync::Arc;
use std::time::Duration;

use super::output::{OutputCursor, OutputLine};
use super::{FoundProcess, SessionActor, StartError, until};
use crate::session::commit::AfterCommit;
use crate::session::handle::StopOutcome;
use crate::session::state::{AgentExit, SessionInput};
use intercom_failpoint as failpoint;
use intercom_host::{AgentProcess, ProcessExit};
use intercom_store::{IdLookup as Stored, OutgoingChange};
use intercom_types::{Delivery, PromptBody};

/// The time limit of a look at the agent's processes; after that, their activity counts as unknown.
const LOOKING: Duration = Duration::from_secs(2);

impl SessionActor {
    /// Continues with a process that an earlier daemon started.
    pub(super) async fn take_up(&mut self, found: FoundProcess) {
        self.mailbox.publish(found.process.observer());
        self.output = OutputCursor::at(found.consumed);
        let pid = found.process.identity.pid;
        self.process = Some(found.process);
        // The earlier daemon may have died between the start and its record.
        if self.state.pid().is_none() {
            self.absorb(vec![SessionInput::Spawned { pid }], None).await;
        }
        self.absorb(vec![SessionInput::Found], None).await;
        // Messages whose arrival is not known are sent again. The shim takes each number only once.
        let mut settled = Vec::new();
        if let Some(process) = &self.process {
            for (n, message) in found.outbox {
                match process.arrived(n) {
                    None => process.send(n, message),
                    Some(true) => settled.push((n, None)),
                    Some(false) => {} // the exit settles it
                }
            }
        }
        self.settle(settled).await;
        self.resume_host_calls().await;
        // The earlier daemon may have recorded a stop and died before it told the shim. A repeated stop is harmless:
        // the shim obeys the first only.
        if let Some(mode) = self.state.stopping() {
            self.perform(vec![AfterCommit::Stop(mode)]);
        }
        self.answer_start(Ok(()));
    }

    pub(super) async fn spawn(&mut self) {
        let spawned = match self.plan.spec.clone() {
            Err(cause) => Err(cause),
            Ok(spec) => AgentProcess::spawn(spec, &self.plan.runtime_dir, self.plan.startup_timeout)
                .await
                .map_err(|error| error.to_string()),
        };
        match spawned {
            Ok(process) => {
                let pid = process.identity.pid;
                tracing::info!(pid, "the agent was started");
                self.mailbox.publish(process.observer());
                self.process = Some(process);
                failpoint::visit("process.spawned");
                self.absorb(vec![SessionInput::Spawned { pid }], Some(0)).await;
                failpoint::visit("spawned.committed");
                self.answer_start(Ok(()));
                // The first message may be the prompt that caused the start: its sender waits for this delivery.
                if let (Some(wake_reply), Some(n)) =
                    (self.replies.first_start.take(), self.state.under_way(u64::MAX).last())
                {
                    self.replies.arrivals.push((n, wake_reply));
                }
            }
            Err(cause) => {
                tracing::warn!(?cause, "the agent could not be started");
                self.absorb(vec![SessionInput::SpawnFailed { cause: cause.clone() }], None).await;
                if let Some(wake_reply) = self.replies.first_start.take() {
                    wake_reply.send(Delivery::Failed(cause.clone())).ok(); // the caller may have hung up
                }
                self.answer_start(Err(StartError::SpawnFailed(cause)));
            }
        }
    }

    /// Records the end of a process that ended with an earlier daemon, without a known exit status.
    pub(super) async fn lost(&mut self, reason: String) {
        self.resume_host_calls().await;
        self.finish_host_calls().await;
        let agent_exit =
            AgentExit { reason, unanswered: self.plan.driver.unanswered(), ..AgentExit::default() };
        self.absorb_with(
            vec![SessionInput::Exited(Box::new(agent_exit))],
            None,
            vec![OutgoingChange::Cleared],
        )
        .await;
        self.answer_start(Ok(()));
    }

    /// Looks at the activity of the agent's processes, on a blocking thread because the system may be slow.
    pub(super) async fn look(&mut self) {
        let observer = self.process.as_ref().map(AgentProcess::observer);
        // A look that hangs is awaited again instead of a second one: hanging threads must not pile up.
        let mut look =
            self.looking.take().unwrap_or_else(|| tokio::task::spawn_blocking(move || observer?.activity()));
        let seen = tokio::time::timeout(LOOKING, &mut look).await;
        if seen.is_err() {
            self.looking = Some(look);
        }
        let seen = seen.ok().and_then(Result::ok).flatten();
        self.absorb(vec![SessionInput::Watch(seen.map(Box::new))], None).await;
    }

    /// Waits without a process until the next restart is due, or until a command starts the first process.
    pub(super) async fn rest(&mut self) {
        let leave = self.leave.clone();
        tokio::select! {
            biased;
            Some(message) = self.mailbox.inbox.recv() => {
                self.serve(message).await;
                if self.state.is_waking() {
                    self.plan = (Arc::clone(&self.plan.next_plan))(self.state.generation()); // as configured now
                    self.spawn().await;
                }
            }
            () = until(self.state.resting()) => self.restart().await,
            () = leave.cancelled() => {}
        }
    }

    /// Starts the next generation. Buffers, offsets and message numbers begin anew.
    pub(super) async fn restart(&mut self) {
        let repeats = self.watch_policy().restart.repeat_prompt;
        let prompt = match self.state.unfinished().filter(|_| repeats) {
            None => None,
            Some(id) => match (self.store.prompt(id.to_string()).await, self.store.content(id).await) {
                (Ok(Stored::One(prompt)), Ok(content)) => Some(PromptBody { text: prompt.text, content }),
                _ => None, // better started without the prompt than not started
            },
        };
        let next_plan = Arc::clone(&self.plan.next_plan);
        self.plan = next_plan(self.state.generation() + 1);
        if !self.state.is_waking() {
            self.plan.driver.inherit(self.state.driver());
        }
        self.output = OutputCursor::default();
        self.replies.arrivals.clear(); // message numbers begin anew
        self.absorb(vec![SessionInput::Restart { prompt }], None).await;
        failpoint::visit("restart.committed");
        self.spawn().await;
    }

    async fn digest_all(&mut self) {
        while self.output.more || self.output.ahead.is_some() {
            self.digest().await;
        }
    }

    /// Records the end of the process, after all of its output.
    pub(super) async fn exited(&mut self, process_exit: ProcessExit) {
        while let Some(chunk) = match &mut self.process {
            Some(process) => process.output.recv().await,
            None => None,
        } {
            self.output.buf.extend_from_slice(&chunk);
            self.output.more = true;
            self.digest_all().await;
        }
        self.digest_all().await; // lines that were given back
        loop {
            let before = self.output.buf.len();
            let frames: Vec<_> =
                std::iter::from_fn(|| self.plan.framer.finish(&mut self.output.buf)).collect();
            if frames.is_empty() {
                break;
            }
            self.output.cut +=
                std::mem::take(&mut self.output.held_bytes) + (before - self.output.buf.len()) as u64;
            let end = self.output.cut;
            self.digest_lines(frames.into_iter().map(|frame| OutputLine { frame, end }).collect()).await;
        }
        let ProcessExit { exit, reason, steps, killed, stderr_tail, written, rescued } = process_exit;
        // The shim has written these messages to the agent's stdin, even if no acknowledgement came.
        self.settle(self.state.under_way(written).map(|n| (n, None)).collect()).await;
        self.replies.stopped = StopOutcome { steps: steps.clone(), killed, unrecorded: false };
        failpoint::visit("exit.heard");
        self.finish_host_calls().await;
        let unanswered = self.plan.driver.unanswered();
        let agent_exit = AgentExit { exit, reason, steps, killed, stderr_tail, unanswered, rescued };
        self.absorb_with(
            vec![SessionInput::Exited(Box::new(agent_exit))],
            None,
            vec![OutgoingChange::Cleared],
        )
        .await;
        failpoint::visit("exit.committed");
        if let Some(process) = self.process.take() {
            process.remove_files();
        }
    }
}
