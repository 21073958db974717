//! The read model: the ledger as one caller may see it, and the log.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{Caller, ClearanceQuery, OpError, Operations, PromptQuery, QuestionQuery, SessionQuery};
use intercom_redact::redact_json;
use intercom_store::bus::{Bell, BellListener};
use intercom_store::{AuditHead, IdLookup, LogCutoff, SessionScope, Store, StoreError};
use intercom_types::{
    Clearance, ClearanceExplanation, ClearanceStatus, Content, EventKind, List, ListedAgent, LoggedEvent,
    PolicySummary, Prompt, PromptId, Question, QuestionStatus, Role, Session, SessionId, SessionRecord,
};

/// The default number of items in a list.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;
/// The number of the newest sessions that are searched if ended ones count.
const RECENT: usize = 50;

/// Read access to the ledger for the bridges.
#[derive(Debug, Clone)]
pub struct ReadModel {
    ops: Operations,
    caller: Caller,
}

impl ReadModel {
    /// Returns the read model of a caller. Secrets are hidden from viewers.
    pub fn new(ops: Operations, caller: Caller) -> Self {
        Self { ops, caller }
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns a session by its id, its name, or a prefix of its id, without its processes.
    pub async fn session(&self, typed: &str) -> Result<Option<Session>, OpError> {
        found(self.ops.session_without_processes(&self.caller, typed).await)
    }

    pub async fn clearance(&self, typed: &str) -> Result<Option<Clearance>, OpError> {
        found(self.ops.clearance(&self.caller, typed).await)
    }

    pub async fn question(&self, typed: &str) -> Result<Option<Question>, OpError> {
        found(self.ops.question(&self.caller, typed).await)
    }

    pub async fn explanation(&self, clearance: &str) -> Result<ClearanceExplanation, OpError> {
        self.ops.explain(&self.caller, clearance).await
    }

    /// Returns a page of sessions, newest first.
    pub async fn sessions(&self, query: SessionQuery) -> Result<List<Session>, OpError> {
        self.ops.sessions(&self.caller, query).await
    }

    /// Returns all sessions that have not ended, newest first.
    pub async fn live_sessions(&self) -> Result<Vec<Session>, OpError> {
        let query = SessionQuery { limit: Some(MAX_LIMIT), ..SessionQuery::default() };
        Ok(self.sessions(query).await?.items)
    }

    /// Returns the newest sessions, ended ones as well.
    pub async fn recent_sessions(&self) -> Result<Vec<Session>, OpError> {
        let query = SessionQuery { all: true, limit: Some(RECENT), ..SessionQuery::default() };
        Ok(self.sessions(query).await?.items)
    }

    /// Returns pending clearances: the riskiest first, of these the oldest.
    pub async fn pending_clearances(&self, session: Option<&str>) -> Result<Vec<Clearance>, OpError> {
        let (status, session) = (Some(ClearanceStatus::Pending), session.map(str::to_owned));
        let query = ClearanceQuery { status, session, limit: Some(MAX_LIMIT), ..ClearanceQuery::default() };
        let mut pending = items(self.ops.clearances(&self.caller, query).await)?;
        Clearance::sort(&mut pending);
        Ok(pending)
    }

    /// Returns pending questions, oldest first.
    pub async fn pending_questions(&self, session: Option<&str>) -> Result<Vec<Question>, OpError> {
        let (status, session) = (Some(QuestionStatus::Pending), session.map(str::to_owned));
        let query = QuestionQuery { status, session, limit: Some(MAX_LIMIT), cursor: None };
        let mut pending = items(self.ops.questions(&self.caller, query).await)?;
        Question::sort(&mut pending);
        Ok(pending)
    }

    /// Returns the prompts of a session, newest first.
    pub async fn prompts(&self, session: &str) -> Result<Vec<Prompt>, OpError> {
        items(self.ops.prompts(&self.caller, session, PromptQuery::default()).await)
    }

    pub async fn agents(&self) -> Result<Vec<ListedAgent>, OpError> {
        Ok(self.ops.agents(&self.caller, None).await?.items)
    }

    pub async fn policy(&self) -> Result<PolicySummary, OpError> {
        self.ops.policy(&self.caller).await
    }
}

/// The unredacted log and the records that its events are about, for bridges that show a session to a client. A
/// [`ViewerLog`](super::ViewerLog) redacts it for viewers.
#[derive(Debug, Clone)]
pub struct LogReader {
    store: Store,
    bell: Bell,
}

impl LogReader {
    pub fn listen(&self) -> BellListener {
        self.bell.listen()
    }

