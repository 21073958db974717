//! File access below one directory and nowhere else.
//!
//! The caller has resolved the path before. From then on no link is followed: each part of the path is opened relative
//! to the one before, so that a link that replaced a part meanwhile is an error and not an escape.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, SYSFS_MAGIC, fstatfs};
use nix::unistd::{UnlinkatFlags, unlinkat};

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("there is no such file")]
    Missing,
    #[error("it is not a regular file")]
    NotAFile,
    #[error("a link or something else has taken the place of a directory in its path")]
    Moved,
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOENT => Self::Missing,
            Errno::ELOOP | Errno::ENOTDIR => Self::Moved,
            // A socket, or a pipe without a reader.
            Errno::ENXIO => Self::NotAFile,
            errno => Self::Io(errno.into()),
        }
    }
}

/// A directory to whose content access is confined.
#[derive(Debug)]
pub struct Confined {
    root: OwnedFd,
}

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_CLOEXEC).union(OFlag::O_RDONLY);

impl Confined {
    /// Opens the directory. It is the operator's choice, and may be a link.
    pub fn open(root: &Path) -> Result<Self, FileError> {
        Ok(Self { root: open(root, DIRECTORY, Mode::empty())? })
    }

    /// Reads a whole file. `path` is relative to the directory and contains no links.
    pub fn read(&self, path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
        let (dir, name) = self.place(path, false)?;
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&dir, name, flags, Mode::empty()) {
            Err(Errno::ELOOP) => return Err(FileError::Moved),
            opened => opened?,
        };
        let stat = fstat(&file)?;
        // Files of `/proc` and `/sys` describe processes, including the daemon.
        let made_up = [PROC_SUPER_MAGIC, SYSFS_MAGIC].contains(&fstatfs(&file)?.filesystem_type());
        if !is_file(&stat) || made_up {
            return Err(FileError::NotAFile);
        }
        let mut content = Vec::new();
        File::from(file).take(most + 1).read_to_end(&mut content)?;
        if content.len() as u64 > most { Err(FileError::TooLarge(most)) } else { Ok(content) }
    }

    /// Replaces a file atomically and keeps its mode. Missing directories are created.
    pub fn write(&self, path: &Path, content: &[u8]) -> Result<(), FileError> {
        let (dir, name) = self.place(path, true)?;
        let mode = match fstatat(&dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) if is_file(&stat) => Some(Mode::from_bits_truncate(stat.st_mode)),
            Ok(_) => return Err(FileError::NotAFile),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(errno.into()),
        };
        // The temporary name depends only on the file name: what a killed daemon left behind is reused by the next
        // write.
        let digest = ring::digest::digest(&ring::digest::SHA256, name.as_encoded_bytes());
        let temporary = format!(".intercom-{}.tmp", intercom_types::hex(&digest.as_ref()[..8]));
        unlinkat(&dir, temporary.as_str(), UnlinkatFlags::NoRemoveDir).ok(); // it rarely exists
        let written = fill(&dir, &temporary, mode, content)
            .and_then(|()| Ok(renameat(&dir, temporary.as_str(), &dir, name)?));
        if written.is_err() {
            unlinkat(&dir, temporary.as_str(), UnlinkatFlags::NoRemoveDir).ok(); // or it was never created
        }
        written
    }

    /// Returns the directory of a path, and its last component.
    fn place<'a>(&self, path: &'a Path, make: bool) -> Result<(OwnedFd, &'a OsStr), FileError> {
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name),
                _ => return Err(FileError::Moved),
            }
        }
        let name = names.pop().ok_or(FileError::NotAFile)?;
        let mut dir = self.root.try_clone()?;
        for part in names {
            let below = || openat(&dir, part, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty());
            dir = match below() {
                Err(Errno::ENOENT) if make => {
                    match mkdirat(&dir, part, Mode::from_bits_truncate(0o777)) {
                        Ok(()) | Err(Errno::EEXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                    below()?
                }
                opened => opened?,
            };
        }
        Ok((dir, name))
    }
}

fn fill(dir: impl AsFd, name: &str, mode: Option<Mode>, content: &[u8]) -> Result<(), FileError> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let usual = Mode::from_bits_truncate(0o666);
    let mut file = File::from(openat(dir, name, flags, usual)?);
    if let Some(mode) = mode {
        fchmod(&file, mode)?;
    }
    file.write_all(content)?;
    file.sync_all()?;
    Ok(())
}

