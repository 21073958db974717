//! Forms, and the home of the app.

use serde::Serialize;
use serde_json::Value;

use super::cut::cut;
use super::{Blocks, Plain, Words, most};

/// A modal or a home, as Slack takes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::slack) struct View {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_id: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    submit: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    close: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_metadata: Option<String>,
    blocks: Vec<Value>,
}

impl View {
    pub(in crate::slack) fn home(blocks: Blocks) -> Self {
        let blocks = some(blocks);
        Self {
            r#type: "home",
            callback_id: None,
            title: None,
            submit: None,
            close: None,
            private_metadata: None,
            blocks,
        }
    }

    /// Something to read; with [`View::submit`], something to fill in.
    pub(in crate::slack) fn modal(callback: &'static str, title: impl Into<Plain>, blocks: Blocks) -> Self {
        Self {
            r#type: "modal",
            callback_id: Some(callback),
            title: Some(title.into().json(most::VIEW_TITLE)),
            close: Some(Plain::new("Close").json(most::VIEW_TITLE)),
            ..Self::home(blocks)
        }
    }

    #[must_use]
    pub(in crate::slack) fn submit(self, text: impl Into<Plain>) -> Self {
        let close = Some(Plain::new("Cancel").json(most::VIEW_TITLE));
        Self { submit: Some(text.into().json(most::VIEW_TITLE)), close, ..self }
    }

    /// Sets the metadata that comes back with the form: ids only, nobody sees it.
    #[must_use]
    pub(in crate::slack) fn metadata(self, metadata: &str) -> Self {
        Self { private_metadata: Some(cut(metadata, most::METADATA)), ..self }
    }
}

/// Slack refuses a view without blocks.
fn some(blocks: Blocks) -> Vec<Value> {
    let made = blocks.clone().view();
    if made.is_empty() { blocks.section(Words::new("Nothing to show.")).view() } else { made }
}
