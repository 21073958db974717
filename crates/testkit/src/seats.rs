//! ACP clients by hand, over every transport: they share no code with what they talk to.
//!
//! What a client hears is kept in order. That every request is answered once and no more is looked after here, in all
//! tests.

mod http;
mod stdio;
mod websocket;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use stdio::Framing;

use crate::client::{PATIENCE, Place};
use crate::harness::{Daemon, acp_fixture};

/// The profile `fixture`: the ACP fixture agent with these switches.
pub fn fixture(switches: &[&str]) -> String {
    named("fixture", switches)
}

/// The same under another name.
pub fn named(name: &str, switches: &[&str]) -> String {
    let command = json!(acp_fixture());
    format!("[agents.{name}]\nprotocol = 'acp'\ncommand = {command}\nargs = {}\n", json!(switches))
}

impl Place {
    pub fn socket(daemon: &Daemon) -> Self {
        Self::Socket(daemon.socket())
    }

    /// The port, with a token of this role.
    pub fn port(daemon: &Daemon, role: &str) -> Self {
        let ran = daemon.cli(&["token", "create", "--name", &format!("seat-{role}"), "--role", role]).ok();
        Self::Port { address: daemon.address(), token: Some(ran.stdout.trim().to_owned()) }
    }
}

/// How messages travel.
pub(crate) trait Wire {
    /// Whether it was taken, as far as the transport says so.
    fn send(&mut self, text: &str) -> bool;

    /// Goes, without a word more than the transport needs.
    fn hang_up(&mut self);
}

/// One client.
pub struct Seat {
    wire: Box<dyn Wire>,
    heard: Receiver<Value>,
    /// Everything that came, in order.
    pub log: Vec<Value>,
    /// How much of the log [`until`](Self::until) has passed.
    passed: usize,
    asked: u64,
    answered: HashSet<String>,
}

impl fmt::Debug for Seat {
    /// The last of what came, which is what a failed test is about.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left_out = self.log.len().saturating_sub(12);
        writeln!(f, "{left_out} messages, and")?;
        self.log[left_out..].iter().try_for_each(|message| writeln!(f, "  {:.500}", message.to_string()))
    }
}

/// The ways in, for tests that hold on all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Lines,
    Lengths,
    WebSocket,
    Http,
}

pub const WAYS: [Way; 4] = [Way::Lines, Way::Lengths, Way::WebSocket, Way::Http];

impl Seat {
    fn new(wire: Box<dyn Wire>, heard: Receiver<Value>) -> Self {
        Self { wire, heard, log: Vec::new(), passed: 0, asked: 0, answered: HashSet::new() }
    }

    /// `intercom acp --agent fixture` or the like, in lines. It starts no daemon where that of the test has gone.
    pub fn stdio(daemon: &Daemon, args: &[&str]) -> Self {
        Self::relayed(daemon.dir.path(), &[args, &["--no-start"]].concat(), Framing::Lines)
    }

    pub fn relayed(home: &Path, args: &[&str], framing: Framing) -> Self {
        let (wire, heard) = stdio::start(home, args, framing);
        Self::new(Box::new(wire), heard)
    }

    pub fn websocket(place: &Place) -> Self {
        let (wire, heard) = websocket::open(place);
        Self::new(Box::new(wire), heard)
    }

    pub fn http(place: &Place) -> Self {
        let (wire, heard) = http::open(place);
        Self::new(Box::new(wire), heard)
    }

    /// By any way, with the profile `fixture` for new sessions if nothing else is said.
    pub fn by(way: Way, daemon: &Daemon) -> Self {
        let args = &["--agent", "fixture", "--no-start"];
        match way {
            Way::Lines => Self::relayed(daemon.dir.path(), args, Framing::Lines),
            Way::Lengths => Self::relayed(daemon.dir.path(), args, Framing::Lengths),
            Way::WebSocket => Self::websocket(&Place::socket(daemon)),
            Way::Http => Self::http(&Place::socket(daemon)),
        }
    }

