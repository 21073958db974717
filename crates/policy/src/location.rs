//! Locations of paths: the real one, with all links followed, and the one that the text alone names.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// The maximum number of links to follow, the same as the kernel's.
const MAX_LINKS: usize = 40;

/// Returns the real location of a path; for a missing one, that of its deepest existing ancestor with the rest added.
pub(super) fn locate(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let mut missing: Vec<OsString> = Vec::new();
        let mut existing = path.as_path();
        loop {
            match existing.canonicalize() {
                Ok(real) => return Some(missing.iter().rev().fold(real, |real, name| real.join(name))),
                Err(error) if error.kind() != ErrorKind::NotFound => return None,
                Err(_) => {}
            }
            if existing.is_symlink() {
                break;
            }
            // `..` after a missing component has no file name and is unresolvable.
            missing.push(existing.file_name()?.to_owned());
            existing = existing.parent()?;
        }
        // A dangling link: writing to it creates the target.
        let target = existing.parent()?.join(existing.read_link().ok()?);
        path = missing.iter().rev().fold(target, |path, name| path.join(name));
    }
    None
}

/// Normalises a path by its text alone, without following links.
pub(super) fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}
