//! One client, from its first message to its last: each request is answered once, notifications never.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use super::client::Client;
use super::feed::{History, Line, Opening, Order};
use super::queue::{About, Outbox};
use super::refusal::Refusal;
use super::{Acp, Manner, ask, offer};
use intercom_daemon::ops::Caller;
use intercom_types::{OnClientLeft, RequestId, Session, SessionId};
use intercom_wire::acp::asked::{Asked, Open};
use intercom_wire::acp::method;
use intercom_wire::jsonrpc::{self, Bad, METHOD_NOT_FOUND, Message};

/// Requests of one client that take their time; the next one waits.
const AT_ONCE: usize = 64;

/// Until the client goes, is shown out, or the daemon ends.
pub(super) async fn converse(
    acp: Acp,
    who: Caller,
    manner: Manner,
    mut inbox: mpsc::Receiver<String>,
    outbox: Outbox,
) {
    let client = Arc::new(Client::new(acp.clone(), &who, manner, outbox.clone()));
    let connection = Connection { client: Arc::clone(&client), slow: Arc::new(Semaphore::new(AT_ONCE)) };
    let conversation = async {
        while let Some(text) = inbox.recv().await {
            connection.hear(&text).await;
        }
    };
    tokio::select! {
        () = conversation => {}
        () = outbox.closed() => {}
        () = who.shown_out() => {}
        () = acp.0.closing.cancelled() => {}
    }
    if client.manner().on_close == Some(OnClientLeft::Close) {
        for session in client.sessions() {
            super::methods::close(&client, session).await.ok(); // nobody is there to be told
        }
    }
    client.let_go();
    outbox.close(); // a feed may be in the middle of a long log
}

struct Connection {
    client: Arc<Client>,
    slow: Arc<Semaphore>,
}

impl Connection {
    async fn hear(&self, text: &str) {
        let unreadable = |code, why: &str| self.say(jsonrpc::unreadable(code, why), About::default());
        match jsonrpc::parse(text) {
            Err(Bad::Malformed(why)) => {
                unreadable(jsonrpc::PARSE_ERROR, &format!("malformed JSON: {why}")).await;
            }
            Err(bad) => match jsonrpc::id_of(text) {
                Some(id) => self.refuse(&id, "", None, Refusal::request(bad.to_string())).await,
                None => unreadable(jsonrpc::INVALID_REQUEST, &bad.to_string()).await,
            },
            Ok(Message::Answer { id, result }) => {
                self.answered(id, result.map(|raw| raw.get().to_owned()).ok());
            }
            Ok(Message::Notification { method, params }) => {
                if self.client.is_greeted() {
                    self.told(Asked::read(&method, params)).await;
                }
            }
            Ok(Message::Request { id, method, params }) => {
                if !jsonrpc::is_version_2(text) {
                    let wrong = Refusal::request("`jsonrpc` must be \"2.0\"");
                    return self.refuse(&id, &method, None, wrong).await;
                }
                if !self.client.is_greeted() && method != method::INITIALIZE {
                    let early = Refusal::request("`initialize` comes first");
                    return self.refuse(&id, &method, None, early).await;
                }
                match Asked::read(&method, params) {
                    Ok(asked) => self.requested(id, &method, asked).await,
                    Err(why) => self.refuse(&id, &method, None, Refusal::params(why)).await,
                }
            }
        }
    }

    async fn say(&self, line: String, about: About) {
        self.client.outbox().put(line, about).await.ok(); // who has gone is told nothing
    }

    async fn refuse(&self, id: &RequestId, method: &str, session: Option<SessionId>, refusal: Refusal) {
        let answers = Some((id.clone(), method.to_owned()));
        let about = About { session, answers, seq: None };
        self.say(self.client.in_words(refusal).line(id), about).await;
    }

    async fn reply(
        &self,
        id: &RequestId,
        method: &str,
        session: Option<SessionId>,
        result: Result<Value, Refusal>,
    ) {
        match result {
            Ok(result) => {
                let answers = Some((id.clone(), method.to_owned()));
                self.say(jsonrpc::result(id, &result), About { session, answers, seq: None }).await;
            }
            Err(refusal) => self.refuse(id, method, session, refusal).await,
        }
    }

