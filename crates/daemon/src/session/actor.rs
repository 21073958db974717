//! The task that owns one session.
//!
//! # Theory of operation
//!
//! ```text
//!  operators ─► inbox (1024) ───────┐
//!  shim ─► process events (512) ────┤          inputs                 one write
//!  host calls, reassessment ────────┼─► actor ───────► SessionState ───────────► store
//!  clocks: expiry, next look ───────┤     ▲             (pure)                     │ committed
//!  journal ─► output (4 × 64 KiB) ──┘     └── perform: send, stop, host calls ◄────┘
//! ```
//!
//! **Ownership.** The task owns the [`SessionState`], the driver, the framer and the [`AgentProcess`]. Everybody else
//! holds a [`SessionHandle`] and sends commands; nothing outside of the task reads or writes the state. The state
//! machine has no clock and no I/O: the task supplies time, randomness, the watch policy and assessments, and performs
//! the effects.
//!
//! **Log first.** Every input becomes events, outgoing messages and, if the state changed, a snapshot: one
//! [`SessionWrite`], which the store commits as a whole. Only after the commit are messages sent, processes stopped,
//! host calls started and callers answered. A daemon that is killed before the commit has done nothing; one that is
//! killed after it repeats the effect at its next start, and the shim ignores message numbers that it has already
//! accepted. The one exception is a stop while the store cannot be written (`unrecorded.rs`): it is performed at once
//! and recorded with the next write.
//!
//! **Order.** The `select!` of `SessionActor::turn` is biased: commands, then process events, host call results,
//! policy rulings, clocks, and output last. Each input is handled to its end before the next one is taken, so that
//! inputs never interleave. All branches are cancel-safe receives: a branch that loses has consumed nothing.
//!
//! **Bounds.** A full inbox answers `Overloaded`. Output is taken in batches of at most `BATCH_BYTES` and
//! `BATCH_ROWS`. It is not read at all while too many messages, requests or host calls are open, or while the disk is
//! nearly full: it then stays in the journal, and when the journal is full the agent waits in its pipe. The channel to
//! the shim is unbounded, but the state machine limits the messages in flight.
//!
//! **Nothing is lost.** The offset up to which output was consumed is part of the write that records its events, and
//! the journal is trimmed only after that commit: a new daemon reads on from exactly there. Messages stay in the
//! store's outbox until the shim acknowledges them. Events that have happened cannot be refused, so they are retried
//! until the store takes them; commands are tried once and otherwise leave state and driver as they were.
//!
//! **Overlap.** While the store commits bulk output, the next lines are decoded and stepped, so that one agent keeps a
//! core busy with each (`ahead.rs`). They are written only after that commit, and they are given up if any other input
//! comes first: it always finds the state of the log.
//!
//! **Panics.** A panic in a command or in a line of output is caught, and state and driver are restored from a copy. A
//! panic elsewhere ends the task; the supervisor ends the agent and records that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::commit::{self, AfterCommit, MessageEncoder};
use super::handle::{CommandError, DeliverySender, Mailbox, SessionCommand, SessionHandle, StopOutcome};
use super::stall::WatchPolicy;
use super::state::{AgentExit, CommandRefusal, SessionInput, SessionState, StepEffect};
use intercom_failpoint as failpoint;
use intercom_host::{AgentProcess, ProcessActivity, ProcessEvent, StopLadder};
use intercom_store::{OutgoingChange, SessionWrite, Store, StoreError};
use intercom_types::{AgentCommand, ClearanceRequest, Delivery, StopMode, Time, agent};

mod ahead;
mod command;
mod host_calls;
mod life;
mod mailbox;
mod output;
mod plan;
mod reassess;
mod rejections;
mod terminals;
mod unrecorded;

/// The maximum number of lines in one write of bulk output.
const BATCH_ROWS: usize = 1000;
/// The size of a batch of output, rounded up to whole chunks.
const BATCH_BYTES: usize = 256 * 1024;
/// The time that a file system may take to resolve a path.
const ASSESSING: Duration = Duration::from_secs(2);
/// The longest sleep until a time of day is compared with the clock again.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(30);
/// The first delay before a failed write is retried; it doubles up to `RETRY_LAST`.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);

