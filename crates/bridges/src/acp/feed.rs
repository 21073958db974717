//! The feed of one session to one client: it reads the log at the client's pace, encodes it for the protocol, sends
//! pending requests, and answers prompts when their turns end.
//!
//! ```text
//!          commands of the client (64)
//!                   ▼
//!   log ─► apply_event ─► out ─► room in the outbox (256 messages, 8 MiB) ─► transport
//! ```
//!
//! # Theory of operation
//!
//! *Ownership.* A feed is one task. It owns the position in the log (`after`), the encoder, the client's unanswered
//! prompts of this session and the requests that are about to be sent. The client's connection holds only the sender of
//! its commands. The ids of requests that the client has received are in `ClientState`, because answers arrive there.
//!
//! *Queues.* Commands: 64, then the connection waits. `out`: what a batch of events becomes; it is refilled only when
//! it is empty, so its bound is one batch of 256 events. The outbox is shared by all feeds of the client and bounded in
//! messages and bytes. A slow client thus leaves its backlog in the log, where it costs nothing.
//!
//! *Order.* Each turn of the loop takes the first that is ready of: a command, a prompt's deadline, room in the outbox,
//! new events. Commands come first, also while the client does not read, because a cancel must not wait behind the
//! output that it cancels. A message leaves `out` only for reserved room, so a dropped `select!` branch loses nothing.
//! Requests are sent only when the feed has caught up: a clearance that a rule decides a moment later never reaches the
//! client. Only a replay, which the client asked for, and the end of a session are sent without interruption.
//!
//! *Nothing is lost.* Everything a client receives comes from the log by sequence number; the bell only wakes the feed,
//! and a read that fails is repeated. The last message that an event became carries the event's number; our own relay
//! resumes from there. A prompt is answered from the log as well: by the end of its turn, its withdrawal, the end of
//! its session, its deadline, or, if the session was removed with its log, by a check every three seconds.

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
use intercom_types::{Event, Json, LoggedEvent, PromptId, RequestId, Role, SessionId, Time};
use intercom_wire::acp::{client_messages, method, send};
use intercom_wire::jsonrpc;

mod commands;
mod opening;

/// The limit on events per read.
const BATCH: usize = 256;
/// The limit on queued commands; the connection waits beyond it.
pub(super) const MAX_COMMANDS: usize = 64;
/// The limit on open clearances and questions.
const MAX_OPEN_REQUESTS: usize = 1000;
/// The limit on events that are read to find the running turn.
const MAX_TURN_EVENTS: usize = 8;
/// The interval of checks for a removed session, while a prompt waits for its answer and there are no events.
const REMOVAL_CHECK: Duration = Duration::from_secs(3);
/// The delay after a failed read of the log.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// A command of a client about its session.
#[derive(Debug)]
pub(super) enum FeedCommand {
    Prompt {
        request: RequestId,
        /// The client's own id for the prompt; the client may have sent the prompt before, to an earlier
        /// daemon.
        id: Option<String>,
        blocks: Vec<Json>,
    },
    /// Ends the running turn and withdraws the client's queued prompts.
    Cancel { request: Option<RequestId> },
    /// Cancels one request of the client (`$/cancel_request`).
    Forget(RequestId),
    /// Sends the whole history again, then this answer.
    Replay(OutgoingLine),
    /// Sends the remaining events and this answer, then ends the feed.
    Finish(Option<OutgoingLine>),
}

/// A message with its metadata.
pub(super) type OutgoingLine = (String, MessageMeta);

