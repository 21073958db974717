//! The activity of an agent's processes: CPU time, I/O and connections.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;

use nix::fcntl::readlinkat;
use serde::{Deserialize, Serialize};

use super::identity::{short, stat};
use super::process_observer::{ProcessObserver, ticks_per_second};
use super::tcp;
use super::tree::{ProcessBelow, walk};

/// The time after the agent's start within which a new process is a part of it: the program behind an
/// adapter, its tool servers.
const SETTLING_SECONDS: u64 = 3;
/// The maximum number of open files examined per process.
const MAX_OPEN_FILES: usize = 1024;
const MAX_CHILDREN: usize = 8;
const MAX_NAME_CHARS: usize = 60;
const MAX_NAME_ARGUMENTS: usize = 3;
const MAX_COMMAND_LINE_BYTES: u64 = 4096;
const SHELLS: &[&str] = &["sh", "ash", "bash", "dash", "fish", "ksh", "zsh"];

/// The activity of an agent's processes since they began, as of now.
///
/// The counters grow while the tree lives, with few exceptions: a closed connection takes its bytes with it, and an
/// unreaped process takes its CPU time with it. A counter that fell therefore also means activity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessActivity {
    /// The CPU time of all processes, including ended ones that were reaped.
    pub cpu_millis: u64,
    /// Bytes read and written by any system call; `None` if the counters of no process are readable.
    pub io_bytes: Option<u64>,
    /// Bytes received, and sent and acknowledged, over open TCP connections, at most about a second old. `None` if
    /// socket owners are not visible or the kernel does not count. Connections in another network namespace are
    /// invisible and count as 0.
    pub net_bytes: Option<u64>,
    /// Established TCP connections, with the same restrictions.
    pub connections: Option<u32>,
    /// The name of a stopped or traced process that is the agent or a part of it.
    pub stopped: Option<String>,
    /// The processes that the agent has started, the one it most likely waits for first; at most [`MAX_CHILDREN`].
    pub children: Vec<ChildProcess>,
    /// The number of living processes, including the agent.
    pub processes: u32,
}

/// A process that the agent has started. Parts of the agent, which started together with it, come last; within each
/// group the oldest process comes first. A shell that only runs one command is replaced by that command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildProcess {
    /// The process started together with the agent and belongs to it.
    pub is_part: bool,
    /// The program and the words that follow, up to the first that may be an option, a secret or a script.
    pub name: String,
    pub age_millis: u64,
}

impl ProcessObserver {
    /// Returns the activity of the tree, or `None` if the shim has exited. Takes a few short reads per process: it does
    /// not block, but should not run hundreds of times on a thread that others wait for.
    pub fn activity(&self) -> Option<ProcessActivity> {
        let mut whole = self.shim.exists().then(|| of_tree(self.shim_pid())).flatten()?;
        for part in self.parts().into_iter().filter_map(|part| of_tree(part.pid)) {
            whole.add(part);
        }
        Some(whole)
    }
}

impl ProcessActivity {
    /// Adds the activity of a part that runs under its own shim: the agent has started that, too.
    fn add(&mut self, part: Self) {
        let sum = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).reduce(u64::saturating_add);
        self.cpu_millis = self.cpu_millis.saturating_add(part.cpu_millis);
        self.io_bytes = sum(self.io_bytes, part.io_bytes);
        self.net_bytes = sum(self.net_bytes, part.net_bytes);
        let both = self.connections.into_iter().chain(part.connections);
        self.connections = both.reduce(u32::saturating_add);
        let children = part.children.into_iter().map(|child| ChildProcess { is_part: false, ..child });
        self.children.splice(0..0, children);
        self.children.truncate(MAX_CHILDREN);
        self.processes = self.processes.saturating_add(part.processes);
    }
}

/// Returns the activity of everything below `root`, which does not count itself.
fn of_tree(root: i32) -> Option<ProcessActivity> {
    // The root is a subreaper: it reaps orphans, so their CPU time is in its own `reaped_ticks`.
    let reaped = stat(root)?.reaped_ticks;
    let (dead, living): (Vec<ProcessBelow>, Vec<ProcessBelow>) =
        walk(root).into_iter().partition(|it| it.stat.is_dead());
    let ticks = living.iter().chain(&dead).map(|it| it.stat.ticks.saturating_add(it.stat.reaped_ticks));
    let (net_bytes, connections) = network(&living).unzip();
    let parts = parts(&living, root);
    Some(ProcessActivity {
        cpu_millis: millis(ticks.fold(reaped, u64::saturating_add)),
        io_bytes: living.iter().filter_map(|it| io_bytes(it.pid)).reduce(u64::saturating_add),
        net_bytes: net_bytes.flatten(),
        connections,
        stopped: living
            .iter()
            .find(|it| matches!(it.stat.state, 'T' | 't') && parts.contains(&it.pid))
            .map(|it| printable(&it.stat.name)),
        children: children(&living, &parts),
        processes: u32::try_from(living.len()).unwrap_or(u32::MAX),
    })
}

fn millis(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / ticks_per_second()
}

/// Returns the bytes read and written by a process. The kernel adds those of reaped children to their parent's.
fn io_bytes(pid: i32) -> Option<u64> {
    let text = short(&format!("/proc/{pid}/io"))?;
    let number =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok();
    Some(number("rchar:")?.saturating_add(number("wchar:")?))
}

