//! The shim's loop.

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

/// The time that processes below the agent may outlive it, unless it was told to end: then they have the time
/// for that.
const AFTER_EXIT: Duration = Duration::from_millis(500);
/// The time that a process may live on without its stdout.
const AFTER_EOF: Duration = Duration::from_secs(2);
/// The pause before the next look at a full disk or at a tree that was killed.
const DISK_RETRY: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The pause before the next look at a tree that has been told to end.
const LOOK_PATIENTLY: Duration = Duration::from_millis(50);
/// The time that a tree may take to end that nobody could find again.
const GIVE_UP: Duration = Duration::from_secs(5);
/// A pipe that somebody outside the tree still holds is left after this.
const LINGER: Duration = Duration::from_millis(200);
/// Moves from the pipe to the journal before anything else gets a turn.
const SPLICES: usize = 16;
const SPLICE_BYTES: usize = 1 << 20;
/// The number of bytes that the journal may be ahead of a daemon that listens.
const AHEAD_OF_DAEMON: u64 = 1 << 20;
/// The size of the pieces in which data passes through memory: a shim is to stay small.
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
    /// The offset up to which the daemon that listens has read.
    seen: u64,
    /// The disk is full until, perhaps, then.
    disk_full: Option<Instant>,
    can_splice: bool,
    /// Taken from the pipe by a read, and not in the journal yet.
    in_hand: Vec<u8>,
}

/// The steps taken to end the tree.
#[derive(Default)]
struct StopProgress {
    /// Set once somebody or something wants the end.
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
    /// The kernel has said that there are no children.
    childless: bool,
}

