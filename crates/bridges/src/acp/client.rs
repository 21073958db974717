//! The state of one client, shared by its connection and its feeds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::client_requests;
use super::feed::{FeedCommand, FeedOpening, MAX_COMMANDS, SessionFeed};
use super::queue::ClientOutbox;
use super::refusal::RpcRefusal;
use super::{AcpBridge, ConnectOptions};
use intercom_daemon::ops::{Caller, ErrorKind, LogReader, OpError, Operations, ReadModel};
use intercom_types::{Event, EventKind, ListedAgent, PromptCapabilities, Session, SessionId, SessionRecord};
use intercom_wire::acp::client_request::InitializeParams;

#[derive(Debug)]
pub(super) struct ClientState {
    acp: AcpBridge,
    reads: ReadModel,
    options: ConnectOptions,
    outbox: ClientOutbox,
    hello: OnceLock<InitializeParams>,
    /// Unanswered requests to the client, by request id; locked only for one lookup.
    pending_requests: Mutex<HashMap<String, (SessionId, client_requests::ClientRequestSubject)>>,
    /// The commands of its feeds, by session; locked only for one lookup.
    feeds: Mutex<HashMap<SessionId, mpsc::Sender<FeedCommand>>>,
}

/// Counts a client as attached to a session until it is dropped.
#[derive(Debug)]
pub(super) struct AttachGuard {
    acp: AcpBridge,
    session: SessionId,
}

impl AttachGuard {
    fn new(acp: &AcpBridge, session: SessionId) -> Self {
        let count = *acp.attached().entry(session).and_modify(|count| *count += 1).or_insert(1);
        if count == 1 {
            acp.note_change(session);
        }
        Self { acp: acp.clone(), session }
    }
}

impl Drop for AttachGuard {
    fn drop(&mut self) {
        let mut attached = self.acp.attached();
        if let Some(count) = attached.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                attached.remove(&self.session);
                self.acp.note_change(self.session);
            }
        }
    }
}

impl ClientState {
    pub(super) fn new(acp: AcpBridge, who: &Caller, options: ConnectOptions, outbox: ClientOutbox) -> Self {
        let reads = ReadModel::new(acp.0.ops.clone(), who.by_acp());
        let hello = OnceLock::new();
        if options.connectionless {
            hello.set(InitializeParams::default()).ok(); // the cell is new
        }
        Self {
            acp,
            reads,
            options,
            outbox,
            hello,
            pending_requests: Mutex::default(),
            feeds: Mutex::default(),
        }
    }

    pub(super) fn acp(&self) -> &AcpBridge {
        &self.acp
    }

    pub(super) fn ops(&self) -> &Operations {
        &self.acp.0.ops
    }

    pub(super) fn log(&self) -> LogReader {
        self.acp.0.ops.log()
    }

    /// The read model with the rights of the client's person.
    pub(super) fn reads(&self) -> &ReadModel {
        &self.reads
    }

    /// The person that the client acts for.
    pub(super) fn caller(&self) -> &Caller {
        self.reads.caller()
    }

    /// Finds a session by its complete id. Clients store ids: a prefix or a name could mean another session later.
    pub(super) async fn session(&self, id: &str) -> Result<Session, RpcRefusal> {
        let no_session = || RpcRefusal::no_session(id);
        let known: SessionId = id.parse().map_err(|_| no_session())?;
        match self.ops().session_without_processes(self.caller(), &known).await {
            Err(error) if error.kind == ErrorKind::NotFound => Err(no_session()),
            read => Ok(read?),
        }
    }

    /// Finds the stored record of a session. It has everything that a prompt or an interrupt needs.
    pub(super) async fn session_record(&self, id: SessionId) -> Result<SessionRecord, RpcRefusal> {
        let found = self.log().session(id).await.map_err(OpError::from)?;
        found.ok_or_else(|| RpcRefusal::no_session(&id))
    }

    pub(super) async fn profiles(&self) -> Result<Vec<ListedAgent>, RpcRefusal> {
        Ok(self.reads.agents().await?)
    }

    pub(super) fn options(&self) -> &ConnectOptions {
        &self.options
    }

    pub(super) fn outbox(&self) -> &ClientOutbox {
        &self.outbox
    }

    /// Stores the client's `initialize`. A second one is ignored.
    pub(super) fn set_hello(&self, hello: InitializeParams) {
        self.hello.set(hello).ok(); // the first one counts
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.hello.get().is_some()
    }

    pub(super) fn forms(&self) -> bool {
        self.hello.get().is_some_and(|hello| hello.forms)
    }

    /// Returns true if the client can receive requests.
    pub(super) fn accepts_requests(&self) -> bool {
        !self.options.connectionless
    }

    /// Returns the refusal with the codes that this client expects.
    pub(super) fn adapt_refusal(&self, refusal: RpcRefusal) -> RpcRefusal {
        if self.options.connectionless { refusal.with_legacy_codes() } else { refusal }
    }

