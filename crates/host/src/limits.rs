//! The limits of this machine on the number of agents.
//!
//! Three kinds of resources run out as agents are started: descriptors of the daemon, places for processes, memory. Each
//! is one [`AgentLimit`]: what is left of it, what one agent takes, and how to raise it. The daemon refuses to start an
//! agent before the first of them is used up, because at the limit itself other things fail first, and without a clear
//! reason: the connection of a person, a tool of another agent, the database.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};

const MIB: u64 = 1 << 20;
/// The descriptors of a daemon for one agent: the shim's socket, the journal, the agent's stdout, and one to spare. A
/// terminal of an agent takes as many.
const DESCRIPTORS_EACH: u64 = 4;
/// The descriptors that are left for people, bridges and the database.
const DESCRIPTORS_KEPT: u64 = 64;
/// The threads of one agent, all of which count as processes: its shim, and an agent on Node with a tool or two.
const PROCESSES_EACH: u64 = 16;
/// The places that are left for what agents and people start.
const PROCESSES_KEPT: u64 = 32;
/// The memory of one agent: one on Node takes 300 to 500 MiB, with its child processes.
const MEMORY_EACH: u64 = 500 * MIB;

/// A resource that agents use up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLimit {
    /// The resource, as a short noun.
    pub name: &'static str,
    /// The limit, in words.
    pub limit: String,
    /// The amount that is left, in units of the resource.
    pub left: u64,
    /// The amount that one agent takes.
    pub each: u64,
    /// The amount that is kept for other purposes.
    pub kept: u64,
    /// The way to raise it.
    pub advice: String,
}

impl AgentLimit {
    /// Returns the number of further agents that fit.
    pub fn agents(&self) -> u64 {
        self.left.saturating_sub(self.kept) / self.each.max(1)
    }

    /// Reports whether there is too little for anything more, not only for a typical agent.
    fn is_used_up(&self) -> bool {
        self.left <= self.kept
    }
}

/// Returns the limits that apply to the daemon with this pid, or to one that this process would start; those that are
/// not known are left out.
pub fn agent_limits(daemon: Option<i32>) -> Vec<AgentLimit> {
    [descriptors(daemon), processes(), cgroup_processes(daemon), memory()].into_iter().flatten().collect()
}

/// Returns the limit that leaves no room for another agent of this daemon, in a sentence, and the way to raise it.
pub fn used_up_limit() -> Option<(String, String)> {
    let own = i32::try_from(std::process::id()).ok();
    // Memory has a setting of its own.
    let limits = [descriptors(own), processes(), cgroup_processes(own)];
    let limit = limits.into_iter().flatten().find(AgentLimit::is_used_up)?;
    Some((format!("no room for another agent: {} left of {}", limit.left, limit.limit), limit.advice))
}

/// Explains the failure to start a process, if a limit is the cause.
pub(super) fn explain(error: &io::Error) -> Option<String> {
    let cause = match error.raw_os_error().map(Errno::from_raw)? {
        Errno::EMFILE => {
            "the limit on open files of one process is reached; raise it (`ulimit -n`, `LimitNOFILE=`) or stop sessions"
        }
        Errno::ENFILE => {
            "the limit on open files of the machine is reached; raise it (`sysctl fs.file-max`) or stop sessions"
        }
        Errno::EAGAIN => {
            "a limit on processes is reached; raise it (`ulimit -u`, `TasksMax=`, `sysctl kernel.pid_max`) or stop sessions"
        }
        Errno::ENOMEM => "there is not enough memory; stop sessions, or give the machine more",
        _ => return None,
    };
    Some(format!("{cause} ({error})"))
}

/// Descriptors of the daemon. It raises its soft limit to the hard one itself.
fn descriptors(daemon: Option<i32>) -> Option<AgentLimit> {
    let of_daemon = daemon.and_then(|pid| {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        Some((hard_limit(&limits, "Max open files")?, open_files(pid)))
    });
    let (most, open) = match of_daemon {
        Some(found) => found,
        None => (getrlimit(Resource::RLIMIT_NOFILE).ok()?.1, 0),
    };
    Some(AgentLimit {
        name: "descriptors",
        limit: format!("{most} open files of the daemon"),
        left: most.saturating_sub(open),
        each: DESCRIPTORS_EACH,
        kept: DESCRIPTORS_KEPT,
        advice: "raise the hard limit on open files (`ulimit -Hn`, or `LimitNOFILE=` of the service) and restart the \
                 daemon, or stop sessions"
            .to_owned(),
    })
}

/// Returns the hard limit in a file such as `/proc/self/limits`; `None` also if there is none.
fn hard_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the number of open files of a process. Since Linux 6.2 the size of the directory says it; before, they have to
/// be counted.
fn open_files(pid: i32) -> u64 {
    let dir = format!("/proc/{pid}/fd");
    match fs::metadata(&dir).map_or(0, |meta| meta.len()) {
        0 => fs::read_dir(&dir).map_or(0, |entries| entries.count() as u64),
        open => open,
    }
}

