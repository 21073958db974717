//! What operators want.

use super::watch::BY;
use super::{
    Carries, Effect, Input, MAX_IN_FLIGHT, Out, Queued, Refused, Stage, State, Subject, Terms, Words,
};
use crate::domain::event::{
    ClearanceApproved, ClearanceClosed, ClearanceDecided, ClearanceDelivered, ClearanceUndelivered,
    MessageUndelivered, Nudged, PromptAmended, PromptDelivered, PromptQueued, PromptSending,
    PromptUndelivered, PromptWithdrawn, QuestionAnswered, QuestionDelivered, QuestionUndelivered,
    SessionStopping,
};
use crate::domain::{
    Answer, Choice, ClearanceId, ClearanceStatus, Event, Outbound, PromptId, QuestionId, RequestId, StopMode,
    Verdict, Wording, agent,
};

/// How many decisions are remembered for what the agent may say about them later.
const MAX_DECIDED: usize = 256;

impl State {
    /// Whatever a person does begins the ladder anew.
    pub(super) fn operator(&mut self, input: Input, out: &mut Out<'_, '_>) -> Result<(), Refused> {
        let by = match input {
            Input::Prompt { id, wording, by } => {
                self.put_as(id, wording, by.clone(), false, out)?;
                self.watch.unlimited();
                by
            }
            Input::TakeBack { prompt, by } => return self.take_back(prompt, &by, out),
            Input::Amend { prompt, text, place, by } => return self.amend(prompt, text, place, &by, out),
            Input::Decide { clearance, verdict, reason, option, by, via } => {
                let words = Words { reason, option, by: by.clone(), via, ruling: None };
                self.decide(clearance, verdict, words, out)?;
                by
            }
            Input::Answer { question, answer, instruction, by } => {
                self.answer(question, answer, instruction, by.clone(), out)?;
                by
            }
            Input::Nudge { message, by } => {
                self.nudge(message, &by, out)?;
                by
            }
            Input::Interrupt { reason, by } => {
                self.interrupt(reason, &by, out)?;
                by
            }
            Input::List { by: _ } => return self.list(out),
            Input::Set { set, by } => {
                self.set(set, &by, out)?;
                by
            }
            Input::Snooze { until, by } => return self.snooze(until, &by, out),
            Input::Ladder { choice, by } => return self.choose_ladder(choice, &by, out),
            Input::Preset { preset, widens, by } => return self.choose_preset(preset, widens, &by, out),
            Input::Stop { how, by } => return self.stop(how, by, out),
            Input::Seen { at, by } => {
                self.seen(at, &by, out);
                return Ok(());
            }
            // The others are not of operators.
            _ => return Ok(()),
        };
        self.acted(&by, out);
        Ok(())
    }

    pub(super) fn prompt(
        &mut self,
        wording: Wording,
        by: String,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        self.put(wording, by, false, out)
    }

    /// `ours` is not of a person: it begins no clock anew.
    pub(super) fn put(
        &mut self,
        wording: Wording,
        by: String,
        ours: bool,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        self.put_as(None, wording, by, ours, out)
    }

    /// Under an id that whoever asks has made; it is new.
    fn put_as(
        &mut self,
        id: Option<PromptId>,
        wording: Wording,
        by: String,
        ours: bool,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        self.steerable()?;
        if self.queue.len() >= self.about.max_queued_prompts && by != BY {
            return Err(Refused::QueueFull(self.queue.len()));
        }
        let id = id.unwrap_or_else(|| PromptId::from_seed(out.seed()));
        let Wording { text, content } = wording;
        if !ours {
            self.try_again(&text, &by, out);
        }
        if !ours && self.told.first_prompt.is_none() {
            self.told.first_prompt = agent::first_line(&text);
        }
        out.record(Event::PromptQueued(PromptQueued {
            prompt: id,
            text: text.clone(),
            content: content.clone(),
            by,
        }));
        let queued = Queued { id, text, content, ours };
        if ours {
            // Before what people ask next, and after what was said before.
            let at = self.queue.iter().take_while(|queued| queued.ours).count();
            self.queue.insert(at, queued);
        } else {
            self.queue.push_back(queued);
        }
        if self.stage == Stage::Created {
            self.begin(out);
        }
        self.flush_prompts(out);
        Ok(())
    }

    /// Prompts leave at once and in order, as long as the agent takes what we send.
    pub(super) fn flush_prompts(&mut self, out: &mut Out<'_, '_>) {
        while self.stage == Stage::Running
            && !self.about.prompts_on_heartbeat
            && !self.holds_prompts()
            && self.in_flight.len() < MAX_IN_FLIGHT
            && !self.queue.is_empty()
            && self.may_spend(out)
        {
            self.send_queued_prompt(out);
        }
    }

