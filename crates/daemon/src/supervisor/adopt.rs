//! Running agents that the database does not know, because it was restored from a backup that is older than they are.
//!
//! Every directory below the state directory belongs to a process that was started from here. Processes that the
//! database does not know become sessions, as orphans: visible, logged and stoppable. Processes of sessions that have
//! ended are ended. None is forgotten, and no directory is removed while a process uses it.

use std::collections::HashSet;
use std::path::PathBuf;

use serde_json::json;

use super::Supervisor;
use super::launch::{SessionMemo, is_launch};
use crate::config::Protocol;
use crate::session::recover::{adopt, record_lost_process};
use crate::session::{AdoptedProcess, OpenRequests, SessionSpec, SessionState, TurnModel};
use intercom_host::{self as host, AgentProcess, ClearedDirectory, GenerationDir};
use intercom_store::{ClearanceFilter, IdLookup, QuestionFilter, StoreError, StoredSession};
use intercom_types::{
    ClearanceStatus, Json, NewAuditRow, Preset, PromptState, QuestionStatus, SessionId, SessionRecord, Time,
};

/// The maximum number of open requests of one kind that are closed with an unreadable session; a session cannot have
/// more.
const MAX_OPEN: usize = 1000;

/// The gaps in the database, in words.
const UNKNOWN: &str = "the database does not know this session";
const OLDER: &str = "the database knows only an earlier process of this session";
const UNREADABLE: &str = "the database holds a record of this session that cannot be read";
const BEHIND: &str = "the database has only a part of this process's messages";

/// Returns the state of a session, if that and its launch description can be read.
fn readable(stored: &StoredSession) -> Option<SessionState> {
    serde_json::from_str(&stored.state).ok().filter(|_| is_launch(&stored.launch))
}

