//! The lock of the state directory; its holder is the daemon.
//!
//! The kernel lists every lock with the process that took it and the device and inode of its file (`/proc/locks`). The
//! device is that of the file system, which `stat` does not always report; the list of mounts does.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::AGENTS_DIR;
use crate::identity::ProcessIdentity;

const LOCK_FILE: &str = "daemon.lock";

/// The check that a process may be the shim's daemon.
pub(super) struct DaemonLock {
    state_dir: Option<File>,
    /// The process that started the shim: the daemon at that time.
    parent: ProcessIdentity,
    /// The kernel shows that daemon's lock. On some network and user-space file systems it does not; it would then show
    /// no other daemon's lock either, and none could ever attach.
    is_visible: bool,
}

impl DaemonLock {
    /// Opens the state directory above `dir`, the directory of the shim.
    pub(super) fn around(dir: &Path) -> Self {
        let parent = ProcessIdentity::of(std::os::unix::process::parent_id().cast_signed());
        let state_dir = state_dir_of(dir).and_then(|dir| File::open(dir).ok());
        let mut lock = Self { state_dir, parent, is_visible: false };
        lock.is_visible = lock.is_locked_by(lock.parent.pid);
        lock
    }

    /// Reports whether this process is a daemon of our state directory: the one that started the shim, or one that
    /// holds the lock.
    pub(super) fn is_held_by(&self, pid: i32) -> bool {
        !self.is_visible || (pid == self.parent.pid && self.parent.is_running()) || self.is_locked_by(pid)
    }

    fn is_locked_by(&self, pid: i32) -> bool {
        let Some(file) = self.state_dir.as_ref().and_then(LockedInode::of_lock_in) else { return false };
        let Ok(locks) = fs::read_to_string("/proc/locks") else { return false };
        locks.lines().any(|line| is_lock_of(line, pid, &file))
    }
}

fn state_dir_of(dir: &Path) -> Option<PathBuf> {
    let agents = dir.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == AGENTS_DIR))?;
    Some(agents.parent()?.to_owned())
}

/// A file in the notation of the list of locks: `major:minor:inode`, the first two hexadecimal.
#[derive(Debug, PartialEq, Eq)]
struct LockedInode(String);

impl LockedInode {
    /// Identifies the file that has the lock's name now: it may have been replaced.
    fn of_lock_in(state_dir: &File) -> Option<Self> {
        let file = File::open(format!("/proc/self/fd/{}/{LOCK_FILE}", state_dir.as_raw_fd())).ok()?;
        Self::of(&file)
    }

    fn of(file: &File) -> Option<Self> {
        let fdinfo = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
        let field = |name: &str| fdinfo.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let (major, minor) = device_of(&mounts, field("mnt_id:")?)?;
        // Linux before 5.14 does not report the inode there.
        let inode =
            field("ino:").and_then(|ino| ino.parse().ok()).or_else(|| Some(file.metadata().ok()?.ino()));
        Some(Self(format!("{major:02x}:{minor:02x}:{}", inode?)))
    }
}

/// Finds the device of a mount. A line is `mount parent major:minor …`, in decimal.
fn device_of(mounts: &str, mount: &str) -> Option<(u32, u32)> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        if fields.next()? != mount {
            return None;
        }
        let (major, minor) = fields.nth(1)?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    })
}

/// Reports whether a line of `/proc/locks` is a held lock of this process on this file. A line is `n: FLOCK ADVISORY
/// WRITE pid major:minor:inode start end`; a waiting one has `->` before `FLOCK`.
fn is_lock_of(line: &str, pid: i32, file: &LockedInode) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let kind = [fields.next(), fields.next(), fields.next()];
    kind == [Some("FLOCK"), Some("ADVISORY"), Some("WRITE")]
        && fields.next().and_then(|text| text.parse().ok()) == Some(pid)
        && fields.next() == Some(&file.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{Flock, FlockArg};

    fn lock_of(dir: &Path, parent: ProcessIdentity) -> DaemonLock {
        DaemonLock { state_dir: File::open(dir).ok(), parent, is_visible: true }
    }

    #[test]
    fn whoever_holds_the_lock_is_seen_until_they_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let lock = lock_of(dir.path(), ProcessIdentity::nobody());
        assert!(!lock.is_held_by(me), "there is no such file");
        let open = || File::create(dir.path().join(LOCK_FILE)).unwrap();
        let held = Flock::lock(open(), FlockArg::LockExclusiveNonblock).unwrap();
        assert!(lock.is_held_by(me));
        assert!(!lock.is_held_by(1));
        drop(held);
        assert!(!lock.is_held_by(me));
        let shared = Flock::lock(open(), FlockArg::LockShared).unwrap();
        assert!(!lock.is_held_by(me), "a shared lock is anybody's");
        drop(shared);
        let other =
            Flock::lock(File::create(dir.path().join("other")).unwrap(), FlockArg::LockExclusive).unwrap();
        assert!(!lock.is_held_by(me), "another file");
        drop(other);
        // The daemon that started us needs no lock for as long as it runs.
        assert!(lock_of(dir.path(), ProcessIdentity::of(me)).is_held_by(me));
        let reused = ProcessIdentity { started: 1, ..ProcessIdentity::of(me) };
        assert!(!lock_of(dir.path(), reused).is_held_by(me));
    }

    #[test]
    fn lines_of_other_processes_files_and_kinds_are_not_taken_for_it() {
        let file = LockedInode("fe:00:42".to_owned());
        assert!(is_lock_of("1: FLOCK  ADVISORY  WRITE 7 fe:00:42 0 EOF", 7, &file));
        for line in [
            "1: FLOCK  ADVISORY  WRITE 8 fe:00:42 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 7 fe:01:42 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 7 fe:00:43 0 EOF",
            "1: FLOCK  ADVISORY  READ 7 fe:00:42 0 EOF",
            "1: POSIX  ADVISORY  WRITE 7 fe:00:42 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 7 fe:00:42 0 EOF",
            "",
        ] {
            assert!(!is_lock_of(line, 7, &file), "{line}");
        }
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n23 22 0:5 / /dev rw - devtmpfs dev rw\n";
        assert_eq!(device_of(mounts, "22"), Some((254, 0)));
        assert_eq!(device_of(mounts, "2"), None);
    }

    #[test]
    fn the_state_directory_is_above_agents_and_terminals() {
        for dir in ["/s/agents/ses_1/2", "/s/agents/ses_1/2/trm_1"] {
            assert_eq!(state_dir_of(Path::new(dir)), Some(PathBuf::from("/s")));
        }
        assert_eq!(state_dir_of(Path::new("/s/x")), None);
    }
}
