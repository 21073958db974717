//! Inputs from the agent.

use super::interrupt::CANCELLED;
use super::{
    DecisionDetails, DecisionTerms, EffectSink, LifeStage, OpenClearance, OutboundKind, RequestAssessment,
    RequestSubject, SessionState, TurnModel,
};
use crate::session::host_call::{HostCallAssessment, HostCallError};
use intercom_policy as policy;
use intercom_types::event::{
    AgentRequest, ClearanceOutcome, ClearanceRequested, LineRejected, QuestionAsked, RawMessage,
    SessionUnenforced, SettingAccepted, SettingRefused, UnknownMessage,
};
use intercom_types::text::short;
use intercom_types::{
    AgentCommand, AgentMessage, ClearanceId, ClearanceRequest, Event, EventKind, FaultCode,
    HeartbeatProgress, Json, LineExcerpt, LineRejection, Outcome, QuestionId, RequestFault, RequestId, Risk,
    Ruling, ToolCallState, VIA_POLICY, Verdict,
};

pub(super) fn unknown(message: Json) -> Event {
    Event::UnknownMessage(UnknownMessage { message, why: None })
}

/// Returns the event for an agent's answer to a request for its sessions. An error is recorded as it is, because it
/// answers no setting.
fn session_list(result: Json, ok: bool) -> Event {
    if ok {
        Event::AgentSessions(RawMessage(result))
    } else {
        Event::Other { kind: EventKind::SettingRefused.as_str().into(), data: result }
    }
}

/// Returns true if a message is work: banners and noise are not, the first usable message is.
fn is_work(message: &AgentMessage) -> bool {
    !matches!(
        message,
        AgentMessage::Rejected { .. }
            | AgentMessage::Unknown { .. }
            | AgentMessage::Echo(_)
            | AgentMessage::DriverText { .. }
            | AgentMessage::Ready { .. }
            | AgentMessage::LogInNeeded { .. }
            | AgentMessage::Title(_)
            | AgentMessage::Controls(_)
            | AgentMessage::Steps(_)
    )
}

impl SessionState {
    /// Handles a request for a clearance, with its assessment.
    pub(super) fn clearance_requested(
        &mut self,
        ask: ClearanceRequest,
        assessed: RequestAssessment,
        out: &mut EffectSink<'_, '_>,
    ) {
        self.heard_from(out);
        self.open_clearance(ask, assessed, out);
    }

    pub(super) fn heard_from(&mut self, out: &mut EffectSink<'_, '_>) {
        self.not_quiet(None, out);
        self.alive("output", out);
        self.oversight.mut_unchanged().tracker.unlimited();
        self.failures.mut_unchanged().unserved = None;
        self.speaks(out);
    }

    fn speaks(&mut self, out: &mut EffectSink<'_, '_>) {
        if !self.turns.has_spoken {
            self.turns.has_spoken = true;
            if !self.agent_owns_turns() {
                self.begin_turn("agent", out);
            }
        }
    }

    /// Records the end of a turn that does not run any more; nothing ends. Returns true if it was one.
    fn is_late_end(&mut self, message: &AgentMessage, out: &mut EffectSink<'_, '_>) -> bool {
        let AgentMessage::TurnEnd { turn, message, .. } = message else { return false };
        if !self.takes_late_end(*turn) {
            return false;
        }
        self.alive("output", out);
        out.record(unknown(message.clone()));
        true
    }

    fn note_activity(&mut self, message: &AgentMessage, out: &mut EffectSink<'_, '_>) {
        match message {
            AgentMessage::Heartbeat { fingerprint, .. } => self.beats(*fingerprint, out),
            // This confirms a cancelled turn and does not show that the agent works.
            AgentMessage::TurnEnd { .. } if self.turns.cancel_deadline.is_some() => {}
            AgentMessage::Echo(_) => {}
            _ => self.alive("output", out),
        }
        if is_work(message) {
            self.speaks(out);
        }
    }