impl Supervisor {
    /// Records a session for each process on disk that the database does not know, cannot read, or is older than.
    /// Returns their number. `live` are the live sessions of the database.
    pub(super) async fn adopt_kept(&self, live: &[SessionId]) -> Result<usize, StoreError> {
        let (mut seen, mut adopted) = (HashSet::new(), 0);
        // The newest generation of each session; the processes of earlier ones are ended by `clear_out`.
        for generation_dir in host::list_generation_dirs(&self.agents_dir()) {
            let Ok(id) = generation_dir.session.parse::<SessionId>() else { continue };
            if !seen.insert(id) || !generation_dir.was_started() {
                continue;
            }
            match self.adopt_if_unknown(id, generation_dir, live.contains(&id)).await {
                Ok(is_adopted) => adopted += usize::from(is_adopted),
                // One session that cannot be read must not prevent the adoption of the others.
                Err(error @ (StoreError::Corrupt { .. } | StoreError::Conflict(_))) => {
                    tracing::error!(session.id = %id, %error, "a process cannot be adopted");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(adopted)
    }

    async fn adopt_if_unknown(
        &self,
        id: SessionId,
        generation_dir: GenerationDir,
        is_live: bool,
    ) -> Result<bool, StoreError> {
        let known = self.store().stored_session(id).await?.map(|stored| readable(&stored));
        let mut open = OpenRequests::default();
        let (mut state, created, launch, why) = match known {
            Some(Some(state)) if generation_dir.generation > state.generation() || state.is_deferred() => {
                (state, None, None, OLDER)
            }
            Some(Some(_)) => return Ok(false),
            // The processes of an ended session are ended, whatever else is known about it.
            Some(None) if !is_live => return Ok(false),
            Some(None) => {
                open = self.open_requests(id).await?;
                let memo = self.memo_of(id, &generation_dir).await?;
                (SessionState::new(memo.spec.clone()), None, Some(memo.launch()), UNREADABLE)
            }
            None => {
                let memo = self.memo_of(id, &generation_dir).await?;
                (SessionState::new(memo.spec.clone()), Some(memo.program()), Some(memo.launch()), UNKNOWN)
            }
        };
        // Its terminals are ended: an orphan's agent gets no answers about them any more.
        host::end_parts(generation_dir.clone()).await;
        let (generation, pid, why) = (generation_dir.generation, generation_dir.agent_pid(), why.to_owned());
        tracing::error!(session.id = %id, generation, pid, why, "a process is adopted as an orphan");
        let consumed = host::output_start(&self.runtime_dir(id, generation, 0));
        let adoption = AdoptedProcess { generation, pid, created, why, open };
        adopt(self.store(), &mut state, adoption, launch, consumed).await?;
        Ok(true)
    }

    /// Records the end of a live session that cannot be read, unless it may have a process. Returns true if it did.
    pub(super) async fn end_unreadable(&self, id: SessionId) -> bool {
        let mut dirs = host::list_generation_dirs(&self.agents_dir()).into_iter();
        if dirs.any(|dir| dir.session == id.to_string() && dir.was_started()) {
            return false;
        }
        let ended = self.record_unreadable(id).await;
        if let Err(error) = &ended {
            tracing::error!(session.id = %id, %error, "the end of a session cannot be recorded");
        }
        ended.is_ok()
    }

    async fn record_unreadable(&self, id: SessionId) -> Result<(), StoreError> {
        let IdLookup::One(record) = self.store().session(id.to_string()).await? else { return Ok(()) };
        let memo = SessionMemo::of_nothing(SessionSpec {
            name: record.name.clone(),
            agent: record.agent.clone(),
            protocol: record.protocol.clone(),
            workspace: record.workspace.clone(),
            created_at: record.created_at,
            ..self.placeholder_spec(id)
        });
        let mut state = SessionState::new(memo.spec.clone());
        let (generation, open) = (record.generation, self.open_requests(id).await?);
        let adoption =
            AdoptedProcess { generation, pid: None, created: None, why: UNREADABLE.to_owned(), open };
        tracing::error!(session.id = %id, generation, "a session is ended: {UNREADABLE}");
        adopt(self.store(), &mut state, adoption, Some(memo.launch()), 0).await?;
        record_lost_process(self.store(), state, UNREADABLE).await
    }

    /// Returns the open requests of a session in the ledger.
    async fn open_requests(&self, id: SessionId) -> Result<OpenRequests, StoreError> {
        let filter = ClearanceFilter { status: Some(ClearanceStatus::Pending), session: Some(id) };
        let clearances = self.store().clearances(filter, None, MAX_OPEN).await?.items;
        let filter = QuestionFilter { status: Some(QuestionStatus::Pending), session: Some(id) };
        let questions = self.store().questions(filter, None, MAX_OPEN).await?.items;
        let prompts = self.store().prompts(id, None, MAX_OPEN).await?.items;
        let queued = prompts.iter().filter(|prompt| prompt.state == PromptState::Queued);
        Ok(OpenRequests {
            clearances: clearances.iter().map(|clearance| clearance.id).collect(),
            questions: questions.iter().map(|question| question.id).collect(),
            prompts: queued.map(|prompt| prompt.id).collect(),
        })
    }

    /// Adopts a process that the database knows only in part.
    pub(super) async fn adopt_known(
        &self,
        state: &mut SessionState,
        process: &AgentProcess,
        consumed: u64,
    ) -> Result<(), StoreError> {
        let (generation, pid) = (state.generation(), Some(process.identity.pid));
        let dir = self.runtime_dir(state.id(), generation, 0).dir;
        host::end_parts(GenerationDir { session: state.id().to_string(), generation, dir }).await;
        tracing::error!(session.id = %state.id(), generation, pid, why = BEHIND, "a process is adopted as an orphan");
        let open = OpenRequests::default(); // the state has the open requests
        let adoption = AdoptedProcess { generation, pid, created: None, why: BEHIND.to_owned(), open };
        adopt(self.store(), state, adoption, None, consumed).await
    }

    /// Returns the memo written beside the process, or a memo of what can be observed. A name that a live session has
    /// is not taken.
    async fn memo_of(
        &self,
        id: SessionId,
        generation_dir: &GenerationDir,
    ) -> Result<SessionMemo, StoreError> {
        let memo = generation_dir.memo().and_then(|memo| serde_json::from_str::<SessionMemo>(&memo).ok());
        let mut memo = memo.filter(|memo| memo.spec.id == id).unwrap_or_else(|| {
            let workspace = generation_dir.workspace().unwrap_or_else(|| PathBuf::from("/"));
            SessionMemo::of_nothing(SessionSpec { workspace, ..self.placeholder_spec(id) })
        });
        if let Some(name) = memo.spec.name.clone() {
            let taken = |record: &SessionRecord| record.id != id && record.phase.is_live();
            let found = self.store().session(name).await?;
            if !matches!(&found, IdLookup::None) && !matches!(&found, IdLookup::One(record) if !taken(record))
            {
                memo.spec.name = None;
            }
        }
        Ok(memo)
    }

    /// Returns the specification of a session of which only the id is known.
    fn placeholder_spec(&self, id: SessionId) -> SessionSpec {
        SessionSpec {
            id,
            name: None,
            agent: None,
            protocol: Protocol::Intercom.to_string(),
            workspace: PathBuf::from("/"),
            created_at: Time::now(),
            turn_model: TurnModel::default(),
            max_queued_prompts: self.config().limits.max_queued_prompts,
            preset: Preset::default(),
            on_client_left: None,
        }
    }

    /// Ends the processes in directories that no live session needs, and removes the directories. A daemon that was
    /// killed around the end of a process leaves them behind.
    pub(super) async fn clear_out(&self, live: &[SessionId]) {
        for generation_dir in host::list_generation_dirs(&self.agents_dir()) {
            let Ok(id) = generation_dir.session.parse::<SessionId>() else { continue };
            let is_over = match self.find(id) {
                // A recovered session may have begun its next generation by now.
                Some(handle) => generation_dir.generation < handle.generation,
                // A live session that cannot be read, and so not be recovered, keeps its directories.
                None => !live.contains(&id),
            };
            if is_over {
                self.clear_away(id, generation_dir).await;
            }
        }
        self.end_removed().await;
    }

    async fn clear_away(&self, id: SessionId, generation_dir: GenerationDir) {
        let generation = generation_dir.generation;
        match host::remove_generation(generation_dir).await {
            ClearedDirectory::Removed => {}
            ClearedDirectory::Ended => self.record_end(id, json!({ "generation": generation })).await,
            ClearedDirectory::Alive => {
                tracing::error!(session.id = %id, generation, "processes of a session that has ended cannot be killed");
            }
        }
    }

    /// Ends agents of ours whose directories were removed: nobody can talk to them any more.
    async fn end_removed(&self) {
        let database = self.store().path();
        let Some(state_dir) = database.parent().and_then(|dir| dir.canonicalize().ok()) else { return };
        for session in host::end_agents_without_directory(state_dir).await {
            if let Ok(id) = session.parse() {
                self.record_end(id, json!({ "why": "its directory was removed" })).await;
            }
        }
    }

    async fn record_end(&self, id: SessionId, data: serde_json::Value) {
        tracing::error!(session.id = %id, %data, "processes that no session owns were ended");
        let (at, action, by) = (Time::now(), "leftovers.ended".to_owned(), "intercom".to_owned());
        let row = NewAuditRow { at, action, by, session: Some(id), data: Json::of(&data) };
        self.store().audit(row).await.ok(); // the processes have ended, and the daemon's log has the event
    }
}
