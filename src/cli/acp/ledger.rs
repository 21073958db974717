//! The open requests in both directions, and their fate when the daemon goes away.
//!
//! Messages in, messages out: no I/O, no clock. Every request of the client is answered exactly once, by the
//! daemon or from here.
//!
//! ```text
//!   down ──connected──► up      down ──given up──► dead
//!    ▲                  │
//!    └───────lost───────┘
//! ```
//!
//! Down, whatever the client asks waits. A daemon that comes up is told who the client is, which sessions it has and
//! where it was in each, and what it still waits for, before anything else of the client's. Dead, whatever is asked is
//! answered with an error.

mod open;
mod restart;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use serde_json::json;
use serde_json::value::RawValue;

use self::open::{At, Open, Session, Setup};
use super::message::{self, Fields, Kind};
use intercom_types::{Json, PromptId, RequestId};
use intercom_wire::frame::Frame;
use intercom_wire::jsonrpc::{self, Bad, INTERNAL_ERROR, INVALID_REQUEST, Message, PARSE_ERROR};

/// Requests of the client under way. One more is answered with an error: not reading on would keep its answers from us.
const MAX_OPEN: usize = 1024;
/// The same of the bytes of those that may have to be sent again.
const MAX_OPEN_BYTES: usize = 128 << 20;
/// Messages, and their bytes, that wait for the daemon. At the bound the client's stdin is not read.
const MAX_WAITING: usize = 64;
const MAX_WAITING_BYTES: usize = 1 << 20;
/// Messages, and their bytes, that wait for the client. At the bound the daemon is not read.
const MAX_UNREAD: usize = 64;
const MAX_UNREAD_BYTES: usize = 1 << 20;
/// And at this one stdin is not, either: only a client that sends nonsense and reads nothing gets there.
const MAX_UNREAD_AT_ALL: usize = 1024;