    /// Records a request to the client; `false` if the client has it already.
    pub(super) fn add_request(
        &self,
        id: &str,
        session: SessionId,
        about: client_requests::ClientRequestSubject,
    ) -> bool {
        let mut pending = self.lock_requests();
        let is_new = !pending.contains_key(id);
        if is_new {
            pending.insert(id.to_owned(), (session, about));
        }
        is_new
    }

    /// Removes a request that was answered or decided elsewhere.
    pub(super) fn take_request(&self, id: &str) -> Option<client_requests::ClientRequestSubject> {
        self.lock_requests().remove(id).map(|(_, about)| about)
    }

    /// Removes all requests of a session and returns their ids, to be cancelled.
    pub(super) fn withdraw(&self, session: SessionId) -> Vec<String> {
        let mut pending = self.lock_requests();
        let of = pending.iter().filter(|(_, (of, _))| *of == session).map(|(id, _)| id.clone());
        let ids: Vec<String> = of.collect();
        pending.retain(|_, (of, _)| *of != session);
        ids
    }

    fn lock_requests(
        &self,
    ) -> MutexGuard<'_, HashMap<String, (SessionId, client_requests::ClientRequestSubject)>> {
        self.pending_requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn feeds(&self) -> MutexGuard<'_, HashMap<SessionId, mpsc::Sender<FeedCommand>>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn feed(&self, session: SessionId) -> Option<mpsc::Sender<FeedCommand>> {
        self.feeds().get(&session).filter(|commands| !commands.is_closed()).cloned()
    }

    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.feeds().keys().copied().collect()
    }

    /// Detaches the client from a session and returns the feed, to be finished.
    pub(super) fn forget(&self, session: SessionId) -> Option<mpsc::Sender<FeedCommand>> {
        self.feeds().remove(&session)
    }

    /// Removes the ended feed of a session. A new feed, attached meanwhile, stays.
    pub(super) fn forget_ended(&self, session: SessionId) {
        self.feeds().retain(|known, commands| *known != session || !commands.is_closed());
    }

    /// Attaches the client to a session: starts the feed and returns the sender of its commands.
    pub(super) fn attach(
        self: &Arc<Self>,
        seen: &Session,
        opening: FeedOpening,
    ) -> mpsc::Sender<FeedCommand> {
        let (sender, commands) = mpsc::channel(MAX_COMMANDS);
        let mut feeds = self.feeds();
        let attached = AttachGuard::new(&self.acp, seen.id);
        let feed = SessionFeed::new(Arc::clone(self), attached, seen.id, seen.is_acp(), commands);
        feeds.insert(seen.id, sender.clone());
        drop(feeds);
        self.acp.0.tasks.spawn(feed.run(opening));
        sender
    }

    /// Records that this client uses the session, so that it stays when the client that started it leaves.
    pub(super) async fn keep_session(&self, session: SessionId) {
        self.acp.0.ops.supervisor().keep_session(session, self.caller().name.clone()).await;
    }

    /// Ends all feeds by dropping their commands.
    pub(super) fn drop_feeds(&self) {
        self.feeds().clear();
    }

    /// Returns the ready message of the session's agent, or an earlier one of the same profile.
    async fn ready(&self, session: SessionId, agent: Option<&str>) -> Option<Value> {
        let newest = self.acp.0.ops.bell().listen().newest();
        let events =
            self.log().events_of(session, &[EventKind::AgentReady], newest, 1).await.unwrap_or_default();
        let recorded = events.last().and_then(|logged| match logged.event() {
            Event::AgentReady(ready) => serde_json::from_str(ready.agent?.as_str()).ok(),
            _ => None,
        });
        match (recorded, agent) {
            (Some(recorded), _) => Some(recorded),
            (None, Some(agent)) => {
                let profiles = self.profiles().await.ok()?;
                let profile = profiles.into_iter().find(|profile| profile.name == agent)?;
                profile.known.map(|known| json!(known))
            }
            (None, None) => None,
        }
    }

    /// Returns the agent's answer to the opening of its session.
    pub(super) async fn agent_session(&self, seen: &Session) -> Option<Value> {
        if !seen.is_acp() {
            return None;
        }
        self.ready(seen.id, seen.agent.as_deref()).await.and_then(|ready| ready.get("session").cloned())
    }

    /// Returns the kinds of content that the session's agent accepts in a prompt.
    pub(super) async fn takes(&self, record: &SessionRecord) -> PromptCapabilities {
        if !record.is_acp() {
            return PromptCapabilities::TEXT_ONLY;
        }
        if let Some(takes) = record.agent_info.takes {
            return takes;
        }
        let ready = self.ready(record.id, record.agent.as_deref()).await.unwrap_or_default();
        let accepted = ready.pointer("/initialize/agentCapabilities/promptCapabilities");
        let flag = |name: &str| accepted.and_then(|kinds| kinds.get(name)?.as_bool()).unwrap_or(false);
        PromptCapabilities {
            image: flag("image"),
            audio: flag("audio"),
            embedded_context: flag("embeddedContext"),
        }
    }
}
