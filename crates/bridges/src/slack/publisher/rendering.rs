//! From news to messages.

use futures_util::future::join_all;
use serde_json::json;

use super::turn_summary::TurnSummary;
use super::{CardPublisher, CardUpdate, PublisherState, StallChange, ThreadNote};
use crate::slack::block_kit::{CardMessage, MrkdwnText};
use crate::slack::card::{self, TurnCounts};
use crate::slack::handlers;
use crate::slack::mentions::{self, UnansweredRequest};
use crate::slack::sender::DesiredContent;
use intercom_daemon::config::{SessionSlackConfig, Verbosity};
use intercom_redact::redact;
use intercom_store::{DesiredMessage, SlackMessage, StoreError, UpsertRule};
use intercom_types::{Clearance, ClearanceStatus, Phase, QuestionStatus, Risk, Session};
use intercom_types::{Event, Role, Rung, SessionId, Time};

/// A session and what holds for it here.
pub(super) struct SessionContext {
    pub(super) id: SessionId,
    pub(super) session: Session,
    pub(super) here: SessionSlackConfig,
}

/// The most steps of a stall that are remembered.
const MAX_STEPS: usize = 30;
/// The most unsent messages with an agent's streamed text.
const MAX_WAITING_TALK: usize = 5;

impl SessionContext {
    fn root(&self) -> DesiredMessage {
        let key = self.id.to_string();
        let open = self.session.phase != Phase::Ended;
        self.want(&key, &card::status(&key, &self.session), open, String::new())
    }

