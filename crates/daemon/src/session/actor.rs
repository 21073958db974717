//! The task that owns one session: turns what happens into inputs, commits what the state machine records, then
//! performs what it asks for. Nothing is performed or answered before it is in the log.
//!
//! Commands come first, then news of the process, then its output, a bounded batch at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::commit::{self, AfterCommit, MessageEncoder, StepSettings};
use super::handle::{CommandError, DeliverySender, Mailbox, SessionHandle, StopOutcome};
use super::stall::WatchPolicy;
use super::state::{AgentExit, CommandRefusal, RequestAssessor, SessionInput, SessionState, StepEffect};
use intercom_failpoint as failpoint;
use intercom_host::{AgentProcess, ProcessActivity, ProcessEvent, ProcessSpec, RuntimeDir, StopLadder};
use intercom_store::{OutgoingChange, SessionWrite, Store, StoreError};
use intercom_types::{AgentCommand, ClearanceRequest, Delivery, StopMode, Time, agent};
use intercom_wire::driver::Driver;
use intercom_wire::framing::Framer;

mod command;
mod host_calls;
mod life;
mod mailbox;
mod output;
mod reassess;
mod rejections;
mod terminals;
mod unrecorded;

/// Events in one write of bulk output.
const BATCH_ROWS: usize = 1000;
/// Output taken in one go, whole chunks.
const BATCH_BYTES: usize = 256 * 1024;
/// The time that a file system may take to resolve a path.
const ASSESSING: Duration = Duration::from_secs(2);
const LOOK_AT_CLOCK: Duration = Duration::from_secs(30);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);

/// The plan to start this session's process and to talk to it.
pub struct ProcessPlan {
    pub spec: Result<ProcessSpec, String>,
    pub runtime_dir: RuntimeDir,
    pub framer: Framer,
    pub driver: Driver,
    pub ladder: StopLadder,
    pub assessor: Arc<dyn RequestAssessor>,
    pub startup_timeout: Duration,
    /// The description from which the session is started again later, in the supervisor's own form.
    pub launch: String,
    /// A hash of its command line.
    pub command_fingerprint: String,
    /// True if the session is resumed after the machine was restarted.
    pub resume_after_reboot: bool,
    /// Returns the plan for the generation with this number.
    pub next_plan: Arc<dyn Fn(u32) -> ProcessPlan + Send + Sync>,
}

impl ProcessPlan {
    fn step_settings<'a>(&'a self, watch_policy: &'a WatchPolicy, spent_elsewhere: u64) -> StepSettings<'a> {
        let (startup, command_fingerprint) = (self.startup_timeout, self.command_fingerprint.as_str());
        StepSettings { watch_policy, startup, command_fingerprint, spent_elsewhere }
    }
}

impl std::fmt::Debug for ProcessPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessPlan").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// The ways in which a session's task begins.
#[derive(Debug)]
pub enum TaskBeginning {
    /// With a launch or a resume.
    New(SessionInput),
    /// With a process that an earlier daemon started.
    Found(Box<FoundProcess>),
    /// With one that an earlier daemon started and that cannot be found any more.
    Lost(String),
    /// Without one, and there will be one: later, or at once.
    Resting,
}

/// A process that was found, and how far the log goes.
#[derive(Debug)]
pub struct FoundProcess {
    pub process: AgentProcess,
    pub consumed: u64,
    /// Messages that were recorded and not known to have arrived.
    pub outbox: Vec<(u64, Vec<u8>)>,
}

/// Why a session did not come to run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    SpawnFailed(String),
    #[error("the daemon is stopping")]
    Closing,
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Sleeps until then, by the wall clock: what is told to people is a time of day.
async fn until(at: Option<Time>) {
    let Some(at) = at else { return std::future::pending().await };
    loop {
        let left = u64::try_from(at.millis().saturating_sub(Time::now().millis())).unwrap_or(0);
        if left == 0 {
            return;
        }
        // Looked at again now and then: the clock may be set, or the machine sleep.
        tokio::time::sleep(Duration::from_millis(left).min(LOOK_AT_CLOCK)).await;
    }
}

fn encoder(plan: &mut ProcessPlan) -> MessageEncoder<'_> {
    MessageEncoder { framer: &mut plan.framer, driver: &mut plan.driver }
}

pub use command::failed_commands;
pub use output::quarantined_lines;

