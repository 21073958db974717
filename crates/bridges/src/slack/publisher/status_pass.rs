//! A pass over the sessions whose status card or streamed text is due, in a task of its own.

use futures_util::future::join_all;

use super::turn_reader::TurnReader;
use super::{BREATHER, CardPublisher};
use intercom_store::{DesiredMessage, StoreError};
use intercom_types::SessionId;

/// A session in a pass.
#[derive(Debug)]
pub(super) struct PassItem {
    pub(super) id: SessionId,
    /// True if streamed text may be shown.
    pub(super) shows_text: bool,
    pub(super) reader: TurnReader,
}

/// The result of a pass.
#[derive(Debug)]
pub(super) struct StatusPass {
    /// The sessions, with their readers; those that could not be read are still stale.
    pub(super) rendered: Vec<PassItem>,
    pub(super) failed: Vec<PassItem>,
    /// Sessions that have ended or were removed.
    pub(super) over: Vec<SessionId>,
}

impl CardPublisher {
    /// Renders the sessions, and mentions further people if `escalates`. `last` is the newest event up to which
    /// landmarks are published: a turn that ends after it is not read beyond its end.
    pub(super) async fn run_pass(&self, mut items: Vec<PassItem>, escalates: bool, last: u64) -> StatusPass {
        let rendered = join_all(items.iter_mut().map(|item| self.render_item(item, last))).await;
        let mut pass = StatusPass { rendered: Vec::new(), failed: Vec::new(), over: Vec::new() };
        let mut messages = Vec::new();
        for (mut item, rendered) in items.into_iter().zip(rendered) {
            self.health.read_events(item.reader.take_events_read());
            match rendered {
                Ok(rendered) => {
                    let is_over = rendered.first().is_none_or(|root| !root.open);
                    pass.over.extend(is_over.then_some(item.id));
                    messages.extend(rendered);
                    pass.rendered.push(item);
                }
                // Its reader is returned as well: what it has read so far is not read again.
                Err(error) => {
                    tracing::warn!(%error, "a status card cannot be rendered; retrying");
                    pass.failed.push(item);
                }
            }
        }
        if escalates {
            messages.extend(self.escalations().await);
        }
        // Repeated, not skipped: streamed text was taken from its readers.
        while let Err(error) = self.enqueue(messages.clone(), None).await {
            tracing::warn!(%error, "status cards cannot be stored; retrying");
            tokio::time::sleep(BREATHER).await;
        }
        pass
    }

    /// Returns the messages of a session: none if it has no thread.
    async fn render_item(&self, item: &mut PassItem, last: u64) -> Result<Vec<DesiredMessage>, StoreError> {
        let Some(context) = self.scene(item.id, Vec::new()).await? else { return Ok(Vec::new()) };
        let mut messages = vec![context.root()];
        if !context.shows_turns() {
            return Ok(messages);
        }
        item.reader.read(&self.log, last, false).await?;
        if !context.streams() {
            item.reader.drop_streamed();
        } else if item.shows_text {
            for (name, text) in item.reader.take_streamed() {
                messages.extend(self.streamed_message(&context, &name, &text, &messages).await?);
            }
        }
        Ok(messages)
    }
}