    pub(super) fn agent_message(&mut self, message: AgentMessage, out: &mut EffectSink<'_, '_>) {
        self.not_quiet(Some(&message), out);
        if self.is_late_end(&message, out) {
            return;
        }
        self.note_activity(&message, out);
        match message {
            AgentMessage::Status { params } => out.record(Event::Status(RawMessage(params))),
            AgentMessage::Heartbeat { params, progress, fingerprint: _, steps } => {
                out.record(Event::Heartbeat(RawMessage(params)));
                self.steps(steps);
                if progress == HeartbeatProgress::Completed {
                    self.complete_turn(out);
                }
                self.prompt_with_heartbeat(out);
            }
            AgentMessage::Steps(steps) => self.steps(steps),
            AgentMessage::Title(title) => self.title(title),
            AgentMessage::Controls(controls) => self.controls(*controls),
            AgentMessage::SettingAccepted { set, result } => {
                out.record(Event::SettingAccepted(SettingAccepted { set, result }));
            }
            AgentMessage::SettingRefused { set, reason, error } => {
                out.record(Event::SettingRefused(SettingRefused { set, reason, error }));
            }
            AgentMessage::Cost { micros, currency } => self.cost(micros, currency.as_deref(), out),
            AgentMessage::Echo(event) => out.record(*event),
            AgentMessage::Update { params } => out.record(Event::Update(RawMessage(params))),
            AgentMessage::DriverText { text } => {
                self.send(AgentCommand::Text(text), OutboundKind::Other, out);
            }
            AgentMessage::Ready {
                supports_steering,
                supports_session_list,
                resumed,
                prompt_capabilities,
                info,
            } => {
                self.agent.supports_session_list = supports_session_list;
                self.agent.info.takes = Some(prompt_capabilities);
                if !resumed {
                    self.agent.info.spent.reset_process_cost();
                }
                self.ready(supports_steering, Some(info), !resumed, out);
            }
            AgentMessage::SessionList { result, ok } => out.record(session_list(result, ok)),
            AgentMessage::LogInNeeded { reason, words, how, untouched } => {
                self.failures.wants_log_in(&reason, &words, how);
                self.failures.untouched = untouched;
            }
            AgentMessage::Unusable { reason } => self.unusable(reason, out),
            AgentMessage::Withdrawn { request, message } => self.withdrawn(request, message, out),
            AgentMessage::SteeringRefused { message, no_turn } => self.not_steered(message, no_turn, out),
            AgentMessage::Limited { kind, resets, params } => self.limited(kind, resets, params, out),
            AgentMessage::Clearance(ask) => self.open_clearance(*ask, RequestAssessment::default(), out),
            // Without an assessment it must not be performed.
            AgentMessage::HostCall(call) => {
                let refused = HostCallAssessment::Refused(HostCallError::failed("its agent has ended"));
                self.request_host_call(*call, refused, out);
            }
            AgentMessage::Question { request, text, sort, params, line } => {
                if self.is_open(&request) {
                    return self.duplicate(request, line, "prompt/forward", out);
                }
                self.oversight.mut_unchanged().tracker.unlimited();
                self.open_question(request, text, sort, params, out);
            }
            AgentMessage::Tool { changes_something: acts, call, params } => {
                self.failures.mut_unchanged().unserved = None;
                self.oversight.mut_unchanged().tracker.unlimited();
                if let Some(ToolCallState { id, title, open }) = call {
                    self.oversight.tracker.tool(&id, &title, open, out.now());
                }
                self.tool(acts, params, out);
            }
            AgentMessage::Outcome { request, outcome, params } => {
                self.outcome(&request, outcome, params, out);
            }
            // Without a turn nothing ends, but the message is recorded.
            AgentMessage::TurnEnd { message, .. } if self.turns.turn.is_none() => {
                out.record(unknown(message));
            }
            AgentMessage::TurnEnd { stop_reason, tokens, params, failed, .. } => {
                self.agent.info.spent.add_turn(tokens);
                self.agent_ends_turn(&stop_reason, params, failed, out);
            }
            AgentMessage::Unknown { message, fault } => {
                out.record(unknown(message));
                self.fault(fault, out);
            }
            AgentMessage::Rejected { rejection, fault } => {
                self.failures.mut_unchanged().rejected(&rejection.excerpt);
                out.record(Event::LineRejected(LineRejected(rejection)));
                self.fault(fault, out);
            }
        }
    }

    fn fault(&mut self, fault: Option<RequestFault>, out: &mut EffectSink<'_, '_>) {
        if let Some(fault) = fault {
            self.send(AgentCommand::Fault(fault), OutboundKind::Other, out);
        }
    }

