//! A separate user for an agent: one that cannot read the daemon's files.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, getgrouplist, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};

/// The error of the new process if it can read a private file: no other step before `exec` fails with it.
const CAN_READ: Errno = Errno::ENOTRECOVERABLE;

/// The user that an agent runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAs {
    pub(crate) name: String,
    pub(crate) home: PathBuf,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// The paths that the user must not be able to read.
    private: Vec<PathBuf>,
}

impl RunAs {
    /// Looks up a user. Only root can switch to another user.
    pub fn find(name: &str, private: Vec<PathBuf>) -> Result<Self, String> {
        let user = User::from_name(name)
            .ok()
            .flatten()
            .ok_or_else(|| format!("run_as: no user is named `{name}`"))?;
        if user.uid == Uid::effective() {
            return Err(format!("run_as: the daemon itself runs as `{name}`"));
        }
        if !Uid::effective().is_root() {
            return Err("run_as: only a daemon that runs as root can start agents as another user".to_owned());
        }
        if user.uid.is_root() {
            return Err("run_as: root can read everything".to_owned());
        }
        let c_name = CString::new(name).map_err(|_| "run_as: a name has no NUL".to_owned())?;
        let groups = getgrouplist(&c_name, user.gid).map_err(|error| format!("run_as: {error}"))?;
        Ok(Self {
            name: user.name,
            home: user.dir,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            private,
        })
    }

    /// Returns the variables that a login would set.
    pub fn environment(&self) -> Vec<(String, String)> {
        let home = self.home.to_string_lossy().into_owned();
        let name = || self.name.clone();
        vec![("HOME".to_owned(), home), ("USER".to_owned(), name()), ("LOGNAME".to_owned(), name())]
    }

    /// Switches to the user permanently and verifies that the private paths are unreadable. Runs between fork and exec.
    pub(super) fn become_them(&self) -> io::Result<()> {
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        setgroups(&groups)?;
        setgid(Gid::from_raw(self.gid))?;
        setuid(Uid::from_raw(self.uid))?;
        // No setuid program may switch the user again.
        nix::sys::prctl::set_no_new_privs()?;
        let readable = |path: &PathBuf| {
            let opened = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
            !matches!(opened, Err(error) if error.kind() == io::ErrorKind::PermissionDenied)
        };
        if self.private.iter().any(readable) { Err(CAN_READ.into()) } else { Ok(()) }
    }

    /// Replaces the error of a readable private file by an explanation.
    pub(super) fn explain(&self, error: io::Error) -> io::Error {
        if error.raw_os_error() == Some(CAN_READ as i32) {
            let message =
                format!("run_as: `{}` can read the daemon's state, so nothing was started", self.name);
            return io::Error::other(message);
        }
        error
    }
}
