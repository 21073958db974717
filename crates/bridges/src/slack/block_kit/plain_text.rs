//! Text without markup: headers, buttons, titles.

use serde_json::{Value, json};

use super::cut::cut;
use intercom_types::text::clean;

/// Text in which Slack interprets no markup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::slack) struct PlainText {
    text: String,
    /// True for our own text: only there may `:name:` become an emoji.
    ours: bool,
}

impl PlainText {
    pub(in crate::slack) fn new(ours: &'static str) -> Self {
        Self { text: ours.to_owned(), ours: true }
    }

    /// Text of others, on one line.
    pub(in crate::slack) fn untrusted(text: &str) -> Self {
        Self { text: unbracketed(&clean(text)), ours: false }
    }

    #[must_use]
    pub(in crate::slack) fn and(mut self, more: impl Into<Self>) -> Self {
        let more = more.into();
        self.text.push_str(&more.text);
        self.ours &= more.ours;
        self
    }

    #[must_use]
    pub(in crate::slack) fn cut(self, limit: usize) -> Self {
        Self { text: cut(&self.text, limit), ..self }
    }

    pub(super) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Slack refuses a button or a label without text.
    pub(super) fn json(&self, limit: usize) -> Value {
        let text = if self.is_blank() { "?".to_owned() } else { cut(&self.text, limit) };
        json!({ "type": "plain_text", "text": text, "emoji": self.ours })
    }
}

impl From<&'static str> for PlainText {
    fn from(ours: &'static str) -> Self {
        Self::new(ours)
    }
}

/// Removes brackets that could open a mention or a link. Slack interprets none here, but other clients and programs
/// that read our messages may.
fn unbracketed(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let opens =
            rest.starts_with(['!', '@', '#']) || rest.starts_with("http") || rest.starts_with("mailto:");
        safe.push(if c == '<' && opens { '‹' } else { c });
    }
    safe
}
