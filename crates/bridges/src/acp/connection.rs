//! The connection of one client, from its first message to its last: each request is answered once, notifications
//! never.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use super::client::ClientState;
use super::feed::{FeedCommand, FeedOpening, HistoryMode, OutgoingLine};
use super::queue::{ClientOutbox, MessageMeta};
use super::refusal::RpcRefusal;
use super::{AcpBridge, ConnectOptions, capabilities, client_requests};
use intercom_daemon::ops::Caller;
use intercom_types::{OnClientLeft, RequestId, Session, SessionId};
use intercom_wire::acp::client_request::{AcpClientRequest, OpenSessionParams};
use intercom_wire::acp::method;
use intercom_wire::jsonrpc::{self, InvalidRpcMessage, METHOD_NOT_FOUND, RpcMessage};

/// The limit on prompts that a client announces to repeat; a relay has no more requests open.
const MAX_REPEATED: usize = 1024;
/// The limit on concurrent slow requests of one client; the next one waits.
const MAX_SLOW_REQUESTS: usize = 64;

/// Runs until the client disconnects, its access ends, or the daemon stops.
pub(super) async fn handle_messages(
    acp: AcpBridge,
    who: Caller,
    options: ConnectOptions,
    mut inbox: mpsc::Receiver<String>,
    outbox: ClientOutbox,
) {
    let client = Arc::new(ClientState::new(acp.clone(), &who, options, outbox.clone()));
    let connection =
        ClientConnection { client: Arc::clone(&client), slow: Arc::new(Semaphore::new(MAX_SLOW_REQUESTS)) };
    let conversation = async {
        while let Some(text) = inbox.recv().await {
            connection.receive(&text).await;
        }
    };
    tokio::select! {
        () = conversation => {}
        () = outbox.closed() => {}
        () = who.access_ended() => {}
        () = acp.0.closing.cancelled() => {}
    }
    if client.options().on_close == Some(OnClientLeft::Close) {
        for session in client.sessions() {
            super::methods::close(&client, session).await.ok(); // the client is gone: nobody receives the error
        }
    }
    client.drop_feeds();
    outbox.close(); // a feed may be in the middle of a long replay
}

struct ClientConnection {
    client: Arc<ClientState>,
    slow: Arc<Semaphore>,
}

impl ClientConnection {
    async fn receive(&self, text: &str) {
        let unreadable =
            |code, why: &str| self.send_line(jsonrpc::error_without_id(code, why), MessageMeta::default());
        match jsonrpc::parse(text) {
            Err(InvalidRpcMessage::Malformed(why)) => {
                unreadable(jsonrpc::PARSE_ERROR, &format!("malformed JSON: {why}")).await;
            }
            Err(invalid) => match jsonrpc::find_id(text) {
                Some(id) => self.refuse(&id, "", None, RpcRefusal::request(invalid.to_string())).await,
                None => unreadable(jsonrpc::INVALID_REQUEST, &invalid.to_string()).await,
            },
            Ok(RpcMessage::Answer { id, result }) => {
                self.handle_answer(id, result.map(|raw| raw.get().to_owned()).ok());
            }
            Ok(RpcMessage::Notification { method, params }) => {
                if self.client.is_initialized() {
                    self.handle_notification(AcpClientRequest::read(&method, params)).await;
                }
            }
            Ok(RpcMessage::Request { id, method, params }) => {
                if !jsonrpc::is_version_2(text) {
                    let wrong = RpcRefusal::request("`jsonrpc` must be \"2.0\"");
                    return self.refuse(&id, &method, None, wrong).await;
                }
                if !self.client.is_initialized() && method != method::INITIALIZE {
                    let early = RpcRefusal::request("`initialize` comes first");
                    return self.refuse(&id, &method, None, early).await;
                }
                match AcpClientRequest::read(&method, params) {
                    Ok(request) => self.handle_request(id, &method, request).await,
                    Err(why) => self.refuse(&id, &method, None, RpcRefusal::params(why)).await,
                }
            }
        }
    }