/// Sleeps until `at` by the wall clock, because people are shown times of day; never returns without one.
async fn until(at: Option<Time>) {
    let Some(at) = at else { return std::future::pending().await };
    loop {
        let left = u64::try_from(at.millis().saturating_sub(Time::now().millis())).unwrap_or(0);
        if left == 0 {
            return;
        }
        // Short sleeps: the clock may be set and the machine may be suspended, and a timer notices neither.
        tokio::time::sleep(Duration::from_millis(left).min(LOOK_AT_CLOCK)).await;
    }
}

fn encoder(plan: &mut ProcessPlan) -> MessageEncoder<'_> {
    MessageEncoder { framer: &mut plan.framer, driver: &mut plan.driver }
}

pub(crate) use command::failed_commands;
pub(crate) use output::quarantined_lines;
pub(crate) use plan::{FoundProcess, ProcessPlan, StartError, TaskBeginning};

pub(crate) type StartReceiver = oneshot::Receiver<Result<(), StartError>>;

/// The callers who wait for something that the session does.
#[derive(Default)]
struct PendingReplies {
    starting: Option<oneshot::Sender<Result<(), StartError>>>,
    /// The sender of the delivery report for the command that started the first process of a deferred session.
    first_start: Option<DeliverySender>,
    /// The commands that wait for the delivery of a message, by the message's number.
    arrivals: Vec<(u64, DeliverySender)>,
    stoppers: Vec<oneshot::Sender<Result<StopOutcome, CommandError>>>,
    /// The answer to the stoppers once the process is gone.
    stopped: StopOutcome,
}

/// An input of one turn of the task.
enum TurnInput {
    Command(SessionCommand),
    News(ProcessEvent),
    HostCall(host_calls::HostCallReport),
    Reassessment(reassess::ReassessmentStep),
    /// A clearance expires.
    Expiry,
    /// A look at the agent is due.
    Look,
    /// There are lines that were read already.
    Lines,
    Output(Bytes),
    Leave,
    /// Reading is paused or continues.
    Paused,
}

/// The owner of one session.
pub(crate) struct SessionActor {
    state: SessionState,
    plan: ProcessPlan,
    store: Store,
    mailbox: Mailbox,
    /// True while there is too little free disk: the agent's output stays in its pipe.
    paused: watch::Receiver<bool>,
    process: Option<AgentProcess>,
    output: output::OutputCursor,
    replies: PendingReplies,
    /// The events of a stop that was performed while the store could not be written; recorded with the next write.
    unrecorded: Vec<StepEffect>,
    /// Process events that arrived while a write was retried. Bounded: at most the messages in flight and the exit.
    deferred_news: VecDeque<ProcessEvent>,
    /// The launch description, until a snapshot with it is committed.
    launch: Option<String>,
    /// True if the store and this session disagree: nothing more can be recorded.
    abandoned: bool,
    /// A look at the processes that the system has not finished.
    looking: Option<tokio::task::JoinHandle<Option<ProcessActivity>>>,
    /// The host calls that run for the agent.
    host_calls: host_calls::RunningHostCalls,
    /// The reassessment of pending clearances after a change of policy.
    reassessment: reassess::PolicyReassessment,
    /// Cancelled when this session's task must end and leave its agent running.
    leave: CancellationToken,
}

impl std::fmt::Debug for SessionActor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionActor").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The result of a task that has ended; its session may be resumed once `stoppers` are notified.
#[derive(Debug)]
pub(crate) struct TaskExit {
    stoppers: Vec<oneshot::Sender<Result<StopOutcome, CommandError>>>,
    /// `None` if the session's process still runs.
    stopped: Option<StopOutcome>,
}

impl TaskExit {
    pub(crate) fn notify_stoppers(self) {
        for reply in self.stoppers {
            let result = self.stopped.clone().ok_or(CommandError::Refused(CommandRefusal::Left));
            reply.send(result).ok(); // the caller may have hung up
        }
    }
}

