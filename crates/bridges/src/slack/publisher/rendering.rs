//! The rendering of updates to desired messages, from the current state of sessions and requests.

use futures_util::future::join_all;
use serde_json::json;

use super::{CardPublisher, CardUpdate, EndedTurn, StallChange, ThreadNote};
use crate::slack::block_kit::{CardMessage, MrkdwnText};
use crate::slack::card::{self, TurnCounts};
use crate::slack::handlers;
use crate::slack::mentions::{self, UnansweredRequest};
use crate::slack::sender::DesiredContent;
use intercom_daemon::config::{SessionSlackConfig, Verbosity};
use intercom_daemon::ops::CardScene;
use intercom_redact::redact;
use intercom_store::{DesiredMessage, SlackMessage, StoreError, UpsertRule};
use intercom_types::{Clearance, ClearanceStatus, Phase, Question, QuestionStatus, Risk, Session};
use intercom_types::{Event, Role, Rung, SessionId, Time};

/// A session with its Slack configuration, and the requests that are rendered with it, as of one moment.
pub(super) struct SessionContext {
    pub(super) id: SessionId,
    pub(super) session: Session,
    pub(super) here: SessionSlackConfig,
    clearances: Vec<Clearance>,
    questions: Vec<Question>,
    /// The root of its thread and the cards of the requests, as far as they are stored.
    messages: Vec<SlackMessage>,
}

/// The limit on remembered steps of a stall.
const MAX_STEPS: usize = 30;
/// The limit on unsent messages of streamed text per session.
const MAX_WAITING_TALK: usize = 5;

impl SessionContext {
    /// Returns true if the thread shows the end of each turn.
    pub(super) fn shows_turns(&self) -> bool {
        self.here.verbosity != Verbosity::Quiet
    }

    /// Returns true if the thread shows the agent's text as it is written.
    pub(super) fn streams(&self) -> bool {
        self.here.verbosity == Verbosity::Stream
    }

    /// Returns the stored message with this key.
    fn known(&self, key: &str) -> Option<&SlackMessage> {
        self.messages.iter().find(|message| message.key == key)
    }

    /// Returns the root of a thread that has none: it must be posted before the thread's other messages.
    pub(super) fn missing_root(&self) -> Option<DesiredMessage> {
        self.known(&self.id.to_string()).is_none().then(|| self.root())
    }

    pub(super) fn root(&self) -> DesiredMessage {
        let key = self.id.to_string();
        let open = self.session.phase != Phase::Ended;
        self.desired(&key, &card::status(&key, &self.session), open, String::new())
    }

    pub(super) fn desired(
        &self,
        key: &str,
        message: &CardMessage,
        open: bool,
        memo: String,
    ) -> DesiredMessage {
        let wanted = DesiredContent::Message(json!(message)).text();
        let thread = Some(self.id.to_string()).filter(|root| root != key);
        let (session, channel) = (Some(self.id), self.here.channel.clone());
        DesiredMessage {
            key: key.to_owned(),
            session,
            channel,
            thread,
            wanted,
            open,
            memo,
            upsert_rule: UpsertRule::IfNew,
        }
    }
}

impl CardPublisher {
    /// Returns the present state of a session and of these requests; `None` if the session was removed or Slack is off
    /// for it.
    pub(super) async fn scene(
        &self,
        id: SessionId,
        requests: Vec<String>,
    ) -> Result<Option<SessionContext>, StoreError> {
        let Some(scene) = self.access.card_scene(id, requests).await? else { return Ok(None) };
        let CardScene { session, clearances, questions, messages, verbosity } = scene;
        let workspace = session.workspace.clone();
        let Some(mut here) = self.access.config().slack_here(workspace.as_ref()) else { return Ok(None) };
        // The command `verbosity` in the thread overrides the configuration.
        here.verbosity = verbosity.and_then(|asked| asked.parse().ok()).unwrap_or(here.verbosity);
        let mut context = SessionContext { id, session, here, clearances, questions, messages };
        // A thread stays in its channel, also after a change of the configuration.
        if let Some(root) = context.known(&id.to_string()) {
            context.here.channel = root.channel.clone();
        }
        Ok(Some(context))
    }

