//! Inputs from operators.

use super::watch::DAEMON;
use super::{
    CommandRefusal, DecisionDetails, EffectSink, LifeStage, MAX_IN_FLIGHT, OpenClearance, OutboundKind,
    QueuedPrompt, RequestSubject, SessionInput, SessionState, StepEffect, TurnModel,
};
use intercom_types::event::{
    ClearanceApproved, ClearanceClosed, ClearanceDecided, ClearanceDelivered, ClearanceUndelivered,
    MessageUndelivered, Nudged, PromptAmended, PromptDelivered, PromptQueued, PromptSending,
    PromptUndelivered, PromptWithdrawn, QuestionAnswered, QuestionDelivered, QuestionUndelivered,
    SessionStopping,
};
use intercom_types::{
    AgentCommand, Answer, ClearanceId, ClearanceStatus, Event, PromptBody, PromptId, QuestionId, RequestId,
    StopMode, Verdict, agent,
};

impl SessionState {
    /// Handles an operator's command. A person's act resets the ladder.
    pub(super) fn operator(
        &mut self,
        input: SessionInput,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        let by = match input {
            SessionInput::Prompt { id, wording, by } => {
                self.put_as(id, wording, by.clone(), false, out)?;
                self.oversight.tracker.unlimited();
                by
            }
            SessionInput::TakeBack { prompt, by } => return self.take_back(prompt, &by, out),
            SessionInput::Amend { prompt, text, place, by } => {
                return self.amend(prompt, text, place, &by, out);
            }
            SessionInput::Decide { clearance, verdict, reason, option, by, via } => {
                let details = DecisionDetails { reason, option, by: by.clone(), via, ruling: None };
                self.decide(clearance, verdict, details, out)?;
                by
            }
            SessionInput::Answer { question, answer, instruction, by } => {
                self.answer(question, answer, instruction, by.clone(), out)?;
                by
            }
            SessionInput::Nudge { message, by } => {
                self.nudge(message, &by, out)?;
                by
            }
            SessionInput::Interrupt { reason, by } => {
                self.interrupt(reason, &by, out)?;
                by
            }
            SessionInput::List => return self.list(out),
            SessionInput::Set { set, by } => {
                self.set(set, &by, out)?;
                by
            }
            SessionInput::Snooze { until, by } => return self.snooze(until, &by, out),
            SessionInput::Ladder { choice, by } => return self.choose_ladder(choice, &by, out),
            SessionInput::Preset { preset, widens, by } => {
                return self.choose_preset(preset, widens, &by, out);
            }
            SessionInput::Stop { mode, by } => return self.stop(mode, by, out),
            SessionInput::Seen { at, by } => {
                self.seen(at, &by, out);
                return Ok(());
            }
            // All other inputs are handled elsewhere.
            _ => return Ok(()),
        };
        self.acted(&by, out);
        Ok(())
    }

    pub(super) fn prompt(
        &mut self,
        wording: PromptBody,
        by: String,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.queue_prompt(wording, by, false, out)
    }

    /// Queues a prompt. One of `ours` is not a person's act and resets no clock.
    pub(super) fn queue_prompt(
        &mut self,
        wording: PromptBody,
        by: String,
        by_daemon: bool,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.put_as(None, wording, by, by_daemon, out)
    }

    /// Queues a prompt under the caller's id, which is new.
    fn put_as(
        &mut self,
        id: Option<PromptId>,
        wording: PromptBody,
        by: String,
        by_daemon: bool,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.steerable()?;
        if self.turns.queue.len() >= self.spec.max_queued_prompts && by != DAEMON {
            return Err(CommandRefusal::QueueFull(self.turns.queue.len()));
        }
        let id = id.unwrap_or_else(|| PromptId::from_seed(out.seed()));
        let PromptBody { text, content } = wording;
        if !by_daemon {
            self.try_again(&text, &by, out);
        }
        if !by_daemon && self.agent.info.first_prompt.is_none() {
            self.agent.info.first_prompt = agent::first_line(&text);
        }
        out.record(Event::PromptQueued(PromptQueued {
            prompt: id,
            text: text.clone(),
            content: content.clone(),
            by,
        }));
        let queued = QueuedPrompt { id, text, content, by_daemon };
        if by_daemon {
            // In front of people's prompts, because it is about the current task, and behind our earlier ones.
            let at = self.turns.queue.iter().take_while(|queued| queued.by_daemon).count();
            self.turns.queue.insert(at, queued);
        } else {
            self.turns.queue.push_back(queued);
        }
        if self.life.stage == LifeStage::Created {
            self.begin(out);
        }
        self.flush_prompts(out);
        Ok(())
    }