impl SessionActor {
    pub(crate) fn new(
        state: SessionState,
        plan: ProcessPlan,
        store: Store,
        paused: watch::Receiver<bool>,
        leave: CancellationToken,
        generation: u32,
    ) -> (Self, SessionHandle, StartReceiver) {
        let (handle, mailbox) = SessionHandle::new(state.id(), state.spec().name.clone(), generation);
        let (starting, started) = oneshot::channel();
        let reassessment = reassess::PolicyReassessment::new(plan.assessor.policy());
        let actor = Self {
            launch: Some(plan.launch.clone()),
            state,
            plan,
            store,
            mailbox,
            paused,
            process: None,
            output: output::OutputCursor::default(),
            replies: PendingReplies { starting: Some(starting), ..PendingReplies::default() },
            unrecorded: Vec::new(),
            deferred_news: VecDeque::new(),
            abandoned: false,
            looking: None,
            host_calls: host_calls::RunningHostCalls::default(),
            reassessment,
            leave,
        };
        (actor, handle, started)
    }

    /// Runs until the session's process has ended, or until the daemon leaves the agent running.
    pub(crate) async fn run(mut self, beginning: TaskBeginning) -> TaskExit {
        match &beginning {
            // A new process inherits only the driver's lasting knowledge; for the same process all of it is restored,
            // with the requests that are not answered yet.
            TaskBeginning::New(_) => self.plan.driver.inherit(self.state.driver()),
            TaskBeginning::Found(_) | TaskBeginning::Lost(_) | TaskBeginning::Resting => {
                self.plan.driver.restore(self.state.driver());
            }
        }
        let span = tracing::info_span!("session", session.id = %self.state.id());
        let life = async {
            match beginning {
                TaskBeginning::New(first) => match self.command(first).await {
                    Ok(_) => {
                        failpoint::visit("launch.committed");
                        if self.state.is_deferred() {
                            self.answer_start(Ok(()));
                        } else {
                            self.spawn().await;
                        }
                    }
                    Err(error) => {
                        self.answer_start(Err(error.into()));
                        return;
                    }
                },
                TaskBeginning::Found(found) => self.take_up(*found).await,
                TaskBeginning::Lost(reason) => self.lost(reason).await,
                TaskBeginning::Resting => {
                    self.answer_start(Ok(()));
                    if self.state.is_waking() {
                        self.restart().await;
                    }
                }
            }
            let leave = self.leave.clone();
            // An end that is not recorded yet keeps the task alive: stopped callers are answered, but the log must
            // follow.
            while (!self.state.is_ended() || !self.unrecorded.is_empty())
                && !self.abandoned
                && !leave.is_cancelled()
            {
                self.turn().await;
            }
        };
        life.instrument(span).await;
        self.step_back(); // a session that leaves its agent running has the state of the log
        self.into_task_exit().await
    }