/// Threads of the whole machine, each of which needs a pid.
fn processes() -> Option<AgentLimit> {
    let number = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let pids = number("/proc/sys/kernel/pid_max")?;
    let threads = number("/proc/sys/kernel/threads-max").unwrap_or(u64::MAX);
    let (name, most) = if threads < pids { ("threads-max", threads) } else { ("pid_max", pids) };
    Some(AgentLimit {
        name: "processes",
        limit: format!("{most} processes and threads of this machine (kernel.{name})"),
        left: most.saturating_sub(running_threads()?),
        each: PROCESSES_EACH,
        kept: PROCESSES_KEPT,
        advice: format!("raise it with `sysctl -w kernel.{name}=N`, or stop sessions"),
    })
}

/// Returns the number of threads of the machine: the second number of the fourth field, `running/all`.
fn running_threads() -> Option<u64> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// Threads of the container or the service, by the tightest cgroup above the daemon.
fn cgroup_processes(daemon: Option<i32>) -> Option<AgentLimit> {
    let process = daemon.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let memberships = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let dirs = memberships.lines().filter_map(pids_cgroup).flat_map(|(mount, path)| {
        let own = mount.join(path.trim_start_matches('/'));
        let above: Vec<PathBuf> =
            own.ancestors().take_while(|dir| dir.starts_with(&mount)).map(Path::to_owned).collect();
        above
    });
    let number = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let limits =
        dirs.filter_map(|dir| Some((number(dir.join("pids.max"))?, number(dir.join("pids.current"))?)));
    let (most, used) = limits.min_by_key(|(most, used)| most.saturating_sub(*used))?;
    Some(AgentLimit {
        name: "cgroup processes",
        limit: format!("{most} processes and threads of this service or container (pids.max)"),
        left: most.saturating_sub(used),
        each: PROCESSES_EACH,
        kept: PROCESSES_KEPT,
        advice: "raise it (`TasksMax=` of the service, `--pids-limit` of the container), or stop sessions"
            .to_owned(),
    })
}

/// Returns the usual mount and the path of the hierarchy that counts processes, from a line such as `0::/user.slice`.
fn pids_cgroup(line: &str) -> Option<(PathBuf, &str)> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    match controllers {
        "" => Some((PathBuf::from("/sys/fs/cgroup"), path)),
        "pids" => Some((PathBuf::from("/sys/fs/cgroup/pids"), path)),
        _ => None,
    }
}

/// Memory of the machine, or of the container if that is less.
fn memory() -> Option<AgentLimit> {
    let table = fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024);
    let left = container_memory().map_or(machine, |container| container.min(machine)) / MIB;
    Some(AgentLimit {
        name: "memory",
        limit: format!("{left} MiB of memory available at {} MiB each", MEMORY_EACH / MIB),
        left,
        each: MEMORY_EACH / MIB,
        kept: 0,
        advice: "stop some, or give the machine more memory".to_owned(),
    })
}

fn container_memory() -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok();
    let most: u64 = read("memory.max")?.trim().parse().ok()?; // "max" means no limit
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    Some(most.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(left: u64, kept: u64) -> AgentLimit {
        let (limit, advice) = ("10 things".to_owned(), "get more".to_owned());
        AgentLimit { name: "things", limit, left, each: 4, kept, advice }
    }

    #[test]
    fn a_reserve_is_kept_and_only_whole_agents_fit() {
        assert_eq!(limit(19, 8).agents(), 2);
        assert_eq!(limit(7, 8).agents(), 0);
        assert!(limit(8, 8).is_used_up() && !limit(9, 8).is_used_up());
    }

    #[test]
    fn this_machine_says_what_is_left() {
        let own = i32::try_from(std::process::id()).unwrap();
        let names: Vec<_> = agent_limits(Some(own)).iter().map(|limit| limit.name).collect();
        for name in ["descriptors", "processes", "memory"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let _file = fs::File::open("/dev/null").unwrap();
        assert!(open_files(own) >= 4);
        assert!(running_threads().unwrap() >= 1);
    }

    #[test]
    fn the_hard_limit_is_the_one_that_counts() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             96365                96365                processes\n\
                      Max open files            1024                 20000                files\n";
        assert_eq!(hard_limit(limits, "Max open files"), Some(20_000));
        assert_eq!(hard_limit("Max open files  unlimited  unlimited  files", "Max open files"), None);
    }

    #[test]
    fn both_versions_of_cgroups_count_processes() {
        assert_eq!(pids_cgroup("0::/a/b"), Some((PathBuf::from("/sys/fs/cgroup"), "/a/b")));
        assert_eq!(pids_cgroup("8:pids:/a"), Some((PathBuf::from("/sys/fs/cgroup/pids"), "/a")));
        assert_eq!(pids_cgroup("4:memory:/a"), None);
    }

    #[test]
    fn a_failure_that_a_limit_causes_says_which_one() {
        let of = |errno: Errno| explain(&io::Error::from_raw_os_error(errno as i32));
        assert!(of(Errno::EMFILE).unwrap().starts_with("the limit on open files of one process is reached"));
        assert!(of(Errno::EAGAIN).unwrap().starts_with("a limit on processes is reached"));
        assert!(of(Errno::ENOMEM).unwrap().contains("memory"));
        assert_eq!(of(Errno::ENOENT), None);
    }
}