    /// Sends prompts at once and in order, as long as the agent reads.
    pub(super) fn flush_prompts(&mut self, out: &mut EffectSink<'_, '_>) {
        while self.life.stage == LifeStage::Running
            && self.spec.turn_model != TurnModel::OnHeartbeat
            && !self.holds_prompts()
            && self.outbox.in_flight.len() < MAX_IN_FLIGHT
            && !self.turns.queue.is_empty()
            && self.may_spend(out)
        {
            self.send_queued_prompt(out);
        }
    }

    pub(super) fn send_queued_prompt(&mut self, out: &mut EffectSink<'_, '_>) {
        let Some(queued) = self.turns.queue.pop_front() else { return };
        self.failures.sends(&queued);
        let QueuedPrompt { id, text, content, by_daemon } = queued;
        if !by_daemon {
            self.oversight.tracker.record_sign_of_life(out.now());
        }
        // Our own text in between is not the task that is repeated after a restart.
        if !by_daemon || self.turns.unfinished.is_none() {
            self.turns.unfinished = Some(id);
        }
        self.begin_turn("prompt", out);
        let turn = self.turns.turn.as_ref().map(|turn| turn.id);
        out.record(Event::PromptSending(PromptSending { prompt: id, turn }));
        let wording = PromptBody { text, content };
        self.send(AgentCommand::Prompt { wording, turn }, OutboundKind::Prompt(id), out);
    }

    pub(super) fn take_back(
        &mut self,
        prompt: PromptId,
        by: &str,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        let at = self
            .turns
            .queue
            .iter()
            .position(|queued| queued.id == prompt)
            .ok_or(CommandRefusal::NotQueued)?;
        self.turns.queue.remove(at);
        out.record(Event::PromptWithdrawn(PromptWithdrawn { prompt, by: by.to_owned() }));
        Ok(())
    }

    /// Changes the text or the place of a queued prompt. Our own prompts stay in front of those of people.
    fn amend(
        &mut self,
        prompt: PromptId,
        text: Option<String>,
        place: Option<usize>,
        by: &str,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        let at = self.turns.queue.iter().position(|queued| queued.id == prompt && !queued.by_daemon);
        let at = at.ok_or(CommandRefusal::NotQueued)?;
        let content =
            text.as_ref().and_then(|text| Some(self.turns.queue.get(at)?.content.as_ref()?.with_text(text)));
        if let (Some(text), Some(queued)) = (&text, self.turns.queue.get_mut(at)) {
            queued.text.clone_from(text);
            queued.content.clone_from(&content);
        }
        let mut order = Vec::new();
        if let Some(queued) = place.and_then(|_| self.turns.queue.remove(at)) {
            let first = self.turns.queue.iter().take_while(|queued| queued.by_daemon).count();
            let place = first.saturating_add(place.unwrap_or(0)).min(self.turns.queue.len());
            self.turns.queue.insert(place, queued);
            order = self.queue_order();
        }
        let amended = PromptAmended { prompt, text, content, place, by: by.to_owned(), order };
        out.record(Event::PromptAmended(amended));
        Ok(())
    }

    /// Returns all queued prompts in the order in which they will be sent.
    pub(super) fn queue_order(&self) -> Vec<PromptId> {
        self.turns.queue.iter().map(|queued| queued.id).collect()
    }

    pub(super) fn decide(
        &mut self,
        id: ClearanceId,
        verdict: Verdict,
        details: DecisionDetails,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.steerable()?;
        if !self.requests.clearances.contains_key(&id) {
            return Err(CommandRefusal::NotOpen);
        }
        let option = self.chosen(id, verdict, details.option)?;
        let details = DecisionDetails { option, ..details };
        if verdict == Verdict::Approve
            && let Some(open) = self.requests.clearances.get_mut(&id)
            && !open.approve(&details.by, details.option.as_ref())?
        {
            let (approvals, needed) = (open.terms.approvals.len(), open.terms.needed);
            let DecisionDetails { reason, option, by, via, .. } = details;
            let RequestSubject { action, title } = open.subject.clone();
            out.record(Event::ClearanceApproved(Box::new(ClearanceApproved {
                clearance: id,
                action,
                title,
                by,
                via,
                reason,
                option,
                approvals,
                needed,
            })));
            return Ok(());
        }
        let open = self.requests.clearances.remove(&id).ok_or(CommandRefusal::NotOpen)?;
        let reason_to_tell = details.reason.clone().filter(|_| {
            verdict == Verdict::Deny && self.agent_owns_turns() && out.watch_policy().reason_as_prompt
        });
        let by = details.by.clone();
        self.close_decided(id, open, verdict, details, out);
        if let Some(reason) = reason_to_tell {
            // Its protocol has no place for the reason. With a full queue, the reason is dropped.
            self.queue_prompt(format!("Your request was denied: {reason}").into(), by, false, out).ok();
        }
        Ok(())
    }

