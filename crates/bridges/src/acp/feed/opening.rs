//! The opening of a feed: the answer to the request that opened it, the history if the client asked for it, and the turn and
//! the requests that are open.

use super::{FeedOpening, HistoryMode, MAX_OPEN_REQUESTS, MAX_TURN_EVENTS, SessionFeed, read};
use crate::acp::queue::{ConnectionClosed, MessageMeta};
use crate::acp::update_encoder::{self, UpdateEncoder};
use intercom_daemon::ops::ViewerLog;
use intercom_types::{Event, EventKind, LoggedEvent};

impl SessionFeed {
    pub(super) async fn open(&mut self, opening: FeedOpening) -> Result<(), ConnectionClosed> {
        // Read before the history: an event that arrives during the replay is new, and is not replayed as well.
        let newest = self.client.acp().0.ops.bell().listen().newest();
        let FeedOpening { answer, history, options, prompts } = opening;
        self.repeated = prompts;
        self.options = options;
        // The answer carries the position too: our relay can resume even if it receives nothing else before a restart.
        let position = match history {
            HistoryMode::Before => newest,
            HistoryMode::After | HistoryMode::News => 0,
            HistoryMode::Since(after) => after.unwrap_or(newest).min(newest),
        };
        let answer = answer.map(|(text, about)| (text, MessageMeta { seq: Some(position), ..about }));
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
        // With `After` the answer says 0, because a relay that resumes from it has received nothing of the history yet.
        self.after = if history == HistoryMode::After { newest } else { position };
        if history != HistoryMode::News {
            self.find_turn().await;
            self.find_open().await;
        }
        Ok(())
    }

    /// Replays the agent's messages and prompts up to `up_to`, without requests and answers.
    pub(super) async fn replay(&mut self, up_to: u64) -> Result<(), ConnectionClosed> {
        let (reader, mut after) = (self.client.log(), 0);
        // An encoder and a filter of its own: the state of those for new events belongs to a later place in the log.
        let mut encoder = UpdateEncoder::new(self.session.to_string(), self.hosted);
        let mut log = ViewerLog::default();
        loop {
            let batch = read(&reader, self.session, after).await;
            let Some(last) = batch.last().map(|event| event.seq).filter(|_| after < up_to) else {
                // Text that the filter still holds is sent with the new events.
                self.viewer = log;
                return Ok(());
            };
            for event in batch.into_iter().take_while(|event| event.seq <= up_to) {
                // The answer has the current settings, with ours; old ones would undo them in the client.
                if self.hosted
                    && event.known_kind() == Some(EventKind::Update)
                    && update_encoder::control(&event.data).is_some()
                {
                    continue;
                }
                for event in self.released(&mut log, event).await {
                    self.replay_one(&mut encoder, &event).await?;
                }
            }
            after = last;
        }
    }

    async fn replay_one(
        &self,
        encoder: &mut UpdateEncoder,
        event: &LoggedEvent,
    ) -> Result<(), ConnectionClosed> {
        let mut lines = encoder.encode_logged(event);
        if let Event::PromptSending(sending) = event.event()
            && let Some(content) = self.content_of(&sending).await
        {
            lines.extend(encoder.prompt_chunks(&content));
            encoder.note_prompt(&content);
        }
        let last = lines.len().saturating_sub(1);
        for (n, line) in lines.into_iter().enumerate() {
            let seq = (n == last).then_some(event.seq);
            self.put(Some((line, MessageMeta { seq, ..self.about() }))).await?;
        }
        Ok(())
    }

    /// Finds the pending clearances and questions.
    pub(super) async fn find_open(&mut self) {
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
        for event in
            log.events_of(self.session, KINDS, self.after, MAX_OPEN_REQUESTS).await.unwrap_or_default()
        {
            let event = self.visible(event);
            if let Some(request) =
                self.request_for(&event.event()).filter(|request| open.contains(&request.id))
            {
                self.open_requests.push(request);
            }
        }
    }

    /// Finds the running turn, so that the encoder knows its prompts and the client does not receive echoes of them.
    async fn find_turn(&mut self) {
        const KINDS: &[EventKind] = &[EventKind::TurnStarted, EventKind::TurnEnded, EventKind::PromptSending];
        let log = self.client.log();
        for event in log.events_of(self.session, KINDS, self.after, MAX_TURN_EVENTS).await.unwrap_or_default()
        {
            self.encoder.encode_logged(&event);
            if let Event::PromptSending(sending) = event.event()
                && let Some(content) = self.content_of(&sending).await
            {
                self.encoder.note_prompt(&content);
            }
        }
    }
}
