//! The start and the end of the process.

use super::interrupt::{INTERRUPTED, PendingInterrupts};
use super::watch::DAEMON;
use super::{
    AgentExit, CommandRefusal, EffectSink, LifeStage, MAX_IN_FLIGHT, OpenClearance, OutboundKind,
    QueuedPrompt, RequestSubject, SessionSpec, SessionState, StepEffect,
};
use crate::session::restart::{self, ProcessEnding, RestartDecision};
use intercom_types::event::{
    AgentExited, AgentReady, AgentRestarting, AgentSpawned, ClearanceClosed, OutputIncomplete,
    PromptUndelivered, QuestionClosed, SessionAgentChanged, SessionCreated, SessionEnded, SessionParked,
    SessionResumed, SessionStopping,
};
use intercom_types::{
    AgentCommand, ClearanceId, ClearanceStatus, Delivery, Event, FaultCode, Json, NOT_STARTED, Preset,
    PromptBody, QuestionId, QuestionStatus, RequestFault, RequestId, StopMode, Time, span,
};

impl SessionState {
    /// Launches the session. A first prompt waits in the queue until the process runs.
    pub(super) fn launch(
        &mut self,
        by: String,
        command: &str,
        prompt: Option<String>,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.record_creation(&by, command, out);
        if self.life.deferred && prompt.is_none() {
            return Ok(());
        }
        self.life.stage = LifeStage::Starting;
        if let Some(text) = prompt {
            self.prompt(text.into(), by, out)?;
        }
        out.effects.push(StepEffect::Spawn);
        Ok(())
    }

    pub(super) fn record_creation(&self, by: &str, command: &str, out: &mut EffectSink<'_, '_>) {
        let spec = &self.spec;
        out.record(Event::SessionCreated(Box::new(SessionCreated {
            name: spec.name.clone(),
            agent: spec.agent.clone(),
            protocol: spec.protocol.clone(),
            workspace: spec.workspace.clone(),
            command: command.to_owned(),
            by: by.to_owned(),
            deferred: self.life.deferred,
            preset: Some(spec.preset).filter(|preset| *preset != Preset::Full),
            on_client_left: spec.on_client_left,
        })));
    }

    /// Starts the first process of a deferred session.
    pub(super) fn begin(&mut self, out: &mut EffectSink<'_, '_>) {
        self.life.stage = LifeStage::Starting;
        out.effects.push(StepEffect::Spawn);
    }

    /// Chooses another agent, as long as no process has started.
    pub(super) fn choose_agent(
        &mut self,
        spec: SessionSpec,
        command: &str,
        by: &str,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        if self.life.stage != LifeStage::Created {
            return Err(CommandRefusal::Started);
        }
        out.record(Event::SessionAgentChanged(SessionAgentChanged {
            agent: spec.agent.clone(),
            protocol: spec.protocol.clone(),
            command: command.to_owned(),
            by: by.to_owned(),
        }));
        let (id, preset, on_client_left) = (self.spec.id, self.spec.preset, self.spec.on_client_left);
        *self.spec = SessionSpec { id, preset, on_client_left, ..spec };
        Ok(())
    }

    /// Starts the next generation, with new message numbers and without a turn; the queue stays. Starts the first
    /// generation if there was none.
    pub(super) fn resume(&mut self, by: &str, out: &mut EffectSink<'_, '_>) -> Result<(), CommandRefusal> {
        if self.life.stage == LifeStage::Created {
            out.record(Event::SessionResumed(SessionResumed {
                generation: self.life.generation,
                by: by.to_owned(),
            }));
            self.begin(out);
            return Ok(());
        }
        if !self.is_ended() {
            return Err(CommandRefusal::Running);
        }
        if by != DAEMON {
            self.failures.forget(); // a person who resumes it knows the failure
        }
        self.life.restarts.clear();
        self.oversight.tracker.reset(out.now());
        self.next_generation();
        out.record(Event::SessionResumed(SessionResumed {
            generation: self.life.generation,
            by: by.to_owned(),
        }));
        out.effects.push(StepEffect::Spawn);
        Ok(())
    }

    pub(super) fn next_generation(&mut self) {
        self.life.generation += 1;
        self.life.orphan = false;
        self.turns.has_spoken = false;
        self.outbox.next_n = 1;
        self.life.exit = None;
        self.requests.decided.clear(); // the agent's request ids begin anew
        self.turns.interrupts = PendingInterrupts::default();
        self.life.stderr_tail.clear();
        self.failures.next_process();
        self.oversight.condition = None;
        self.life.stage = LifeStage::Starting;
    }