    /// A notification.
    async fn told(&self, asked: Result<Asked, String>) {
        match asked {
            Ok(Asked::Cancel(which)) => {
                self.order(&which.session_id, Order::Cancel { request: None }).await.ok(); // nobody asks
            }
            Ok(Asked::CancelRequest(cancelled)) => {
                let Some(request) = cancelled.request() else { return };
                for session in self.client.sessions() {
                    if let Some(feed) = self.client.feed(session) {
                        feed.send(Order::Forget(request.clone())).await.ok(); // it has ended
                    }
                }
            }
            // Unknown notifications are for others.
            _ => {}
        }
    }

    async fn requested(&self, id: RequestId, name: &str, asked: Asked) {
        match asked {
            Asked::Initialize(hello) => {
                tracing::debug!(client = hello.name, "an ACP client says hello");
                self.client.greeted(hello);
                let known = super::methods::known(&self.client).await;
                let hello = offer::initialized(known.as_ref().and_then(|known| known.get("initialize")));
                self.reply(&id, name, None, Ok(hello)).await;
            }
            Asked::Authenticate => self.reply(&id, name, None, Ok(json!({}))).await,
            Asked::List(list) => {
                let listed = super::methods::list(&self.client, &list).await;
                self.reply(&id, name, None, listed).await;
            }
            Asked::Load(open) => self.open(id, name, open, true).await,
            Asked::Resume(open) => self.open(id, name, open, false).await,
            Asked::Prompt(prompt) => {
                let known = prompt.meta.and_then(|meta| meta.intercom).and_then(|ours| ours.prompt);
                let order = Order::Prompt { request: id.clone(), id: known, blocks: prompt.prompt };
                self.order_for(id, name, &prompt.session_id, order).await;
            }
            Asked::Cancel(which) => {
                // A caller must have an answer also about a session that is not there.
                let order = Order::Cancel { request: Some(id.clone()) };
                if self.order(&which.session_id, order).await.is_err() {
                    self.reply(&id, name, None, Ok(json!({}))).await;
                }
            }
            Asked::CancelRequest(_) | Asked::Unknown => {
                let unknown = Refusal::new(METHOD_NOT_FOUND, format!("unknown method `{name}`"));
                self.refuse(&id, name, None, unknown).await;
            }
            slow @ (Asked::New(_)
            | Asked::Close(_)
            | Asked::Delete(_)
            | Asked::SetMode(_)
            | Asked::SetModel(_)
            | Asked::SetOption(_)) => {
                let Ok(turn) = Arc::clone(&self.slow).acquire_owned().await else { return };
                let other = Self { client: Arc::clone(&self.client), slow: Arc::clone(&self.slow) };
                let name = name.to_owned();
                self.client.acp().0.tasks.spawn(async move {
                    other.take_time(id, &name, slow).await;
                    drop(turn);
                });
            }
        }
    }

    /// Handles requests that may take too long for others to wait for.
    async fn take_time(&self, id: RequestId, name: &str, asked: Asked) {
        let client = &self.client;
        match asked {
            Asked::New(new) => match super::methods::begin(client, &new).await {
                Ok((seen, result, history)) => {
                    let answers = Some((id.clone(), name.to_owned()));
                    let about = About { session: Some(seen.id), answers, seq: None };
                    let answer = (jsonrpc::result(&id, &result), about);
                    let options = result.get("configOptions").cloned();
                    match client.feed(seen.id) {
                        // It is the one that the client was started for, asked for again.
                        Some(feed) => self.replay(&feed, answer).await,
                        None => {
                            drop(client.attach(&seen, Opening { answer: Some(answer), history, options }));
                        }
                    }
                }
                Err(refusal) => self.refuse(&id, name, None, refusal).await,
            },
            Asked::Close(which) => self.end(id, name, &which.session_id, false).await,
            Asked::Delete(which) => self.end(id, name, &which.session_id, true).await,
            Asked::SetMode(set) => {
                let session = set.session_id.parse().ok();
                let result = super::methods::set_mode(client, &set).await;
                self.reply(&id, name, session, result).await;
            }
            Asked::SetModel(set) => {
                let session = set.session_id.parse().ok();
                let result = super::methods::set_model(client, &set).await;
                self.reply(&id, name, session, result).await;
            }
            Asked::SetOption(set) => {
                let session = set.session_id.parse().ok();
                let result = super::methods::set_option(client, &set).await;
                self.reply(&id, name, session, result).await;
            }
            _ => {}
        }
    }