/// The start of a feed.
#[derive(Debug)]
pub(super) struct FeedOpening {
    pub(super) answer: Option<OutgoingLine>,
    pub(super) history: HistoryMode,
    /// Prompts of this client that an earlier daemon received.
    pub(super) prompts: Vec<PromptId>,
    /// The options in the answer.
    pub(super) options: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HistoryMode {
    /// The history is sent before the answer.
    Before,
    /// The history is sent after the answer.
    After,
    /// A new session: every event is new.
    News,
    /// No history; events after this position are new. `None` is the newest event.
    Since(Option<u64>),
}

#[derive(Debug)]
pub(super) struct SessionFeed {
    client: Arc<ClientState>,
    /// Counts this client as attached.
    _attached: AttachGuard,
    session: SessionId,
    hosted: bool,
    encoder: UpdateEncoder,
    commands: mpsc::Receiver<FeedCommand>,
    bell: BellListener,
    after: u64,
    out: VecDeque<OutgoingLine>,
    prompts: PromptTracker,
    /// Prompts of this client that it is about to repeat after a restart of the daemon.
    repeated: Vec<PromptId>,
    /// Requests to send once the feed has caught up.
    open_requests: Vec<ClientRequest>,
    /// True if the last read of the log returned nothing.
    caught_up: bool,
    /// Modes that were sent to the agent and not confirmed yet, by the number of the change.
    modes: BTreeMap<u64, String>,
    /// The options that were last sent to the client.
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
        commands: mpsc::Receiver<FeedCommand>,
    ) -> Self {
        let bell = client.acp().0.ops.bell().listen_to(session);
        Self {
            client,
            _attached: attached,
            session,
            hosted,
            encoder: UpdateEncoder::new(session.to_string(), hosted),
            commands,
            bell,
            after: 0,
            out: VecDeque::new(),
            prompts: PromptTracker::default(),
            repeated: Vec::new(),
            open_requests: Vec::new(),
            caught_up: false,
            modes: BTreeMap::new(),
            options: None,
            viewer: ViewerLog::default(),
        }
    }

    /// Runs until the client disconnects or closes the session.
    pub(super) async fn run(mut self, opening: FeedOpening) {
        if self.run_until_closed(opening).await.is_err() {
            // Closed first: from here on a command fails at its sender, which answers the client instead of us.
            self.commands.close();
            self.client.forget_ended(self.session);
        }
    }

