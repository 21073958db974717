//! Host calls of the agent: files run one after the other, terminals in parallel, and nobody waits for
//! either.

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
    /// Files are read and written in the order in which they were asked for. Bounded by the session's state.
    files: VecDeque<(RequestId, HostCallJob)>,
    busy: bool,
    terminals: BTreeMap<String, TerminalHandle>,
    running: JoinSet<HostCallReport>,
    /// The commands that wait to hear that an approved host call has been performed and answered.
    waiting: Vec<(ClearanceId, DeliverySender)>,
}

impl RunningHostCalls {
    /// `None` if nothing is being done.
    pub(super) async fn next(&mut self) -> Option<HostCallReport> {
        loop {
            match self.running.join_next().await? {
                Ok(report) => return Some(report),
                Err(error) => tracing::error!(%error, "something that was done for an agent failed"),
            }
        }
    }

    pub(super) fn wait_for(&mut self, clearance: ClearanceId, on_its_way: DeliverySender) {
        self.waiting.push((clearance, on_its_way));
    }
}

impl SessionActor {
    /// An errand is looked at before it is recorded.
    pub(super) async fn assess_host_call(&self, call: HostCall) -> SessionInput {
        let assessor = std::sync::Arc::clone(&self.plan.assessor);
        let (spec, asked) = (self.state.spec().clone(), call.clone());
        let assessing = tokio::task::spawn_blocking(move || host_call::assess(&*assessor, &spec, &asked));
        let assessment = tokio::time::timeout(super::ASSESSING, assessing).await.ok().and_then(Result::ok);
        let assessment = assessment.unwrap_or_else(|| {
            HostCallAssessment::Refused(HostCallError::failed("it could not be looked at in time"))
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
        if self.host_calls.busy {
            return;
        }
        let Some((request, job)) = self.host_calls.files.pop_front() else { return };
        self.host_calls.busy = true;
        let workspace = self.state.spec().workspace.clone();
        self.host_calls.running.spawn(async move {
            failpoint::visit("host_call.begun");
            let performing = tokio::task::spawn_blocking(move || host_call::perform(&workspace, &job));
            let result =
                performing.await.unwrap_or_else(|_| Err(HostCallError::failed("intercom failed at it")));
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
        self.host_calls
            .terminals
            .insert(id.clone(), TerminalHandle::new(runtime_dir.clone(), run.output_limit));
        self.host_calls.running.spawn(async move {
            // An earlier daemon may have started it and died before it could say so.
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
        let clearance = self.clearance_of(&report);
        let input = self.report_to_input(report);
        self.absorb(vec![input], None).await;
        let Some(clearance) = clearance else { return };
        let waiting = &mut self.host_calls.waiting;
        let waiting: Vec<_> = waiting.extract_if(.., |(id, _)| *id == clearance).collect();
        if let Some(n) = self.state.answer_to(clearance) {
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

    /// Resumes the host calls that were under way when an earlier daemon ended: terminals are found again,
    /// and pending calls are performed.
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
        for (request, job) in self.state.unfinished_host_calls() {
            self.start_host_call(request, job);
        }
    }

    /// The agent has gone: what is being done is finished, and no terminal outlives it.
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
                    tracing::error!("something that is done for an agent does not end");
                    break;
                }
            }
        }
        self.host_calls = RunningHostCalls::default();
    }

    /// Nothing more can be recorded, and nothing is left behind.
    pub(super) async fn abandon_host_calls(&mut self) {
        self.host_calls.terminals.values().for_each(TerminalHandle::kill);
        while let Ok(Some(_)) = tokio::time::timeout(FINISHING, self.host_calls.next()).await {}
    }

    /// The agent has gone while nothing can be recorded: its terminals go all the same.
    pub(super) async fn end_terminals_unrecorded(&self) {
        self.end_terminals();
        let patience = self.plan.ladder.after_sigterm + FINISHING;
        let gone = async {
            for terminal in self.host_calls.terminals.values() {
                terminal.gone().await;
            }
        };
        tokio::time::timeout(patience, gone).await.ok(); // whoever is left is ended with what is recorded next
    }

    /// Those that were told before are not told again.
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