    /// Attaches to a session that is there.
    async fn open(&self, id: RequestId, name: &str, open: Open, replay: bool) {
        if let Some(cwd) = open.cwd.as_deref().filter(|cwd| !cwd.starts_with('/')) {
            let wrong = Refusal::params(format!("cwd `{cwd}` is not an absolute path"));
            return self.refuse(&id, name, None, wrong).await;
        }
        let seen = match self.client.session(&open.session_id).await {
            Ok(seen) => seen,
            Err(refusal) => return self.refuse(&id, name, None, refusal).await,
        };
        let mut result = super::methods::opened(&self.client, &seen).await;
        // The protocol does not ask for its name here; the Python SDK does, over Streamable HTTP.
        if self.client.manner().streamable {
            result["sessionId"] = json!(seen.id.to_string());
        }
        let about = About { session: Some(seen.id), answers: Some((id.clone(), name.to_owned())), seq: None };
        let answer = (jsonrpc::result(&id, &result), about);
        match self.client.feed(seen.id) {
            Some(feed) if replay => self.replay(&feed, answer).await,
            // It is attached: there is nothing more to resume.
            Some(_) => self.say(answer.0, answer.1).await,
            None => {
                let after = open.meta.and_then(|meta| meta.intercom).and_then(|ours| ours.after);
                // Whoever knows where it was has been here before.
                if after.is_none() {
                    self.client.uses(seen.id).await;
                }
                let history = if replay { History::Before } else { History::Since(after) };
                let options = result.get("configOptions").cloned();
                self.client.attach(&seen, Opening { answer: Some(answer), history, options });
            }
        }
    }

    /// Orders a replay. If the session's feed is closing, there is nothing to replay and only the answer is
    /// sent.
    async fn replay(&self, feed: &mpsc::Sender<Order>, answer: Line) {
        if let Err(mpsc::error::SendError(Order::Replay((line, about)))) =
            feed.send(Order::Replay(answer)).await
        {
            self.say(line, about).await;
        }
    }

    /// Whoever speaks to a session is attached to it.
    async fn feed_of(&self, session: &str) -> Result<mpsc::Sender<Order>, Refusal> {
        let known = session.parse::<SessionId>().ok().and_then(|id| self.client.feed(id));
        if let Some(feed) = known {
            return Ok(feed);
        }
        let seen: Session = self.client.session(session).await?;
        self.client.uses(seen.id).await;
        let opening = Opening { answer: None, history: History::Since(None), options: None };
        Ok(self.client.attach(&seen, opening))
    }

    async fn order(&self, session: &str, order: Order) -> Result<(), Refusal> {
        let feed = self.feed_of(session).await?;
        feed.send(order).await.map_err(|_| Refusal::internal("the connection is closing"))
    }

    async fn order_for(&self, id: RequestId, name: &str, session: &str, order: Order) {
        if let Err(refusal) = self.order(session, order).await {
            self.refuse(&id, name, None, refusal).await;
        }
    }

    /// A session is closed, and deleted if that is wanted.
    async fn end(&self, id: RequestId, name: &str, session: &str, delete: bool) {
        let seen = match self.client.session(session).await {
            Ok(seen) => seen,
            // Whoever deletes wants it gone, and it is.
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
        let about = About { session: Some(seen.id), answers: Some((id.clone(), name.to_owned())), seq: None };
        let answer = (jsonrpc::result(&id, &json!({})), about);
        match self.client.forget(seen.id) {
            Some(feed) => {
                if let Err(mpsc::error::SendError(Order::Finish(Some((line, about))))) =
                    feed.send(Order::Finish(Some(answer))).await
                {
                    self.say(line, about).await; // it has ended already
                }
            }
            None => self.say(answer.0, answer.1).await,
        }
    }

    /// An answer to what we asked. One that is an error, or that nobody waits for, decides nothing.
    fn answered(&self, id: Option<RequestId>, result: Option<String>) {
        let id: Option<String> = id.and_then(|id| serde_json::from_str(id.as_json()).ok());
        let Some((id, about)) = id.and_then(|id| self.client.take_asked(&id).map(|about| (id, about))) else {
            return;
        };
        let decision = result.map_or(ask::ClientDecision::Nothing, |result| ask::decided(&about, &result));
        let client = Arc::clone(&self.client);
        self.client.acp().0.tasks.spawn(async move { super::methods::decide(&client, &id, decision).await });
    }
}
