//! What ACP clients of one session are answered, whatever becomes of it: each request once, and as it then is.

use std::time::Instant;

use intercom_testkit::client::{PATIENCE, WebSocket};
use intercom_testkit::harness::{Daemon, acp_fixture, wait_turns};
use serde_json::{Value, json};

use crate::acp_door::{hear, initialize, socket};

/// A client, and all that it was told.
struct Client {
    socket: WebSocket,
    told: Vec<Value>,
    asked: u64,
}

impl Client {
    fn new(daemon: &Daemon, query: &str) -> Self {
        let (mut socket, _) = socket(daemon, query).unwrap();
        socket.frames.text(&initialize(0).to_string());
        hear(&mut socket);
        Self { socket, told: Vec::new(), asked: 0 }
    }

    fn say(&mut self, message: &Value) {
        self.socket.frames.text(&message.to_string());
    }

    fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.asked += 1;
        let mut message = json!({ "jsonrpc": "2.0", "id": self.asked, "method": method });
        message["params"] = params;
        self.say(&message);
        self.asked
    }

    fn prompt(&mut self, session: &str, steps: &str) -> u64 {
        let blocks = json!([{ "type": "text", "text": steps }]);
        self.ask("session/prompt", json!({ "sessionId": session, "prompt": blocks }))
    }

    /// The first message that is it, which may have come already. What else comes meanwhile gives it no more time.
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            if let Some(found) = self.told.iter().find(|told| wanted(told)) {
                return found.clone();
            }
            assert!(start.elapsed() < PATIENCE, "it takes too long");
            self.told.push(hear(&mut self.socket));
        }
    }

    fn answer(&mut self, id: u64) -> Value {
        let answer = self.until(|told| told["id"] == id && told.get("method").is_none());
        assert_eq!(self.told.iter().filter(|told| told["id"] == id).count(), 1);
        answer
    }

    fn session(&mut self, daemon: &Daemon) -> String {
        let id = self.ask("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] }));
        self.answer(id)["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    fn load(&mut self, session: &str) {
        let id = self.ask("session/load", json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }));
        self.answer(id);
    }

    /// Of the updates with this text in them.
    fn heard(&self, text: &str) -> usize {
        let said = |told: &&Value| told["params"]["update"]["content"]["text"] == text;
        self.told.iter().filter(said).count()
    }
}

fn here() -> Daemon {
    let agent = json!(acp_fixture());
    Daemon::quick(&format!("[agents.acp]\ncommand = {agent}\nprotocol = 'acp'\n"))
}

fn is_cancelled(answer: &Value) -> bool {
    answer["result"]["stopReason"] == "cancelled"
}

fn go(daemon: &Daemon) {
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
}

#[test]
fn a_prompt_that_was_answered_before_it_left_the_queue_never_does() {
    let daemon = here();
    let (mut one, mut other) = (Client::new(&daemon, ""), Client::new(&daemon, ""));
    let session = one.session(&daemon);
    other.load(&session);
    // The client leaves, and the session goes on.
    let running = other.prompt(&session, "say:begun;wait-file:$cwd/go;say:done");
    other.until(|told| told["params"]["update"]["content"]["text"] == "begun");
    let queued = one.prompt(&session, "say:no");
    daemon.wait_for(&session, "the prompt", |event| event["data"]["text"] == "say:no");
    let closing = one.ask("session/close", json!({ "sessionId": session }));
    assert!(is_cancelled(&one.answer(queued)));
    assert_eq!(one.answer(closing)["result"], json!({}));
    go(&daemon);
    assert_eq!(other.answer(running)["result"]["stopReason"], "end_turn");
    // The agent dies, and the session is resumed.
    let dying = other.prompt(&session, "sleep:300;exit:3");
    let queued = other.prompt(&session, "say:neither");
    assert_eq!(other.answer(dying)["error"]["code"], -32603);
    assert_eq!(other.answer(queued)["error"]["code"], -32603);
    let next = other.prompt(&session, "say:next");
    assert_eq!(other.answer(next)["result"]["stopReason"], "end_turn");
    assert_eq!(["no", "neither", "next"].map(|text| other.heard(text)), [0, 0, 1]);
}

#[test]
fn a_prompt_that_is_over_is_not_cancelled_in_the_turn_of_another() {
    let daemon = here();
    let (mut slow, mut other) = (Client::new(&daemon, ""), Client::new(&daemon, ""));
    let session = other.session(&daemon);
    slow.load(&session);
    // It does not read: to its feed the turn is not over.
    let over = slow.prompt(&session, "flood:3000:1000");
    wait_turns(&daemon, &session, 1);
    let running = other.prompt(&session, "say:begun;wait-file:$cwd/go");
    other.until(|told| told["params"]["update"]["content"]["text"] == "begun");
    slow.say(&json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": over } }));
    // What it says next is done after that.
    let cancelled = slow.ask("session/set_mode", json!({ "sessionId": session, "modeId": "code" }));
    daemon.wait_kind(&session, "agent.set");
    go(&daemon);
    assert_eq!(other.answer(running)["result"]["stopReason"], "end_turn");
    assert_eq!(slow.answer(over)["result"]["stopReason"], "end_turn");
    slow.answer(cancelled);
}

#[test]
fn whoever_reads_slowly_is_answered_though_the_log_has_gone() {
    let daemon = here();
    let mut client = Client::new(&daemon, "");
    let session = client.session(&daemon);
    let prompt = client.prompt(&session, "flood:3000:1000;hang");
    daemon.wait_for(&session, "the flood", |event| event["data"].to_string().contains("flood 0000002999"));
    daemon.end_session(&session, "stop");
    let (status, _) = daemon.request("DELETE", &format!("/api/v1/sessions/{session}"), None, &[]);
    assert_eq!(status, 204);
    let answer = client.answer(prompt);
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["data"]["sessionId"]),
        (&json!(-32002), &json!(session))
    );
}

#[test]
fn whoever_attaches_keeps_the_options_that_are_ours() {
    let daemon = here();
    let mut client = Client::new(&daemon, "");
    let session = client.session(&daemon);
    let prompt = client.prompt(&session, "config:model=small;mode:code;say:set");
    client.answer(prompt);
    let mut late = Client::new(&daemon, &format!("?attach={session}"));
    assert_eq!(late.session(&daemon), session);
    late.until(|told| told["params"]["update"]["content"]["text"] == "set");
    let options = |told: &&Value| told["params"]["update"]["sessionUpdate"] == "config_option_update";
    assert_eq!(late.told.iter().filter(options).count(), 0, "the answer has them all");
}

#[test]
fn whoever_loads_again_is_asked_again_what_it_left_open() {
    let daemon = here();
    let mut client = Client::new(&daemon, "");
    let session = client.session(&daemon);
    let prompt = client.prompt(&session, "permission:allow_once,reject_once:run:make");
    let is_asked = |told: &Value| told["method"] == "session/request_permission";
    let asked = client.until(is_asked);
    let error = json!({ "code": -32603, "message": "nobody looked" });
    client.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error }));
    client.load(&session);
    client.told.retain(|told| !is_asked(told));
    let again = client.until(is_asked);
    assert_eq!(again, asked);
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
    client.say(&json!({ "jsonrpc": "2.0", "id": again["id"], "result": outcome }));
    assert_eq!(client.answer(prompt)["result"]["stopReason"], "end_turn");
}