    /// Renders updates: in order within a session, sessions concurrently, so that none waits for another's reads.
    pub(super) async fn render_all(&self, updates: &[CardUpdate]) -> Result<Vec<DesiredMessage>, StoreError> {
        let mut sessions: Vec<(Option<SessionId>, Vec<&CardUpdate>)> = Vec::new();
        for one in updates {
            match sessions.iter_mut().find(|(session, _)| *session == one.session()) {
                Some((_, updates)) => updates.push(one),
                None => sessions.push((one.session(), vec![one])),
            }
        }
        let shown = sessions.iter().map(|(session, updates)| self.render_session(*session, updates));
        let mut messages = Vec::new();
        for shown in join_all(shown).await {
            messages.extend(shown?);
        }
        Ok(messages)
    }

    async fn render_session(
        &self,
        session: Option<SessionId>,
        updates: &[&CardUpdate],
    ) -> Result<Vec<DesiredMessage>, StoreError> {
        let mut messages = Vec::new();
        let Some(session) = session else {
            for one in updates {
                if let CardUpdate::Prompt { id, arrived } = one {
                    messages.extend(self.prompt(id, *arrived).await?);
                }
            }
            return Ok(messages);
        };
        let mut requests: Vec<String> = updates.iter().filter_map(|one| one.request().cloned()).collect();
        requests.dedup();
        let Some(context) = self.scene(session, requests).await? else { return Ok(messages) };
        for (at, one) in updates.iter().enumerate() {
            // Rendered from the current state, the second result would be the same.
            if updates[..at].iter().any(|earlier| earlier.is_same_card(one)) {
                continue;
            }
            let shown = match one {
                CardUpdate::Clearance(_, id) => self.clearance(id, &context),
                CardUpdate::Question(_, id) => self.question(id, &context),
                CardUpdate::Stall { seq, change, .. } => {
                    self.stall(&context, *seq, change, &messages).await?
                }
                CardUpdate::Ended(_) => vec![self.ended(&context)],
                CardUpdate::Resumed { by, .. } => {
                    self.close_exit_cards(&context, by.as_deref(), &messages).await?
                }
                CardUpdate::TurnOver(turn) => self.turn_over(&context, turn, &messages).await?,
                CardUpdate::Note { seq, what, .. } => note(&context, *seq, what).into_iter().collect(),
                CardUpdate::Prompt { .. } => Vec::new(),
            };
            messages.extend(shown);
        }
        // Before all others: the sender posts a thread in the order of its rows.
        if !messages.is_empty() {
            messages.splice(0..0, context.missing_root());
        }
        Ok(messages)
    }

    /// Returns the rest of a turn's streamed text and its summary. If the last summary has not been sent yet, the new
    /// one takes its place and adds its counts.
    async fn turn_over(
        &self,
        context: &SessionContext,
        EndedTurn { seq, reason, allowed, read, .. }: &EndedTurn,
        before: &[DesiredMessage],
    ) -> Result<Vec<DesiredMessage>, StoreError> {
        let Some((streamed, turn)) = read else { return Ok(Vec::new()) };
        let mut messages = Vec::new();
        // The streamed text first: the thread shows it above the summary.
        for (name, text) in streamed {
            let before: Vec<DesiredMessage> = before.iter().chain(&messages).cloned().collect();
            messages.extend(self.streamed_message(context, name, text, &before).await?);
        }
        if !context.shows_turns() || turn.is_empty() {
            return Ok(messages);
        }
        // Short turns may end faster than Slack accepts messages: one summary for several beats a growing backlog.
        let last = self.cards(context.id, "turn ", before).await?.pop().filter(|last| last.waits);
        let (key, memo) = last.map_or_else(
            || (format!("turn {} {seq}", context.id), CardMemo::default()),
            |last| (last.key, CardMemo::read(&last.memo)),
        );
        let did = TurnCounts {
            turns: memo.did.turns + 1,
            tools: memo.did.tools + turn.tools,
            is_partial: memo.did.is_partial || turn.is_partial,
            allowed: memo.did.allowed + allowed,
        };
        // With `stream` the thread has the text already.
        let said = if context.streams() { String::new() } else { turn.said() };
        let card = card::turn(&key, &context.session, &said, Some(reason), did);
        messages.push(context.desired(&key, &card, false, CardMemo { did, ..CardMemo::default() }.text()));
        Ok(messages)
    }