    /// Handles one event.
    async fn turn(&mut self) {
        // Before anything new: this write has happened and every later one builds on it.
        if !self.unrecorded.is_empty() {
            return self.absorb(Vec::new(), None).await;
        }
        // Events that a retried write held up come before new ones, in the order of their arrival.
        if let Some(news) = self.deferred_news.pop_front() {
            return self.handle_news(news).await;
        }
        if self.process.is_none() && (self.state.resting().is_some() || self.state.is_deferred()) {
            return self.rest().await;
        }
        // Nothing is read while reading is paused, so silence is not the agent's fault: no look, no stall.
        let paused = *self.paused.borrow();
        let due = self.state.next_due(Time::now(), &self.watch_policy()).filter(|_| !paused);
        let Some(process) = &mut self.process else {
            // Unreachable by construction. Ending the session is better than a task that waits for ever.
            let reason = "the process was lost".to_owned();
            return self
                .absorb(
                    vec![SessionInput::Exited(Box::new(AgentExit { reason, ..AgentExit::default() }))],
                    None,
                )
                .await;
        };
        let may_read = self.state.may_read() && !paused;
        let (is_ahead, more) = (self.output.ahead.is_some(), self.output.more);
        let input = tokio::select! {
            // Biased: a flood of output must not delay a stop, and an acknowledgement must be handled before the output
            // that it caused. Output cannot starve the others, because each batch is bounded.
            biased;
            Some(message) = self.mailbox.inbox.recv() => TurnInput::Command(message),
            Some(news) = process.events.recv() => TurnInput::News(news),
            Some(report) = self.host_calls.next() => TurnInput::HostCall(report),
            step = self.reassessment.next() => TurnInput::Reassessment(step),
            () = until(self.state.next_expiry()) => TurnInput::Expiry,
            () = until(due) => TurnInput::Look,
            // Lines that were read before new output, so that `buf` does not grow beyond a batch.
            () = std::future::ready(()), if is_ahead || (may_read && more) => TurnInput::Lines,
            Some(chunk) = process.output.recv(), if may_read => TurnInput::Output(chunk),
            () = self.leave.cancelled() => TurnInput::Leave,
            Ok(()) = self.paused.changed() => TurnInput::Paused,
            // Its output has ended, and only the exit is missing.
            else => std::future::pending().await,
        };
        if !matches!(input, TurnInput::Lines) {
            self.step_back();
        }
        match input {
            TurnInput::Command(message) => self.serve(message).await,
            TurnInput::News(news) => self.handle_news(news).await,
            TurnInput::HostCall(report) => self.reported(report).await,
            TurnInput::Reassessment(step) => self.reassessed(step).await,
            TurnInput::Expiry => self.absorb(vec![SessionInput::Expire], None).await,
            TurnInput::Look => self.look().await,
            TurnInput::Lines => self.digest().await,
            TurnInput::Output(chunk) => {
                self.take_output(&chunk);
                self.digest().await;
            }
            TurnInput::Leave => {}
            // Space on the disk has changed: the deadlines begin anew, and the next turn decides about reading.
            TurnInput::Paused => self.absorb(vec![SessionInput::Listening], None).await,
        }
    }

    /// Adds output to `buf`, with all that has arrived meanwhile.
    fn take_output(&mut self, chunk: &[u8]) {
        self.output.buf.extend_from_slice(chunk);
        let Some(process) = &mut self.process else { return };
        while self.output.buf.len() < BATCH_BYTES
            && let Ok(chunk) = process.output.try_recv()
        {
            self.output.buf.extend_from_slice(&chunk);
        }
    }

    async fn handle_news(&mut self, news: ProcessEvent) {
        let (mut settled, mut process_exit) = (Vec::new(), None);
        let mut next = Some(news);
        while let Some(news) = next {
            match news {
                ProcessEvent::Written { n } => settled.push((n, None)),
                ProcessEvent::Failed { n, cause } => settled.push((n, Some(cause))),
                ProcessEvent::Exited(exit) => process_exit = Some(exit),
            }
            let process = self.process.as_mut().filter(|_| process_exit.is_none());
            // Acknowledgements come in bursts: one write for all that are there.
            next = self.deferred_news.pop_front().or_else(|| process?.events.try_recv().ok());
        }
        self.settle(settled).await;
        if let Some(process_exit) = process_exit {
            self.exited(process_exit).await;
        }
    }

    /// Records messages that have arrived, or that never will, with the cause, and notifies the callers that wait for
    /// them.
    async fn settle(&mut self, settled: Vec<(u64, Option<String>)>) {
        if settled.is_empty() {
            return;
        }
        failpoint::visit("news.heard");
        let outgoing = settled.iter().map(|(n, _)| OutgoingChange::Settled { n: *n }).collect();
        let mut causes: BTreeMap<u64, Option<String>> = settled.iter().cloned().collect();
        let inputs = settled.into_iter().map(|(n, cause)| match cause {
            None => SessionInput::Delivered { n },
            Some(cause) => SessionInput::Undelivered { n, cause },
        });
        self.absorb_with(inputs.collect(), None, outgoing).await;
        failpoint::visit("news.committed");
        // Messages are settled in order, so everything up to the last one is settled.
        let last = causes.last_key_value().map(|(n, _)| *n);
        for (n, on_its_way) in self.replies.arrivals.extract_if(.., |(n, _)| Some(*n) <= last) {
            let delivery = match causes.remove(&n) {
                Some(Some(cause)) => Delivery::Failed(cause),
                _ => Delivery::Delivered,
            };
            on_its_way.send(delivery).ok(); // the caller may have hung up
        }
    }

