//! Terminals: commands that are run for the agent, each under a shim of its own, so that they outlive the daemon with
//! their session, and end with it.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::host_calls::HostCallReport;
use crate::session::host_call::TerminalRun;
use crate::session::tail::OutputTail;
use intercom_host::{
    AgentProcess, CgroupLimits, PART_VARIABLE, ProcessEvent, ProcessSpec, RuntimeDir, StopLadder,
    output_start, resolve_program,
};
use intercom_types::Exit;

/// The number of bytes that a terminal may write ahead of us before it waits.
const AHEAD_BYTES: u64 = 16 << 20;
/// Both streams in one, as on a terminal, and nothing to read.
const EXEC: &str = "exec \"$@\" </dev/null 2>&1";
const LINE: &str = "exec </dev/null 2>&1\n";

/// The session's end of a terminal. Dropping it leaves the command alone.
#[derive(Debug)]
pub(super) struct TerminalHandle {
    pub(super) runtime_dir: RuntimeDir,
    pub(super) over: bool,
    /// Held for the moment of adding to it or copying it.
    tail: Arc<Mutex<OutputTail>>,
    end: CancellationToken,
    kill: CancellationToken,
    /// Told when nothing is left of it; none before it runs.
    ended: Option<CancellationToken>,
}

impl TerminalHandle {
    pub(super) fn new(runtime_dir: RuntimeDir, output_limit: u64) -> Self {
        let tail = Arc::new(Mutex::new(OutputTail::new(output_limit)));
        let (end, kill) = (CancellationToken::new(), CancellationToken::new());
        Self { runtime_dir, over: false, tail, end, kill, ended: None }
    }

    pub(super) fn text(&self) -> (String, bool) {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).text(self.over)
    }

    /// SIGTERM, and the time to heed it.
    pub(super) fn end(&self) {
        self.end.cancel();
    }

    pub(super) fn kill(&self) {
        self.kill.cancel();
    }

    /// Until nothing is left of it, if it runs.
    pub(super) async fn gone(&self) {
        if let Some(ended) = &self.ended {
            ended.cancelled().await;
        }
    }

    /// Until it has ended and all of its output was read.
    pub(super) fn watch(
        &mut self,
        id: String,
        mut process: AgentProcess,
        patience: Duration,
    ) -> impl Future<Output = HostCallReport> + Send + use<> {
        let (tail, end, kill) = (Arc::clone(&self.tail), self.end.clone(), self.kill.clone());
        let ended = self.ended.insert(CancellationToken::new()).clone().drop_guard();
        let limit = self.runtime_dir.journal_cap_bytes - AHEAD_BYTES;
        let mut read = output_start(&self.runtime_dir);
        async move {
            let mut take = move |chunk: &[u8]| {
                tail.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
                read += chunk.len() as u64;
                // So much stays on disk as has to be shown after a restart.
                read.saturating_sub(limit)
            };
            let (mut open, mut ending, mut killing) = (true, false, false);
            let process_exit = loop {
                tokio::select! {
                    news = process.events.recv() => match news {
                        Some(ProcessEvent::Exited(process_exit)) => break Some(process_exit),
                        Some(_) => {}
                        None => break None,
                    },
                    chunk = process.output.recv(), if open => match chunk {
                        Some(chunk) => process.consumed(take(&chunk)),
                        None => open = false,
                    },
                    () = kill.cancelled(), if !killing => {
                        killing = true;
                        process.kill();
                    }
                    () = end.cancelled(), if !ending && !killing => {
                        ending = true;
                        process.stop(gently(patience));
                    }
                }
            };
            drop(ended);
            while let Some(chunk) = process.output.recv().await {
                take(&chunk);
            }
            match process_exit {
                Some(process_exit) => {
                    HostCallReport::Ended { terminal: id, exit: process_exit.exit, why: None }
                }
                None => HostCallReport::Ended {
                    terminal: id,
                    exit: Exit::default(),
                    why: Some("it was lost".to_owned()),
                },
            }
        }
    }
}

fn gently(patience: Duration) -> StopLadder {
    StopLadder {
        interrupt: Vec::new(),
        after_interrupt: Duration::ZERO,
        after_stdin_closed: Duration::ZERO,
        after_sigterm: patience,
    }
}

/// Returns a terminal's runtime directory, below that of its session's process.
pub(super) fn runtime_dir(of: &RuntimeDir, session: &str, id: &str, output_limit: u64) -> RuntimeDir {
    let generation = of.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    RuntimeDir {
        dir: of.dir.join(id),
        stderr_tail_bytes: 0,
        journal_cap_bytes: output_limit + AHEAD_BYTES,
        part: Some(format!("{session}/{generation}/{id}")),
    }
}

/// Returns the specification of a terminal's process: it runs in the environment of its session's agent and
/// under the same limits.
pub(super) fn spec(
    agent: &ProcessSpec,
    workspace: &Path,
    run: &TerminalRun,
    runtime_dir: &RuntimeDir,
) -> Result<ProcessSpec, String> {
    let cwd = workspace.join(&run.cwd);
    let mut env = agent.env.clone();
    let part = (PART_VARIABLE.to_owned(), runtime_dir.part.clone().unwrap_or_default());
    for (name, value) in run.env.iter().chain([&part]) {
        env.retain(|(known, _)| **known != **name);
        env.push((name.into(), value.into()));
    }
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let mut args: Vec<OsString> = vec!["-c".into()];
    if run.is_line() {
        args.push(format!("{LINE}{}", run.program).into());
    } else {
        let program =
            resolve_program(&run.program, &cwd, path.as_deref()).map_err(|error| error.to_string())?;
        args.extend([EXEC.into(), "sh".into(), program.into()]);
        args.extend(run.args.iter().map(Into::into));
    }
    // Below the agent's own cgroup, what holds for that holds for this as well, and ends with it.
    let group = agent.cgroup.as_ref().filter(|dir| dir.is_dir());
    Ok(ProcessSpec {
        session: agent.session.clone(),
        program: "/bin/sh".into(),
        args,
        env,
        cwd,
        cgroup: group.map(|dir| dir.join(&run.terminal)),
        limits: if group.is_some() { CgroupLimits::default() } else { agent.limits.clone() },
        user: agent.user.clone(),
        memo: None,
    })
}