pub type StartReceiver = oneshot::Receiver<Result<(), StartError>>;

/// The callers who wait for something that the session does.
#[derive(Default)]
struct PendingReplies {
    starting: Option<oneshot::Sender<Result<(), StartError>>>,
    /// The command that had the first process of a deferred session started.
    first_start: Option<DeliverySender>,
    /// The commands that wait to hear that a message has arrived, by the message's number.
    arrivals: Vec<(u64, DeliverySender)>,
    stoppers: Vec<oneshot::Sender<Result<StopOutcome, CommandError>>>,
    /// What the stoppers are told once the process is gone.
    stopped: StopOutcome,
}

/// The owner of one session, before it runs.
pub struct SessionActor {
    state: SessionState,
    plan: ProcessPlan,
    store: Store,
    mailbox: Mailbox,
    /// True while there is too little free disk: the agent's output stays in its pipe.
    paused: watch::Receiver<bool>,
    process: Option<AgentProcess>,
    output: output::OutputCursor,
    replies: PendingReplies,
    /// A stop that was carried out while the store did not work: recorded with whatever is recorded next.
    unrecorded: Vec<StepEffect>,
    /// News that came while an earlier write was tried again. Bounded: at most what is under way, and the exit.
    deferred_news: VecDeque<ProcessEvent>,
    /// The launch description goes into the first snapshot.
    launch: Option<String>,
    /// The store and this session disagree: nothing more can be recorded.
    abandoned: bool,
    /// A look at its processes that the system has not finished.
    looking: Option<tokio::task::JoinHandle<Option<ProcessActivity>>>,
    /// The host calls that run for the agent.
    host_calls: host_calls::RunningHostCalls,
    /// Pending clearances under another policy.
    reassessment: reassess::PolicyReassessment,
    /// The daemon goes and the agent stays. Of this session alone.
    leave: CancellationToken,
}

impl std::fmt::Debug for SessionActor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionActor").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The result of a task that is over and whose session is free to be resumed; `stoppers` are told of it.
#[derive(Debug)]
pub struct TaskExit {
    stoppers: Vec<oneshot::Sender<Result<StopOutcome, CommandError>>>,
    /// `None` if the session's process lives on.
    stopped: Option<StopOutcome>,
}

impl TaskExit {
    pub fn notify_stoppers(self) {
        for reply in self.stoppers {
            let result = self.stopped.clone().ok_or(CommandError::Refused(CommandRefusal::Left));
            reply.send(result).ok(); // the caller may have gone
        }
    }
}

impl SessionActor {
    pub fn new(
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

    /// Lives as long as the session's process, or until it is told to leave it alone.
    pub async fn run(mut self, beginning: TaskBeginning) -> TaskExit {
        match &beginning {
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
            while (!self.state.is_ended() || !self.unrecorded.is_empty())
                && !self.abandoned
                && !leave.is_cancelled()
            {
                self.turn().await;
            }
        };
        life.instrument(span).await;
        self.into_task_exit().await
    }

    /// One thing that happens.
    async fn turn(&mut self) {
        if !self.unrecorded.is_empty() {
            return self.absorb(Vec::new(), None).await;
        }
        if let Some(news) = self.deferred_news.pop_front() {
            return self.handle_news(news).await;
        }
        if self.process.is_none() && (self.state.resting().is_some() || self.state.is_deferred()) {
            return self.rest().await;
        }
        // Who is not listened to cannot be told from who is silent.
        let paused = *self.paused.borrow();
        let due = self.state.next_due(Time::now(), &self.watch_policy()).filter(|_| !paused);
        let Some(process) = &mut self.process else {
            // Unreachable by construction; ending beats hanging.
            let reason = "the process was lost".to_owned();
            return self
                .absorb(
                    vec![SessionInput::Exited(Box::new(AgentExit { reason, ..AgentExit::default() }))],
                    None,
                )
                .await;
        };
        let may_read = self.state.may_read() && !paused;
        tokio::select! {
            biased;
            Some(message) = self.mailbox.inbox.recv() => self.serve(message).await,
            Some(news) = process.events.recv() => self.handle_news(news).await,
            Some(report) = self.host_calls.next() => self.reported(report).await,
            step = self.reassessment.next() => self.reassessed(step).await,
            () = until(self.state.next_expiry()) => self.absorb(vec![SessionInput::Expire], None).await,
            () = until(due) => self.look().await,
            () = std::future::ready(()), if may_read && self.output.more => self.digest().await,
            Some(chunk) = process.output.recv(), if may_read => {
                self.output.buf.extend_from_slice(&chunk);
                while self.output.buf.len() < BATCH_BYTES && let Ok(chunk) = process.output.try_recv() {
                    self.output.buf.extend_from_slice(&chunk);
                }
                self.digest().await;
            }
            () = self.leave.cancelled() => {}
            // Woken to look again whether there is room on the disk.
            Ok(()) = self.paused.changed() => self.absorb(vec![SessionInput::Listening], None).await,
            // Its output is at an end, and there is nothing to do until its exit is told.
            else => std::future::pending().await,
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
            next = self.deferred_news.pop_front().or_else(|| process?.events.try_recv().ok());
        }
        self.settle(settled).await;
        if let Some(process_exit) = process_exit {
            self.exited(process_exit).await;
        }
    }

    /// Messages that have arrived, or never will, and why.
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
        // Messages are settled in order: what is below the last one is settled too.
        let last = causes.last_key_value().map(|(n, _)| *n);
        for (n, on_its_way) in self.replies.arrivals.extract_if(.., |(n, _)| Some(*n) <= last) {
            let delivery = match causes.remove(&n) {
                Some(Some(cause)) => Delivery::Failed(cause),
                _ => Delivery::Delivered,
            };
            on_its_way.send(delivery).ok(); // the caller may have gone
        }
    }

