//! Unpacking of an agent's archive into the state directory. Nothing is unpacked before its checksum is verified, and
//! files outside of its directory are rejected. The system's `tar` and `unzip` do the work.
//!
//! ```text
//! archive ─► copy and hash ─► list, check the names ─► unpack ─► check the files ─► rename into place
//! ```

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use ring::digest::{Context as Digest, SHA256};

/// The directory for programs, below the state directory.
const PROGRAMS: &str = "programs";

/// A package to install.
#[derive(Debug)]
pub(super) struct ArchivePackage {
    dir: PathBuf,
    kind: ArchiveKind,
    /// The program's path, relative to the unpacked archive.
    cmd: PathBuf,
    sha256: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArchiveKind {
    Tar(&'static str),
    Zip,
    /// Not an archive, but the program itself.
    Plain,
}

impl ArchivePackage {
    /// Returns the package. Its place depends on its content, so another archive goes to another place. `archive` is
    /// its name or URL.
    pub(super) fn new(
        state: &Path,
        name: &str,
        archive: &str,
        cmd: &str,
        sha256: &str,
    ) -> anyhow::Result<Self> {
        let sha256 = sha256.to_ascii_lowercase();
        if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            bail!("the checksum {sha256:?} is not a SHA-256 of 64 hexadecimal digits");
        }
        let dir = state.join(PROGRAMS).join(format!("{name}-{}", &sha256[..16]));
        Ok(Self { dir, kind: ArchiveKind::of(archive)?, cmd: relative_path(cmd)?, sha256 })
    }

    /// Returns the path of its program, once it is installed.
    pub(super) fn command(&self) -> PathBuf {
        match self.kind {
            ArchiveKind::Plain => self.dir.join(self.cmd.file_name().unwrap_or_default()),
            _ => self.dir.join(&self.cmd),
        }
    }

    pub(super) fn install(&self, archive: &Path) -> anyhow::Result<()> {
        let programs = self.dir.parent().context("the state directory has no place for programs")?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(programs)
            .with_context(|| format!("{} cannot be made", programs.display()))?;
        let staging = StagingDir::new(programs)?;
        let copy = staging.0.join("archive");
        let found =
            copy_and_hash(archive, &copy).with_context(|| format!("{} cannot be read", archive.display()))?;
        if found != self.sha256 {
            bail!("{} has the checksum {found}, not {}", archive.display(), self.sha256);
        }
        if self.command().is_file() {
            return Ok(()); // it is installed already
        }
        let content = staging.0.join("content");
        std::fs::create_dir(&content)?;
        self.unpack(&copy, &content)?;
        check_unpacked(&content)?;
        let command = content.join(self.command().strip_prefix(&self.dir).unwrap_or(&self.cmd));
        let meta = command
            .metadata()
            .ok()
            .filter(std::fs::Metadata::is_file)
            .with_context(|| format!("the archive has no {}", self.cmd.display()))?;
        let mode = meta.permissions().mode() | 0o700;
        std::fs::set_permissions(&command, std::fs::Permissions::from_mode(mode))?;
        std::fs::rename(&content, &self.dir).with_context(|| {
            format!(
                "{} cannot be put in place; remove what is there, if it is incomplete",
                self.dir.display()
            )
        })
    }

    fn unpack(&self, archive: &Path, content: &Path) -> anyhow::Result<()> {
        let (archive, into) = (archive.as_os_str(), content.as_os_str());
        let word = OsStr::new;
        match self.kind {
            ArchiveKind::Plain => {
                let name = self.cmd.file_name().unwrap_or_default();
                std::fs::copy(archive, content.join(name))?;
            }
            ArchiveKind::Tar(filter) => {
                check_listing(&tool("tar", &[word("-t"), word(filter), word("-f"), archive])?)?;
                let careful = ["--no-same-owner", "--no-same-permissions"].map(word);
                tool(
                    "tar",
                    &[&[word("-x"), word(filter), word("-f"), archive, word("-C"), into], &careful[..]]
                        .concat(),
                )?;
            }
            ArchiveKind::Zip => {
                check_listing(&tool("unzip", &[word("-Z1"), archive])?)?;
                tool("unzip", &[word("-q"), word("-n"), archive, word("-d"), into])?;
            }
        }
        Ok(())
    }
}

impl ArchiveKind {
    fn of(archive: &str) -> anyhow::Result<Self> {
        let name = archive.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if ends(&[".tar.gz", ".tgz"]) {
            Ok(Self::Tar("-z"))
        } else if ends(&[".tar.bz2", ".tbz2"]) {
            Ok(Self::Tar("-j"))
        } else if ends(&[".zip"]) {
            Ok(Self::Zip)
        } else if ends(&[".dmg", ".pkg", ".deb", ".rpm", ".msi", ".appimage", ".xz", ".zst", ".7z", ".tar"]) {
            bail!("{archive:?} is not a supported archive; use .tar.gz, .tar.bz2 or .zip")
        } else {
            Ok(Self::Plain)
        }
    }
}

/// Returns a relative path without `..`.
fn relative_path(path: &str) -> anyhow::Result<PathBuf> {
    let parts = Path::new(path).components().filter(|part| *part != Component::CurDir);
    let mut sound = PathBuf::new();
    for part in parts {
        let Component::Normal(part) = part else { bail!("the path {path:?} leaves the archive") };
        sound.push(part);
    }
    if sound.as_os_str().is_empty() || path.contains('\0') {
        bail!("the path {path:?} names no file");
    }
    Ok(sound)
}

/// Checks the names in a listing. The tools do not write outside of the directory, either; this check fails before
/// anything is written.
fn check_listing(listing: &str) -> anyhow::Result<()> {
    for name in listing.lines().filter(|name| !matches!(*name, "" | "./" | ".")) {
        relative_path(name).context("the archive is not unpacked")?;
    }
    Ok(())
}

/// Checks the unpacked files: only regular files, directories and links that stay inside; nothing setuid or setgid.
fn check_unpacked(root: &Path) -> anyhow::Result<()> {
    let root = root.canonicalize()?;
    let mut links: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut dirs = vec![root.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in dir.read_dir()? {
            let path = entry?.path();
            let shown = path.strip_prefix(&root).unwrap_or(&path).display();
            let meta = path.symlink_metadata()?;
            let kind = meta.file_type();
            if kind.is_symlink() {
                if !path.canonicalize().is_ok_and(|target| target.starts_with(&root)) {
                    bail!("the link {shown} in the archive leaves it");
                }
            } else if kind.is_dir() {
                dirs.push(path);
            } else if !kind.is_file() || meta.mode() & 0o6000 != 0 {
                bail!("{shown} in the archive is not a regular file");
            } else {
                links.entry(meta.ino()).or_insert((meta.nlink(), 0)).1 += 1;
            }
        }
    }
    if links.values().any(|(links, seen)| links != seen) {
        bail!("a file in the archive is also a file outside of it");
    }
    Ok(())
}

/// Runs a tool and returns its output if it succeeds.
fn tool(program: &str, args: &[&OsStr]) -> anyhow::Result<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.args(args).env_clear().env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null());
    let ran = command.output().with_context(|| format!("`{program}` is needed to unpack it"))?;
    if !ran.status.success() {
        let stderr = String::from_utf8_lossy(&ran.stderr);
        bail!("`{program}` cannot unpack it: {}", stderr.lines().next().unwrap_or("it does not say why"));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// Copies and hashes in one pass, so that a change of the original cannot separate the two.
fn copy_and_hash(from: &Path, to: &Path) -> std::io::Result<String> {
    let (mut from, mut to) = (File::open(from)?, File::create_new(to)?);
    let mut digest = Digest::new(&SHA256);
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match from.read(&mut chunk)? {
            0 => break,
            read => {
                digest.update(&chunk[..read]);
                to.write_all(&chunk[..read])?;
            }
        }
    }
    Ok(hex(digest.finish().as_ref()))
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|half| char::from_digit(half.into(), 16))
        .collect()
}

