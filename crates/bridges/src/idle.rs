//! Detection of idle connections.

use std::time::Duration;

use tokio::sync::watch;

/// A counter of current uses.
#[derive(Debug, Clone)]
pub(super) struct UseCounter(watch::Sender<usize>);

/// One use, until it is dropped.
#[derive(Debug)]
pub(super) struct UseGuard(watch::Sender<usize>);

impl UseCounter {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(super) fn begin(&self) -> UseGuard {
        self.0.send_modify(|uses| *uses += 1);
        UseGuard(self.0.clone())
    }

    /// Returns once there was no use for `later`; before the first use, for `first`.
    pub(super) async fn idle(&self, first: Duration, later: Duration) {
        let mut uses = self.0.subscribe();
        let mut patience = first;
        loop {
            let changed = if *uses.borrow_and_update() == 0 {
                let Ok(changed) = tokio::time::timeout(patience, uses.changed()).await else { return };
                changed
            } else {
                uses.changed().await
            };
            changed.expect("we hold what it comes from");
            patience = later;
        }
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        self.0.send_modify(|uses| *uses -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const FIRST: Duration = Duration::from_secs(5);
    const LATER: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn what_is_used_is_not_idle_and_what_was_is_so_for_longer_than_what_never_was() {
        let uses = UseCounter::new();
        let start = Instant::now();
        uses.idle(FIRST, LATER).await;
        assert_eq!(start.elapsed(), FIRST);

        let counted = uses.clone();
        let idle = tokio::spawn(async move { counted.idle(FIRST, LATER).await });
        tokio::time::sleep(FIRST / 2).await;
        let (one, other) = (uses.begin(), uses.begin());
        tokio::time::sleep(LATER * 10).await;
        drop(one);
        tokio::time::sleep(LATER * 10).await;
        assert!(!idle.is_finished());
        drop(other);
        tokio::time::sleep(LATER / 2).await;
        drop(uses.begin());
        let start = Instant::now();
        idle.await.unwrap();
        assert_eq!(start.elapsed(), LATER);
    }
}