    /// And introduced.
    #[track_caller]
    pub fn ready(way: Way, daemon: &Daemon) -> Self {
        Self::by(way, daemon).introduced()
    }

    #[track_caller]
    pub fn introduced(mut self) -> Self {
        self.ok("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
        self
    }

    #[track_caller]
    pub fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string());
    }

    /// Exactly these characters.
    #[track_caller]
    pub fn send_text(&mut self, text: &str) {
        assert!(self.wire.send(text), "not taken: {text:.1000}");
    }

    /// Something that may be refused by the transport itself, and then is not answered otherwise.
    pub fn offer(&mut self, message: &Value) -> bool {
        self.wire.send(&message.to_string())
    }

    /// Sends a request and does not wait; its id.
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = json!(self.asked);
        let mut message = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        message["params"] = params;
        self.send(&message);
        id
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        let mut message = json!({ "jsonrpc": "2.0", "method": method });
        message["params"] = params;
        self.send(&message);
    }

    /// Answers a request of the other side.
    pub fn answer(&mut self, id: &Value, result: Value) {
        let mut message = json!({ "jsonrpc": "2.0", "id": id });
        message["result"] = result;
        self.send(&message);
    }

    /// Waits for the next message; `None` once the other side has hung up.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> Option<Value> {
        let heard = self.heard.recv_timeout(PATIENCE);
        self.keep(heard)
    }

    #[track_caller]
    fn keep(&mut self, heard: Result<Value, RecvTimeoutError>) -> Option<Value> {
        match heard {
            Ok(message) => {
                assert_eq!(message["jsonrpc"], "2.0", "{message}");
                if is_answer(&message) && !message["id"].is_null() {
                    assert!(self.answered.insert(message["id"].to_string()), "answered twice: {message}");
                }
                self.log.push(message.clone());
                Some(message)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing comes any more: {self:?}"),
        }
    }

    /// The answer to a request that was begun.
    #[track_caller]
    pub fn answer_to(&mut self, id: &Value) -> Value {
        let known = self.log.iter().find(|message| is_answer(message) && message["id"] == *id);
        if let Some(message) = known {
            return message.clone();
        }
        loop {
            match self.hear() {
                Some(message) if is_answer(&message) && message["id"] == *id => return message,
                Some(_) => {}
                None => panic!("hung up without an answer to {id}: {self:?}"),
            }
        }
    }

    #[track_caller]
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer_to(&id)
    }

    /// The result of a request that succeeds.
    #[track_caller]
    pub fn ok(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params);
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The error of a request that is refused with this code.
    #[track_caller]
    pub fn refused(&mut self, method: &str, params: Value, code: i64) -> Value {
        let answer = self.ask(method, params);
        refusal(&answer, code)
    }

    /// The next message like this that was not passed before.
    #[track_caller]
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            while self.passed < self.log.len() {
                self.passed += 1;
                if wanted(&self.log[self.passed - 1]) {
                    return self.log[self.passed - 1].clone();
                }
            }
            let heard = self.hear();
            assert!(heard.is_some(), "hung up before {what}: {self:?}");
        }
    }

    /// A new session in the daemon's workspace; its id.
    #[track_caller]
    pub fn begun(&mut self, daemon: &Daemon) -> String {
        self.begun_with(daemon, json!({}))
    }

    #[track_caller]
    pub fn begun_with(&mut self, daemon: &Daemon, more: Value) -> String {
        let mut params = json!({ "cwd": daemon.workspace(), "mcpServers": [] });
        let Value::Object(more) = more else { panic!("fields are an object: {more}") };
        params.as_object_mut().unwrap().extend(more);
        self.ok("session/new", params)["sessionId"].as_str().unwrap().to_owned()
    }

    pub fn begin_prompt(&mut self, session: &str, text: &str) -> Value {
        self.begin("session/prompt", prompt(session, text))
    }

    /// The stop reason of a whole turn.
    #[track_caller]
    pub fn prompt(&mut self, session: &str, text: &str) -> String {
        let result = self.ok("session/prompt", prompt(session, text));
        result["stopReason"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
    }

    /// Attaches to a session that is there, with everything that was said in it.
    #[track_caller]
    pub fn load(&mut self, daemon: &Daemon, session: &str) -> Value {
        let params = json!({ "sessionId": session, "cwd": daemon.workspace(), "mcpServers": [] });
        self.ok("session/load", params)
    }

    /// Attaches without that.
    #[track_caller]
    pub fn resume(&mut self, daemon: &Daemon, session: &str) -> Value {
        let params = json!({ "sessionId": session, "cwd": daemon.workspace(), "mcpServers": [] });
        self.ok("session/resume", params)
    }

    /// The updates of a session that have come so far.
    pub fn updates(&self, session: &str) -> Vec<Value> {
        let ours = |message: &&Value| {
            message["method"] == "session/update" && message["params"]["sessionId"] == session
        };
        self.log.iter().filter(ours).map(|message| message["params"]["update"].clone()).collect()
    }

    /// The words of the agent's messages so far, a chunk each.
    pub fn words(&self, session: &str) -> Vec<String> {
        words(&self.updates(session))
    }

    /// Waits until the agent says something that begins so.
    #[track_caller]
    pub fn until_words(&mut self, session: &str, beginning: &str) -> String {
        let message = self.until(beginning, |message| {
            let text = message["params"]["update"]["content"]["text"].as_str();
            message["params"]["sessionId"] == session && text.is_some_and(|text| text.starts_with(beginning))
        });
        message["params"]["update"]["content"]["text"].as_str().unwrap().to_owned()
    }

    /// Waits until permission is asked for.
    #[track_caller]
    pub fn until_asked(&mut self) -> Value {
        self.until("a request for permission", |message| message["method"] == "session/request_permission")
    }

    /// Chooses the first option of this kind.
    #[track_caller]
    pub fn choose(&mut self, request: &Value, kind: &str) {
        let options = request["params"]["options"].as_array().unwrap();
        let option =
            options.iter().find(|option| option["kind"] == kind).unwrap_or_else(|| panic!("{request}"));
        let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option["optionId"] } });
        self.answer(&request["id"], outcome);
    }

    /// Asks something harmless, so that everything that was sent before has been dealt with and come.
    #[track_caller]
    pub fn settle(&mut self) {
        let answer = self.ask("_intercom.test/nothing", json!({}));
        refusal(&answer, -32601);
    }

    /// Goes. What came meanwhile can still be read.
    pub fn leave(&mut self) {
        self.wire.hang_up();
    }

    /// Waits until the other side has hung up.
    #[track_caller]
    pub fn until_hung_up(&mut self, within: Duration) {
        let start = Instant::now();
        loop {
            let left = within.saturating_sub(start.elapsed());
            let heard = self.heard.recv_timeout(left);
            assert!(
                heard != Err(RecvTimeoutError::Timeout),
                "not hung up within {within:?}: {:#?}",
                self.log
            );
            if self.keep(heard).is_none() {
                return;
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.wire.hang_up();
    }
}

fn is_answer(message: &Value) -> bool {
    message.get("method").is_none()
}

pub fn prompt(session: &str, text: &str) -> Value {
    json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] })
}

/// The words of every chunk of the agent's messages.
pub fn words(updates: &[Value]) -> Vec<String> {
    let chunks = updates.iter().filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|update| update["content"]["text"].as_str().map(str::to_owned)).collect()
}

/// An answer is this refusal: with a message for people, and without a word about our insides.
#[track_caller]
pub fn refusal(answer: &Value, code: i64) -> Value {
    let error = answer["error"].clone();
    assert_eq!(error["code"], code, "{answer}");
    assert!(answer.get("result").is_none(), "{answer}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(!message.is_empty(), "{answer}");
    for inside in ["panicked", "src/", ".rs:", "RUST_BACKTRACE", "Some(", "Err("] {
        assert!(!answer.to_string().contains(inside), "{answer}");
    }
    error
}