/// A directory that is removed when this is dropped.
struct StagingDir(PathBuf);

impl StagingDir {
    fn new(parent: &Path) -> anyhow::Result<Self> {
        let dir = parent.join(format!(".new-{}", std::process::id()));
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?; // left by a killed process with our id
        }
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("{} cannot be made", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok(); // the rest is hidden, and removed the next time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sha256(file: &Path) -> String {
        let found = ring::digest::digest(&SHA256, &std::fs::read(file).unwrap());
        hex(found.as_ref())
    }

    /// Packed by the system's `tar` from `dir`.
    fn packed(dir: &Path, names: &[&str]) -> PathBuf {
        let archive = dir.join("a.tar.gz");
        let mut tar = Command::new("tar");
        let status = tar.args(["-c", "-z", "-P", "-f"]).arg(&archive).arg("-C").arg(dir).args(names).status();
        assert!(status.unwrap().success());
        archive
    }

    fn install(state: &Path, archive: &Path, cmd: &str, sha256: &str) -> Result<PathBuf, String> {
        let name = archive.to_str().unwrap();
        let package =
            ArchivePackage::new(state, "x", name, cmd, sha256).map_err(|error| format!("{error:#}"))?;
        package.install(archive).map_err(|error| format!("{error:#}"))?;
        Ok(package.command())
    }

