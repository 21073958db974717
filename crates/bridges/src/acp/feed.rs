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

use super::capabilities;
use super::client::{AttachGuard, ClientState};
use super::client_requests::{self, ClientRequest};
use super::prompts::{PromptReply, PromptTracker, cancelled};
use super::queue::{ConnectionClosed, MessageMeta};
use super::refusal::RpcRefusal;
use super::update_encoder::{self, ControlKind, UpdateEncoder};
use intercom_daemon::ops::{LogReader, ViewerLog, redacted};
use intercom_store::bus::BellListener;
use intercom_types::event::{AgentSetting, PromptSending};
use intercom_types::{Event, EventKind, Json, LoggedEvent, RequestId, Role, SessionId, Time};
use intercom_wire::acp::{client_messages, method, send};
use intercom_wire::jsonrpc;

mod commands;

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
pub(super) enum FeedCommand {
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
    Replay(OutgoingLine),
    /// The remaining news, then this answer, and no more.
    Finish(Option<OutgoingLine>),
}

/// A message, and what goes with it.
pub(super) type OutgoingLine = (String, MessageMeta);

/// The start of a feed.
#[derive(Debug)]
pub(super) struct FeedOpening {
    pub(super) answer: Option<OutgoingLine>,
    pub(super) history: HistoryMode,
    /// The options that the answer tells.
    pub(super) options: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HistoryMode {
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
pub(super) struct SessionFeed {
    client: Arc<ClientState>,
    /// Counted as long as we are there.
    _attached: AttachGuard,
    session: SessionId,
    hosted: bool,
    encoder: UpdateEncoder,
    orders: mpsc::Receiver<FeedCommand>,
    ear: BellListener,
    after: u64,
    out: VecDeque<OutgoingLine>,
    prompts: PromptTracker,
    /// To be asked once all that there is was heard: what a rule decides is not asked.
    open_requests: Vec<ClientRequest>,
    /// All that there is was heard.
    caught_up: bool,
    /// Modes that are being set and that the agent has not told of, by their number.
    modes: BTreeMap<u64, String>,
    /// The options that the client knows.
    options: Option<Value>,
    /// The filter that hides secrets from a viewer.
    viewer: ViewerLog,
}

impl SessionFeed {
    pub(super) fn new(
        client: Arc<ClientState>,
        attached: AttachGuard,
        session: SessionId,
        hosted: bool,
        orders: mpsc::Receiver<FeedCommand>,
    ) -> Self {
        let ear = client.acp().0.ops.bell().listen_to(session);
        Self {
            client,
            _attached: attached,
            session,
            hosted,
            encoder: UpdateEncoder::new(session.to_string(), hosted),
            orders,
            ear,
            after: 0,
            out: VecDeque::new(),
            prompts: PromptTracker::default(),
            open_requests: Vec::new(),
            caught_up: false,
            modes: BTreeMap::new(),
            options: None,
            viewer: ViewerLog::default(),
        }
    }

    /// Until the client goes, or does not want it any more.
    pub(super) async fn run(mut self, opening: FeedOpening) {
        if self.tell_all(opening).await.is_err() {
            self.orders.close();
            self.client.forget_ended(self.session);
        }
    }

    async fn tell_all(&mut self, opening: FeedOpening) -> Result<(), ConnectionClosed> {
        self.open(opening).await?;
        let log = self.client.log();
        let outbox = self.client.outbox().clone();
        loop {
            let size = self.out.front().map(|(text, _)| text.len());
            let looks = size.is_none() && !self.prompts.is_empty();
            let news = next(&log, self.session, self.after, &mut self.ear, &mut self.caught_up);
            tokio::select! {
                biased;
                order = self.orders.recv() => match order {
                    Some(FeedCommand::Finish(answer)) => return self.finish(answer).await,
                    Some(order) => self.serve(order).await?,
                    None => return Err(ConnectionClosed),
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
        if matches!(self.client.log().session(self.session).await, Ok(None)) {
            let left = self.prompts.all(&Err(RpcRefusal::no_session(&id)), Time::now());
            self.answer(left);
        }
    }

    async fn open(&mut self, opening: FeedOpening) -> Result<(), ConnectionClosed> {
        let newest = self.client.acp().0.ops.bell().listen().newest();
        let FeedOpening { answer, history, options } = opening;
        self.options = options;
        // A relay that hears nothing else before we go knows from the answer where to go on.
        let told = match history {
            HistoryMode::Before => newest,
            HistoryMode::After | HistoryMode::News => 0,
            HistoryMode::Since(after) => after.unwrap_or(newest).min(newest),
        };
        let answer = answer.map(|(text, about)| (text, MessageMeta { seq: Some(told), ..about }));
        match history {
            HistoryMode::Before => {
                self.replay(newest).await?;
                self.put(answer).await?;
            }
            HistoryMode::After => {
                self.put(answer).await?;
                self.replay(newest).await?;
            }
            HistoryMode::News | HistoryMode::Since(_) => self.put(answer).await?,
        }
        self.after = if history == HistoryMode::After { newest } else { told };
        if history != HistoryMode::News {
            self.find_turn().await;
            self.find_open().await;
        }
        Ok(())
    }

    async fn put(&self, line: Option<OutgoingLine>) -> Result<(), ConnectionClosed> {
        match line {
            Some((text, about)) => self.client.outbox().put(text, about).await,
            None => Ok(()),
        }
    }

    /// Replays the agent's messages and prompts up to `up_to`. Nothing is asked, and nothing is answered.
    async fn replay(&mut self, up_to: u64) -> Result<(), ConnectionClosed> {
        let (reader, mut after) = (self.client.log(), 0);
        let mut voice = UpdateEncoder::new(self.session.to_string(), self.hosted);
        let mut log = ViewerLog::default();
        loop {
            let batch = read(&reader, self.session, after).await;
            let Some(last) = batch.last().map(|event| event.seq).filter(|_| after < up_to) else {
                // What is held is told with the news.
                self.viewer = log;
                return Ok(());
            };
            for event in batch.into_iter().take_while(|event| event.seq <= up_to) {
                // What is set by now is in the answer, with what is ours.
                if self.hosted
                    && event.known_kind() == Some(EventKind::Update)
                    && update_encoder::control(&event.data).is_some()
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

    async fn replay_one(
        &self,
        voice: &mut UpdateEncoder,
        event: &LoggedEvent,
    ) -> Result<(), ConnectionClosed> {
        let mut lines = voice.encode_logged(event);
        if let Event::PromptSending(sending) = event.event()
            && let Some(content) = self.content_of(&sending).await
        {
            lines.extend(voice.prompt_chunks(&content));
            voice.note_prompt(&content);
        }
        let last = lines.len().saturating_sub(1);
        for (n, line) in lines.into_iter().enumerate() {
            let seq = (n == last).then_some(event.seq);
            self.put(Some((line, MessageMeta { seq, ..self.about() }))).await?;
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
        let log = self.client.log();
        let mut open = Vec::new();
        let (reads, session) = (self.client.reads(), Some(&*self.session));
        let clearances = reads.pending_clearances(session).await.unwrap_or_default();
        let questions = reads.pending_questions(session).await.unwrap_or_default();
        open.extend(clearances.iter().map(|clearance| clearance.id.to_string()));
        open.extend(questions.iter().map(|question| question.id.to_string()));
        for event in log.events_of(self.session, KINDS, self.after, MANY).await.unwrap_or_default() {
            let event = self.fit(event);
            if let Some(ask) = self.asks_for(&event.event()).filter(|ask| open.contains(&ask.id)) {
                self.open_requests.push(ask);
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
        let reader = self.client.log();
        loop {
            let mut out = Vec::new();
            match log.push(&reader, event.clone(), &mut out).await {
                Ok(()) => return out,
                Err(error) => {
                    tracing::warn!(%error, "an ACP client's log cannot be read; it is tried again");
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        }
    }

    fn about(&self) -> MessageMeta {
        MessageMeta { session: Some(self.session), ..MessageMeta::default() }
    }

    fn say(&mut self, line: String) {
        let about = self.about();
        self.out.push_back((line, about));
    }

    fn asks_for(&self, event: &Event) -> Option<ClientRequest> {
        if !self.client.is_asked() {
            return None;
        }
        client_requests::request_for(event, self.hosted, self.client.forms(), self.client.caller().role)
    }

    async fn hear(&mut self, event: LoggedEvent) {
        self.after = event.seq;
        let mut log = std::mem::take(&mut self.viewer);
        let released = self.released(&mut log, event).await;
        self.viewer = log;
        for event in released {
            self.enqueue_event(event).await;
        }
    }

    async fn enqueue_event(&mut self, event: LoggedEvent) {
        let before = self.out.len();
        self.encode_event(&event).await;
        // Whoever has heard the last of it has heard all of it.
        let mut made = self.out.iter_mut().skip(before).rev().map(|(_, about)| about);
        if let Some(last) = made.next() {
            last.seq = Some(event.seq);
        }
    }

    async fn encode_event(&mut self, logged: &LoggedEvent) {
        let event = logged.event();
        match &event {
            Event::PromptSending(sending) => {
                let theirs = !self.prompts.has(sending.prompt);
                if let Some(content) = self.content_of(sending).await {
                    for line in self.encoder.prompt_chunks(&content).into_iter().filter(|_| theirs) {
                        self.say(line);
                    }
                    self.encoder.note_prompt(&content);
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
                    self.say(self.encoder.mode_is(&mode));
                }
            }
            Event::Update(_) if self.hosted => match update_encoder::control(&logged.data) {
                Some(ControlKind::Mode) => self.modes.clear(),
                // All of them are told: the agent's, and ours.
                Some(ControlKind::Options) => return self.tell_controls(&event).await,
                None => {}
            },
            _ => {}
        }
        for line in self.encoder.encode(logged.seq, &event) {
            self.say(line);
        }
        if let Some(ask) = self.asks_for(&event) {
            self.open_requests.push(ask);
        }
        if let Some(id) = client_requests::closed_by(&event) {
            self.open_requests.retain(|ask| ask.id != id);
            if self.client.take_request(&id).is_some() {
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
            self.client.ops().withdraw_prompt(self.client.caller(), &prompt, None).await.ok(); // it may have left
        }
    }

    /// Sends the open requests to the client, each once.
    fn ask(&mut self) {
        for ask in std::mem::take(&mut self.open_requests) {
            let ClientRequest { id, method, params, about } = ask;
            if self.client.add_request(&id, self.session, about) {
                let line = client_messages::session_request(
                    &RequestId::text(&id),
                    method,
                    &params,
                    self.encoder.session(),
                );
                self.say(line);
            }
        }
    }

    fn answer(&mut self, answered: Vec<PromptReply>) {
        for PromptReply { request, outcome, millis } in answered {
            self.client.acp().0.metrics.prompt_over(&outcome, millis);
            let line = match outcome {
                Ok(result) => jsonrpc::result(&request, &result),
                Err(refusal) => self.client.adapt_refusal(refusal).line(&request),
            };
            let answers = Some((request, method::SESSION_PROMPT.to_owned()));
            self.out.push_back((line, MessageMeta { answers, ..self.about() }));
        }
    }

    /// The content of the prompt that leaves the queue.
    async fn content_of(&self, sending: &PromptSending) -> Option<Json> {
        let id = sending.prompt;
        let log = self.client.log();
        let Ok(Some(prompt)) = log.prompt(id).await else { return None };
        let content = log.prompt_content(id).await.ok().flatten();
        let words = || Json::of(&json!([{ "type": "text", "text": prompt.text }]));
        Some(content.map_or_else(words, |content| content.as_json().clone()))
    }

    /// The turn that runs by now, for whoever joins in the middle of it.
    async fn find_turn(&mut self) {
        const KINDS: &[EventKind] = &[EventKind::TurnStarted, EventKind::TurnEnded, EventKind::PromptSending];
        let log = self.client.log();
        for event in log.events_of(self.session, KINDS, self.after, FEW).await.unwrap_or_default() {
            self.encoder.encode_logged(&event);
            if let Event::PromptSending(sending) = event.event()
                && let Some(content) = self.content_of(&sending).await
            {
                self.encoder.note_prompt(&content);
            }
        }
    }

    /// Modes and options, after something about them has changed.
    async fn tell_controls(&mut self, event: &Event) {
        let Ok(seen) = self.client.session(&self.session).await else { return };
        let told = self.client.agent_session(&seen).await;
        let profiles = self.client.profiles().await.unwrap_or_default();
        if matches!(event, Event::SessionPresetChanged(_))
            && capabilities::has_our_modes(&seen, told.as_ref())
        {
            self.say(self.encoder.mode_is(&seen.preset));
        }
        let options = capabilities::options(&seen, told.as_ref(), &profiles);
        if self.options.as_ref() != Some(&options) {
            self.say(self.encoder.options_are(&options));
            self.options = Some(options);
        }
    }

    /// Sends the remaining news; requests without an answer by then never get one from this client's session.
    async fn finish(&mut self, answer: Option<OutgoingLine>) -> Result<(), ConnectionClosed> {
        self.empty_queue().await;
        let log = self.client.log();
        loop {
            self.flush().await?;
            let events = read(&log, self.session, self.after).await;
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
    async fn flush(&mut self) -> Result<(), ConnectionClosed> {
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
                FeedCommand::Prompt { request, .. } => {
                    let closed = RpcRefusal::request("the session was closed meanwhile");
                    self.answer(vec![PromptReply::at_once(request, closed)]);
                }
                FeedCommand::Cancel { request: Some(request) } => self.cancelled(request),
                FeedCommand::Replay(answer) | FeedCommand::Finish(Some(answer)) => self.out.push_back(answer),
                FeedCommand::Cancel { request: None }
                | FeedCommand::Forget(_)
                | FeedCommand::Finish(None) => {}
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
    log: &LogReader,
    session: SessionId,
    after: u64,
    ear: &mut BellListener,
    wait: &mut bool,
) -> Vec<LoggedEvent> {
    if *wait && !ear.wait_for_ring().await {
        return std::future::pending().await; // the daemon ends
    }
    *wait = false;
    read(log, session, after).await
}

/// Tries until it can be read: it may work again in a moment, and a client should not have to know.
async fn read(log: &LogReader, session: SessionId, after: u64) -> Vec<LoggedEvent> {
    loop {
        match log.events(Some(after), Some(session), BATCH).await {
            Ok(events) => return events.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, after, "an ACP client's log cannot be read; it is tried again");
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}
