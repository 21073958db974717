//! The client's open requests, and its sessions.

use crate::cli::acp::message::ClientRequestKind;
use intercom_types::{Json, PromptId, RequestId};

#[derive(Debug)]
pub(super) struct RelayedRequest {
    pub(super) id: RequestId,
    pub(super) kind: ClientRequestKind,
    pub(super) stage: RelayedRequestStage,
    /// The text, as long as it may have to be sent again.
    pub(super) text: Option<String>,
    pub(super) session: Option<String>,
    /// The id that the relay gave a prompt.
    pub(super) prompt: Option<PromptId>,
    pub(super) setup: RelayedSetup,
    /// The client's message that cancelled it.
    pub(super) cancel: Option<String>,
    pub(super) tries: u8,
}

/// The progress of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayedRequestStage {
    Waiting,
    Sent,
    /// Sent on a connection that has broken.
    Broken,
}

#[derive(Debug, Default)]
pub(super) struct RelayedSession {
    /// The last event that the client received.
    pub(super) seq: Option<u64>,
    /// True if the client has the session. It may receive events before that is known.
    pub(super) attached: bool,
    pub(super) setup: RelayedSetup,
}

/// The client's settings of a session.
#[derive(Debug, Default)]
pub(super) struct RelayedSetup {
    pub(super) cwd: Option<Json>,
    pub(super) mcp_servers: Option<Json>,
    pub(super) additional_directories: Option<Json>,
}
