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
/// The delay after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The limit on attempts at an interaction that fails because of our own store.
const MAX_ATTEMPTS: usize = 60;

pub(super) struct EnvelopeInbox {
    pub(super) store: Store,
    pub(super) handler: InteractionHandler,
    pub(super) arrivals: InboxArrivals,
}

/// The way of stored interactions from the connections to the inbox.
#[derive(Debug, Clone)]
pub(super) struct InboxDoor {
    passed: mpsc::Sender<(String, String)>,
    /// Notified when one did not fit.
    left: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct InboxArrivals {
    passed: mpsc::Receiver<(String, String)>,
    left: Arc<Notify>,
}

/// Returns the two ends of the way into the inbox.
pub(super) fn door() -> (InboxDoor, InboxArrivals) {
    let (to_inbox, passed) = mpsc::channel(MAX_PASSED);
    let left = Arc::<Notify>::default();
    (InboxDoor { passed: to_inbox, left: Arc::clone(&left) }, InboxArrivals { passed, left })
}

impl InboxDoor {
    /// Passes a stored interaction on. It is in the store, so none is lost if there are too many.
    pub(super) fn pass(&self, key: String, frame: String) {
        if self.passed.try_send((key, frame)).is_err() {
            self.left.notify_one();
        }
    }
}

#[derive(Default)]
struct InteractionLanes {
    /// The keys that were taken from the store and are unfinished.
    known: HashSet<String>,
    /// The queued interactions of each lane; a lane exists while a task works on it.
    waiting: HashMap<String, VecDeque<(String, Interaction)>>,
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
        let mut left = true;
        loop {
            if left {
                let frames = match self.store.slack_received().await {
                    Ok(frames) => frames,
                    Err(error) => {
                        tracing::warn!(%error, "stored interactions from Slack cannot be read; retrying");
                        tokio::time::sleep(RETRY_DELAY).await;
                        continue;
                    }
                };
                left = false;
                for (key, frame) in frames {
                    left |= !self.take(&mut lanes, &mut tasks, &permits, key, &frame);
                }
            }
            tokio::select! {
                biased;
                // While some are left in the store, the others must not overtake them.
                Some((key, frame)) = self.arrivals.passed.recv() => {
                    left = left || !self.take(&mut lanes, &mut tasks, &permits, key, &frame);
                }
                () = self.arrivals.left.notified() => left = true,
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