    /// Returns the message with streamed text. Slack accepts about a message per second, and an agent's
    /// requests come after its text: if the agent writes more than that, unsent text makes room for newer
    /// text.
    pub(super) async fn streamed_message(
        &self,
        context: &SessionContext,
        name: &str,
        text: &str,
        before: &[DesiredMessage],
    ) -> Result<Option<DesiredMessage>, StoreError> {
        if !context.streams() || text.trim().is_empty() {
            return Ok(None);
        }
        let cards = self.cards(context.id, "talk ", before).await?;
        let waiting = cards.iter().filter(|card| card.waits).count();
        // A card that has this text already is edited. Otherwise an unsent card is overwritten once there are too many.
        let known = cards.iter().find(|card| card.memo == name);
        let instead = || cards.iter().rev().find(|card| card.waits).filter(|_| waiting >= MAX_WAITING_TALK);
        let key = known.or_else(instead).map(|card| card.key.clone());
        let own = format!("talk {} {name}", context.id);
        let key = key.unwrap_or_else(|| own.clone());
        let card = if key == own {
            card::talk(&key, &context.session, text)
        } else {
            card::talk(&key, &context.session, &format!("[…] {text}"))
        };
        Ok(Some(context.desired(&key, &card, false, name.to_owned())))
    }

    fn clearance(&self, id: &str, context: &SessionContext) -> Vec<DesiredMessage> {
        let Some(clearance) = context.clearances.iter().find(|clearance| *clearance.id == *id) else {
            return Vec::new();
        };
        let open = clearance.status == ClearanceStatus::Pending;
        // Decided before its card was rendered: it needs none, and the summary of the turn counts it.
        let (new, memo) = match context.known(id) {
            None if !open => return Vec::new(),
            None => (true, CardMemo { ping: self.mentioned_for(clearance, context), ..CardMemo::default() }),
            Some(known) => (false, CardMemo::read(&known.memo)),
        };
        let people = handlers::people(&self.access);
        let ping: &[String] = if open { &memo.ping } else { &[] };
        let card = card::clearance(&clearance.id, clearance, &context.session, &people, ping);
        // Decided before its card was sent: the store drops the unsent row.
        let upsert_rule = if open { UpsertRule::Claim } else { UpsertRule::OrForget };
        let mut messages =
            vec![DesiredMessage { upsert_rule, ..context.desired(&clearance.id, &card, open, memo.text()) }];
        // With the first version only: the content of a clearance is fixed.
        if new && (card::diff_is_cut(clearance) || card::command_is_cut(clearance)) {
            let key = format!("diff {}", clearance.id);
            let wanted = DesiredContent::Diff { clearance: clearance.id.to_string() }.text();
            messages.push(DesiredMessage { wanted, ..context.desired(&key, &card, false, String::new()) });
        }
        messages
    }

    fn mentioned_for(&self, clearance: &Clearance, context: &SessionContext) -> Vec<String> {
        mentions::initial_mentions(
            &self.access.config(),
            &context.here.ping,
            &unanswered_clearance(clearance),
            Time::now(),
        )
    }

