//! Works off what Slack sent: in order within a thread, threads beside each other. What is not done yet when the daemon
//! ends is done by the next one.

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

/// Things that are being done at the same time; the others wait for their turn.
const AT_ONCE: usize = 64;
/// Threads in which something is to be done; the others wait in the store.
const LANES: usize = 1024;
/// After something that the store could not do.
const BREATHER: Duration = Duration::from_secs(1);
/// The most attempts at an action that fails because of our own store.
const TRIES: usize = 60;

pub(super) struct EnvelopeInbox {
    pub(super) store: Store,
    pub(super) actor: InteractionHandler,
    /// Rung when something has arrived.
    pub(super) bell: Arc<Notify>,
}

#[derive(Default)]
struct InteractionLanes {
    /// Taken from the store and not yet worked off.
    known: HashSet<String>,
    /// A lane is there while somebody works on it.
    waiting: HashMap<String, VecDeque<(String, Interaction)>>,
}

impl EnvelopeInbox {
    pub(super) async fn run(self, closing: CancellationToken) {
        closing.run_until_cancelled(self.work()).await;
    }

    async fn work(&self) {
        let mut lanes = InteractionLanes::default();
        let mut tasks: JoinSet<(String, String)> = JoinSet::new();
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        loop {
            let frames = match self.store.slack_received().await {
                Ok(frames) => frames,
                Err(error) => {
                    tracing::warn!(%error, "what Slack sent cannot be read");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            for (key, frame) in frames {
                if lanes.known.contains(&key) {
                    continue;
                }
                let deed = interaction::parse_interaction(&frame);
                let lane = deed.lane();
                if let Some(queue) = lanes.waiting.get_mut(&lane) {
                    queue.push_back((key.clone(), deed));
                } else if lanes.waiting.len() < LANES {
                    lanes.waiting.insert(lane.clone(), VecDeque::new());
                    self.begin(&mut tasks, &turns, lane, key.clone(), deed);
                } else {
                    continue;
                }
                lanes.known.insert(key);
            }
            tokio::select! {
                () = self.bell.notified() => {}
                Some(done) = tasks.join_next() => {
                    let Ok((lane, key)) = done else { continue }; // nothing in it panics or is cancelled
                    lanes.known.remove(&key);
                    match lanes.waiting.get_mut(&lane).and_then(VecDeque::pop_front) {
                        Some((key, deed)) => self.begin(&mut tasks, &turns, lane, key, deed),
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
        turns: &Arc<Semaphore>,
        lane: String,
        key: String,
        deed: Interaction,
    ) {
        let (store, actor, turns) = (self.store.clone(), self.actor.clone(), Arc::clone(turns));
        tasks.spawn(async move {
            for attempt in 1..=TRIES {
                // The same key as before: what was done already is not done again.
                let acting = AssertUnwindSafe(actor.handle(&key, &deed, attempt == TRIES)).catch_unwind();
                // Held only while something is done: talk in threads that may or may not be ours waits for a long time, and
                // must not take the place of decisions.
                let turn = turns.acquire().await.expect("it is never closed");
                let done = acting.await;
                drop(turn);
                match done {
                    Ok(Err(_)) => {}
                    Ok(Ok(())) => break,
                    // A bug: what sets it off must not set it off again, nor keep its thread for ever.
                    Err(_) => {
                        tracing::error!(key, "what somebody did in Slack could not be worked off");
                        break;
                    }
                }
                tokio::time::sleep(BREATHER).await;
            }
            intercom_failpoint::visit("slack.acted");
            while let Err(error) = store.slack_mark_processed(key.clone()).await {
                tracing::warn!(%error, "what was done for Slack cannot be written down yet");
                tokio::time::sleep(BREATHER).await;
            }
            (lane, key)
        });
    }
}
