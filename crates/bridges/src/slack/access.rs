//! Slack's way to the daemon: it reads as a viewer, from whom secrets are hidden, and acts as the operator who clicked
//! or typed, with that person's role and nothing more.

use std::ops::Deref;
use std::sync::Arc;

use intercom_daemon::config::Config;
use intercom_daemon::ops::{Caller, Operations, ReadModel};
use intercom_types::Role;

/// The `via` of actions in Slack.
const VIA: &str = "slack";

/// The read model of a viewer, and the operations for those who act.
#[derive(Debug, Clone)]
pub(super) struct SlackAccess {
    ops: Operations,
    reads: ReadModel,
}

impl Deref for SlackAccess {
    type Target = ReadModel;

    fn deref(&self) -> &ReadModel {
        &self.reads
    }
}

impl SlackAccess {
    pub(super) fn new(ops: Operations) -> Self {
        let viewer = Caller::new("slack", Role::Viewer, VIA, false);
        Self { reads: ReadModel::new(ops.clone(), viewer), ops }
    }

    pub(super) fn ops(&self) -> &Operations {
        &self.ops
    }

    /// Returns the current configuration.
    pub(super) fn config(&self) -> Arc<Config> {
        self.ops.supervisor().config()
    }

    /// Returns the operator with this Slack user id, if the configuration has one.
    pub(super) fn operator(&self, user: &str) -> Option<Caller> {
        let config = self.config();
        let found = config.operators.iter().find(|operator| operator.slack.as_deref() == Some(user))?;
        Some(Caller::new(found.name.clone(), found.role(), VIA, false))
    }
}
