//! The shim's event loop. See the parent module for the theory of operation.
//!
//! Each turn runs the same fixed sequence, whatever woke `poll`: signals, reap, stdout, stderr, connections, frames,
//! ladder, stdin, send. Every step is non-blocking, and reads of the agent's pipes are bounded per turn, so a noisy
//! agent cannot starve the daemon. Nothing is remembered between turns about *why* the loop woke up: a spurious or lost
//! wake-up is harmless.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::ShimOrder;
use super::agent::ShimmedAgent;
use super::daemon_lock::DaemonLock;
use super::errlog::ErrLog;
use super::input::{StdinQueue, UNNUMBERED};
use super::ladder::{LadderClimb, StopRung};
use super::link::DaemonLink;
use crate::cgroup::Cgroup;
use crate::frame::{ExitRecord, LadderWaits, ShimFrame, ShimHello};
use crate::record::{DirectoryPlace, EXIT, META, SOCKET, ShimMeta};
use crate::tree::ReapResult;
use crate::{EXITED, ProcessIdentity, ProcessSpec, STREAM_CLOSED, journal, tree};
use intercom_types::Exit;

/// The time that processes below the agent may outlive it. During a stop, the ladder's waits apply instead.
const AFTER_EXIT: Duration = Duration::from_millis(500);
/// The time that an agent may keep running after it closed stdout.
const AFTER_EOF: Duration = Duration::from_secs(2);
/// The pause before the next write to a full disk, and before the next check of a killed tree.
const DISK_RETRY: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The pause before the next check of a tree that was asked to end.
const LOOK_PATIENTLY: Duration = Duration::from_millis(50);
/// The time limit for ending a tree whose record could not be written.
const GIVE_UP: Duration = Duration::from_secs(5);
/// The extra time for a pipe that a process outside of the tree still holds.
const LINGER: Duration = Duration::from_millis(200);
/// The number of reads of a pipe per turn.
const SPLICES: usize = 16;
const SPLICE_BYTES: usize = 1 << 20;
/// The lead of the journal over a connected daemon at which the agent has to wait.
const AHEAD_OF_DAEMON: u64 = 1 << 20;
/// The size of a read through memory: a shim has to stay small.
const CHUNK: usize = 16 * 1024;

pub(super) struct ShimLoop {
    me: i32,
    meta: ShimMeta,
    output: JournaledOutput,
    stderr: Option<OwnedFd>,
    input: StdinQueue,
    errlog: ErrLog,
    link: DaemonLink,
    daemon_lock: DaemonLock,
    signals: SignalFd,
    stop: StopProgress,
    end: AgentEnd,
    cgroup: Option<Cgroup>,
}

/// The agent's stdout, and the journal that it goes into.
struct JournaledOutput {
    stdout: Option<OwnedFd>,
    journal: journal::JournalWriter,
    journal_cap: u64,
    /// The offset up to which the connected daemon has read.
    seen: u64,
    /// The time of the next attempt while the disk is full.
    disk_full: Option<Instant>,
    can_splice: bool,
    /// Bytes that were read from the pipe and are not in the journal yet; empty while `splice` works.
    in_hand: Vec<u8>,
}

/// The steps taken to end the tree.
#[derive(Default)]
struct StopProgress {
    /// The stop ladder, from the beginning of a stop.
    ladder: Option<LadderClimb>,
    interrupt: Vec<u8>,
    steps: Vec<&'static str>,
    killed: HashSet<i32>,
}

/// The agent's end, as far as it was noticed.
#[derive(Default)]
struct AgentEnd {
    exit: Option<Exit>,
    exited_at: Option<Instant>,
    /// When stdout closed.
    closed_at: Option<Instant>,
    /// stdout closed before the tree had to be ended.
    closed_first: bool,
    /// The kernel has reported that there are no children.
    childless: bool,
}

