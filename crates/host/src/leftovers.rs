//! Processes of an agent whose shim has died: found by more than one trace, and ended.
//!
//! With the shim, its children have lost the parent below which all of them could be found. What is left of the tree is
//! known by what it cannot or usually does not take off: the mark in its environment, its kernel session, its cgroup, the pipes that are the
//! agent's stdout and stderr, and a parent that is known by one of these.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::Signal;

use super::cgroup::Cgroup;
use super::environment::{PART_VARIABLE, SESSION_VARIABLE};
use super::frame::ExitRecord;
use super::identity::{ProcessIdentity, ProcessStat, boot_id, pids, stat, variable};
use super::record::{ShimMeta, is_copied};
use super::running_shims::{ancestors, is_shim};
use super::{REBOOTED, journal};

const LOOK_AGAIN: Duration = Duration::from_millis(5);
const GIVE_UP: Duration = Duration::from_secs(5);
/// The time during which processes are only stopped before those that were found are killed: a tree that
/// grows faster than it is found is cut down in rounds.
const STOPPING: Duration = Duration::from_millis(500);
/// Looks in a row that find nobody before nobody is left. A process that hands its life on to a child every few milliseconds can
/// be missed by one look: its number was not there when the numbers were listed, and the one that was has gone. By the
/// next look that one is an old number, and looks are independent of each other.
const EMPTY_LOOKS: u32 = 10;
/// The same once a process was found that had gone before it could be stopped: there is such a relay.
const EMPTY_LOOKS_FOR_RELAYS: u32 = 100;
/// The time that one look spends on processes born during it, and the largest range of new process ids that
/// it goes through; beyond it, the processes are listed again.
const CHASE: Duration = Duration::from_millis(100);
const MAX_BORN: i32 = 4096;
/// Looks that find that a process is a stranger before it is one for good. One alone may fall into the moment of an `exec`, when a process
/// has no environment.
const STRANGE: u8 = 2;
/// The end of an agent whose directory was copied, as far as the copy is concerned.
const COPIED: &str = "its directory is a copy, and its agent another daemon's";
/// More than a pipe can hold.
const MAX_RESCUED: u64 = 16 << 20;

/// Ends the tree and says what happened. After a restart of the machine there is nothing to end.
pub(super) fn end(meta: &ShimMeta, dir: &Path) -> ExitRecord {
    if meta.agent.boot != boot_id() {
        let reason = REBOOTED.to_owned();
        return ExitRecord { reason, ..ExitRecord::default() };
    }
    if is_copied(meta, dir) {
        tracing::error!(
            session.id = meta.session,
            "{} is a copy; its agent belongs to another state directory, and is left alone",
            dir.display()
        );
        return ExitRecord { reason: COPIED.to_owned(), ..ExitRecord::default() };
    }
    let search = LeftoverSearch::new(meta, dir);
    let (mut killed, mut rescued) = (HashSet::new(), 0);
    let (deadline, mut empty) = (Instant::now() + GIVE_UP, 0);
    while empty < search.enough_looks() {
        let stopped = search.stop_all();
        // While a writer still holds the pipe, and none can write to it.
        rescued += rescue_output(meta, dir, &stopped);
        for process in &stopped {
            process.kill();
        }
        search.cgroup.iter().for_each(Cgroup::kill);
        empty = if stopped.is_empty() { empty + 1 } else { 0 };
        killed.extend(stopped.into_iter().map(|process| (process.pid, process.started)));
        if Instant::now() > deadline {
            tracing::error!(
                session.id = meta.session,
                "processes of an agent whose shim died cannot be killed; `intercom doctor` lists them"
            );
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    search.cgroup.iter().for_each(Cgroup::remove);
    ExitRecord {
        reason: "its shim died".to_owned(),
        steps: if killed.is_empty() { Vec::new() } else { vec!["sigkill".to_owned()] },
        killed: u32::try_from(killed.len()).unwrap_or(u32::MAX),
        rescued: Some(rescued),
        ..ExitRecord::default()
    }
}

/// Those that are left of the agent of a directory, as of now.
pub(super) fn members(meta: &ShimMeta, dir: &Path) -> Vec<ProcessIdentity> {
    if meta.agent.boot != boot_id() || is_copied(meta, dir) {
        return Vec::new();
    }
    LeftoverSearch::new(meta, dir).look(&HashSet::new(), |_| {})
}

/// The number that was given to a process last.
fn newest_pid() -> Option<i32> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}

/// Adds the numbers that were given out since `newest`, and returns the first of them. `None` if there are none, or no more time.
fn next_born(numbers: &mut VecDeque<i32>, newest: &mut Option<i32>, deadline: Instant) -> Option<i32> {
    let (before, now) = (newest.as_ref().copied()?, newest_pid()?);
    *newest = Some(now);
    if Instant::now() > deadline {
        return None;
    }
    // Numbers begin anew behind the largest; and a machine that gives out very many is listed again.
    if (before..before.saturating_add(MAX_BORN)).contains(&now) {
        numbers.extend(before + 1..=now);
    } else {
        numbers.extend(pids().filter(|pid| *pid > 1));
    }
    numbers.pop_front()
}

/// The features by which the processes of an agent are told from all others.
struct LeftoverSearch<'a> {
    meta: &'a ShimMeta,
    cgroup: Option<Cgroup>,
    /// The directory of the process, and that of its session, as the kernel calls them.
    dir: PathBuf,
    session_dir: Option<PathBuf>,
    mark: (&'static str, &'a str),
    own: i32,
    /// The number of times that a process was found to be a stranger. One found so often enough is not
    /// examined closely again: a quick look misses few.
    strangers: RefCell<HashMap<(i32, u64), u8>>,
    /// Somebody had gone before they could be stopped.
    has_relays: Cell<bool>,
}

