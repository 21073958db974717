//! Forms, and the home tab of the app.

use serde::Serialize;
use serde_json::Value;

use super::cut::cut;
use super::{BlockBuilder, MrkdwnText, PlainText, block_limits};

/// A modal or a home tab in Slack's format.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::slack) struct SlackView {
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

impl SlackView {
    pub(in crate::slack) fn home(blocks: BlockBuilder) -> Self {
        let blocks = non_empty_blocks(blocks);
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

    /// Creates a modal to read; [`SlackView::submit`] makes it a form.
    pub(in crate::slack) fn modal(
        callback: &'static str,
        title: impl Into<PlainText>,
        blocks: BlockBuilder,
    ) -> Self {
        Self {
            r#type: "modal",
            callback_id: Some(callback),
            title: Some(title.into().json(block_limits::VIEW_TITLE)),
            close: Some(PlainText::new("Close").json(block_limits::VIEW_TITLE)),
            ..Self::home(blocks)
        }
    }

    #[must_use]
    pub(in crate::slack) fn submit(self, text: impl Into<PlainText>) -> Self {
        let close = Some(PlainText::new("Cancel").json(block_limits::VIEW_TITLE));
        Self { submit: Some(text.into().json(block_limits::VIEW_TITLE)), close, ..self }
    }

    /// Sets the metadata that returns with the form: ids only, invisible to people.
    #[must_use]
    pub(in crate::slack) fn metadata(self, metadata: &str) -> Self {
        Self { private_metadata: Some(cut(metadata, block_limits::METADATA)), ..self }
    }
}

/// Slack refuses a view without blocks.
fn non_empty_blocks(blocks: BlockBuilder) -> Vec<Value> {
    let made = blocks.clone().view();
    if made.is_empty() { blocks.section(MrkdwnText::new("Nothing to show.")).view() } else { made }
}
