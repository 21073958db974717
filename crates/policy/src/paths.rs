//! The resolution of a request's paths: the only part of the policy that reads the file system.
//!
//! The result is valid at the time of the look-up. An agent that can write in its workspace can change a link between
//! the decision and its use; only a sandbox prevents that. Hard links are not detected at all.

use std::collections::HashSet;
use std::fs::DirEntry;
use std::path::{Component, Path, PathBuf};

use super::location::{lexical, locate};
use super::programs::file_name;
use super::shell::{self, ShellScript, SimpleCommand};
use super::{CommandOperands, PolicyRequest, ResolvedPath, ResolvedRequest, diff, later_run_files, words};

/// The maximum number of different words of a command that are looked up.
const MAX_OPERANDS: usize = 1000;
/// The maximum number of letters of an option after which its value may begin.
const MAX_GLUED: usize = 16;
/// The maximum number of directories among the words of a command that are searched for links, and of entries examined
/// in one of them. A command with more may lead anywhere.
const MAX_DIRECTORIES: usize = 64;
const MAX_ENTRIES: usize = 10_000;

/// Resolves a request. Blocks for a few file system calls per path.
pub fn resolve(subject: PolicyRequest) -> ResolvedRequest {
    let workspace = locate(&subject.workspace).unwrap_or_else(|| subject.workspace.clone());
    let place = |written: &String| place(&workspace, &subject.workspace, written);
    let mut places: Vec<ResolvedPath> = subject.paths.iter().map(place).collect();
    let diff = subject.diff.as_deref().map(diff::read);
    for named in diff.iter().flat_map(|diff| &diff.names) {
        let named = place(named);
        let same = |place: &ResolvedPath| place.lexical == named.lexical && place.real == named.real;
        if !places.iter().any(same) || named.doubt().is_some() {
            places.push(named);
        }
    }
    let words = subject.command.as_deref().map(words::plain);
    let script = subject.command.as_deref().map(shell::read);
    let operands = match &script {
        Some(script) => operands(&workspace, &subject.workspace, script),
        None => Some(CommandOperands::default()),
    };
    let other_names = diff.iter().flat_map(|diff| &diff.other_names).map(place).collect();
    ResolvedRequest { subject, workspace, places, other_names, operands, words, script, diff }
}

/// Returns the words of all commands that may be paths: those that look like one or that exist, and the targets of
/// redirections. `cd` is followed if it is unambiguous. `None` for more words than are looked up.
fn operands(workspace: &Path, as_given: &Path, script: &ShellScript) -> Option<CommandOperands> {
    let mut found = CommandOperands::default();
    let mut seen: HashSet<String> = HashSet::new();
    let mut base = PathBuf::new();
    for simple in &script.commands {
        let arguments = simple.words.iter().skip(1).filter(|word| !word.expanded).map(|word| &word.text);
        for written in arguments.chain(&simple.writes).chain(&simple.reads) {
            let is_new = !seen.contains(base.join(written).to_string_lossy().as_ref());
            if is_new && leads_out(workspace, written) {
                found.outside_links.push(written.clone());
            }
            // `--file=a`, `HEAD:a` and `@a` name a file as well.
            for part in std::iter::once(written.as_str()).chain(written.split(['=', ':', '@', ','])) {
                let text = base.join(part).to_string_lossy().into_owned();
                if part.is_empty() || seen.contains(&text) {
                    continue;
                }
                if part.contains(['/', '.']) || workspace.join(&text).symlink_metadata().is_ok() {
                    found.places.push(place(workspace, as_given, &text));
                }
                found.names.insert(lexical(&as_given.join(&text)));
                seen.insert(text);
                if seen.len() > MAX_OPERANDS {
                    return None;
                }
            }
        }
        found.outside_links.extend(outside_link_below(workspace, simple));
        found.written.extend(later_run_files::files(workspace, &base, simple));
        if let [program, folder] = simple.words.as_slice()
            && program.text == "cd"
            && !folder.wild
        {
            base.push(&folder.text);
        }
    }
    Some(found)
}

/// Reports whether a word, a part of it, or the value attached to an option, leads out of the workspace by a link.
fn leads_out(workspace: &Path, word: &str) -> bool {
    let parts = std::iter::once(word).chain(word.split(['=', ':', '@', ',']));
    let glued =
        word.char_indices().take(MAX_GLUED).map(|(at, _)| &word[at..]).filter(|_| word.starts_with('-'));
    parts.chain(glued).any(|part| {
        let path = Path::new(part);
        let Some(Component::Normal(first)) = path.components().find(|part| *part != Component::CurDir) else {
            return false;
        };
        // Absolute paths and `..` are detected by their text; here only existing paths matter.
        let exists = path.is_relative() && workspace.join(first).symlink_metadata().is_ok();
        exists && locate(&workspace.join(path)).is_none_or(|real| !real.starts_with(workspace))
    })
}

