//! The publisher: it turns the log into the desired messages in Slack.
//!
//! ```text
//!   landmarks of the log ─► CardUpdate ─► DesiredMessage ─► slack_messages (store) ─► sender
//!   (requests, decisions,   (a card may    (rendered from        │ claimed cards        ▲
//!    ends of turns, …)       have changed)  current state)       └──────────────────────┘
//!   bulk output ─► TurnReader (by session, at the pace of its cards) ─► StatusPass ─► the same
//! ```
//!
//! # Theory of operation
//!
//! *Ownership.* The publisher is one task. It owns the cursor `slack`, the position in the log up to which landmarks are
//! published, and [`PublisherState`]: what was read of running turns, and when each kind of card was last rendered. It
//! never calls Slack; rows of `slack_messages` are its only output, and the sender reads them from there. Two notifiers
//! leave it: `outbox` after a change of a row, `homes` when home tabs are out of date.
//!
//! *Landmarks.* It reads only landmarks: all events but the bulk output of agents, which is most of the log. A commit
//! without a landmark does not wake it, except for the first one after a pause of bulk output, so a flood of an agent
//! costs the bridge nothing per event. What cards show of bulk output (the text of a turn, the number of its tools) a
//! [`TurnReader`] reads when they are rendered, and only the newest part of it if there is much.
//!
//! *Order.* Landmarks are read in batches of 500 and become updates in the order of the log. Updates are rendered per
//! session in that order, sessions concurrently, so that a session with a slow read does not delay others; updates of
//! sessions whose turn has ended come after those of the others, because a summary has to read the turn first. A
//! thread's root is put before the first message of the thread. Status cards (at most every two seconds per session),
//! streamed text (every three) and mentions of further people (every two) are rendered by a [`StatusPass`], a task of
//! its own, so that no request waits for them. It owns the readers of the sessions that it renders, and returns them.
//!
//! *The shortest way.* A new card whose thread exists and is idle is claimed: the transaction that stores it also records
//! that it is about to be posted, and the sender gets it at once, without reading the store or writing to it.
//!
//! *Idempotence.* A card is rendered from the current state of its session, clearance or question, not from the event,
//! and has a fixed key. Rendering it twice, or late, gives the same row; an unchanged row is not sent again. That makes
//! it safe to store the cursor after the fact, to repeat a batch after a crash, and to merge several updates of one
//! card.
//!
//! *Nothing is lost.* Messages and the cursor are stored in one transaction; after a failure the same batch is stored
//! again. At the start all pending requests are rendered, whatever the cursor says. If retention removed events that
//! were not read, the publisher continues with the oldest event and renders all pending requests again. The state in
//! memory may be lost: a restart costs streamed text that was not shown yet, which the log has; the counts of a running
//! turn are read again.
//!
//! *Bounds.* A turn keeps 6,000 characters of the agent's last message and 2,800 of streamed text; a session has at
//! most five unsent messages of streamed text, and newer text replaces the last of them. Slack's rate limits are the
//! sender's concern.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

mod escalation;
mod rendering;
mod state;
mod status_pass;
mod turn_reader;
mod turn_summary;

use self::state::{PublisherState, is_due};
use self::status_pass::StatusPass;
use self::turn_reader::TurnReader;
use self::turn_summary::TurnSummary;
use super::access::SlackAccess;
use super::claims::ClaimSender;
use super::connection_health::ConnectionHealth;
use intercom_daemon::ops::LogReader;
use intercom_store::{DesiredMessage, LogCutoff, Store, StoreError, UpsertResult, UpsertRule};
use intercom_types::{Event, LoggedEvent, SessionId};

const CURSOR: &str = "slack";
const BATCH: usize = 500;
const STATUS_EVERY: Duration = Duration::from_secs(2);
const TALK_EVERY: Duration = Duration::from_secs(3);
const HOMES_EVERY: Duration = Duration::from_secs(5);
/// The interval between checks for further people to mention, and for bulk output.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// The shortest interval at which the cursor is stored when there is nothing to post.
const STORED_EVERY: Duration = Duration::from_secs(1);
const BREATHER: Duration = Duration::from_secs(1);

pub(super) struct CardPublisher {
    pub(super) access: SlackAccess,
    pub(super) store: Store,
    pub(super) log: LogReader,
    pub(super) health: ConnectionHealth,
    /// The way of claimed cards to the sender.
    pub(super) claims: ClaimSender,
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
    TurnOver(Box<EndedTurn>),
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

/// A turn that has ended.
#[derive(Debug)]
struct EndedTurn {
    session: SessionId,
    seq: u64,
    reason: String,
    /// The clearances that rules allowed.
    allowed: usize,
    /// What is left to read; `None` while a status pass has it, and after the read.
    reader: Option<TurnReader>,
    /// The result of the read: messages of streamed text, and the summary.
    read: Option<(Vec<(String, String)>, TurnSummary)>,
}

impl CardPublisher {
    pub(super) async fn run(self, closing: CancellationToken) {
        closing.run_until_cancelled(Arc::new(self).follow_log()).await;
    }