    /// Returns the agent's option for a decision: without a choice, the only one that fits.
    pub(super) fn chosen(
        &self,
        id: ClearanceId,
        verdict: Verdict,
        asked: Option<String>,
    ) -> Result<Option<String>, CommandRefusal> {
        let open = self.requests.clearances.get(&id).ok_or(CommandRefusal::NotOpen)?;
        if !open.choices.is_empty() {
            return open.chosen(verdict, asked);
        }
        // An ACP agent understands an approval only as one of its options. Host calls need none, because we perform
        // them.
        let is_host_call = self.host_call_awaits_decision(&open.request);
        let mute = self.agent_owns_turns() && verdict == Verdict::Approve && !is_host_call;
        if mute { Err(CommandRefusal::OptionRequired("none is offered".to_owned())) } else { Ok(asked) }
    }

    /// Records the decision of a clearance that was just removed from the table.
    pub(super) fn close_decided(
        &mut self,
        id: ClearanceId,
        open: OpenClearance,
        verdict: Verdict,
        details: DecisionDetails,
        out: &mut EffectSink<'_, '_>,
    ) {
        let status = verdict.status();
        let DecisionDetails { reason, option, by, via, ruling } = details;
        let OpenClearance { request, terms, subject: RequestSubject { action, title }, .. } = open;
        out.record(Event::ClearanceDecided(Box::new(ClearanceDecided {
            clearance: id,
            action,
            title,
            status,
            by,
            via,
            reason: reason.clone(),
            option: option.clone(),
            approvals: terms.approvals,
            ruling,
        })));
        self.tell_decision(id, request, verdict, reason, option, out);
    }

    fn tell_decision(
        &mut self,
        id: ClearanceId,
        request: RequestId,
        verdict: Verdict,
        reason: Option<String>,
        option: Option<String>,
        out: &mut EffectSink<'_, '_>,
    ) {
        self.requests.remember_decided(request.clone(), id);
        if self.host_call_decided(id, &request, verdict, reason.as_deref(), out) {
            return;
        }
        let approved = verdict == Verdict::Approve;
        self.send(
            AgentCommand::Decision { request, approved, reason, option },
            OutboundKind::Clearance(id),
            out,
        );
    }

    /// Decides expired clearances as configured, and notifies the agent.
    pub(super) fn expire(&mut self, out: &mut EffectSink<'_, '_>) {
        const REASON: &str = "expired";
        let now = out.now();
        if self.steerable().is_err() {
            return; // the agent's exit withdraws them
        }
        for id in self.requests.due(now) {
            let on_expiry =
                self.requests.clearances.get(&id).map_or(Verdict::Deny, |open| open.terms.on_expiry);
            // An approval that takes a choice between options is never given by the clock.
            let (verdict, option) = match self.chosen(id, on_expiry, None) {
                Ok(option) => (on_expiry, option),
                Err(_) => (Verdict::Deny, self.chosen(id, Verdict::Deny, None).unwrap_or_default()),
            };
            let Some(open) = self.requests.clearances.remove(&id) else { continue };
            let OpenClearance { request, subject: RequestSubject { action, title }, .. } = open;
            let status = ClearanceStatus::Expired;
            out.record(Event::ClearanceClosed(ClearanceClosed {
                clearance: id,
                action,
                title,
                status,
                decision: Some(verdict),
                reason: REASON.to_owned(),
                option: option.clone(),
            }));
            self.tell_decision(id, request, verdict, Some(REASON.to_owned()), option, out);
            self.oversight.tracker.record_sign_of_life(now); // it was waiting for us until now
        }
    }

    pub(super) fn answer(
        &mut self,
        id: QuestionId,
        decision: Answer,
        instruction: Option<String>,
        by: String,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.steerable()?;
        let request = self.requests.questions.remove(&id).ok_or(CommandRefusal::NotOpen)?;
        out.record(Event::QuestionAnswered(QuestionAnswered {
            question: id,
            decision,
            instruction: instruction.clone(),
            by,
        }));
        self.send(AgentCommand::Answer { request, decision, instruction }, OutboundKind::Question(id), out);
        Ok(())
    }

