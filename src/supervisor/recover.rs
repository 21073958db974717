//! After a start: what an earlier daemon left behind.

use super::Supervisor;
use crate::host::Identity;
use crate::session::State;
use crate::session::recover::bury;
use crate::store::StoreError;

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sessions whose agents died with the daemon.
    pub ended: usize,
}

impl Supervisor {
    /// Records the end of sessions whose agents were lost with an earlier daemon, and ends what is left of them.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let mut recovered = Recovered::default();
        for (id, process) in self.store().live().await? {
            let identity = process.and_then(|text| serde_json::from_str::<Identity>(&text).ok());
            if identity.is_some_and(|identity| identity.kill_leftovers()) {
                tracing::warn!(session.id = %id, "its agent outlived the daemon without anybody to talk to; ended it");
            }
            let corrupt = StoreError::Corrupt { what: "a session's snapshot" };
            let (state, _) = self.store().snapshot(id).await?.ok_or(corrupt.clone())?;
            let state: State = serde_json::from_str(&state).map_err(|_| corrupt)?;
            bury(self.store(), state, "lost when the daemon ended").await?;
            recovered.ended += 1;
        }
        Ok(recovered)
    }
}