    async fn run_until_closed(&mut self, opening: FeedOpening) -> Result<(), ConnectionClosed> {
        self.open(opening).await?;
        let log = self.client.log();
        let outbox = self.client.outbox().clone();
        loop {
            // Events are read only when everything before them is sent: `out` stays small, and the rest stays in the
            // log.
            let size = self.out.front().map(|(text, _)| text.len());
            let checks_removal = size.is_none() && !self.prompts.is_empty();
            let new_events = next(&log, self.session, self.after, &mut self.bell, &mut self.caught_up);
            // Each branch can be dropped at its await: a command, a permit and a ring that were not returned stay where
            // they are.
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(FeedCommand::Finish(answer)) => return self.finish(answer).await,
                    Some(command) => self.serve(command).await?,
                    None => return Err(ConnectionClosed),
                },
                () = sleep_until(self.prompts.deadline()) => {
                    let late = self.prompts.expire(Time::now());
                    self.answer(late);
                }
                room = outbox.room(size.unwrap_or(0)), if size.is_some() => {
                    if let Some((text, about)) = self.out.pop_front() {
                        room?.put(text, about);
                    }
                }
                events = new_events, if size.is_none() => {
                    self.caught_up = events.is_empty();
                    for event in events {
                        self.apply_event(event).await;
                    }
                    // Not before: the next event may already decide the request.
                    if self.caught_up {
                        self.send_requests();
                    }
                }
                () = tokio::time::sleep(REMOVAL_CHECK), if checks_removal => self.answer_if_removed().await,
            }
        }
    }

    /// Answers the prompts of a session that was removed. Its log went with it, so no event will answer them.
    async fn answer_if_removed(&mut self) {
        let id = self.session.to_string();
        if matches!(self.client.log().session(self.session).await, Ok(None)) {
            let left = self.prompts.all(&Err(RpcRefusal::no_session(&id)), Time::now());
            self.answer(left);
        }
    }

    async fn put(&self, line: Option<OutgoingLine>) -> Result<(), ConnectionClosed> {
        match line {
            Some((text, about)) => self.client.outbox().put(text, about).await,
            None => Ok(()),
        }
    }

    /// Returns the event with the content that this client may see.
    fn visible(&self, event: LoggedEvent) -> LoggedEvent {
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
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    fn about(&self) -> MessageMeta {
        MessageMeta { session: Some(self.session), ..MessageMeta::default() }
    }

    fn enqueue_line(&mut self, line: String) {
        let about = self.about();
        self.out.push_back((line, about));
    }

    fn request_for(&self, event: &Event) -> Option<ClientRequest> {
        if !self.client.accepts_requests() {
            return None;
        }
        client_requests::request_for(event, self.hosted, self.client.forms(), self.client.caller().role)
    }

    async fn apply_event(&mut self, event: LoggedEvent) {
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
        // Only the last message carries the number: a client that stops in between gets the whole event again.
        let mut lines = self.out.iter_mut().skip(before).rev().map(|(_, about)| about);
        if let Some(last) = lines.next() {
            last.seq = Some(event.seq);
        }
    }

    async fn encode_event(&mut self, logged: &LoggedEvent) {
        let event = logged.event();
        match &event {
            Event::PromptSending(sending) => {
                let is_others = !self.prompts.has(sending.prompt) && !self.repeated.contains(&sending.prompt);
                if let Some(content) = self.content_of(sending).await {
                    for line in self.encoder.prompt_chunks(&content).into_iter().filter(|_| is_others) {
                        self.enqueue_line(line);
                    }
                    self.encoder.note_prompt(&content);
                }
            }
            Event::SessionPresetChanged(_) | Event::AgentReady(_) | Event::SessionAgentChanged(_) => {
                self.send_controls(&event).await;
            }
            Event::AgentSetting(AgentSetting { mode: Some(mode), set, .. }) => {
                self.modes.insert(*set, mode.clone());
                while self.modes.len() > MAX_COMMANDS {
                    self.modes.pop_first();
                }
            }
            // Not every agent sends an update about a changed mode; its acceptance of the change counts too.
            Event::SettingAccepted(accepted) => {
                if let Some(mode) = accepted.set.and_then(|set| self.modes.remove(&set)) {
                    self.enqueue_line(self.encoder.mode_is(&mode));
                }
            }
            Event::Update(_) if self.hosted => match update_encoder::control(&logged.data) {
                Some(ControlKind::Mode) => self.modes.clear(),
                // The agent's update has only its own options; the client gets them with ours.
                Some(ControlKind::Options) => return self.send_controls(&event).await,
                None => {}
            },
            _ => {}
        }
        for line in self.encoder.encode(logged.seq, &event) {
            self.enqueue_line(line);
        }
        if let Some(request) = self.request_for(&event) {
            self.open_requests.push(request);
        }
        // A decision from elsewhere: a request that was not sent yet never is, and one that was sent is cancelled.
        if let Some(id) = client_requests::closed_by(&event) {
            self.open_requests.retain(|request| request.id != id);
            if self.client.take_request(&id).is_some() {
                self.enqueue_line(send::cancel_request(&RequestId::text(&id)));
            }
        }
        // Prompts in the queue would run after a resume, without anybody who waits for their answers.
        if matches!(event, Event::SessionEnded(_) | Event::SessionParked(_)) {
            self.withdraw_queued().await;
        }
        let replies = self.prompts.apply_event(logged);
        self.answer(replies);
    }

    /// Withdraws the client's queued prompts. Each is answered by the event of its withdrawal.
    async fn withdraw_queued(&self) {
        for prompt in self.prompts.queued() {
            // It may have been sent meanwhile: then its turn answers it.
            self.client.ops().withdraw_prompt(self.client.caller(), &prompt, None).await.ok();
        }
    }

    /// Sends the open requests to the client, each once.
    fn send_requests(&mut self) {
        for request in std::mem::take(&mut self.open_requests) {
            let ClientRequest { id, method, params, about } = request;
            if self.client.add_request(&id, self.session, about) {
                let line = client_messages::session_request(
                    &RequestId::text(&id),
                    method,
                    &params,
                    self.encoder.session(),
                );
                self.enqueue_line(line);
            }
        }
    }

    fn answer(&mut self, replies: Vec<PromptReply>) {
        for PromptReply { request, outcome, millis } in replies {
            self.client.acp().0.metrics.prompt_over(&outcome, millis);
            let line = match outcome {
                Ok(result) => jsonrpc::result(&request, &result),
                Err(refusal) => self.client.adapt_refusal(refusal).line(&request),
            };
            let answers = Some((request, method::SESSION_PROMPT.to_owned()));
            self.out.push_back((line, MessageMeta { answers, ..self.about() }));
        }
    }

    /// Returns the content of the prompt that leaves the queue.
    async fn content_of(&self, sending: &PromptSending) -> Option<Json> {
        let id = sending.prompt;
        let log = self.client.log();
        let Ok(Some(prompt)) = log.prompt(id).await else { return None };
        let content = log.prompt_content(id).await.ok().flatten();
        let words = || Json::of(&json!([{ "type": "text", "text": prompt.text }]));
        Some(content.map_or_else(words, |content| content.as_json().clone()))
    }

    /// Sends modes and options after a change, if the client does not have these values yet.
    async fn send_controls(&mut self, event: &Event) {
        let Ok(seen) = self.client.session(&self.session).await else { return };
        let agent_info = self.client.agent_session(&seen).await;
        let profiles = self.client.profiles().await.unwrap_or_default();
        if matches!(event, Event::SessionPresetChanged(_))
            && capabilities::has_our_modes(&seen, agent_info.as_ref())
        {
            self.enqueue_line(self.encoder.mode_is(&seen.preset));
        }
        let options = capabilities::options(&seen, agent_info.as_ref(), &profiles);
        if self.options.as_ref() != Some(&options) {
            self.enqueue_line(self.encoder.options_are(&options));
            self.options = Some(options);
        }
    }

    /// Sends the remaining events and ends the feed. Prompts without an answer by then count as cancelled, and
    /// unanswered requests to the client are cancelled.
    async fn finish(&mut self, answer: Option<OutgoingLine>) -> Result<(), ConnectionClosed> {
        self.withdraw_queued().await;
        let log = self.client.log();
        loop {
            self.flush().await?;
            let events = read(&log, self.session, self.after).await;
            if events.is_empty() {
                break;
            }
            for event in events {
                self.apply_event(event).await;
            }
        }
        let left = self.prompts.all(&cancelled(), Time::now());
        self.answer(left);
        for id in self.client.withdraw(self.session) {
            self.enqueue_line(send::cancel_request(&RequestId::text(&id)));
        }
        // The answer to the close is the last message about the session, except for answers to commands that were
        // already in the queue: each request gets an answer.
        self.out.extend(answer);
        self.refuse_commands().await;
        self.flush().await
    }

    /// Sends all pending messages, however long the client takes to read.
    async fn flush(&mut self) -> Result<(), ConnectionClosed> {
        while let Some((text, about)) = self.out.pop_front() {
            self.client.outbox().put(text, about).await?;
        }
        Ok(())
    }

    /// Answers the commands that arrived while the session was being closed.
    async fn refuse_commands(&mut self) {
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            match command {
                FeedCommand::Prompt { request, .. } => {
                    let closed = RpcRefusal::request("the session was closed");
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

async fn sleep_until(at: Option<Time>) {
    match at {
        Some(at) => tokio::time::sleep(at.since(Time::now())).await,
        None => std::future::pending().await,
    }
}

/// Returns the events after `after`; waits for a ring first if the last read returned none. It may be dropped at any
/// point: `wait` remembers a ring, so that the next call reads at once.
async fn next(
    log: &LogReader,
    session: SessionId,
    after: u64,
    bell: &mut BellListener,
    wait: &mut bool,
) -> Vec<LoggedEvent> {
    if *wait && !bell.wait_for_ring().await {
        return std::future::pending().await; // the daemon ends
    }
    *wait = false;
    read(log, session, after).await
}

/// Reads the log and retries until it succeeds: a failure may pass in a moment, and a client need not notice it.
async fn read(log: &LogReader, session: SessionId, after: u64) -> Vec<LoggedEvent> {
    loop {
        match log.events(Some(after), Some(session), BATCH).await {
            Ok(events) => return events.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, after, "an ACP client's log cannot be read; it is tried again");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}