/// Returns the first directory among the words below which a link would be followed out of the workspace, although no
/// word names that link: `cp a dir` writes `dir/a`, `diff a dir` reads it, and `diff dir other` reads the files of
/// both.
fn outside_link_below(workspace: &Path, simple: &SimpleCommand) -> Option<String> {
    let (program, arguments) = simple.words.split_first()?;
    let words = || arguments.iter().take(MAX_OPERANDS).map(|word| word.text.as_str());
    let is_directory = |word: &&str| !word.starts_with('-') && workspace.join(word).is_dir();
    let directories: Vec<&str> = words().filter(is_directory).take(MAX_DIRECTORIES + 1).collect();
    if directories.len() > MAX_DIRECTORIES {
        return directories.first().map(|word| (*word).to_owned());
    }
    let compares = file_name(&program.text) == "diff" && directories.len() > 1;
    let leads_out_below = |directory: &&&str| {
        let mut names = words().filter_map(|word| Path::new(word).file_name());
        let has_name = names.any(|name| is_link_out(workspace, &workspace.join(directory).join(name)));
        has_name || (compares && has_link_out(workspace, &workspace.join(directory)))
    };
    directories.iter().find(leads_out_below).map(|word| (*word).to_owned())
}

fn is_link_out(workspace: &Path, path: &Path) -> bool {
    path.is_symlink() && locate(path).is_none_or(|real| !real.starts_with(workspace))
}

/// Reports whether a directory may contain a link that leads out of the workspace.
fn has_link_out(workspace: &Path, directory: &Path) -> bool {
    let Ok(entries) = directory.read_dir() else { return true };
    let is_out = |(at, entry): (usize, std::io::Result<DirEntry>)| {
        at >= MAX_ENTRIES || entry.is_ok_and(|entry| is_link_out(workspace, &entry.path()))
    };
    entries.enumerate().any(is_out)
}

fn place(workspace: &Path, as_given: &Path, written: &str) -> ResolvedPath {
    let path = Path::new(written);
    let seems = lexical(&as_given.join(path));
    // A shell would expand `~`, and a URL is not a path: it is unknown how the agent will treat them.
    let odd =
        written.is_empty() || written.starts_with('~') || written.contains("://") || written.contains('\0');
    let real = if odd { None } else { locate(&workspace.join(path)) };
    ResolvedPath {
        written: written.to_owned(),
        inside: real.as_ref().is_some_and(|real| real.starts_with(workspace)),
        linked: real.as_ref().is_some_and(|real| *real != lexical(&workspace.join(path)) && *real != seems),
        lexical: seems,
        real,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn workspace() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("ws/src")).unwrap();
        std::fs::create_dir(root.join("out")).unwrap();
        std::fs::write(root.join("ws/src/a.rs"), "").unwrap();
        (dir, root)
    }

    fn at(root: &Path, written: &str) -> ResolvedPath {
        let ws = root.join("ws");
        place(&ws, &ws, written)
    }

    #[test]
    fn plain_paths_are_where_they_seem() {
        let (_dir, root) = workspace();
        for written in
            ["src/a.rs", "./src/a.rs", "src/new/deep.rs", root.join("ws/src/a.rs").to_str().unwrap()]
        {
            let place = at(&root, written);
            assert!(place.inside && !place.linked && !place.has_parent_dir(), "{place:?}");
        }
    }

    #[test]
    fn links_are_followed() {
        let (_dir, root) = workspace();
        symlink(root.join("out"), root.join("ws/link")).unwrap();
        symlink("../out/later.txt", root.join("ws/dangling")).unwrap();
        symlink("loop", root.join("ws/loop")).unwrap();
        let place = at(&root, "link/x");
        assert_eq!(place.real, Some(root.join("out/x")));
        assert!(!place.inside && place.linked);
        assert_eq!(at(&root, "dangling").real, Some(root.join("out/later.txt")));
        assert_eq!(at(&root, "loop").real, None);
        assert_eq!(at(&root, "link/../x").real, Some(root.join("x")));
    }

    #[test]
    fn what_leads_nowhere_has_no_place() {
        let (_dir, root) = workspace();
        for written in ["", "~/x", "file:///etc/passwd", "a\0b", "none/../x", "src/a.rs/below"] {
            assert_eq!(at(&root, written).real, None, "{written:?}");
        }
        assert!(at(&root, "src/../src/a.rs").has_parent_dir());
    }
}
