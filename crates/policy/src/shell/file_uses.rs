//! Files that a text writes, and files that it runs. If a text runs a file that it has written, copied, linked or moved
//! itself, its words do not show what runs.

use std::collections::{HashMap, HashSet};

use super::context::PossibleValues;
use super::word::ShellWord;
use crate::glob::name_fits;
use crate::programs::file_name;

/// The placeholder for expansions.
const ANYTHING: &str = "*";

#[derive(Debug, Default)]
pub(super) struct FileUses {
    written: Vec<WrittenName>,
    /// Files with names that are not in the text are written, with content from the text.
    unpacks: bool,
    /// Scripts, and programs with a path.
    run: HashSet<String>,
    /// Programs that are looked up in `PATH`.
    looked_up: HashSet<String>,
    /// Files from which programs of the text read what they run.
    taken_from: HashSet<&'static str>,
    /// Words of the values that the text assigns to variables.
    values: HashMap<String, HashSet<String>>,
}

/// A file that is written, as the text names it.
#[derive(Debug)]
struct WrittenName {
    /// The name, with `*` for each expansion.
    pattern: String,
    variables: Vec<String>,
    /// The output of a command is part of it.
    is_computed: bool,
}

impl FileUses {
    /// Records a written file that the end of a word names.
    pub(super) fn write(&mut self, word: &ShellWord, file: &str) {
        let name = file.trim_end_matches('/');
        self.written.push(WrittenName {
            pattern: if word.braces { without_braces(name) } else { name.to_ascii_lowercase() },
            variables: word.variables.clone(),
            is_computed: word.output > PossibleValues::Number,
        });
    }

    /// Records that files are written whose names are decided at run time.
    pub(super) fn write_any(&mut self) {
        let name = WrittenName { pattern: ANYTHING.to_owned(), variables: Vec::new(), is_computed: true };
        self.written.push(name);
    }

    pub(super) fn unpack(&mut self) {
        self.unpacks = true;
    }

    /// Reports whether the text has written a file of this name so far.
    pub(super) fn has_written(&self, file: &str) -> bool {
        let file = last_part(file).to_ascii_lowercase();
        self.names().any(|name| last_part(&name) == file)
    }

    pub(super) fn run(&mut self, file: &str) {
        self.run.insert(file_name(file));
    }

    pub(super) fn look_up(&mut self, program: &str) {
        self.looked_up.insert(file_name(program));
    }

    pub(super) fn take_from(&mut self, files: &'static [String]) {
        self.taken_from.extend(files.iter().map(String::as_str));
    }

    pub(super) fn assign(&mut self, name: &str, text: &str) {
        let values = self.values.entry(name.to_owned()).or_default();
        values.extend(text.split_whitespace().map(str::to_ascii_lowercase));
    }

    /// Reports whether the text runs a file that it may have written.
    pub(super) fn runs_own(&self) -> bool {
        if self.unpacks && !self.run.is_empty() {
            return true;
        }
        let sets_path = self.values.contains_key("PATH");
        self.names().any(|name| {
            let last = last_part(&name);
            let fits = |program: &String| name_fits(last, program);
            let is_in_path = sets_path || (last != ANYTHING && may_be_in_path(&name));
            self.run.iter().any(fits) || (is_in_path && self.looked_up.iter().any(fits))
        })
    }

    /// Reports whether the text writes a file from which one of its programs reads what it runs.
    pub(super) fn writes_commands(&self) -> bool {
        let is_taken = |name: &str| {
            let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
            self.taken_from.iter().any(|file| {
                let file: Vec<&str> = file.split('/').collect();
                let fits = |(part, file): (&&str, &&str)| {
                    *part != ANYTHING && (part == file || name_fits(part, file))
                };
                parts.windows(file.len()).any(|window| window.iter().zip(&file).all(fits))
            })
        };
        !self.taken_from.is_empty() && self.names().any(|name| is_taken(&name))
    }

    /// Returns the names of all written files, as far as the text shows them.
    fn names(&self) -> impl Iterator<Item = String> {
        self.written.iter().flat_map(|name| self.candidates(name))
    }

    fn candidates(&self, name: &WrittenName) -> Vec<String> {
        let is_wild = last_part(&name.pattern).contains('*');
        let is_own = |variable: &String| {
            self.values.contains_key(variable) || variable.starts_with(|c: char| !is_letter(c))
        };
        if !is_wild || name.is_computed || name.variables.is_empty() {
            return vec![name.pattern.clone()];
        }
        // The text does not choose values of the environment.
        if !name.variables.iter().any(is_own) {
            return Vec::new();
        }
        match name.variables.as_slice() {
            [variable] if name.pattern == ANYTHING => {
                self.values.get(variable).into_iter().flatten().cloned().collect()
            }
            _ => vec![name.pattern.clone()],
        }
    }
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Reports whether a path may be a directory of `PATH`.
fn may_be_in_path(path: &str) -> bool {
    path.contains('/')
        && (path.starts_with(['/', '~', '*']) || path.split('/').any(|part| part.ends_with("bin")))
}

/// Returns a pattern for all names that braces produce.
fn without_braces(name: &str) -> String {
    match (name.find('{'), name.rfind('}')) {
        (Some(from), Some(to)) if from < to && !name[from..to].contains('/') => {
            format!("{}{ANYTHING}{}", &name[..from], &name[to + 1..]).to_ascii_lowercase()
        }
        _ => ANYTHING.to_owned(),
    }
}