    /// A request for a clearance is looked at before it is recorded.
    fn assessed(&self, ask: ClearanceRequest) -> impl Future<Output = SessionInput> + Send + use<> {
        let (assessor, spec, asked) =
            (Arc::clone(&self.plan.assessor), self.state.spec().clone(), ask.clone());
        let (fallback, who) = (Arc::clone(&assessor), spec.clone());
        // With nothing to look at but its words, it takes no time. Otherwise on a thread of its own: it may follow links on a
        // file system that takes its time.
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
                tracing::error!("a request could not be assessed: people are asked");
                fallback.unassessed(&who)
            });
            SessionInput::ClearanceRequested(Box::new(ask), Box::new(assessed))
        }
    }

    /// Only what is limited is counted.
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
        let settings = self.plan.step_settings(&watch_policy, spent_elsewhere);
        commit::step(&mut self.state, settings, input, effects)
    }

    async fn absorb(&mut self, inputs: Vec<SessionInput>, consumed: Option<u64>) {
        self.absorb_with(inputs, consumed, Vec::new()).await;
    }

    /// Commits events that have happened and cannot be refused, however long it takes. Meanwhile commands are
    /// refused.
    async fn absorb_with(
        &mut self,
        inputs: Vec<SessionInput>,
        consumed: Option<u64>,
        outgoing: Vec<OutgoingChange>,
    ) {
        let mut effects = std::mem::take(&mut self.unrecorded);
        effects.reserve(inputs.len() + 4);
        let watch_policy = self.watch_policy();
        let spent_elsewhere = self.spent_elsewhere(&watch_policy);
        for input in inputs {
            let settings = self.plan.step_settings(&watch_policy, spent_elsewhere);
            let stepped = commit::step(&mut self.state, settings, input, &mut effects);
            if let Err(refused) = stepped {
                tracing::error!(%refused, "what happened was refused");
            }
        }
        self.warn(&effects);
        let (write, todo) = self.write(effects, outgoing, consumed);
        self.commit(write, todo, consumed).await;
    }

    /// Writes until it is written, then performs.
    async fn commit(&mut self, write: SessionWrite, todo: Vec<AfterCommit>, consumed: Option<u64>) {
        if write.is_empty() {
            return; // a look that found nothing new
        }
        let write = Arc::new(write);
        let mut delay = RETRY_FIRST;
        while let Err(error) = self.store.write(Arc::clone(&write)).await {
            match error {
                StoreError::Unavailable(_) => tracing::warn!(%error, "will try again"),
                error => {
                    // Going on would answer the agent with what is not recorded.
                    tracing::error!(%error, "the session cannot go on");
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
        }
        self.launch = None;
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
        write.outgoing.splice(0..0, outgoing);
        write.consumed = consumed.or(write.consumed);
        // What a driver remembers goes with how far it has read.
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
            starting.send(result).ok(); // the caller may have gone; the session lives on
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
