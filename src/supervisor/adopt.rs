//! Agents that run, and that the database does not know: it was restored from a backup that is older than they are.
//!
//! Every directory below the state directory is a process that was started from here. Those that the database does not know
//! become sessions, as orphans: seen, logged and stoppable. Those that it knows to have ended are ended. None is forgotten, and no directory is
//! removed while something runs for it.

use std::collections::HashSet;
use std::path::PathBuf;

use serde_json::json;

use super::Supervisor;
use super::launch::Memo;
use crate::config::Protocol;
use crate::domain::{Audited, Json, Preset, SessionId, SessionRecord, Time};
use crate::host::{self, Cleared, KeptProcess, Process};
use crate::session::recover::adopt;
use crate::session::{About, Adoption, State};
use crate::store::{Found, StoreError};

/// What the database lacks.
const UNKNOWN: &str = "the database does not know this session";
const OLDER: &str = "the database knows only an earlier process of this session";
const BEHIND: &str = "the database does not know all that this process has heard and said";

impl Supervisor {
    /// Records a session for each process on disk that the database does not know, or is older than. Returns how many.
    pub(super) async fn adopt_kept(&self) -> Result<usize, StoreError> {
        let (mut seen, mut adopted) = (HashSet::new(), 0);
        // The newest generation of each session; earlier ones have ended, or are ended.
        for kept in host::kept_processes(&self.agents_dir()) {
            let Ok(id) = kept.session.parse::<SessionId>() else { continue };
            if seen.insert(id) && kept.was_started() {
                adopted += usize::from(self.adopt_if_unknown(id, kept).await?);
            }
        }
        Ok(adopted)
    }

    async fn adopt_if_unknown(&self, id: SessionId, kept: KeptProcess) -> Result<bool, StoreError> {
        let known = match self.store().stored(id).await? {
            None => None,
            // One that cannot be read is not made worse.
            Some(stored) => match serde_json::from_str::<State>(&stored.state) {
                Ok(state) => Some(state),
                Err(_) => return Ok(false),
            },
        };
        let (mut state, created, launch, why) = match known {
            Some(state) if kept.generation > state.generation() || state.is_deferred() => {
                (state, None, None, OLDER)
            }
            Some(_) => return Ok(false),
            None => {
                let memo = self.memo_of(id, &kept).await?;
                (State::new(memo.about.clone()), Some(memo.program()), Some(memo.launch()), UNKNOWN)
            }
        };
        // What ran for it beside it answers nobody any more.
        host::end_parts(kept.clone()).await;
        let (generation, pid, why) = (kept.generation, kept.agent_pid(), why.to_owned());
        tracing::error!(session.id = %id, generation, pid, why, "a process is adopted as an orphan");
        let consumed = host::output_start(&self.keep(id, generation, 0));
        let adoption = Adoption { generation, pid, created, why };
        adopt(self.store(), &mut state, adoption, launch, consumed).await?;
        Ok(true)
    }

    /// The same for a process that the database knows, but not all of.
    pub(super) async fn adopt_known(
        &self,
        state: &mut State,
        process: &Process,
        consumed: u64,
    ) -> Result<(), StoreError> {
        let (generation, pid) = (state.generation(), Some(process.identity.pid));
        let dir = self.keep(state.id(), generation, 0).dir;
        host::end_parts(KeptProcess { session: state.id().to_string(), generation, dir }).await;
        tracing::error!(session.id = %state.id(), generation, pid, why = BEHIND, "a process is adopted as an orphan");
        let adoption = Adoption { generation, pid, created: None, why: BEHIND.to_owned() };
        adopt(self.store(), state, adoption, None, consumed).await
    }

    /// What was written down beside the process, or what can be seen of it. A name that a live session has stays with that.
    async fn memo_of(&self, id: SessionId, kept: &KeptProcess) -> Result<Memo, StoreError> {
        let memo = kept.memo().and_then(|memo| serde_json::from_str::<Memo>(&memo).ok());
        let mut memo = memo.filter(|memo| memo.about.id == id).unwrap_or_else(|| {
            Memo::of_nothing(About {
                id,
                name: None,
                agent: None,
                protocol: Protocol::Intercom.as_str().to_owned(),
                workspace: kept.workspace().unwrap_or_else(|| PathBuf::from("/")),
                created_at: Time::now(),
                prompts_on_heartbeat: false,
                strict: false,
                max_queued_prompts: self.config().limits.max_queued_prompts,
                preset: Preset::default(),
                on_client_left: None,
            })
        });
        if let Some(name) = memo.about.name.clone() {
            let taken = |record: &SessionRecord| record.id != id && record.phase.is_live();
            let found = self.store().session(name).await?;
            if !matches!(&found, Found::None) && !matches!(&found, Found::One(record) if !taken(record)) {
                memo.about.name = None;
            }
        }
        Ok(memo)
    }

    /// Ends what runs for directories that no live session needs, and removes them: left by a daemon that was killed right after
    /// the end of a process, or before it.
    pub(super) async fn clear_out(&self, live: &[SessionId]) {
        for kept in host::kept_processes(&self.agents_dir()) {
            let Ok(id) = kept.session.parse::<SessionId>() else { continue };
            let is_over = match self.find(id) {
                // A session that is taken up may have begun its next generation by now.
                Some(handle) => kept.generation < handle.generation,
                // One that is live and cannot be taken up, because it cannot be read, keeps what it has.
                None => !live.contains(&id),
            };
            if is_over {
                self.clear_away(id, kept).await;
            }
        }
        self.end_removed().await;
    }

    async fn clear_away(&self, id: SessionId, kept: KeptProcess) {
        let generation = kept.generation;
        match host::clear_away(kept).await {
            Cleared::Removed => {}
            Cleared::Ended => self.record_end(id, json!({ "generation": generation })).await,
            Cleared::Alive => {
                tracing::error!(session.id = %id, generation, "processes of a session that has ended cannot be killed");
            }
        }
    }

    /// Agents of ours whose directories somebody has removed: nobody can talk to them any more.
    async fn end_removed(&self) {
        let database = self.store().path();
        let Some(state_dir) = database.parent().and_then(|dir| dir.canonicalize().ok()) else { return };
        for session in host::end_removed(state_dir).await {
            if let Ok(id) = session.parse() {
                self.record_end(id, json!({ "why": "its directory was removed" })).await;
            }
        }
    }

    async fn record_end(&self, id: SessionId, data: serde_json::Value) {
        tracing::error!(session.id = %id, %data, "processes that no session owns were ended");
        let (at, action, by) = (Time::now(), "leftovers.ended".to_owned(), "intercom".to_owned());
        let row = Audited { at, action, by, session: Some(id), data: Json::of(&data) };
        self.store().audit(row).await.ok(); // it has happened, and is in the daemon's log
    }
}
