//! A daemon that keeps nothing, to measure intercom against: agents on plain pipes, one event loop, cards in a chat.
//!
//! ```text
//!   agent's stdout ─► LinesCodec ─► serde_json::Value ─┐ bounded channel
//!   chat's socket ──► acknowledgement ─► click ────────┴─► event loop ─► agent's stdin
//!                                                             └─► a task for each call: chat.postMessage, chat.update
//! ```
//!
//! It is this program itself in a process of its own, so that `/proc` tells its processor time and its memory. It lives
//! until its stdin is closed, and takes its agents with it. **Frozen**: ratios to it are comparable over time only as
//! long as it stays as it is.

use std::collections::HashMap;
use std::io::Read;
use std::process::Stdio;

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use intercom_testkit::slack::{APP_TOKEN, BOT_TOKEN, CHANNEL};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_util::codec::{FramedRead, LinesCodec};

const MODE: &str = "--reference";
const MAX_LINE: usize = 1 << 20;
/// Messages between the readers and the event loop; a full channel makes the readers wait.
const QUEUE: usize = 256;

/// The argument of the process: how many agents to run, and the chat's Web API if there is one.
pub(crate) fn arguments(agents: usize, command: &[String], chat: Option<&str>) -> [String; 2] {
    [MODE.to_owned(), json!({ "agents": agents, "command": command, "chat": chat }).to_string()]
}

/// The argument, if this process was started as the reference.
pub(crate) fn asked_to_serve() -> Option<Value> {
    let mut args = std::env::args().skip(1);
    (args.next()? == MODE).then(|| serde_json::from_str(&args.next()?).ok()).flatten()
}

pub(crate) fn serve(setup: &Value) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(setup));
    runtime.shutdown_background(); // a read of stdin may still be on
    outcome
}

/// Prints `ready` once everything runs, and `ended LINES` when an agent has ended.
async fn run(setup: &Value) -> anyhow::Result<()> {
    let (events, queue) = mpsc::channel(QUEUE);
    let chat = setup["chat"].as_str().map(Chat::new);
    if let Some(chat) = &chat {
        let socket = chat.connect().await?;
        tokio::spawn(hear_clicks(socket, events.clone()));
    }
    let command: Vec<String> = serde_json::from_value(setup["command"].clone())?;
    let mut agents = Vec::new();
    for number in 0..setup["agents"].as_u64().context("no number of agents")? {
        agents.push(Agent::start(usize::try_from(number)?, &command, events.clone())?);
    }
    println!("ready");
    let closed = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    tokio::select! {
        outcome = (EventLoop { agents, chat, pending: HashMap::new(), asked: 0 }).run(queue) => outcome,
        read = closed => read?.map(drop).context("stdin"),
    }
}

enum Event {
    Message { agent: usize, message: Value },
    Ended { agent: usize },
    Click(Value),
}

struct Agent {
    stdin: ChildStdin,
    lines: u64,
    /// Killed when this goes.
    _child: Child,
}

impl Agent {
    fn start(number: usize, command: &[String], events: mpsc::Sender<Event>) -> anyhow::Result<Self> {
        let (program, args) = command.split_first().context("no command")?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take().context("a pipe")?;
        let stdout = child.stdout.take().context("a pipe")?;
        tokio::spawn(async move {
            let mut lines = FramedRead::new(stdout, LinesCodec::new_with_max_length(MAX_LINE));
            while let Some(Ok(line)) = lines.next().await {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                if events.send(Event::Message { agent: number, message }).await.is_err() {
                    return; // the event loop is over
                }
            }
            events.send(Event::Ended { agent: number }).await.ok(); // it may be over
        });
        Ok(Self { stdin, lines: 0, _child: child })
    }
}

/// A request that waits for its click.
struct Pending {
    agent: usize,
    id: Value,
    title: String,
}

struct EventLoop {
    agents: Vec<Agent>,
    chat: Option<Chat>,
    pending: HashMap<String, Pending>,
    asked: u64,
}

impl EventLoop {
    async fn run(mut self, mut queue: mpsc::Receiver<Event>) -> anyhow::Result<()> {
        while let Some(event) = queue.recv().await {
            match event {
                Event::Message { agent, message } => self.heard(agent, &message),
                Event::Ended { agent } => println!("ended {}", self.agents[agent].lines),
                Event::Click(payload) => self.clicked(&payload).await?,
            }
        }
        Ok(())
    }