    async fn send_line(&self, line: String, about: MessageMeta) {
        self.client.outbox().put(line, about).await.ok(); // the client may have disconnected
    }

    async fn refuse(&self, id: &RequestId, method: &str, session: Option<SessionId>, refusal: RpcRefusal) {
        let answers = Some((id.clone(), method.to_owned()));
        let about = MessageMeta { session, answers, seq: None };
        self.send_line(self.client.adapt_refusal(refusal).line(id), about).await;
    }

    async fn reply(
        &self,
        id: &RequestId,
        method: &str,
        session: Option<SessionId>,
        result: Result<Value, RpcRefusal>,
    ) {
        match result {
            Ok(result) => {
                let answers = Some((id.clone(), method.to_owned()));
                self.send_line(jsonrpc::result(id, &result), MessageMeta { session, answers, seq: None })
                    .await;
            }
            Err(refusal) => self.refuse(id, method, session, refusal).await,
        }
    }

    /// A notification.
    async fn handle_notification(&self, request: Result<AcpClientRequest, String>) {
        match request {
            Ok(AcpClientRequest::Cancel(which)) => {
                self.send_command(&which.session_id, FeedCommand::Cancel { request: None }).await.ok(); // nobody asks
            }
            Ok(AcpClientRequest::CancelRequest(cancelled)) => {
                let Some(request) = cancelled.request() else { return };
                for session in self.client.sessions() {
                    if let Some(feed) = self.client.feed(session) {
                        feed.send(FeedCommand::Forget(request.clone())).await.ok(); // it has ended
                    }
                }
            }
            // The protocol requires that unknown notifications are ignored.
            _ => {}
        }
    }

    async fn handle_request(&self, id: RequestId, name: &str, request: AcpClientRequest) {
        match request {
            AcpClientRequest::Initialize(hello) => {
                tracing::debug!(client = hello.name, "an ACP client initialised its connection");
                self.client.set_hello(hello);
                let known = super::methods::known(&self.client).await;
                let hello =
                    capabilities::initialized(known.as_ref().and_then(|known| known.get("initialize")));
                self.reply(&id, name, None, Ok(hello)).await;
            }
            AcpClientRequest::Authenticate => self.reply(&id, name, None, Ok(json!({}))).await,
            AcpClientRequest::List(list) => {
                let listed = super::methods::list(&self.client, &list).await;
                self.reply(&id, name, None, listed).await;
            }
            AcpClientRequest::Load(open) => self.open(id, name, open, true).await,
            AcpClientRequest::Resume(open) => self.open(id, name, open, false).await,
            AcpClientRequest::Prompt(prompt) => {
                let known = prompt.meta.and_then(|meta| meta.intercom).and_then(|ours| ours.prompt);
                let command = FeedCommand::Prompt { request: id.clone(), id: known, blocks: prompt.prompt };
                self.send_command_or_refuse(id, name, &prompt.session_id, command).await;
            }
            AcpClientRequest::Cancel(which) => {
                // Sent as a request, it needs an answer even for an unknown session.
                let command = FeedCommand::Cancel { request: Some(id.clone()) };
                if self.send_command(&which.session_id, command).await.is_err() {
                    self.reply(&id, name, None, Ok(json!({}))).await;
                }
            }
            AcpClientRequest::CancelRequest(_) | AcpClientRequest::Unknown => {
                let unknown = RpcRefusal::new(METHOD_NOT_FOUND, format!("unknown method `{name}`"));
                self.refuse(&id, name, None, unknown).await;
            }
            slow @ (AcpClientRequest::New(_)
            | AcpClientRequest::Close(_)
            | AcpClientRequest::Delete(_)
            | AcpClientRequest::SetMode(_)
            | AcpClientRequest::SetModel(_)
            | AcpClientRequest::SetOption(_)) => {
                let Ok(turn) = Arc::clone(&self.slow).acquire_owned().await else { return };
                let other = Self { client: Arc::clone(&self.client), slow: Arc::clone(&self.slow) };
                let name = name.to_owned();
                self.client.acp().0.tasks.spawn(async move {
                    other.handle_slow_request(id, &name, slow).await;
                    drop(turn);
                });
            }
        }
    }