    /// Assesses a request for a clearance before it is recorded, so that its risk and its ruling are part of the same
    /// event.
    fn assessed(&self, ask: Box<ClearanceRequest>) -> impl Future<Output = SessionInput> + Send + use<> {
        let (assessor, spec, asked) =
            (Arc::clone(&self.plan.assessor), self.state.spec().clone(), ask.clone());
        let (fallback, who) = (Arc::clone(&assessor), spec.clone());
        // A request that consists of words only is assessed at once. Others may follow links on a slow file system, so
        // they are assessed on a blocking thread, with a time limit: a hanging mount must not stop the session.
        let simple = ask.file_path.is_none() && ask.diff.is_none() && ask.command.is_none();
        let at_once = simple.then(|| assessor.assess(&spec, &asked));
        let assessing =
            (!simple).then(|| tokio::task::spawn_blocking(move || assessor.assess(&spec, &asked)));
        async move {
            let later = async { tokio::time::timeout(ASSESSING, assessing?).await.ok()?.ok() };
            let assessed = match at_once {
                Some(assessed) => Some(assessed),
                None => later.await,
            };
            let assessed = assessed.unwrap_or_else(|| {
                tracing::error!("a request could not be assessed in time; people decide");
                fallback.unassessed(&who)
            });
            SessionInput::ClearanceRequested(ask, Box::new(assessed))
        }
    }

    /// Returns the spending of other sessions today. Without spending and without a limit nothing is counted.
    fn spent_elsewhere(&self, watch_policy: &WatchPolicy) -> u64 {
        let spent = &self.state.agent_info().spent;
        if spent.cost_micros == 0 && watch_policy.spend.per_day.is_none() {
            return 0;
        }
        let today = agent::day(Time::now());
        self.plan.assessor.record_spend(self.state.id(), today, spent.cost_on_day(today))
    }

    fn watch_policy(&self) -> Arc<WatchPolicy> {
        self.plan.assessor.watch_policy(self.state.spec())
    }

    fn step(&mut self, input: SessionInput, effects: &mut Vec<StepEffect>) -> Result<(), CommandRefusal> {
        let watch_policy = self.watch_policy();
        let spent_elsewhere = self.spent_elsewhere(&watch_policy);
        let settings = self.plan.step_settings(Time::now(), &watch_policy, spent_elsewhere);
        commit::step(&mut self.state, settings, input, effects)
    }

    async fn absorb(&mut self, inputs: Vec<SessionInput>, consumed: Option<u64>) {
        self.absorb_with(inputs, consumed, Vec::new()).await;
    }

    /// Commits events that have happened and cannot be refused, however long that takes. Meanwhile commands are
    /// refused.
    async fn absorb_with(
        &mut self,
        inputs: Vec<SessionInput>,
        consumed: Option<u64>,
        outgoing: Vec<OutgoingChange>,
    ) {
        // An earlier stop that is not recorded yet precedes these events.
        let mut effects = std::mem::take(&mut self.unrecorded);
        effects.reserve(inputs.len() + 4);
        let watch_policy = self.watch_policy();
        let spent_elsewhere = self.spent_elsewhere(&watch_policy);
        for input in inputs {
            let settings = self.plan.step_settings(Time::now(), &watch_policy, spent_elsewhere);
            let stepped = commit::step(&mut self.state, settings, input, &mut effects);
            if let Err(refused) = stepped {
                tracing::error!(%refused, "an event was refused");
            }
        }
        self.warn(&effects);
        let (write, todo) = self.write(effects, outgoing, consumed);
        self.commit(write, todo, consumed).await;
    }

