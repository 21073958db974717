//! A block before its conversion to JSON, so that it can still be cut.

use serde_json::{Value, json};

use super::controls::{Button, InputElement, UniqueIds};
use super::cut::{clip, cut};
use super::{MrkdwnText, PlainText, block_limits};

#[derive(Debug, Clone)]
pub(super) enum BlockPart {
    Header(PlainText),
    Section(MrkdwnText),
    Fields(Vec<MrkdwnText>),
    Code(String),
    Prose(String),
    Context(Vec<MrkdwnText>),
    Actions(Vec<Button>),
    Divider,
    Input { id: String, label: PlainText, entry: InputElement, optional: bool },
}

/// The importance of a part, by which parts are cut when a message is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartPriority {
    /// Long text of others.
    Long,
    /// Our own explanation.
    Telling,
    /// Buttons, and text that identifies the card.
    Needed,
}

impl BlockPart {
    pub(super) fn code(text: &str) -> Self {
        Self::Code(clip(text.trim_end(), block_limits::LONG))
    }

    pub(super) fn prose(text: &str) -> Self {
        Self::Prose(clip(text.trim(), block_limits::LONG))
    }

    pub(super) fn fields(fields: Vec<MrkdwnText>) -> Self {
        Self::Fields(few(fields, block_limits::FIELDS))
    }

    pub(super) fn context(words: Vec<MrkdwnText>) -> Self {
        Self::Context(few(words, block_limits::CONTEXTS))
    }

    /// Returns true for a blank block, which Slack refuses.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Header(text) => text.is_blank(),
            Self::Section(words) => words.is_blank(),
            Self::Fields(words) | Self::Context(words) => words.is_empty(),
            Self::Code(text) | Self::Prose(text) => text.trim().is_empty(),
            Self::Actions(buttons) => buttons.is_empty(),
            Self::Divider => false,
            Self::Input { entry, .. } => entry.is_empty(),
        }
    }

    pub(super) const fn worth(&self) -> PartPriority {
        match self {
            Self::Code(_) | Self::Prose(_) => PartPriority::Long,
            Self::Section(_) | Self::Fields(_) | Self::Divider => PartPriority::Telling,
            Self::Header(_) | Self::Context(_) | Self::Actions(_) | Self::Input { .. } => {
                PartPriority::Needed
            }
        }
    }

    /// Counts the characters that people see.
    pub(super) fn chars(&self) -> usize {
        visible(&self.json())
    }

    /// Cuts the part to at most about this many characters, if it can be cut.
    pub(super) fn shrink(&mut self, to: usize) {
        match self {
            Self::Section(words) => *words = std::mem::take(words).cut(to),
            Self::Fields(fields) => {
                let each = to / fields.len().max(1);
                for field in fields {
                    *field = std::mem::take(field).cut(each);
                }
            }
            Self::Code(text) | Self::Prose(text) => *text = cut(text, to),
            Self::Header(_) | Self::Context(_) | Self::Actions(_) | Self::Divider | Self::Input { .. } => {}
        }
    }

    pub(super) fn json(&self) -> Value {
        let all =
            |words: &[MrkdwnText], limit| words.iter().map(|words| words.json(limit)).collect::<Vec<_>>();
        match self {
            Self::Header(text) => json!({ "type": "header", "text": text.json(block_limits::HEADER) }),
            Self::Section(words) => json!({ "type": "section", "text": words.json(block_limits::SECTION) }),
            Self::Fields(fields) => json!({ "type": "section", "fields": all(fields, block_limits::FIELD) }),
            Self::Code(text) => rich("rich_text_preformatted", text),
            Self::Prose(text) => rich("rich_text_section", text),
            Self::Context(words) => {
                json!({ "type": "context", "elements": all(words, block_limits::CONTEXT) })
            }
            Self::Actions(buttons) => {
                let mut ids = UniqueIds::default();
                let buttons = buttons.iter().take(block_limits::ACTIONS).map(|button| button.json(&mut ids));
                json!({ "type": "actions", "elements": buttons.collect::<Vec<_>>() })
            }
            Self::Divider => json!({ "type": "divider" }),
            Self::Input { id, label, entry, optional } => json!({
                "type": "input", "block_id": id, "label": label.json(block_limits::LABEL), "optional": optional,
                "element": entry.json(id),
            }),
        }
    }
}

/// Returns the elements that are not blank; the last one counts those beyond the limit.
fn few(words: Vec<MrkdwnText>, limit: usize) -> Vec<MrkdwnText> {
    let mut words: Vec<MrkdwnText> = words.into_iter().filter(|words| !words.is_blank()).collect();
    if words.len() > limit {
        let over = words.len() - limit + 1;
        words.truncate(limit - 1);
        words.push(MrkdwnText::new("… and ").and(MrkdwnText::number(over as u64)).and(" more"));
    }
    words
}

/// Returns a block of text in which Slack interprets no markup.
fn rich(sort: &str, text: &str) -> Value {
    let text = json!({ "type": "text", "text": text });
    json!({ "type": "rich_text", "elements": [{ "type": sort, "elements": [text] }] })
}

/// Counts the characters of all visible text; ids and values are invisible.
pub(super) fn visible(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(visible).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) if matches!(key.as_str(), "text" | "initial_value") => {
                    text.chars().count()
                }
                Value::String(_) => 0,
                other => visible(other),
            })
            .sum(),
        _ => 0,
    }
}
