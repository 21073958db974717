//! Waiting, for a moment, for an answer to arrive at the agent.

use std::time::Duration;

use super::Api;
use super::error::ApiError;
use crate::bus::Ear;

/// How long a response waits to tell that what was decided has arrived.
const WAIT: Duration = Duration::from_secs(2);

/// Made before the command, so that its delivery cannot be missed.
pub(super) struct Arrival(Ear);

impl Arrival {
    pub(super) fn of(api: &Api) -> Self {
        let mut ear = api.bell().listen();
        ear.newest();
        Self(ear)
    }

    /// Reads again at each ring until it is no longer on its way, or until the wait is over.
    pub(super) async fn wait<T, F>(
        mut self,
        mut read: impl FnMut() -> F,
        on_its_way: impl Fn(&T) -> bool,
    ) -> Result<T, ApiError>
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let deadline = tokio::time::Instant::now() + WAIT;
        loop {
            let found = read().await?;
            if !on_its_way(&found)
                || !matches!(tokio::time::timeout_at(deadline, self.0.hear()).await, Ok(true))
            {
                return Ok(found);
            }
        }
    }
}
