//! Executes stored interactions: in order within a thread, threads concurrently. A stored interaction comes directly
//! from its connection; the store is read at the start, and if there were too many. Interactions that are unfinished
//! when the daemon ends are executed by the next one, under the same idempotency keys.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::handlers::InteractionHandler;
use super::interaction::{self, Interaction};
use intercom_store::Store;

/// The limit on concurrently executed interactions.
const MAX_RUNNING: usize = 64;
/// The limit on lanes (threads) with unfinished interactions in memory; further ones wait in the store.
const MAX_LANES: usize = 1024;
/// The limit on interactions on their way from the connections; further ones are read from the store.
const MAX_PASSED: usize = 256;
/// The limit on keys of finished interactions in memory.
const MAX_FINISHED: usize = 1024;
/// The delay after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The limit on attempts at an interaction that fails because of our own store.
const MAX_ATTEMPTS: usize = 60;

pub(super) struct EnvelopeInbox {
    pub(super) store: Store,
    pub(super) handler: InteractionHandler,
    pub(super) receiver: InboxReceiver,
}

/// The end of the channel at the connections. It takes the keys and frames of stored interactions.
#[derive(Debug, Clone)]
pub(super) struct InboxSender {
    interactions: mpsc::Sender<(String, String)>,
    /// Notified when one did not fit.
    unread_in_store: Arc<Notify>,
}

/// The end of the channel at the inbox.
#[derive(Debug)]
pub(super) struct InboxReceiver {
    interactions: mpsc::Receiver<(String, String)>,
    unread_in_store: Arc<Notify>,
}

/// Returns the two ends of the channel from the connections to the inbox.
pub(super) fn channel() -> (InboxSender, InboxReceiver) {
    let (sender, receiver) = mpsc::channel(MAX_PASSED);
    let unread = Arc::<Notify>::default();
    let to_inbox = InboxSender { interactions: sender, unread_in_store: Arc::clone(&unread) };
    (to_inbox, InboxReceiver { interactions: receiver, unread_in_store: unread })
}

impl InboxSender {
    /// Passes a stored interaction on. It is in the store, so none is lost if there are too many.
    pub(super) fn pass(&self, key: String, frame: String) {
        if self.interactions.try_send((key, frame)).is_err() {
            self.unread_in_store.notify_one();
        }
    }
}

#[derive(Default)]
struct InteractionLanes {
    /// The keys that were taken from the store and are unfinished.
    known: HashSet<String>,
    /// The newest keys that are finished.
    finished: VecDeque<String>,
    /// The queued interactions of each lane; a lane exists while a task works on it.
    waiting: HashMap<String, VecDeque<(String, Interaction)>>,
}

impl InteractionLanes {
    fn finish(&mut self, key: String) {
        self.known.remove(&key);
        if self.finished.len() >= MAX_FINISHED {
            self.finished.pop_front();
        }
        self.finished.push_back(key);
    }
}

impl EnvelopeInbox {
    pub(super) async fn run(mut self, closing: CancellationToken) {
        closing.run_until_cancelled(self.work()).await;
    }

    async fn work(&mut self) {
        let mut lanes = InteractionLanes::default();
        let mut tasks: JoinSet<(String, String)> = JoinSet::new();
        let permits = Arc::new(Semaphore::new(MAX_RUNNING));
        // True if the store may have interactions that are not known here.
        let mut unread_in_store = true;
        loop {
            if unread_in_store {
                let frames = match self.store.slack_received().await {
                    Ok(frames) => frames,
                    Err(error) => {
                        tracing::warn!(%error, "stored interactions from Slack cannot be read; retrying");
                        tokio::time::sleep(RETRY_DELAY).await;
                        continue;
                    }
                };
                unread_in_store = false;
                for (key, frame) in frames {
                    unread_in_store |= !self.take(&mut lanes, &mut tasks, &permits, key, &frame);
                }
            }
            tokio::select! {
                biased;
                // First: an interaction that did not fit must not be overtaken by a later one of its thread.
                () = self.receiver.unread_in_store.notified() => unread_in_store = true,
                Some((key, frame)) = self.receiver.interactions.recv() => {
                    // A connection may pass one only after a read of the store has found it and it was executed.
                    if lanes.finished.contains(&key) {
                        continue;
                    }
                    // While some are unread in the store, the others must not overtake them.
                    unread_in_store =
                        unread_in_store || !self.take(&mut lanes, &mut tasks, &permits, key, &frame);
                }
                Some(done) = tasks.join_next() => {
                    let Ok((lane, key)) = done else { continue }; // the task neither panics nor is cancelled
                    lanes.finish(key);
                    match lanes.waiting.get_mut(&lane).and_then(VecDeque::pop_front) {
                        Some((key, interaction)) => self.begin(&mut tasks, &permits, lane, key, interaction),
                        None => {
                            lanes.waiting.remove(&lane);
                        }
                    }
                }
            }
        }
    }

