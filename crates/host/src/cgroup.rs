//! A separate cgroup for each agent, if the system allows it: all its processes can be counted, limited and killed at
//! once, regardless of where they have forked to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The cgroup that the daemon moves itself to if it has to make room, beside its agents.
const OURS: &str = "intercom-daemon";

/// The parent directory of the agents' cgroups.
#[derive(Debug, Clone)]
pub struct CgroupBase {
    base: PathBuf,
}

impl CgroupBase {
    /// Returns our own cgroup as the base if we may create cgroups in it: as root, or after delegation.
    pub fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let ours = fs::read_to_string("/proc/self/cgroup").ok()?;
        let base = base(&mounts, &ours)?;
        let probe = base.join(format!("intercom-probe-{}", std::process::id()));
        fs::create_dir(&probe).ok()?;
        let can_kill = probe.join("cgroup.kill").exists();
        fs::remove_dir(&probe).ok(); // an empty cgroup does no harm
        can_kill.then_some(Self { base })
    }

    /// Enables limits for cgroups below; fails if other processes are in our cgroup, or a controller is not delegated
    /// to us.
    pub fn enable_limits(&self) -> io::Result<()> {
        let enable = || fs::write(self.base.join("cgroup.subtree_control"), "+memory +pids +cpu");
        match enable() {
            // A cgroup that distributes limits must not contain processes itself: move the daemon below, too.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let ours = self.base.join(OURS);
                fs::create_dir(&ours).or_else(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => Ok(()),
                    _ => Err(error),
                })?;
                fs::write(ours.join("cgroup.procs"), "0")?;
                enable().inspect_err(|_| {
                    fs::write(self.base.join("cgroup.procs"), "0").ok(); // staying in the new cgroup does no harm
                })
            }
            result => result,
        }
    }

    pub fn of(&self, name: &str) -> PathBuf {
        self.base.join(format!("intercom-{name}"))
    }

    pub fn base(&self) -> &Path {
        &self.base
    }
}

/// Returns the path of our own cgroup in the file system, for cgroup v2 only.
fn base(mountinfo: &str, own: &str) -> Option<PathBuf> {
    let mount = mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let is_v2 = after.split(' ').next() == Some("cgroup2");
        is_v2.then(|| before.split(' ').nth(4).map(PathBuf::from)).flatten()
    })?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(mount.join(path))
}

/// The resource limits of an agent and everything below it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupLimits {
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    /// 100 is one core.
    pub cpu_percent: Option<u64>,
}

/// The cgroup of one agent.
#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Creates the cgroup with the limits that its controllers support. Returns the other limits: the caller has to
    /// enforce them in another way.
    pub(super) fn create(dir: &Path, limits: &CgroupLimits) -> io::Result<(Self, CgroupLimits)> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let set = |file: &str, value: String| fs::write(dir.join(file), value).is_ok();
        let mut unmet = limits.clone();
        unmet.memory_bytes.take_if(|bytes| {
            set("memory.swap.max", "0".to_owned()); // without swap, the limit is not needed
            set("memory.max", bytes.to_string())
        });
        unmet.processes.take_if(|count| set("pids.max", count.to_string()));
        unmet.cpu_percent.take_if(|percent| set("cpu.max", format!("{} 100000", *percent * 1000)));
        Ok((Self { dir: dir.to_owned() }, unmet))
    }

    /// Opens a cgroup that was created before.
    pub(super) fn existing(dir: &Path) -> Option<Self> {
        dir.join("cgroup.kill").exists().then(|| Self { dir: dir.to_owned() })
    }

    /// The file that moves a process into the cgroup when the process writes `0` to it.
    pub(super) fn procs_file(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Returns the processes in the cgroup and in all cgroups below it.
    pub(super) fn members(&self) -> Vec<i32> {
        let mut found = Vec::new();
        let mut dirs = vec![self.dir.clone()];
        while let Some(dir) = dirs.pop() {
            let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            found.extend(procs.lines().filter_map(|pid| pid.parse::<i32>().ok()));
            let below = fs::read_dir(&dir).into_iter().flatten().flatten();
            dirs.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        found
    }

    pub(super) fn kill(&self) {
        fs::write(self.dir.join("cgroup.kill"), "1").ok(); // survivors show up in the next call of `members`
    }

    /// Removes the cgroup if it is empty.
    pub(super) fn remove(&self) {
        let below = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        for entry in below.filter(|entry| entry.path().is_dir()) {
            fs::remove_dir(entry.path()).ok(); // deeper ones stay: an empty cgroup does no harm
        }
        fs::remove_dir(&self.dir).ok(); // as above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_cgroup_is_found_on_unified_and_hybrid_systems() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        let own = "0::/user.slice/user-1000.slice/app.slice/intercom.service\n";
        let expected = "/sys/fs/cgroup/user.slice/user-1000.slice/app.slice/intercom.service";
        assert_eq!(base(unified, own), Some(PathBuf::from(expected)));
        let hybrid = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(base(hybrid, "4:memory:/x\n0::/\n"), Some(PathBuf::from("/sys/fs/cgroup/unified/")));
        assert_eq!(base("", own), None);
    }
}