    pub(super) fn send_queued_prompt(&mut self, out: &mut Out<'_, '_>) {
        let Some(queued) = self.queue.pop_front() else { return };
        self.failures.sends(&queued);
        let Queued { id, text, content, ours } = queued;
        if !ours {
            self.watch.heard(out.now());
        }
        // What we say in between is not what it was asked.
        if !ours || self.unfinished.is_none() {
            self.unfinished = Some(id);
        }
        self.begin_turn("prompt", out);
        let turn = self.turn.as_ref().map(|turn| turn.id);
        out.record(Event::PromptSending(PromptSending { prompt: id, turn }));
        let wording = Wording { text, content };
        self.send(Outbound::Prompt { wording, turn }, Carries::Prompt(id), out);
    }

    pub(super) fn take_back(
        &mut self,
        prompt: PromptId,
        by: &str,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        let at = self.queue.iter().position(|queued| queued.id == prompt).ok_or(Refused::NotQueued)?;
        self.queue.remove(at);
        out.record(Event::PromptWithdrawn(PromptWithdrawn { prompt, by: by.to_owned() }));
        Ok(())
    }

    /// What we say ourselves stays in front of what people ask.
    fn amend(
        &mut self,
        prompt: PromptId,
        text: Option<String>,
        place: Option<usize>,
        by: &str,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        let at = self.queue.iter().position(|queued| queued.id == prompt && !queued.ours);
        let at = at.ok_or(Refused::NotQueued)?;
        let content =
            text.as_ref().and_then(|text| Some(self.queue.get(at)?.content.as_ref()?.reworded(text)));
        if let (Some(text), Some(queued)) = (&text, self.queue.get_mut(at)) {
            queued.text.clone_from(text);
            queued.content.clone_from(&content);
        }
        let mut order = Vec::new();
        if let Some(queued) = place.and_then(|_| self.queue.remove(at)) {
            let first = self.queue.iter().take_while(|queued| queued.ours).count();
            let place = first.saturating_add(place.unwrap_or(0)).min(self.queue.len());
            self.queue.insert(place, queued);
            order = self.queue_order();
        }
        let amended = PromptAmended { prompt, text, content, place, by: by.to_owned(), order };
        out.record(Event::PromptAmended(amended));
        Ok(())
    }

    /// All that wait, in the order in which they leave.
    pub(super) fn queue_order(&self) -> Vec<PromptId> {
        self.queue.iter().map(|queued| queued.id).collect()
    }

    pub(super) fn decide(
        &mut self,
        id: ClearanceId,
        verdict: Verdict,
        words: Words,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        self.steerable()?;
        if !self.clearances.contains_key(&id) {
            return Err(Refused::NotOpen);
        }
        let option = self.chosen(id, verdict, words.option)?;
        let words = Words { option, ..words };
        if let Some(terms) = self.terms.get_mut(&id).filter(|_| verdict == Verdict::Approve) {
            if terms.approvals.contains(&words.by) {
                return Err(Refused::Approved(terms.needed));
            }
            if let Some(before) = terms.option.as_ref().filter(|_| terms.option != words.option) {
                return Err(Refused::OtherOption(before.clone()));
            }
            terms.option.clone_from(&words.option);
            terms.approvals.push(words.by.clone());
            if terms.approvals.len() < terms.needed as usize {
                let (approvals, needed) = (terms.approvals.len(), terms.needed);
                let Words { reason, option, by, via, .. } = words;
                let Subject { action, title } = self.subjects.get(&id).cloned().unwrap_or_default();
                out.record(Event::ClearanceApproved(ClearanceApproved {
                    clearance: id,
                    action,
                    title,
                    by,
                    via,
                    reason,
                    option,
                    approvals,
                    needed,
                }));
                return Ok(());
            }
        }
        let (request, terms) = self.take_open(id).ok_or(Refused::NotOpen)?;
        let told = words
            .reason
            .clone()
            .filter(|_| verdict == Verdict::Deny && self.about.strict && out.vigil().reason_as_prompt);
        let by = words.by.clone();
        self.close_decided(id, request, &terms.approvals, verdict, words, out);
        if let Some(reason) = told {
            // Its protocol has no place for it. With a full queue, it has enough to do.
            self.put(format!("What you asked for was denied: {reason}").into(), by, false, out).ok();
        }
        Ok(())
    }

