//! The open requests in both directions, and their handling when the daemon goes away.
//!
//! Messages in, messages out: no I/O, no clock. Every request of the client is answered exactly once, by the daemon or
//! from here.
//!
//! ```text
//!   down ──connected──► up      down ──given up──► dead
//!    ▲                  │
//!    └───────lost───────┘
//! ```
//!
//! While down, the client's requests wait. A daemon that comes up first receives the client's `initialize`, its
//! sessions with the last event of each, and the requests without an answer; new requests follow. When dead, every
//! request is answered with an error.

mod open_request;
mod restart;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use serde_json::json;
use serde_json::value::RawValue;

use self::open_request::{RelayedRequest, RelayedRequestStage, RelayedSession, RelayedSetup};
use super::message::{self, ClientRequestKind, RelayedFields};
use intercom_types::{Json, PromptId, RequestId};
use intercom_wire::frame::Frame;
use intercom_wire::jsonrpc::{
    self, INTERNAL_ERROR, INVALID_REQUEST, InvalidRpcMessage, PARSE_ERROR, RpcMessage,
};

/// The maximum number of pending requests of the client. A further one is answered with an error: to stop reading would
/// also stop its answers to the daemon's requests.
const MAX_OPEN: usize = 1024;
/// The maximum size of the pending requests that may have to be sent again.
const MAX_OPEN_BYTES: usize = 128 << 20;
/// The maximum number of messages, and of their bytes, that wait for the daemon. At the limit the client's stdin is not
/// read.
const MAX_WAITING: usize = 64;
const MAX_WAITING_BYTES: usize = 1 << 20;
/// The maximum number of messages, and of their bytes, that wait for the client. At the limit the daemon is not read.
const MAX_UNREAD: usize = 64;
const MAX_UNREAD_BYTES: usize = 1 << 20;
/// At this limit stdin is not read, either: only a client that sends invalid messages and reads nothing reaches it.
const MAX_UNREAD_AT_ALL: usize = 1024;

#[derive(Debug)]
pub(super) struct PendingRelayRequests {
    link: RelayLinkState,
    /// The client's requests in the order of their arrival.
    open: Vec<RelayedRequest>,
    /// The client's `initialize` parameters, once the daemon has accepted them.
    initialize: Option<Json>,
    sessions: BTreeMap<String, RelayedSession>,
    /// Requests of the daemon without an answer of the client: our id of each, and the daemon's.
    daemon_requests: BTreeMap<RequestId, RequestId>,
    /// Sessions that we close ourselves, by our request. Answers to our other requests are ignored.
    closing: BTreeMap<RequestId, String>,
    /// The number of the next id of ours.
    next: u64,
    /// Messages that are sent before all waiting ones.
    priority: VecDeque<String>,
    waiting: VecDeque<QueuedForDaemon>,
    to_client: VecDeque<String>,
    /// True if the client has left, and its sessions are closed with it.
    close_sessions: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum RelayLinkState {
    Down,
    Up,
    Dead(String),
}

#[derive(Debug)]
enum QueuedForDaemon {
    Request { id: RequestId, text: String },
    Notification { text: String, cancels: Option<RelayedCancel> },
    Answer(String),
    Close(String),
}

#[derive(Debug)]
enum RelayedCancel {
    Session(String),
    Request(RequestId),
}

impl PendingRelayRequests {
    pub(super) fn new() -> Self {
        Self {
            link: RelayLinkState::Down,
            open: Vec::new(),
            initialize: None,
            sessions: BTreeMap::new(),
            daemon_requests: BTreeMap::new(),
            closing: BTreeMap::new(),
            next: 0,
            priority: VecDeque::new(),
            waiting: VecDeque::new(),
            to_client: VecDeque::new(),
            close_sessions: false,
        }
    }

    /// Returns true if there is room for more from the client.
    pub(super) fn has_room_for_client(&self) -> bool {
        let bytes: usize = self.waiting.iter().map(QueuedForDaemon::bytes).sum();
        self.waiting.len() < MAX_WAITING
            && bytes < MAX_WAITING_BYTES
            && self.to_client.len() < MAX_UNREAD_AT_ALL
    }

    /// Returns true if there is room for more from the daemon.
    pub(super) fn has_room_for_daemon(&self) -> bool {
        let bytes: usize = self.to_client.iter().map(String::len).sum();
        self.to_client.len() < MAX_UNREAD && bytes < MAX_UNREAD_BYTES
    }

    pub(super) fn has_for_client(&self) -> bool {
        !self.to_client.is_empty()
    }

    pub(super) fn next_for_client(&mut self) -> Option<String> {
        self.to_client.pop_front()
    }

    pub(super) fn has_for_daemon(&self) -> bool {
        !self.priority.is_empty() || (self.link == RelayLinkState::Up && !self.waiting.is_empty())
    }

    /// Returns true if everything that was read is sent, and only prompts are unanswered, whose answers come at the end
    /// of their turns.
    pub(super) fn is_settled(&self) -> bool {
        let done = |open: &RelayedRequest| {
            open.kind == ClientRequestKind::Prompt && open.stage == RelayedRequestStage::Sent
        };
        self.priority.is_empty()
            && self.waiting.is_empty()
            && self.closing.is_empty()
            && self.open.iter().all(done)
    }