impl ShimLoop {
    pub(super) fn start(order: &ShimOrder) -> io::Result<Self> {
        std::env::set_current_dir(&order.runtime_dir.dir)?;
        // A signal to the daemon's process group or terminal must not reach the shim.
        nix::unistd::setsid()?;
        nix::sys::prctl::set_child_subreaper(true)?;
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let here = Path::new(".");
        let journal = journal::JournalWriter::create(here)?;
        let link = DaemonLink::listen(SOCKET)?;
        let daemon_lock = DaemonLock::around(&order.runtime_dir.dir);
        let ProcessSpec { cgroup, limits, session, .. } = &order.spec;
        // Without a cgroup, the tree is ended by sweeping it, and limits are enforced with rlimits.
        let made = cgroup.as_ref().and_then(|dir| Cgroup::create(dir, limits).ok());
        let (cgroup, unmet) = made.map_or((None, limits.clone()), |(made, unmet)| (Some(made), unmet));
        // Journal and socket exist before the agent: its first byte has a place to go, and a daemon can connect.
        let agent = ShimmedAgent::start(&order.spec, cgroup.as_ref(), &unmet, order.open_files).inspect_err(
            |_| {
                cgroup.as_ref().inspect(|cgroup| cgroup.remove());
            },
        )?;
        let me = i32::try_from(std::process::id()).expect("pids fit into an i32");
        let inode = |pipe: &OwnedFd| nix::sys::stat::fstat(pipe).ok().map(|stat| stat.st_ino);
        let meta = ShimMeta {
            version: order.version,
            shim: ProcessIdentity::of(me),
            agent: agent.identity,
            session: session.clone(),
            cgroup: order.spec.cgroup.clone().filter(|_| cgroup.is_some()),
            part: order.runtime_dir.part.clone(),
            memo: order.spec.memo.clone(),
            stdout: inode(&agent.stdout),
            stderr: inode(&agent.stderr),
            place: DirectoryPlace::of(Path::new(".")),
        };
        if let Err(error) = write_whole(META, &serde_json::to_vec(&meta)?) {
            // Without the record no daemon could find this agent again, so it must not keep running.
            cgroup.iter().for_each(Cgroup::kill);
            tree::end(me, GIVE_UP);
            cgroup.iter().for_each(Cgroup::remove);
            return Err(error);
        }
        Ok(Self {
            me,
            meta,
            output: JournaledOutput {
                stdout: Some(agent.stdout),
                journal,
                journal_cap: order.runtime_dir.journal_cap_bytes,
                seen: 0,
                disk_full: None,
                can_splice: true,
                in_hand: Vec::new(),
            },
            stderr: Some(agent.stderr),
            input: StdinQueue::new(agent.stdin),
            errlog: ErrLog::create(order.runtime_dir.stderr_tail_bytes.max(64 * 1024) as u64),
            link,
            daemon_lock,
            signals,
            stop: StopProgress::default(),
            end: AgentEnd::default(),
            cgroup,
        })
    }

    pub(super) fn meta(&self) -> &ShimMeta {
        &self.meta
    }

    pub(super) fn run(mut self) -> ExitCode {
        detach();
        while !self.is_over() {
            self.wait();
            self.turn();
        }
        self.cgroup.iter().for_each(Cgroup::remove);
        let record = self.exit_record();
        let written_exit =
            serde_json::to_vec(&record).map_err(io::Error::from).and_then(|json| write_whole(EXIT, &json));
        // On disk first: a daemon that misses the frame, or is away, reads the file.
        self.link.send(&ShimFrame::Exit(self.output.journal.end(), record));
        self.link.flush_blocking();
        fs::remove_file(SOCKET).ok(); // the directory is removed with the session anyway
        if written_exit.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Sleeps until a descriptor is ready or a deadline has passed.
    fn wait(&self) {
        let timeout = match self.next_deadline() {
            None => PollTimeout::NONE,
            // One millisecond more, because `poll` truncates: waking up just before the deadline would spin.
            Some(at) => {
                let remaining = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(remaining).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.link.listener(), PollFlags::POLLIN),
        ];
        if let Some((daemon, more)) = self.link.connection() {
            let flags = if more { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
            fds.push(PollFd::new(daemon, flags));
        }
        // Not polled while it must not be read: `poll` would return immediately, and the loop would spin.
        if let Some(stdout) = self.output.stdout.as_ref().filter(|_| self.may_read()) {
            fds.push(PollFd::new(stdout.as_fd(), PollFlags::POLLIN));
        }
        if let Some(stderr) = &self.stderr {
            fds.push(PollFd::new(stderr.as_fd(), PollFlags::POLLIN));
        }
        if let Some(stdin) = self.input.waiting() {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLOUT));
        }
        poll(&mut fds, timeout).ok(); // after an interruption, the turn checks everything anyway
    }