    /// The agent's own option that a decision comes to: without a choice, the only one that fits.
    pub(super) fn chosen(
        &self,
        id: ClearanceId,
        verdict: Verdict,
        asked: Option<String>,
    ) -> Result<Option<String>, Refused> {
        let Some(choices) = self.choices.get(&id) else {
            // Without an option there is no word for yes; what we do ourselves takes none.
            let ours = self.clearances.get(&id).is_some_and(|request| self.errand_waits(request));
            let mute = self.about.strict && verdict == Verdict::Approve && !ours;
            return if mute { Err(Refused::OptionRequired("none is offered".to_owned())) } else { Ok(asked) };
        };
        let of = |kind: &str| choices.iter().filter(|choice| choice.kind == kind).collect::<Vec<_>>();
        let fits = |choice: &Choice| match verdict {
            Verdict::Approve => !choice.kind.starts_with("reject"),
            Verdict::Deny => !choice.kind.starts_with("allow"),
        };
        let fitting = || {
            let ids = choices.iter().filter(|choice| fits(choice)).map(|choice| choice.id.as_str());
            ids.collect::<Vec<_>>().join(", ")
        };
        match (asked, verdict) {
            (Some(asked), _) if choices.iter().any(|choice| choice.id == asked && fits(choice)) => {
                Ok(Some(asked))
            }
            (Some(_), _) => Err(Refused::OptionRequired(fitting())),
            (None, Verdict::Approve) => match of("allow_once").as_slice() {
                [only] => Ok(Some(only.id.clone())),
                _ => Err(Refused::OptionRequired(fitting())),
            },
            (None, Verdict::Deny) => {
                let rejections = of("reject_once").into_iter().chain(of("reject_always"));
                Ok(rejections.map(|choice| choice.id.clone()).next())
            }
        }
    }

    /// It is not open any more.
    pub(super) fn take_open(&mut self, id: ClearanceId) -> Option<(RequestId, Terms)> {
        let request = self.clearances.remove(&id)?;
        self.choices.remove(&id);
        Some((request, self.terms.remove(&id).unwrap_or_default()))
    }

    pub(super) fn close_decided(
        &mut self,
        id: ClearanceId,
        request: RequestId,
        approvals: &[String],
        verdict: Verdict,
        words: Words,
        out: &mut Out<'_, '_>,
    ) {
        let status = verdict.status();
        let Words { reason, option, by, via, ruling } = words;
        let Subject { action, title } = self.subjects.remove(&id).unwrap_or_default();
        out.record(Event::ClearanceDecided(ClearanceDecided {
            clearance: id,
            action,
            title,
            status,
            by,
            via,
            reason: reason.clone(),
            option: option.clone(),
            approvals: approvals.to_vec(),
            ruling,
        }));
        self.tell_decision(id, request, verdict, reason, option, out);
    }

    fn tell_decision(
        &mut self,
        id: ClearanceId,
        request: RequestId,
        verdict: Verdict,
        reason: Option<String>,
        option: Option<String>,
        out: &mut Out<'_, '_>,
    ) {
        if self.decided.len() >= MAX_DECIDED {
            self.decided.pop_front();
        }
        self.decided.push_back((request.clone(), id));
        if self.errand_decided(id, &request, verdict, reason.as_deref(), out) {
            return;
        }
        let approved = verdict == Verdict::Approve;
        self.send(Outbound::Decision { request, approved, reason, option }, Carries::Clearance(id), out);
    }

    /// What has waited long enough is decided as configured, and the agent is told that it was the clock.
    pub(super) fn expire(&mut self, out: &mut Out<'_, '_>) {
        const REASON: &str = "expired";
        let now = out.now();
        if self.steerable().is_err() {
            return; // its end withdraws them
        }
        let due: Vec<ClearanceId> = self
            .terms
            .iter()
            .filter(|(_, terms)| terms.expires_at.is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let on_expiry = self.terms.get(&id).map_or(Verdict::Deny, |terms| terms.on_expiry);
            // What cannot be approved without a choice is not approved by the clock.
            let (verdict, option) = match self.chosen(id, on_expiry, None) {
                Ok(option) => (on_expiry, option),
                Err(_) => (Verdict::Deny, self.chosen(id, Verdict::Deny, None).unwrap_or_default()),
            };
            let Some((request, _)) = self.take_open(id) else { continue };
            let status = ClearanceStatus::Expired;
            let Subject { action, title } = self.subjects.remove(&id).unwrap_or_default();
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
            self.watch.heard(now); // it was not its turn to speak until now
        }
    }