    pub(super) fn want(&self, key: &str, message: &CardMessage, open: bool, memo: String) -> DesiredMessage {
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
    /// `None` if it has gone, or Slack is off for it.
    pub(super) async fn session_context(&self, id: SessionId) -> Result<Option<SessionContext>, StoreError> {
        let Some(session) = self.access.session(&id.to_string()).await? else { return Ok(None) };
        let workspace = session.workspace.clone();
        let Some(mut here) = self.access.config().slack_here(workspace.as_ref()) else { return Ok(None) };
        // A thread stays where it began, whatever is configured since.
        if let Some(root) = self.store.slack_message(id.to_string()).await? {
            here.channel = root.channel;
        }
        let asked = self.store.slack_verbosity(id).await?;
        here.verbosity = asked.and_then(|asked| asked.parse().ok()).unwrap_or(here.verbosity);
        Ok(Some(SessionContext { id, session, here }))
    }

    /// The status cards of these, as they are now.
    pub(super) async fn roots(
        &self,
        sessions: &[SessionId],
        mind: &mut PublisherState,
    ) -> Vec<DesiredMessage> {
        let scenes = join_all(sessions.iter().map(|id| self.session_context(*id))).await;
        let scenes = scenes.into_iter().filter_map(Result::ok).flatten();
        scenes
            .map(|scene| {
                mind.rooted.insert(scene.id);
                scene.root()
            })
            .collect()
    }

    /// A thread needs its root first.
    pub(super) async fn missing_root(
        &self,
        scene: &SessionContext,
        mind: &PublisherState,
    ) -> Result<Option<DesiredMessage>, StoreError> {
        if mind.rooted.contains(&scene.id) {
            return Ok(None);
        }
        let known = self.store.slack_message(scene.id.to_string()).await?.is_some();
        Ok((!known).then(|| scene.root()))
    }

    /// In order within a session; sessions beside each other, so that none waits for another's.
    pub(super) async fn render_all(
        &self,
        news: &[CardUpdate],
        mind: &mut PublisherState,
    ) -> Result<Vec<DesiredMessage>, StoreError> {
        let mut sessions: Vec<(Option<SessionId>, Vec<&CardUpdate>)> = Vec::new();
        for one in news {
            match sessions.iter_mut().find(|(session, _)| *session == one.session()) {
                Some((_, news)) => news.push(one),
                None => sessions.push((one.session(), vec![one])),
            }
        }
        let shown = {
            let mind = &*mind;
            join_all(sessions.iter().map(|(session, news)| self.render_session(*session, news, mind))).await
        };
        let mut wants = Vec::new();
        for shown in shown {
            wants.extend(shown?);
        }
        mind.rooted.extend(wants.iter().filter(|want| want.thread.is_some()).filter_map(|want| want.session));
        Ok(wants)
    }

    async fn render_session(
        &self,
        session: Option<SessionId>,
        news: &[&CardUpdate],
        mind: &PublisherState,
    ) -> Result<Vec<DesiredMessage>, StoreError> {
        let mut wants = Vec::new();
        let Some(session) = session else {
            for one in news {
                if let CardUpdate::Prompt { id, arrived } = one {
                    wants.extend(self.prompt(id, *arrived).await?);
                }
            }
            return Ok(wants);
        };
        let Some(scene) = self.session_context(session).await? else { return Ok(wants) };
        for (at, one) in news.iter().enumerate() {
            // Cards are made of how things are now: once is enough.
            if news[..at].iter().any(|earlier| earlier.is_same_card(one)) {
                continue;
            }
            let shown = match one {
                CardUpdate::Clearance(_, id) => self.clearance(id, &scene).await?,
                CardUpdate::Question(_, id) => self.question(id, &scene).await?,
                CardUpdate::Stall { seq, change, .. } => self.stall(&scene, *seq, change, &wants).await?,
                CardUpdate::Ended(_) => vec![self.ended(&scene)],
                CardUpdate::Resumed { by, .. } => {
                    self.close_exit_cards(&scene, by.as_deref(), &wants).await?
                }
                CardUpdate::TurnOver { seq, turn, reason, .. } => {
                    self.turn_over(&scene, *seq, turn, reason.as_deref(), &wants).await?.into_iter().collect()
                }
                CardUpdate::Talk { talk, .. } => self
                    .streamed_message(&scene, &talk.name(), &talk.text(), &wants)
                    .await?
                    .into_iter()
                    .collect(),
                CardUpdate::Note { seq, what, .. } => note(&scene, *seq, what).into_iter().collect(),
                CardUpdate::Prompt { .. } => Vec::new(),
            };
            wants.extend(shown);
        }
        if !wants.is_empty() {
            let root = self.missing_root(&scene, mind).await?;
            wants.splice(0..0, root);
        }
        Ok(wants)
    }

    /// Returns the summary of a turn. If the last summary has not been sent yet, the new one takes its place
    /// and adds its counts.
    async fn turn_over(
        &self,
        scene: &SessionContext,
        seq: u64,
        turn: &TurnSummary,
        reason: Option<&str>,
        before: &[DesiredMessage],
    ) -> Result<Option<DesiredMessage>, StoreError> {
        if scene.here.verbosity == Verbosity::Quiet || turn.is_empty() {
            return Ok(None);
        }
        let last = self.cards(scene.id, "turn ", before).await?.pop().filter(|last| last.waits);
        let (key, memo) = last.map_or_else(
            || (format!("turn {} {seq}", scene.id), CardMemo::default()),
            |last| (last.key, CardMemo::read(&last.memo)),
        );
        let did = TurnCounts {
            turns: memo.did.turns + 1,
            tools: memo.did.tools + turn.tools,
            allowed: memo.did.allowed + turn.allowed,
        };
        // Who reads along has read it.
        let streamed = scene.here.verbosity == Verbosity::Stream;
        let said = if streamed { String::new() } else { turn.said() };
        let card = card::turn(&key, &scene.session, &said, reason, did);
        Ok(Some(scene.want(&key, &card, false, CardMemo { did, ..CardMemo::default() }.text())))
    }

    /// Returns the message with streamed text. Slack accepts about a message per second, and an agent's
    /// requests come after its text: if the agent writes more than that, unsent text makes room for newer
    /// text.
    async fn streamed_message(
        &self,
        scene: &SessionContext,
        name: &str,
        text: &str,
        before: &[DesiredMessage],
    ) -> Result<Option<DesiredMessage>, StoreError> {
        if scene.here.verbosity != Verbosity::Stream || text.trim().is_empty() {
            return Ok(None);
        }
        let cards = self.cards(scene.id, "talk ", before).await?;
        let waiting = cards.iter().filter(|card| card.waits).count();
        let known = cards.iter().find(|card| card.memo == name);
        let instead = || cards.iter().rev().find(|card| card.waits).filter(|_| waiting >= MAX_WAITING_TALK);
        let key = known.or_else(instead).map(|card| card.key.clone());
        let own = format!("talk {} {name}", scene.id);
        let key = key.unwrap_or_else(|| own.clone());
        let card = if key == own {
            card::talk(&key, &scene.session, text)
        } else {
            card::talk(&key, &scene.session, &format!("[…] {text}"))
        };
        Ok(Some(scene.want(&key, &card, false, name.to_owned())))
    }

    async fn clearance(&self, id: &str, scene: &SessionContext) -> Result<Vec<DesiredMessage>, StoreError> {
        let Some(clearance) = self.access.clearance(id).await? else { return Ok(Vec::new()) };
        let known = self.store.slack_message(clearance.id.to_string()).await?;
        let open = clearance.status == ClearanceStatus::Pending;
        // What is over before anybody was asked needs no card: the turn's summary counts it.
        let (new, memo) = match known {
            None if !open => return Ok(Vec::new()),
            None => (true, CardMemo { ping: self.mentioned_for(&clearance, scene), ..CardMemo::default() }),
            Some(known) => (false, CardMemo::read(&known.memo)),
        };
        let people = handlers::people(&self.access);
        let ping: &[String] = if open { &memo.ping } else { &[] };
        let card = card::clearance(&clearance.id, &clearance, &scene.session, &people, ping);
        // Decided before anybody could see it: then nobody needs to.
        let wish = if open { UpsertRule::IfNew } else { UpsertRule::OrForget };
        let mut wants =
            vec![DesiredMessage { upsert_rule: wish, ..scene.want(&clearance.id, &card, open, memo.text()) }];
        if new && (card::diff_is_cut(&clearance) || card::command_is_cut(&clearance)) {
            let key = format!("diff {}", clearance.id);
            let wanted = DesiredContent::Diff { clearance: clearance.id.to_string() }.text();
            wants.push(DesiredMessage { wanted, ..scene.want(&key, &card, false, String::new()) });
        }
        Ok(wants)
    }

    fn mentioned_for(&self, clearance: &Clearance, scene: &SessionContext) -> Vec<String> {
        mentions::initial_mentions(
            &self.access.config(),
            &scene.here.ping,
            &unanswered_clearance(clearance),
            Time::now(),
        )
    }

    /// Those of them who may steer agents, unless they are to be left in peace now.
    fn operators_to_mention(&self, ping: &[String]) -> Vec<String> {
        let waits =
            UnansweredRequest { since: Time::now(), is_urgent: false, least: Role::Operator, whom: &[] };
        mentions::initial_mentions(&self.access.config(), ping, &waits, Time::now())
    }

    pub(super) fn operator_mentions(&self, ping: &[String]) -> MrkdwnText {
        let people = handlers::people(&self.access);
        MrkdwnText::join(self.operators_to_mention(ping).iter().filter_map(|name| people.ping(name)), " ")
    }

    async fn question(&self, id: &str, scene: &SessionContext) -> Result<Vec<DesiredMessage>, StoreError> {
        let Some(question) = self.access.question(id).await? else { return Ok(Vec::new()) };
        let known = self.store.slack_message(question.id.to_string()).await?;
        let open = question.status == QuestionStatus::Pending;
        let memo = match known {
            None if !open => return Ok(Vec::new()),
            None => CardMemo { ping: self.operators_to_mention(&scene.here.ping), ..CardMemo::default() },
            Some(known) => CardMemo::read(&known.memo),
        };
        let ping: &[String] = if open { &memo.ping } else { &[] };
        let card =
            card::question(&question.id, &question, &scene.session, &handlers::people(&self.access), ping);
        Ok(vec![scene.want(&question.id, &card, open, memo.text())])
    }

    /// The newest cards of a session, oldest first: those of the store, as what is to be stored with this one has them.
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
        for want in before.iter().filter(|want| want.session == Some(session) && want.key.starts_with(prefix))
        {
            let before = cards.iter().position(|card| card.key == want.key).map(|at| cards.remove(at));
            let waits = before.is_none_or(|before| before.waits);
            cards.push(ExistingCard {
                key: want.key.clone(),
                open: want.open,
                waits,
                memo: want.memo.clone(),
            });
        }
        Ok(cards)
    }

