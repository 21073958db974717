//! The expiry of unneeded sessions. Editors open a session for each window and close most windows again; a tool that
//! runs a single prompt leaves an agent behind.
//!
//! ```text
//!   never prompted, without a client          ends `unused_hours` after the last event
//!   used only by a client that disconnected   ends `close_grace_seconds` after that
//!   started by a client, without one now      ends `abandoned_hours` after the last client or person
//! ```
//! The last two end only at rest: no turn runs, and no clearance, question or prompt is pending.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::AcpBridge;
use intercom_daemon::config::AcpServerConfig;
use intercom_daemon::session::CommandError::{Overloaded, Store};
use intercom_store::StoreError;
use intercom_types::{EventKind, OnClientLeft, Phase, SessionId, SessionRecord, StopMode, Time};

/// The longest interval between checks of all sessions, and of those without their client.
const LOOK: Duration = Duration::from_mins(10);
const LOOK_AT_LEFT: Duration = Duration::from_secs(15);
/// The shortest interval between checks.
const SHORTEST: Duration = Duration::from_millis(100);
/// The actors that the log records when a session ends for one of these reasons.
const UNUSED: &str = "intercom, unused";
const LEFT: &str = "intercom, left by its client";
const ABANDONED: &str = "intercom, abandoned";
/// Events that show the presence of a person, or of a client that acts for one.
const PRESENCE: &[EventKind] = &[
    EventKind::SessionAgentChanged,
    EventKind::SessionPresetChanged,
    EventKind::SessionResumed,
    EventKind::SessionKept,
    EventKind::SessionSeen,
    EventKind::PromptQueued,
    EventKind::PromptAmended,
    EventKind::PromptWithdrawn,
    EventKind::ClearanceApproved,
    EventKind::ClearanceDecided,
    EventKind::QuestionAnswered,
    EventKind::Nudged,
    EventKind::Interrupted,
    EventKind::AgentSetting,
    EventKind::StallSnoozed,
    EventKind::LadderChanged,
];

impl AcpBridge {
    /// Expires sessions until the daemon stops, and then waits for the tasks of the clients.
    pub async fn run_housekeeping(self) {
        let closing = self.0.closing.clone();
        closing.run_until_cancelled(self.run_expiry()).await;
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    async fn run_expiry(&self) {
        let (mut left, mut next_look) = (self.find_left().await, Instant::now());
        loop {
            let settings = self.0.ops.supervisor().config().acp_server.clone();
            let soon = Instant::now() + (settings.close_grace() / 4).clamp(SHORTEST, LOOK_AT_LEFT);
            tokio::select! {
                () = self.0.client_changes.notified() => {}
                () = tokio::time::sleep_until(if left.is_empty() { next_look } else { next_look.min(soon) }) => {}
            }
            left.extend(self.record_changes().await);
            self.end_left(&mut left, &settings).await;
            if Instant::now() >= next_look {
                self.end_unneeded(&settings).await;
                let shortest =
                    settings.unused().into_iter().chain(settings.abandoned()).min().unwrap_or(LOOK);
                next_look = Instant::now() + (shortest / 4).clamp(SHORTEST, LOOK);
            }
        }
    }

    /// Records whether changed sessions have clients now. Returns those without.
    async fn record_changes(&self) -> Vec<SessionId> {
        let mut left = Vec::new();
        for session in self.take_changed() {
            let attached = self.clients_of(session) > 0;
            if let Err(Overloaded | Store(StoreError::Unavailable(_))) =
                self.0.ops.supervisor().record_clients(session, attached).await
            {
                self.changed().insert(session); // retried with the next check
            }
            if !attached {
                left.push(session);
            }
        }
        left
    }

    /// Finds sessions of clients of an earlier daemon, which may reconnect.
    async fn find_left(&self) -> BTreeSet<SessionId> {
        let mut left = BTreeSet::new();
        for record in self.0.ops.log().live_sessions().await {
            if record.watch_state.on_client_left.is_none() || self.clients_of(record.id) > 0 {
                continue;
            }
            if record.watch_state.left_at.is_none() {
                self.changed().insert(record.id); // the first check records it
            }
            left.insert(record.id);
        }
        left
    }

    async fn end_left(&self, left: &mut BTreeSet<SessionId>, settings: &AcpServerConfig) {
        for session in left.clone() {
            let found = self.0.ops.log().session(session).await;
            let record = match found {
                Ok(Some(record)) => record,
                Ok(None) => {
                    left.remove(&session);
                    continue;
                }
                Err(_) => continue, // retried with the next check
            };
            let stays = record.watch_state.on_client_left != Some(OnClientLeft::Close)
                || matches!(record.phase, Phase::Ended | Phase::Parked)
                || self.clients_of(session) > 0;
            let over = is_at_rest(&record)
                && left_at(&record).is_some_and(|at| Time::now().since(at) >= settings.close_grace());
            if over && !stays {
                self.end(session, LEFT);
            }
            if over || stays {
                left.remove(&session);
            }
        }
    }

    async fn end_unneeded(&self, settings: &AcpServerConfig) {
        let now = Time::now();
        for record in self.0.ops.log().live_sessions().await {
            if self.clients_of(record.id) > 0 {
                continue;
            }
            if settings.unused().is_some_and(|unused| is_unused(&record, now, unused)) {
                self.end(record.id, UNUSED);
            } else if let Some(abandoned) = settings.abandoned()
                && self.is_abandoned(&record, now, abandoned).await
            {
                self.end(record.id, ABANDONED);
            }
        }
    }

    /// Returns true if no person or client was present for this long. The log is read only for sessions at rest.
    async fn is_abandoned(&self, record: &SessionRecord, now: Time, after: Duration) -> bool {
        let long_ago = |at: Time| now.since(at) >= after;
        if !is_at_rest(record) || record.phase == Phase::Created || !left_at(record).is_some_and(long_ago) {
            return false;
        }
        let acts = self.0.ops.log().events_of(record.id, PRESENCE, u64::MAX, 1).await;
        acts.is_ok_and(|acts| acts.last().is_none_or(|act| long_ago(act.at)))
    }

    /// Stops a session in a task of its own: an agent may take a while to end.
    fn end(&self, session: SessionId, by: &'static str) {
        let supervisor = self.0.ops.supervisor().clone();
        self.0.tasks.spawn(async move {
            if let Err(error) = supervisor.stop(session, StopMode::Stop, by.to_owned()).await {
                tracing::warn!(session.id = %session, %error, by, "an unneeded session could not be stopped");
            }
        });
    }
}

/// Returns true if the session had no process and no change for this long.
fn is_unused(record: &SessionRecord, now: Time, unused: Duration) -> bool {
    let touched = record.updated_at.unwrap_or(record.created_at);
    record.phase == Phase::Created && now.since(touched) >= unused
}

/// Returns true if no turn runs and nothing is pending.
fn is_at_rest(record: &SessionRecord) -> bool {
    matches!(record.phase, Phase::Created | Phase::Idle)
        && record.turn.is_none()
        && (record.pending_clearances, record.pending_questions, record.queue) == (0, 0, 0)
}

/// Returns the time since which it has been at rest without a client; `None` for a session that no client started.
fn left_at(record: &SessionRecord) -> Option<Time> {
    let left = record.watch_state.left_at?;
    Some(record.watch_state.phase_since.map_or(left, |since| since.max(left)))
}
