//! One session, told to one client: reads the log at the client's pace, says it in the protocol's words, asks what is open,
//! and answers prompts when their turns end.
//!
//! ```text
//!            orders of the client
//!                   ▼
//!   log ─► hear ─► out ─► room in the outbox ─► client
//! ```
//! Orders come first, also while the client does not read: a cancel must not wait for what it cancels. Only a replay, which the
//! client has asked for, is told to its end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::ask::{self, Ask};
use super::client::{Attached, Client};
use super::offer;
use super::prompts::{Answered, Prompts, cancelled};
use super::queue::{About, Gone};
use super::refusal::Refusal;
use super::speak::{self, Control, Voice};
use crate::viewer_log::{ViewerLog, redacted};
use intercom_store::bus::Ear;
use intercom_store::{Found, Store};
use intercom_types::event::{AgentSetting, PromptSending};
use intercom_types::{Event, EventKind, Json, LoggedEvent, RequestId, Role, SessionId, Time};
use intercom_wire::acp::{method, send, tell};
use intercom_wire::jsonrpc;

mod orders;

/// Events read in one go.
const BATCH: usize = 256;
/// Orders that wait; whoever gives more waits.
pub(super) const ORDERS: usize = 64;
/// The limit on open clearances and questions.
const MANY: usize = 1000;
/// The limit on prompts that a turn began with.
const FEW: usize = 8;
/// Without any news, while a prompt waits for its answer.
const LOOK: Duration = Duration::from_secs(3);
/// After the log could not be read.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// A client's order about its session.
#[derive(Debug)]
pub(super) enum Order {
    Prompt {
        request: RequestId,
        /// The client's own id for the prompt; the client may have sent the prompt before, to an earlier
        /// daemon.
        id: Option<String>,
        blocks: Vec<Json>,
    },
    /// The turn, and what the client has in the queue.
    Cancel { request: Option<RequestId> },
    /// It does not want this answer any more.
    Forget(RequestId),
    /// All of it again, then this answer.
    Replay(Line),
    /// The remaining news, then this answer, and no more.
    Finish(Option<Line>),
}

/// A message, and what goes with it.
pub(super) type Line = (String, About);

/// The start of a feed.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) answer: Option<Line>,
    pub(super) history: History,
    /// The options that the answer tells.
    pub(super) options: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum History {
    /// Told before the answer.
    Before,
    /// Told after it.
    After,
    /// A new session: all of it is news.
    News,
    /// Not told; what came after this is news.
    Since(Option<u64>),
}

#[derive(Debug)]
pub(super) struct Feed {
    client: Arc<Client>,
    /// Counted as long as we are there.
    _attached: Attached,
    session: SessionId,
    hosted: bool,
    voice: Voice,
    orders: mpsc::Receiver<Order>,
    ear: Ear,
    after: u64,
    out: VecDeque<Line>,
    prompts: Prompts,
    /// To be asked once all that there is was heard: what a rule decides is not asked.
    asks: Vec<Ask>,
    /// All that there is was heard.
    caught_up: bool,
    /// Modes that are being set and that the agent has not told of, by their number.
    modes: BTreeMap<u64, String>,
    /// The options that the client knows.
    options: Option<Value>,
    /// The filter that hides secrets from a viewer.
    viewer: ViewerLog,
}

impl Feed {
    pub(super) fn new(
        client: Arc<Client>,
        attached: Attached,
        session: SessionId,
        hosted: bool,
        orders: mpsc::Receiver<Order>,
    ) -> Self {
        let ear = client.acp().0.ops.bell().listen_to(session);
        Self {
            client,
            _attached: attached,
            session,
            hosted,
            voice: Voice::new(session.to_string(), hosted),
            orders,
            ear,
            after: 0,
            out: VecDeque::new(),
            prompts: Prompts::default(),
            asks: Vec::new(),
            caught_up: false,
            modes: BTreeMap::new(),
            options: None,
            viewer: ViewerLog::default(),
        }
    }

