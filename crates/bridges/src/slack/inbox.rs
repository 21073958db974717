//! Executes stored interactions: in order within a thread, threads concurrently. Interactions that are unfinished when
//! the daemon ends are executed by the next one, under the same idempotency keys.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::handlers::InteractionHandler;
use super::interaction::{self, Interaction};
use intercom_store::Store;

/// The limit on concurrently executed interactions.
const MAX_RUNNING: usize = 64;
/// The limit on lanes (threads) with unfinished interactions in memory; further ones wait in the store.
const MAX_LANES: usize = 1024;
/// The delay after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The limit on attempts at an interaction that fails because of our own store.
const MAX_ATTEMPTS: usize = 60;

pub(super) struct EnvelopeInbox {
    pub(super) store: Store,
    pub(super) handler: InteractionHandler,
    /// Notified when an interaction was stored.
    pub(super) bell: Arc<Notify>,
}

#[derive(Default)]
struct InteractionLanes {
    /// The keys that were taken from the store and are unfinished.
    known: HashSet<String>,
    /// The queued interactions of each lane; a lane exists while a task works on it.
    waiting: HashMap<String, VecDeque<(String, Interaction)>>,
}

impl EnvelopeInbox {
    pub(super) async fn run(self, closing: CancellationToken) {
        closing.run_until_cancelled(self.work()).await;
    }

    async fn work(&self) {
        let mut lanes = InteractionLanes::default();
        let mut tasks: JoinSet<(String, String)> = JoinSet::new();
        let permits = Arc::new(Semaphore::new(MAX_RUNNING));
        loop {
            let frames = match self.store.slack_received().await {
                Ok(frames) => frames,
                Err(error) => {
                    tracing::warn!(%error, "stored interactions from Slack cannot be read; retrying");
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
            };
            for (key, frame) in frames {
                if lanes.known.contains(&key) {
                    continue;
                }
                let interaction = interaction::parse_interaction(&frame);
                let lane = interaction.lane();
                if let Some(queue) = lanes.waiting.get_mut(&lane) {
                    queue.push_back((key.clone(), interaction));
                } else if lanes.waiting.len() < MAX_LANES {
                    lanes.waiting.insert(lane.clone(), VecDeque::new());
                    self.begin(&mut tasks, &permits, lane, key.clone(), interaction);
                } else {
                    continue;
                }
                lanes.known.insert(key);
            }
            tokio::select! {
                () = self.bell.notified() => {}
                Some(done) = tasks.join_next() => {
                    let Ok((lane, key)) = done else { continue }; // the task neither panics nor is cancelled
                    lanes.known.remove(&key);
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
