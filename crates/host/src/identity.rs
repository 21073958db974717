//! The identity of a process, so that a pid that was reused is never signalled.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// A process, identified by its pid, the boot of the machine and its start time: a pid alone may mean another process
/// later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: i32,
    pub(crate) boot: String,
    /// The start time in clock ticks since boot; 0 if it is unknown.
    pub(crate) started: u64,
}

impl ProcessIdentity {
    /// Returns the identity of a process that is running now.
    pub(super) fn of(pid: i32) -> Self {
        Self { pid, boot: boot_id(), started: stat(pid).map_or(0, |stat| stat.started) }
    }

    /// Returns an identity that matches no process of this boot.
    pub(super) fn nobody() -> Self {
        Self { pid: 0, boot: boot_id(), started: 0 }
    }

    /// Reports whether exactly this process runs.
    pub(super) fn is_running(&self) -> bool {
        self.exists() && stat(self.pid).is_some_and(|stat| !stat.is_dead())
    }

    /// Resumes the process if it is stopped.
    pub(super) fn wake(&self) {
        self.signal(Signal::SIGCONT);
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Signals exactly this process, never another one that reuses its pid. Returns whether it existed.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        match open_process(self.pid) {
            // The descriptor refers to one process as long as it is open. So the process that is checked now is the one
            // that gets the signal, even if its pid is reused in between.
            Ok(process) => self.exists() && send(&process, signal).is_ok(),
            // Kernels before 5.3 (2019) have no pidfd: only the time between check and signal can be kept short.
            Err(Errno::ENOSYS) => self.exists() && kill(Pid::from_raw(self.pid), signal).is_ok(),
            Err(_) => false, // the process has exited
        }
    }

    /// Reports whether exactly this process exists, alive or not yet reaped.
    pub(super) fn exists(&self) -> bool {
        self.boot == boot_id()
            && self.started != 0
            && stat(self.pid).is_some_and(|stat| stat.started == self.started)
    }
}

#[expect(unsafe_code, reason = "the system call has no safe wrapper here")]
fn open_process(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two numbers and returns a new descriptor that nothing else owns.
    let opened = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let fd = i32::try_from(opened).map_err(|_| Errno::EBADF)?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[expect(unsafe_code, reason = "the system call has no safe wrapper here")]
fn send(process: &OwnedFd, signal: Signal) -> Result<(), Errno> {
    let (fd, number, info) = (process.as_raw_fd(), signal as i32, std::ptr::null::<libc::siginfo_t>());
    // SAFETY: the descriptor is open for as long as it is borrowed, and without a siginfo the kernel makes its own.
    Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, number, info, 0) }).map(drop)
}

pub(super) struct ProcessStat {
    pub(super) name: String,
    pub(super) state: char,
    pub(super) threads: u64,
    /// CPU time in user and kernel mode.
    pub(super) ticks: u64,
    /// CPU time of the children that it has reaped, and of theirs.
    pub(super) reaped_ticks: u64,
    pub(super) pages: u64,
    pub(super) parent: i32,
    /// The leader of its kernel session: the last process above it that called `setsid`.
    pub(super) leader: i32,
    pub(super) started: u64,
}

impl ProcessStat {
    /// Reports whether the process is a zombie. A process whose first thread has ended while another one runs looks the
    /// same, and lives.
    pub(super) fn is_dead(&self) -> bool {
        self.state == 'Z' && self.threads <= 1
    }
}

pub(super) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

pub(super) fn stat(pid: i32) -> Option<ProcessStat> {
    parse_stat(&short(&format!("/proc/{pid}/stat"))?)
}

/// Reads a file of `/proc` that is far shorter than a page: the kernel returns it in one read. It may contain a process
/// name, which need not be valid UTF-8.
pub(super) fn short(path: &str) -> Option<String> {
    let mut bytes = [0; 4096];
    let length = File::open(path).ok()?.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Parses `/proc/PID/stat`. The name in the second field may contain brackets and spaces: fields are counted from its
/// end.
fn parse_stat(text: &str) -> Option<ProcessStat> {
    let (begin, end) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<&str> = text[end + 1..].split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(ProcessStat {
        name: text.get(begin + 1..end)?.to_owned(),
        ticks: number(11)? + number(12)?,
        reaped_ticks: number(13)? + number(14)?,
        pages: number(21)?,
        threads: number(17)?,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        leader: fields.get(3)?.parse().ok()?,
        started: number(19)?,
    })
}

pub(super) fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
}

/// Returns all processes with their parents.
pub(super) fn parents() -> Vec<(i32, i32)> {
    pids().filter_map(|pid| Some((pid, stat(pid)?.parent))).collect()
}

/// Returns the processes that were started with this variable, and its value. Zombies have no environment.
pub(super) fn with_variable(name: &str) -> Vec<(i32, String)> {
    pids().filter_map(|pid| Some((pid, variable(pid, name)?))).collect()
}

/// Returns the value that this variable had when the process was started.
pub(super) fn variable(pid: i32, name: &str) -> Option<String> {
    let environ = environment(pid)?;
    let mut variables = environ.split(|byte| *byte == 0);
    variables.find_map(|variable| {
        let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}

/// Returns the environment that a process was started with. If its first thread has ended, only another thread shows
/// it.
fn environment(pid: i32) -> Option<Vec<u8>> {
    match std::fs::read(format!("/proc/{pid}/environ")) {
        Ok(environ) if !environ.is_empty() => return Some(environ),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
        Ok(_) | Err(_) => {}
    }
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads.flatten().find_map(|thread| {
        std::fs::read(thread.path().join("environ")).ok().filter(|environ| !environ.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_process_name_with_brackets_does_not_confuse() {
        let rest = "S 1 42 42 0 -1 4194560 1 0 0 0 7 3 4 1 20 0 1 0 777 0 55";
        let stat = parse_stat(&format!("42 (a) b) {rest}")).unwrap();
        assert_eq!((stat.state, stat.parent, stat.leader, stat.started), ('S', 1, 42, 777));
        assert_eq!((stat.name.as_str(), stat.ticks, stat.pages), ("a) b", 10, 55));
        assert_eq!(stat.reaped_ticks, 5);
        assert!(parse_stat("garbage").is_none());
    }

    #[test]
    fn a_process_without_its_first_thread_lives() {
        let of = |threads: u64| {
            parse_stat(&format!("42 (x) Z 1 42 42 0 -1 4227084 1 0 0 0 0 0 0 0 20 0 {threads} 0 777 0 0"))
        };
        assert!(of(1).unwrap().is_dead());
        assert!(!of(2).unwrap().is_dead());
    }

    #[test]
    fn a_process_whose_name_is_not_text_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\xfe) R 1"));
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("1000").spawn().unwrap();
        let found = stat(i32::try_from(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.expect("it runs");
        assert_eq!(found.parent, i32::try_from(std::process::id()).unwrap());
        assert_eq!(found.name, "\u{fffd}\u{fffd}) R 1");
    }

    #[test]
    fn we_find_ourselves_and_not_a_process_of_another_time() {
        let me = i32::try_from(std::process::id()).unwrap();
        let identity = ProcessIdentity::of(me);
        assert!(identity.started > 0 && identity.exists());
        let other = ProcessIdentity { started: identity.started + 1, ..identity };
        assert!(!other.exists());
    }
}