    /// Returns events after `after`, oldest first.
    pub async fn events(
        &self,
        after: Option<u64>,
        session: Option<SessionId>,
        limit: usize,
    ) -> Result<Result<Vec<LoggedEvent>, LogCutoff>, StoreError> {
        self.store.events(after, session, limit).await
    }

    /// Returns the newest events of a session before `before`, oldest first.
    pub(crate) async fn events_before(
        &self,
        before: u64,
        session: SessionId,
        limit: usize,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        self.store.events_before(before, session, limit).await
    }

    /// Returns the newest events of these kinds up to `up_to`, oldest first.
    pub async fn events_of(
        &self,
        session: SessionId,
        kinds: &'static [EventKind],
        up_to: u64,
        limit: usize,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        self.store.events_of(session, kinds, up_to, limit).await
    }

    /// Returns a session; `None` if it was removed.
    pub async fn session(&self, id: SessionId) -> Result<Option<SessionRecord>, StoreError> {
        self.store.session(id.to_string()).await.map(one)
    }

    /// Returns all sessions that have not ended, as far as they can be read.
    pub async fn live_sessions(&self) -> Vec<SessionRecord> {
        let (mut live, mut before) = (Vec::new(), None);
        while let Ok(page) = self.store.sessions(SessionScope::NotEnded, None, before, MAX_LIMIT).await {
            live.extend(page.items);
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        live
    }

    pub async fn prompt(&self, id: PromptId) -> Result<Option<Prompt>, StoreError> {
        self.store.prompt(id.to_string()).await.map(one)
    }

    /// Returns the full content of a prompt, if it is more than text.
    pub async fn prompt_content(&self, id: PromptId) -> Result<Option<Content>, StoreError> {
        self.store.content(id).await
    }
}

/// The position in the log up to which a bridge has forwarded it.
#[derive(Debug, Clone)]
pub struct LogPosition {
    store: Store,
    name: &'static str,
}

impl LogPosition {
    /// Returns the stored position; `None` for a new bridge.
    pub async fn read(&self) -> Result<Option<u64>, StoreError> {
        self.store.cursor(self.name).await
    }

    pub async fn set(&self, seq: u64) -> Result<(), StoreError> {
        self.store.set_cursor(self.name, seq).await
    }
}

fn one<T>(found: IdLookup<T>) -> Option<T> {
    match found {
        IdLookup::One(item) => Some(item),
        IdLookup::None | IdLookup::Ambiguous(_) => None,
    }
}

/// Turns a missing item into `None`. A failed read stays an error, because the item may exist.
fn found<T>(read: Result<T, OpError>) -> Result<Option<T>, OpError> {
    match read {
        Ok(thing) => Ok(Some(thing)),
        Err(error) if error.kind.is_fault() => Err(error),
        Err(_) => Ok(None),
    }
}

/// Turns a missing session into an empty list.
fn items<T>(read: Result<List<T>, OpError>) -> Result<Vec<T>, OpError> {
    Ok(found(read)?.map(|list| list.items).unwrap_or_default())
}

impl Operations {
    pub fn log(&self) -> LogReader {
        LogReader { store: self.store().clone(), bell: self.bell().clone() }
    }

    /// Returns the position of the bridge with this name.
    pub fn log_position(&self, name: &'static str) -> LogPosition {
        LogPosition { store: self.store().clone(), name }
    }

    /// Watches the head of the audit chain.
    pub fn audit_heads(&self) -> watch::Receiver<Option<AuditHead>> {
        self.store().audit_heads()
    }

    /// Returns an answer as this caller may see it: for a viewer without anything that looks like a secret.
    pub(super) async fn shown<T>(&self, caller: &Caller, answer: T) -> Result<T, OpError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        if caller.role > Role::Viewer {
            return Ok(answer);
        }
        let hiding = tokio::task::spawn_blocking(move || -> serde_json::Result<T> {
            let text = serde_json::to_string(&answer)?;
            serde_json::from_str(&redact_json(&text).text)
        });
        let hidden = hiding.await.ok().and_then(Result::ok);
        hidden.ok_or_else(|| OpError::internal("the answer could not be checked"))
    }
}

pub(super) fn limit(asked: Option<usize>) -> Result<usize, OpError> {
    match asked {
        None => Ok(DEFAULT_LIMIT),
        Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        Some(_) => Err(OpError::bad_request(format!("limit must be 1 to {MAX_LIMIT}"))),
    }
}

/// Returns the one item that a person meant, or an error with advice.
pub(super) fn require_one<T>(what: &str, typed: &str, found: IdLookup<T>) -> Result<T, OpError> {
    match found {
        IdLookup::One(item) => Ok(item),
        IdLookup::None => Err(OpError::not_found(what, typed)),
        IdLookup::Ambiguous(ids) => Err(OpError::ambiguous(what, typed, &ids)),
    }
}
