//! The execution of a client's commands about its session.

use serde_json::json;

use super::{FeedCommand, MAX_OPEN_REQUESTS, SessionFeed};
use crate::acp::content;
use crate::acp::prompts::{PROMPT_KINDS, PromptReply, PromptTracker};
use crate::acp::queue::{ConnectionClosed, MessageMeta};
use crate::acp::refusal::RpcRefusal;
use intercom_daemon::config::Busy;
use intercom_types::{
    Event, EventKind, InterruptRequest, Json, LoggedEvent, NewPrompt, PromptId, RequestId, Time, TurnId,
};
use intercom_wire::acp::method;
use intercom_wire::jsonrpc;

/// The limit of the search for an earlier prompt, in events about prompts and sessions; agents' messages do not count.
const LOOK_BACK: usize = 100_000;

impl SessionFeed {
    pub(super) async fn serve(&mut self, command: FeedCommand) -> Result<(), ConnectionClosed> {
        match command {
            FeedCommand::Prompt { request, id, blocks } => match self.prompt(id.as_deref(), &blocks).await {
                Ok(prompt) if id.is_some() => self.await_prompt(request, prompt).await,
                Ok(prompt) => self.prompts.wait(prompt, request, Time::now(), self.deadline()),
                Err(refusal) => self.answer(vec![PromptReply::at_once(request, refusal)]),
            },
            FeedCommand::Cancel { request } => {
                self.cancel().await;
                if let Some(request) = request {
                    self.cancelled(request);
                }
            }
            FeedCommand::Forget(request) => {
                if let Some(prompt) = self.prompts.prompt_of(&request) {
                    self.take_back(prompt).await;
                }
            }
            FeedCommand::Replay(answer) => {
                // New events that are encoded already belong before the replay; the replay covers all up to here.
                let up_to = self.after;
                self.flush().await?;
                self.replay(up_to).await?;
                self.put(Some(answer)).await?;
                self.find_open().await;
                self.caught_up = false; // the next read sends the requests that the client does not have
            }
            FeedCommand::Finish(_) => {}
        }
        Ok(())
    }

    pub(super) fn cancelled(&mut self, request: RequestId) {
        let line = jsonrpc::result(&request, &json!({}));
        let answers = Some((request, method::SESSION_CANCEL.to_owned()));
        self.out.push_back((line, MessageMeta { answers, ..self.about() }));
    }

    /// Returns the deadline of a prompt that is sent now.
    fn deadline(&self) -> Option<Time> {
        let limit = self.client.acp().0.ops.supervisor().config().acp_server.prompt_timeout();
        limit.map(|limit| Time::now().plus(limit))
    }

    /// Queues a prompt and returns its id once it is committed. A prompt with a known id is not queued twice.
    async fn prompt(&self, known: Option<&str>, blocks: &[Json]) -> Result<PromptId, RpcRefusal> {
        let (ops, caller, id) = (self.client.ops(), self.client.caller(), self.session);
        let record = self.client.session_record(id).await?;
        // After a reconnect our relay repeats prompts without an answer, with their ids: they must not run twice.
        if let Some(known) = known.and_then(|known| known.parse().ok())
            && self.is_known(known).await
        {
            return Ok(known);
        }
        let config = self.client.acp().0.ops.supervisor().config();
        if config.acp_server.busy == Busy::Refuse && (record.is_busy() || !self.prompts.is_empty()) {
            return Err(RpcRefusal::params("a prompt is already running; wait for its answer"));
        }
        let takes = self.client.takes(&record).await;
        let content = content::fitted(blocks, takes, &config.acp_server)?;
        // After the checks: an invalid prompt must not start a process.
        if !record.phase.is_live() {
            ops.resume(caller, &id).await?;
        }
        let id_known = known.map(str::to_owned);
        let prompt =
            NewPrompt { id: id_known, content: Some(content), wait: Some(false), ..NewPrompt::default() };
        let prompted = ops.send(caller, &id, prompt).await?;
        self.client.acp().0.metrics.prompted();
        Ok(prompted.id)
    }

    /// Returns true if the prompt belongs to this session.
    async fn is_known(&self, prompt: PromptId) -> bool {
        let found = self.client.log().prompt(prompt).await;
        matches!(found, Ok(Some(found)) if found.session == self.session)
    }

    /// Waits for a prompt that the client may have sent before, to an earlier daemon: its turn may be over, and then
    /// the answer is in the log before our position.
    async fn await_prompt(&mut self, request: RequestId, prompt: PromptId) {
        let log = self.client.log();
        let past = log.events_of(self.session, PROMPT_KINDS, self.after, LOOK_BACK).await.unwrap_or_default();
        let is_other = |logged: &&LoggedEvent| !matches!(logged.event(), Event::PromptQueued(queued) if queued.prompt == prompt);
        let mut tracked = PromptTracker::default();
        tracked.wait(prompt, request, Time::now(), self.deadline());
        // Events before it are about other prompts; events after our position are applied when they are read.
        let mut replies = Vec::new();
        for event in past.iter().skip_while(is_other) {
            replies.extend(tracked.apply_event(event));
        }
        self.answer(replies);
        self.prompts.absorb(tracked);
    }

    /// Withdraws the client's queued prompts and ends the running turn.
    async fn cancel(&mut self) {
        // The queue first: after the end of the turn the next queued prompt would start.
        self.withdraw_queued().await;
        self.interrupt(|_| true).await;
    }

    /// Withdraws one prompt. If it has left the queue, its own turn is interrupted and no other: its turn may be over,
    /// and somebody else's may run.
    async fn take_back(&mut self, prompt: PromptId) {
        if self.client.ops().withdraw_prompt(self.client.caller(), &prompt, None).await.is_ok() {
            return;
        }
        let log = self.client.log();
        let sent = log
            .events_of(self.session, &[EventKind::PromptSending], u64::MAX, MAX_OPEN_REQUESTS)
            .await
            .unwrap_or_default();
        let turn_of = |logged: &LoggedEvent| match logged.event() {
            Event::PromptSending(sending) if sending.prompt == prompt => sending.turn,
            _ => None,
        };
        if let Some(turn) = sent.iter().rev().find_map(turn_of) {
            self.interrupt(|running| running == turn).await;
        }
    }

    /// Interrupts the running turn if `is_it` accepts its id.
    async fn interrupt(&self, is_it: impl Fn(TurnId) -> bool) {
        let Ok(record) = self.client.session_record(self.session).await else { return };
        if record.turn.is_some_and(|turn| is_it(turn.id)) {
            let reason = Some("cancelled by an ACP client".to_owned());
            let interrupt = InterruptRequest { reason, wait: Some(false) };
            // The turn may have ended meanwhile; its end answers the prompt.
            self.client.ops().interrupt(self.client.caller(), &self.session, interrupt).await.ok();
        }
    }
}