    fn next_deadline(&self) -> Option<Instant> {
        let ladder = self.stop.ladder.as_ref().and_then(LadderClimb::deadline);
        let eof = self
            .end
            .closed_at
            .filter(|_| self.end.exit.is_none() && self.stop.ladder.is_none())
            .map(|at| at + AFTER_EOF);
        let soon = Instant::now() + if self.has_time() { LOOK_PATIENTLY } else { LOOK_AGAIN };
        // Children that end raise a signal, but processes that have to be ended are polled.
        let exit = self
            .end
            .exited_at
            .map(|at| (at + AFTER_EXIT).max(if self.may_read() { soon } else { soon + DISK_RETRY }));
        let sweeping = (!self.stop.killed.is_empty() && self.end.exit.is_none()).then_some(soon);
        [ladder, eof, exit, sweeping, self.output.disk_full].into_iter().flatten().min()
    }

    /// Runs one turn. Each step is cheap when there is nothing to do.
    fn turn(&mut self) {
        let mut out = Vec::new();
        while let Ok(Some(signal)) = self.signals.read_signal() {
            // The system shuts down, or a person stops the shim: end the agent first.
            if signal.ssi_signo == Signal::SIGTERM as u32 {
                self.begin_stop(None, Vec::new());
            }
        }
        // Before the ladder: it must not signal a tree that has already ended.
        self.reap();
        self.read_stdout(&mut out);
        self.read_stderr();
        let hello = ShimFrame::Hello(ShimHello {
            version: self.meta.version,
            agent: self.meta.agent.clone(),
            shim: self.meta.shim.clone(),
            journal_end: self.output.journal.end(),
            accepted: Some(self.input.accepted()),
        });
        let (me, cgroup) = (self.me, self.cgroup.as_ref());
        // A process below the shim belongs to the agent, even if it holds the daemon's lock.
        let is_daemon = |pid| self.daemon_lock.is_held_by(pid) && !whole_tree(me, cgroup).contains(&pid);
        self.link.accept_daemons(&hello, self.output.stdout.as_ref().map(AsFd::as_fd), is_daemon);
        for frame in self.link.read() {
            if frame.since() <= self.meta.version {
                self.handle_frame(frame, &mut out);
            }
        }
        // The ladder before stdin: an interrupt that is due now is queued and written in the same turn.
        self.climb(&mut out);
        self.input.pump(&mut out);
        for frame in out.iter().filter(|frame| frame.since() <= self.meta.version) {
            self.link.send(frame);
        }
        self.link.flush();
    }

    fn handle_frame(&mut self, frame: ShimFrame, out: &mut Vec<ShimFrame>) {
        match frame {
            // Set, not raised: a new daemon may be behind the one before, which had read more than it logged.
            ShimFrame::Attach(offset) => {
                self.output.seen = offset;
                self.output.journal.trim(offset);
            }
            ShimFrame::Trim(offset) => self.output.journal.trim(offset),
            ShimFrame::Seen(offset) => self.output.seen = self.output.seen.max(offset),
            ShimFrame::Stdin(n, message) => self.input.accept(n, message, out),
            ShimFrame::Stop(waits, interrupt) => {
                let at_once = waits == LadderWaits::NONE;
                self.begin_stop(Some(waits), interrupt);
                if at_once {
                    self.skip_to_kill();
                }
                // Take the first step now, so that it precedes messages that arrived right after the stop.
                self.climb(out);
            }
            ShimFrame::Kill => {
                self.begin_stop(None, Vec::new());
                self.skip_to_kill();
            }
            // Frames that only a shim sends, and those of newer daemons: ignored.
            ShimFrame::Hello(_)
            | ShimFrame::Bell(_)
            | ShimFrame::Ack(_)
            | ShimFrame::Nack(_)
            | ShimFrame::Exit(..)
            | ShimFrame::Note(_)
            | ShimFrame::Other(_) => {}
        }
    }

    fn skip_to_kill(&mut self) {
        if let Some(ladder) = &mut self.stop.ladder {
            ladder.skip_to_kill(Instant::now());
        }
    }

    /// Starts the stop ladder, unless it has started already: a repeated stop must not grant new waits.
    fn begin_stop(&mut self, waits: Option<LadderWaits>, interrupt: Vec<u8>) {
        if self.stop.ladder.is_some() {
            return;
        }
        let usual =
            LadderWaits { after_interrupt_ms: 0, after_stdin_closed_ms: 1000, after_sigterm_ms: 2000 };
        let ladder = LadderClimb::new(waits.unwrap_or(usual), !interrupt.is_empty(), Instant::now());
        self.stop.interrupt = interrupt;
        self.stop.ladder = Some(ladder);
    }

