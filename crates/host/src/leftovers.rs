//! The processes of an agent whose shim has died: found by more than one trace, and ended.
//!
//! Without the shim, its children have lost the parent below which all of them could be found. The rest of the tree is
//! identified by traces that it cannot or usually does not remove: the mark in its environment, its kernel session, its
//! cgroup, the pipes that are the agent's stdout and stderr, and a parent identified by one of these.

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
/// The time during which processes are only stopped, before those found are killed: a tree that grows faster than it is
/// found is cut down in rounds.
const STOPPING: Duration = Duration::from_millis(500);
/// The number of consecutive empty looks after which no process is left. A relay, which passes its life on to a child
/// every few milliseconds, can be missed by one look: its pid was not there when the pids were listed, and the listed
/// one has exited. By the next look that pid is old, and looks are independent of each other.
const EMPTY_LOOKS: u32 = 10;
/// The number of empty looks once a process was found that exited before it could be stopped: there is such a relay.
const EMPTY_LOOKS_FOR_RELAYS: u32 = 100;
/// The time that one look spends on processes created during it, and the largest range of new pids that it examines;
/// beyond it, the processes are listed again.
const CHASE: Duration = Duration::from_millis(100);
const MAX_BORN: i32 = 4096;
/// The number of looks after which an unrelated process is not examined again. A single look may coincide with an
/// `exec`, when a process has no environment.
const STRANGE: u8 = 2;
/// The reason for the end of an agent whose directory is a copy.
const COPIED: &str = "its directory is a copy, and its agent belongs to another daemon";
/// The limit of rescued output: more than a pipe can hold.
const MAX_RESCUED: u64 = 16 << 20;

/// Ends the tree and returns the exit record. After a restart of the machine there is nothing to end.
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
        // Before the kill: the pipe exists only while a writer holds it, and stopped writers cannot write to it
        // meanwhile.
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

/// Returns the processes that are left of a directory's agent, as of now.
pub(super) fn members(meta: &ShimMeta, dir: &Path) -> Vec<ProcessIdentity> {
    if meta.agent.boot != boot_id() || is_copied(meta, dir) {
        return Vec::new();
    }
    LeftoverSearch::new(meta, dir).look(&HashSet::new(), |_| {})
}

/// Returns the pid that was assigned last.
fn newest_pid() -> Option<i32> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}

/// Adds the pids that were assigned since `newest`, and returns the first of them. `None` if there are none, or the
/// time is over.
fn next_born(
    pids_to_examine: &mut VecDeque<i32>,
    newest: &mut Option<i32>,
    deadline: Instant,
) -> Option<i32> {
    let (before, now) = (newest.as_ref().copied()?, newest_pid()?);
    *newest = Some(now);
    if Instant::now() > deadline {
        return None;
    }
    // Pids wrap around; then, and if very many were assigned, all processes are listed again.
    if (before..before.saturating_add(MAX_BORN)).contains(&now) {
        pids_to_examine.extend(before + 1..=now);
    } else {
        pids_to_examine.extend(pids().filter(|pid| *pid > 1));
    }
    pids_to_examine.pop_front()
}

/// The traces that distinguish an agent's processes from all others.
struct LeftoverSearch<'a> {
    meta: &'a ShimMeta,
    cgroup: Option<Cgroup>,
    /// The canonical directories of the process and of its session.
    dir: PathBuf,
    session_dir: Option<PathBuf>,
    mark: (&'static str, &'a str),
    own: i32,
    /// The number of times that a process was found to be unrelated. Above [`STRANGE`] it is not examined again: a fast
    /// look misses fewer processes.
    strangers: RefCell<HashMap<(i32, u64), u8>>,
    /// A process exited before it could be stopped.
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

    /// Stops all processes that are found, until a look finds no new one. They are stopped before they are killed: a
    /// stopped process cannot fork, and occupies its place in every limit on processes, so that a tree that forks as
    /// fast as it is killed reaches that limit.
    fn stop_all(&self) -> Vec<ProcessIdentity> {
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        let deadline = Instant::now() + STOPPING;
        loop {
            // Immediately, not after the look: by then the process may have exited.
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

    /// Examines all processes once. Calls `found` immediately for each that belongs to the agent and is not in `seen`,
    /// and returns them.
    fn look(
        &self,
        seen: &HashSet<(i32, u64)>,
        mut found: impl FnMut(&ProcessIdentity),
    ) -> Vec<ProcessIdentity> {
        let in_cgroup: HashSet<i32> = self.cgroup.iter().flat_map(Cgroup::members).collect();
        let (mut newest, deadline) = (newest_pid(), Instant::now() + CHASE);
        let mut pids_to_examine: Vec<i32> = pids().filter(|pid| *pid > 1 && *pid != self.own).collect();
        // The youngest first: they are the most likely to exit soon.
        pids_to_examine.sort_unstable_by_key(|pid| std::cmp::Reverse(*pid));
        let mut pids_to_examine = VecDeque::from(pids_to_examine);
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
        // Then those created meanwhile, until there are none: a process that is missing from a list has exited, or has
        // passed its life on to a pid that was assigned after the list was begun.
        while let Some(pid) =
            pids_to_examine.pop_front().or_else(|| next_born(&mut pids_to_examine, &mut newest, deadline))
        {
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
        // Then processes below them, and processes that share only a pipe with them.
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

    /// Reports whether the agent began the kernel session of this process. The number of a session is not reused while
    /// it has members; afterwards it may be, and then its leader is another process or the process carries another
    /// mark.
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

    /// Reports whether a process can still write to the agent's stdout or stderr pipe. A process that only reads from
    /// one is a daemon.
    fn holds_output(&self, pid: i32, stat: &ProcessStat) -> bool {
        let pipes = [self.meta.stdout, self.meta.stderr];
        stat.started >= self.meta.agent.started
            && pipes.into_iter().flatten().any(|inode| writable_end(pid, inode).is_some())
    }

    /// Reports whether another shim of the same session owns the process: that of a terminal, or of another generation.
    /// Such processes carry the same mark.
    fn is_spared(&self, pid: i32) -> bool {
        let Some(session) = &self.session_dir else { return false };
        ancestors(pid).any(|above| {
            let place = || std::fs::read_link(format!("/proc/{above}/cwd"));
            is_shim(above) && place().is_ok_and(|place| place != self.dir && place.starts_with(session))
        })
    }
}

/// Moves the rest of the agent's stdout pipe to the end of its journal, and returns the number of bytes. The last
/// reading end may have closed with shim and daemon; the data exists as long as a process holds a writing end, and a
/// pipe can be opened for reading through that.
fn rescue_output(meta: &ShimMeta, dir: &Path, writers: &[ProcessIdentity]) -> u64 {
    let Some(inode) = meta.stdout else { return 0 };
    let path = writers.iter().find_map(|writer| writable_end(writer.pid, inode));
    let open = |path| File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let Some(Ok(mut pipe)) = path.map(open) else { return 0 };
    let (mut chunk, mut rescued) = ([0; 16 * 1024], 0);
    // Until it is empty, up to a limit: a process that was not found may keep writing.
    while rescued < MAX_RESCUED {
        match pipe.read(&mut chunk) {
            Ok(read @ 1..) if journal::append(dir, &chunk[..read]).is_ok() => rescued += read as u64,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    rescued
}

/// Returns the path below `/proc` of a descriptor through which a process can write to this pipe.
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

/// Reports whether a process with this pid runs.
pub fn is_running(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| !stat.is_dead())
}