    /// Writes until the store accepts it, then performs the actions. The only way into the store for events that have
    /// happened, with `commit_and_decode`, which ends here as well.
    async fn commit(&mut self, write: SessionWrite, todo: Vec<AfterCommit>, consumed: Option<u64>) {
        if write.is_empty() {
            return; // a look that found nothing new
        }
        let write = Arc::new(write);
        let result = self.store.write(Arc::clone(&write)).await;
        self.finish_commit(write, result, todo, consumed).await;
    }

    /// Repeats a write that failed until the store accepts it, then performs the actions.
    async fn finish_commit(
        &mut self,
        write: Arc<SessionWrite>,
        mut result: Result<(), StoreError>,
        todo: Vec<AfterCommit>,
        consumed: Option<u64>,
    ) {
        let mut delay = RETRY_FIRST;
        while let Err(error) = result {
            match error {
                StoreError::Unavailable(_) => tracing::warn!(%error, "a write failed, will try again"),
                error => {
                    // Continuing would answer the agent with things that are not recorded.
                    tracing::error!(%error, "the store refused the session's events; its agent is killed");
                    self.abandoned = true;
                    let process = self.process.take();
                    tokio::join!(self.abandon_host_calls(), async {
                        if let Some(process) = process {
                            process.end().await;
                        }
                    });
                    return;
                }
            }
            self.refuse_for(delay).await;
            delay = (delay * 2).min(RETRY_LAST);
            result = self.store.write(Arc::clone(&write)).await;
        }
        // The snapshot with the launch description is committed; later ones need not repeat it.
        self.launch = None;
        // Only now may the shim drop this part of the journal: the log has its events.
        if let (Some(process), Some(consumed)) = (&mut self.process, consumed) {
            process.consumed(consumed);
        }
        self.perform(todo);
    }

    fn write(
        &mut self,
        effects: Vec<StepEffect>,
        outgoing: Vec<OutgoingChange>,
        consumed: Option<u64>,
    ) -> (SessionWrite, Vec<AfterCommit>) {
        let (mut write, todo) = commit::prepare(&mut self.state, effects, Some(encoder(&mut self.plan)));
        // Settled before sent: a number is freed before the same write uses new ones.
        write.outgoing.splice(0..0, outgoing);
        write.consumed = consumed.or(write.consumed);
        // The driver's state belongs to the position in the output up to which it has read: both are stored together.
        if write.snapshot.is_some() && self.state.driver().is_some() {
            write.consumed.get_or_insert(self.output.consumed);
        }
        if let Some(snapshot) = &mut write.snapshot {
            snapshot.launch.clone_from(&self.launch);
        }
        (write, todo)
    }

    fn perform(&mut self, todo: Vec<AfterCommit>) {
        for todo in todo {
            // Without a process there is nobody to send to; the message is in the outbox and fails with the exit.
            let Some(process) = &mut self.process else { continue };
            match todo {
                AfterCommit::Send { n, message } => process.send(n, message),
                AfterCommit::Stop(StopMode::Stop) => {
                    let reason = "the session is being stopped".to_owned();
                    let mut voice = encoder(&mut self.plan);
                    let mut interrupt = voice.encode(&AgentCommand::Interrupt { reason });
                    interrupt.extend(voice.encode(&AgentCommand::Close));
                    process.stop(StopLadder { interrupt, ..self.plan.ladder.clone() });
                }
                AfterCommit::Stop(StopMode::Kill) => process.kill(),
                AfterCommit::Do { request, job } => self.start_host_call(request, job),
            }
        }
    }

    fn answer_start(&mut self, result: Result<(), StartError>) {
        if let Some(starting) = self.replies.starting.take() {
            starting.send(result).ok(); // the caller may have hung up; the session continues
        }
    }

    async fn into_task_exit(self) -> TaskExit {
        if self.state.is_ended() {
            tracing::info!(session.id = %self.state.id(), "the session ended");
        } else if !self.abandoned && self.process.is_some() {
            tracing::info!(session.id = %self.state.id(), "the agent is left running");
        }
        let stopped = self.state.is_ended().then_some(self.replies.stopped);
        if let Some(process) = self.process {
            process.leave().await;
        }
        TaskExit { stoppers: self.replies.stoppers, stopped }
    }
}