    /// Returns those who may steer agents; nobody during quiet hours.
    fn operators_to_mention(&self, ping: &[String]) -> Vec<String> {
        let waits =
            UnansweredRequest { since: Time::now(), is_urgent: false, least: Role::Operator, whom: &[] };
        mentions::initial_mentions(&self.access.config(), ping, &waits, Time::now())
    }

    pub(super) fn operator_mentions(&self, ping: &[String]) -> MrkdwnText {
        let people = handlers::people(&self.access);
        MrkdwnText::join(self.operators_to_mention(ping).iter().filter_map(|name| people.ping(name)), " ")
    }

    fn question(&self, id: &str, context: &SessionContext) -> Vec<DesiredMessage> {
        let Some(question) = context.questions.iter().find(|question| *question.id == *id) else {
            return Vec::new();
        };
        let open = question.status == QuestionStatus::Pending;
        let memo = match context.known(id) {
            None if !open => return Vec::new(),
            None => CardMemo { ping: self.operators_to_mention(&context.here.ping), ..CardMemo::default() },
            Some(known) => CardMemo::read(&known.memo),
        };
        let ping: &[String] = if open { &memo.ping } else { &[] };
        let card =
            card::question(&question.id, question, &context.session, &handlers::people(&self.access), ping);
        let upsert_rule = if open { UpsertRule::Claim } else { UpsertRule::IfNew };
        vec![DesiredMessage { upsert_rule, ..context.desired(&question.id, &card, open, memo.text()) }]
    }

    /// Returns the newest cards of a session, oldest first: those of the store, updated with the messages of this
    /// batch, which are not stored yet.
    async fn cards(
        &self,
        session: SessionId,
        prefix: &str,
        before: &[DesiredMessage],
    ) -> Result<Vec<ExistingCard>, StoreError> {
        let stored = self.store.slack_newest(session, prefix).await?;
        let known = |card: SlackMessage| {
            let waits = card.ts.is_none() && card.tried.is_none();
            ExistingCard { key: card.key, open: card.open, waits, memo: card.memo }
        };
        let mut cards: Vec<ExistingCard> = stored.into_iter().map(known).collect();
        for desired in before
            .iter()
            .filter(|desired| desired.session == Some(session) && desired.key.starts_with(prefix))
        {
            let before = cards.iter().position(|card| card.key == desired.key).map(|at| cards.remove(at));
            let waits = before.is_none_or(|before| before.waits);
            cards.push(ExistingCard {
                key: desired.key.clone(),
                open: desired.open,
                waits,
                memo: desired.memo.clone(),
            });
        }
        Ok(cards)
    }

