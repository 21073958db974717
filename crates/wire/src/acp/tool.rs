//! Tool calls: planned, running and finished actions of an agent.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::input::InputFacts;
use super::{optional_fields, pick, string};

/// The known fields of a `tool_call`, a `tool_call_update`, or the one inside a permission request.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolCall<'a> {
    pub(crate) id: Option<Cow<'a, str>>,
    pub(crate) title: Option<Cow<'a, str>>,
    /// The agent's own name of the tool.
    pub(crate) name: Option<Cow<'a, str>>,
    pub(crate) kind: Option<Cow<'a, str>>,
    pub(crate) status: Option<Cow<'a, str>>,
    /// The files that it concerns.
    pub(crate) locations: Vec<Cow<'a, str>>,
    pub(crate) edits: Vec<ToolCallEdit<'a>>,
    pub(crate) texts: Vec<Cow<'a, str>>,
    /// The model's input to the tool; its format depends on the agent.
    pub(crate) input: Option<&'a RawValue>,
}

/// A file's text before and after, or only the part that changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToolCallEdit<'a> {
    /// `None` if the agent does not name the file.
    pub(crate) path: Option<Cow<'a, str>>,
    /// `None` for a new file, with agents that report this.
    pub(crate) old: Option<Cow<'a, str>>,
    /// `None` if the agent does not report the new text.
    pub(crate) new: Option<Cow<'a, str>>,
}

impl<'a> ToolCall<'a> {
    /// Parses a tool call; `None` if it is not an object.
    pub(crate) fn read(raw: &'a RawValue) -> Option<Self> {
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
        call.locations = InputFacts::read(locations).paths.into_iter().map(Cow::Owned).collect();
        let parts = content.map(|content| serde_json::from_str(content.get()).unwrap_or(vec![content]));
        for part in parts.into_iter().flatten() {
            call.add(part);
        }
        Some(call)
    }

    fn add(&mut self, part: &'a RawValue) {
        let Some([sort, path, old, new, content]) =
            pick(part, ["type", "path", "oldText", "newText", "content"])
        else {
            // It has a duplicate key, or is not an object: another parser may read a change in it.
            return self.edits.push(ToolCallEdit::default());
        };
        match string(sort).as_deref() {
            Some("diff") => {
                self.edits.push(ToolCallEdit { path: string(path), old: string(old), new: string(new) });
            }
            Some("content") => self.texts.extend(string(optional_fields(content, ["text"])[0])),
            _ => {}
        }
    }

    /// Completes missing fields from an earlier report of the same call.
    #[must_use]
    pub(crate) fn with_earlier(self, earlier: &Self) -> Self {
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

    /// Returns the facts in the input.
    pub(crate) fn facts(&self) -> InputFacts {
        InputFacts::read(self.input)
    }

    pub(crate) fn input_description(&self) -> Option<Cow<'a, str>> {
        let [description] = optional_fields(self.input, ["description"]);
        string(description).filter(|text| !text.is_empty())
    }
}

pub(super) fn is_empty(raw: &RawValue) -> bool {
    matches!(raw.get(), "\"\"" | "[]" | "{}" | "null")
}

/// Returns the strings of a list; empty if it is absent, `None` if it is anything else.
pub(super) fn words(raw: Option<&RawValue>) -> Option<Vec<Cow<'_, str>>> {
    let Some(raw) = raw else { return Some(Vec::new()) };
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
    items.into_iter().map(|item| string(Some(item))).collect()
}

/// Quotes words for a shell.
pub fn quote_words(words: &[Cow<'_, str>]) -> String {
    // A first word with `=` would be an assignment.
    let quoted = words.iter().enumerate().map(|(at, word)| quoted(word, at == 0 && word.contains('=')));
    quoted.collect::<Vec<_>>().join(" ")
}

/// Quotes one word for a shell, always if `must` is set.
pub(crate) fn quoted(word: &str, must: bool) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if must || word.is_empty() || !word.chars().all(plain) {
        Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
    } else {
        Cow::Borrowed(word)
    }
}
