//! Host calls of the agent, from the request to its answer.
//!
//! ```text
//!  call ──► refused                                                an error
//!    │  └──► a clearance ──► denied, expired, withdrawn ──────────► an error
//!    ▼            │ approved                                           ▲ it failed
//!  running ◄──────┘          StepEffect::Do ──► performed ──► done ──► recorded and answered
//! ```
//! Running calls are part of the snapshot: if a daemon is killed in the middle, the next one finishes them.

use intercom_types::event::{
    ClearanceUndelivered, FileRead, FileWritten, HostCallFailed, TerminalEnded, TerminalKilled,
    TerminalOutput, TerminalReleased, TerminalStarted,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{EffectSink, OutboundKind, SessionState, StepEffect};
use crate::session::host_call::{
    HostCallAssessment, HostCallError, HostCallJob, HostCallResult, TerminalRun,
};
use intercom_types::{
    AgentCommand, ClearanceId, Delivery, Event, Exit, FaultCode, HostCall, HostCallReply, Json, RequestFault,
    RequestId, TerminalOperation, Verdict,
};

/// The maximum number of running calls. At the limit nothing is read from the agent; they end without a person.
const MAX_DOING: usize = 64;
/// The maximum number of terminals; a further request is refused.
const MAX_TERMINALS: usize = 32;
/// The maximum number of requests that wait for one terminal; further ones are refused.
const MAX_WAITING: usize = 4;
/// The maximum size of all writes that wait for people; further ones are refused. They are part of every snapshot.
const MAX_HELD_BYTES: usize = 32 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostCalls {
    open: Vec<OpenHostCall>,
    terminals: Vec<AgentTerminal>,
    /// The number of terminals so far.
    counted: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenHostCall {
    request: RequestId,
    method: String,
    job: HostCallJob,
    clearance: Option<ClearanceId>,
    /// True if nobody has to decide, or not any more.
    doing: bool,
}

impl OpenHostCall {
    fn waits_for(&self, terminal: &str) -> bool {
        matches!(&self.job, HostCallJob::Terminal { terminal: on, verb } if on == terminal && *verb != TerminalOperation::Output)
    }
}

/// A terminal that was started, or is about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentTerminal {
    pub(crate) id: String,
    pub(crate) output_limit: u64,
    pub(crate) started: bool,
    pub(crate) ended: Option<Exit>,
}

impl HostCalls {
    fn holds(&self, request: &RequestId) -> bool {
        self.open.iter().any(|open| open.request == *request)
    }

    /// Returns true while this host call is being performed; the others are found by their clearance.
    pub(super) fn does(&self, request: &RequestId) -> bool {
        self.open.iter().any(|open| open.request == *request && open.doing)
    }

    fn take(&mut self, request: &RequestId) -> Option<OpenHostCall> {
        let at = self.open.iter().position(|open| open.request == *request)?;
        Some(self.open.remove(at))
    }

    /// Returns the number of running calls that end by themselves. Commands in terminals do not count: the agent
    /// decides how long they run.
    fn doing(&self) -> usize {
        let quick = |open: &&OpenHostCall| {
            open.doing
                && !matches!(&open.job, HostCallJob::Terminal { verb, .. } if *verb != TerminalOperation::Output)
        };
        self.open.iter().filter(quick).count()
    }

    fn held_bytes(&self) -> usize {
        let held = |open: &OpenHostCall| match &open.job {
            HostCallJob::Write { content, .. } => content.len(),
            _ => 0,
        };
        self.open.iter().map(held).sum()
    }

    fn terminal(&self, id: &str) -> Option<&AgentTerminal> {
        self.terminals.iter().find(|terminal| terminal.id == id && terminal.started)
    }

    fn forget_terminal(&mut self, job: &HostCallJob) {
        if let HostCallJob::Run(run) = job {
            self.terminals.retain(|terminal| terminal.id != run.terminal);
        }
    }
}

impl SessionState {
    pub(super) fn request_host_call(
        &mut self,
        call: HostCall,
        assessment: HostCallAssessment,
        out: &mut EffectSink<'_, '_>,
    ) {
        self.heard_from(out);
        let HostCall { request, method, params, line, operation: _ } = call;
        if self.is_open(&request) || self.host_calls.holds(&request) {
            return self.duplicate(request, line, &method, out);
        }
        let admitted = match assessment {
            HostCallAssessment::Allowed(job) => self.admit(job).map(|job| (job, None)),
            HostCallAssessment::Ask(job, ask, assessed) => {
                self.admit(job).map(|job| (job, Some((ask, assessed))))
            }
            HostCallAssessment::Refused(trouble) => Err(trouble),
        };
        let (job, ask) = match admitted {
            Ok(admitted) => admitted,
            Err(trouble) => {
                let about = Json::of(&CallParams { params: &params });
                return self.fail_host_call(request, method, None, &trouble, about, out);
            }
        };
        let doing = ask.is_none();
        self.host_calls.open.push(OpenHostCall {
            request: request.clone(),
            method,
            job,
            clearance: None,
            doing,
        });
        match ask {
            Some((ask, assessed)) => self.open_clearance(*ask, *assessed, out),
            None => self.begin_host_call(&request, out),
        }
    }

    /// Admits a host call if there is room for it.
    fn admit(&mut self, mut job: HostCallJob) -> Result<HostCallJob, HostCallError> {
        match &mut job {
            HostCallJob::Write { content, .. }
                if self.host_calls.held_bytes() + content.len() > MAX_HELD_BYTES =>
            {
                return Err(HostCallError::failed("too many writes wait for a decision"));
            }
            HostCallJob::Read { .. } | HostCallJob::Write { .. } => {}
            HostCallJob::Run(run) => {
                if self.host_calls.terminals.len() >= MAX_TERMINALS {
                    return Err(HostCallError::failed(format!(
                        "there are {MAX_TERMINALS} terminals already"
                    )));
                }
                self.host_calls.counted += 1;
                run.terminal = format!("term-{}", self.host_calls.counted);
                let (id, output_limit) = (run.terminal.clone(), run.output_limit);
                self.host_calls.terminals.push(AgentTerminal {
                    id,
                    output_limit,
                    started: false,
                    ended: None,
                });
            }
            HostCallJob::Terminal { terminal, .. } => {
                if self.host_calls.terminal(terminal).is_none() {
                    let why = format!("there is no terminal {terminal:?}");
                    return Err(HostCallError { code: FaultCode::NotFound, why });
                }
                let waiting = self.host_calls.open.iter().filter(|open| open.waits_for(terminal)).count();
                if waiting >= MAX_WAITING {
                    return Err(HostCallError::failed("too many requests wait for this terminal"));
                }
            }
        }
        Ok(job)
    }

    /// Performs a host call that needs no decision any more.
    fn begin_host_call(&mut self, request: &RequestId, out: &mut EffectSink<'_, '_>) {
        let Some(open) = self.host_calls.open.iter_mut().find(|open| open.request == *request) else {
            return;
        };
        open.doing = true;
        let HostCallJob::Terminal { terminal, verb } = &open.job else {
            let job = open.job.clone();
            return out.effects.push(StepEffect::Do { request: request.clone(), job });
        };
        let (terminal, verb) = (terminal.clone(), *verb);
        match (verb, self.host_calls.terminal(&terminal).and_then(|terminal| terminal.ended.clone())) {
            (TerminalOperation::Wait | TerminalOperation::Kill, Some(exit)) => {
                self.answer_terminal_wait(request, &terminal, verb, exit, out);
            }
            (TerminalOperation::Wait, None) => {}
            // A terminal is ended before it is released.
            (TerminalOperation::Release, None) => order(request, terminal, TerminalOperation::Kill, out),
            _ => order(request, terminal, verb, out),
        }
    }

    /// Answers a request that waited for the end of a terminal's command.
    fn answer_terminal_wait(
        &mut self,
        request: &RequestId,
        terminal: &str,
        verb: TerminalOperation,
        exit: Exit,
        out: &mut EffectSink<'_, '_>,
    ) {
        let Some(open) = self.host_calls.take(request) else { return };
        if verb == TerminalOperation::Kill {
            out.record(Event::TerminalKilled(TerminalKilled { terminal: terminal.to_owned() }));
            self.reply(open, HostCallReply::Killed, out);
        } else {
            self.reply(open, HostCallReply::Exited(exit), out);
        }
    }

    fn reply(&mut self, open: OpenHostCall, reply: HostCallReply, out: &mut EffectSink<'_, '_>) {
        let kind = open.clearance.map_or(OutboundKind::Other, OutboundKind::Clearance);
        self.send(AgentCommand::Reply { request: open.request, reply }, kind, out);
    }

    /// Reports a failed call to the agent and to people.
    fn fail_host_call(
        &mut self,
        request: RequestId,
        method: String,
        clearance: Option<ClearanceId>,
        trouble: &HostCallError,
        about: Json,
        out: &mut EffectSink<'_, '_>,
    ) {
        let HostCallError { code, why } = trouble;
        out.record(Event::HostCallFailed(HostCallFailed {
            request: request.clone(),
            method,
            clearance,
            reason: why.clone(),
            about: Some(about),
        }));
        let fault = RequestFault { request, code: *code, message: why.clone() };
        self.send(
            AgentCommand::Fault(fault),
            clearance.map_or(OutboundKind::Other, OutboundKind::Clearance),
            out,
        );
    }

    /// Continues a host call whose clearance was decided. Returns true if the clearance was for a host call.
    pub(super) fn host_call_decided(
        &mut self,
        id: ClearanceId,
        request: &RequestId,
        verdict: Verdict,
        reason: Option<&str>,
        out: &mut EffectSink<'_, '_>,
    ) -> bool {
        let Some(open) = self.host_calls.open.iter_mut().find(|open| open.request == *request && !open.doing)
        else {
            return false;
        };
        open.clearance = Some(id);
        if verdict == Verdict::Approve {
            self.begin_host_call(request, out);
        } else {
            self.forget_host_call(request);
            let message = reason.map_or_else(|| "denied".to_owned(), |reason| format!("denied: {reason}"));
            let fault = RequestFault { request: request.clone(), code: FaultCode::Failed, message };
            self.send(AgentCommand::Fault(fault), OutboundKind::Clearance(id), out);
        }
        true
    }

    /// Drops a host call that will not be performed. Returns true if there was one.
    pub(super) fn forget_host_call(&mut self, request: &RequestId) -> bool {
        let Some(open) = self.host_calls.take(request) else { return false };
        self.host_calls.forget_terminal(&open.job);
        true
    }

    /// Returns true while the host call waits for the decision of people.
    pub(super) fn host_call_awaits_decision(&self, request: &RequestId) -> bool {
        self.host_calls.holds(request) && !self.host_calls.does(request)
    }

    /// Withdraws a running call for the agent: only a wait can be ended. Returns true if there was one.
    pub(super) fn withdraw_host_call(&mut self, request: &RequestId, out: &mut EffectSink<'_, '_>) -> bool {
        let Some(open) = self.host_calls.open.iter().find(|open| open.request == *request && open.doing)
        else {
            return false;
        };
        if matches!(open.job, HostCallJob::Terminal { verb: TerminalOperation::Wait, .. }) {
            self.host_calls.take(request);
            let (request, message) = (request.clone(), "withdrawn".to_owned());
            let fault = RequestFault { request, code: FaultCode::Cancelled, message };
            self.send(AgentCommand::Fault(fault), OutboundKind::Other, out);
        }
        true
    }

    /// Records the result of a host call.
    pub(super) fn host_call_done(
        &mut self,
        request: &RequestId,
        result: Result<HostCallResult, HostCallError>,
        out: &mut EffectSink<'_, '_>,
    ) {
        // Without a pending request its agent has ended.
        let Some(open) = self.host_calls.take(request) else { return };
        let result = match result {
            Ok(result) => result,
            Err(trouble) => {
                self.host_calls.forget_terminal(&open.job);
                let about = open.about();
                return self.fail_host_call(open.request, open.method, open.clearance, &trouble, about, out);
            }
        };
        let (request, clearance) = (open.request.clone(), open.clearance);
        let (event, reply) = match (open.job.clone(), result) {
            (HostCallJob::Read { path, at, line, limit }, HostCallResult::Read { text, bytes, missing }) => {
                let event = FileRead { path, at, request, clearance, bytes, missing, line, limit };
                (Event::FileRead(event), HostCallReply::Content(text))
            }
            (HostCallJob::Write { path, at, before, .. }, HostCallResult::Written { bytes }) => {
                let event = FileWritten { path, at, request, clearance, bytes, created: before.is_none() };
                (Event::FileWritten(event), HostCallReply::Written)
            }
            (HostCallJob::Run(run), HostCallResult::Started { pid }) => {
                for terminal in self.host_calls.terminals.iter_mut().filter(|t| t.id == run.terminal) {
                    terminal.started = true;
                }
                let reply = HostCallReply::Started { terminal: run.terminal.clone() };
                let TerminalRun { terminal, line: command, cwd, .. } = run;
                let event = TerminalStarted { terminal, command, cwd, request, clearance, pid };
                (Event::TerminalStarted(event), reply)
            }
            (HostCallJob::Terminal { terminal, .. }, HostCallResult::Output { text, truncated }) => {
                let exit = self.host_calls.terminal(&terminal).and_then(|terminal| terminal.ended.clone());
                let event = TerminalOutput { terminal, request, clearance, bytes: text.len(), truncated };
                (Event::TerminalOutput(event), HostCallReply::Output { text, truncated, exit })
            }
            (HostCallJob::Terminal { terminal, .. }, HostCallResult::Released) => {
                self.host_calls.terminals.retain(|known| known.id != terminal);
                let event = TerminalReleased { terminal, request, clearance };
                (Event::TerminalReleased(event), HostCallReply::Released)
            }
            // These are not results of host calls.
            _ => return,
        };
        out.record(event);
        self.reply(open, reply, out);
    }

    /// Records the end of a terminal's command.
    pub(super) fn terminal_ended(
        &mut self,
        id: &str,
        exit: &Exit,
        why: Option<&str>,
        out: &mut EffectSink<'_, '_>,
    ) {
        let Some(terminal) = self.host_calls.terminals.iter_mut().find(|terminal| terminal.id == id) else {
            return;
        };
        if terminal.ended.is_none() {
            terminal.ended = Some(exit.clone());
            out.record(Event::TerminalEnded(TerminalEnded {
                terminal: id.to_owned(),
                code: exit.code,
                signal: exit.signal,
                reason: why.map(str::to_owned),
            }));
        }
        let waiting: Vec<(RequestId, TerminalOperation)> = self
            .host_calls
            .open
            .iter()
            .filter(|open| open.waits_for(id))
            .filter_map(|open| match open.job {
                HostCallJob::Terminal { verb, .. } => Some((open.request.clone(), verb)),
                _ => None,
            })
            .collect();
        for (request, verb) in waiting {
            match verb {
                TerminalOperation::Release => order(&request, id.to_owned(), verb, out),
                _ => self.answer_terminal_wait(&request, id, verb, exit.clone(), out),
            }
        }
    }

    /// Drops all calls after the agent's exit, because nobody is left to answer.
    pub(super) fn drop_host_calls(&mut self, out: &mut EffectSink<'_, '_>) {
        for open in std::mem::take(&mut *self.host_calls).open {
            let Some(clearance) = open.clearance else { continue };
            let cause = Delivery::STREAM_CLOSED.to_owned();
            out.record(Event::ClearanceUndelivered(ClearanceUndelivered { clearance, cause }));
        }
    }

    /// Returns true while there is room for another host call.
    pub(super) fn has_host_call_capacity(&self) -> bool {
        self.host_calls.doing() < MAX_DOING
    }

    /// Returns the host calls that were to be performed when the last daemon ended.
    pub(crate) fn unfinished_host_calls(&self) -> Vec<(RequestId, HostCallJob)> {
        let doing = self.host_calls.open.iter().filter(|open| open.doing);
        let due = doing.filter_map(|open| {
            let job = match &open.job {
                HostCallJob::Terminal { verb: TerminalOperation::Wait, .. } => return None,
                HostCallJob::Terminal { terminal, verb: TerminalOperation::Release }
                    if self
                        .host_calls
                        .terminal(terminal)
                        .is_some_and(|terminal| terminal.ended.is_none()) =>
                {
                    HostCallJob::Terminal { terminal: terminal.clone(), verb: TerminalOperation::Kill }
                }
                job => job.clone(),
            };
            Some((open.request.clone(), job))
        });
        due.collect()
    }

    /// Returns the terminals that were started.
    pub(crate) fn terminals(&self) -> impl Iterator<Item = &AgentTerminal> {
        self.host_calls.terminals.iter().filter(|terminal| terminal.started)
    }

    /// Returns the clearance that allowed this host call.
    pub(crate) fn cleared(&self, request: &RequestId) -> Option<ClearanceId> {
        self.host_calls.open.iter().find(|open| open.request == *request)?.clearance
    }

    /// Returns the message that answers the request of this clearance, if it is on its way.
    pub(crate) fn answer_to(&self, clearance: ClearanceId) -> Option<u64> {
        let is = |kind: &OutboundKind| matches!(kind, OutboundKind::Clearance(id) if *id == clearance);
        self.outbox.in_flight.iter().find(|(_, kind)| is(kind)).map(|(n, _)| *n)
    }
}

fn order(request: &RequestId, terminal: String, verb: TerminalOperation, out: &mut EffectSink<'_, '_>) {
    let job = HostCallJob::Terminal { terminal, verb };
    out.effects.push(StepEffect::Do { request: request.clone(), job });
}

#[derive(Serialize)]
struct CallParams<'a> {
    params: &'a Json,
}

impl OpenHostCall {
    /// Returns a short description of the call.
    fn about(&self) -> Json {
        Json::of(&match &self.job {
            HostCallJob::Read { path, .. } | HostCallJob::Write { path, .. } => json!({ "path": path }),
            HostCallJob::Run(run) => json!({ "command": run.line }),
            HostCallJob::Terminal { terminal, .. } => json!({ "terminal": terminal }),
        })
    }
}
