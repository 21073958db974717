//! The way of claimed cards from the publisher to the sender.
//!
//! A claimed row is marked as tried in the transaction that stores it, and its post follows at once. Until the sender
//! has it, the row looks like a post whose outcome is unknown. Therefore a claim is announced before its transaction,
//! and each announcement is followed by exactly one delivery, which may be empty: a sender that has read the store
//! waits for announced deliveries before it plans, so no row is posted twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use intercom_store::ClaimedPost;
use tokio::sync::mpsc;

/// The limit on deliveries that the sender has not taken; then the publisher waits.
const MAX_WAITING: usize = 16;

/// Returns the two ends.
pub(super) fn claims() -> (ClaimSender, ClaimReceiver) {
    let (to_sender, waiting) = mpsc::channel(MAX_WAITING);
    let announced = Arc::<AtomicUsize>::default();
    (ClaimSender { announced: Arc::clone(&announced), to_sender }, ClaimReceiver { announced, waiting })
}

#[derive(Debug)]
pub(super) struct ClaimSender {
    announced: Arc<AtomicUsize>,
    to_sender: mpsc::Sender<Vec<ClaimedPost>>,
}

impl ClaimSender {
    /// Announces a delivery, before the transaction that claims.
    pub(super) fn announce(&self) -> AnnouncedClaim<'_> {
        self.announced.fetch_add(1, Ordering::SeqCst);
        AnnouncedClaim(self)
    }
}

/// An announced delivery.
#[must_use = "the sender waits for it"]
pub(super) struct AnnouncedClaim<'a>(&'a ClaimSender);

impl AnnouncedClaim<'_> {
    pub(super) async fn deliver(self, posts: Vec<ClaimedPost>) {
        self.0.to_sender.send(posts).await.ok(); // the sender has ended: the next daemon looks for the messages
    }
}

#[derive(Debug)]
pub(super) struct ClaimReceiver {
    announced: Arc<AtomicUsize>,
    waiting: mpsc::Receiver<Vec<ClaimedPost>>,
}

impl ClaimReceiver {
    /// Returns the next delivery; `None` after the end of the publisher.
    pub(super) async fn next(&mut self) -> Option<Vec<ClaimedPost>> {
        let posts = self.waiting.recv().await?;
        self.announced.fetch_sub(1, Ordering::SeqCst);
        Some(posts)
    }

    /// Returns the deliveries that are announced by now.
    pub(super) async fn announced(&mut self) -> Vec<ClaimedPost> {
        let mut posts = Vec::new();
        for _ in 0..self.announced.load(Ordering::SeqCst) {
            posts.extend(self.next().await.into_iter().flatten());
        }
        posts
    }
}
