//! The builder of messages and views.

use serde::Serialize;
use serde_json::Value;

use super::controls::{Button, InputElement, UniqueIds};
use super::part::{BlockPart, PartPriority};
use super::{MrkdwnText, PlainText, block_limits};

/// A message to post: blocks, and a line for notifications. Only [`BlockBuilder::message`] creates it, within all
/// limits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::slack) struct CardMessage {
    text: String,
    blocks: Vec<Value>,
}

/// A sequence of blocks. Blank ones are omitted.
#[derive(Debug, Clone)]
pub(in crate::slack) struct BlockBuilder {
    key: String,
    parts: Vec<BlockPart>,
}

impl BlockBuilder {
    /// Creates a builder whose first block has this id, by which the sender finds the message again.
    pub(in crate::slack) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), parts: Vec::new() }
    }

    /// Creates a builder for a view, which needs no id.
    pub(in crate::slack) fn keyless() -> Self {
        Self::new("")
    }

    fn with(mut self, part: BlockPart) -> Self {
        if !part.is_empty() {
            self.parts.push(part);
        }
        self
    }

    #[must_use]
    pub(in crate::slack) fn header(self, text: impl Into<PlainText>) -> Self {
        self.with(BlockPart::Header(text.into()))
    }

    #[must_use]
    pub(in crate::slack) fn section(self, words: impl Into<MrkdwnText>) -> Self {
        self.with(BlockPart::Section(words.into()))
    }

    #[must_use]
    pub(in crate::slack) fn fields(self, fields: Vec<MrkdwnText>) -> Self {
        self.with(BlockPart::fields(fields))
    }

    /// Appends text of others as code, with all of its whitespace.
    #[must_use]
    pub(in crate::slack) fn code(self, text: &str) -> Self {
        self.with(BlockPart::code(text))
    }

    /// Appends text of others, as running text.
    #[must_use]
    pub(in crate::slack) fn prose(self, text: &str) -> Self {
        self.with(BlockPart::prose(text))
    }

    #[must_use]
    pub(in crate::slack) fn context(self, words: Vec<MrkdwnText>) -> Self {
        self.with(BlockPart::context(words))
    }

    #[must_use]
    pub(in crate::slack) fn actions(self, buttons: Vec<Button>) -> Self {
        self.with(BlockPart::Actions(buttons))
    }

    #[must_use]
    pub(in crate::slack) fn divider(self) -> Self {
        self.with(BlockPart::Divider)
    }

    /// Appends a form field; block and action get this id.
    #[must_use]
    pub(in crate::slack) fn input(
        self,
        id: &'static str,
        label: impl Into<PlainText>,
        entry: InputElement,
    ) -> Self {
        self.with(BlockPart::Input { id: id.to_owned(), label: label.into(), entry, optional: false })
    }

    pub(in crate::slack) fn message(mut self, text: impl Into<MrkdwnText>) -> CardMessage {
        let text = text.into();
        let text =
            if text.is_blank() { MrkdwnText::new("intercom") } else { text }.cut(block_limits::FALLBACK);
        if self.parts.is_empty() {
            self = self.section(text.clone());
        }
        limit_count(&mut self.parts, block_limits::BLOCKS);
        limit_length(&mut self.parts);
        CardMessage { text: text.markup(), blocks: self.json() }
    }

    pub(super) fn view(mut self) -> Vec<Value> {
        limit_count(&mut self.parts, block_limits::BLOCKS_IN_VIEW);
        self.json()
    }

    fn json(&self) -> Vec<Value> {
        let mut ids = UniqueIds::default();
        let mut blocks: Vec<Value> = self.parts.iter().map(BlockPart::json).collect();
        for (at, block) in blocks.iter_mut().enumerate() {
            let own = block["block_id"].as_str().map(str::to_owned);
            let id = own.or_else(|| (at == 0 && !self.key.is_empty()).then(|| self.key.clone()));
            if let Some(id) = id {
                block["block_id"] = ids.take(&id).into();
            }
        }
        blocks
    }
}

/// Removes surplus blocks: dividers first, then informative blocks from the end; adds a note that blocks are missing.
fn limit_count(parts: &mut Vec<BlockPart>, limit: usize) {
    if parts.len() <= limit {
        return;
    }
    parts.retain(|part| !matches!(part, BlockPart::Divider));
    let mut missing = 0_usize;
    while parts.len() + usize::from(missing > 0) > limit {
        let last = parts.iter().rposition(|part| part.worth() != PartPriority::Needed);
        parts.remove(last.unwrap_or(parts.len() - 1));
        missing += 1;
    }
    if missing > 0 {
        let words =
            MrkdwnText::new("… and ").and(MrkdwnText::count(missing, "part")).and(" more than fits here");
        parts.push(BlockPart::Context(vec![words]));
    }
}

/// Cuts the parts until the message fits: long parts first, the longest before the rest, then our own
/// explanations.
fn limit_length(parts: &mut Vec<BlockPart>) {
    let over = |parts: &[BlockPart]| {
        parts.iter().map(BlockPart::chars).sum::<usize>().saturating_sub(block_limits::ALL)
    };
    for (worth, least) in [(PartPriority::Long, 200), (PartPriority::Telling, 60)] {
        loop {
            let over = over(parts);
            if over == 0 {
                return;
            }
            let longest = parts
                .iter_mut()
                .filter(|part| part.worth() == worth)
                .map(|part| (part.chars(), part))
                .filter(|(chars, _)| *chars > least)
                .max_by_key(|(chars, _)| *chars);
            let Some((chars, longest)) = longest else { break };
            longest.shrink(chars.saturating_sub(over).max(least));
        }
    }
    // Only a card of nothing but buttons gets here. Its first block stays, because the sender finds the message by it.
    while over(parts) > 0 && parts.len() > 1 {
        parts.pop();
    }
}