    fn heard(&mut self, agent: usize, message: &Value) {
        self.agents[agent].lines += 1;
        if message["method"] != "clearance/request" {
            return;
        }
        self.asked += 1;
        let key = format!("clr-{}", self.asked);
        let title = message["params"]["title"].as_str().unwrap_or_default().to_owned();
        if let Some(chat) = &self.chat {
            let buttons =
                [("allow", "Allow", "primary"), ("deny", "Deny", "danger")].map(|(id, label, style)| {
                    let text = json!({ "type": "plain_text", "text": label });
                    json!({ "type": "button", "action_id": id, "value": key, "style": style, "text": text })
                });
            let actions = json!({ "type": "actions", "elements": buttons });
            chat.send("chat.postMessage", card(&key, &title, None, Some(actions)));
        }
        self.pending.insert(key, Pending { agent, id: message["id"].clone(), title });
    }

    /// The agent has its answer before the card is edited.
    async fn clicked(&mut self, payload: &Value) -> anyhow::Result<()> {
        let action = &payload["actions"][0];
        let key = action["value"].as_str().unwrap_or_default();
        let Some(Pending { agent, id, title }) = self.pending.remove(key) else { return Ok(()) };
        let status = if action["action_id"] == "allow" { "approved" } else { "rejected" };
        let params = json!({ "status": status, "reason": null });
        let answer = json!({ "method": "clearance/response", "id": id, "params": params });
        self.agents[agent].stdin.write_all(format!("{answer}\n").as_bytes()).await?;
        if let Some(chat) = &self.chat {
            let ts = payload["container"]["message_ts"].as_str();
            chat.send("chat.update", card(key, &format!("{title}: {status}"), ts, None));
        }
        Ok(())
    }
}

fn card(key: &str, text: &str, ts: Option<&str>, actions: Option<Value>) -> Value {
    let section = json!({
        "type": "section", "block_id": key, "text": { "type": "mrkdwn", "text": text },
    });
    let blocks: Vec<Value> = [Some(section), actions].into_iter().flatten().collect();
    let mut card = json!({ "channel": CHANNEL, "text": text, "blocks": blocks });
    if let Some(ts) = ts {
        card["ts"] = json!(ts);
    }
    card
}

type Socket = tokio_tungstenite::WebSocketStream<TcpStream>;

#[derive(Clone)]
struct Chat {
    client: Client<HttpConnector, Full<Bytes>>,
    api_url: String,
}

impl Chat {
    fn new(api_url: &str) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        Self { client: Client::builder(TokioExecutor::new()).build(tcp), api_url: api_url.to_owned() }
    }

    async fn call(&self, token: &str, method: &str, body: &Value) -> anyhow::Result<Value> {
        let request = Request::post(format!("{}/{method}", self.api_url))
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_TYPE, "application/json; charset=utf-8")
            .body(Full::new(Bytes::from(body.to_string())))?;
        let answer = self.client.request(request).await?.into_body().collect().await?.to_bytes();
        let answer: Value = serde_json::from_slice(&answer)?;
        ensure!(answer["ok"] == true, "{method}: {answer}");
        Ok(answer)
    }

    /// Calls without waiting for the answer.
    fn send(&self, method: &'static str, body: Value) {
        let chat = self.clone();
        tokio::spawn(async move {
            if let Err(error) = chat.call(BOT_TOKEN, method, &body).await {
                eprintln!("reference: {error:#}");
            }
        });
    }

    async fn connect(&self) -> anyhow::Result<Socket> {
        let answer = self.call(APP_TOKEN, "apps.connections.open", &json!({})).await?;
        let url = answer["url"].as_str().context("no url")?;
        let host = url.trim_start_matches("ws://").split('/').next().context("no host")?;
        let tcp = TcpStream::connect(host).await?;
        tcp.set_nodelay(true)?;
        Ok(tokio_tungstenite::client_async(url, tcp).await?.0)
    }
}

/// Acknowledges every envelope, and passes clicks on.
async fn hear_clicks(mut socket: Socket, events: mpsc::Sender<Event>) {
    while let Some(Ok(frame)) = socket.next().await {
        let Frame::Text(text) = frame else { continue };
        let Ok(mut envelope) = serde_json::from_str::<Value>(&text) else { continue };
        let Some(id) = envelope["envelope_id"].as_str() else { continue };
        let acknowledgement = json!({ "envelope_id": id }).to_string();
        if socket.send(Frame::text(acknowledgement)).await.is_err() {
            return;
        }
        if envelope["type"] == "interactive"
            && events.send(Event::Click(envelope["payload"].take())).await.is_err()
        {
            return; // the event loop is over
        }
    }
}