    /// Handles a request that may take long, in a task of its own, so that later messages do not wait for it.
    async fn handle_slow_request(&self, id: RequestId, name: &str, request: AcpClientRequest) {
        let client = &self.client;
        match request {
            AcpClientRequest::New(new) => match super::methods::begin(client, &new).await {
                Ok((seen, result, history)) => {
                    let answers = Some((id.clone(), name.to_owned()));
                    let about = MessageMeta { session: Some(seen.id), answers, seq: None };
                    let answer = (jsonrpc::result(&id, &result), about);
                    let options = result.get("configOptions").cloned();
                    match client.feed(seen.id) {
                        // A repeated `session/new` of a client that was started for one session.
                        Some(feed) => self.replay(&feed, answer).await,
                        None => {
                            drop(client.attach(
                                &seen,
                                FeedOpening { answer: Some(answer), history, options, prompts: Vec::new() },
                            ));
                        }
                    }
                }
                Err(refusal) => self.refuse(&id, name, None, refusal).await,
            },
            AcpClientRequest::Close(which) => self.end(id, name, &which.session_id, false).await,
            AcpClientRequest::Delete(which) => self.end(id, name, &which.session_id, true).await,
            AcpClientRequest::SetMode(set) => {
                let session = set.session_id.parse().ok();
                let result = super::methods::set_mode(client, &set).await;
                self.reply(&id, name, session, result).await;
            }
            AcpClientRequest::SetModel(set) => {
                let session = set.session_id.parse().ok();
                let result = super::methods::set_model(client, &set).await;
                self.reply(&id, name, session, result).await;
            }
            AcpClientRequest::SetOption(set) => {
                let session = set.session_id.parse().ok();
                let result = super::methods::set_option(client, &set).await;
                self.reply(&id, name, session, result).await;
            }
            _ => {}
        }
    }

    /// Attaches to an existing session.
    async fn open(&self, id: RequestId, name: &str, open: OpenSessionParams, replay: bool) {
        if let Some(cwd) = open.cwd.as_deref().filter(|cwd| !cwd.starts_with('/')) {
            let wrong = RpcRefusal::params(format!("cwd `{cwd}` is not an absolute path"));
            return self.refuse(&id, name, None, wrong).await;
        }
        let seen = match self.client.session(&open.session_id).await {
            Ok(seen) => seen,
            Err(refusal) => return self.refuse(&id, name, None, refusal).await,
        };
        let mut result = super::methods::opened(&self.client, &seen).await;
        // The protocol does not require the id here; the Python SDK does, over Streamable HTTP.
        if self.client.options().streamable {
            result["sessionId"] = json!(seen.id.to_string());
        }
        let about =
            MessageMeta { session: Some(seen.id), answers: Some((id.clone(), name.to_owned())), seq: None };
        let answer = (jsonrpc::result(&id, &result), about);
        match self.client.feed(seen.id) {
            Some(feed) if replay => self.replay(&feed, answer).await,
            // Already attached: nothing to resume.
            Some(_) => self.send_line(answer.0, answer.1).await,
            None => {
                let ours = open.meta.and_then(|meta| meta.intercom).unwrap_or_default();
                let after = ours.after;
                let prompts =
                    ours.prompts.iter().take(MAX_REPEATED).filter_map(|id| id.parse().ok()).collect();
                // A client with a position was attached before, and has recorded its use of the session then.
                if after.is_none() {
                    self.client.keep_session(seen.id).await;
                }
                let history = if replay { HistoryMode::Before } else { HistoryMode::Since(after) };
                let options = result.get("configOptions").cloned();
                self.client.attach(&seen, FeedOpening { answer: Some(answer), history, options, prompts });
            }
        }
    }

