//! Host calls of the agent: files are handled one after the other, terminals in parallel, and the session never waits
//! for either.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::task::JoinSet;

use super::SessionActor;
use super::terminals::{self, TerminalHandle};
use crate::session::handle::DeliverySender;
use crate::session::host_call::{
    self, HostCallAssessment, HostCallError, HostCallJob, HostCallResult, TerminalRun,
};
use crate::session::state::SessionInput;
use intercom_failpoint as failpoint;
use intercom_host::{self as host, AgentProcess, LostProcess, output_start};
use intercom_types::{ClearanceId, Exit, HostCall, RequestId, StopMode, TerminalOperation};

/// The time that running host calls may take after the agent has gone.
const FINISHING: Duration = Duration::from_secs(10);

/// A report from a running host call or terminal.
#[derive(Debug)]
pub(super) enum HostCallReport {
    File { request: RequestId, result: Result<HostCallResult, HostCallError> },
    Answered { request: RequestId, result: Result<HostCallResult, HostCallError> },
    Started { request: RequestId, terminal: String, result: Result<Box<AgentProcess>, String> },
    Ended { terminal: String, exit: Exit, why: Option<String> },
}

#[derive(Debug, Default)]
pub(super) struct RunningHostCalls {
    /// Files are read and written in the order of the requests. Bounded by the session's state.
    files: VecDeque<(RequestId, HostCallJob)>,
    busy: bool,
    terminals: BTreeMap<String, TerminalHandle>,
    running: JoinSet<HostCallReport>,
    /// The commands that wait until an approved host call was performed and answered.
    waiting: Vec<(ClearanceId, DeliverySender)>,
}

impl RunningHostCalls {
    /// Returns the next report; `None` if no host call runs.
    pub(super) async fn next(&mut self) -> Option<HostCallReport> {
        loop {
            match self.running.join_next().await? {
                Ok(report) => return Some(report),
                Err(error) => tracing::error!(%error, "a host call panicked"),
            }
        }
    }

    pub(super) fn wait_for(&mut self, clearance: ClearanceId, on_its_way: DeliverySender) {
        self.waiting.push((clearance, on_its_way));
    }
}

impl SessionActor {
    /// Assesses a host call before it is recorded.
    pub(super) async fn assess_host_call(&self, call: HostCall) -> SessionInput {
        let assessor = std::sync::Arc::clone(&self.plan.assessor);
        let (spec, asked) = (self.state.spec().clone(), call.clone());
        // On a blocking thread, with a time limit: resolving a path may hang on a network file system. A call that
        // cannot be assessed is refused rather than performed.
        let assessing = tokio::task::spawn_blocking(move || host_call::assess(&*assessor, &spec, &asked));
        let assessment = tokio::time::timeout(super::ASSESSING, assessing).await.ok().and_then(Result::ok);
        let assessment = assessment.unwrap_or_else(|| {
            HostCallAssessment::Refused(HostCallError::failed("it could not be checked in time"))
        });
        SessionInput::HostCall(Box::new(call), Box::new(assessment))
    }

    pub(super) fn start_host_call(&mut self, request: RequestId, job: HostCallJob) {
        match job {
            HostCallJob::Read { .. } | HostCallJob::Write { .. } => {
                self.host_calls.files.push_back((request, job));
                self.next_file();
            }
            HostCallJob::Run(run) => self.begin_terminal(request, &run),
            HostCallJob::Terminal { terminal, verb } => self.about_terminal(request, &terminal, verb),
        }
    }

    fn next_file(&mut self) {
        // One file at a time, in the order of the requests: a read after a write must see the write.
        if self.host_calls.busy {
            return;
        }
        let Some((request, job)) = self.host_calls.files.pop_front() else { return };
        self.host_calls.busy = true;
        let workspace = self.state.spec().workspace.clone();
        // Not awaited here: the session stays responsive, and the result comes back as a report.
        self.host_calls.running.spawn(async move {
            failpoint::visit("host_call.begun");
            let performing = tokio::task::spawn_blocking(move || host_call::perform(&workspace, &job));
            let result = performing.await.unwrap_or_else(|_| Err(HostCallError::failed("intercom failed")));
            failpoint::visit("host_call.performed");
            HostCallReport::File { request, result }
        });
    }

