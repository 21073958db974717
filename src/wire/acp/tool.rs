//! Tool calls: what an agent is about to do, does, or has done.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{inside, list, pick, string};

/// As far as it was said: a `tool_call`, a `tool_call_update`, or the one inside a permission request.
#[derive(Debug, Clone, Default)]
pub struct ToolCall<'a> {
    pub id: Option<Cow<'a, str>>,
    pub title: Option<Cow<'a, str>>,
    /// What the agent's own tool is called.
    pub name: Option<Cow<'a, str>>,
    pub kind: Option<Cow<'a, str>>,
    pub status: Option<Cow<'a, str>>,
    /// The files it is about.
    pub locations: Vec<Cow<'a, str>>,
    pub edits: Vec<Edit<'a>>,
    pub texts: Vec<Cow<'a, str>>,
    /// Whatever the model handed to the tool; every agent has its own.
    pub input: Option<&'a RawValue>,
}

/// A file's text before and after, or only the part that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit<'a> {
    pub path: Cow<'a, str>,
    /// None for a new file, with agents that say so.
    pub old: Option<Cow<'a, str>>,
    pub new: Cow<'a, str>,
}

/// Where commands are found in a tool's input.
const COMMANDS: [&str; 4] = ["command", "cmd", "fullCommandText", "script"];
const FOLDERS: [&str; 4] = ["cwd", "workdir", "working_directory", "directory"];
const FILES: [&str; 8] =
    ["file_path", "filePath", "filepath", "path", "fileName", "absolute_path", "abs_path", "notebook_path"];
const DIFFS: [&str; 3] = ["diff", "patch", "unified_diff"];
/// Shells whose script is taken for the command, where nothing else can hide behind the name.
const SHELLS: [&str; 4] = ["sh", "bash", "zsh", "dash"];

impl<'a> ToolCall<'a> {
    /// `None` if it is no object.
    pub fn read(raw: &'a RawValue) -> Option<Self> {
        let [id, title, name, kind, status, locations, content, input] =
            pick(raw, ["toolCallId", "title", "name", "kind", "status", "locations", "content", "rawInput"])?;
        let mut call = Self {
            id: string(id),
            title: string(title),
            name: string(name),
            kind: string(kind),
            status: string(status),
            input,
            ..Self::default()
        };
        let location = |raw| string(inside(Some(raw), ["path"])[0]);
        call.locations = list(locations).into_iter().filter_map(location).collect();
        for part in list(content) {
            call.add(part);
        }
        Some(call)
    }

    fn add(&mut self, part: &'a RawValue) {
        let [sort, path, old, new, content] =
            inside(Some(part), ["type", "path", "oldText", "newText", "content"]);
        match string(sort).as_deref() {
            Some("diff") => {
                if let (Some(path), Some(new)) = (string(path), string(new)) {
                    self.edits.push(Edit { path, old: string(old), new });
                }
            }
            Some("content") => self.texts.extend(string(inside(content, ["text"])[0])),
            _ => {}
        }
    }

    /// This one, with what was said earlier of the same call where it says nothing itself.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        let or = |own: Vec<Cow<'a, str>>, earlier: &[Cow<'a, str>]| {
            if own.is_empty() { earlier.to_vec() } else { own }
        };
        Self {
            id: self.id.or_else(|| earlier.id.clone()),
            title: self.title.or_else(|| earlier.title.clone()),
            name: self.name.or_else(|| earlier.name.clone()),
            kind: self.kind.or_else(|| earlier.kind.clone()),
            status: self.status.or_else(|| earlier.status.clone()),
            locations: or(self.locations, &earlier.locations),
            edits: if self.edits.is_empty() { earlier.edits.clone() } else { self.edits },
            texts: or(self.texts, &earlier.texts),
            input: self.input.filter(|input| !is_empty(input)).or(earlier.input),
        }
    }

    /// What would be run, as shell text; something that we cannot read as one is given as it stands.
    pub fn command(&self) -> Option<Cow<'a, str>> {
        let said = inside(self.input, COMMANDS).into_iter().flatten().find(|raw| !is_empty(raw))?;
        let [args] = inside(self.input, ["args"]);
        let Some(args) = words(args) else { return Some(Cow::Borrowed(said.get())) };
        match string(Some(said)) {
            Some(command) if args.is_empty() => Some(command),
            Some(command) => Some(Cow::Owned(format!("{command} {}", joined(&args)))),
            None => Some(match words(Some(said)).as_deref() {
                Some([shell, flag, script]) if is_shell(shell) && matches!(&**flag, "-c" | "-lc") => {
                    script.clone()
                }
                Some(words) if !words.is_empty() => Cow::Owned(joined(words)),
                _ => Cow::Borrowed(said.get()),
            }),
        }
    }

    /// Where it would be run, if the agent says so.
    pub fn folder(&self) -> Option<Cow<'a, str>> {
        inside(self.input, FOLDERS).into_iter().find_map(string).filter(|folder| !folder.is_empty())
    }

    /// The files that the input names.
    pub fn input_paths(&self) -> Vec<Cow<'a, str>> {
        inside(self.input, FILES).into_iter().filter_map(string).filter(|path| !path.is_empty()).collect()
    }

    /// A diff that the agent has made itself.
    pub fn input_diff(&self) -> Option<Cow<'a, str>> {
        inside(self.input, DIFFS).into_iter().find_map(string).filter(|diff| !diff.is_empty())
    }

    pub fn input_description(&self) -> Option<Cow<'a, str>> {
        let [description] = inside(self.input, ["description"]);
        string(description).filter(|text| !text.is_empty())
    }
}

fn is_empty(raw: &RawValue) -> bool {
    matches!(raw.get(), "\"\"" | "[]" | "{}" | "null")
}

/// The strings of a list; none are there if it is absent, `None` if it is anything else.
fn words(raw: Option<&RawValue>) -> Option<Vec<Cow<'_, str>>> {
    let Some(raw) = raw else { return Some(Vec::new()) };
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
    items.into_iter().map(|item| string(Some(item))).collect()
}

fn is_shell(word: &str) -> bool {
    let name = word.strip_prefix("/usr/bin/").or_else(|| word.strip_prefix("/bin/")).unwrap_or(word);
    SHELLS.contains(&name)
}

/// Words as a shell would read them again.
pub fn joined(words: &[Cow<'_, str>]) -> String {
    let quoted = words.iter().enumerate().map(|(at, word)| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
        // A first word with `=` would be an assignment.
        if word.is_empty() || !word.chars().all(plain) || (at == 0 && word.contains('=')) {
            Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
        } else {
            Cow::Borrowed(&**word)
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}