    /// Orders a replay. If the session's feed is closing, there is nothing to replay and only the answer is
    /// sent.
    async fn replay(&self, feed: &mpsc::Sender<FeedCommand>, answer: OutgoingLine) {
        if let Err(mpsc::error::SendError(FeedCommand::Replay((line, about)))) =
            feed.send(FeedCommand::Replay(answer)).await
        {
            self.send_line(line, about).await;
        }
    }

    /// Returns the feed of a session; a client that addresses a session is attached to it.
    async fn feed_of(&self, session: &str) -> Result<mpsc::Sender<FeedCommand>, RpcRefusal> {
        let known = session.parse::<SessionId>().ok().and_then(|id| self.client.feed(id));
        if let Some(feed) = known {
            return Ok(feed);
        }
        let seen: Session = self.client.session(session).await?;
        self.client.keep_session(seen.id).await;
        let opening = FeedOpening {
            answer: None,
            history: HistoryMode::Since(None),
            options: None,
            prompts: Vec::new(),
        };
        Ok(self.client.attach(&seen, opening))
    }

    async fn send_command(&self, session: &str, command: FeedCommand) -> Result<(), RpcRefusal> {
        let feed = self.feed_of(session).await?;
        feed.send(command).await.map_err(|_| RpcRefusal::internal("the connection is closing"))
    }

    async fn send_command_or_refuse(&self, id: RequestId, name: &str, session: &str, command: FeedCommand) {
        if let Err(refusal) = self.send_command(session, command).await {
            self.refuse(&id, name, None, refusal).await;
        }
    }

    /// Closes a session, and deletes it if `delete` is set.
    async fn end(&self, id: RequestId, name: &str, session: &str, delete: bool) {
        let seen = match self.client.session(session).await {
            Ok(seen) => seen,
            // Deleting a session that does not exist succeeds.
            Err(refusal) if delete && refusal.is_no_session() => {
                return self.reply(&id, name, None, Ok(json!({}))).await;
            }
            Err(refusal) => return self.refuse(&id, name, None, refusal).await,
        };
        let done = if delete {
            super::methods::delete(&self.client, &seen).await
        } else {
            super::methods::close(&self.client, seen.id).await
        };
        match done {
            Err(refusal) if !(delete && refusal.is_no_session()) => {
                return self.refuse(&id, name, Some(seen.id), refusal).await;
            }
            _ => {}
        }
        let about =
            MessageMeta { session: Some(seen.id), answers: Some((id.clone(), name.to_owned())), seq: None };
        let answer = (jsonrpc::result(&id, &json!({})), about);
        match self.client.forget(seen.id) {
            Some(feed) => {
                if let Err(mpsc::error::SendError(FeedCommand::Finish(Some((line, about))))) =
                    feed.send(FeedCommand::Finish(Some(answer))).await
                {
                    self.send_line(line, about).await; // the feed has ended already
                }
            }
            None => self.send_line(answer.0, answer.1).await,
        }
    }

    /// Handles an answer to one of our requests. An error, or an answer to no pending request, decides nothing.
    fn handle_answer(&self, id: Option<RequestId>, result: Option<String>) {
        let id: Option<String> = id.and_then(|id| serde_json::from_str(id.as_json()).ok());
        let Some((id, about)) = id.and_then(|id| self.client.take_request(&id).map(|about| (id, about)))
        else {
            return;
        };
        let decision = result.map_or(client_requests::ClientDecision::Nothing, |result| {
            client_requests::decided(&about, &result)
        });
        let client = Arc::clone(&self.client);
        self.client.acp().0.tasks.spawn(async move { super::methods::decide(&client, &id, decision).await });
    }
}