    /// Warns once that policy cannot be enforced, if an agent acts and never asks.
    fn tool(&mut self, acts: bool, params: Json, out: &mut EffectSink<'_, '_>) {
        if acts && !self.requests.has_asked && self.requests.unenforced.is_none() {
            let why = self.unenforced_because(out.watch_policy().asking_advice.as_deref());
            let event = SessionUnenforced { tool: params.clone(), why: Some(why.clone()) };
            out.record(Event::SessionUnenforced(event));
            self.requests.unenforced = Some(why);
        }
        out.record(Event::Update(RawMessage(params)));
    }

    /// Returns the warning, with advice that makes this agent ask.
    fn unenforced_because(&self, asking_advice: Option<&str>) -> String {
        let name = self.spec.name.clone().unwrap_or_else(|| short(&self.spec.id.to_string()));
        let advice = match (self.agent.info.controls.asking_mode(), asking_advice) {
            (Some(mode), _) => format!("to be asked, run `intercom mode {name} {mode}`"),
            (None, Some(advice)) => advice.to_owned(),
            (None, None) if self.agent_owns_turns() => {
                "to be asked, set the agent up to ask before it acts, as its documentation says".to_owned()
            }
            (None, None) => "to be asked, have the agent send `clearance/request` before it acts".to_owned(),
        };
        format!("the agent acts and has never asked for a clearance; {advice}")
    }

    fn outcome(&mut self, request: &RequestId, outcome: String, params: Json, out: &mut EffectSink<'_, '_>) {
        let clearance = self.requests.decided_as(request);
        out.record(Event::ClearanceOutcome(ClearanceOutcome { clearance, outcome, params }));
    }

    pub(super) fn open_clearance(
        &mut self,
        mut ask: ClearanceRequest,
        assessed: RequestAssessment,
        out: &mut EffectSink<'_, '_>,
    ) {
        if self.is_open(&ask.request) {
            return self.duplicate(ask.request, ask.line, "clearance/request", out);
        }
        name_files_of_diff(&mut ask);
        let id = ClearanceId::from_seed(out.seed());
        let RequestAssessment { risk, computed, why, ruling, needed, limit, forbidden_by } = assessed;
        let claimed = if ask.claims_risk { Risk::of_claim(ask.claimed_risk.as_deref()) } else { Risk::Low };
        let risk = risk.max(claimed).max(computed);
        let expires_at = limit.map(|(limit, _)| out.now().plus(limit));
        let on_expiry = limit.map_or(Verdict::Deny, |(_, verdict)| verdict);
        let subject = RequestSubject::of(&ask);
        let terms = DecisionTerms { needed, expires_at, on_expiry, forbidden_by, ..DecisionTerms::default() };
        out.record(Event::ClearanceRequested(Box::new(ClearanceRequested {
            clearance: id,
            action: subject.action.clone(),
            title: ask.title,
            description: ask.description,
            diff: ask.diff,
            file_path: ask.file_path,
            more_paths: ask.more_paths,
            tool: ask.tool,
            command: ask.command,
            risk,
            claimed_risk: ask.claimed_risk,
            computed_risk: Some(computed),
            risk_why: why,
            ruling: ruling.clone(),
            needed,
            expires_at,
            options: ask.options.clone(),
            request: AgentRequest { id: ask.request.clone(), params: ask.params },
            generation: Some(self.life.generation),
        })));
        let (request, choices) = (ask.request, ask.options);
        self.requests.insert(id, OpenClearance { request, terms, choices, subject });
        if self.withdraws() {
            self.cancel_open(CANCELLED, out); // not even policy approves a request of a cancelled turn
        } else if let Some(ruling) = ruling {
            self.rule(id, ruling, false, out);
        }
    }

    /// Applies a policy that has changed since this clearance was requested. A clearance that was decided or withdrawn
    /// meanwhile stays as it is.
    pub(super) fn ruled(&mut self, id: ClearanceId, ruling: Ruling, out: &mut EffectSink<'_, '_>) {
        if self.steerable().is_ok() && self.requests.clearances.contains_key(&id) {
            self.rule(id, ruling, true, out);
            self.oversight.tracker.record_sign_of_life(out.now()); // it was waiting for us until now
        }
    }