    /// Starts the next generation without a person, after a rest, or if the result of the first start was never seen:
    /// that process may still appear, in its own generation. `prompt` is the unfinished prompt, if it is to be
    /// repeated.
    pub(super) fn restart(&mut self, prompt: Option<PromptBody>, out: &mut EffectSink<'_, '_>) {
        if !matches!(self.life.stage, LifeStage::Resting { .. }) && !self.is_waking() {
            return;
        }
        self.next_generation();
        // If the queue is full, the agent gets those prompts instead.
        prompt.map(|wording| self.queue_prompt(wording, DAEMON.to_owned(), true, out)).transpose().ok();
        out.effects.push(StepEffect::Spawn);
    }

    pub(super) fn spawned(&mut self, pid: i32, out: &mut EffectSink<'_, '_>) {
        if self.is_ended() {
            return;
        }
        self.life.pid = Some(pid);
        self.life.started_at = Some(out.now());
        out.record(Event::AgentSpawned(AgentSpawned { pid, generation: self.life.generation }));
        if self.life.stage != LifeStage::Starting {
            return;
        }
        if self.agent_owns_turns() {
            self.life.ready_deadline = Some(out.ready_deadline());
            self.send(AgentCommand::Hello, OutboundKind::Other, out);
        } else {
            // Our own protocol has no handshake: an agent is ready as soon as it runs.
            self.ready(false, None, false, out);
        }
    }

    /// Records that the agent is ready for prompts.
    ///
    /// A `new` agent session reports all capabilities. A resumed one reports fewer, so they are not cached for its
    /// profile.
    pub(super) fn ready(
        &mut self,
        supports_steering: bool,
        agent: Option<Json>,
        new: bool,
        out: &mut EffectSink<'_, '_>,
    ) {
        if self.life.stage != LifeStage::Starting {
            return;
        }
        self.life.stage = LifeStage::Running;
        (self.agent.supports_steering, self.life.ready_deadline, self.life.deferred) =
            (supports_steering, None, false);
        let command_fingerprint =
            self.spec.agent.as_ref().filter(|_| new).map(|_| out.cx.command_fingerprint.to_owned());
        let ready = AgentReady { generation: self.life.generation, agent, command_fingerprint };
        out.record(Event::AgentReady(ready));
        self.oversight.tracker.reset_for_process(out.now());
        self.flush_prompts(out);
        self.started_again(out);
    }

    /// Ends an agent that runs but cannot be used, with the reason for people.
    pub(super) fn unusable(&mut self, why: String, out: &mut EffectSink<'_, '_>) {
        if self.life.stage != LifeStage::Starting {
            return; // it is being stopped already
        }
        let mode = StopMode::Stop;
        self.fail_start(&why, out.now());
        let event =
            SessionStopping { mode, by: DAEMON.to_owned(), to_restart: false, why: Some(why.clone()) };
        out.record(Event::SessionStopping(event));
        out.effects.push(StepEffect::Stop { mode });
        self.life.stage =
            LifeStage::Stopping { mode, by: DAEMON.to_owned(), to_restart: false, why: Some(why) };
    }

    pub(super) fn spawn_failed(&mut self, cause: &str, out: &mut EffectSink<'_, '_>) {
        let reason = format!("spawn failed: {cause}");
        let is_restart = self.is_restart(out.now());
        self.fail_start(&format!("{NOT_STARTED}{cause}"), out.now());
        self.fail_in_flight(&reason, out);
        if is_restart {
            self.go_on(reason, ProcessEnding::ToRestart, out);
        } else {
            self.end(reason, out);
        }
    }

    /// Returns true if the process that is starting is a restart of ours.
    fn is_restart(&self, now: Time) -> bool {
        self.life.generation > 1 && self.life.restarts.back().is_some_and(|at| *at <= now)
    }

