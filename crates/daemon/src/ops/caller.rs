//! The person on whose behalf something is done.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use intercom_types::{Role, Time, WebSessionId};

/// The `via` of ACP clients.
pub const ACP_CLIENT: &str = "acp";

/// An operator as a bridge has recognised them.
#[derive(Debug, Clone)]
pub struct Caller {
    pub name: String,
    pub role: Role,
    /// The bridge or the address, in words for the record.
    pub via: String,
    /// They sit at this machine.
    pub local: bool,
    /// Fires when their token or session is revoked.
    pub revoked: Arc<CancellationToken>,
    /// The end of their token or session.
    pub until: Option<Time>,
    /// The console's session that they came in with.
    pub web: Option<WebSessionId>,
}

impl Caller {
    /// Somebody whose access does not end by itself.
    pub fn new(name: impl Into<String>, role: Role, via: impl Into<String>, local: bool) -> Self {
        let (name, via) = (name.into(), via.into());
        Self { name, role, via, local, revoked: Arc::default(), until: None, web: None }
    }

    /// The same person by way of an ACP client of theirs.
    #[must_use]
    pub fn by_acp(&self) -> Self {
        Self::new(self.name.clone(), self.role, ACP_CLIENT, self.local)
    }

    /// Returns when their access has ended.
    pub async fn access_ended(&self) {
        let left = self.until.map(|until| u64::try_from(until.millis() - Time::now().millis()).unwrap_or(0));
        let expiry = async {
            match left {
                Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.revoked.cancelled() => {}
            () = expiry => {}
        }
    }

    /// A browser showed who they are, as it does for every page that calls us.
    pub fn is_by_cookie(&self) -> bool {
        self.web.is_some()
    }

    pub(super) fn is_acp_client(&self) -> bool {
        self.via == ACP_CLIENT
    }

    pub fn is_out(&self) -> bool {
        self.revoked.is_cancelled() || self.until.is_some_and(|until| until <= Time::now())
    }
}
