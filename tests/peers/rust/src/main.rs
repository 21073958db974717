//! A client on the Rust SDK of the Agent Client Protocol.
//!
//! ```text
//! rust-client TRANSPORT TARGET SCENARIO [PROMPT]
//! ```
//! The same command line, scenarios and output as `tests/peers/python/client.py`, where they are described. Over stdio
//! always; over HTTP and WebSocket if it was built with the feature `http`.

use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, InitializeRequest, ListSessionsRequest, LoadSessionRequest,
    NewSessionRequest, PermissionOptionKind as Kind, PromptRequest, RequestPermissionOutcome as Outcome,
    RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome, SessionId,
    SessionNotification, StopReason, TextContent,
};
use agent_client_protocol::{AcpAgent, Agent, Client, ConnectTo};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// What did not go as the scenario wants, or what the SDK cannot do.
enum Failed {
    Wrong(String),
    Cannot(String),
}

impl<E: std::fmt::Display> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Wrong(error.to_string())
    }
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Failed> {
    Err(Failed::Wrong(what.into()))
}

/// Everything that one connection has told so far.
#[derive(Default)]
struct Seen {
    updates: Mutex<Vec<Value>>,
    asked: Mutex<usize>,
    first: Notify,
    cancelled: Mutex<bool>,
}

fn tell(what: &str, fields: Value) {
    let mut line = json!({ "saw": what });
    if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
        line.extend(fields);
    }
    println!("{line}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [transport, target, scenario, prompt @ ..] = args.as_slice() else {
        eprintln!("usage: rust-client stdio|http|ws TARGET SCENARIO [PROMPT]");
        return ExitCode::from(2);
    };
    let prompt = prompt.first().cloned().unwrap_or_else(|| "good morning".to_owned());
    match by(transport, target, scenario, prompt).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::Wrong(sentence)) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
        Err(Failed::Cannot(reason)) => {
            eprintln!("{reason}");
            ExitCode::from(3)
        }
    }
}

async fn by(transport: &str, target: &str, scenario: &str, prompt: String) -> Result<(), Failed> {
    match transport {
        "stdio" => play(|| Ok(AcpAgent::from_str(target)?), scenario, prompt).await,
        #[cfg(feature = "http")]
        "http" | "ws" => play(|| remote(target), scenario, prompt).await,
        #[cfg(not(feature = "http"))]
        "http" | "ws" => Err(Failed::Cannot("this client was built without HTTP and WebSocket".into())),
        other => Err(Failed::Cannot(format!("the Rust SDK has no transport {other}"))),
    }
}

#[cfg(feature = "http")]
fn remote(url: &str) -> Result<agent_client_protocol_http::HttpClient, Failed> {
    use reqwest::header::{AUTHORIZATION, HeaderMap};
    let mut headers = HeaderMap::new();
    if let Ok(token) = std::env::var("INTERCOM_TOKEN") {
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse()?);
    }
    let builder = agent_client_protocol_http::HttpClient::builder_with_endpoint(url);
    Ok(builder.configure_http(|http| http.no_proxy().default_headers(headers)).build()?)
}