impl<'a> LeftoverSearch<'a> {
    fn new(meta: &'a ShimMeta, dir: &Path) -> Self {
        let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self {
            dir: canonical(dir),
            session_dir: dir.parent().map(canonical),
            cgroup: meta.cgroup.as_deref().and_then(Cgroup::existing),
            mark: match &meta.part {
                Some(part) => (PART_VARIABLE, part),
                None => (SESSION_VARIABLE, &meta.session),
            },
            strangers: RefCell::default(),
            has_relays: Cell::new(false),
            own: i32::try_from(std::process::id()).expect("pids fit into an i32"),
            meta,
        }
    }

    fn enough_looks(&self) -> u32 {
        if self.has_relays.get() { EMPTY_LOOKS_FOR_RELAYS } else { EMPTY_LOOKS }
    }

    /// Stops everybody who is found, until a look finds nobody new. Stopped before killed: a process that cannot run cannot
    /// fork, and keeps its place in every limit on processes, so that a tree which forks as fast as it is killed runs into that.
    fn stop_all(&self) -> Vec<ProcessIdentity> {
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        let deadline = Instant::now() + STOPPING;
        loop {
            // At sight, not after the look: who is looked at next may have gone by then.
            let fresh = self.look(&seen, |process| {
                if !process.signal(Signal::SIGSTOP) {
                    self.has_relays.set(true);
                }
            });
            let none = fresh.is_empty();
            seen.extend(fresh.iter().map(|process| (process.pid, process.started)));
            all.extend(fresh);
            if none || Instant::now() > deadline {
                return all;
            }
        }
    }

    /// One look at all processes. Calls `found` at once for each that belongs to the agent and is not in `seen`, and returns
    /// them.
    fn look(
        &self,
        seen: &HashSet<(i32, u64)>,
        mut found: impl FnMut(&ProcessIdentity),
    ) -> Vec<ProcessIdentity> {
        let in_cgroup: HashSet<i32> = self.cgroup.iter().flat_map(Cgroup::members).collect();
        let (mut newest, deadline) = (newest_pid(), Instant::now() + CHASE);
        let mut numbers: Vec<i32> = pids().filter(|pid| *pid > 1 && *pid != self.own).collect();
        // The youngest first: they are the ones that may be gone in a moment.
        numbers.sort_unstable_by_key(|pid| std::cmp::Reverse(*pid));
        let mut numbers = VecDeque::from(numbers);
        let (mut fresh, mut others, mut members) = (Vec::new(), Vec::new(), HashSet::new());
        let mut take = |pid: i32, stat: &ProcessStat, members: &mut HashSet<i32>| {
            members.insert(pid);
            if !seen.contains(&(pid, stat.started)) {
                let process =
                    ProcessIdentity { pid, boot: self.meta.agent.boot.clone(), started: stat.started };
                found(&process);
                fresh.push(process);
            }
        };
        let mut looked_at = HashSet::new();
        // Then those that were born meanwhile, until nobody was: whoever is missed by a list has gone, or has handed its life on
        // to a number that was given out after the list was begun.
        while let Some(pid) = numbers.pop_front().or_else(|| next_born(&mut numbers, &mut newest, deadline)) {
            let Some(stat) = stat(pid).filter(|stat| !stat.is_dead()) else { continue };
            if pid == self.own || !looked_at.insert((pid, stat.started)) {
                continue;
            }
            if self.strangers.borrow().get(&(pid, stat.started)).is_some_and(|times| *times >= STRANGE) {
                continue;
            }
            if self.is_known(pid, &stat, &in_cgroup) && !self.is_spared(pid) {
                take(pid, &stat, &mut members);
            } else {
                others.push((pid, stat));
            }
        }
        // Then whoever is below them, or has only a pipe in common with them.
        others.retain(|(pid, stat)| {
            let holds = self.holds_output(*pid, stat) && !self.is_spared(*pid);
            if holds {
                take(*pid, stat, &mut members);
            }
            !holds
        });
        loop {
            let before = others.len();
            others.retain(|(pid, stat)| {
                let below = members.contains(&stat.parent) && !self.is_spared(*pid);
                if below {
                    take(*pid, stat, &mut members);
                }
                !below
            });
            if others.len() == before {
                break;
            }
        }
        let mut strangers = self.strangers.borrow_mut();
        for (pid, stat) in others {
            let times = strangers.entry((pid, stat.started)).or_default();
            *times = times.saturating_add(1);
        }
        fresh
    }

