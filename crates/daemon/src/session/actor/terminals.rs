//! Terminals: commands that run for the agent, each under a shim of its own. They outlive the daemon together with
//! their session, and end with the session.

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

/// The maximum number of bytes that a terminal may write before they are read; then it waits.
const AHEAD_BYTES: u64 = 16 << 20;
/// Standard output and standard error in one stream, as on a terminal, and no input.
const EXEC: &str = "exec \"$@\" </dev/null 2>&1";
const LINE: &str = "exec </dev/null 2>&1\n";

/// The session's handle of a terminal. Dropping it leaves the command running.
#[derive(Debug)]
pub(super) struct TerminalHandle {
    pub(super) runtime_dir: RuntimeDir,
    pub(super) over: bool,
    /// Locked only to append to it or to copy it.
    tail: Arc<Mutex<OutputTail>>,
    end: CancellationToken,
    kill: CancellationToken,
    /// Cancelled when all processes of the terminal are gone; `None` before the command runs.
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

    /// Sends SIGTERM, and SIGKILL after the grace period.
    pub(super) fn end(&self) {
        self.end.cancel();
    }

    pub(super) fn kill(&self) {
        self.kill.cancel();
    }

    /// Waits until all processes of the terminal are gone, if it has run.
    pub(super) async fn gone(&self) {
        if let Some(ended) = &self.ended {
            ended.cancelled().await;
        }
    }

    /// Waits for the end of the command and of its output.
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
                // The journal keeps as much as has to be shown after a restart of the daemon.
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
                    // The shim obeys the first stop only, so it is sent once; a later kill still goes through.
                    () = end.cancelled(), if !ending && !killing => {
                        ending = true;
                        process.stop(gently(patience));
                    }
                }
            };
            // From here on the processes are gone, which is all that a stop waits for. The rest of the output follows.
            drop(ended);
            // Without `consumed`: the shim has ended, so nobody is left to trim the journal.
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

/// Returns a terminal's runtime directory, below that of its session.
pub(super) fn runtime_dir(of: &RuntimeDir, session: &str, id: &str, output_limit: u64) -> RuntimeDir {
    let generation = of.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    RuntimeDir {
        dir: of.dir.join(id),
        stderr_tail_bytes: 0,
        journal_cap_bytes: output_limit + AHEAD_BYTES,
        part: Some(format!("{session}/{generation}/{id}")),
    }
}

/// Returns the process specification of a terminal: the environment and the limits are those of the agent.
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
    // Below the agent's own cgroup: the agent's limits include the terminal, and it ends with the agent.
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
