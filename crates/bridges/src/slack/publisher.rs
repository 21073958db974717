//! The publisher: it turns the log into the desired messages in Slack.
//!
//! ```text
//!   log ─► ViewerLog ─► CardUpdate ─► DesiredMessage ─► slack_messages (store) ─► sender
//!          (redacted)   (a card may    (rendered from
//!                        have changed)  current state)
//! ```
//!
//! # Theory of operation
//!
//! *Ownership.* The publisher is one task. It owns the cursor `slack`, the position in the log up to which messages are
//! stored, and [`PublisherState`]: running turns, and when each kind of card was last rendered. It never calls Slack;
//! rows of `slack_messages` are its only output, and the sender reads them from there. Two notifiers leave it: `outbox`
//! after a change of a row, `homes` when home tabs are out of date.
//!
//! *Order.* Events are read in batches of 500 and become updates in the order of the log. Updates are rendered per
//! session in that order, sessions concurrently, so that a session with a slow read does not delay others. A thread's
//! root is put before the first message of the thread. Periodic work follows a batch: status cards at most every two
//! seconds per session, streamed text every three, mentions of further people every two, home tabs every five.
//!
//! *Idempotence.* A card is rendered from the current state of its session, clearance or question, not from the event,
//! and has a fixed key. Rendering it twice, or late, gives the same row; an unchanged row is not sent again. That makes
//! it safe to store the cursor after the fact, to repeat a batch after a crash, and to merge several updates of one
//! card.
//!
//! *Nothing is lost.* Messages and the cursor are stored in one transaction; after a failure the same batch is stored
//! again. At the start all pending requests are rendered, whatever the cursor says. If retention removed events that
//! were not read, the publisher continues with the oldest event and renders all pending requests again. The state in
//! memory may be lost: a restart costs the counts of the running turn and streamed text that was not shown yet, both of
//! which the log has.
//!
//! *Bounds.* A turn keeps 6,000 characters of the agent's last message and 2,800 of streamed text; a session has at
//! most five unsent messages of streamed text, and newer text replaces the last of them. Slack's rate limits are the
//! sender's concern.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

mod escalation;
mod rendering;
mod turn_summary;

use self::turn_summary::{StreamedText, TurnSummary};
use super::access::SlackAccess;
use intercom_daemon::ops::{LogReader, ViewerLog};
use intercom_store::{DesiredMessage, LogCutoff, Store, StoreError, UpsertRule};
use intercom_types::event::{SessionEnded, SessionParked};
use intercom_types::{ClearanceId, Event, LoggedEvent, QuestionId, SessionId};

const CURSOR: &str = "slack";
const BATCH: usize = 500;
const STATUS_EVERY: Duration = Duration::from_secs(2);
const TALK_EVERY: Duration = Duration::from_secs(3);
const HOMES_EVERY: Duration = Duration::from_secs(5);
/// The interval between checks for further people to mention.
const CALLS_EVERY: Duration = Duration::from_secs(2);
/// The shortest interval at which the cursor is stored when there is nothing to post.
const STORED_EVERY: Duration = Duration::from_secs(1);
const BREATHER: Duration = Duration::from_secs(1);

pub(super) struct CardPublisher {
    pub(super) access: SlackAccess,
    pub(super) store: Store,
    pub(super) log: LogReader,
    /// Notified after a change of a desired message.
    pub(super) outbox: Arc<Notify>,
    /// Notified when home tabs may be out of date.
    pub(super) homes: Arc<Notify>,
}

/// A card or note that may have to change because of an event.
#[derive(Debug)]
enum CardUpdate {
    Clearance(SessionId, String),
    Question(SessionId, String),
    Stall {
        session: SessionId,
        seq: u64,
        change: StallChange,
    },
    Ended(SessionId),
    /// The session was resumed.
    Resumed {
        session: SessionId,
        by: Option<String>,
    },
    TurnOver {
        session: SessionId,
        seq: u64,
        turn: TurnSummary,
        reason: Option<String>,
    },
    Talk {
        session: SessionId,
        talk: StreamedText,
    },
    Note {
        session: SessionId,
        seq: u64,
        what: ThreadNote,
    },
    Prompt {
        id: String,
        arrived: bool,
    },
}

