//! Every process below one, and how to end them all.
//!
//! A process that is a child subreaper inherits every orphan below it, so its descendants can always be found by walking
//! down. They are stopped first: a process that cannot run cannot fork away.

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

/// All descendants of `root`, nearest first, with those that are dead and not yet reaped.
pub(super) fn walk(root: i32) -> Vec<ProcessBelow> {
    let mut found = Vec::new();
    let mut next = VecDeque::from([root]);
    let mut by_scan = None;
    while let Some(parent) = next.pop_front() {
        for pid in children_or_scan(parent, &mut by_scan) {
            next.push_back(pid);
            found.extend(stat(pid).map(|stat| ProcessBelow { pid, stat }));
        }
    }
    found
}

/// All living descendants of `root`, nearest first. Zombies are not living.
pub(super) fn descendants(root: i32) -> Vec<i32> {
    living(root).map(|below| below.pid).collect()
}

pub(super) fn living(root: i32) -> impl Iterator<Item = ProcessBelow> {
    walk(root).into_iter().filter(|below| !below.stat.is_dead())
}

/// The children of a process. On a kernel without the list of children: by everybody's parent, looked at once.
fn children_or_scan(parent: i32, by_scan: &mut Option<Vec<(i32, i32)>>) -> Vec<i32> {
    children(parent).unwrap_or_else(|| {
        let all = by_scan.get_or_insert_with(identity::parents);
        all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid).collect()
    })
}

/// The children of all threads of a process; `None` where the kernel does not list them.
pub(super) fn children(pid: i32) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Some(found); // it has gone
    };
    for thread in threads.flatten() {
        match std::fs::read_to_string(thread.path().join("children")) {
            Ok(text) => found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && thread.path().exists() => {
                return None;
            }
            Err(_) => {} // the thread has gone
        }
    }
    Some(found)
}

/// The time during which processes are only stopped before those that were found are killed. A tree that
/// grows faster than it is found is cut down in rounds, and the caller has to reap the dead in between: they
/// take places in the table of processes.
const STOPPING: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Stops and kills the descendants of `root`: of the caller, a child subreaper that reaps nobody meanwhile. Returns who was killed.
///
/// Why this converges, whatever the tree does:
///
/// - A process with a pending SIGSTOP cannot fork: the kernel refuses to link a child to a parent that has a signal pending. So a process that
///   appears after its parent was signalled was linked before, and the next walk sees it.
/// - Processes are signalled at sight, nearest first. A relay, which forks every few milliseconds and exits, is caught if it lives from the
///   reading of the list to its signal, a few microseconds per sibling. One that is missed has one successor, which the next walk
///   finds among our own children: an orphan becomes ours in the same moment in which its parent dies.
/// - Nobody is killed before a walk finds nobody new, so that a tree which forks when a member dies has no reason to, and one that forks without
///   end runs into the limit on processes, whose places the stopped ones keep.
/// - A number that we have signalled stays taken: our children are reaped by us alone, and not here; and a child of a stopped process is not
///   reaped by that. So `stopped` never holds back a signal from a process that came later.
///
/// A walk that finds nobody new proves that all are stopped only if nobody was missed, and a busy machine can hold us up between list and
/// look for longer than all relays live. So whether the tree is *empty* is never asked of a walk: see [`ReapResult::Childless`].
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

/// One walk that stops everybody at sight.
fn stop_below(root: i32, stopped: &mut HashSet<i32>) {
    let mut next = VecDeque::from([root]);
    let mut by_scan = None;
    while let Some(parent) = next.pop_front() {
        let below = children_or_scan(parent, &mut by_scan);
        // All of them before anything else is read: that takes long enough for a relay to be gone.
        for pid in &below {
            kill(Pid::from_raw(*pid), Signal::SIGSTOP).ok(); // it may have just gone
        }
        stopped.extend(&below);
        next.extend(below);
    }
}

/// A look for children that have ended.
pub(super) enum ReapResult {
    /// One has, and is reaped.
    Child(i32, Exit),
    /// Children are left, and none has ended.
    Waiting,
    /// There are no children, so there is no tree. This is exact, unlike any walk: the kernel looks at all children under the lock
    /// that guards forks, deaths and adoptions. Whoever lives below a subreaper has an ancestor among its children, because a parent that
    /// dies hands its children on to the subreaper in the same step.
    Childless,
}

/// Reaps one child that has ended.
pub(super) fn reap() -> ReapResult {
    // Also those that were made with another signal than SIGCHLD for their end.
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