/// One scenario from beginning to end; `open` makes one more connection.
async fn play<T: ConnectTo<Client>>(
    open: impl Fn() -> Result<T, Failed>,
    scenario: &str,
    prompt: String,
) -> Result<(), Failed> {
    if !["new", "prompt", "permission", "deny", "cancel", "load", "list"].contains(&scenario) {
        return Err(Failed::Cannot(format!("there is no scenario {scenario}")));
    }
    let seen = Arc::new(Seen::default());
    let deny = scenario == "deny";
    let session = connected(open()?, Arc::clone(&seen), deny, async |connection| {
        let session = begin(&connection).await?;
        match scenario {
            "new" => {}
            "list" => list(&connection, &session).await?,
            "cancel" => cancel(&connection, &session, prompt, &seen).await?,
            _ => talk(&connection, &session, prompt, &seen, scenario).await?,
        }
        Ok(session)
    })
    .await?;
    if scenario != "load" {
        return Ok(());
    }
    let again = Arc::new(Seen::default());
    connected(open()?, Arc::clone(&again), deny, async |connection| {
        load(&connection, session).await?;
        // Over HTTP the answer comes on another stream than the replay and may overtake the last of it.
        for _ in 0..500 {
            if words(&again).len() >= words(&seen).len() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    })
    .await?;
    let (before, after) = (words(&seen), words(&again));
    if before != after {
        return wrong(format!("the replay says {after:?} instead of {before:?}"));
    }
    Ok(())
}

/// Everything that the agent said, in one text.
fn words(seen: &Seen) -> String {
    let updates = seen.updates.lock().expect("no panics");
    let said = updates.iter().filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    said.filter_map(|update| update["content"]["text"].as_str()).collect()
}

/// What happens on one connection, after `initialize`.
async fn connected<T: ConnectTo<Client>, R>(
    transport: T,
    seen: Arc<Seen>,
    deny: bool,
    work: impl AsyncFnOnce(ConnectionTo<Agent>) -> Result<R, Failed>,
) -> Result<R, Failed> {
    let (hears, asked) = (Arc::clone(&seen), Arc::clone(&seen));
    let mut outcome = None;
    Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _cx| {
                let update = serde_json::to_value(&notification.update).unwrap_or_default();
                tell("update", json!({ "session": notification.session_id, "update": update }));
                hears.updates.lock().expect("no panics").push(update);
                hears.first.notify_one();
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _cx| {
                *asked.asked.lock().expect("no panics") += 1;
                asked.first.notify_one();
                let kinds = if deny {
                    [Kind::RejectOnce, Kind::RejectAlways]
                } else {
                    [Kind::AllowOnce, Kind::AllowAlways]
                };
                let wanted =
                    kinds.iter().find_map(|kind| request.options.iter().find(|option| option.kind == *kind));
                let answer = match wanted {
                    Some(option) if !*asked.cancelled.lock().expect("no panics") => {
                        Outcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone()))
                    }
                    _ => Outcome::Cancelled,
                };
                tell("permission", json!({ "request": request, "answer": answer }));
                responder.respond(RequestPermissionResponse::new(answer))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(transport, async |connection: ConnectionTo<Agent>| {
            outcome = Some(match initialize(&connection).await {
                Ok(()) => work(connection).await,
                Err(failed) => Err(failed),
            });
            Ok(())
        })
        .await?;
    outcome.unwrap_or_else(|| wrong("the connection ended too early"))
}

async fn initialize(connection: &ConnectionTo<Agent>) -> Result<(), Failed> {
    let result = connection.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await?;
    tell("initialize", json!({ "result": result }));
    if result.protocol_version != ProtocolVersion::V1 {
        return wrong("the version is not 1");
    }
    Ok(())
}

async fn begin(connection: &ConnectionTo<Agent>) -> Result<SessionId, Failed> {
    let result =
        connection.send_request(NewSessionRequest::new(std::env::current_dir()?)).block_task().await?;
    tell("session", json!({ "session": result.session_id, "result": result }));
    Ok(result.session_id)
}

async fn talk(
    connection: &ConnectionTo<Agent>,
    session: &SessionId,
    prompt: String,
    seen: &Seen,
    scenario: &str,
) -> Result<(), Failed> {
    let reason = prompted(connection, session, prompt).await?;
    let asked = *seen.asked.lock().expect("no panics");
    if scenario != "deny" && reason != StopReason::EndTurn {
        return wrong(format!("the turn ended with {reason:?}"));
    }
    if matches!(scenario, "permission" | "deny") && asked == 0 {
        return wrong("no permission was asked for");
    }
    if seen.updates.lock().expect("no panics").is_empty() {
        return wrong("the turn had no update");
    }
    Ok(())
}

async fn prompted(
    connection: &ConnectionTo<Agent>,
    session: &SessionId,
    prompt: String,
) -> Result<StopReason, Failed> {
    let blocks = vec![ContentBlock::Text(TextContent::new(prompt))];
    let answer = connection.send_request(PromptRequest::new(session.clone(), blocks)).block_task().await?;
    tell("stop", json!({ "reason": answer.stop_reason }));
    Ok(answer.stop_reason)
}

/// Cancels once the turn has begun to tell something.
async fn cancel(
    connection: &ConnectionTo<Agent>,
    session: &SessionId,
    prompt: String,
    seen: &Seen,
) -> Result<(), Failed> {
    let turn = prompted(connection, session, prompt);
    let word = async {
        seen.first.notified().await;
        *seen.cancelled.lock().expect("no panics") = true;
        connection.send_notification(CancelNotification::new(session.clone()))
    };
    let (reason, sent) = tokio::join!(turn, word);
    sent?;
    match reason? {
        StopReason::Cancelled => Ok(()),
        other => wrong(format!("the turn ended with {other:?}")),
    }
}

async fn load(connection: &ConnectionTo<Agent>, session: SessionId) -> Result<(), Failed> {
    let request = LoadSessionRequest::new(session.clone(), std::env::current_dir()?);
    let result = connection.send_request(request).block_task().await?;
    tell("loaded", json!({ "session": session, "result": result }));
    Ok(())
}

async fn list(connection: &ConnectionTo<Agent>, session: &SessionId) -> Result<(), Failed> {
    let mut cursor = None;
    loop {
        let mut request = ListSessionsRequest::new();
        request.cwd = Some(std::env::current_dir()?);
        request.cursor = cursor;
        let page = connection.send_request(request).block_task().await?;
        tell("list", json!({ "result": page }));
        if page.sessions.iter().any(|info| info.session_id == *session) {
            return Ok(());
        }
        if page.next_cursor.is_none() {
            return wrong(format!("{session} is not in the list"));
        }
        cursor = page.next_cursor;
    }
}
