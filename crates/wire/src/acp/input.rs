//! The facts in a tool's raw input. Every agent has its own input, so the whole of it is searched: known keys at any
//! depth, lists, objects, JSON inside strings, keys that occur twice, and unknown strings that look like paths.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::string;
use super::tool::{is_empty, quote_words, quoted, words};

/// The maximum nesting of objects; deeper facts are ignored. Real inputs have two or three levels.
const MAX_DEPTH: usize = 16;
/// The maximum number of facts of one kind. A further one is replaced by [`TOO_MANY`].
const MAX_FACTS: usize = 500;
/// The maximum length of an unknown string that may be a path.
const MAX_PATH: usize = 4096;
/// The replacement of facts beyond the limit. Policy cannot resolve it as a path nor read it as words, so that no rule
/// allows the request.
const TOO_MANY: &str = "~ (more than can be read)";

/// Keys in lower case without `_` and `-`.
const COMMANDS: &[&str] = &[
    "command",
    "commands",
    "cmd",
    "fullcommandtext",
    "script",
    "commandline",
    "shellcommand",
    "bashcommand",
    "rawcommand",
];
/// Keys whose texts are also run, or sent to the program that is run, beside a command.
const BESIDE_COMMANDS: &[&str] =
    &["stdin", "input", "exec", "execute", "executable", "program", "binary", "interpreter", "code"];
const ARGUMENTS: &[&str] = &["args", "argv"];
const FOLDERS: &[&str] = &[
    "cwd",
    "workdir",
    "workingdirectory",
    "workingdir",
    "directory",
    "dir",
    "dirpath",
    "folder",
    "currentdirectory",
];
const FILES: &[&str] = &[
    "file",
    "files",
    "filepath",
    "filepaths",
    "path",
    "paths",
    "filename",
    "filenames",
    "absolutepath",
    "abspath",
    "relativepath",
    "notebookpath",
    "targetfile",
    "targetpath",
    "destination",
    "destinationpath",
    "destpath",
    "sourcepath",
    "frompath",
    "topath",
    "oldpath",
    "newpath",
    "outputpath",
    "outputfile",
    "inputfile",
    "uri",
];
/// Keys that hold paths if the tool is about files. Beside a command they may hold anything, and only a value with a
/// slash counts.
const MAYBE_FILES: &[&str] = &["target", "dest", "source", "src", "from", "to", "link", "symlink"];
const DIFFS: &[&str] = &["diff", "patch", "unifieddiff", "patchtext"];
const VARIABLES: &[&str] = &["env", "environment", "envvars", "environmentvariables"];
/// Text that is written to files, searched for or read by people: the tool does not open a path in it.
const TEXTS: &[&str] = &[
    "content",
    "contents",
    "text",
    "filetext",
    "oldstring",
    "newstring",
    "oldstr",
    "newstr",
    "oldtext",
    "newtext",
    "description",
    "explanation",
    "reason",
    "justification",
    "title",
    "message",
    "prompt",
    "query",
    "url",
];

/// The facts, in the order of the input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InputFacts {
    /// Shell texts.
    pub(crate) commands: Vec<String>,
    pub(crate) folders: Vec<String>,
    /// Assignments: `NAME=value`.
    pub(crate) variables: Vec<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) diffs: Vec<String>,
}

impl InputFacts {
    pub(crate) fn read(input: Option<&RawValue>) -> Self {
        let mut facts = Self::default();
        if let Some(input) = input {
            facts.value(input, 0);
        }
        facts
    }