    pub(super) fn exited(&mut self, agent_exit: AgentExit, out: &mut EffectSink<'_, '_>) {
        if self.is_ended() || matches!(self.life.stage, LifeStage::Resting { .. }) {
            return;
        }
        let (reason, ended) = match &self.life.stage {
            LifeStage::Stopping { why: Some(why), .. } => (why.clone(), None),
            LifeStage::Stopping { to_restart: true, .. } => {
                ("the agent was stuck".to_owned(), Some(ProcessEnding::ToRestart))
            }
            LifeStage::Stopping { mode: StopMode::Stop, by, .. } => (format!("stopped by {by}"), None),
            LifeStage::Stopping { mode: StopMode::Kill, by, .. } => (format!("killed by {by}"), None),
            // The daemon died between the stop and the next start.
            LifeStage::Starting if self.is_restart(out.now()) => {
                (agent_exit.reason.clone(), Some(ProcessEnding::ToRestart))
            }
            // The last state of an orphan's agent is not known, so only people may start it again.
            _ if self.life.orphan => (agent_exit.reason.clone(), None),
            _ => (agent_exit.reason.clone(), Some(ProcessEnding::Itself(&agent_exit.exit))),
        };
        let why = self.judge_exit(&agent_exit, out.now());
        self.fail_in_flight(&reason, out);
        if let Some(rescued_bytes) = agent_exit.rescued {
            let why = "daemon and shim were not running: output of that time may be missing".to_owned();
            out.record(Event::OutputIncomplete(OutputIncomplete { rescued_bytes, why }));
        }
        out.record(Event::AgentExited(AgentExited {
            code: agent_exit.exit.code,
            signal: agent_exit.exit.signal,
            steps: agent_exit.steps,
            killed: agent_exit.killed,
            stderr_tail: agent_exit.stderr_tail.clone(),
            generation: self.life.generation,
            why,
        }));
        self.life.exit = Some(agent_exit.exit.clone());
        self.life.stderr_tail = agent_exit.stderr_tail;
        match ended {
            None => self.end(reason, out),
            Some(ended) => self.go_on(reason, ended, out),
        }
    }

    /// Decides what follows the end of a process that nobody stopped: the session's end, a restart, or parking.
    fn go_on(&mut self, reason: String, ended: ProcessEnding<'_>, out: &mut EffectSink<'_, '_>) {
        let (now, terms) = (out.now(), &out.watch_policy().restart);
        let jitter = out.seed()[0];
        match restart::next(terms, &self.life.restarts, ended, now, jitter) {
            RestartDecision::End => self.end(reason, out),
            RestartDecision::Again(at, attempt) => {
                self.clear_process_state(out);
                out.record(Event::AgentRestarting(AgentRestarting {
                    at,
                    wait_ms: u64::try_from(at.since(now).as_millis()).unwrap_or(u64::MAX),
                    attempt,
                    of: terms.budget,
                    reason: reason.clone(),
                    why: self.failures.exit.clone(),
                    generation: self.life.generation + 1,
                }));
                self.life.restarts.retain(|before| now.since(*before) < terms.window);
                self.life.restarts.push_back(at);
                self.life.stage = LifeStage::Resting { reason, at, attempt };
            }
            RestartDecision::Park => {
                self.clear_process_state(out);
                let history = match terms.budget {
                    0 => "may not be restarted".to_owned(),
                    times => format!("was restarted {times} times within {} before", span(terms.window)),
                };
                self.fail_for_good(&history, &reason, now);
                let reason = format!("{reason}, and {history}");
                out.record(Event::SessionParked(SessionParked {
                    reason: reason.clone(),
                    why: self.failures.exit.clone(),
                    stderr_tail: self.life.stderr_tail.clone(),
                }));
                self.life.stage = LifeStage::Parked { reason, at: now };
            }
        }
    }

    /// Fails all messages in flight. The stage changes first, so that a settled message does not cause the next one to
    /// be sent.
    pub(super) fn fail_in_flight(&mut self, reason: &str, out: &mut EffectSink<'_, '_>) {
        self.life.stage = LifeStage::Ended { reason: reason.to_owned(), at: out.now() };
        let in_flight: Vec<u64> = self.outbox.in_flight.keys().copied().collect();
        for n in in_flight {
            self.settle(n, Some(Delivery::STREAM_CLOSED), out);
        }
    }

    /// Clears the state that went with the process.
    pub(super) fn clear_process_state(&mut self, out: &mut EffectSink<'_, '_>) {
        let unfinished = self.turns.unfinished;
        self.withdraw_open(out);
        self.drop_host_calls(out);
        self.end_turn(if self.turns.cancel_deadline.is_some() { INTERRUPTED } else { "exited" }, out);
        self.turns.unfinished = unfinished;
        (self.life.pid, self.oversight.condition) = (None, None);
        (self.life.ready_deadline, self.turns.cancel_deadline) = (None, None);
    }