    fn begin_terminal(&mut self, request: RequestId, run: &TerminalRun) {
        let (id, session) = (run.terminal.clone(), self.state.id().to_string());
        let runtime_dir = terminals::runtime_dir(&self.plan.runtime_dir, &session, &id, run.output_limit);
        let spec = self.plan.spec.as_ref().map_err(Clone::clone);
        let spec =
            spec.and_then(|agent| terminals::spec(agent, &self.state.spec().workspace, run, &runtime_dir));
        let limit = self.plan.startup_timeout;
        // The handle exists before the process, so that a kill or a release during the start finds it.
        self.host_calls
            .terminals
            .insert(id.clone(), TerminalHandle::new(runtime_dir.clone(), run.output_limit));
        self.host_calls.running.spawn(async move {
            // An earlier daemon may have started it and died before that was recorded.
            let found = if runtime_dir.dir.exists() {
                AgentProcess::find(&session, &runtime_dir, output_start(&runtime_dir)).await
            } else {
                Err(LostProcess::NeverRan)
            };
            let result = match (found, spec) {
                (Ok(process), _) => Ok(process),
                (Err(_), Err(cause)) => Err(cause),
                (Err(_), Ok(spec)) => {
                    AgentProcess::spawn(spec, &runtime_dir, limit).await.map_err(|error| error.to_string())
                }
            };
            failpoint::visit("terminal.spawned");
            HostCallReport::Started { request, terminal: id, result: result.map(Box::new) }
        });
    }

    fn about_terminal(&mut self, request: RequestId, id: &str, verb: TerminalOperation) {
        let result = match (verb, self.host_calls.terminals.get(id)) {
            (TerminalOperation::Output, Some(terminal)) => {
                let (text, truncated) = terminal.text();
                Ok(HostCallResult::Output { text, truncated })
            }
            (TerminalOperation::Kill, Some(terminal)) => return terminal.end(), // its end is the answer
            (TerminalOperation::Release, _) => {
                if let Some(terminal) = self.host_calls.terminals.remove(id) {
                    host::remove(&terminal.runtime_dir.dir);
                }
                Ok(HostCallResult::Released)
            }
            (TerminalOperation::Wait, _) => return,
            (_, None) => Err(HostCallError::failed("the terminal was lost")),
        };
        self.host_calls.running.spawn(std::future::ready(HostCallReport::Answered { request, result }));
    }

    pub(super) async fn reported(&mut self, report: HostCallReport) {
        // Looked up first: recording the result forgets the call.
        let clearance = self.clearance_of(&report);
        let input = self.report_to_input(report);
        self.absorb(vec![input], None).await;
        let Some(clearance) = clearance else { return };
        let waiting = &mut self.host_calls.waiting;
        let waiting: Vec<_> = waiting.extract_if(.., |(id, _)| *id == clearance).collect();
        if let Some(n) = self.state.answer_to(clearance) {
            // The decision has arrived once the answer of the call has, so these commands now wait for that message.
            self.replies.arrivals.extend(waiting.into_iter().map(|(_, on_its_way)| (n, on_its_way)));
        }
    }

    fn clearance_of(&self, report: &HostCallReport) -> Option<ClearanceId> {
        match report {
            HostCallReport::File { request, .. } | HostCallReport::Started { request, .. } => {
                self.state.cleared(request)
            }
            HostCallReport::Answered { .. } | HostCallReport::Ended { .. } => None,
        }
    }