    #[test]
    fn a_right_checksum_installs_and_a_wrong_one_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        std::fs::write(dir.path().join("bin/agent"), "#!/bin/sh\n").unwrap();
        std::os::unix::fs::symlink("agent", dir.path().join("bin/link")).unwrap();
        let archive = packed(dir.path(), &["./bin"]);
        let right = sha256(&archive);
        let error = install(&state, &archive, "./bin/agent", &"0".repeat(64)).unwrap_err();
        assert!(error.contains(&format!("has the checksum {right}, not 0000")), "{error}");
        assert_eq!(state.join(PROGRAMS).read_dir().unwrap().count(), 0, "nothing is left");

        let command = install(&state, &archive, "./bin/agent", &right.to_uppercase()).unwrap();
        assert!(command.starts_with(state.join(PROGRAMS)) && command.ends_with("bin/agent"));
        assert_eq!(command.metadata().unwrap().mode() & 0o700, 0o700);
        assert_eq!(state.join(PROGRAMS).metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(install(&state, &archive, "bin/agent", &right).unwrap(), command, "again");
        assert_eq!(state.join(PROGRAMS).read_dir().unwrap().count(), 1);
        let error = install(&state, &archive, "bin/none", &right);
        assert!(error.is_err(), "{error:?}");
    }

    #[test]
    fn archives_that_leave_their_directory_are_refused() {
        let refused = |prepare: &dyn Fn(&Path) -> Vec<String>| {
            let dir = tempfile::tempdir().unwrap();
            let state = dir.path().join("state");
            std::fs::create_dir(dir.path().join("in")).unwrap();
            std::fs::write(dir.path().join("in/agent"), "").unwrap();
            std::fs::write(dir.path().join("out"), "").unwrap();
            let names = prepare(dir.path());
            let archive = packed(dir.path(), &names.iter().map(String::as_str).collect::<Vec<_>>());
            let error = install(&state, &archive, "in/agent", &sha256(&archive)).unwrap_err();
            assert_eq!(state.join(PROGRAMS).read_dir().unwrap().count(), 0, "nothing is left");
            error
        };
        let error = refused(&|_| vec!["in".to_owned(), "in/../out".to_owned()]);
        assert!(error.contains("leaves the archive"), "{error}");
        let error = refused(&|dir| vec!["in".to_owned(), dir.join("out").to_str().unwrap().to_owned()]);
        assert!(error.contains("leaves the archive"), "{error}");
        for target in ["/etc", "../../..", "nowhere"] {
            let error = refused(&|dir| {
                std::os::unix::fs::symlink(target, dir.join("in/link")).unwrap();
                vec!["in".to_owned()]
            });
            assert!(error.contains("the link in/link in the archive leaves it"), "{error}");
        }
        let error = refused(&|dir| {
            nix::unistd::mkfifo(&dir.join("in/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
            vec!["in".to_owned()]
        });
        assert!(error.contains("is not a regular file"), "{error}");
    }

    #[test]
    fn a_plain_program_is_copied_under_its_own_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent-linux");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let command = install(&dir.path().join("state"), &file, "./sub/agent", &sha256(&file)).unwrap();
        assert!(command.ends_with("agent") && command.is_file(), "{command:?}");
        assert_eq!(std::fs::read(&command).unwrap(), b"#!/bin/sh\n");
    }

    #[test]
    fn what_is_odd_is_refused_before_anything_is_read() {
        let new = |archive: &str, cmd: &str, sha: &str| {
            ArchivePackage::new(Path::new("/s"), "x", archive, cmd, sha)
        };
        let sha = "a".repeat(64);
        for cmd in ["", ".", "/bin/sh", "../x", "a/../../x", "./", "a\0b"] {
            assert!(new("a.zip", cmd, &sha).is_err(), "{cmd:?}");
        }
        for sum in ["", "abc", &"g".repeat(64), &"a".repeat(65)] {
            assert!(new("a.zip", "x", sum).is_err(), "{sum:?}");
        }
        for archive in ["a.dmg", "https://h/a.deb", "a.tar.xz"] {
            assert!(new(archive, "x", &sha).is_err(), "{archive:?}");
        }
        assert_eq!(new("https://h/A.ZIP?x=1", "x", &sha).unwrap().kind, ArchiveKind::Zip);
        assert_eq!(new("a.tbz2", "x", &sha).unwrap().kind, ArchiveKind::Tar("-j"));
    }
}