    /// Takes an interaction; `false` if there are too many lanes.
    fn take(
        &self,
        lanes: &mut InteractionLanes,
        tasks: &mut JoinSet<(String, String)>,
        permits: &Arc<Semaphore>,
        key: String,
        frame: &str,
    ) -> bool {
        if lanes.known.contains(&key) {
            return true;
        }
        let interaction = interaction::parse_interaction(frame);
        let lane = interaction.lane();
        if let Some(queue) = lanes.waiting.get_mut(&lane) {
            queue.push_back((key.clone(), interaction));
        } else if lanes.waiting.len() < MAX_LANES {
            lanes.waiting.insert(lane.clone(), VecDeque::new());
            self.begin(tasks, permits, lane, key.clone(), interaction);
        } else {
            return false;
        }
        lanes.known.insert(key);
        true
    }

    fn begin(
        &self,
        tasks: &mut JoinSet<(String, String)>,
        permits: &Arc<Semaphore>,
        lane: String,
        key: String,
        interaction: Interaction,
    ) {
        let (store, handler, permits) = (self.store.clone(), self.handler.clone(), Arc::clone(permits));
        tasks.spawn(async move {
            for attempt in 1..=MAX_ATTEMPTS {
                // The same key in each attempt: an operation that succeeded is not repeated.
                let acting = AssertUnwindSafe(handler.handle(&key, &interaction, attempt == MAX_ATTEMPTS))
                    .catch_unwind();
                // Held only during the attempt: a message in a thread that may or may not be ours is retried for a long
                // time, and must not take the place of decisions.
                let permit = permits.acquire().await.expect("it is never closed");
                let done = acting.await;
                drop(permit);
                match done {
                    Ok(Err(_)) => {}
                    Ok(Ok(())) => break,
                    // A bug: the interaction must neither trigger it again nor block its thread for ever.
                    Err(_) => {
                        tracing::error!(key, "an interaction from Slack caused a panic; it is skipped");
                        break;
                    }
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
            intercom_failpoint::visit("slack.acted");
            while let Err(error) = store.slack_mark_processed(key.clone()).await {
                tracing::warn!(%error, "a finished interaction from Slack cannot be recorded; retrying");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            (lane, key)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_key_is_remembered_for_a_while() {
        let mut lanes = InteractionLanes::default();
        lanes.known.insert("event_id 0".to_owned());
        for number in 0..MAX_FINISHED {
            lanes.finish(format!("event_id {number}"));
        }
        assert!(lanes.known.is_empty());
        assert!(lanes.finished.contains(&"event_id 0".to_owned()));
        lanes.finish("event_id next".to_owned());
        assert_eq!(lanes.finished.len(), MAX_FINISHED);
        assert!(!lanes.finished.contains(&"event_id 0".to_owned()));
        assert!(lanes.finished.contains(&"event_id next".to_owned()));
    }

    #[tokio::test]
    async fn an_interaction_that_does_not_fit_into_the_channel_is_announced() {
        let (sender, mut receiver) = channel();
        for number in 0..=MAX_PASSED {
            sender.pass(format!("event_id {number}"), String::new());
        }
        receiver.unread_in_store.notified().await;
        let mut passed = 0;
        while receiver.interactions.try_recv().is_ok() {
            passed += 1;
        }
        assert_eq!(passed, MAX_PASSED);
    }
}
