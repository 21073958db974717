//! What ACP clients of one session are answered, whatever becomes of it: each request once, and as it then is.

use futures_util::SinkExt;
use intercom_testkit::harness::{Daemon, acp_fixture, wait_turns};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::acp_door::{Socket, hear, initialize, socket, soon};

/// A client, and all that it was told.
struct Client {
    socket: Socket,
    told: Vec<Value>,
    asked: u64,
}

impl Client {
    async fn new(daemon: &Daemon, query: &str) -> Self {
        let (mut socket, _) = socket(daemon, query).await.unwrap();
        socket.send(Message::text(initialize(0).to_string())).await.unwrap();
        hear(&mut socket).await;
        Self { socket, told: Vec::new(), asked: 0 }
    }

    async fn say(&mut self, message: &Value) {
        soon(self.socket.send(Message::text(message.to_string()))).await.unwrap();
    }

    async fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.asked += 1;
        self.say(&json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params })).await;
        self.asked
    }

    async fn prompt(&mut self, session: &str, steps: &str) -> u64 {
        let blocks = json!([{ "type": "text", "text": steps }]);
        self.ask("session/prompt", json!({ "sessionId": session, "prompt": blocks })).await
    }

    /// The first message that is it, which may have come already. What else comes meanwhile gives it no more time.
    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let waiting = async {
            loop {
                if let Some(found) = self.told.iter().find(|told| wanted(told)) {
                    return found.clone();
                }
                let next = hear(&mut self.socket).await;
                self.told.push(next);
            }
        };
        soon(waiting).await
    }

    async fn answer(&mut self, id: u64) -> Value {
        let answer = self.until(|told| told["id"] == id && told.get("method").is_none()).await;
        assert_eq!(self.told.iter().filter(|told| told["id"] == id).count(), 1);
        answer
    }

    async fn session(&mut self, daemon: &Daemon) -> String {
        let id = self.ask("session/new", json!({ "cwd": daemon.workspace(), "mcpServers": [] })).await;
        self.answer(id).await["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    async fn load(&mut self, session: &str) {
        let id =
            self.ask("session/load", json!({ "sessionId": session, "cwd": "/", "mcpServers": [] })).await;
        self.answer(id).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_was_answered_before_it_left_the_queue_never_does() {
    let daemon = here();
    let (mut one, mut other) = (Client::new(&daemon, "").await, Client::new(&daemon, "").await);
    let session = one.session(&daemon).await;
    other.load(&session).await;
    // The client leaves, and the session goes on.
    let running = other.prompt(&session, "say:begun;wait-file:$cwd/go;say:done").await;
    other.until(|told| told["params"]["update"]["content"]["text"] == "begun").await;
    let queued = one.prompt(&session, "say:no").await;
    daemon.wait_for(&session, "the prompt", |event| event["data"]["text"] == "say:no");
    let closing = one.ask("session/close", json!({ "sessionId": session })).await;
    assert!(is_cancelled(&one.answer(queued).await));
    assert_eq!(one.answer(closing).await["result"], json!({}));
    go(&daemon);
    assert_eq!(other.answer(running).await["result"]["stopReason"], "end_turn");
    // The agent dies, and the session is resumed.
    let dying = other.prompt(&session, "sleep:300;exit:3").await;
    let queued = other.prompt(&session, "say:neither").await;
    assert_eq!(other.answer(dying).await["error"]["code"], -32603);
    assert_eq!(other.answer(queued).await["error"]["code"], -32603);
    let next = other.prompt(&session, "say:next").await;
    assert_eq!(other.answer(next).await["result"]["stopReason"], "end_turn");
    assert_eq!(["no", "neither", "next"].map(|text| other.heard(text)), [0, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_is_over_is_not_cancelled_in_the_turn_of_another() {
    let daemon = here();
    let (mut slow, mut other) = (Client::new(&daemon, "").await, Client::new(&daemon, "").await);
    let session = other.session(&daemon).await;
    slow.load(&session).await;
    // It does not read: to its feed the turn is not over.
    let over = slow.prompt(&session, "flood:3000:1000").await;
    wait_turns(&daemon, &session, 1);
    let running = other.prompt(&session, "say:begun;wait-file:$cwd/go").await;
    other.until(|told| told["params"]["update"]["content"]["text"] == "begun").await;
    slow.say(&json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": over } }))
        .await;
    // What it says next is done after that.
    let cancelled = slow.ask("session/set_mode", json!({ "sessionId": session, "modeId": "code" })).await;
    daemon.wait_kind(&session, "agent.set");
    go(&daemon);
    assert_eq!(other.answer(running).await["result"]["stopReason"], "end_turn");
    assert_eq!(slow.answer(over).await["result"]["stopReason"], "end_turn");
    slow.answer(cancelled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_reads_slowly_is_answered_though_the_log_has_gone() {
    let daemon = here();
    let mut client = Client::new(&daemon, "").await;
    let session = client.session(&daemon).await;
    let prompt = client.prompt(&session, "flood:3000:1000;hang").await;
    daemon.wait_for(&session, "the flood", |event| event["data"].to_string().contains("flood 0000002999"));
    daemon.end_session(&session, "stop");
    let (status, _) = daemon.request("DELETE", &format!("/api/v1/sessions/{session}"), None, &[]);
    assert_eq!(status, 204);
    let answer = client.answer(prompt).await;
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["data"]["sessionId"]),
        (&json!(-32002), &json!(session))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_attaches_keeps_the_options_that_are_ours() {
    let daemon = here();
    let mut client = Client::new(&daemon, "").await;
    let session = client.session(&daemon).await;
    let prompt = client.prompt(&session, "config:model=small;mode:code;say:set").await;
    client.answer(prompt).await;
    let mut late = Client::new(&daemon, &format!("?attach={session}")).await;
    assert_eq!(late.session(&daemon).await, session);
    late.until(|told| told["params"]["update"]["content"]["text"] == "set").await;
    let options = |told: &&Value| told["params"]["update"]["sessionUpdate"] == "config_option_update";
    assert_eq!(late.told.iter().filter(options).count(), 0, "the answer has them all");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_loads_again_is_asked_again_what_it_left_open() {
    let daemon = here();
    let mut client = Client::new(&daemon, "").await;
    let session = client.session(&daemon).await;
    let prompt = client.prompt(&session, "permission:allow_once,reject_once:run:make").await;
    let is_asked = |told: &Value| told["method"] == "session/request_permission";
    let asked = client.until(is_asked).await;
    let error = json!({ "code": -32603, "message": "nobody looked" });
    client.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error })).await;
    client.load(&session).await;
    client.told.retain(|told| !is_asked(told));
    let again = client.until(is_asked).await;
    assert_eq!(again, asked);
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } });
    client.say(&json!({ "jsonrpc": "2.0", "id": again["id"], "result": outcome })).await;
    assert_eq!(client.answer(prompt).await["result"]["stopReason"], "end_turn");
}