    /// Closes a clearance by a ruling of policy, which needs no person and no second approval. A `new` ruling differs
    /// from the one that was recorded with the request.
    fn rule(&mut self, id: ClearanceId, ruling: Ruling, new: bool, out: &mut EffectSink<'_, '_>) {
        let verdict = match ruling.outcome {
            Outcome::Allow => Verdict::Approve,
            Outcome::Deny => Verdict::Deny,
            Outcome::Ask => return,
        };
        let by = ruling.rule.clone().unwrap_or_else(|| "policy".to_owned());
        // A request with options of the agent's own may have no option that fits; then only people can answer.
        let Ok(option) = self.chosen(id, verdict, None) else { return };
        let (reason, via) = (Some(ruling.why.clone()), VIA_POLICY.to_owned());
        let details = DecisionDetails { reason, option, by, via, ruling: new.then_some(ruling) };
        if let Some(open) = self.requests.clearances.remove(&id) {
            self.close_decided(id, open, verdict, details, out);
        }
    }

    /// Handles a request that the agent has withdrawn.
    fn withdrawn(&mut self, request: RequestId, message: Json, out: &mut EffectSink<'_, '_>) {
        const WHY: &str = "the agent withdrew it";
        if self.withdraw_host_call(&request, out) {
            return;
        }
        let (clearance, question) =
            (self.requests.clearance_of(&request), self.requests.question_of(&request));
        if clearance.is_none() && question.is_none() {
            return out.record(unknown(message));
        }
        if let Some(id) = clearance {
            self.close_clearance(id, WHY, out);
        }
        if let Some(id) = question {
            self.close_question(id, WHY, out);
        }
        self.fault(
            Some(RequestFault { request, code: FaultCode::Cancelled, message: "withdrawn".to_owned() }),
            out,
        );
    }

    fn open_question(
        &mut self,
        request: RequestId,
        text: String,
        sort: Option<String>,
        params: Json,
        out: &mut EffectSink<'_, '_>,
    ) {
        let id = QuestionId::from_seed(out.seed());
        out.record(Event::QuestionAsked(QuestionAsked {
            question: id,
            text,
            r#type: sort,
            request: AgentRequest { id: request.clone(), params },
            generation: Some(self.life.generation),
        }));
        self.requests.questions.insert(id, request);
        if self.withdraws() {
            self.cancel_open(CANCELLED, out);
        }
    }

    pub(super) fn is_open(&self, request: &RequestId) -> bool {
        self.requests.open().any(|open| open == request) || self.host_calls.does(request)
    }

    pub(super) fn duplicate(
        &mut self,
        request: RequestId,
        line: LineExcerpt,
        method: &str,
        out: &mut EffectSink<'_, '_>,
    ) {
        let reason = format!("a request with id {request} is open already");
        let rejection = LineRejection {
            reason: reason.clone(),
            excerpt: line.excerpt,
            bytes: line.bytes,
            method: Some(method.to_owned()),
            field: Some("id".to_owned()),
        };
        out.record(Event::LineRejected(LineRejected(rejection)));
        self.fault(Some(RequestFault { request, code: FaultCode::DuplicateId, message: reason }), out);
    }

    /// Sends one prompt with each heartbeat, if `prompt_delivery = "heartbeat"`.
    fn prompt_with_heartbeat(&mut self, out: &mut EffectSink<'_, '_>) {
        if self.spec.turn_model == TurnModel::OnHeartbeat
            && self.life.stage == LifeStage::Running
            && !self.holds_prompts()
        {
            self.send_queued_prompt(out);
        }
    }
}

/// The maximum number of files of a diff that are shown beside the one that the agent names.
const MAX_DIFF_FILES: usize = 20;

/// Adds the files in a diff to the request: the file that the agent names may be another one.
fn name_files_of_diff(ask: &mut ClearanceRequest) {
    let names = ask.diff.as_deref().map(policy::files_in_diff).unwrap_or_default();
    // Agents that name the file elsewhere write `--- a` and `+++ b`.
    let is_placeholder = |name: &String| ["a", "b"].contains(&name.as_str());
    for name in names.into_iter().filter(|name| !is_placeholder(name)).take(MAX_DIFF_FILES) {
        let is_same = |known: &String| {
            *known == name || known.ends_with(&format!("/{name}")) || name.ends_with(&format!("/{known}"))
        };
        if !ask.file_path.iter().chain(&ask.more_paths).any(is_same) {
            ask.more_paths.push(name);
        }
    }
}