    /// Renders the card of a stall: one card per stall, edited with each step.
    async fn stall(
        &self,
        context: &SessionContext,
        seq: u64,
        change: &StallChange,
        before: &[DesiredMessage],
    ) -> Result<Vec<DesiredMessage>, StoreError> {
        // The newest open card is that of the current stall.
        let known = self.cards(context.id, "stall ", before).await?.into_iter().rev().find(|card| card.open);
        let event = match change {
            StallChange::Event(event) => Some(&**event),
            StallChange::SessionEnded => None,
        };
        let begins = matches!(event, Some(Event::StallStepTaken(_)));
        let (key, mut memo) = match known {
            Some(known) => (known.key, CardMemo::read(&known.memo)),
            None if begins => {
                let ping = self.operators_to_mention(&context.here.ping);
                (format!("stall {} {seq}", context.id), CardMemo { ping, ..CardMemo::default() })
            }
            None => return Ok(Vec::new()),
        };
        let shown = |text: &str| redact(text).text.into_owned();
        let mut escalates = false;
        let over = match event {
            Some(Event::StallStepTaken(taken)) => {
                escalates = taken.step == Rung::Escalate;
                memo.steps.push(format!("{}: {}", shown(&taken.name), shown(&taken.why)));
                None
            }
            Some(Event::StallStepFailed(failed)) => {
                memo.steps.push(format!("{} did not help", shown(&failed.name)));
                None
            }
            Some(Event::StallSnoozed(snoozed)) => {
                let what = match snoozed.until {
                    Some(until) => format!("snoozed until {}", utc(until)),
                    None => "watched again".to_owned(),
                };
                memo.steps.push(format!("{what} by {}", shown(&snoozed.by)));
                None
            }
            Some(Event::StallRecovered(recovered)) => Some(shown(&recovered.summary)),
            Some(Event::StallReset(reset)) => Some(format!("{} took over", shown(&reset.by))),
            None => Some("the session has ended".to_owned()),
            Some(_) => return Ok(Vec::new()),
        };
        if memo.steps.len() > MAX_STEPS {
            memo.steps.remove(1); // the first step shows how the stall began
        }
        let people = handlers::people(&self.access);
        let card = card::stall(&key, &context.session, &memo.steps, over.as_deref(), &people, &memo.ping);
        let mut messages = vec![context.desired(&key, &card, over.is_none(), memo.text())];
        // A message of its own: Slack notifies nobody about an edit.
        if escalates {
            let key = format!("note {} {seq}", context.id);
            let config = self.access.config();
            let none = config.slack.escalate_to.is_empty();
            let all = if none { &context.here.ping } else { &config.slack.escalate_to };
            let words = MrkdwnText::new("No step helped: this agent needs a person.");
            let words = MrkdwnText::join([self.operator_mentions(all), words], " ");
            messages.push(context.desired(&key, &card::note(&key, words), false, String::new()));
        }
        Ok(messages)
    }

    fn ended(&self, context: &SessionContext) -> DesiredMessage {
        // By generation, so that each exit of a session has a card of its own.
        let key = format!("exit {} {}", context.id, context.session.generation);
        let failed = context.session.exit.as_ref().is_none_or(|exit| exit.status.code != Some(0));
        let ping = if failed { context.here.ping.as_slice() } else { &[] };
        let ping = self.operators_to_mention(ping);
        let card = card::exit(&key, &context.session, None, &handlers::people(&self.access), &ping);
        // The memo has all that the card shows: once the session runs again, the store no longer has it.
        let s = &context.session;
        let memo = json!({
            "id": s.id, "name": s.name, "agent": s.agent, "workspace": s.workspace, "phase": s.phase,
            "ended_at": s.ended_at.map(|at| at.to_string()), "stderr_tail": s.stderr_tail,
            "exit": s.exit,
        });
        context.desired(&key, &card, true, memo.to_string())
    }

    /// Closes the exit cards of a session that was resumed: they must not offer *Restart*.
    async fn close_exit_cards(
        &self,
        context: &SessionContext,
        by: Option<&str>,
        before: &[DesiredMessage],
    ) -> Result<Vec<DesiredMessage>, StoreError> {
        let cards = self.cards(context.id, "exit ", before).await?;
        let again = format!("restarted by {}", by.unwrap_or("intercom"));
        let people = handlers::people(&self.access);
        let messages = cards.into_iter().filter(|card| card.open).filter_map(|known| {
            let then: Session = serde_json::from_str(&known.memo).ok()?;
            let card = card::exit(&known.key, &then, Some(&again), &people, &[]);
            Some(context.desired(&known.key, &card, false, known.memo))
        });
        Ok(messages.collect())
    }

    /// Updates the reaction to a queued reply once its prompt has arrived or failed.
    async fn prompt(&self, id: &str, arrived: bool) -> Result<Option<DesiredMessage>, StoreError> {
        let key = format!("react {id}");
        // Only prompts from Slack have a reaction.
        let Some(known) = self.store.slack_message(key.clone()).await? else { return Ok(None) };
        let Ok(DesiredContent::Reaction { of, name, .. }) = serde_json::from_str(&known.wanted) else {
            return Ok(None);
        };
        let now = if arrived { "white_check_mark" } else { "x" };
        if name == now {
            return Ok(None);
        }
        let reaction = DesiredContent::Reaction { of, name: now.to_owned(), instead_of: Some(name) };
        Ok(Some(reaction.outside_of_threads(key, known.session, known.channel)))
    }
}

