//! The running daemon of a state directory, by the file that it leaves there.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::host;

/// `daemon.json`, as far as the command line needs it.
#[derive(Debug, Deserialize)]
pub(super) struct DaemonInfo {
    pub(super) pid: i32,
    pub(super) socket: PathBuf,
    pub(super) url: Option<String>,
}

impl DaemonInfo {
    /// `None` without a daemon that runs: one that was killed has left its file.
    pub(super) fn read(file: &Path) -> Option<Self> {
        let info: Self = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
        host::is_running(info.pid).then_some(info)
    }

    /// The variables that it was started with; `None` where the system does not tell.
    pub(super) fn environment(&self) -> Option<Vec<(OsString, OsString)>> {
        let bytes = std::fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let pair = |entry: &[u8]| {
            let at = entry.iter().position(|byte| *byte == b'=')?;
            Some((OsString::from_vec(entry[..at].to_vec()), OsString::from_vec(entry[at + 1..].to_vec())))
        };
        Some(bytes.split(|byte| *byte == 0).filter_map(pair).collect())
    }
}
