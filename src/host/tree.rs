//! Every process below one, and how to end them all.
//!
//! A process that is a child subreaper inherits every orphan below it, so its descendants can always be found by walking
//! down. They are stopped first: a process that cannot run cannot fork away.

use std::collections::{HashSet, VecDeque};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::identity::{self, Stat, stat};

/// One process below another.
pub(super) struct Below {
    pub(super) pid: i32,
    pub(super) stat: Stat,
}

/// All descendants of `root`, nearest first, with those that are dead and not yet reaped.
pub(super) fn walk(root: i32) -> Vec<Below> {
    let mut found = Vec::new();
    let mut next = VecDeque::from([root]);
    let mut by_scan = None;
    while let Some(parent) = next.pop_front() {
        // A kernel without the list of children: look at everybody's parent, once.
        let children = children(parent).unwrap_or_else(|| {
            let all: &Vec<(i32, i32)> = by_scan.get_or_insert_with(identity::parents);
            all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid).collect()
        });
        for pid in children {
            next.push_back(pid);
            found.extend(stat(pid).map(|stat| Below { pid, stat }));
        }
    }
    found
}

/// All living descendants of `root`, nearest first. Zombies are not living.
pub(super) fn descendants(root: i32) -> Vec<i32> {
    living(root).map(|below| below.pid).collect()
}

pub(super) fn living(root: i32) -> impl Iterator<Item = Below> {
    walk(root).into_iter().filter(|below| !below.stat.is_dead())
}

/// The children of all threads of a process; `None` where the kernel does not list them.
fn children(pid: i32) -> Option<Vec<i32>> {
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

/// Stops and kills all descendants of `root`, until a look finds none that was not killed. Returns who was.
pub(super) fn sweep(root: i32) -> HashSet<i32> {
    let mut stopped = HashSet::new();
    // Each round stops at least one more process that could fork; bounded by what the system can hold.
    loop {
        let fresh: Vec<i32> = descendants(root).into_iter().filter(|pid| stopped.insert(*pid)).collect();
        if fresh.is_empty() {
            break;
        }
        for pid in fresh {
            kill(Pid::from_raw(pid), Signal::SIGSTOP).ok(); // it may have just gone
        }
    }
    for pid in &stopped {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).ok(); // as above
    }
    stopped
}
