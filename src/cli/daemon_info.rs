//! The running daemon of a state directory, from the file that it writes there.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use serde::Serialize;

use super::shell_variables::{self, Variables};
pub(super) use crate::lifecycle::DaemonInfo;
use intercom_host as host;

/// The starter of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StartedBy {
    /// A command that needed one.
    Background,
    /// A service manager.
    Service,
    /// A person or a program that ran `intercom serve`.
    Serve,
}

impl StartedBy {
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Background => "in the background, by a command that needed it",
            Self::Service => "by systemd, as a service",
            Self::Serve => "by `intercom serve`",
        }
    }
}

impl DaemonInfo {
    /// Returns `None` without a running daemon: a killed daemon leaves its file, and its pid may belong to another
    /// process now.
    pub(super) fn read(file: &Path) -> Option<Self> {
        let info: Self = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
        (host::is_running(info.pid) && info.is_daemon()).then_some(info)
    }

    /// Returns the variables that it was started with; `None` where the system hides them.
    pub(super) fn environment(&self) -> Option<Variables> {
        let bytes = std::fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let pair = |entry: &[u8]| {
            let at = entry.iter().position(|byte| *byte == b'=')?;
            Some((OsString::from_vec(entry[..at].to_vec()), OsString::from_vec(entry[at + 1..].to_vec())))
        };
        Some(bytes.split(|byte| *byte == 0).filter_map(pair).collect())
    }

    /// Returns its starter; `None` where the system hides that.
    pub(super) fn started_by(&self) -> Option<StartedBy> {
        let words = self.words()?;
        let is_service = || {
            let environment = self.environment();
            environment.is_some_and(|own| shell_variables::value(&own, "INVOCATION_ID").is_some())
        };
        Some(if words.iter().any(|word| word == "--detached") {
            StartedBy::Background
        } else if is_service() {
            StartedBy::Service
        } else {
            StartedBy::Serve
        })
    }

    /// Returns true if the process with this pid seems to be a daemon. Its program may be renamed.
    fn is_daemon(&self) -> bool {
        self.words().is_none_or(|words| words.iter().any(|word| word == "serve"))
    }

    /// Returns its command line.
    fn words(&self) -> Option<Vec<String>> {
        let bytes = std::fs::read(format!("/proc/{}/cmdline", self.pid)).ok()?;
        Some(bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_the_number_of_a_daemon_that_was_killed_is_no_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("daemon.json");
        let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let about = serde_json::json!({ "pid": sleeper.id(), "socket": "/s", "url": null });
        std::fs::write(&file, about.to_string()).unwrap();
        let read = DaemonInfo::read(&file);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(read.is_none(), "{read:?}");
    }
}