    /// Handles a frame from stdin.
    pub(super) fn frame(&mut self, frame: Frame) {
        let (id, why) = match frame {
            Frame::Text(text) if text.trim().is_empty() => return,
            Frame::Text(text) => return self.client(text),
            Frame::NotUtf8 { .. } => (None, "the message is not UTF-8".to_owned()),
            Frame::TooLong { bytes, request, .. } => {
                (request, format!("the message has {bytes} bytes, which is too long"))
            }
            Frame::BadHeader { .. } => {
                (None, "invalid Content-Length headers, or an incomplete message".to_owned())
            }
        };
        let id = id.filter(|id| !self.is_open(id));
        self.to_client.push_back(message::error(id.as_ref(), PARSE_ERROR, &why));
    }

    fn client(&mut self, text: String) {
        match jsonrpc::parse(&text) {
            Err(bad @ InvalidRpcMessage::Malformed(_)) => {
                self.to_client.push_back(message::error(None, PARSE_ERROR, &bad.to_string()));
            }
            Err(bad) => {
                let id = jsonrpc::find_id(&text).filter(|id| !self.is_open(id));
                self.to_client.push_back(message::error(id.as_ref(), INVALID_REQUEST, &bad.to_string()));
            }
            Ok(RpcMessage::Request { id, method, params }) => {
                let (kind, fields) = (ClientRequestKind::of(&method), RelayedFields::of(params));
                self.requested(id, kind, fields, text);
            }
            Ok(RpcMessage::Notification { method, params }) => {
                let cancels = match &*method {
                    "session/cancel" => RelayedFields::of(params).session_id.map(RelayedCancel::Session),
                    "$/cancel_request" => RelayedFields::of(params).request_id.map(RelayedCancel::Request),
                    _ => None,
                };
                self.enqueue(QueuedForDaemon::Notification { text, cancels });
            }
            Ok(RpcMessage::Answer { id, result }) => {
                // An answer for a daemon that has gone is dropped. The next daemon has sent the request again.
                let Some(theirs) = id.and_then(|id| self.daemon_requests.remove(&id)) else { return };
                self.enqueue(QueuedForDaemon::Answer(message::answer(&theirs, result)));
            }
        }
    }

    fn requested(&mut self, id: RequestId, kind: ClientRequestKind, fields: RelayedFields, text: String) {
        let refused = if let RelayLinkState::Dead(why) = &self.link {
            Some((INTERNAL_ERROR, why.as_str()))
        } else if self.is_open(&id) {
            Some((INVALID_REQUEST, "another request with this id is pending"))
        } else if self.open.len() >= MAX_OPEN || self.open_bytes() >= MAX_OPEN_BYTES {
            Some((INTERNAL_ERROR, "too many requests are pending"))
        } else {
            None
        };
        if let Some((code, why)) = refused {
            self.to_client.push_back(message::error(Some(&id), code, why));
            return;
        }
        let prompt = (kind == ClientRequestKind::Prompt).then(PromptId::mint);
        let text = match prompt {
            Some(prompt) => message::with_prompt_id(text, prompt),
            None => text,
        };
        let RelayedFields { session_id: session, cwd, mcp_servers, additional_directories, .. } = fields;
        let setup = RelayedSetup { cwd, mcp_servers, additional_directories };
        let id_of = id.clone();
        self.open.push(RelayedRequest {
            id: id_of,
            kind,
            stage: RelayedRequestStage::Waiting,
            text: None,
            session,
            prompt,
            setup,
            cancel: None,
            tries: 0,
        });
        self.enqueue(QueuedForDaemon::Request { id, text });
    }

    fn enqueue(&mut self, what: QueuedForDaemon) {
        if !matches!(self.link, RelayLinkState::Dead(_)) {
            self.waiting.push_back(what);
        }
    }

    /// Returns the next message for the daemon; it counts as sent from here on.
    pub(super) fn next_for_daemon(&mut self) -> Option<String> {
        if let Some(text) = self.priority.pop_front() {
            return Some(text);
        }
        if self.link != RelayLinkState::Up {
            return None;
        }
        Some(match self.waiting.pop_front()? {
            QueuedForDaemon::Request { id, text } => {
                if let Some(open) = self.open.iter_mut().find(|open| open.id == id) {
                    open.stage = RelayedRequestStage::Sent;
                    open.tries = 1;
                    open.text = open.kind.is_resendable().then(|| text.clone());
                    attach_prompted(open, &mut self.sessions);
                }
                text
            }
            QueuedForDaemon::Notification { text, cancels } => {
                let taken_back = |open: &&mut RelayedRequest| match &cancels {
                    Some(RelayedCancel::Session(id)) => {
                        open.kind == ClientRequestKind::Prompt && open.session.as_ref() == Some(id)
                    }
                    Some(RelayedCancel::Request(id)) => open.id == *id,
                    None => false,
                };
                for open in self
                    .open
                    .iter_mut()
                    .filter(taken_back)
                    .filter(|open| open.stage == RelayedRequestStage::Sent)
                {
                    open.cancel = Some(text.clone());
                }
                text
            }
            QueuedForDaemon::Answer(text) => text,
            QueuedForDaemon::Close(session) => {
                let id = self.own_id();
                let text = jsonrpc::request(&id, "session/close", &json!({ "sessionId": &session }));
                self.closing.insert(id, session);
                text
            }
        })
    }

