//! The person on whose behalf something is done.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nix::unistd::{Uid, User};
use tokio_util::sync::CancellationToken;

use super::Operations;
use intercom_types::{Role, Time, WebSessionId};

/// The `via` of ACP clients.
pub(crate) const ACP_CLIENT: &str = "acp";

/// An operator, as identified by a bridge.
#[derive(Debug, Clone)]
pub struct Caller {
    pub name: String,
    pub role: Role,
    /// The bridge or the address, in words for the log.
    pub via: String,
    /// True if they are on this machine.
    pub local: bool,
    /// Cancelled when their token or console session is revoked.
    pub revoked: Arc<CancellationToken>,
    /// The expiry of their token or console session.
    pub until: Option<Time>,
    /// The console session of their request.
    pub web: Option<WebSessionId>,
}

impl Caller {
    /// Returns a caller whose access does not expire.
    pub fn new(name: impl Into<String>, role: Role, via: impl Into<String>, local: bool) -> Self {
        let (name, via) = (name.into(), via.into());
        Self { name, role, via, local, revoked: Arc::default(), until: None, web: None }
    }

    /// Returns the same person, through an ACP client of theirs.
    #[must_use]
    pub fn by_acp(&self) -> Self {
        Self::new(self.name.clone(), self.role, ACP_CLIENT, self.local)
    }

    /// Returns once their access has ended.
    pub async fn access_ended(&self) {
        let remaining =
            self.until.map(|until| u64::try_from(until.millis() - Time::now().millis()).unwrap_or(0));
        let expiry = async {
            match remaining {
                Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.revoked.cancelled() => {}
            () = expiry => {}
        }
    }

    /// Returns true if a cookie identified them: a browser sends it with the requests of any page.
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

impl Operations {
    /// Returns the name and role of a user of this machine: a configured operator, or the daemon's own user.
    pub fn local_user(&self, uid: u32) -> Option<(String, Role)> {
        let own = Uid::effective().as_raw();
        let config = self.supervisor().config();
        let operator = config.operators.iter().find(|operator| operator.uid == Some(uid));
        let configured = operator.map(|operator| (operator.name.clone(), operator.role()));
        configured.or_else(|| (uid == own).then(|| (own_name(), Role::Admin)))
    }

    /// Limits a role to the configured role of this person: no token or session exceeds it.
    pub fn bounded_role(&self, name: &str, role: Role) -> Role {
        let config = self.supervisor().config();
        let known = config.operators.iter().find(|operator| operator.name == name);
        known.map_or(role, |operator| role.min(operator.role()))
    }
}

/// Returns the name of the daemon's user. It is cached, because every request on the socket needs it.
fn own_name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| user_name(Uid::effective())).clone()
}

fn user_name(uid: Uid) -> String {
    let user = User::from_uid(uid).ok().flatten();
    user.map_or_else(|| format!("uid {uid}"), |user| user.name)
}