/// A change of the card of a stall.
#[derive(Debug)]
enum StallChange {
    Event(Box<Event>),
    SessionEnded,
}

/// An event that deserves a line in the thread.
#[derive(Debug)]
enum ThreadNote {
    /// The reason and what to do, unless the log is old.
    Unenforced(Option<String>),
    Restarting(String),
    Limited(String),
    LimitOver,
    Capped(String),
    StoppedBy(String),
}

/// The state in memory. All of it may be lost.
#[derive(Default)]
struct PublisherState {
    turns: HashMap<SessionId, TurnSummary>,
    /// The time at which a session's status card was last rendered.
    shown: HashMap<SessionId, Instant>,
    /// Sessions whose status card may be out of date.
    stale: HashSet<SessionId>,
    /// Sessions whose thread has a root in the store.
    rooted: HashSet<SessionId>,
    streamed_at: HashMap<SessionId, Instant>,
    homes: Option<Instant>,
    homes_stale: bool,
    escalated_at: Option<Instant>,
    periodic_at: Option<Instant>,
    /// The time at which the cursor was last stored.
    stored: Option<Instant>,
}

impl CardPublisher {
    pub(super) async fn run(self, closing: CancellationToken) {
        closing.run_until_cancelled(self.follow_log()).await;
    }

