//! The files in the directory of a shim: its identity, its socket and the exit of its agent. A copy of a directory is
//! distinguished from the original, whose agents must not be ended from the copy.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ProcessIdentity, RuntimeDir};

pub(super) const SOCKET: &str = "sock";
pub(super) const EXIT: &str = "exit";
pub(super) const META: &str = "meta.json";

/// The identities of a shim and its agent; also kept in `meta.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ShimMeta {
    pub(super) version: u32,
    pub(super) shim: ProcessIdentity,
    pub(super) agent: ProcessIdentity,
    pub(super) session: String,
    pub(super) cgroup: Option<PathBuf>,
    /// The part of the session that it runs, such as a terminal; `None` for the agent itself.
    #[serde(default)]
    pub(super) part: Option<String>,
    /// The description of its session, in the form in which its creator recorded it.
    #[serde(default)]
    pub(super) memo: Option<String>,
    /// The inode of the pipe that is the agent's stdout.
    #[serde(default)]
    pub(super) stdout: Option<u64>,
    /// The inode of the pipe that is the agent's stderr.
    #[serde(default)]
    pub(super) stderr: Option<u64>,
    /// The directory that this record was written to. Elsewhere, it is a copy.
    #[serde(default)]
    pub(super) place: Option<DirectoryPlace>,
}

impl ShimMeta {
    /// Returns the record of a shim that has not identified itself yet.
    pub(super) fn unknown(session: &str, runtime_dir: &RuntimeDir) -> Self {
        Self { part: runtime_dir.part.clone(), ..Self::unlisted(session) }
    }

    /// Returns a record with nothing but the session.
    pub(super) fn unlisted(session: &str) -> Self {
        let (shim, agent, part) = (ProcessIdentity::nobody(), ProcessIdentity::nobody(), None);
        Self {
            version: 0,
            shim,
            agent,
            session: session.to_owned(),
            cgroup: None,
            part,
            memo: None,
            stdout: None,
            stderr: None,
            place: None,
        }
    }
}

/// A directory, by its name and by its inode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DirectoryPlace {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl DirectoryPlace {
    pub(super) fn of(dir: &Path) -> Option<Self> {
        let (path, meta) = (dir.canonicalize().ok()?, dir.metadata().ok()?);
        Some(Self { path, device: meta.dev(), inode: meta.ino() })
    }

    /// Compares names and inodes: a renamed directory keeps its inode, and one on a file system with unstable inodes
    /// keeps its name.
    fn is_same(&self, other: &Self) -> bool {
        self.path == other.path || (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Reports whether the record in `dir` was written to another directory, so that `dir` is a copy.
pub(super) fn is_copied(meta: &ShimMeta, dir: &Path) -> bool {
    let here = DirectoryPlace::of(dir);
    meta.place.as_ref().zip(here).is_some_and(|(written, here)| !written.is_same(&here))
}

pub(super) fn read_meta(dir: &Path) -> Option<ShimMeta> {
    read_record(&dir.join(META))
}

/// Reads a JSON file that a shim has written; `None` if there is none. A damaged file counts as missing and is logged.
pub(super) fn read_record<T: DeserializeOwned>(file: &Path) -> Option<T> {
    let bytes = std::fs::read(file).ok()?;
    let read = serde_json::from_slice(&bytes);
    read.inspect_err(|error| tracing::error!(file = %file.display(), %error, "a file is damaged")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_directory_is_the_same_and_a_copy_is_not() {
        let root = tempfile::tempdir().unwrap();
        let (original, copy, renamed) =
            (root.path().join("original"), root.path().join("copy"), root.path().join("renamed"));
        std::fs::create_dir(&original).unwrap();
        std::fs::create_dir(&copy).unwrap();
        let meta = ShimMeta { place: DirectoryPlace::of(&original), ..ShimMeta::unlisted("ses_x") };
        assert!(!is_copied(&meta, &original));
        assert!(is_copied(&meta, &copy));
        std::fs::rename(&original, &renamed).unwrap();
        assert!(!is_copied(&meta, &renamed));
        // Of one that an earlier version wrote, nothing is known.
        assert!(!is_copied(&ShimMeta::unlisted("ses_x"), &copy));
    }
}
