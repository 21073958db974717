//! The bell: tells readers that there is something new in the log. It carries a number, never the news itself.

use tokio::sync::watch;

/// Rung after each commit with the newest seq.
#[derive(Debug, Clone)]
pub struct Bell(watch::Sender<u64>);

impl Bell {
    pub fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub fn ring(&self, seq: u64) {
        self.0.send_if_modified(|newest| {
            let news = seq > *newest;
            *newest = seq.max(*newest);
            news
        });
    }

    /// A slow listener misses rings, not news: it reads the store from where it stopped.
    pub fn listen(&self) -> Ear {
        Ear(self.0.subscribe())
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
pub struct Ear(watch::Receiver<u64>);

impl Ear {
    /// The newest seq that was rung; what follows counts as news.
    pub fn newest(&mut self) -> u64 {
        *self.0.borrow_and_update()
    }

    /// Waits for a ring since the last look. `false` when there will be none any more.
    pub async fn hear(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}