    async fn follow_log(&self) {
        let mut bell = self.log.listen();
        let (mut state, mut log) = (PublisherState::default(), ViewerLog::default());
        let mut seq = loop {
            let newest = bell.newest();
            match self.begin(newest, &mut state).await {
                Ok(seq) => break seq,
                Err(error) => tracing::warn!(%error, "the Slack publisher cannot start yet; retrying"),
            }
            tokio::time::sleep(BREATHER).await;
        };
        loop {
            // Before the read: a ring during the read must not be missed by the wait after it.
            bell.newest();
            match self.log.events(Some(seq), None, BATCH).await {
                Ok(Ok(events)) if events.is_empty() => {
                    // Nothing is left to read, so the cards show the present when they are rendered.
                    self.run_periodic(&mut state).await;
                    let rest = tokio::time::sleep(state.until_periodic());
                    tokio::select! {
                        heard = bell.wait_for_ring() => if !heard { return },
                        () = rest => {}
                    }
                }
                Ok(Ok(events)) => {
                    let last = events.last().map_or(seq, |event| event.seq);
                    let mut updates = Vec::new();
                    for event in self.as_viewer(&mut log, events).await {
                        state.apply_event(&event, &mut updates);
                    }
                    while let Err(error) = self.publish(&updates, Some(last), &mut state).await {
                        // Repeated, not skipped: going on would lose these updates.
                        tracing::warn!(%error, "messages for Slack cannot be stored; retrying");
                        tokio::time::sleep(BREATHER).await;
                    }
                    // After the commit of the messages, which stores the position as well: a kill in between repeats the batch, and
                    // the same desired content again changes nothing.
                    seq = last;
                    // Updates go first, but a log that never pauses must not starve the periodic work.
                    if state.periodic_at.is_none_or(|at| at.elapsed() >= STATUS_EVERY) {
                        self.run_periodic(&mut state).await;
                    }
                }
                Ok(Err(LogCutoff { oldest })) => {
                    tracing::warn!(
                        after = seq,
                        oldest,
                        "retention removed events before the Slack publisher read them"
                    );
                    // The removed events are out of date anyway; pending requests are rendered again by `begin`.
                    state = PublisherState::default();
                    seq = oldest.saturating_sub(1);
                    let stored = self.store.set_cursor(CURSOR, seq).await;
                    match stored {
                        Ok(()) => seq = self.begin(seq, &mut state).await.unwrap_or(seq),
                        Err(error) => {
                            tracing::warn!(%error, "the position of the Slack publisher cannot be stored");
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the Slack publisher cannot read the log; retrying");
                    tokio::time::sleep(BREATHER).await;
                }
            }
        }
    }

    /// Returns events as viewers may see them. Streamed text that may contain part of a secret is held for a later
    /// call.
    async fn as_viewer(&self, log: &mut ViewerLog, events: Vec<LoggedEvent>) -> Vec<LoggedEvent> {
        let mut out = Vec::with_capacity(events.len());
        for event in events {
            while let Err(error) = log.push(&self.log, event.clone(), &mut out).await {
                tracing::warn!(%error, "the Slack publisher cannot read the log; retrying");
                tokio::time::sleep(BREATHER).await;
            }
        }
        out
    }

    /// Starts at the stored position, or at the newest event: events from before the setup of Slack are too old to
    /// post, but pending requests are posted. Cards that were open at the last stop are sent again even if they are
    /// unchanged: Slack may show the trace of a click that had no effect.
    async fn begin(&self, newest: u64, state: &mut PublisherState) -> Result<u64, StoreError> {
        let seq = match self.store.cursor(CURSOR).await? {
            Some(seq) => seq,
            None => newest,
        };
        let mut updates = Vec::new();
        // Open cards in Slack may belong to requests that were decided while the daemon was down: rendering them from
        // the current state closes them.
        let mut open: HashSet<String> = HashSet::new();
        for message in self.store.slack_open().await? {
            open.insert(message.key.clone());
            let Some(session) = message.session else { continue };
            updates.extend(card_of(session, &message.key));
        }
        for session in self.access.live_sessions().await? {
            let Ok(id) = session.id.parse() else { continue };
            state.stale.insert(id);
        }
        for clearance in self.access.pending_clearances(None).await? {
            if !open.contains(&*clearance.id) {
                updates.push(CardUpdate::Clearance(clearance.session, clearance.id.to_string()));
            }
        }
        for question in self.access.pending_questions(None).await? {
            if !open.contains(&*question.id) {
                updates.push(CardUpdate::Question(question.session, question.id.to_string()));
            }
        }
        let mut messages = self.render_all(&updates, state).await?;
        messages
            .iter_mut()
            .filter(|message| message.open && open.contains(&message.key))
            .for_each(|message| message.upsert_rule = UpsertRule::Again);
        self.store.slack_upsert(messages, Some(seq)).await?;
        self.outbox.notify_one();
        Ok(seq)
    }

    async fn publish(
        &self,
        updates: &[CardUpdate],
        position: Option<u64>,
        state: &mut PublisherState,
    ) -> Result<(), StoreError> {
        let messages = self.render_all(updates, state).await?;
        // Without messages the cursor can wait: reading these events again changes nothing, and saves a write per
        // event.
        if messages.is_empty() && state.stored.is_some_and(|at| at.elapsed() < STORED_EVERY) {
            return Ok(());
        }
        state.stored = Some(Instant::now());
        self.enqueue(messages, position).await
    }

    async fn enqueue(&self, messages: Vec<DesiredMessage>, position: Option<u64>) -> Result<(), StoreError> {
        if messages.is_empty() && position.is_none() {
            return Ok(());
        }
        // Only after a change of a row: each notification makes the sender read the store.
        if self.store.slack_upsert(messages, position).await? > 0 {
            self.outbox.notify_one();
        }
        Ok(())
    }

    /// Does the periodic work.
    async fn run_periodic(&self, state: &mut PublisherState) {
        state.periodic_at = Some(Instant::now());
        let due = |at: Option<&Instant>, every: Duration| at.is_none_or(|at| at.elapsed() >= every);
        let outdated: Vec<SessionId> =
            state.stale.iter().filter(|id| due(state.shown.get(id), STATUS_EVERY)).copied().collect();
        let mut messages = self.roots(&outdated, state).await;
        let over: Vec<SessionId> =
            messages.iter().filter(|message| !message.open).filter_map(|message| message.session).collect();
        let streaming: Vec<SessionId> = state
            .turns
            .iter()
            .filter(|(id, turn)| {
                turn.talk.as_ref().is_some_and(|talk| talk.fresh)
                    && due(state.streamed_at.get(id), TALK_EVERY)
            })
            .map(|(id, _)| *id)
            .collect();
        // Taken before it is stored: after a failure the text is rendered again with the next piece.
        for id in &streaming {
            state.streamed_at.insert(*id, Instant::now());
            let Some((name, text)) = state.turns.get_mut(id).and_then(TurnSummary::take_streamed) else {
                continue;
            };
            messages.extend(self.talk(*id, &name, &text, state).await);
        }
        if due(state.escalated_at.as_ref(), CALLS_EVERY) {
            state.escalated_at = Some(Instant::now());
            messages.extend(self.escalations(state).await);
        }
        match self.enqueue(messages, None).await {
            Ok(()) => {
                // Only now: after a failure the same cards are still due.
                for id in outdated {
                    state.stale.remove(&id);
                    state.shown.insert(id, Instant::now());
                }
                for id in over {
                    state.forget(id);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "status cards cannot be stored; retrying");
                // They are still due: without a delay the loop would spin.
                tokio::time::sleep(BREATHER).await;
            }
        }
        if state.homes_stale && due(state.homes.as_ref(), HOMES_EVERY) {
            (state.homes, state.homes_stale) = (Some(Instant::now()), false);
            self.homes.notify_one();
        }
    }
}

impl PublisherState {
    /// Forgets an ended session, so that the maps do not grow for ever.
    fn forget(&mut self, id: SessionId) {
        self.turns.remove(&id);
        self.shown.remove(&id);
        self.rooted.remove(&id);
        self.streamed_at.remove(&id);
    }

    /// Returns the time until the next periodic work.
    fn until_periodic(&self) -> Duration {
        let stale = self.stale.iter().map(|id| left(self.shown.get(id), STATUS_EVERY));
        let talks = self.turns.iter().filter(|(_, turn)| turn.talk.as_ref().is_some_and(|talk| talk.fresh));
        let talks = talks.map(|(id, _)| left(self.streamed_at.get(id), TALK_EVERY));
        let homes = self.homes_stale.then(|| left(self.homes.as_ref(), HOMES_EVERY));
        let calls = left(self.escalated_at.as_ref(), CALLS_EVERY);
        stale
            .chain(talks)
            .chain(homes)
            .min()
            .map_or(calls, |due| due.min(calls))
            .max(Duration::from_millis(20)) // a due time in the past must not make the loop spin
    }

    fn apply_event(&mut self, logged: &LoggedEvent, updates: &mut Vec<CardUpdate>) {
        let LoggedEvent { session, seq, .. } = *logged;
        self.stale.insert(session);
        let event = logged.event();
        // These change nothing but the status card, which is stale already.
        let is_noise = matches!(
            event,
            Event::Heartbeat(_) | Event::AgentReady(_) | Event::LineRejected(_) | Event::UnknownMessage(_)
        );
        if is_noise {
            return;
        }
        // Replaces the summary of a turn whose end never came, such as that of a killed agent.
        if matches!(event, Event::TurnStarted(_)) {
            self.turns.insert(session, TurnSummary::default());
        }
        let mut full = Vec::new();
        self.turns.entry(session).or_default().apply_event(seq, &event, &mut full);
        updates.extend(full.into_iter().map(|talk| CardUpdate::Talk { session, talk }));
        // Streamed text changes no home tab, and is most of the log.
        self.homes_stale |= !matches!(event, Event::Update(_) | Event::Status(_));
        let note = |what: ThreadNote| CardUpdate::Note { session, seq, what };
        let clearance = |id: ClearanceId| CardUpdate::Clearance(session, id.to_string());
        let question = |id: QuestionId| CardUpdate::Question(session, id.to_string());
        match event {
            Event::ClearanceRequested(requested) => updates.push(clearance(requested.clearance)),
            Event::ClearanceApproved(approved) => updates.push(clearance(approved.clearance)),
            Event::ClearanceDecided(decided) => updates.push(clearance(decided.clearance)),
            Event::ClearanceDelivered(delivered) => updates.push(clearance(delivered.clearance)),
            Event::ClearanceUndelivered(undelivered) => updates.push(clearance(undelivered.clearance)),
            Event::ClearanceOutcome(outcome) => updates.extend(outcome.clearance.map(clearance)),
            Event::ClearanceClosed(closed) => updates.push(clearance(closed.clearance)),
            Event::QuestionAsked(asked) => updates.push(question(asked.question)),
            Event::QuestionAnswered(answered) => updates.push(question(answered.question)),
            Event::QuestionDelivered(delivered) => updates.push(question(delivered.question)),
            Event::QuestionUndelivered(undelivered) => updates.push(question(undelivered.question)),
            Event::QuestionClosed(closed) => updates.push(question(closed.question)),
            Event::PromptDelivered(delivered) => {
                updates.push(CardUpdate::Prompt { id: delivered.prompt.to_string(), arrived: true });
            }
            Event::PromptUndelivered(undelivered) => {
                updates.push(CardUpdate::Prompt { id: undelivered.prompt.to_string(), arrived: false });
            }
            Event::PromptWithdrawn(withdrawn) => {
                updates.push(CardUpdate::Prompt { id: withdrawn.prompt.to_string(), arrived: false });
            }
            Event::TurnEnded(ended) => {
                // The rest of the streamed text first: the thread shows it above the summary.
                let mut turn = self.turns.remove(&session).unwrap_or_default();
                updates.extend(turn.talk.take().map(|talk| CardUpdate::Talk { session, talk }));
                updates.push(CardUpdate::TurnOver { session, seq, turn, reason: Some(ended.stop_reason) });
            }
            Event::LimitReached(reached) => updates.push(note(ThreadNote::Limited(reached.limit))),
            Event::LimitOver(_) => updates.push(note(ThreadNote::LimitOver)),
            Event::StallStepTaken(_)
            | Event::StallStepFailed(_)
            | Event::StallSnoozed(_)
            | Event::StallRecovered(_)
            | Event::StallReset(_) => {
                updates.push(CardUpdate::Stall { session, seq, change: StallChange::Event(Box::new(event)) });
            }
            Event::AgentRestarting(restarting) => {
                updates.push(note(ThreadNote::Restarting(restarting.reason)));
            }
            Event::SessionUnenforced(unenforced) => {
                updates.push(note(ThreadNote::Unenforced(unenforced.why)));
            }
            Event::SpendCapped(capped) => updates.push(note(ThreadNote::Capped(capped.why))),
            Event::SessionResumed(resumed) => {
                updates.push(CardUpdate::Resumed { session, by: Some(resumed.by) });
            }
            Event::SessionEnded(SessionEnded { reason, .. })
            | Event::SessionParked(SessionParked { reason, .. }) => {
                self.turns.remove(&session);
                // A person who stopped the session needs no card that offers to restart it.
                updates.push(if by_request(&reason) {
                    note(ThreadNote::StoppedBy(reason))
                } else {
                    CardUpdate::Ended(session)
                });
                updates.push(CardUpdate::Stall { session, seq, change: StallChange::SessionEnded });
            }
            _ => {}
        }
    }
}

/// Returns true if a person ended the session.
fn by_request(reason: &str) -> bool {
    reason.starts_with("stopped by ") || reason.starts_with("killed by ")
}

fn left(at: Option<&Instant>, every: Duration) -> Duration {
    at.map_or(Duration::ZERO, |at| every.saturating_sub(at.elapsed()))
}

/// Returns the update that renders the card with this key.
fn card_of(session: SessionId, key: &str) -> Option<CardUpdate> {
    if key.starts_with("clr_") {
        return Some(CardUpdate::Clearance(session, key.to_owned()));
    }
    key.starts_with("qst_").then(|| CardUpdate::Question(session, key.to_owned()))
}