    async fn follow_log(self: Arc<Self>) {
        let (mut landmarks, mut all) = (self.log.listen_for_landmarks(), self.log.listen());
        let mut state = PublisherState::default();
        while let Err(error) = self.begin(all.newest(), &mut state).await {
            tracing::warn!(%error, "the Slack publisher cannot start yet; retrying");
            tokio::time::sleep(BREATHER).await;
        }
        // At most one task: the status pass.
        let mut pass = JoinSet::new();
        loop {
            while let Some(done) = pass.try_join_next() {
                state.finish_pass(done.ok());
            }
            // In this order: a landmark up to `newest` has rung its own bell before. And before the read: a ring during
            // the read must not be missed by the wait after it.
            let newest = all.newest();
            let has_landmarks = landmarks.newest() > state.position;
            // Before the pass: its sessions have consumed their rings, so it has to include what these were about.
            if !has_landmarks {
                state.position = state.position.max(newest);
            }
            self.start_pass(&mut state, &mut pass, newest);
            if state.are_homes_due() {
                (state.homes, state.homes_stale) = (Some(Instant::now()), false);
                self.homes.notify_one();
            }
            if has_landmarks {
                self.follow_landmarks(&mut state, &mut pass).await;
                continue;
            }
            let rest = tokio::time::sleep(state.until_check());
            tokio::select! {
                biased;
                heard = landmarks.wait_for_ring() => if !heard { return },
                Some(done) = pass.join_next() => {
                    state.finish_pass(done.ok());
                }
                // Wakes once after a pause of bulk output. While it goes on, it is looked at every two seconds.
                heard = all.wait_for_ring(), if state.is_bulk_due() => {
                    if !heard { return }
                    state.hear_bulk();
                }
                // While a pass is running nothing else can start, and what is due would make the loop spin.
                () = rest, if pass.is_empty() => state.look_for_bulk(),
            }
        }
    }

