//! Buttons, menus and form fields.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};

use super::cut::{clip, cut};
use super::{MrkdwnText, PlainText, block_limits};

#[derive(Debug, Clone)]
pub(in crate::slack) struct Button {
    action: String,
    text: PlainText,
    value: String,
    style: Option<ButtonStyle>,
    confirm: Option<ConfirmDialog>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::slack) enum ButtonStyle {
    Primary,
    Danger,
}

/// The confirmation before a button acts.
#[derive(Debug, Clone)]
pub(in crate::slack) struct ConfirmDialog {
    pub(in crate::slack) title: PlainText,
    pub(in crate::slack) text: MrkdwnText,
    pub(in crate::slack) yes: PlainText,
    pub(in crate::slack) danger: bool,
}

impl ConfirmDialog {
    fn json(&self) -> Value {
        let text = if self.text.is_blank() { MrkdwnText::new("Are you sure?") } else { self.text.clone() };
        let style = if self.danger { ButtonStyle::Danger } else { ButtonStyle::Primary };
        json!({
            "title": self.title.json(block_limits::CONFIRM_TITLE),
            "text": text.json(block_limits::CONFIRM_TEXT),
            "confirm": self.yes.json(block_limits::CONFIRM_BUTTON),
            "deny": PlainText::new("Cancel").json(block_limits::CONFIRM_BUTTON),
            "style": style,
        })
    }
}

impl Button {
    pub(in crate::slack) fn new(action: &str, text: impl Into<PlainText>, value: &str) -> Self {
        let (action, value) = (action.to_owned(), value.to_owned());
        Self { action, text: text.into(), value, style: None, confirm: None }
    }

    #[must_use]
    pub(in crate::slack) fn style(self, style: ButtonStyle) -> Self {
        Self { style: Some(style), ..self }
    }

    #[must_use]
    pub(in crate::slack) fn confirm(self, confirm: impl Into<Option<ConfirmDialog>>) -> Self {
        Self { confirm: confirm.into(), ..self }
    }

    pub(super) fn json(&self, ids: &mut UniqueIds) -> Value {
        let mut button = json!({
            "type": "button", "action_id": ids.take(&self.action), "text": self.text.json(block_limits::BUTTON),
        });
        if !self.value.is_empty() {
            button["value"] = cut(&self.value, block_limits::VALUE).into();
        }
        if let Some(style) = self.style {
            button["style"] = json!(style);
        }
        if let Some(confirm) = &self.confirm {
            button["confirm"] = confirm.json();
        }
        button
    }
}

/// An entry of a menu.
#[derive(Debug, Clone)]
pub(in crate::slack) struct SelectOption {
    pub(in crate::slack) text: PlainText,
    pub(in crate::slack) value: String,
}

impl SelectOption {
    pub(in crate::slack) fn new(text: impl Into<PlainText>, value: impl Into<String>) -> Self {
        Self { text: text.into(), value: value.into() }
    }

    fn json(&self) -> Value {
        let value = if self.value.is_empty() { "?" } else { &self.value };
        json!({ "text": self.text.json(block_limits::OPTION), "value": cut(value, block_limits::OPTION) })
    }
}

/// A form field.
#[derive(Debug, Clone)]
pub(in crate::slack) enum InputElement {
    /// A text field of several lines, with its initial text.
    Lines { initial: String, placeholder: PlainText },
    /// A menu, with the index of its initial entry.
    Select { options: Vec<SelectOption>, initial: Option<usize> },
}

impl InputElement {
    /// Returns true for an empty menu, which Slack refuses.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Select { options, .. } if options.is_empty())
    }

    pub(super) fn json(&self, action: &str) -> Value {
        match self {
            Self::Lines { initial, placeholder } => {
                let mut element =
                    json!({ "type": "plain_text_input", "action_id": action, "multiline": true });
                let initial = clip(initial, block_limits::INITIAL);
                if !initial.trim().is_empty() {
                    element["initial_value"] = initial.into();
                }
                if !placeholder.is_blank() {
                    element["placeholder"] = placeholder.json(block_limits::PLACEHOLDER);
                }
                element
            }
            Self::Select { options, initial } => chosen(action, options, *initial),
        }
    }
}

fn chosen(action: &str, options: &[SelectOption], initial: Option<usize>) -> Value {
    let options: Vec<Value> = options.iter().take(block_limits::OPTIONS).map(SelectOption::json).collect();
    let first = initial.and_then(|at| options.get(at)).cloned();
    let mut element = json!({ "type": "static_select", "action_id": action, "options": options });
    if let Some(first) = first {
        element["initial_option"] = first;
    }
    element
}

/// The ids in use, so that none occurs twice.
#[derive(Debug, Default)]
pub(super) struct UniqueIds(BTreeSet<String>);

impl UniqueIds {
    /// Returns this id, with a number if it is in use.
    pub(super) fn take(&mut self, id: &str) -> String {
        let id = if id.is_empty() { "unnamed" } else { id };
        let mut free = cut(id, block_limits::ID);
        let mut n = 2;
        while !self.0.insert(free.clone()) {
            let number = format!(".{n}");
            free = cut(id, block_limits::ID - number.len()) + &number;
            n += 1;
        }
        free
    }
}
