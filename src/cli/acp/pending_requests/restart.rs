//! The loss of the daemon, and its return or the end of all attempts.

use serde_json::json;

use super::open_request::{RelayedRequest, RelayedRequestStage, RelayedSession};
use super::{PendingRelayRequests, QueuedForDaemon, RelayLinkState, attach_prompted, cancel};
use crate::cli::acp::message::{self, RelayedResumeParams};
use intercom_types::{Json, PromptId};
use intercom_wire::jsonrpc::{self, INTERNAL_ERROR};

/// The number of broken connections on which a request was sent, after which the request itself is blamed.
pub(super) const MAX_TRIES: u8 = 3;

pub(super) const RESTARTED: &str = "the daemon was restarted; it is not known whether this was done";

impl PendingRelayRequests {
    /// Handles a new connection: sends `initialize` and the sessions' positions first, then the pending requests that
    /// are safe to repeat.
    pub(in crate::cli::acp) fn connected(&mut self) {
        if self.link != RelayLinkState::Down {
            return;
        }
        self.link = RelayLinkState::Up;
        if let Some(params) = self.initialize.clone() {
            self.ask("initialize", &params);
        }
        for params in self.resumes() {
            self.ask("session/resume", &params);
        }
        let mut at = 0;
        while let Some(open) = self.open.get(at) {
            let goes_on = open.stage != RelayedRequestStage::Broken || self.send_again(at);
            at += usize::from(goes_on);
        }
    }

    fn resumes(&self) -> Vec<Json> {
        let attached = self.sessions.iter().filter(|(_, session)| session.attached);
        let resume = |(id, RelayedSession { seq, setup, .. }): (&String, &RelayedSession)| {
            // The client's own prompts must not come back to it as somebody else's, and updates may be sent before the daemon
            // has read the prompts again.
            let of_session = self.open.iter().filter(|open| open.session.as_ref() == Some(id));
            let prompts: Vec<PromptId> = of_session.filter_map(|open| open.prompt).collect();
            Json::of(&RelayedResumeParams {
                session_id: id,
                cwd: setup.cwd.as_ref(),
                mcp_servers: setup.mcp_servers.as_ref(),
                additional_directories: setup.additional_directories.as_ref(),
                meta: seq.map(|seq| {
                    let mut ours = json!({ "after": seq });
                    if !prompts.is_empty() {
                        ours["prompts"] = json!(prompts);
                    }
                    json!({ "intercom": ours })
                }),
            })
        };
        attached.map(resume).collect()
    }

    /// Sends a request again, or fails it; returns whether it is still open.
    fn send_again(&mut self, at: usize) -> bool {
        let open = &mut self.open[at];
        let why = match &open.text {
            Some(text) if open.tries < MAX_TRIES => {
                self.priority.push_back(text.clone());
                (open.stage, open.tries) = (RelayedRequestStage::Sent, open.tries + 1);
                attach_prompted(open, &mut self.sessions);
                // A cancellation of several requests follows the last of them.
                let cancel = open.cancel.clone();
                let later = |open: &RelayedRequest| {
                    open.stage == RelayedRequestStage::Broken && open.cancel == cancel
                };
                if !self.open[at + 1..].iter().any(later) {
                    self.priority.extend(cancel);
                }
                return true;
            }
            Some(_) => format!("the daemon has closed the connection {MAX_TRIES} times before it answered"),
            None => RESTARTED.to_owned(),
        };
        let RelayedRequest { id, .. } = self.open.remove(at);
        self.to_client.push_back(message::error(Some(&id), INTERNAL_ERROR, &why));
        false
    }

    /// Handles the loss of the connection. If it had lasted, the pending requests are not blamed for the loss.
    pub(in crate::cli::acp) fn lost(&mut self, lasted: bool) {
        if matches!(self.link, RelayLinkState::Down | RelayLinkState::Dead(_)) {
            return;
        }
        self.link = RelayLinkState::Down;
        self.priority.clear();
        for open in self.open.iter_mut().filter(|open| open.stage == RelayedRequestStage::Sent) {
            open.stage = RelayedRequestStage::Broken;
            open.tries = if lasted { 0 } else { open.tries };
        }
        // An answer belongs to the daemon that sent the request.
        self.waiting.retain(|waiting| !matches!(waiting, QueuedForDaemon::Answer(_)));
        for (ours, _) in std::mem::take(&mut self.daemon_requests) {
            self.to_client.push_back(cancel(&ours));
        }
        let closing = std::mem::take(&mut self.closing);
        self.waiting.extend(closing.into_values().map(QueuedForDaemon::Close));
    }

    /// Fails everything, because there will be no other connection.
    pub(in crate::cli::acp) fn give_up(&mut self, why: &str) {
        self.lost(true);
        self.link = RelayLinkState::Dead(why.to_owned());
        self.waiting.clear();
        for open in std::mem::take(&mut self.open) {
            self.to_client.push_back(message::error(Some(&open.id), INTERNAL_ERROR, why));
        }
    }

    /// Sends a request of our own whose answer is ignored.
    fn ask(&mut self, method: &str, params: &Json) {
        let id = self.own_id();
        self.priority.push_back(jsonrpc::request(&id, method, params));
    }
}