    /// Publishes the next batch of landmarks.
    async fn follow_landmarks(&self, state: &mut PublisherState, pass: &mut JoinSet<StatusPass>) {
        let heard = self.log.listen_for_landmarks().newest();
        match self.log.landmarks(state.position, BATCH).await {
            // The last landmark was followed by bulk output in the same transaction.
            Ok(Ok(events)) if events.is_empty() => state.position = state.position.max(heard),
            Ok(Ok(events)) => {
                self.health.read_events(events.len());
                self.publish_batch(&events, state, pass).await;
            }
            Ok(Err(LogCutoff { oldest })) => {
                tracing::warn!(
                    after = state.position,
                    oldest,
                    "retention removed events before the Slack publisher read them"
                );
                // The removed events are out of date anyway; pending requests are rendered again by `begin`.
                pass.abort_all();
                *state = PublisherState { position: oldest.saturating_sub(1), ..PublisherState::default() };
                let stored = self.store.set_cursor(CURSOR, state.position).await;
                let begun = match stored {
                    Ok(()) => self.begin(state.position, state).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = begun {
                    tracing::warn!(%error, "the position of the Slack publisher cannot be stored");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the Slack publisher cannot read the log; retrying");
                tokio::time::sleep(BREATHER).await;
            }
        }
    }

    async fn publish_batch(
        &self,
        events: &[LoggedEvent],
        state: &mut PublisherState,
        pass: &mut JoinSet<StatusPass>,
    ) {
        let last = events.last().map_or(state.position, |event| event.seq);
        let mut updates = Vec::new();
        for event in events {
            state.bells.entry(event.session).or_insert_with(|| self.log.listen_to(Some(event.session)));
            state.apply_landmark(event, &mut updates);
        }
        // People wait for requests, and a summary of a turn has to read the turn first.
        let ended: HashSet<SessionId> = updates
            .iter()
            .filter_map(|one| match one {
                CardUpdate::TurnOver(turn) => Some(turn.session),
                _ => None,
            })
            .collect();
        let of_ended = |one: &CardUpdate| one.session().is_some_and(|session| ended.contains(&session));
        let (mut later, first): (Vec<CardUpdate>, Vec<CardUpdate>) = updates.into_iter().partition(of_ended);
        if later.is_empty() {
            self.publish_surely(&first, Some(last), state).await;
        } else {
            self.publish_surely(&first, None, state).await;
            self.read_turns(&mut later, state, pass).await;
            self.publish_surely(&later, Some(last), state).await;
        }
        // After the commit of the messages, which stores the position as well: a kill in between repeats the batch, and
        // the same desired content again changes nothing.
        state.position = last;
    }

    /// Repeats until it succeeds: going on would lose these updates.
    async fn publish_surely(
        &self,
        updates: &[CardUpdate],
        position: Option<u64>,
        state: &mut PublisherState,
    ) {
        while let Err(error) = self.publish(updates, position, state).await {
            tracing::warn!(%error, "messages for Slack cannot be stored; retrying");
            tokio::time::sleep(BREATHER).await;
        }
    }

    /// Reads the turns that have ended.
    async fn read_turns(
        &self,
        updates: &mut [CardUpdate],
        state: &mut PublisherState,
        pass: &mut JoinSet<StatusPass>,
    ) {
        let mut returned = HashMap::new();
        for one in updates {
            let CardUpdate::TurnOver(turn) = one else { continue };
            // A pass has its reader. Only the summary waits for the pass; requests of the batch are published already.
            if turn.reader.is_none()
                && let Some(done) = pass.join_next().await
            {
                returned.extend(state.finish_pass(done.ok()));
            }
            let reader = turn.reader.take().or_else(|| returned.remove(&turn.session));
            let mut reader =
                reader.unwrap_or_else(|| TurnReader::of_running_turn(turn.session, state.streamed_before));
            while let Err(error) = self.read_ended_turn(&mut reader, turn.seq).await {
                tracing::warn!(%error, "the Slack publisher cannot read the log; retrying");
                tokio::time::sleep(BREATHER).await;
            }
            self.health.read_events(reader.take_events_read());
            turn.read = Some((reader.take_streamed(), reader.into_summary()));
        }
    }

    /// Reads the rest of a turn, unless its thread is quiet and shows no summary.
    async fn read_ended_turn(&self, reader: &mut TurnReader, seq: u64) -> Result<(), StoreError> {
        match self.scene(reader.session(), Vec::new()).await? {
            Some(context) if context.shows_turns() => reader.read(&self.log, seq, true).await,
            _ => Ok(()),
        }
    }

    /// Starts at the stored position, or at the newest event: events from before the setup of Slack are too old to
    /// post, but pending requests are posted. Cards that were open at the last stop are sent again even if they are
    /// unchanged: Slack may show the trace of a click that had no effect.
    async fn begin(&self, newest: u64, state: &mut PublisherState) -> Result<(), StoreError> {
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
        for session in self.log.live_sessions().await {
            state.stale.insert(session.id);
            state.bells.entry(session.id).or_insert_with(|| self.log.listen_to(Some(session.id)));
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
        let mut messages = self.render_all(&updates).await?;
        messages
            .iter_mut()
            .filter(|message| message.open && open.contains(&message.key))
            .for_each(|message| message.upsert_rule = UpsertRule::Again);
        self.enqueue(messages, Some(seq)).await?;
        self.outbox.notify_one();
        (state.position, state.streamed_before) = (seq, seq);
        Ok(())
    }

    async fn publish(
        &self,
        updates: &[CardUpdate],
        position: Option<u64>,
        state: &mut PublisherState,
    ) -> Result<(), StoreError> {
        let messages = self.render_all(updates).await?;
        // Without messages the cursor can wait: reading these events again changes nothing, and saves a write per
        // event.
        let is_stored = position.is_none() || state.stored.is_some_and(|at| at.elapsed() < STORED_EVERY);
        if messages.is_empty() && is_stored {
            return Ok(());
        }
        if position.is_some() {
            state.stored = Some(Instant::now());
        }
        self.enqueue(messages, position).await
    }

    async fn enqueue(&self, messages: Vec<DesiredMessage>, position: Option<u64>) -> Result<(), StoreError> {
        if messages.is_empty() && position.is_none() {
            return Ok(());
        }
        // Announced only if there can be a claim: the sender waits for announced ones before it plans.
        let claims = messages.iter().any(|message| message.upsert_rule == UpsertRule::Claim);
        let announced = claims.then(|| self.claims.announce());
        let (changed, claimed) = match self.store.slack_upsert(messages, position).await {
            Ok(UpsertResult { changed, claimed }) => (Ok(changed), claimed),
            Err(error) => (Err(error), Vec::new()),
        };
        let others = changed.as_ref().is_ok_and(|changed| *changed > claimed.len());
        // Delivered also after a failure, then empty: the sender would wait for ever otherwise.
        if let Some(announced) = announced {
            announced.deliver(claimed).await;
        }
        // Only after a change of a row that the sender does not have: each notification makes it read the store.
        if others {
            self.outbox.notify_one();
        }
        changed.map(drop)
    }

    /// Starts a status pass if one is due and none is running. `newest` is the newest event of the log.
    fn start_pass(self: &Arc<Self>, state: &mut PublisherState, pass: &mut JoinSet<StatusPass>, newest: u64) {
        if !pass.is_empty() {
            return;
        }
        let escalates = is_due(state.escalated_at.as_ref(), CHECK_EVERY);
        let items = state.take_due(newest);
        if items.is_empty() && !escalates {
            return;
        }
        if escalates {
            state.escalated_at = Some(Instant::now());
        }
        // Landmarks up to here are published: a pass that read further would take the end of a turn for a part of it.
        let (this, last) = (Arc::clone(self), state.position);
        pass.spawn(async move { this.run_pass(items, escalates, last).await });
    }
}

/// Returns the update that renders the card with this key.
fn card_of(session: SessionId, key: &str) -> Option<CardUpdate> {
    if key.starts_with("clr_") {
        return Some(CardUpdate::Clearance(session, key.to_owned()));
    }
    key.starts_with("qst_").then(|| CardUpdate::Question(session, key.to_owned()))
}