    fn report_to_input(&mut self, report: HostCallReport) -> SessionInput {
        match report {
            HostCallReport::File { request, result } => {
                // The next file starts before this result is recorded: the two are independent, and calls stay in
                // order.
                self.host_calls.busy = false;
                self.next_file();
                SessionInput::HostCallDone { request, result: Box::new(result) }
            }
            HostCallReport::Answered { request, result } => {
                SessionInput::HostCallDone { request, result: Box::new(result) }
            }
            HostCallReport::Started { request, terminal, result } => {
                let result = match result {
                    Ok(process) => {
                        let pid = process.identity.pid;
                        self.watch_terminal(&terminal, *process);
                        Ok(HostCallResult::Started { pid })
                    }
                    Err(cause) => {
                        self.host_calls.terminals.remove(&terminal);
                        Err(HostCallError::failed(cause))
                    }
                };
                SessionInput::HostCallDone { request, result: Box::new(result) }
            }
            HostCallReport::Ended { terminal, exit, why } => {
                if let Some(held_bytes) = self.host_calls.terminals.get_mut(&terminal) {
                    held_bytes.over = true;
                }
                SessionInput::TerminalEnded { terminal, exit, why }
            }
        }
    }

    fn watch_terminal(&mut self, id: &str, process: AgentProcess) {
        let patience = self.plan.ladder.after_sigterm;
        if let Some(terminal) = self.host_calls.terminals.get_mut(id) {
            let watching = terminal.watch(id.to_owned(), process, patience);
            self.host_calls.running.spawn(watching);
        }
    }

    /// Resumes the host calls that ran when an earlier daemon ended: terminals are found again, and pending calls are
    /// performed.
    pub(super) async fn resume_host_calls(&mut self) {
        let session = self.state.id().to_string();
        let known: Vec<(String, u64)> =
            self.state.terminals().map(|terminal| (terminal.id.clone(), terminal.output_limit)).collect();
        for (id, output_limit) in known {
            let runtime_dir = terminals::runtime_dir(&self.plan.runtime_dir, &session, &id, output_limit);
            let found = AgentProcess::find(&session, &runtime_dir, output_start(&runtime_dir)).await;
            self.host_calls.terminals.insert(id.clone(), TerminalHandle::new(runtime_dir, output_limit));
            match found {
                Ok(process) => self.watch_terminal(&id, process),
                Err(lost) => {
                    let (exit, why) = (Exit::default(), Some(lost.to_string()));
                    let report = HostCallReport::Ended { terminal: id, exit, why };
                    self.host_calls.running.spawn(std::future::ready(report));
                }
            }
        }
        // Repeating a call that was already performed is harmless: a write checks the file, and a terminal is found by
        // its directory.
        for (request, job) in self.state.unfinished_host_calls() {
            self.start_host_call(request, job);
        }
    }

    /// Finishes the running host calls after the agent's exit; no terminal outlives the agent.
    pub(super) async fn finish_host_calls(&mut self) {
        let mut patience = self.plan.ladder.after_sigterm + FINISHING;
        loop {
            self.end_terminals();
            match tokio::time::timeout(patience, self.host_calls.next()).await {
                Ok(Some(report)) => self.reported(report).await,
                Ok(None) => break,
                Err(_) if patience > FINISHING => {
                    self.host_calls.terminals.values().for_each(TerminalHandle::kill);
                    patience = FINISHING;
                }
                Err(_) => {
                    tracing::error!("a host call does not end; it is abandoned");
                    break;
                }
            }
        }
        self.host_calls = RunningHostCalls::default();
    }

    /// Kills the terminals when nothing more can be recorded, so that nothing is left behind.
    pub(super) async fn abandon_host_calls(&mut self) {
        self.host_calls.terminals.values().for_each(TerminalHandle::kill);
        while let Ok(Some(_)) = tokio::time::timeout(FINISHING, self.host_calls.next()).await {}
    }

    /// Ends the terminals after the agent's exit while nothing can be recorded.
    pub(super) async fn end_terminals_unrecorded(&self) {
        self.end_terminals();
        let patience = self.plan.ladder.after_sigterm + FINISHING;
        let gone = async {
            for terminal in self.host_calls.terminals.values() {
                terminal.gone().await;
            }
        };
        tokio::time::timeout(patience, gone).await.ok(); // the rest is ended by `finish_host_calls`
    }

    /// Ends the terminals that still run. Those that have ended are not signalled again.
    pub(super) fn end_terminals(&self) {
        for terminal in self.host_calls.terminals.values().filter(|terminal| !terminal.over) {
            if self.state.stopping() == Some(StopMode::Kill) {
                terminal.kill();
            } else {
                terminal.end();
            }
        }
    }
}
