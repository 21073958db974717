//! A Block Kit builder whose output is always within Slack's limits, for any input.
//!
//! Long text is cut by character, with `…`. There are two sorts of text. `MrkdwnText` and `PlainText` are our own: they
//! are made from string literals, and text of others gets in only through `untrusted`, which disarms markup, links and
//! mentions. `BlockBuilder::code` and `BlockBuilder::prose` accept text of others unchanged, except for invisible
//! characters: Slack interprets no markup there.

mod blocks;
mod controls;
mod cut;
mod mrkdwn;
mod part;
mod plain_text;
mod view;

#[cfg(test)]
pub(in crate::slack) mod tests;

pub(super) use blocks::{BlockBuilder, CardMessage};
pub(super) use controls::{Button, ButtonStyle, ConfirmDialog, InputElement, SelectOption};
pub(super) use cut::{cut, cut_lines};
pub(super) use mrkdwn::MrkdwnText;
pub(super) use plain_text::PlainText;
pub(super) use view::SlackView;

/// Slack's limits, in characters and elements, from its reference of Block Kit.
mod block_limits {
    pub(super) const BLOCKS: usize = 50;
    pub(super) const BLOCKS_IN_VIEW: usize = 100;
    /// The total of all blocks of a message.
    pub(super) const ALL: usize = 10_000;
    pub(super) const FALLBACK: usize = 3_000;
    pub(super) const SECTION: usize = 3_000;
    pub(super) const FIELDS: usize = 10;
    pub(super) const FIELD: usize = 2_000;
    pub(super) const HEADER: usize = 150;
    pub(super) const CONTEXTS: usize = 10;
    /// Our own limit: a line below a card is short, and is never cut to make room for other parts.
    pub(super) const CONTEXT: usize = 500;
    /// Our own limit for one piece of code or prose: Slack documents only the limit of all blocks.
    pub(super) const LONG: usize = 9_000;
    pub(super) const ACTIONS: usize = 25;
    pub(super) const BUTTON: usize = 75;
    pub(super) const VALUE: usize = 2_000;
    pub(super) const ID: usize = 255;
    pub(super) const CONFIRM_TITLE: usize = 100;
    pub(super) const CONFIRM_TEXT: usize = 300;
    pub(super) const CONFIRM_BUTTON: usize = 30;
    pub(super) const VIEW_TITLE: usize = 24;
    pub(super) const METADATA: usize = 3_000;
    pub(super) const OPTIONS: usize = 100;
    pub(super) const OPTION: usize = 75;
    pub(super) const LABEL: usize = 2_000;
    pub(super) const PLACEHOLDER: usize = 150;
    /// The limit of a text field, unless it sets a lower one.
    pub(super) const INITIAL: usize = 3_000;
}
