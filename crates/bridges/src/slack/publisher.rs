//! Turns the log into what should be seen in Slack.
//!
//! ```text
//!   log ─► news (a card that may have changed, a turn that is over …) ─► cards, from how things are now ─► store
//! ```
//! Cards are made of the present, not of the event, so it does not matter how often or how late they are made. How far the
//! log was told is stored with what was made of it. Status cards follow at most every two seconds.

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
/// The interval between checks for people to call.
const CALLS_EVERY: Duration = Duration::from_secs(2);
/// The shortest interval at which the cursor is stored when there is nothing to post.
const STORED_EVERY: Duration = Duration::from_secs(1);
const BREATHER: Duration = Duration::from_secs(1);

pub(super) struct CardPublisher {
    pub(super) access: SlackAccess,
    pub(super) store: Store,
    pub(super) log: LogReader,
    /// Rung when something is wanted.
    pub(super) outbox: Arc<Notify>,
    /// Rung when homes may be out of date.
    pub(super) homes: Arc<Notify>,
}

/// Something that may have to be seen, in the order in which it happened.
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
    /// It runs again.
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

/// A change of the card about a stall.
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

/// The loop's state besides the store. All of it may be lost.
#[derive(Default)]
struct PublisherState {
    turns: HashMap<SessionId, TurnSummary>,
    /// When a status card was last made.
    shown: HashMap<SessionId, Instant>,
    /// Those that may be out of date.
    stale: HashSet<SessionId>,
    /// Threads that have a root.
    rooted: HashSet<SessionId>,
    streamed_at: HashMap<SessionId, Instant>,
    homes: Option<Instant>,
    homes_stale: bool,
    escalated_at: Option<Instant>,
    periodic_at: Option<Instant>,
    /// When it was last stored how far the log was told.
    stored: Option<Instant>,
}

impl CardPublisher {
    pub(super) async fn run(self, closing: CancellationToken) {
        closing.run_until_cancelled(self.follow_log()).await;
    }