    fn climb(&mut self, out: &mut Vec<ShimFrame>) {
        let now = Instant::now();
        if self.end.exit.is_none() && self.end.closed_at.is_some_and(|at| now >= at + AFTER_EOF) {
            self.begin_stop(None, Vec::new());
        }
        if self.end.exit.is_some()
            && let Some(ladder) = &mut self.stop.ladder
        {
            ladder.skip_to_signal(now);
        }
        while let Some(rung) = self.stop.ladder.as_mut().and_then(|ladder| ladder.due(now)) {
            if self.end.exit.is_some() && self.is_empty() {
                break; // no process is left to signal
            }
            if rung != StopRung::Sigkill {
                self.stop.steps.push(rung.into());
            }
            match rung {
                StopRung::Interrupt => {
                    self.input.accept(UNNUMBERED, std::mem::take(&mut self.stop.interrupt), out);
                }
                StopRung::CloseStdin => self.input.close(out),
                StopRung::Sigterm => self.tree().iter().for_each(|pid| {
                    kill(Pid::from_raw(*pid), Signal::SIGTERM).ok(); // it may have just exited
                }),
                StopRung::Sigkill => self.sweep(),
            }
        }
        // The rest of a tree whose agent has exited, or that is being killed. Sweep again in every turn: one sweep may
        // miss processes that were forked during it.
        let overdue = self.end.exited_at.is_some_and(|at| now >= at + AFTER_EXIT) && !self.has_time();
        if overdue || !self.stop.killed.is_empty() {
            self.sweep();
        }
    }

    /// Reports whether the tree was asked to end and still has time for it.
    fn has_time(&self) -> bool {
        self.stop.killed.is_empty() && self.stop.ladder.as_ref().is_some_and(LadderClimb::is_patient)
    }

    fn tree(&self) -> HashSet<i32> {
        whole_tree(self.me, self.cgroup.as_ref())
    }

    fn sweep(&mut self) {
        let mut swept = HashSet::new();
        if let Some(cgroup) = &self.cgroup {
            swept.extend(cgroup.members());
            cgroup.kill();
        }
        swept.extend(tree::sweep(self.me));
        // Recorded once, and only if a process really had to be killed.
        if !swept.is_empty() && self.stop.killed.is_empty() {
            self.stop.steps.push(StopRung::Sigkill.into());
        }
        self.stop.killed.extend(swept);
    }

    /// Reaps every child that has ended, including adopted orphans of the agent.
    fn reap(&mut self) {
        loop {
            match tree::reap() {
                ReapResult::Child(pid, exit) if pid == self.meta.agent.pid && self.end.exit.is_none() => {
                    self.end.exit = Some(exit);
                    self.end.exited_at = Some(Instant::now());
                }
                ReapResult::Child(..) => {}
                ReapResult::Waiting => return,
                ReapResult::Childless => {
                    self.end.childless = true;
                    return;
                }
            }
        }
    }

    /// Reports whether the tree is empty. An empty tree stays empty: no process is left that could fork.
    fn is_empty(&self) -> bool {
        self.end.childless && self.cgroup.as_ref().is_none_or(|cgroup| cgroup.members().is_empty())
    }

    /// Reports whether there is room for more output. A connected daemon is not left far behind: the agent waits for it
    /// as it would for a pipe, so its output is in the log soon after it has ended.
    fn may_read(&self) -> bool {
        let listens = self.link.connection().is_some() && ShimFrame::Seen(0).since() <= self.meta.version;
        let ahead = listens && self.output.journal.end() >= self.output.seen + AHEAD_OF_DAEMON;
        self.output.journal.unconsumed() < self.output.journal_cap
            && !ahead
            && self.output.disk_full.is_none()
    }