    /// Until the client goes, or does not want it any more.
    pub(super) async fn run(mut self, opening: Opening) {
        if self.tell_all(opening).await.is_err() {
            self.orders.close();
            self.client.forget_ended(self.session);
        }
    }

    async fn tell_all(&mut self, opening: Opening) -> Result<(), Gone> {
        self.open(opening).await?;
        let store = self.client.acp().0.ops.supervisor().store().clone();
        let outbox = self.client.outbox().clone();
        loop {
            let size = self.out.front().map(|(text, _)| text.len());
            let looks = size.is_none() && !self.prompts.is_empty();
            let news = next(&store, self.session, self.after, &mut self.ear, &mut self.caught_up);
            tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(Order::Finish(answer)) => return self.finish(answer).await,
                    Some(order) => self.serve(order).await?,
                    None => return Err(Gone),
                },
                () = until(self.prompts.deadline()) => {
                    let late = self.prompts.expire(Time::now());
                    self.answer(late);
                }
                room = outbox.room(size.unwrap_or(0)), if size.is_some() => {
                    if let Some((text, about)) = self.out.pop_front() {
                        room?.put(text, about);
                    }
                }
                events = news, if size.is_none() => {
                    self.caught_up = events.is_empty();
                    for event in events {
                        self.hear(event).await;
                    }
                    if self.caught_up {
                        self.ask();
                    }
                }
                () = tokio::time::sleep(LOOK), if looks => self.look().await,
            }
        }
    }

    /// A session that was removed, with its log, tells nobody how it ended.
    async fn look(&mut self) {
        let id = self.session.to_string();
        // Not by the API, which would look at its processes as well, every time.
        let found = self.client.acp().0.ops.supervisor().store().session(id.clone()).await;
        if matches!(found, Ok(Found::None)) {
            let left = self.prompts.all(&Err(Refusal::no_session(&id)), Time::now());
            self.answer(left);
        }
    }

    async fn open(&mut self, opening: Opening) -> Result<(), Gone> {
        let newest = self.client.acp().0.ops.bell().listen().newest();
        let Opening { answer, history, options } = opening;
        self.options = options;
        // A relay that hears nothing else before we go knows from the answer where to go on.
        let told = match history {
            History::Before => newest,
            History::After | History::News => 0,
            History::Since(after) => after.unwrap_or(newest).min(newest),
        };
        let answer = answer.map(|(text, about)| (text, About { seq: Some(told), ..about }));
        match history {
            History::Before => {
                self.replay(newest).await?;
                self.put(answer).await?;
            }
            History::After => {
                self.put(answer).await?;
                self.replay(newest).await?;
            }
            History::News | History::Since(_) => self.put(answer).await?,
        }
        self.after = if history == History::After { newest } else { told };
        if history != History::News {
            self.find_turn().await;
            self.find_open().await;
        }
        Ok(())
    }

    async fn put(&self, line: Option<Line>) -> Result<(), Gone> {
        match line {
            Some((text, about)) => self.client.outbox().put(text, about).await,
            None => Ok(()),
        }
    }

    /// Replays the agent's messages and prompts up to `up_to`. Nothing is asked, and nothing is answered.
    async fn replay(&mut self, up_to: u64) -> Result<(), Gone> {
        let (store, mut after) = (self.client.acp().0.ops.supervisor().store().clone(), 0);
        let mut voice = Voice::new(self.session.to_string(), self.hosted);
        let mut log = ViewerLog::default();
        loop {
            let batch = read(&store, self.session, after).await;
            let Some(last) = batch.last().map(|event| event.seq).filter(|_| after < up_to) else {
                // What is held is told with the news.
                self.viewer = log;
                return Ok(());
            };
            for event in batch.into_iter().take_while(|event| event.seq <= up_to) {
                // What is set by now is in the answer, with what is ours.
                if self.hosted
                    && event.known_kind() == Some(EventKind::Update)
                    && speak::control(&event.data).is_some()
                {
                    continue;
                }
                for event in self.released(&mut log, event).await {
                    self.replay_one(&mut voice, &event).await?;
                }
            }
            after = last;
        }
    }

    async fn replay_one(&self, voice: &mut Voice, event: &LoggedEvent) -> Result<(), Gone> {
        let mut lines = voice.tell(event);
        if let Event::PromptSending(sending) = event.event()
            && let Some(content) = self.content_of(&sending).await
        {
            lines.extend(voice.was_asked(&content));
            voice.prompted(&content);
        }
        let last = lines.len().saturating_sub(1);
        for (n, line) in lines.into_iter().enumerate() {
            let seq = (n == last).then_some(event.seq);
            self.put(Some((line, About { seq, ..self.about() }))).await?;
        }
        Ok(())
    }

    /// Finds the pending clearances and questions.
    async fn find_open(&mut self) {
        const KINDS: &[EventKind] = &[EventKind::ClearanceRequested, EventKind::QuestionAsked];
        let Ok(seen) = self.client.session(&self.session).await else { return };
        if seen.pending.clearances == 0 && seen.pending.questions == 0 {
            return;
        }
        let store = self.client.acp().0.ops.supervisor().store().clone();
        let mut open = Vec::new();
        let (reads, session) = (self.client.reads(), Some(&*self.session));
        let clearances = reads.pending_clearances(session).await.unwrap_or_default();
        let questions = reads.pending_questions(session).await.unwrap_or_default();
        open.extend(clearances.iter().map(|clearance| clearance.id.to_string()));
        open.extend(questions.iter().map(|question| question.id.to_string()));
        for event in store.events_of(self.session, KINDS, self.after, MANY).await.unwrap_or_default() {
            let event = self.fit(event);
            if let Some(ask) = self.asks_for(&event.event()).filter(|ask| open.contains(&ask.id)) {
                self.asks.push(ask);
            }
        }
    }

    /// Returns the event with the content that this client may see.
    fn fit(&self, event: LoggedEvent) -> LoggedEvent {
        if self.is_viewer() { redacted(event) } else { event }
    }

    fn is_viewer(&self) -> bool {
        self.client.caller().role == Role::Viewer
    }

    /// Returns the events that may be sent once this one has arrived: streamed text waits until it is clear
    /// that it holds no secret.
    async fn released(&self, log: &mut ViewerLog, event: LoggedEvent) -> Vec<LoggedEvent> {
        if !self.is_viewer() {
            return vec![event];
        }
        let store = self.client.acp().0.ops.supervisor().store().clone();
        loop {
            let mut out = Vec::new();
            match log.push(&store, event.clone(), &mut out).await {
                Ok(()) => return out,
                Err(error) => {
                    tracing::warn!(%error, "an ACP client's log cannot be read; it is tried again");
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        }
    }

    fn about(&self) -> About {
        About { session: Some(self.session), ..About::default() }
    }

    fn say(&mut self, line: String) {
        let about = self.about();
        self.out.push_back((line, about));
    }

    fn asks_for(&self, event: &Event) -> Option<Ask> {
        if !self.client.is_asked() {
            return None;
        }
        ask::of(event, self.hosted, self.client.forms(), self.client.caller().role)
    }

    async fn hear(&mut self, event: LoggedEvent) {
        self.after = event.seq;
        let mut log = std::mem::take(&mut self.viewer);
        let released = self.released(&mut log, event).await;
        self.viewer = log;
        for event in released {
            self.tell_of(event).await;
        }
    }

    async fn tell_of(&mut self, event: LoggedEvent) {
        let before = self.out.len();
        self.make_of(&event).await;
        // Whoever has heard the last of it has heard all of it.
        let mut made = self.out.iter_mut().skip(before).rev().map(|(_, about)| about);
        if let Some(last) = made.next() {
            last.seq = Some(event.seq);
        }
    }

    async fn make_of(&mut self, logged: &LoggedEvent) {
        let event = logged.event();
        match &event {
            Event::PromptSending(sending) => {
                let theirs = !self.prompts.has(sending.prompt);
                if let Some(content) = self.content_of(sending).await {
                    for line in self.voice.was_asked(&content).into_iter().filter(|_| theirs) {
                        self.say(line);
                    }
                    self.voice.prompted(&content);
                }
            }
            Event::SessionPresetChanged(_) | Event::AgentReady(_) | Event::SessionAgentChanged(_) => {
                self.tell_controls(&event).await;
            }
            Event::AgentSetting(AgentSetting { mode: Some(mode), set, .. }) => {
                self.modes.insert(*set, mode.clone());
                while self.modes.len() > ORDERS {
                    self.modes.pop_first();
                }
            }
            // Not every agent tells that its mode is another one.
            Event::SettingAccepted(accepted) => {
                if let Some(mode) = accepted.set.and_then(|set| self.modes.remove(&set)) {
                    self.say(self.voice.mode_is(&mode));
                }
            }
            Event::Update(_) if self.hosted => match speak::control(&logged.data) {
                Some(Control::Mode) => self.modes.clear(),
                // All of them are told: the agent's, and ours.
                Some(Control::Options) => return self.tell_controls(&event).await,
                None => {}
            },
            _ => {}
        }
        for line in self.voice.tell_event(logged.seq, &event) {
            self.say(line);
        }
        if let Some(ask) = self.asks_for(&event) {
            self.asks.push(ask);
        }
        if let Some(id) = ask::closed_by(&event) {
            self.asks.retain(|ask| ask.id != id);
            if self.client.take_asked(&id).is_some() {
                self.say(send::cancel_request(&RequestId::text(&id)));
            }
        }
        if matches!(event, Event::SessionEnded(_) | Event::SessionParked(_)) {
            self.empty_queue().await;
        }
        let answered = self.prompts.hear(logged);
        self.answer(answered);
    }

    /// Withdraws the client's queued prompts; each gets the answer that it will not run.
    async fn empty_queue(&self) {
        for prompt in self.prompts.queued() {
            self.client.ops().take_back(self.client.caller(), &prompt, None).await.ok(); // it may have left
        }
    }

    /// Sends the open requests to the client, each once.
    fn ask(&mut self) {
        for ask in std::mem::take(&mut self.asks) {
            let Ask { id, method, params, about } = ask;
            if self.client.asks(&id, self.session, about) {
                let line = tell::asked(&RequestId::text(&id), method, &params, self.voice.session());
                self.say(line);
            }
        }
    }

    fn answer(&mut self, answered: Vec<Answered>) {
        for Answered { request, outcome, millis } in answered {
            self.client.acp().0.figures.prompt_over(&outcome, millis);
            let line = match outcome {
                Ok(result) => jsonrpc::result(&request, &result),
                Err(refusal) => self.client.in_words(refusal).line(&request),
            };
            let answers = Some((request, method::SESSION_PROMPT.to_owned()));
            self.out.push_back((line, About { answers, ..self.about() }));
        }
    }

    /// The content of the prompt that leaves the queue.
    async fn content_of(&self, sending: &PromptSending) -> Option<Json> {
        let id = sending.prompt;
        let store = self.client.acp().0.ops.supervisor().store();
        let Ok(Found::One(prompt)) = store.prompt(id.to_string()).await else { return None };
        let content = store.content(id).await.ok().flatten();
        let words = || Json::of(&json!([{ "type": "text", "text": prompt.text }]));
        Some(content.map_or_else(words, |content| content.as_json().clone()))
    }

    /// The turn that runs by now, for whoever joins in the middle of it.
    async fn find_turn(&mut self) {
        const KINDS: &[EventKind] = &[EventKind::TurnStarted, EventKind::TurnEnded, EventKind::PromptSending];
        let store = self.client.acp().0.ops.supervisor().store().clone();
        for event in store.events_of(self.session, KINDS, self.after, FEW).await.unwrap_or_default() {
            self.voice.tell(&event);
            if let Event::PromptSending(sending) = event.event()
                && let Some(content) = self.content_of(&sending).await
            {
                self.voice.prompted(&content);
            }
        }
    }

    /// Modes and options, after something about them has changed.
    async fn tell_controls(&mut self, event: &Event) {
        let Ok(seen) = self.client.session(&self.session).await else { return };
        let told = self.client.told(&seen).await;
        let profiles = self.client.profiles().await.unwrap_or_default();
        if matches!(event, Event::SessionPresetChanged(_)) && offer::has_our_modes(&seen, told.as_ref()) {
            self.say(self.voice.mode_is(&seen.preset));
        }
        let options = offer::options(&seen, told.as_ref(), &profiles);
        if self.options.as_ref() != Some(&options) {
            self.say(self.voice.options_are(&options));
            self.options = Some(options);
        }
    }

    /// Sends the remaining news; requests without an answer by then never get one from this client's session.
    async fn finish(&mut self, answer: Option<Line>) -> Result<(), Gone> {
        self.empty_queue().await;
        let store = self.client.acp().0.ops.supervisor().store().clone();
        loop {
            self.flush().await?;
            let events = read(&store, self.session, self.after).await;
            if events.is_empty() {
                break;
            }
            for event in events {
                self.hear(event).await;
            }
        }
        let left = self.prompts.all(&cancelled(), Time::now());
        self.answer(left);
        for id in self.client.withdraw(self.session) {
            self.say(send::cancel_request(&RequestId::text(&id)));
        }
        self.out.extend(answer);
        self.refuse_orders().await;
        self.flush().await
    }

    /// Sends all pending messages, however long the client takes to read.
    async fn flush(&mut self) -> Result<(), Gone> {
        while let Some((text, about)) = self.out.pop_front() {
            self.client.outbox().put(text, about).await?;
        }
        Ok(())
    }

    /// Answers the orders that arrived in the moment in which the session ended.
    async fn refuse_orders(&mut self) {
        self.orders.close();
        while let Some(order) = self.orders.recv().await {
            match order {
                Order::Prompt { request, .. } => {
                    let closed = Refusal::request("the session was closed meanwhile");
                    self.answer(vec![Answered::at_once(request, closed)]);
                }
                Order::Cancel { request: Some(request) } => self.cancelled(request),
                Order::Replay(answer) | Order::Finish(Some(answer)) => self.out.push_back(answer),
                Order::Cancel { request: None } | Order::Forget(_) | Order::Finish(None) => {}
            }
        }
    }
}

async fn until(at: Option<Time>) {
    match at {
        Some(at) => tokio::time::sleep(at.since(Time::now())).await,
        None => std::future::pending().await,
    }
}

/// Returns the events after `after`; waits for a ring first if there were none the last time. It may be
/// dropped at any point: a ring that was heard is remembered.
async fn next(
    store: &Store,
    session: SessionId,
    after: u64,
    ear: &mut Ear,
    wait: &mut bool,
) -> Vec<LoggedEvent> {
    if *wait && !ear.hear().await {
        return std::future::pending().await; // the daemon ends
    }
    *wait = false;
    read(store, session, after).await
}

/// Tries until it can be read: it may work again in a moment, and a client should not have to know.
async fn read(store: &Store, session: SessionId, after: u64) -> Vec<LoggedEvent> {
    loop {
        match store.events(Some(after), Some(session), BATCH).await {
            Ok(events) => return events.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, after, "an ACP client's log cannot be read; it is tried again");
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}
