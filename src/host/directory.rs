//! The identity of a process's directory: a copy of a state directory is told from the original, whose agents it must not end.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::kept::shims_in;
use super::shim::ShimMeta;

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

    /// A directory that was renamed keeps its inode, and one on a file system whose inodes change keeps its name.
    fn is_same(&self, other: &Self) -> bool {
        self.path == other.path || (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Tells whether what is written in `dir` was written to another directory.
pub(super) fn is_copied(meta: &ShimMeta, dir: &Path) -> bool {
    let here = DirectoryPlace::of(dir);
    meta.place.as_ref().zip(here).is_some_and(|(written, here)| !written.is_same(&here))
}

/// Tells whether the agent of `dir` is another daemon's: `dir` is a copy, or the shim that it names runs elsewhere.
pub(super) fn is_of_another(meta: &ShimMeta, dir: &Path) -> bool {
    is_copied(meta, dir) || (meta.shim.is_running() && !shims_in(dir).contains(&meta.shim))
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