    pub(super) fn answer(
        &mut self,
        id: QuestionId,
        decision: Answer,
        instruction: Option<String>,
        by: String,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        self.steerable()?;
        let request = self.questions.remove(&id).ok_or(Refused::NotOpen)?;
        out.record(Event::QuestionAnswered(QuestionAnswered {
            question: id,
            decision,
            instruction: instruction.clone(),
            by,
        }));
        self.send(Outbound::Answer { request, decision, instruction }, Carries::Question(id), out);
        Ok(())
    }

    pub(super) fn nudge(&mut self, message: String, by: &str, out: &mut Out<'_, '_>) -> Result<(), Refused> {
        self.running()?;
        out.record(Event::Nudged(Nudged { message: message.clone(), by: by.to_owned() }));
        match (self.about.strict, &self.turn) {
            (true, None) => {
                self.failures.awaits_log_in &= by == BY; // a person tries again
                self.put(message.into(), by.to_owned(), true, out)
            }
            (true, Some(_)) if !self.steers => {
                self.cancel_turn("a nudge".to_owned(), out);
                self.put(message.into(), by.to_owned(), true, out)
            }
            _ => {
                self.send(Outbound::Nudge { message }, Carries::Nudge, out);
                Ok(())
            }
        }
    }

    /// A nudge that could not be told in the turn is told instead of it, or after it.
    pub(super) fn not_steered(&mut self, message: String, no_turn: bool, out: &mut Out<'_, '_>) {
        if self.stage != Stage::Running {
            return; // its end has come first
        }
        if !no_turn && self.turn.is_some() {
            self.cancel_turn("a nudge".to_owned(), out);
        }
        self.put(message.into(), BY.to_owned(), true, out).ok(); // it runs, and nothing else refuses what is ours
    }

    pub(super) fn stop(&mut self, how: StopMode, by: String, out: &mut Out<'_, '_>) -> Result<(), Refused> {
        match &self.stage {
            Stage::Ended { .. } => return Err(Refused::Ended),
            // Once on its way, only a kill is news, and that it is not to come back.
            Stage::Stopping { how: StopMode::Kill, again: false, .. } => return Ok(()),
            Stage::Stopping { how: StopMode::Stop, again: false, .. } if how == StopMode::Stop => {
                return Ok(());
            }
            _ => {}
        }
        out.record(Event::SessionStopping(SessionStopping { how, by: by.clone(), again: false, why: None }));
        if matches!(self.stage, Stage::Created | Stage::Resting { .. } | Stage::Parked { .. }) {
            let how = if how == StopMode::Kill { "killed" } else { "stopped" };
            self.failures.exit = None; // it is their doing now
            self.end(format!("{how} by {by}"), out); // there is no process
            return Ok(());
        }
        out.effects.push(Effect::Stop { how });
        self.stage = Stage::Stopping { how, by, again: false, why: None };
        Ok(())
    }

    /// An outgoing message has arrived, or never will.
    pub(super) fn settle(&mut self, n: u64, cause: Option<&str>, out: &mut Out<'_, '_>) {
        // An unknown number is one that was settled before: once is enough.
        let Some(carries) = self.in_flight.remove(&n) else { return };
        if cause.is_none() {
            self.watch.told(out.now());
        }
        match carries {
            Carries::Clearance(id) => {
                out.record(match cause {
                    None => Event::ClearanceDelivered(ClearanceDelivered { clearance: id }),
                    Some(cause) => Event::ClearanceUndelivered(ClearanceUndelivered {
                        clearance: id,
                        cause: cause.to_owned(),
                    }),
                });
            }
            Carries::Question(id) => {
                out.record(match cause {
                    None => Event::QuestionDelivered(QuestionDelivered { question: id }),
                    Some(cause) => Event::QuestionUndelivered(QuestionUndelivered {
                        question: id,
                        cause: cause.to_owned(),
                    }),
                });
            }
            Carries::Prompt(id) => {
                out.record(match cause {
                    None => Event::PromptDelivered(PromptDelivered { prompt: id }),
                    Some(cause) => {
                        Event::PromptUndelivered(PromptUndelivered { prompt: id, cause: cause.to_owned() })
                    }
                });
            }
            // That they arrive is what everybody expects.
            Carries::Nudge => {
                if let Some(cause) = cause {
                    out.record(Event::NudgeUndelivered(MessageUndelivered { cause: cause.to_owned() }));
                }
            }
            Carries::Interrupt => {
                if let Some(cause) = cause {
                    out.record(Event::InterruptUndelivered(MessageUndelivered { cause: cause.to_owned() }));
                    // An agent may exit because of an interrupt before anybody hears that it has it.
                    if !self.is_ended() {
                        self.interrupt_undelivered();
                    }
                }
            }
            Carries::Other => {}
        }
        self.flush_prompts(out);
    }
}