    /// One card for each time that it is stuck, edited as the ladder climbs.
    async fn stall(
        &self,
        scene: &SessionContext,
        seq: u64,
        change: &StallChange,
        before: &[DesiredMessage],
    ) -> Result<Vec<DesiredMessage>, StoreError> {
        let known = self.cards(scene.id, "stall ", before).await?.into_iter().rev().find(|card| card.open);
        let event = match change {
            StallChange::Event(event) => Some(&**event),
            StallChange::SessionEnded => None,
        };
        let begins = matches!(event, Some(Event::StallStepTaken(_)));
        let (key, mut memo) = match known {
            Some(known) => (known.key, CardMemo::read(&known.memo)),
            None if begins => {
                let ping = self.operators_to_mention(&scene.here.ping);
                (format!("stall {} {seq}", scene.id), CardMemo { ping, ..CardMemo::default() })
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
                    Some(until) => format!("left in peace until {}", utc(until)),
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
            memo.steps.remove(1);
        }
        let people = handlers::people(&self.access);
        let card = card::stall(&key, &scene.session, &memo.steps, over.as_deref(), &people, &memo.ping);
        let mut wants = vec![scene.want(&key, &card, over.is_none(), memo.text())];
        // Nobody is told of an edit.
        if escalates {
            let key = format!("note {} {seq}", scene.id);
            let config = self.access.config();
            let none = config.slack.escalate_to.is_empty();
            let all = if none { &scene.here.ping } else { &config.slack.escalate_to };
            let words = MrkdwnText::new("Nothing helped: this agent needs a person.");
            let words = MrkdwnText::join([self.operator_mentions(all), words], " ");
            wants.push(scene.want(&key, &card::note(&key, words), false, String::new()));
        }
        Ok(wants)
    }

    fn ended(&self, scene: &SessionContext) -> DesiredMessage {
        let key = format!("exit {} {}", scene.id, scene.session.generation);
        let failed = scene.session.exit.as_ref().is_none_or(|exit| exit.status.code != Some(0));
        let ping = if failed { scene.here.ping.as_slice() } else { &[] };
        let ping = self.operators_to_mention(ping);
        let card = card::exit(&key, &scene.session, None, &handlers::people(&self.access), &ping);
        // It cannot be made again once the session runs again.
        let s = &scene.session;
        let memo = json!({
            "id": s.id, "name": s.name, "agent": s.agent, "workspace": s.workspace, "phase": s.phase,
            "ended_at": s.ended_at.map(|at| at.to_string()), "stderr_tail": s.stderr_tail,
            "exit": s.exit,
        });
        scene.want(&key, &card, true, memo.to_string())
    }

    /// The cards that offer to start it again do not any more.
    async fn close_exit_cards(
        &self,
        scene: &SessionContext,
        by: Option<&str>,
        before: &[DesiredMessage],
    ) -> Result<Vec<DesiredMessage>, StoreError> {
        let cards = self.cards(scene.id, "exit ", before).await?;
        let again = format!("restarted by {}", by.unwrap_or("intercom"));
        let people = handlers::people(&self.access);
        let wants = cards.into_iter().filter(|card| card.open).filter_map(|known| {
            let then: Session = serde_json::from_str(&known.memo).ok()?;
            let card = card::exit(&known.key, &then, Some(&again), &people, &[]);
            Some(scene.want(&known.key, &card, false, known.memo))
        });
        Ok(wants.collect())
    }

    pub(super) async fn talk(
        &self,
        id: SessionId,
        name: &str,
        text: &str,
        mind: &mut PublisherState,
    ) -> Vec<DesiredMessage> {
        let Ok(Some(scene)) = self.session_context(id).await else { return Vec::new() };
        let Ok(Some(want)) = self.streamed_message(&scene, name, text, &[]).await else { return Vec::new() };
        let root = self.missing_root(&scene, mind).await.ok().flatten();
        root.into_iter().chain([want]).collect()
    }

    /// A reply that was queued has arrived, or never will.
    async fn prompt(&self, id: &str, arrived: bool) -> Result<Option<DesiredMessage>, StoreError> {
        let key = format!("react {id}");
        let Some(known) = self.store.slack_message(key.clone()).await? else { return Ok(None) };
        let Ok(DesiredContent::Reaction { of, name, .. }) = serde_json::from_str(&known.wanted) else {
            return Ok(None);
        };
        let now = if arrived { "white_check_mark" } else { "x" };
        if name == now {
            return Ok(None);
        }
        let wanted = DesiredContent::Reaction { of, name: now.to_owned(), instead_of: Some(name) }.text();
        let (channel, memo, session) = (known.channel, String::new(), known.session);
        Ok(Some(DesiredMessage {
            key,
            session,
            channel,
            thread: None,
            wanted,
            open: false,
            memo,
            upsert_rule: UpsertRule::IfNew,
        }))
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

    /// Prompts are found by their own names.
    fn session(&self) -> Option<SessionId> {
        match self {
            Self::Clearance(session, _)
            | Self::Question(session, _)
            | Self::Ended(session)
            | Self::Stall { session, .. }
            | Self::Resumed { session, .. }
            | Self::TurnOver { session, .. }
            | Self::Talk { session, .. }
            | Self::Note { session, .. } => Some(*session),
            Self::Prompt { .. } => None,
        }
    }
}

/// A card as it was last wanted.
struct ExistingCard {
    key: String,
    open: bool,
    /// Slack has nothing of it yet.
    waits: bool,
    memo: String,
}

/// The state that a card needs when it is rebuilt.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct CardMemo {
    /// Whom it called when it was new: an edit calls nobody else.
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

/// `2026-03-04 14:02 UTC`: in a list of plain lines, which Slack does not turn into local times.
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

fn note(scene: &SessionContext, seq: u64, what: &ThreadNote) -> Option<DesiredMessage> {
    let said = |text: &str| MrkdwnText::untrusted(&redact(text).text).cut(300);
    let words = match what {
        ThreadNote::Unenforced(why) => {
            let why = why.as_deref().unwrap_or("it acts without ever having asked for a clearance");
            MrkdwnText::new("⚠ *Unenforced*: ")
                .and(said(why))
                .and(". Rules cannot bind an agent that does not ask.")
        }
        ThreadNote::Restarting(why) => {
            MrkdwnText::new("The agent has ended (").and(said(why)).and(") and is started again.")
        }
        ThreadNote::Limited(limit) => {
            MrkdwnText::new("The agent waits for its service: ").and(said(limit)).and(" limit.")
        }
        ThreadNote::LimitOver => MrkdwnText::new("The limit should be over."),
        ThreadNote::Capped(why) => MrkdwnText::new("No new turn begins: ").and(said(why)).and("."),
        ThreadNote::StoppedBy(why) => MrkdwnText::new("⚫ The session was ").and(said(why)).and("."),
    };
    let loud = matches!(what, ThreadNote::Unenforced(_) | ThreadNote::Capped(_) | ThreadNote::StoppedBy(_));
    if scene.here.verbosity == Verbosity::Quiet && !loud {
        return None;
    }
    let key = format!("note {} {seq}", scene.id);
    Some(scene.want(&key, &card::note(&key, words), false, String::new()))
}