fn is_file(stat: &FileStat) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    fn workspace() -> (tempfile::TempDir, PathBuf, Confined) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("ws");
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::create_dir(dir.path().join("out")).unwrap();
        std::fs::write(dir.path().join("out/secret"), "secret").unwrap();
        std::fs::write(root.join("src/a.rs"), "fn a() {}\n").unwrap();
        let confined = Confined::open(&root).unwrap();
        (dir, root, confined)
    }

    fn read(confined: &Confined, path: &str) -> Result<String, FileError> {
        confined.read(Path::new(path), 100).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn files_are_read_up_to_a_size() {
        let (_dir, root, confined) = workspace();
        assert_eq!(read(&confined, "src/a.rs").unwrap(), "fn a() {}\n");
        assert!(matches!(read(&confined, "src/b.rs"), Err(FileError::Missing)));
        assert!(matches!(read(&confined, "none/b.rs"), Err(FileError::Missing)));
        std::fs::write(root.join("full"), [b'x'; 100]).unwrap();
        std::fs::write(root.join("large"), [b'x'; 101]).unwrap();
        assert_eq!(read(&confined, "full").unwrap().len(), 100);
        assert!(matches!(read(&confined, "large"), Err(FileError::TooLarge(100))));
    }

    #[test]
    fn what_is_no_file_is_neither_read_nor_replaced() {
        let (_dir, root, confined) = workspace();
        nix::unistd::mkfifo(&root.join("pipe"), Mode::from_bits_truncate(0o600)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        for path in ["src", "pipe", "socket"] {
            assert!(matches!(read(&confined, path), Err(FileError::NotAFile)), "{path}");
            let written = confined.write(Path::new(path), b"x");
            assert!(matches!(written, Err(FileError::NotAFile)), "{path}");
        }
        let system = Confined::open(Path::new("/")).unwrap();
        assert!(matches!(read(&system, "proc/self/environ"), Err(FileError::Moved)), "self is a link");
        let environ = format!("proc/{}/environ", std::process::id());
        assert!(matches!(read(&system, &environ), Err(FileError::NotAFile)));
    }

    #[test]
    fn no_link_is_followed_and_nothing_climbs() {
        let (dir, root, confined) = workspace();
        symlink(dir.path().join("out"), root.join("link")).unwrap();
        symlink("../out/secret", root.join("file")).unwrap();
        let outside = dir.path().join("out/secret");
        for path in
            ["link/secret", "file", "../out/secret", "src/../../out/secret", outside.to_str().unwrap()]
        {
            assert!(matches!(read(&confined, path), Err(FileError::Moved)), "{path}");
            assert!(confined.write(Path::new(path), b"x").is_err(), "{path}");
        }
        assert!(confined.write(Path::new("link/new"), b"x").is_err());
        assert_eq!(std::fs::read_to_string(outside).unwrap(), "secret");
        assert_eq!(std::fs::read_dir(dir.path().join("out")).unwrap().count(), 1);
    }

    #[test]
    fn a_link_that_is_swapped_in_leads_nowhere() {
        let (dir, root, confined) = workspace();
        let (dir, root) = (dir.path().to_owned(), root.clone());
        let done = std::sync::atomic::AtomicBool::new(false);
        let done = &done;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(root.join("src"), root.join("kept")).unwrap();
                    symlink(dir.join("out"), root.join("src")).unwrap();
                    std::fs::remove_file(root.join("src")).unwrap();
                    std::fs::rename(root.join("kept"), root.join("src")).unwrap();
                }
            });
            for _ in 0..2000 {
                assert!(read(&confined, "src/secret").is_err());
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_mode() {
        let (dir, root, confined) = workspace();
        let script = root.join("src/run.sh");
        std::fs::write(&script, "old").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o750)).unwrap();
        // A second name of what was there stays what it was.
        std::fs::hard_link(&script, dir.path().join("other")).unwrap();
        confined.write(Path::new("src/run.sh"), b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&script).unwrap(), "new");
        assert_eq!(script.metadata().unwrap().permissions().mode() & 0o7777, 0o750);
        assert_eq!(std::fs::read_to_string(dir.path().join("other")).unwrap(), "old");
        confined.write(Path::new("new/deep/file"), b"made").unwrap();
        assert_eq!(std::fs::read_to_string(root.join("new/deep/file")).unwrap(), "made");
        let left = std::fs::read_dir(root.join("src")).unwrap().count();
        assert_eq!(left, 2, "nothing temporary is left");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the path is made of, what is outside is neither seen nor changed.
        #[test]
        fn nothing_outside_is_reached(
            parts in prop::collection::vec(
                prop::sample::select(vec!["..", ".", "src", "link", "out", "secret", "new", "/", "self", "a.rs", ""]), 0..7),
        ) {
            let (dir, root, confined) = workspace();
            symlink(dir.path().join("out"), root.join("link")).unwrap();
            symlink(".", root.join("self")).unwrap();
            let path = PathBuf::from(parts.join("/"));
            if let Ok(content) = confined.read(&path, 100) {
                prop_assert_ne!(content, b"secret");
            }
            confined.write(&path, b"changed").ok();
            let outside: Vec<_> = std::fs::read_dir(dir.path().join("out")).unwrap().collect();
            prop_assert_eq!(outside.len(), 1);
            prop_assert_eq!(std::fs::read_to_string(dir.path().join("out/secret")).unwrap(), "secret");
            prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        }
    }
}