    fn is_known(&self, pid: i32, stat: &ProcessStat, in_cgroup: &HashSet<i32>) -> bool {
        let agent = &self.meta.agent;
        (pid == agent.pid && stat.started == agent.started)
            || in_cgroup.contains(&pid)
            || variable(pid, self.mark.0).is_some_and(|mark| mark == self.mark.1)
            || self.is_of_its_session(pid, stat)
    }

    /// Tells whether the agent began the kernel session of this process. The number of a session is not given to anybody else while it has
    /// members; but once it had none, it may have been, and then its leader is another process or it carries another mark.
    fn is_of_its_session(&self, pid: i32, found: &ProcessStat) -> bool {
        let agent = &self.meta.agent;
        if agent.started == 0 || found.leader != agent.pid || found.started < agent.started {
            return false;
        }
        let led_by_another = stat(agent.pid).is_some_and(|leader| leader.started != agent.started);
        let of_another = variable(pid, SESSION_VARIABLE).is_some_and(|session| session != self.meta.session);
        let same_user = owner(pid).is_some_and(|uid| uid == nix::unistd::geteuid().as_raw());
        !led_by_another && !of_another && same_user
    }

    /// Tells whether it can still write to what was the agent's stdout or stderr. Who reads from it is a daemon.
    fn holds_output(&self, pid: i32, stat: &ProcessStat) -> bool {
        let pipes = [self.meta.stdout, self.meta.stderr];
        stat.started >= self.meta.agent.started
            && pipes.into_iter().flatten().any(|inode| writable_end(pid, inode).is_some())
    }

    /// Tells whether another shim of the same session looks after it: of a terminal, or of another generation. Its processes carry the
    /// same mark.
    fn is_spared(&self, pid: i32) -> bool {
        let Some(session) = &self.session_dir else { return false };
        ancestors(pid).any(|above| {
            let place = || std::fs::read_link(format!("/proc/{above}/cwd"));
            is_shim(above) && place().is_ok_and(|place| place != self.dir && place.starts_with(session))
        })
    }
}

/// Moves what the pipe of the agent's output still holds to the end of its journal, and returns how much that was. The last end to read from may
/// have gone with shim and daemon; what was written is there as long as somebody holds an end to write to, and a pipe can be opened
/// anew through that.
fn rescue_output(meta: &ShimMeta, dir: &Path, writers: &[ProcessIdentity]) -> u64 {
    let Some(inode) = meta.stdout else { return 0 };
    let path = writers.iter().find_map(|writer| writable_end(writer.pid, inode));
    let open = |path| File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let Some(Ok(mut pipe)) = path.map(open) else { return 0 };
    let (mut chunk, mut rescued) = ([0; 16 * 1024], 0);
    // Until it is empty. Somebody who was not found may write on.
    while rescued < MAX_RESCUED {
        match pipe.read(&mut chunk) {
            Ok(read @ 1..) if journal::append(dir, &chunk[..read]).is_ok() => rescued += read as u64,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    rescued
}

/// The descriptor, below `/proc`, through which a process can write to this pipe.
pub(super) fn writable_end(pid: i32, inode: u64) -> Option<PathBuf> {
    let wanted = PathBuf::from(format!("pipe:[{inode}]"));
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let mut paths = open.flatten().map(|entry| entry.path());
    paths.find(|path| {
        let writes =
            |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.permissions().mode() & 0o200 != 0);
        std::fs::read_link(path).is_ok_and(|target| target == wanted) && writes(path)
    })
}

fn owner(pid: i32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// Is true while a process of this number runs.
pub fn is_running(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| !stat.is_dead())
}