    async fn follow_log(&self) {
        let mut ear = self.log.listen();
        let (mut mind, mut log) = (PublisherState::default(), ViewerLog::default());
        let mut seq = loop {
            let newest = ear.newest();
            match self.begin(newest, &mut mind).await {
                Ok(seq) => break seq,
                Err(error) => tracing::warn!(%error, "what Slack should show is not known yet"),
            }
            tokio::time::sleep(BREATHER).await;
        };
        loop {
            ear.newest();
            match self.log.events(Some(seq), None, BATCH).await {
                Ok(Ok(events)) if events.is_empty() => {
                    self.run_periodic(&mut mind).await;
                    let rest = tokio::time::sleep(mind.until_periodic());
                    tokio::select! {
                        heard = ear.wait_for_ring() => if !heard { return },
                        () = rest => {}
                    }
                }
                Ok(Ok(events)) => {
                    let last = events.last().map_or(seq, |event| event.seq);
                    let mut news = Vec::new();
                    for event in self.as_viewer(&mut log, events).await {
                        mind.apply_event(&event, &mut news);
                    }
                    while let Err(error) = self.publish(&news, Some(last), &mut mind).await {
                        tracing::warn!(%error, "what Slack should show cannot be written down yet");
                        tokio::time::sleep(BREATHER).await;
                    }
                    seq = last;
                    // News go first; but a log that never pauses must not keep the rest waiting for ever.
                    if mind.periodic_at.is_none_or(|at| at.elapsed() >= STATUS_EVERY) {
                        self.run_periodic(&mut mind).await;
                    }
                }
                Ok(Err(LogCutoff { oldest })) => {
                    tracing::warn!(after = seq, oldest, "retention was faster than Slack");
                    // What was not told is not news any more; what is open now may be.
                    mind = PublisherState::default();
                    seq = oldest.saturating_sub(1);
                    let again = self.store.set_cursor(CURSOR, seq).await;
                    match again {
                        Ok(()) => seq = self.begin(seq, &mut mind).await.unwrap_or(seq),
                        Err(error) => tracing::warn!(%error, "how far Slack was told cannot be stored"),
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the log cannot be read for Slack");
                    tokio::time::sleep(BREATHER).await;
                }
            }
        }
    }

    /// These events as viewers may see them, as far as they may by now.
    async fn as_viewer(&self, log: &mut ViewerLog, events: Vec<LoggedEvent>) -> Vec<LoggedEvent> {
        let mut out = Vec::with_capacity(events.len());
        for event in events {
            while let Err(error) = log.push(&self.log, event.clone(), &mut out).await {
                tracing::warn!(%error, "the log cannot be read for Slack");
                tokio::time::sleep(BREATHER).await;
            }
        }
        out
    }

    /// Starts at the stored position, or at the newest event: events from before Slack was set up are not
    /// news, but open requests are. Requests that were open at the last stop are shown again, whatever their
    /// cards look like: a click without effect in between may have left its mark.
    async fn begin(&self, newest: u64, mind: &mut PublisherState) -> Result<u64, StoreError> {
        let seq = match self.store.cursor(CURSOR).await? {
            Some(seq) => seq,
            None => newest,
        };
        let mut news = Vec::new();
        let mut open: HashSet<String> = HashSet::new();
        for message in self.store.slack_open().await? {
            open.insert(message.key.clone());
            let Some(session) = message.session else { continue };
            news.extend(card_of(session, &message.key));
        }
        for session in self.access.live_sessions().await? {
            let Ok(id) = session.id.parse() else { continue };
            mind.stale.insert(id);
        }
        for clearance in self.access.pending_clearances(None).await? {
            if !open.contains(&*clearance.id) {
                news.push(CardUpdate::Clearance(clearance.session, clearance.id.to_string()));
            }
        }
        for question in self.access.pending_questions(None).await? {
            if !open.contains(&*question.id) {
                news.push(CardUpdate::Question(question.session, question.id.to_string()));
            }
        }
        let mut wants = self.render_all(&news, mind).await?;
        wants
            .iter_mut()
            .filter(|want| want.open && open.contains(&want.key))
            .for_each(|want| want.upsert_rule = UpsertRule::Again);
        self.store.slack_upsert(wants, Some(seq)).await?;
        self.outbox.notify_one();
        Ok(seq)
    }

    async fn publish(
        &self,
        news: &[CardUpdate],
        told: Option<u64>,
        mind: &mut PublisherState,
    ) -> Result<(), StoreError> {
        let wants = self.render_all(news, mind).await?;
        // Where nothing is to be seen, it does no harm to hear it again.
        if wants.is_empty() && mind.stored.is_some_and(|at| at.elapsed() < STORED_EVERY) {
            return Ok(());
        }
        mind.stored = Some(Instant::now());
        self.enqueue(wants, told).await
    }

    async fn enqueue(&self, wants: Vec<DesiredMessage>, told: Option<u64>) -> Result<(), StoreError> {
        if wants.is_empty() && told.is_none() {
            return Ok(());
        }
        if self.store.slack_upsert(wants, told).await? > 0 {
            self.outbox.notify_one();
        }
        Ok(())
    }

    /// Does the periodic work.
    async fn run_periodic(&self, mind: &mut PublisherState) {
        mind.periodic_at = Some(Instant::now());
        let due = |at: Option<&Instant>, every: Duration| at.is_none_or(|at| at.elapsed() >= every);
        let stale: Vec<SessionId> =
            mind.stale.iter().filter(|id| due(mind.shown.get(id), STATUS_EVERY)).copied().collect();
        let mut wants = self.roots(&stale, mind).await;
        let over: Vec<SessionId> =
            wants.iter().filter(|want| !want.open).filter_map(|want| want.session).collect();
        let talking: Vec<SessionId> = mind
            .turns
            .iter()
            .filter(|(id, turn)| {
                turn.talk.as_ref().is_some_and(|talk| talk.fresh) && due(mind.streamed_at.get(id), TALK_EVERY)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in &talking {
            mind.streamed_at.insert(*id, Instant::now());
            let Some((name, text)) = mind.turns.get_mut(id).and_then(TurnSummary::take_streamed) else {
                continue;
            };
            wants.extend(self.talk(*id, &name, &text, mind).await);
        }
        if due(mind.escalated_at.as_ref(), CALLS_EVERY) {
            mind.escalated_at = Some(Instant::now());
            wants.extend(self.escalations(mind).await);
        }
        match self.enqueue(wants, None).await {
            Ok(()) => {
                for id in stale {
                    mind.stale.remove(&id);
                    mind.shown.insert(id, Instant::now());
                }
                for id in over {
                    mind.forget(id);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "status cards cannot be written down yet");
                // They are still due: without this we would try as fast as we can.
                tokio::time::sleep(BREATHER).await;
            }
        }
        if mind.homes_stale && due(mind.homes.as_ref(), HOMES_EVERY) {
            (mind.homes, mind.homes_stale) = (Some(Instant::now()), false);
            self.homes.notify_one();
        }
    }
}

impl PublisherState {
    /// A session that has ended has nothing more to say.
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
            .max(Duration::from_millis(20))
    }

    fn apply_event(&mut self, logged: &LoggedEvent, news: &mut Vec<CardUpdate>) {
        let LoggedEvent { session, seq, .. } = *logged;
        self.stale.insert(session);
        let event = logged.event();
        let is_noise = matches!(
            event,
            Event::Heartbeat(_) | Event::AgentReady(_) | Event::LineRejected(_) | Event::UnknownMessage(_)
        );
        if is_noise {
            return;
        }
        if matches!(event, Event::TurnStarted(_)) {
            self.turns.insert(session, TurnSummary::default());
        }
        let mut full = Vec::new();
        self.turns.entry(session).or_default().apply_event(seq, &event, &mut full);
        news.extend(full.into_iter().map(|talk| CardUpdate::Talk { session, talk }));
        self.homes_stale |= !matches!(event, Event::Update(_) | Event::Status(_));
        let note = |what: ThreadNote| CardUpdate::Note { session, seq, what };
        let clearance = |id: ClearanceId| CardUpdate::Clearance(session, id.to_string());
        let question = |id: QuestionId| CardUpdate::Question(session, id.to_string());
        match event {
            Event::ClearanceRequested(requested) => news.push(clearance(requested.clearance)),
            Event::ClearanceApproved(approved) => news.push(clearance(approved.clearance)),
            Event::ClearanceDecided(decided) => news.push(clearance(decided.clearance)),
            Event::ClearanceDelivered(delivered) => news.push(clearance(delivered.clearance)),
            Event::ClearanceUndelivered(undelivered) => news.push(clearance(undelivered.clearance)),
            Event::ClearanceOutcome(outcome) => news.extend(outcome.clearance.map(clearance)),
            Event::ClearanceClosed(closed) => news.push(clearance(closed.clearance)),
            Event::QuestionAsked(asked) => news.push(question(asked.question)),
            Event::QuestionAnswered(answered) => news.push(question(answered.question)),
            Event::QuestionDelivered(delivered) => news.push(question(delivered.question)),
            Event::QuestionUndelivered(undelivered) => news.push(question(undelivered.question)),
            Event::QuestionClosed(closed) => news.push(question(closed.question)),
            Event::PromptDelivered(delivered) => {
                news.push(CardUpdate::Prompt { id: delivered.prompt.to_string(), arrived: true });
            }
            Event::PromptUndelivered(undelivered) => {
                news.push(CardUpdate::Prompt { id: undelivered.prompt.to_string(), arrived: false });
            }
            Event::PromptWithdrawn(withdrawn) => {
                news.push(CardUpdate::Prompt { id: withdrawn.prompt.to_string(), arrived: false });
            }
            Event::TurnEnded(ended) => {
                let mut turn = self.turns.remove(&session).unwrap_or_default();
                news.extend(turn.talk.take().map(|talk| CardUpdate::Talk { session, talk }));
                news.push(CardUpdate::TurnOver { session, seq, turn, reason: Some(ended.stop_reason) });
            }
            Event::LimitReached(reached) => news.push(note(ThreadNote::Limited(reached.limit))),
            Event::LimitOver(_) => news.push(note(ThreadNote::LimitOver)),
            Event::StallStepTaken(_)
            | Event::StallStepFailed(_)
            | Event::StallSnoozed(_)
            | Event::StallRecovered(_)
            | Event::StallReset(_) => {
                news.push(CardUpdate::Stall { session, seq, change: StallChange::Event(Box::new(event)) });
            }
            Event::AgentRestarting(restarting) => news.push(note(ThreadNote::Restarting(restarting.reason))),
            Event::SessionUnenforced(unenforced) => news.push(note(ThreadNote::Unenforced(unenforced.why))),
            Event::SpendCapped(capped) => news.push(note(ThreadNote::Capped(capped.why))),
            Event::SessionResumed(resumed) => {
                news.push(CardUpdate::Resumed { session, by: Some(resumed.by) });
            }
            Event::SessionEnded(SessionEnded { reason, .. })
            | Event::SessionParked(SessionParked { reason, .. }) => {
                self.turns.remove(&session);
                news.push(if by_request(&reason) {
                    note(ThreadNote::StoppedBy(reason))
                } else {
                    CardUpdate::Ended(session)
                });
                news.push(CardUpdate::Stall { session, seq, change: StallChange::SessionEnded });
            }
            _ => {}
        }
    }
}

/// Somebody wanted it to end.
fn by_request(reason: &str) -> bool {
    reason.starts_with("stopped by ") || reason.starts_with("killed by ")
}

fn left(at: Option<&Instant>, every: Duration) -> Duration {
    at.map_or(Duration::ZERO, |at| every.saturating_sub(at.elapsed()))
}

/// The card that a key stands for.
fn card_of(session: SessionId, key: &str) -> Option<CardUpdate> {
    if key.starts_with("clr_") {
        return Some(CardUpdate::Clearance(session, key.to_owned()));
    }
    key.starts_with("qst_").then(|| CardUpdate::Question(session, key.to_owned()))
}
