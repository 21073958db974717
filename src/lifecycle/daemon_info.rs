//! `daemon.json`: the facts about the running daemon that the command line and scripts read.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use intercom_types::Time;

/// The content of `daemon.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DaemonInfo {
    pub(crate) pid: i32,
    pub(crate) socket: PathBuf,
    pub(crate) started_at: Option<String>,
    /// The address of the API; `null` without a port.
    pub(crate) url: Option<String>,
    pub(crate) version: Option<String>,
}

impl DaemonInfo {
    /// Describes this process, which is about to listen on `socket`.
    pub(super) fn of_this_process(socket: PathBuf, url: Option<String>) -> Self {
        Self {
            pid: nix::unistd::getpid().as_raw(),
            socket,
            started_at: Some(Time::now().to_string()),
            url,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        }
    }

    /// Writes the file. The daemon runs without it, so a failure is only logged.
    pub(super) fn write(&self, file: &Path) {
        if let Err(error) = self.replace(file) {
            tracing::warn!(%error, file = %file.display(), "a file cannot be written");
        }
    }

    /// Writes the file atomically.
    fn replace(&self, file: &Path) -> std::io::Result<()> {
        let temporary = file.with_extension("new");
        let text = format!("{}\n", serde_json::to_string(self)?);
        let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, file));
        written.inspect_err(|_| {
            std::fs::remove_file(&temporary).ok(); // it may not exist
        })
    }
}