    pub(super) fn nudge(
        &mut self,
        message: String,
        by: &str,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.running()?;
        out.record(Event::Nudged(Nudged { message: message.clone(), by: by.to_owned() }));
        match (self.agent_owns_turns(), &self.turns.turn) {
            (true, None) => {
                self.failures.awaits_log_in &= by == DAEMON; // a person retries
                self.queue_prompt(message.into(), by.to_owned(), true, out)
            }
            (true, Some(_)) if !self.agent.supports_steering => {
                self.cancel_turn("a nudge".to_owned(), out);
                self.queue_prompt(message.into(), by.to_owned(), true, out)
            }
            _ => {
                self.send(AgentCommand::Nudge { message }, OutboundKind::Nudge, out);
                Ok(())
            }
        }
    }

    /// Sends a nudge that the agent did not take during the turn: instead of the turn, or after it.
    pub(super) fn not_steered(&mut self, message: String, no_turn: bool, out: &mut EffectSink<'_, '_>) {
        if self.life.stage != LifeStage::Running {
            return; // the agent is stopping or has ended
        }
        if !no_turn && self.turns.turn.is_some() {
            self.cancel_turn("a nudge".to_owned(), out);
        }
        // It runs, and our prompts are not refused for other reasons.
        self.queue_prompt(message.into(), DAEMON.to_owned(), true, out).ok();
    }

    pub(super) fn stop(
        &mut self,
        mode: StopMode,
        by: String,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        match &self.life.stage {
            LifeStage::Ended { .. } => return Err(CommandRefusal::Ended),
            // During a stop only two things are new: a kill, and that the session is not restarted.
            LifeStage::Stopping { mode: StopMode::Kill, to_restart: false, .. } => return Ok(()),
            LifeStage::Stopping { mode: StopMode::Stop, to_restart: false, .. } if mode == StopMode::Stop => {
                return Ok(());
            }
            _ => {}
        }
        out.record(Event::SessionStopping(SessionStopping {
            mode,
            by: by.clone(),
            to_restart: false,
            why: None,
        }));
        if matches!(
            self.life.stage,
            LifeStage::Created | LifeStage::Resting { .. } | LifeStage::Parked { .. }
        ) {
            let done = if mode == StopMode::Kill { "killed" } else { "stopped" };
            self.failures.exit = None; // the person is the cause now
            self.end(format!("{done} by {by}"), out); // without a process there is nothing to wait for
            return Ok(());
        }
        out.effects.push(StepEffect::Stop { mode });
        self.life.stage = LifeStage::Stopping { mode, by, to_restart: false, why: None };
        Ok(())
    }

    /// Records that a message has arrived, or never will.
    pub(super) fn settle(&mut self, n: u64, cause: Option<&str>, out: &mut EffectSink<'_, '_>) {
        // A number may be settled twice, by an acknowledgement and by the exit; the first one counts.
        let Some(kind) = self.outbox.in_flight.remove(&n) else { return };
        if cause.is_none() {
            self.oversight.tracker.record_delivery(out.now());
        }
        match kind {
            OutboundKind::Clearance(id) => {
                out.record(match cause {
                    None => Event::ClearanceDelivered(ClearanceDelivered { clearance: id }),
                    Some(cause) => Event::ClearanceUndelivered(ClearanceUndelivered {
                        clearance: id,
                        cause: cause.to_owned(),
                    }),
                });
            }
            OutboundKind::Question(id) => {
                out.record(match cause {
                    None => Event::QuestionDelivered(QuestionDelivered { question: id }),
                    Some(cause) => Event::QuestionUndelivered(QuestionUndelivered {
                        question: id,
                        cause: cause.to_owned(),
                    }),
                });
            }
            OutboundKind::Prompt(id) => {
                out.record(match cause {
                    None => Event::PromptDelivered(PromptDelivered { prompt: id }),
                    Some(cause) => {
                        Event::PromptUndelivered(PromptUndelivered { prompt: id, cause: cause.to_owned() })
                    }
                });
            }
            // Deliveries of nudges are the normal case and not recorded.
            OutboundKind::Nudge => {
                if let Some(cause) = cause {
                    out.record(Event::NudgeUndelivered(MessageUndelivered { cause: cause.to_owned() }));
                }
            }
            OutboundKind::Interrupt => {
                if let Some(cause) = cause {
                    out.record(Event::InterruptUndelivered(MessageUndelivered { cause: cause.to_owned() }));
                    // The agent may exit because of the interrupt before its acknowledgement was read.
                    if !self.is_ended() {
                        self.interrupt_undelivered();
                    }
                }
            }
            OutboundKind::Other => {}
        }
        self.flush_prompts(out);
    }
}