#[derive(Debug)]
pub(super) struct Ledger {
    link: Link,
    /// In the order in which they came.
    open: Vec<Open>,
    /// The client's `initialize` parameters, once the daemon has accepted them.
    initialize: Option<Json>,
    sessions: BTreeMap<String, Session>,
    /// Requests of the daemon that the client has not answered: our id for it, and the daemon's.
    asked: BTreeMap<RequestId, RequestId>,
    /// Sessions that we close ourselves, by our request. Whatever else we ask, the answer is not looked at.
    closing: BTreeMap<RequestId, String>,
    /// The number of the next id that we make.
    next: u64,
    /// Goes to the daemon before anything that waits.
    first: VecDeque<String>,
    waiting: VecDeque<Waiting>,
    to_client: VecDeque<String>,
    /// The client is gone, and with it go its sessions.
    close_sessions: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Link {
    Down,
    Up,
    Dead(String),
}

#[derive(Debug)]
enum Waiting {
    Request { id: RequestId, text: String },
    Notification { text: String, cancels: Option<Cancels> },
    Answer(String),
    Close(String),
}

#[derive(Debug)]
enum Cancels {
    Session(String),
    Request(RequestId),
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            link: Link::Down,
            open: Vec::new(),
            initialize: None,
            sessions: BTreeMap::new(),
            asked: BTreeMap::new(),
            closing: BTreeMap::new(),
            next: 0,
            first: VecDeque::new(),
            waiting: VecDeque::new(),
            to_client: VecDeque::new(),
            close_sessions: false,
        }
    }

    /// Checks whether there is room for more from the client.
    pub(super) fn has_room_for_client(&self) -> bool {
        let bytes: usize = self.waiting.iter().map(Waiting::bytes).sum();
        self.waiting.len() < MAX_WAITING
            && bytes < MAX_WAITING_BYTES
            && self.to_client.len() < MAX_UNREAD_AT_ALL
    }

    /// Checks whether there is room for more from the daemon.
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
        !self.first.is_empty() || (self.link == Link::Up && !self.waiting.is_empty())
    }

    /// Nothing that was read is unsent, and nothing is unanswered but prompts, which are answered when they are done.
    pub(super) fn is_settled(&self) -> bool {
        let done = |open: &Open| open.kind == Kind::Prompt && open.at == At::Sent;
        self.first.is_empty()
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
                (None, "these are no headers with one Content-Length, or not a whole message".to_owned())
            }
        };
        let id = id.filter(|id| !self.is_open(id));
        self.to_client.push_back(message::error(id.as_ref(), PARSE_ERROR, &why));
    }

    fn client(&mut self, text: String) {
        match jsonrpc::parse(&text) {
            Err(bad @ Bad::Malformed(_)) => {
                self.to_client.push_back(message::error(None, PARSE_ERROR, &bad.to_string()));
            }
            Err(bad) => {
                let id = jsonrpc::id_of(&text).filter(|id| !self.is_open(id));
                self.to_client.push_back(message::error(id.as_ref(), INVALID_REQUEST, &bad.to_string()));
            }
            Ok(Message::Request { id, method, params }) => {
                let (kind, fields) = (Kind::of(&method), Fields::of(params));
                self.requested(id, kind, fields, text);
            }
            Ok(Message::Notification { method, params }) => {
                let cancels = match &*method {
                    "session/cancel" => Fields::of(params).session_id.map(Cancels::Session),
                    "$/cancel_request" => Fields::of(params).request_id.map(Cancels::Request),
                    _ => None,
                };
                self.wait(Waiting::Notification { text, cancels });
            }
            Ok(Message::Answer { id, result }) => {
                // One that nobody waits for any more: the daemon that asked is gone, and the next one has asked anew.
                let Some(theirs) = id.and_then(|id| self.asked.remove(&id)) else { return };
                self.wait(Waiting::Answer(message::answer(&theirs, result)));
            }
        }
    }

    fn requested(&mut self, id: RequestId, kind: Kind, fields: Fields, text: String) {
        let refused = if let Link::Dead(why) = &self.link {
            Some((INTERNAL_ERROR, why.as_str()))
        } else if self.is_open(&id) {
            Some((INVALID_REQUEST, "another request with this id is under way"))
        } else if self.open.len() >= MAX_OPEN || self.open_bytes() >= MAX_OPEN_BYTES {
            Some((INTERNAL_ERROR, "too many requests are under way"))
        } else {
            None
        };
        if let Some((code, why)) = refused {
            self.to_client.push_back(message::error(Some(&id), code, why));
            return;
        }
        let text = match kind {
            Kind::Prompt => message::with_prompt_id(text, PromptId::mint()),
            _ => text,
        };
        let Fields { session_id: session, cwd, mcp_servers, additional_directories, .. } = fields;
        let setup = Setup { cwd, mcp_servers, additional_directories };
        let id_of = id.clone();
        self.open.push(Open {
            id: id_of,
            kind,
            at: At::Waiting,
            text: None,
            session,
            setup,
            cancel: None,
            tries: 0,
        });
        self.wait(Waiting::Request { id, text });
    }

    fn wait(&mut self, what: Waiting) {
        if !matches!(self.link, Link::Dead(_)) {
            self.waiting.push_back(what);
        }
    }

    /// The next message for the daemon; it counts as sent from here on.
    pub(super) fn next_for_daemon(&mut self) -> Option<String> {
        if let Some(text) = self.first.pop_front() {
            return Some(text);
        }
        if self.link != Link::Up {
            return None;
        }
        Some(match self.waiting.pop_front()? {
            Waiting::Request { id, text } => {
                if let Some(open) = self.open.iter_mut().find(|open| open.id == id) {
                    open.at = At::Sent;
                    open.tries = 1;
                    open.text = open.kind.is_kept().then(|| text.clone());
                    attach_prompted(open, &mut self.sessions);
                }
                text
            }
            Waiting::Notification { text, cancels } => {
                let taken_back = |open: &&mut Open| match &cancels {
                    Some(Cancels::Session(id)) => {
                        open.kind == Kind::Prompt && open.session.as_ref() == Some(id)
                    }
                    Some(Cancels::Request(id)) => open.id == *id,
                    None => false,
                };
                for open in self.open.iter_mut().filter(taken_back).filter(|open| open.at == At::Sent) {
                    open.cancel = Some(text.clone());
                }
                text
            }
            Waiting::Answer(text) => text,
            Waiting::Close(session) => {
                let id = self.own_id();
                let text = jsonrpc::request(&id, "session/close", &json!({ "sessionId": &session }));
                self.closing.insert(id, session);
                text
            }
        })
    }

    /// Handles a frame from the daemon.
    pub(super) fn daemon(&mut self, frame: &str) -> Result<(), Bad> {
        let (place, text) = message::split(frame);
        let said = jsonrpc::parse(text)?;
        if let Some((seq, session)) = place {
            self.sessions.entry(session.to_owned()).or_default().seq = Some(seq);
        }
        match said {
            Message::Request { id, method, params } => {
                let ours = self.own_id();
                self.to_client.push_back(message::request(&ours, &method, params));
                self.asked.insert(ours, id);
            }
            Message::Notification { method, params } if method == "$/cancel_request" => {
                self.taken_back(&Fields::of(params));
            }
            Message::Notification { .. } | Message::Answer { id: None, .. } => {
                self.to_client.push_back(text.to_owned());
            }
            Message::Answer { id: Some(id), result } => {
                let answered = self.open.iter().position(|open| open.id == id && open.at == At::Sent);
                if let Some(answered) = answered {
                    let open = self.open.remove(answered);
                    self.learn(open, result);
                    self.to_client.push_back(text.to_owned());
                } else if let Some(session) = self.closing.remove(&id) {
                    self.sessions.remove(&session);
                }
            }
        }
        Ok(())
    }

    /// The daemon does not need an answer any more. The client still gives one, and the daemon knows what to make of it.
    fn taken_back(&mut self, fields: &Fields) {
        let ours = self.asked.iter().find(|(_, theirs)| Some(*theirs) == fields.request_id.as_ref());
        if let Some((ours, _)) = ours {
            self.to_client.push_back(cancel(ours));
        }
    }

    fn learn(&mut self, open: Open, result: Result<&RawValue, &RawValue>) {
        let Ok(result) = result else { return };
        let session = match open.kind {
            Kind::Initialize => {
                let params = open.text.as_deref().and_then(params_of);
                self.initialize = Some(params.unwrap_or_else(|| Json::trusted("{}")));
                return;
            }
            Kind::New => Fields::of(Some(result)).session_id,
            Kind::Attach => open.session,
            Kind::Leave => {
                open.session.and_then(|session| self.sessions.remove(&session));
                return;
            }
            Kind::Prompt | Kind::Read | Kind::Other => return,
        };
        let Some(id) = session else { return };
        let session = self.sessions.entry(id.clone()).or_default();
        (session.attached, session.setup) = (true, open.setup);
        if self.close_sessions {
            self.wait(Waiting::Close(id));
        }
    }

    /// The client is gone: its sessions are to be closed, also one that is only being made.
    pub(super) fn close_sessions(&mut self) {
        self.close_sessions = true;
        let attached = self.sessions.iter().filter(|(_, session)| session.attached);
        for id in attached.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.wait(Waiting::Close(id));
        }
    }

    fn is_open(&self, id: &RequestId) -> bool {
        self.open.iter().any(|open| open.id == *id)
    }

    fn open_bytes(&self) -> usize {
        self.open.iter().filter_map(|open| open.text.as_ref()).map(String::len).sum()
    }

    /// An id that neither side has under way.
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

impl Waiting {
    fn bytes(&self) -> usize {
        match self {
            Self::Request { text, .. } | Self::Notification { text, .. } | Self::Answer(text) => text.len(),
            Self::Close(session) => session.len(),
        }
    }
}

/// Notes that a prompt which is now sent attaches its client to the session: events of it follow, and the next daemon
/// must be told where this one stopped. A prompt that is sent again attaches anew: a close may have come between.
fn attach_prompted(open: &Open, sessions: &mut BTreeMap<String, Session>) {
    if let (Kind::Prompt, Some(session)) = (open.kind, &open.session) {
        sessions.entry(session.clone()).or_default().attached = true;
    }
}

fn cancel(id: &RequestId) -> String {
    jsonrpc::notification("$/cancel_request", &json!({ "requestId": id }))
}

fn params_of(text: &str) -> Option<Json> {
    match jsonrpc::parse(text) {
        Ok(Message::Request { params, .. }) => params.map(Json::raw),
        _ => None,
    }
}