/// Returns bytes and established connections of the processes whose descriptors are readable. Skips the kernel query if
/// no process holds a socket.
fn network(living: &[ProcessBelow]) -> Option<(Option<u64>, u32)> {
    let mut held: Option<HashSet<u64>> = None;
    for sockets in living.iter().filter_map(|it| sockets(it.pid)) {
        held.get_or_insert_default().extend(sockets);
    }
    let held = held?;
    if held.is_empty() {
        return Some((Some(0), 0));
    }
    let all = tcp::connections()?;
    let ours: Vec<_> = held.iter().filter_map(|inode| all.get(inode)).collect();
    let bytes = ours.iter().try_fold(0_u64, |sum, it| Some(sum.saturating_add(it.bytes?)));
    let established = ours.iter().filter(|it| it.established).count();
    Some((bytes, u32::try_from(established).unwrap_or(u32::MAX)))
}

/// The inodes of all sockets that a process holds; `None` if its descriptors are not readable.
fn sockets(pid: i32) -> Option<Vec<u64>> {
    let path = format!("/proc/{pid}/fd");
    let (dir, entries) = (File::open(&path).ok()?, std::fs::read_dir(&path).ok()?);
    let links = entries.flatten().take(MAX_OPEN_FILES).filter_map(|entry| {
        let link = readlinkat(&dir, entry.file_name().as_os_str()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
    });
    Some(links.collect())
}

/// Returns the agent and the processes that started together with it. The agent is the first child that the root has
/// started; the root's other children are adopted orphans.
fn parts(living: &[ProcessBelow], root: i32) -> HashSet<i32> {
    let agent = living.iter().filter(|it| it.stat.parent == root).min_by_key(|it| it.stat.started);
    let Some(agent) = agent else { return HashSet::new() };
    let settled = agent.stat.started.saturating_add(SETTLING_SECONDS * ticks_per_second());
    let mut parts = HashSet::from([agent.pid]);
    // Parents come before their children.
    for it in living {
        if parts.contains(&it.stat.parent) && it.stat.started < settled {
            parts.insert(it.pid);
        }
    }
    parts
}

fn children(living: &[ProcessBelow], parts: &HashSet<i32>) -> Vec<ChildProcess> {
    let is_wrapper =
        |it: &ProcessBelow| SHELLS.contains(&it.stat.name.as_str()) && runs_a_command(&arguments(it.pid));
    let chosen = choose(living, parts, is_wrapper);
    if chosen.is_empty() {
        return Vec::new();
    }
    let Some(uptime) = uptime_millis() else { return Vec::new() };
    let child = |chosen: &ProcessBelow| ChildProcess {
        is_part: parts.contains(&chosen.pid),
        name: name(&arguments(chosen.pid), &chosen.stat.name),
        age_millis: uptime.saturating_sub(millis(chosen.stat.started)),
    };
    chosen.into_iter().map(child).collect()
}

/// Selects the processes to show, see [`ChildProcess`]. A process started by a part of the agent counts as started by
/// the agent.
fn choose<'a>(
    living: &'a [ProcessBelow],
    parts: &HashSet<i32>,
    is_wrapper: impl Fn(&ProcessBelow) -> bool,
) -> Vec<&'a ProcessBelow> {
    let mut found: Vec<&ProcessBelow> = living.iter().filter(|it| parts.contains(&it.stat.parent)).collect();
    found.sort_by_key(|it| (parts.contains(&it.pid), it.stat.started));
    found.truncate(MAX_CHILDREN);
    for chosen in &mut found {
        // Each step goes down one level, so as many steps as processes are enough, even if the tree changed meanwhile.
        for _ in living {
            let mut below = living.iter().filter(|it| it.stat.parent == chosen.pid);
            match (below.next(), below.next()) {
                (Some(only), None) if is_wrapper(chosen) => *chosen = only,
                _ => break,
            }
        }
    }
    found.dedup_by_key(|it| it.pid);
    found
}

/// Reports whether a shell's arguments have `-c`, also as in `bash --norc -lc`.
fn runs_a_command(arguments: &[String]) -> bool {
    let mut options = arguments.iter().skip(1).take_while(|word| word.starts_with('-'));
    options.any(|word| !word.starts_with("--") && word.contains('c'))
}

/// The beginning of a command line; empty if there is none or it is not readable.
fn arguments(pid: i32) -> Vec<String> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        file.take(MAX_COMMAND_LINE_BYTES).read_to_end(&mut bytes).ok(); // the process has exited: the part that was read is enough
    }
    let words = bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    words.collect()
}

/// Returns a printable name, see [`ChildProcess`].
fn name(arguments: &[String], otherwise: &str) -> String {
    let plain = |word: &&String| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '+');
        !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain)
    };
    let program = arguments.first().and_then(|word| word.rsplit('/').next()).filter(|word| !word.is_empty());
    let words = arguments.iter().skip(1).take_while(plain).take(MAX_NAME_ARGUMENTS).map(String::as_str);
    let name: Vec<&str> = std::iter::once(program.unwrap_or(otherwise)).chain(words).collect();
    printable(&name.join(" "))
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(MAX_NAME_CHARS).collect()
}

/// Returns the uptime, on the clock of process start times.
fn uptime_millis() -> Option<u64> {
    let text = short("/proc/uptime")?;
    let (seconds, hundredths) = text.split_ascii_whitespace().next()?.split_once('.')?;
    Some(seconds.parse::<u64>().ok()?.saturating_mul(1000) + hundredths.parse::<u64>().ok()?.min(99) * 10)
}

#[cfg(test)]
mod tests;
