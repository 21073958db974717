//! A log of many events, written by the store itself: one large session, some chatty ones, and many that say little.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use futures_util::future::try_join_all;
use intercom_store::bus::Bell;
use intercom_store::{SessionSnapshot, SessionWrite, Store};
use intercom_types::event::RawMessage;
use intercom_types::{
    AgentInfo, Event, Json, NewEvent, Phase, Preset, SessionId, SessionRecord, Time, WatchState,
};
use serde_json::json;

/// The share of the large session, and that of all quiet ones: a tenth each.
const TENTH: u64 = 10;
const CHATTY: usize = 100;
const QUIET: usize = 1000;
/// Events that an agent which talks all the time commits at once.
const BATCH: u64 = 1000;
/// Events that a quiet one commits at once.
const FEW: u64 = 2;

/// What is in the log.
pub(super) struct Filled {
    pub(super) largest: String,
    pub(super) in_largest: u64,
}

impl Filled {
    pub(super) fn create(state: &Path, events: u64) -> anyhow::Result<Self> {
        std::fs::create_dir_all(state)?;
        let store = Store::open(&state.join("intercom.db"), Bell::new())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut filler = Filler { store, at: Time::now().millis(), said: 0 };
            let largest = filler.session().await?;
            let in_largest = events / TENTH;
            filler.say(largest, in_largest).await?;
            let mut chatty = Vec::new();
            for _ in 0..CHATTY {
                chatty.push(filler.session().await?);
            }
            let quiet_from = events - events / TENTH;
            for session in chatty.iter().cycle() {
                let Some(left) = quiet_from.checked_sub(filler.said).filter(|left| *left > 0) else { break };
                filler.say(*session, BATCH.min(left)).await?;
            }
            let mut quiet = Vec::new();
            for _ in 0..QUIET {
                quiet.push(filler.session().await?);
            }
            while filler.said < events {
                // Together in one transaction, as the daemon commits what many sessions say at the same time.
                let store = filler.store.clone();
                let writes: Vec<_> = quiet.iter().map(|session| filler.share(*session, FEW)).collect();
                try_join_all(writes.into_iter().map(|write| store.write(Arc::new(write)))).await?;
            }
            Ok(Self { largest: largest.to_string(), in_largest })
        })
    }
}

struct Filler {
    store: Store,
    /// In milliseconds; each event is a little later than the one before.
    at: i64,
    said: u64,
}

impl Filler {
    async fn session(&mut self) -> anyhow::Result<SessionId> {
        let id = SessionId::mint();
        let snapshot = SessionSnapshot { record: ended(id), state: "{}".into(), launch: Some("{}".into()) };
        let share = SessionWrite { snapshot: Some(Box::new(snapshot)), ..self.share(id, 0) };
        self.store.write(Arc::new(share)).await.context("a session")?;
        Ok(id)
    }

    async fn say(&mut self, session: SessionId, events: u64) -> anyhow::Result<()> {
        for begun in (0..events).step_by(BATCH.try_into()?) {
            let share = self.share(session, BATCH.min(events - begun));
            self.store.write(Arc::new(share)).await.context("events")?;
        }
        Ok(())
    }

    /// The next events of a session, which differ as those of agents do.
    fn share(&mut self, session: SessionId, events: u64) -> SessionWrite {
        let said = self.said;
        self.said += events;
        self.at += i64::from(events > 0);
        let event = |n: u64| {
            let (part, lines, hash) = (n % 997, n % 4001, n * 2_654_435_761);
            let text = format!("step {n}: read crates/part_{part}/src/lib.rs, {lines} lines, {hash:x}");
            let message = Json::of(&json!({ "message": text, "progress": n % 100 }));
            NewEvent { at: Time::from_millis(self.at), event: Event::Status(RawMessage(message)) }
        };
        SessionWrite {
            session,
            generation: 1,
            events: (said..said + events).map(event).collect(),
            outgoing: Vec::new(),
            snapshot: None,
            consumed: None,
            urgent: false,
            adopts: false,
        }
    }
}

/// A session whose agent has exited.
fn ended(id: SessionId) -> SessionRecord {
    let now = Time::now();
    SessionRecord {
        id,
        name: None,
        agent: Some("filled".to_owned()),
        protocol: "intercom".to_owned(),
        workspace: PathBuf::from("/"),
        phase: Phase::Ended,
        why: "the agent has exited".to_owned(),
        pid: None,
        generation: 1,
        turn: None,
        pending_clearances: 0,
        pending_questions: 0,
        queue: 0,
        stderr_tail: String::new(),
        created_at: now,
        started_at: Some(now),
        ended_at: Some(now),
        exit: None,
        end_reason: Some("exited".to_owned()),
        failed: None,
        unenforced: None,
        preset: Preset::Full,
        watch_state: WatchState::default(),
        agent_info: AgentInfo::default(),
        updated_at: Some(now),
    }
}