    /// Collects a value without a key, or under an unknown one.
    fn value(&mut self, raw: &RawValue, depth: usize) {
        if depth > MAX_DEPTH {
            return add(&mut self.paths, TOO_MANY);
        }
        let text = raw.get();
        if let Ok(ObjectFields(fields)) = serde_json::from_str(text) {
            self.object(&fields, depth);
        } else if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) {
            for item in items {
                self.value(item, depth + 1);
            }
        } else if let Some(text) = string(Some(raw)) {
            self.unknown_text(&text, depth);
        }
    }

    /// Some agents pass the model's arguments as JSON inside a string.
    fn unknown_text(&mut self, text: &str, depth: usize) {
        let inner = text.trim_start().starts_with(['{', '[']);
        match inner.then(|| serde_json::from_str::<&RawValue>(text)) {
            Some(Ok(inner)) => self.value(inner, depth + 1),
            _ if looks_like_path(text) => self.path(text),
            _ if looks_like_diff(text) => add(&mut self.diffs, text),
            _ => {}
        }
    }

    fn object(&mut self, fields: &[(Cow<'_, str>, &RawValue)], depth: usize) {
        let key = |name: &str| name.to_lowercase().replace(['_', '-'], "");
        let arguments: Vec<&RawValue> = fields
            .iter()
            .filter(|(name, _)| ARGUMENTS.contains(&&*key(name)))
            .map(|(_, value)| *value)
            .collect();
        let names_command = fields.iter().any(|(name, _)| COMMANDS.contains(&&*key(name)));
        let mut has_command = false;
        for (name, value) in fields {
            // Codex and editors name files by keys: `{"changes": {"src/a.rs": …}}`.
            if looks_like_path(name) {
                self.path(name);
            }
            let key = key(name);
            let is = |keys: &[&str]| keys.contains(&&*key);
            if key == "commands" {
                let items: Vec<&RawValue> =
                    serde_json::from_str(value.get()).unwrap_or_else(|_| vec![*value]);
                for item in items {
                    has_command |= self.command(item, &arguments);
                }
            } else if is(COMMANDS) {
                has_command |= self.command(value, &arguments);
            } else if (key == "run" || (names_command && is(BESIDE_COMMANDS))) && is_texts(value) {
                self.command(value, &[]);
                self.value(value, depth + 1);
            } else if is(FOLDERS) {
                self.strings(value, depth, |facts, text| add(&mut facts.folders, text));
            } else if is(FILES) || (is(MAYBE_FILES) && (!names_command || value.get().contains('/'))) {
                self.strings(value, depth, Self::path);
            } else if is(DIFFS) {
                self.strings(value, depth, |facts, text| add(&mut facts.diffs, text));
            } else if is(VARIABLES) {
                self.variables(value);
            } else if is(TEXTS) {
                self.strings(value, depth, |_, _| {});
            } else if !is(ARGUMENTS) {
                self.value(value, depth + 1);
            }
        }
        if !has_command {
            for value in arguments {
                self.value(value, depth + 1);
            }
        }
    }

    /// Takes each string under a known key; objects and lists of objects have keys of their own.
    fn strings(&mut self, raw: &RawValue, depth: usize, take: fn(&mut Self, &str)) {
        if is_empty(raw) {
            return;
        }
        if let Some(text) = string(Some(raw)) {
            return take(self, &text);
        }
        match words(Some(raw)) {
            Some(texts) => texts.iter().for_each(|text| take(self, text)),
            None => self.value(raw, depth + 1),
        }
    }

    fn path(&mut self, text: &str) {
        // `file:///a%20b` stays unchanged, so that policy cannot resolve it.
        let path = text.strip_prefix("file://").filter(|path| !path.contains('%'));
        add(&mut self.paths, path.unwrap_or(text));
    }

    /// Collects a command as shell text; an unreadable one is kept verbatim. Returns whether there is one.
    fn command(&mut self, raw: &RawValue, arguments: &[&RawValue]) -> bool {
        if is_empty(raw) {
            return false;
        }
        let args: Option<Vec<Cow<'_, str>>> = arguments
            .iter()
            .map(|list| words(Some(list)))
            .collect::<Option<Vec<_>>>()
            .map(|all| all.concat());
        let text = match (args, string(Some(raw)), words(Some(raw))) {
            (None, ..) => raw.get().to_owned(),
            (Some(args), Some(command), _) if args.is_empty() => command.into_owned(),
            (Some(args), Some(command), _) => format!("{command} {}", quote_words(&args)),
            (_, None, Some(words)) => match words.as_slice() {
                [shell, flag, script] if is_shell(shell) && matches!(&**flag, "-c" | "-lc") => {
                    script.clone().into_owned()
                }
                words => quote_words(words),
            },
            _ => raw.get().to_owned(),
        };
        add(&mut self.commands, &text);
        true
    }

    /// Collects variables: `{"NAME": "value"}`, `[{"name": …, "value": …}]` or `["NAME=value"]`.
    fn variables(&mut self, raw: &RawValue) {
        let value = |raw: &RawValue| string(Some(raw)).map_or_else(|| raw.get().to_owned(), Cow::into_owned);
        if is_empty(raw) {
            return;
        }
        if let Ok(ObjectFields(fields)) = serde_json::from_str(raw.get()) {
            return fields.iter().for_each(|(name, raw)| self.variable(name, &value(raw)));
        }
        let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_else(|_| vec![raw]);
        for item in items {
            if let [Some(name), given] = super::optional_fields(Some(item), ["name", "value"]) {
                self.variable(&value(name), &given.map(value).unwrap_or_default());
            } else {
                let text = value(item);
                let (name, value) = text.split_once('=').unwrap_or((&text, ""));
                self.variable(name, value);
            }
        }
    }

    fn variable(&mut self, name: &str, value: &str) {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        // An invalid name is quoted, and then read as a word.
        let (name, value) = (quoted(name, !plain), quoted(value, false));
        add(&mut self.variables, &format!("{name}={value}"));
    }
}

/// Reports whether a value is a text or a list of texts, without JSON inside of a text.
fn is_texts(raw: &RawValue) -> bool {
    match string(Some(raw)) {
        Some(text) => serde_json::from_str::<&RawValue>(&text).is_err(),
        None => words(Some(raw)).is_some(),
    }
}

/// Reports whether a program is a shell whose script replaces it as the command, and whose name cannot hide anything
/// else.
fn is_shell(word: &str) -> bool {
    let name = word.strip_prefix("/usr/bin/").or_else(|| word.strip_prefix("/bin/")).unwrap_or(word);
    ["sh", "bash", "zsh", "dash"].contains(&name)
}

/// Reports whether a text looks like a path. A relative path counts; an address does not.
fn looks_like_path(text: &str) -> bool {
    let is_file = text.starts_with("file://");
    let is_path = text.contains('/') && !text.contains("://") && !text.starts_with("//");
    (is_file || is_path) && text.len() <= MAX_PATH && !text.contains(char::is_whitespace)
}

/// Reports whether a text under an unknown key looks like a patch.
fn looks_like_diff(text: &str) -> bool {
    let has_line = |start: &str| text.lines().any(|line| line.starts_with(start));
    has_line("*** Begin Patch") || has_line("diff --git ") || (has_line("--- ") && has_line("+++ "))
}

fn add(list: &mut Vec<String>, fact: &str) {
    if list.len() == MAX_FACTS {
        list.push(TOO_MANY.to_owned());
    } else if list.len() < MAX_FACTS && !list.iter().any(|known| known == fact) {
        list.push(fact.to_owned());
    }
}

/// An object's fields in order, including duplicate keys.
struct ObjectFields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for ObjectFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectFieldsVisitor)
    }
}

struct ObjectFieldsVisitor;

impl<'de> Visitor<'de> for ObjectFieldsVisitor {
    type Value = ObjectFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, value)) = map.next_entry::<Cow<'de, str>, &'de RawValue>()? {
            fields.push((key, value));
        }
        Ok(ObjectFields(fields))
    }
}
