//! The tree of processes below one, and its end.
//!
//! A child subreaper inherits every orphan below it, so all descendants can always be found by walking down. They are
//! stopped first: a stopped process cannot fork.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::identity::{self, ProcessStat, stat};
use intercom_types::Exit;

/// One process below another.
pub(super) struct ProcessBelow {
    pub(super) pid: i32,
    pub(super) stat: ProcessStat,
}

/// Returns all descendants of `root`, nearest first, including zombies.
pub(super) fn walk(root: i32) -> Vec<ProcessBelow> {
    let mut found = Vec::new();
    let mut next = VecDeque::from([(root, stat(root).is_some_and(|stat| stat.threads == 1))]);
    let mut by_scan = None;
    while let Some((parent, has_one_thread)) = next.pop_front() {
        // The list of threads costs more than the list of children, and most processes have one thread.
        let listed = if has_one_thread { children_of_thread(parent) } else { None };
        for pid in listed.unwrap_or_else(|| children_or_scan(parent, &mut by_scan)) {
            let stat = stat(pid);
            next.push_back((pid, stat.as_ref().is_some_and(|stat| stat.threads == 1)));
            found.extend(stat.map(|stat| ProcessBelow { pid, stat }));
        }
    }
    found
}

/// Returns the children of the first thread of a process; `None` if they cannot be read in one go. A process that begins
/// a second thread between two reads is looked at again in the next look.
fn children_of_thread(pid: i32) -> Option<Vec<i32>> {
    let text = identity::short(&format!("/proc/{pid}/task/{pid}/children"))?;
    // A full page may end in the middle of a pid.
    (text.len() < identity::SHORT).then(|| text.split_ascii_whitespace().flat_map(str::parse).collect())
}

/// Returns all living descendants of `root`, nearest first. Zombies are not living.
pub(super) fn descendants(root: i32) -> Vec<i32> {
    living(root).map(|below| below.pid).collect()
}

pub(super) fn living(root: i32) -> impl Iterator<Item = ProcessBelow> {
    walk(root).into_iter().filter(|below| !below.stat.is_dead())
}

/// Returns the children of a process. If the kernel does not list children, they come from one scan of all processes,
/// which `by_scan` caches.
fn children_or_scan(parent: i32, by_scan: &mut Option<Vec<(i32, i32)>>) -> Vec<i32> {
    children(parent).unwrap_or_else(|| {
        let all = by_scan.get_or_insert_with(identity::parents);
        all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid).collect()
    })
}

/// Returns the children of all threads of a process; `None` if the kernel does not list them.
pub(super) fn children(pid: i32) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Some(found); // the process has exited
    };
    for thread in threads.flatten() {
        match std::fs::read_to_string(thread.path().join("children")) {
            Ok(text) => found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && thread.path().exists() => {
                return None;
            }
            Err(_) => {} // the thread has exited
        }
    }
    Some(found)
}

/// The time during which processes are only stopped, before those found are killed. A tree that grows faster than it is
/// found is cut down in rounds, and the caller has to reap the dead in between: they occupy places in the process
/// table.
const STOPPING: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Stops and kills the descendants of `root`, which is the caller, a child subreaper that reaps no process meanwhile.
/// Returns the killed processes.
///
/// The argument that this converges, whatever the tree does:
///
/// - A process with a pending SIGSTOP cannot fork: the kernel refuses to link a child to a parent that has a signal
///   pending. So a process that appears after its parent was signalled was linked before, and the next walk finds it.
/// - Processes are signalled as soon as they are found, nearest first. A relay, which forks every few milliseconds and
///   exits, is caught if it lives from the reading of the list to its signal, a few microseconds per sibling. One that
///   is missed has one successor, which the next walk finds among our own children: an orphan becomes ours in the same
///   moment in which its parent dies.
/// - No process is killed before a walk finds no new one, so that a tree that forks when a member dies has no reason
///   to, and one that forks endlessly reaches the limit on processes, whose places the stopped ones occupy.
/// - A pid that was signalled stays in use: our children are reaped only by us, and not here; a child of a stopped
///   process is not reaped by that parent. So `stopped` never withholds a signal from a later process.
///
/// A walk that finds no new process proves that all are stopped only if none was missed, and a busy machine can delay
/// us between list and signal for longer than all relays live. So no walk decides whether the tree is *empty*: see
/// [`ReapResult::Childless`].
pub(super) fn sweep(root: i32) -> HashSet<i32> {
    let (mut stopped, deadline) = (HashSet::new(), Instant::now() + STOPPING);
    loop {
        let before = stopped.len();
        stop_below(root, &mut stopped);
        if stopped.len() == before || Instant::now() > deadline {
            break;
        }
    }
    let is_below = |stat: &ProcessStat| stat.parent == root || stopped.contains(&stat.parent);
    let living = |pid: &i32| stat(*pid).is_some_and(|stat| !stat.is_dead() && is_below(&stat));
    let killed: HashSet<i32> = stopped.iter().copied().filter(living).collect();
    for pid in &killed {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).ok(); // it may have just gone
    }
    killed
}

/// Ends all descendants of `root`, the caller, and reaps them.
pub(super) fn end(root: i32, patience: Duration) {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        match reap() {
            ReapResult::Child(..) => {}
            ReapResult::Childless => return,
            ReapResult::Waiting => {
                sweep(root);
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }
}

/// Walks the tree once and stops each process as soon as it is found.
fn stop_below(root: i32, stopped: &mut HashSet<i32>) {
    let mut next = VecDeque::from([root]);
    let mut by_scan = None;
    while let Some(parent) = next.pop_front() {
        let below = children_or_scan(parent, &mut by_scan);
        // Signal all of them before anything else is read: reading takes long enough for a relay to exit.
        for pid in &below {
            kill(Pid::from_raw(*pid), Signal::SIGSTOP).ok(); // it may have just gone
        }
        stopped.extend(&below);
        next.extend(below);
    }
}

/// The result of a check for children that have ended.
pub(super) enum ReapResult {
    /// One child had ended and was reaped.
    Child(i32, Exit),
    /// Children exist, and none has ended.
    Waiting,
    /// There are no children, so there is no tree. This is exact, unlike any walk: the kernel checks all children under
    /// the lock that guards forks, deaths and adoptions. Every process below a subreaper has an ancestor among its
    /// children, because a parent that dies hands its children on to the subreaper in the same step.
    Childless,
}

/// Reaps one child that has ended.
pub(super) fn reap() -> ReapResult {
    // `__WALL` includes children that were created with another exit signal than SIGCHLD.
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
    loop {
        match waitpid(None, Some(flags)) {
            Ok(WaitStatus::Exited(pid, code)) => {
                return ReapResult::Child(pid.as_raw(), Exit { code: Some(code), signal: None });
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                return ReapResult::Child(pid.as_raw(), Exit { code: None, signal: Some(signal as i32) });
            }
            Err(Errno::ECHILD) => return ReapResult::Childless,
            Ok(WaitStatus::StillAlive) | Err(_) => return ReapResult::Waiting,
            Ok(_) => {}
        }
    }
}
