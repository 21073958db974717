//! Files that run later and that a command writes without naming them, through a link or into a directory.

use std::path::{Path, PathBuf};

use super::location::locate;
use super::programs::file_name;
use super::risk::places::{holds_what_runs_later, runs_later};
use super::shell::SimpleCommand;
use super::shell::effects::written_among;
use intercom_types::Risk;

/// The maximum number of names looked up for one command: its words, and the entries of directories among them.
const MAX_NAMES: usize = 1000;

/// Programs that copy or move their operands, also directories.
const PLACING: &[&str] = &["cp", "mv", "ln", "link", "install", "rsync", "scp", "git"];

/// A file that other programs run later.
#[derive(Debug, Clone)]
pub(super) struct LaterRunFile {
    /// The word of the command that names it, or the directory that it is in.
    pub(super) word: String,
    /// Its path with links followed, below the workspace if it is inside.
    pub(super) file: String,
    pub(super) risk: Risk,
}

/// Returns the files that run later and that a command writes without naming them. `base` is the command's directory,
/// below the workspace.
pub(super) fn files(workspace: &Path, base: &Path, simple: &SimpleCommand) -> Vec<LaterRunFile> {
    let mut found = Vec::new();
    for view in simple.views() {
        let program = file_name(&view[0].text);
        let arguments: Vec<&str> = view[1..].iter().take(MAX_NAMES).map(|word| word.text.as_str()).collect();
        let places = PLACING.contains(&program.as_str());
        // Explicitly named files are assessed by their names elsewhere.
        for word in written_among(&program, &arguments) {
            let is_new = |later: &LaterRunFile| runs_later(word) < Some(later.risk);
            found.extend(from_word(workspace, base, word, &arguments, places).into_iter().filter(is_new));
        }
        for word in
            working_directory_targets(&program, &arguments).into_iter().chain(in_code(&program, &arguments))
        {
            found.extend(from_word(workspace, base, word, &[], places));
        }
    }
    for word in &simple.writes {
        let is_new = |later: &LaterRunFile| runs_later(word) < Some(later.risk);
        found.extend(from_word(workspace, base, word, &[], false).into_iter().filter(is_new));
    }
    found
}

/// Returns words whose last part names a file that is written into the command's directory.
fn working_directory_targets<'a>(program: &str, arguments: &[&'a str]) -> Vec<&'a str> {
    let operands: Vec<&str> = arguments.iter().copied().filter(|word| !word.starts_with('-')).collect();
    let keeps_name =
        |word: &&str| *word == "--remote-name" || *word == "--remote-name-all" || is_cluster_with(word, 'O');
    let all = match (program, operands.as_slice()) {
        ("ln" | "wget", [_]) | ("git", ["clone", _]) => true,
        ("wget", _) => {
            !arguments.iter().any(|word| word.starts_with("--output-document") || is_cluster_with(word, 'O'))
        }
        ("curl", _) => arguments.iter().any(keeps_name),
        _ => false,
    };
    let last_part = |word: &&'a str| {
        let path = word.split(['?', '#']).next().unwrap_or(word);
        path.trim_end_matches('/')
            .rsplit(['/', ':'])
            .next()
            .map(|name| name.strip_suffix(".git").unwrap_or(name))
    };
    operands.iter().filter(|_| all).filter_map(last_part).filter(|name| !name.is_empty()).collect()
}

/// Returns files that a program of awk or sed may write: after `>` in quotes, or after `w` up to the end of a line.
fn in_code<'a>(program: &str, arguments: &[&'a str]) -> Vec<&'a str> {
    let quoted = |rest: &'a str| rest.trim_start_matches(['>', ' ']).strip_prefix('"')?.split('"').next();
    let to_end = |rest: &'a str| rest.trim_start().split(['\n', ';', '}']).next();
    let rests = |mark: char| {
        let from = move |word: &&'a str| {
            let word: &'a str = word;
            word.match_indices(mark).take(MAX_NAMES).map(move |(at, _)| &word[at + 1..])
        };
        arguments.iter().flat_map(from)
    };
    match program {
        "awk" | "gawk" | "mawk" | "nawk" => rests('>').filter_map(quoted).collect(),
        "sed" | "gsed" => rests('w').filter_map(to_end).filter(|file| !file.is_empty()).collect(),
        _ => Vec::new(),
    }
}

fn is_cluster_with(word: &str, letter: char) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.contains(letter)
}

/// Returns the files that run later among those that a program writes at `word`: the file itself, or, in a
/// directory, files named after `arguments`. With `places` the program copies or moves files, so it
/// may put a whole directory there.
fn from_word(
    workspace: &Path,
    base: &Path,
    word: &str,
    arguments: &[&str],
    places: bool,
) -> Vec<LaterRunFile> {
    let directory = base.join(word);
    let mut names = vec![directory.clone()];
    if workspace.join(&directory).is_dir() || word.ends_with('/') {
        let sources = || arguments.iter().filter(|source| **source != word && !source.starts_with('-'));
        names.extend(
            sources().filter_map(|source| Path::new(source).file_name()).map(|name| directory.join(name)),
        );
        let takes_all =
            arguments.iter().any(|word| is_cluster_with(word, 'T') || *word == "--no-target-directory");
        let contents =
            sources().filter(|source| takes_all || source.ends_with('/') || source.ends_with("/."));
        let entries =
            contents.filter_map(|source| workspace.join(base).join(source).read_dir().ok()).flatten();
        names.extend(
            entries.filter_map(Result::ok).take(MAX_NAMES).map(|entry| directory.join(entry.file_name())),
        );
    }
    let later = |name: PathBuf| {
        let real = locate(&workspace.join(&name)).unwrap_or_else(|| workspace.join(&name));
        let file = real.strip_prefix(workspace).unwrap_or(&real).to_string_lossy().into_owned();
        let replaces = places && holds_what_runs_later(&file) && !real.is_dir();
        let risk = if replaces { Some(Risk::High) } else { runs_later(&file) };
        risk.map(|risk| LaterRunFile { word: word.to_owned(), file, risk })
    };
    names.into_iter().filter_map(later).collect()
}