impl ShimLoop {
    pub(super) fn start(order: &ShimOrder) -> io::Result<Self> {
        std::env::set_current_dir(&order.runtime_dir.dir)?;
        // Whatever takes the daemon's group or terminal down must not take us along.
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
        // Without one, the tree is ended by sweeping it, and limits are the system's own.
        let made = cgroup.as_ref().and_then(|dir| Cgroup::create(dir, limits).ok());
        let (cgroup, unmet) = made.map_or((None, limits.clone()), |(made, unmet)| (Some(made), unmet));
        let agent = ShimmedAgent::start(&order.spec, cgroup.as_ref(), &unmet, order.open_files).inspect_err(
            |_| {
                cgroup.as_ref().inspect(|cgroup| cgroup.remove());
            },
        )?;
        let me = i32::try_from(std::process::id()).expect("pids fit into an i32");
        let meta = ShimMeta {
            version: order.version,
            shim: ProcessIdentity::of(me),
            agent: agent.identity,
            session: session.clone(),
            cgroup: order.spec.cgroup.clone().filter(|_| cgroup.is_some()),
            part: order.runtime_dir.part.clone(),
            memo: order.spec.memo.clone(),
            stdout: nix::sys::stat::fstat(&agent.stdout).ok().map(|stat| stat.st_ino),
            place: DirectoryPlace::of(Path::new(".")),
        };
        if let Err(error) = write_whole(META, &serde_json::to_vec(&meta)?) {
            // An agent that nobody could find again must not stay.
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
        let left = self.exit_record();
        let kept =
            serde_json::to_vec(&left).map_err(io::Error::from).and_then(|json| write_whole(EXIT, &json));
        self.link.send(&ShimFrame::Exit(self.output.journal.end(), left));
        self.link.flush_blocking();
        fs::remove_file(SOCKET).ok(); // the directory goes with the session anyway
        if kept.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Sleeps until something happens or a time has come.
    fn wait(&self) {
        let timeout = match self.next_deadline() {
            None => PollTimeout::NONE,
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
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
        if let Some(stdout) = self.output.stdout.as_ref().filter(|_| self.may_read()) {
            fds.push(PollFd::new(stdout.as_fd(), PollFlags::POLLIN));
        }
        if let Some(stderr) = &self.stderr {
            fds.push(PollFd::new(stderr.as_fd(), PollFlags::POLLIN));
        }
        if let Some(stdin) = self.input.waiting() {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLOUT));
        }
        poll(&mut fds, timeout).ok(); // interrupted: look at everything, that is all
    }

    fn next_deadline(&self) -> Option<Instant> {
        let ladder = self.stop.ladder.as_ref().and_then(LadderClimb::deadline);
        let eof = self
            .end
            .closed_at
            .filter(|_| self.end.exit.is_none() && self.stop.ladder.is_none())
            .map(|at| at + AFTER_EOF);
        let soon = Instant::now() + if self.has_time() { LOOK_PATIENTLY } else { LOOK_AGAIN };
        // Children that end are told by a signal; those that have to be ended are looked after closely.
        let exit = self
            .end
            .exited_at
            .map(|at| (at + AFTER_EXIT).max(if self.may_read() { soon } else { soon + DISK_RETRY }));
        let sweeping = (!self.stop.killed.is_empty() && self.end.exit.is_none()).then_some(soon);
        [ladder, eof, exit, sweeping, self.output.disk_full].into_iter().flatten().min()
    }

    /// Looks at everything once. Each look is cheap when there is nothing.
    fn turn(&mut self) {
        let mut out = Vec::new();
        while let Ok(Some(signal)) = self.signals.read_signal() {
            // The system goes down, or somebody wants us gone: not without the agent.
            if signal.ssi_signo == Signal::SIGTERM as u32 {
                self.begin_stop(None, Vec::new());
            }
        }
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
        // Whoever is below us is the agent's, whatever it holds.
        let is_daemon = |pid| self.daemon_lock.is_held_by(pid) && !whole_tree(me, cgroup).contains(&pid);
        self.link.accept_daemons(&hello, self.output.stdout.as_ref().map(AsFd::as_fd), is_daemon);
        for frame in self.link.read() {
            if frame.since() <= self.meta.version {
                self.handle_frame(frame, &mut out);
            }
        }
        self.climb(&mut out);
        self.input.pump(&mut out);
        for frame in out.iter().filter(|frame| frame.since() <= self.meta.version) {
            self.link.send(frame);
        }
        self.link.flush();
    }

    fn handle_frame(&mut self, frame: ShimFrame, out: &mut Vec<ShimFrame>) {
        match frame {
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
                // The first step is taken before whatever was said right after it.
                self.climb(out);
            }
            ShimFrame::Kill => {
                self.begin_stop(None, Vec::new());
                self.skip_to_kill();
            }
            // What only a shim says, or a newer daemon: nothing to do.
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

    /// A ladder that is being climbed is not begun again.
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
                break; // nobody is left to be told
            }
            if rung != StopRung::Sigkill {
                self.stop.steps.push(rung.as_str());
            }
            match rung {
                StopRung::Interrupt => {
                    self.input.accept(UNNUMBERED, std::mem::take(&mut self.stop.interrupt), out);
                }
                StopRung::CloseStdin => self.input.close(out),
                StopRung::Sigterm => self.tree().iter().for_each(|pid| {
                    kill(Pid::from_raw(*pid), Signal::SIGTERM).ok(); // it may have just gone
                }),
                StopRung::Sigkill => self.sweep(),
            }
        }
        // What is left of a tree whose agent has gone, or that is being killed.
        let overdue = self.end.exited_at.is_some_and(|at| now >= at + AFTER_EXIT) && !self.has_time();
        if overdue || !self.stop.killed.is_empty() {
            self.sweep();
        }
    }

    /// Is true while the tree was told to end and may still do so by itself.
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
        if !swept.is_empty() && self.stop.killed.is_empty() {
            self.stop.steps.push(StopRung::Sigkill.as_str());
        }
        self.stop.killed.extend(swept);
    }

    /// Every child that has ended, the agent's orphans included.
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

    /// Tells whether nothing is left of the tree. Once it is so, it stays so: nobody is there to fork.
    fn is_empty(&self) -> bool {
        self.end.childless && self.cgroup.as_ref().is_none_or(|cgroup| cgroup.members().is_empty())
    }

    /// Is true while there is room for more output. A daemon that listens is not left far behind: the agent
    /// waits for it as it would for a pipe, and its output is in the log soon after it has ended.
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
                    self.end.closed_first = self.stop.killed.is_empty();
                }
                Ok(_) => {}
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN | Errno::EINTR) => break,
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

    /// The agent has gone, nothing is left of its tree, and its pipes are empty.
    fn is_over(&mut self) -> bool {
        let Some(exited_at) = self.end.exited_at else { return false };
        if self.output.stdout.is_some() || self.stderr.is_some() {
            // Only somebody outside the tree can still hold them. What a full disk keeps us from taking, we wait for, unless
            // we were told to end: the daemon that did so has an end of that pipe as well.
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

/// Everything below us, and whoever got out of that but not out of the cgroup.
fn whole_tree(me: i32, cgroup: Option<&Cgroup>) -> HashSet<i32> {
    let members = cgroup.into_iter().flat_map(Cgroup::members);
    tree::descendants(me).into_iter().chain(members).collect()
}

/// Moves bytes from the pipe into the journal without ever holding them: killed at any moment, we lose none.
fn move_whole(pipe: &OwnedFd, file: &fs::File, at: u64) -> io::Result<usize> {
    let mut offset = i64::try_from(at).map_err(io::Error::other)?;
    let flags = SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE;
    Ok(splice(pipe, None, file, Some(&mut offset), SPLICE_BYTES, flags)?)
}

/// Where the file system cannot do that: through our hands, which keep it until it is written.
fn copy(pipe: &OwnedFd, file: &fs::File, at: u64, in_hand: &mut Vec<u8>) -> io::Result<usize> {
    if in_hand.is_empty() {
        let mut chunk = [0; CHUNK];
        let read = nix::unistd::read(pipe, &mut chunk)?;
        in_hand.extend_from_slice(&chunk[..read]);
    }
    std::os::unix::fs::FileExt::write_all_at(file, in_hand, at)?;
    Ok(std::mem::take(in_hand).len())
}

/// All or nothing, under this name.
fn write_whole(name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.new");
    fs::write(&temporary, bytes)?;
    fs::rename(temporary, name)
}

/// Lets go of the daemon's pipes; what we have to say from here on is in a file.
fn detach() {
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    if let Ok(null) = null {
        nix::unistd::dup2_stdin(&null).ok(); // it stays as it is, then
        nix::unistd::dup2_stdout(&null).ok(); // as above
    }
}