    pub(super) fn end(&mut self, reason: String, out: &mut EffectSink<'_, '_>) {
        self.clear_process_state(out);
        if std::mem::take(&mut self.life.deferred) {
            let cause = self.failures.exit.clone().unwrap_or_else(|| reason.clone());
            self.fail_queue(&cause, out);
        }
        // Programs read the short reason; people read the exit in words.
        let why = self.failures.exit.clone();
        out.record(Event::SessionEnded(SessionEnded { reason: reason.clone(), why }));
        self.life.orphan = false; // all messages of the next process are known
        self.life.stage = LifeStage::Ended { reason, at: out.now() };
    }

    /// Fails the queued prompts that were to start the process.
    pub(super) fn fail_queue(&mut self, cause: &str, out: &mut EffectSink<'_, '_>) {
        for QueuedPrompt { id, .. } in std::mem::take(&mut self.turns.queue) {
            out.record(Event::PromptUndelivered(PromptUndelivered { prompt: id, cause: cause.to_owned() }));
        }
    }

    fn withdraw_open(&mut self, out: &mut EffectSink<'_, '_>) {
        const WHY: &str = "the agent ended before it was decided";
        self.close_open(WHY, out);
    }

    fn close_open(&mut self, why: &str, out: &mut EffectSink<'_, '_>) {
        let clearances: Vec<ClearanceId> = self.requests.clearances.keys().copied().collect();
        for id in clearances {
            self.close_clearance(id, why, out);
        }
        let questions: Vec<QuestionId> = self.requests.questions.keys().copied().collect();
        for id in questions {
            self.close_question(id, why, out);
        }
    }

    /// Closes open requests and cancels them at the agent.
    pub(super) fn cancel_open(&mut self, why: &str, out: &mut EffectSink<'_, '_>) {
        let open = self.requests.open();
        let open: Vec<(RequestId, bool)> =
            open.map(|request| (request.clone(), self.host_call_awaits_decision(request))).collect();
        self.close_open(why, out);
        for (request, is_host_call) in open {
            let message = if is_host_call {
                let (code, message) = (FaultCode::Cancelled, why.to_owned());
                AgentCommand::Fault(RequestFault { request, code, message })
            } else {
                AgentCommand::Cancel { request }
            };
            self.send(message, OutboundKind::Other, out);
        }
    }

    pub(super) fn close_clearance(&mut self, id: ClearanceId, why: &str, out: &mut EffectSink<'_, '_>) {
        if let Some(open) = self.requests.clearances.remove(&id) {
            let OpenClearance { request, subject: RequestSubject { action, title }, .. } = open;
            self.forget_host_call(&request);
            out.record(Event::ClearanceClosed(ClearanceClosed {
                clearance: id,
                action,
                title,
                status: ClearanceStatus::Withdrawn,
                decision: None,
                reason: why.to_owned(),
                option: None,
            }));
        }
    }

    pub(super) fn close_question(&mut self, id: QuestionId, why: &str, out: &mut EffectSink<'_, '_>) {
        if self.requests.questions.remove(&id).is_some() {
            out.record(Event::QuestionClosed(QuestionClosed {
                question: id,
                status: QuestionStatus::Withdrawn,
                reason: why.to_owned(),
            }));
        }
    }

    /// Refuses commands that need a running process.
    pub(super) fn running(&self) -> Result<(), CommandRefusal> {
        self.steerable()?;
        match self.outbox.in_flight.len() {
            _ if self.life.stage == LifeStage::Created => Err(CommandRefusal::NotStarted),
            _ if self.life.stage != LifeStage::Running => Err(CommandRefusal::Starting),
            n if n >= MAX_IN_FLIGHT => Err(CommandRefusal::Unread(n)),
            _ => Ok(()),
        }
    }

    /// Refuses commands if the session has ended or is about to.
    pub(super) fn steerable(&self) -> Result<(), CommandRefusal> {
        match self.life.stage {
            LifeStage::Ended { .. } => Err(CommandRefusal::Ended),
            LifeStage::Parked { .. } => Err(CommandRefusal::Parked),
            LifeStage::Stopping { .. } => Err(CommandRefusal::Stopping),
            LifeStage::Created | LifeStage::Starting | LifeStage::Running | LifeStage::Resting { .. } => {
                Ok(())
            }
        }
    }
}