impl CardUpdate {
    fn is_same_card(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Clearance(_, one), Self::Clearance(_, other))
            | (Self::Question(_, one), Self::Question(_, other)) => one == other,
            _ => false,
        }
    }

    /// Returns the request whose card it is.
    fn request(&self) -> Option<&String> {
        match self {
            Self::Clearance(_, id) | Self::Question(_, id) => Some(id),
            _ => None,
        }
    }

    /// Returns the session of an update; `None` for prompts, whose rows are found by the prompt's id.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Clearance(session, _)
            | Self::Question(session, _)
            | Self::Ended(session)
            | Self::Stall { session, .. }
            | Self::Resumed { session, .. }
            | Self::Note { session, .. } => Some(*session),
            Self::TurnOver(turn) => Some(turn.session),
            Self::Prompt { .. } => None,
        }
    }
}

/// A card in its last desired state.
struct ExistingCard {
    key: String,
    open: bool,
    /// True if no attempt was made to send it.
    waits: bool,
    memo: String,
}

/// The state that a card needs when it is rebuilt.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct CardMemo {
    /// The people whom it mentioned when it was new: an edit mentions nobody else.
    ping: Vec<String>,
    steps: Vec<String>,
    /// The counts that a summary shows.
    did: TurnCounts,
}

impl CardMemo {
    fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Formats a time as `2026-03-04 14:02 UTC`, for plain lines, where Slack shows no local times.
fn utc(time: Time) -> String {
    let time = time.to_string();
    format!("{} UTC", time.get(..16).unwrap_or(&time).replace('T', " "))
}

pub(super) fn unanswered_clearance(clearance: &Clearance) -> UnansweredRequest<'_> {
    let since = clearance.requested_at;
    let grave = !matches!(clearance.risk.known(), Some(Risk::Low | Risk::Medium));
    let whom = clearance.ruling.as_ref().map(|ruling| ruling.whom.as_slice()).unwrap_or_default();
    UnansweredRequest { since, is_urgent: grave, least: Role::Approver, whom }
}

fn note(context: &SessionContext, seq: u64, what: &ThreadNote) -> Option<DesiredMessage> {
    let said = |text: &str| MrkdwnText::untrusted(&redact(text).text).cut(300);
    let words = match what {
        ThreadNote::Unenforced(why) => {
            let why = why.as_deref().unwrap_or("it acts without requesting clearances");
            MrkdwnText::new("⚠ *Unenforced*: ")
                .and(said(why))
                .and(". Rules have no effect on an agent that does not ask.")
        }
        ThreadNote::Restarting(why) => {
            MrkdwnText::new("The agent has exited (").and(said(why)).and(") and is being restarted.")
        }
        ThreadNote::Limited(limit) => {
            MrkdwnText::new("The agent is waiting for its service: ").and(said(limit)).and(" limit.")
        }
        ThreadNote::LimitOver => MrkdwnText::new("The limit should have ended."),
        ThreadNote::Capped(why) => MrkdwnText::new("No new turn starts: ").and(said(why)).and("."),
        ThreadNote::StoppedBy(why) => MrkdwnText::new("⚫ The session was ").and(said(why)).and("."),
    };
    let loud = matches!(what, ThreadNote::Unenforced(_) | ThreadNote::Capped(_) | ThreadNote::StoppedBy(_));
    if context.here.verbosity == Verbosity::Quiet && !loud {
        return None;
    }
    let key = format!("note {} {seq}", context.id);
    Some(context.desired(&key, &card::note(&key, words), false, String::new()))
}
