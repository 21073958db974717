//! The keeper of one process: notices its end, runs the kill ladder, leaves nothing of its group behind.
//!
//! ```text
//!   running ──stop──► interrupt ─► close stdin ─► SIGTERM ─► SIGKILL
//!      │                  each with its wait, each cut short by the end
//!      ├──kill──► SIGKILL                                       │
//!      ├──stdout closed, still alive after a while──► the ladder │
//!      ▼                                                        ▼
//!   ended: a short wait for what is left of the group, SIGKILL to it, verified, reaped, told
//! ```
//! The ended leader is left unreaped until its group is empty, so that the group's number cannot pass to others.

use std::collections::HashSet;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::identity::group_members;
use super::tail::Tail;
use super::{Departure, EXITED, Ladder, News, STREAM_CLOSED};
use crate::domain::Exit;

/// How long children may go on after their parent, before they are ended.
const AFTER_EXIT: Duration = Duration::from_millis(500);
/// How long a process may live on without its stdout.
const AFTER_EOF: Duration = Duration::from_secs(2);
/// SIGKILL works at once unless a process hangs in the kernel; how often to look.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const GIVE_UP: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) enum Control {
    Stop(Ladder),
    Kill,
}

pub(super) struct Keeper {
    pub(super) pid: i32,
    pub(super) child: Child,
    pub(super) control: mpsc::UnboundedReceiver<Control>,
    pub(super) news: mpsc::Sender<News>,
    pub(super) input: mpsc::UnboundedSender<(u64, Vec<u8>)>,
    pub(super) eof: oneshot::Receiver<()>,
    pub(super) gone: watch::Sender<bool>,
    pub(super) stdin: CancellationToken,
    pub(super) tail: Arc<Tail>,
    /// Who had to be killed.
    pub(super) killed: HashSet<i32>,
}

/// What ended a wait.
enum Woken {
    Exited,
    Kill,
    TimedOut,
}

impl Keeper {
    pub(super) async fn run(mut self) {
        let mut steps = Vec::new();
        let mut closed_first = false;
        loop {
            tokio::select! {
                biased;
                () = exited(self.pid) => break,
                control = self.control.recv() => match control {
                    Some(Control::Stop(ladder)) => {
                        self.climb(ladder, &mut steps).await;
                        break;
                    }
                    // The session's task is gone without a word: its process must not stay.
                    Some(Control::Kill) | None => {
                        self.kill(&mut steps).await;
                        break;
                    }
                },
                _ = &mut self.eof, if !closed_first => {
                    closed_first = true;
                    if !matches!(self.wait(AFTER_EOF).await, Woken::Exited) {
                        self.climb(Ladder::default(), &mut steps).await;
                        break;
                    }
                }
            }
        }
        let departure = self.clear_up(steps, closed_first).await;
        self.gone.send(true).ok(); // the readers may be done
        self.news.send(News::Exited(departure)).await.ok(); // nobody is left to be told
    }

    async fn climb(&mut self, ladder: Ladder, steps: &mut Vec<&'static str>) {
        if !ladder.interrupt.is_empty() {
            steps.push("interrupt");
            self.input.send((0, ladder.interrupt)).ok(); // its pipe may be closed: the next step follows anyway
            match self.wait(ladder.after_interrupt).await {
                Woken::Exited => return,
                Woken::Kill => return self.kill(steps).await,
                Woken::TimedOut => {}
            }
        }
        steps.push("close_stdin");
        self.stdin.cancel();
        match self.wait(ladder.after_stdin_closed).await {
            Woken::Exited => return,
            Woken::Kill => return self.kill(steps).await,
            Woken::TimedOut => {}
        }
        steps.push("sigterm");
        killpg(Pid::from_raw(self.pid), Signal::SIGTERM).ok(); // it may have just gone
        if !matches!(self.wait(ladder.after_sigterm).await, Woken::Exited) {
            self.kill(steps).await;
        }
    }

    async fn kill(&mut self, steps: &mut Vec<&'static str>) {
        self.stdin.cancel();
        self.kill_group(steps);
        exited(self.pid).await;
    }

    fn kill_group(&mut self, steps: &mut Vec<&'static str>) {
        if self.killed.is_empty() {
            steps.push("sigkill");
        }
        self.killed.extend(group_members(self.pid));
        killpg(Pid::from_raw(self.pid), Signal::SIGKILL).ok(); // they may have just gone
    }

    async fn wait(&mut self, limit: Duration) -> Woken {
        let deadline = tokio::time::sleep(limit);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                biased;
                () = exited(self.pid) => return Woken::Exited,
                control = self.control.recv() => if !matches!(control, Some(Control::Stop(_))) {
                    return Woken::Kill;
                },
                () = &mut deadline => return Woken::TimedOut,
            }
        }
    }

    /// The leader has ended and is not reaped yet: end the rest of its group and reap it.
    async fn clear_up(&mut self, mut steps: Vec<&'static str>, mut closed_first: bool) -> Departure {
        if !closed_first {
            closed_first = tokio::time::timeout(AFTER_EXIT, &mut self.eof).await.is_ok();
        }
        let deadline = tokio::time::Instant::now() + GIVE_UP;
        while !group_members(self.pid).is_empty() {
            self.kill_group(&mut steps);
            if tokio::time::Instant::now() > deadline {
                tracing::error!(pid = self.pid, "processes of the agent's group cannot be killed");
                break;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let exit = match self.child.wait() {
            Ok(status) => {
                Exit { code: status.code(), signal: std::os::unix::process::ExitStatusExt::signal(&status) }
            }
            Err(_) => Exit::default(),
        };
        let reason = if closed_first { STREAM_CLOSED } else { EXITED };
        let killed = u32::try_from(self.killed.len()).unwrap_or(u32::MAX);
        Departure { exit, reason, steps, killed, stderr_tail: self.tail.text() }
    }
}

impl Default for Ladder {
    /// For a process that nobody can talk to any more.
    fn default() -> Self {
        Self {
            interrupt: Vec::new(),
            after_interrupt: Duration::ZERO,
            after_stdin_closed: Duration::from_secs(1),
            after_sigterm: Duration::from_secs(2),
        }
    }
}

/// Waits until the process has ended, without reaping it.
async fn exited(pid: i32) {
    let Ok(mut children) = signal(SignalKind::child()) else { return };
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(WaitStatus::StillAlive) = waitid(Id::Pid(Pid::from_raw(pid)), flags) {
        children.recv().await;
    }
}
