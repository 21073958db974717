//! Idempotent requests: a request that is repeated with the same key gets the first answer and has no further effect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Caller, OpError, Operations};
use intercom_store::IdempotentResponse;
use intercom_types::Time;

/// The keys whose first request is running: a second request waits for it.
#[derive(Debug, Default)]
pub(super) struct InFlightKeys(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl InFlightKeys {
    fn turn(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(keys.entry(key.to_owned()).or_default())
    }
}

/// An answer that is stored under a key, with its status in numbers of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    pub status: u16,
    pub body: String,
}

/// The statuses under which typed answers are stored.
const DONE: u16 = 200;
const REFUSED: u16 = 400;
const FAULT: u16 = 500;

impl Operations {
    /// Runs a request once per caller and key, and finishes it even if nobody waits for it any more: a caller who hangs
    /// up is the one who will retry. `request` names the request; `body` is its content.
    pub async fn once<F>(
        &self,
        caller: &str,
        key: &str,
        (request, body): (&str, &[u8]),
        work: F,
    ) -> Result<StoredAnswer, OpError>
    where
        F: Future<Output = Result<StoredAnswer, OpError>> + Send + 'static,
    {
        let fingerprint = format!("{request} {:016x}", fnv1a(body));
        // The caller is part of the key, so that nobody gets an answer that was meant for somebody else.
        let (this, key) = (self.clone(), format!("{caller}\n{key}"));
        let working = self.0.tasks.spawn(async move { this.first_or_stored(key, fingerprint, work).await });
        working.await.unwrap_or_else(|_| Err(OpError::internal("the request failed")))
    }

    async fn first_or_stored(
        &self,
        key: String,
        fingerprint: String,
        work: impl Future<Output = Result<StoredAnswer, OpError>>,
    ) -> Result<StoredAnswer, OpError> {
        let turn = self.0.keys.turn(&key);
        let _turn = turn.lock().await;
        if let Some(IdempotentResponse { fingerprint: first, status, body }) =
            self.store().idempotent_response(key.clone(), Time::now()).await?
        {
            if first != fingerprint {
                let message = "this Idempotency-Key was used for another request";
                return Err(OpError::unprocessable("idempotency_key_reused", message));
            }
            return Ok(StoredAnswer { status, body });
        }
        let answer = work.await?;
        // A fault of ours is not stored, because a retry may succeed.
        if answer.status < FAULT {
            let StoredAnswer { status, body } = answer.clone();
            // The request succeeded even if its answer cannot be stored: an error here would make the caller repeat it.
            if let Err(error) = self
                .store()
                .remember(key, IdempotentResponse { fingerprint, status, body }, Time::now())
                .await
            {
                tracing::warn!(%error, "the answer to a request with a key could not be stored");
            }
        }
        Ok(answer)
    }

    /// Runs an operation once; its typed answer is stored and restored. `request` contains all of its parameters.
    pub async fn perform<T, F>(
        &self,
        caller: &Caller,
        key: &str,
        request: &impl Serialize,
        work: F,
    ) -> Result<T, OpError>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, OpError>> + Send + 'static,
    {
        let unreadable = |error: serde_json::Error| OpError::internal(error.to_string());
        let body = serde_json::to_vec(request).map_err(unreadable)?;
        let work = async move {
            let (status, body) = match work.await {
                Ok(done) => (DONE, serde_json::to_string(&done)),
                Err(error) if error.kind.is_fault() => return Err(error),
                Err(error) => (REFUSED, serde_json::to_string(&error)),
            };
            Ok(StoredAnswer { status, body: body.map_err(unreadable)? })
        };
        let answer = self.once(&caller.name, key, ("operation", &body), work).await?;
        match answer.status {
            DONE => serde_json::from_str(&answer.body).map_err(unreadable),
            _ => Err(serde_json::from_str(&answer.body).map_err(unreadable)?),
        }
    }
}

/// Returns a hash that is the same in every version of this program, because a request may be repeated after an
/// upgrade.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