    fn read_stdout(&mut self, out: &mut Vec<ShimFrame>) {
        if self.output.disk_full.is_some_and(|until| until <= Instant::now()) {
            self.output.disk_full = None;
        }
        let before = self.output.journal.end();
        for _ in 0..SPLICES {
            let Some(stdout) = self.output.stdout.as_ref().filter(|_| self.may_read()) else { break };
            let in_hand = &mut self.output.in_hand;
            let moved = if self.output.can_splice {
                self.output.journal.grow(|file, at| move_whole(stdout, file, at))
            } else {
                self.output.journal.grow(|file, at| copy(stdout, file, at, in_hand))
            };
            match moved {
                Ok(0) => {
                    self.output.stdout = None;
                    self.end.closed_at = Some(Instant::now());
                    // After a kill, the end of stdout is our doing and no reason for the exit.
                    self.end.closed_first = self.stop.killed.is_empty();
                }
                Ok(_) => {}
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN | Errno::EINTR) => break,
                    // The file system cannot splice; this moved nothing.
                    Some(Errno::EINVAL) if self.output.can_splice => self.output.can_splice = false,
                    _ => {
                        self.output.disk_full = Some(Instant::now() + DISK_RETRY);
                        out.push(ShimFrame::Note(format!("output cannot be journalled: {error}")));
                        break;
                    }
                },
            }
        }
        if self.output.journal.end() > before {
            out.push(ShimFrame::Bell(self.output.journal.end()));
        }
    }

    fn read_stderr(&mut self) {
        let mut chunk = [0; CHUNK];
        for _ in 0..SPLICES {
            let Some(stderr) = &self.stderr else { return };
            match nix::unistd::read(stderr, &mut chunk) {
                Ok(0) => self.stderr = None,
                Ok(read) => self.errlog.push(&chunk[..read]),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(_) => self.stderr = None,
            }
        }
    }

    /// Reports whether the agent has exited, its tree is empty, and its pipes are at their end.
    fn is_over(&mut self) -> bool {
        let Some(exited_at) = self.end.exited_at else { return false };
        if self.output.stdout.is_some() || self.stderr.is_some() {
            // Only a process outside of the tree can still hold them. Data that a full disk keeps us from reading is
            // worth waiting for, unless we were stopped: the daemon that stopped us also holds an end of that pipe.
            let lingered = exited_at.elapsed() > AFTER_EXIT + LINGER;
            if !lingered || !(self.may_read() || self.stop.ladder.is_some()) {
                return false;
            }
        }
        self.is_empty()
    }

    fn exit_record(&self) -> ExitRecord {
        ExitRecord {
            exit: self.end.exit.clone().unwrap_or_default(),
            reason: if self.end.closed_first { STREAM_CLOSED } else { EXITED }.to_owned(),
            steps: self.stop.steps.iter().map(|step| (*step).to_owned()).collect(),
            killed: u32::try_from(self.stop.killed.len()).unwrap_or(u32::MAX),
            journal_end: self.output.journal.end(),
            written: self.input.written(),
            rescued: None,
        }
    }
}

/// Returns all processes below the shim, and those that left its tree but not its cgroup.
fn whole_tree(me: i32, cgroup: Option<&Cgroup>) -> HashSet<i32> {
    let members = cgroup.into_iter().flat_map(Cgroup::members);
    tree::descendants(me).into_iter().chain(members).collect()
}

/// Moves bytes from the pipe into the journal without holding them in memory: killed at any moment, the shim loses
/// none.
fn move_whole(pipe: &OwnedFd, file: &fs::File, at: u64) -> io::Result<usize> {
    let mut offset = i64::try_from(at).map_err(io::Error::other)?;
    let flags = SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE;
    Ok(splice(pipe, None, file, Some(&mut offset), SPLICE_BYTES, flags)?)
}

/// Copies bytes through memory, for file systems without `splice`. `in_hand` holds them until they are written.
fn copy(pipe: &OwnedFd, file: &fs::File, at: u64, in_hand: &mut Vec<u8>) -> io::Result<usize> {
    if in_hand.is_empty() {
        let mut chunk = [0; CHUNK];
        let read = nix::unistd::read(pipe, &mut chunk)?;
        in_hand.extend_from_slice(&chunk[..read]);
    }
    std::os::unix::fs::FileExt::write_all_at(file, in_hand, at)?;
    Ok(std::mem::take(in_hand).len())
}

/// Writes a file atomically.
fn write_whole(name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.new");
    fs::write(&temporary, bytes)?;
    fs::rename(temporary, name)
}

/// Replaces the daemon's pipes by `/dev/null`; from here on, messages go to `shim.log`.
fn detach() {
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    if let Ok(null) = null {
        nix::unistd::dup2_stdin(&null).ok(); // then it stays open, which is harmless
        nix::unistd::dup2_stdout(&null).ok(); // as above
    }
}