    /// Handles a frame from the daemon.
    pub(super) fn daemon(&mut self, frame: &str) -> Result<(), InvalidRpcMessage> {
        let (place, text) = message::split(frame);
        let received = jsonrpc::parse(text)?;
        if let Some((seq, session)) = place {
            self.sessions.entry(session.to_owned()).or_default().seq = Some(seq);
        }
        match received {
            RpcMessage::Request { id, method, params } => {
                let ours = self.own_id();
                self.to_client.push_back(message::request(&ours, &method, params));
                self.daemon_requests.insert(ours, id);
            }
            RpcMessage::Notification { method, params } if method == "$/cancel_request" => {
                self.cancel_daemon_request(&RelayedFields::of(params));
            }
            RpcMessage::Notification { .. } | RpcMessage::Answer { id: None, .. } => {
                self.to_client.push_back(text.to_owned());
            }
            RpcMessage::Answer { id: Some(id), result } => {
                let answered = self
                    .open
                    .iter()
                    .position(|open| open.id == id && open.stage == RelayedRequestStage::Sent);
                if let Some(answered) = answered {
                    let open = self.open.remove(answered);
                    self.record_answer(open, result);
                    self.to_client.push_back(text.to_owned());
                } else if let Some(session) = self.closing.remove(&id) {
                    self.sessions.remove(&session);
                }
            }
        }
        Ok(())
    }

    /// Forwards the cancellation of a daemon's request. The client still answers it, and the daemon handles that.
    fn cancel_daemon_request(&mut self, fields: &RelayedFields) {
        let ours =
            self.daemon_requests.iter().find(|(_, theirs)| Some(*theirs) == fields.request_id.as_ref());
        if let Some((ours, _)) = ours {
            self.to_client.push_back(cancel(ours));
        }
    }

    fn record_answer(&mut self, open: RelayedRequest, result: Result<&RawValue, &RawValue>) {
        let Ok(result) = result else { return };
        let session = match open.kind {
            ClientRequestKind::Initialize => {
                let params = open.text.as_deref().and_then(params_of);
                self.initialize = Some(params.unwrap_or_else(|| Json::trusted("{}")));
                return;
            }
            ClientRequestKind::New => RelayedFields::of(Some(result)).session_id,
            ClientRequestKind::Attach => open.session,
            ClientRequestKind::Leave => {
                open.session.and_then(|session| self.sessions.remove(&session));
                return;
            }
            ClientRequestKind::Prompt | ClientRequestKind::Read | ClientRequestKind::Other => return,
        };
        let Some(id) = session else { return };
        let session = self.sessions.entry(id.clone()).or_default();
        (session.attached, session.setup) = (true, open.setup);
        if self.close_sessions {
            self.enqueue(QueuedForDaemon::Close(id));
        }
    }

    /// Closes the sessions of a client that has left, also a session that is still being created.
    pub(super) fn close_sessions(&mut self) {
        self.close_sessions = true;
        let attached = self.sessions.iter().filter(|(_, session)| session.attached);
        for id in attached.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.enqueue(QueuedForDaemon::Close(id));
        }
    }

    fn is_open(&self, id: &RequestId) -> bool {
        self.open.iter().any(|open| open.id == *id)
    }

    fn open_bytes(&self) -> usize {
        self.open.iter().filter_map(|open| open.text.as_ref()).map(String::len).sum()
    }

    /// Returns an id that neither side uses in a pending request.
    fn own_id(&mut self) -> RequestId {
        loop {
            self.next += 1;
            let id = RequestId::text(&format!("intercom-{}", self.next));
            if !self.is_open(&id) {
                return id;
            }
        }
    }
}

impl QueuedForDaemon {
    fn bytes(&self) -> usize {
        match self {
            Self::Request { text, .. } | Self::Notification { text, .. } | Self::Answer(text) => text.len(),
            Self::Close(session) => session.len(),
        }
    }
}

/// Records that a prompt attaches its client to the session: events of the session follow, and the next daemon must
/// learn the last one. A prompt that is sent again attaches again, because a close may have come between.
fn attach_prompted(open: &RelayedRequest, sessions: &mut BTreeMap<String, RelayedSession>) {
    if let (ClientRequestKind::Prompt, Some(session)) = (open.kind, &open.session) {
        sessions.entry(session.clone()).or_default().attached = true;
    }
}

fn cancel(id: &RequestId) -> String {
    jsonrpc::notification("$/cancel_request", &json!({ "requestId": id }))
}

fn params_of(text: &str) -> Option<Json> {
    match jsonrpc::parse(text) {
        Ok(RpcMessage::Request { params, .. }) => params.map(Json::raw),
        _ => None,
    }
}
