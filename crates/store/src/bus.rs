//! The bell: notifies readers of new events in the log. It carries a sequence number, never the events themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use intercom_types::SessionId;

/// The bell, rung after each commit with the newest seq.
#[derive(Debug, Clone)]
pub struct Bell {
    all: watch::Sender<u64>,
    /// The sessions with listeners; locked only for a lookup.
    each: Arc<Mutex<HashMap<SessionId, watch::Sender<u64>>>>,
}

impl Bell {
    pub fn new() -> Self {
        Self { all: watch::Sender::new(0), each: Arc::default() }
    }

    pub(crate) fn ring(&self, seq: u64) {
        ring(&self.all, seq);
    }

    /// Rings for the listeners of this session only.
    pub(crate) fn ring_for(&self, session: SessionId, seq: u64) {
        let mut each = self.each();
        let Some(one) = each.get(&session) else { return };
        if one.receiver_count() == 0 {
            each.remove(&session);
        } else {
            ring(one, seq);
        }
    }

    /// Listens to all sessions. A slow listener misses rings, not events: it reads the store from its last position.
    pub fn listen(&self) -> BellListener {
        BellListener(self.all.subscribe())
    }

    /// Listens to one session only, so that an event does not wake the listeners of all other sessions.
    pub fn listen_to(&self, session: SessionId) -> BellListener {
        let mut each = self.each();
        each.retain(|_, one| one.receiver_count() > 0);
        let newest = *self.all.borrow();
        BellListener(each.entry(session).or_insert_with(|| watch::Sender::new(newest)).subscribe())
    }

    fn each(&self) -> MutexGuard<'_, HashMap<SessionId, watch::Sender<u64>>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ring(bell: &watch::Sender<u64>, seq: u64) {
    bell.send_if_modified(|newest| {
        let is_new = seq > *newest;
        *newest = seq.max(*newest);
        is_new
    });
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
pub struct BellListener(watch::Receiver<u64>);

impl BellListener {
    /// Returns the newest seq that was rung, and marks it as seen.
    pub fn newest(&mut self) -> u64 {
        *self.0.borrow_and_update()
    }

    /// Waits for a ring since the last call. `false` if the bell was dropped.
    pub async fn wait_for_ring(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_listens_to_one_session_is_not_woken_by_another() {
        let (bell, one, other) = (Bell::new(), SessionId::mint(), SessionId::mint());
        let mut ear = bell.listen_to(one);
        bell.ring(1);
        bell.ring_for(other, 1);
        assert!(!ear.0.has_changed().unwrap());
        bell.ring_for(one, 2);
        assert!(ear.wait_for_ring().await);
        assert_eq!(ear.newest(), 2);
        drop(ear);
        bell.ring_for(one, 3);
        assert!(bell.each().is_empty(), "nobody listens any more");
    }
}
