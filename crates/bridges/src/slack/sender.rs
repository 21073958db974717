//! The sender: it brings Slack to the desired state of every message.
//!
//! ```text
//!   slack_messages (sent < version) ─► SlackOutbox::plan ─► attempt (a task each, up to 64) ─► Slack
//!              ▲                             ▲                     │
//!              └──── slack_sent ─────────────┴── finish_attempt ───┘
//! ```
//!
//! # Theory of operation
//!
//! *Ownership.* One task owns [`SlackOutbox`], which decides what is sent next, and a set of attempts. The queue itself
//! is the store: a row has the desired content with a `version` and the version that was `sent`. What the task keeps in
//! memory (rows in flight, backoff, token buckets) may be lost.
//!
//! *Loop.* Each pass reads the unsent rows (at most 1,000, pending cards first), reports the backlog to the health
//! record, asks the outbox for a plan and starts its attempts. Then it waits for one of: a new row, a finished attempt,
//! a new connection to Slack (which ends all backoff), or the time that the plan names. Order within a thread, rate
//! limits, backoff and outages are rules of the outbox, which is pure and tested against a model.
//!
//! *Claims.* A new card comes from the publisher as a claim: stored, marked as tried, and read. If the outbox admits it,
//! it is posted at once, on connections without edits; if not, the mark is removed and it waits like any other row.
//!
//! *Versions.* An attempt sends the content that it read, and records that version. If the publisher changes the row
//! meanwhile, `sent` stays behind `version` and the row is planned again, as an edit. So a message that changes faster
//! than Slack accepts is sent in its latest state only.
//!
//! *Nothing is lost, nothing is posted twice.* `chat.postMessage` has no idempotency key. Therefore a post is recorded
//! as tried before the call. If its outcome is unknown (no answer, or the daemon was killed), the next attempt first
//! searches the channel or thread for a message whose first block has the row's key as `block_id`, and posts only if
//! there is none. Edits and reactions can be repeated. A row that Slack refuses is reduced (the one-line text without
//! blocks); a pending card is retried for as long as it is pending, other rows are given up and counted.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::access::SlackAccess;
use super::claims::ClaimReceiver;
use super::connection_health::{ConnectionHealth, UnsentMessages};
use super::outbox::{AttemptOutcome, OutboxRow, SendAttempt, SendKind, SlackOutbox};
use super::web_api::{FileUpload, SlackCallError, WebApi};
use intercom_store::{
    ClaimedPost, DesiredMessage, SLACK_SKEW_MILLIS, SlackMessage, SlackSendOutcome, Store, StoreError,
    UpsertRule,
};
use intercom_types::text::{clean, visible};
use intercom_types::{SessionId, Time};

/// The limit on pages in the search for a posted message. The search begins at the time of the attempt, so it is in the
/// first pages or nowhere.
const PAGES: usize = 5;
const BREATHER: Duration = Duration::from_secs(1);

/// A desired state in Slack; JSON in the store.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DesiredContent {
    Message(Value),
    /// The complete command and change of a clearance, as a file.
    Diff {
        clearance: String,
    },
    /// A reaction to a person's message.
    Reaction {
        of: String,
        name: String,
        instead_of: Option<String>,
    },
}

impl DesiredContent {
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("it has string keys only")
    }

    /// Returns the row of this content outside of any thread, for which nothing has to be decided or remembered.
    pub(super) fn outside_of_threads(
        &self,
        key: String,
        session: Option<SessionId>,
        channel: String,
    ) -> DesiredMessage {
        DesiredMessage {
            key,
            session,
            channel,
            thread: None,
            wanted: self.text(),
            open: false,
            memo: String::new(),
            upsert_rule: UpsertRule::IfNew,
        }
    }
}

pub(super) struct MessageSender {
    pub(super) store: Store,
    pub(super) web: Arc<WebApi>,
    pub(super) health: ConnectionHealth,
    pub(super) access: SlackAccess,
    /// Notified after a change of a desired message.
    pub(super) bell: Arc<Notify>,
}

/// The outcome of an attempt.
enum SendOutcome {
    Sent(Option<String>),
    /// A plain line was posted in its place.
    StoodIn(Option<String>),
    Trouble(SlackCallError),
    /// A message in doubt could not be searched for: nothing was sent, and it stays in doubt.
    InDoubt(SlackCallError),
    /// Our own store failed: nothing was sent.
    Store(StoreError),
}

impl MessageSender {
    pub(super) async fn run(self, claims: ClaimReceiver, closing: CancellationToken) {
        let this = Arc::new(self);
        // An attempt may be cut off at any point: its row stays marked as tried, and the next daemon searches for the message
        // before it posts again.
        closing.run_until_cancelled(this.send_all(claims)).await;
    }

    async fn send_all(self: &Arc<Self>, mut claims: ClaimReceiver) {
        let mut outbox = SlackOutbox::default();
        let mut tasks: JoinSet<(OutboxRow, AttemptOutcome)> = JoinSet::new();
        let mut connected = self.health.connections();
        loop {
            let rows = match self.store.slack_unsent().await {
                Ok(rows) => rows,
                Err(error) => {
                    tracing::warn!(%error, "unsent messages for Slack cannot be read; retrying");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            // A row that was claimed before this read is in flight before the plan.
            let claimed = claims.announced().await;
            self.send_claimed(claimed, &mut outbox, &mut tasks).await;
            let rows: Vec<OutboxRow> = rows.into_iter().map(OutboxRow::from).collect();
            let count = self.store.slack_backlog().await.unwrap_or_default();
            let seen = rows.iter().map(|row| (row.key.as_str(), row.is_pending_card())).collect();
            self.health.update_backlog(&UnsentMessages { count, rows: seen });
            // Before the plan: a row that was removed must not hold the place of its thread.
            outbox.forget(&rows);
            let plan = outbox.plan(&rows, Instant::now());
            // A task each: a call that hangs must not hold up the other channels. The outbox bounds their number.
            for attempt in plan.send {
                self.begin(attempt, None, &mut tasks);
            }
            let look_again = async {
                match plan.look_again {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(claimed) = claims.next() => self.send_claimed(claimed, &mut outbox, &mut tasks).await,
                () = self.bell.notified() => {}
                Some(landed) = tasks.join_next() => {
                    if let Ok((row, outcome)) = landed {
                        outbox.finish_attempt(&row, outcome, Instant::now(), jitter());
                    }
                    // Everything that has finished by now, because each pass reads up to 1,000 rows.
                    while let Some(Ok((row, outcome))) = tasks.try_join_next() {
                        outbox.finish_attempt(&row, outcome, Instant::now(), jitter());
                    }
                }
                // Slack is reachable again: the backoff of the time without a connection means nothing any more.
                Ok(()) = connected.changed() => if *connected.borrow_and_update() > 0 { outbox.reset_backoff() },
                () = look_again => {}
            }
        }
    }

    /// Starts an attempt. With `claimed`, the row and its thread are known, and it is marked as tried already.
    fn begin(
        self: &Arc<Self>,
        attempt: SendAttempt,
        claimed: Option<ClaimedPost>,
        tasks: &mut JoinSet<(OutboxRow, AttemptOutcome)>,
    ) {
        let this = Arc::clone(self);
        tasks.spawn(async move {
            // A panic would leave the row in flight for ever, and its thread with it: count it as a failure.
            let outcome = AssertUnwindSafe(this.attempt(&attempt, claimed)).catch_unwind().await;
            (attempt.row, outcome.unwrap_or(AttemptOutcome::Failed))
        });
    }

    /// Sends claimed rows as far as the outbox admits them, and releases the others: they wait like any other row.
    async fn send_claimed(
        self: &Arc<Self>,
        claimed: Vec<ClaimedPost>,
        outbox: &mut SlackOutbox,
        tasks: &mut JoinSet<(OutboxRow, AttemptOutcome)>,
    ) {
        for post in claimed {
            let row = OutboxRow::from(post.message.clone());
            // By the rules for all rows: neither rate limits nor an outage make an exception for claims.
            if let Some(attempt) = outbox.plan(std::slice::from_ref(&row), Instant::now()).send.pop() {
                self.begin(attempt, Some(post), tasks);
                continue;
            }
            if let Err(error) = self.store.slack_sent(row.key, SlackSendOutcome::NotPosted).await {
                tracing::warn!(%error, "a claimed message is still marked as tried; it is searched for first");
            }
        }
    }

    async fn attempt(&self, attempt: &SendAttempt, claimed: Option<ClaimedPost>) -> AttemptOutcome {
        let SendAttempt { row: OutboxRow { key, rooted, .. }, stand_in } = attempt;
        let (message, sent) = if let Some(ClaimedPost { mut message, root }) = claimed {
            // The mark is this attempt's own: there is no earlier one to search for.
            message.tried = None;
            (message.clone(), self.send_claim(&message, root.as_deref()).await)
        } else {
            let message = match self.store.slack_message(key.to_owned()).await {
                Ok(Some(message)) => message,
                Ok(None) => return AttemptOutcome::Done, // removed by retention
                Err(error) => return not_stored(&error),
            };
            let sent = if *stand_in {
                self.stand_in(&message, *rooted).await
            } else {
                self.send(&message, *rooted).await
            };
            (message, sent)
        };
        // Read before the call: a change during the call must leave the row unsent.
        let version = message.version;
        let ended = match sent {
            SendOutcome::Trouble(SlackCallError::Refused(why)) => self.refused(&message, &why).await,
            ended => ended,
        };
        let (outcome, sent) = match ended {
            SendOutcome::Sent(ts) => {
                self.health.sent(key);
                (AttemptOutcome::Done, SlackSendOutcome::Done { version, ts })
            }
            // Version 0: Slack has a message to edit, but not the desired content.
            SendOutcome::StoodIn(ts) => (AttemptOutcome::StoodIn, SlackSendOutcome::Done { version: 0, ts }),
            SendOutcome::Store(error) => return not_stored(&error),
            SendOutcome::InDoubt(trouble) => {
                tracing::warn!(key, %trouble, "cannot find out whether a message was posted; retrying");
                self.health.record_failure(key, &trouble);
                return match trouble {
                    SlackCallError::Slow(wait) => AttemptOutcome::Slow(wait),
                    _ => AttemptOutcome::Failed,
                };
            }
            SendOutcome::Trouble(trouble) => {
                tracing::warn!(key, %trouble, "Slack did not accept a message; it is sent again");
                self.health.record_failure(key, &trouble);
                match trouble {
                    // The mark of the post stays, so that the next attempt searches first. Every other failure removes
                    // it.
                    SlackCallError::Unsure(_) => return AttemptOutcome::Failed,
                    SlackCallError::Slow(wait) => (AttemptOutcome::Slow(wait), SlackSendOutcome::NotPosted),
                    SlackCallError::Setup(_) => (AttemptOutcome::Setup, SlackSendOutcome::NotPosted),
                    SlackCallError::Later(_) | SlackCallError::Unknown(_) | SlackCallError::Refused(_) => {
                        (AttemptOutcome::Failed, SlackSendOutcome::NotPosted)
                    }
                }
            }
        };
        match self.store.slack_sent(key.to_owned(), sent).await {
            Ok(_) => outcome,
            // The row is still marked as tried, so the next attempt finds the message instead of posting it again.
            Err(error) => not_stored(&error),
        }
    }

    /// Returns the ts of the message's thread. Without `rooted` it may be posted outside of a thread that has no root.
    async fn root_of(&self, message: &SlackMessage, rooted: bool) -> Result<Option<String>, SendOutcome> {
        let Some(key) = &message.thread else { return Ok(None) };
        match self.store.slack_message(key.clone()).await {
            Ok(Some(SlackMessage { ts: Some(ts), .. })) => Ok(Some(ts)),
            Ok(_) if !rooted => Ok(None),
            Ok(_) => {
                Err(SendOutcome::Trouble(SlackCallError::Later("its thread does not exist yet".to_owned())))
            }
            Err(error) => Err(SendOutcome::Store(error)),
        }
    }

    async fn send(&self, message: &SlackMessage, rooted: bool) -> SendOutcome {
        let Ok(wanted) = serde_json::from_str::<DesiredContent>(&message.wanted) else {
            tracing::error!(key = message.key, "an unreadable row for Slack is skipped");
            return SendOutcome::Sent(None);
        };
        let root = match self.root_of(message, rooted).await {
            Ok(root) => root,
            Err(ended) => return ended,
        };
        let root = root.as_deref();
        match (wanted, &message.ts) {
            (DesiredContent::Message(body), Some(ts)) => self.edit(message, body, ts).await,
            (DesiredContent::Message(body), None) => self.post(message, body, root).await,
            (DesiredContent::Diff { clearance }, _) => self.attach(message, &clearance, root).await,
            (DesiredContent::Reaction { of, name, instead_of }, _) => {
                self.react(message, &of, &name, instead_of).await
            }
        }
    }

    /// Posts the one-line text of a message that failed several times; the message itself follows as an edit.
    async fn stand_in(&self, message: &SlackMessage, rooted: bool) -> SendOutcome {
        let body = match serde_json::from_str(&message.wanted) {
            Ok(DesiredContent::Message(body)) if body.get("blocks").is_some() => body,
            _ => return self.send(message, rooted).await,
        };
        let root = match self.root_of(message, rooted).await {
            Ok(root) => root,
            Err(ended) => return ended,
        };
        // With the block id by which `find` recognises it.
        let line = json!({
            "type": "section", "block_id": message.key,
            "text": { "type": "mrkdwn", "verbatim": true, "text": body["text"] },
        });
        let plain = json!({ "text": body["text"], "blocks": [line] });
        match self.post(message, plain, root.as_deref()).await {
            SendOutcome::Sent(ts) => SendOutcome::StoodIn(ts),
            ended => ended,
        }
    }

    async fn edit(&self, message: &SlackMessage, mut body: Value, ts: &str) -> SendOutcome {
        body["channel"] = json!(message.channel);
        body["ts"] = json!(ts);
        body["parse"] = json!("none");
        match self.web.call("chat.update", &body).await {
            Ok(_) => SendOutcome::Sent(None),
            // An edit can be repeated, so an unknown outcome is a plain failure.
            Err(SlackCallError::Unsure(why)) => SendOutcome::Trouble(SlackCallError::Later(why)),
            Err(trouble) => SendOutcome::Trouble(trouble),
        }
    }

    async fn post(&self, message: &SlackMessage, body: Value, root: Option<&str>) -> SendOutcome {
        if let Some(tried) = message.tried {
            match self.find(message, tried, root).await {
                // It has the content of the earlier attempt: record it as posted, then edit it to the current content.
                Ok(Some(ts)) => {
                    let found = SlackSendOutcome::Done { version: 0, ts: Some(ts.clone()) };
                    if let Err(error) = self.store.slack_sent(message.key.clone(), found).await {
                        return SendOutcome::Store(error);
                    }
                    return self.edit(message, body, &ts).await;
                }
                Ok(None) => {}
                // Without permission to search, post again: twice is better than never.
                Err(
                    trouble @ (SlackCallError::Setup(_)
                    | SlackCallError::Refused(_)
                    | SlackCallError::Unknown(_)),
                ) => {
                    tracing::warn!(key = message.key, %trouble, "a message may be posted twice: Slack refused the search for it");
                }
                Err(trouble) => return SendOutcome::InDoubt(trouble),
            }
        }
        // Recorded before the call: a daemon that is killed during the call must know that it may have posted.
        match self.store.slack_sent(message.key.clone(), SlackSendOutcome::Posting(Time::now())).await {
            Ok(true) => {}
            Ok(false) => return SendOutcome::Sent(None), // dropped meanwhile: nobody needs it
            Err(error) => return SendOutcome::Store(error),
        }
        self.post_marked(message, body, root).await
    }

    /// Posts a card that was claimed when it was stored.
    async fn send_claim(&self, message: &SlackMessage, root: Option<&str>) -> SendOutcome {
        match serde_json::from_str(&message.wanted) {
            Ok(DesiredContent::Message(body)) => self.post_marked(message, body, root).await,
            _ => SendOutcome::Trouble(SlackCallError::Later("it is no card".to_owned())),
        }
    }

    /// Posts a message that is marked as tried.
    async fn post_marked(&self, message: &SlackMessage, mut body: Value, root: Option<&str>) -> SendOutcome {
        intercom_failpoint::visit("slack.posting");
        body["channel"] = json!(message.channel);
        // Slack must not detect links or names by itself in agent text.
        body["parse"] = json!("none");
        body["unfurl_links"] = json!(false);
        body["unfurl_media"] = json!(false);
        if let Some(root) = root {
            body["thread_ts"] = json!(root);
        }
        let posted = if message.open && message.thread.is_some() {
            self.web.call_urgently("chat.postMessage", &body).await
        } else {
            self.web.call("chat.postMessage", &body).await
        };
        match posted {
            Ok(answer) => {
                intercom_failpoint::visit("slack.posted");
                SendOutcome::Sent(answer["ts"].as_str().map(str::to_owned))
            }
            Err(trouble) => SendOutcome::Trouble(trouble),
        }
    }

    /// Searches for a message that may have been posted, by the id of its first block.
    async fn find(
        &self,
        message: &SlackMessage,
        tried: Time,
        root: Option<&str>,
    ) -> Result<Option<String>, SlackCallError> {
        let oldest = tried.minus_millis(SLACK_SKEW_MILLIS).millis() / 1000;
        let mut params = vec![
            ("channel", message.channel.clone()),
            ("oldest", format!("{}.000000", oldest.max(0))),
            ("limit", "200".to_owned()),
        ];
        let method = match root {
            Some(root) => {
                params.push(("ts", root.to_owned()));
                "conversations.replies"
            }
            None => "conversations.history",
        };
        for _ in 0..PAGES {
            let page = self.web.query(method, &params).await?;
            let messages = page["messages"].as_array().into_iter().flatten();
            let ours = |found: &&Value| found.pointer("/blocks/0/block_id") == Some(&json!(message.key));
            if let Some(ts) = messages.clone().find(ours).and_then(|found| found["ts"].as_str()) {
                return Ok(Some(ts.to_owned()));
            }
            match page.pointer("/response_metadata/next_cursor").and_then(Value::as_str) {
                Some(cursor) if !cursor.is_empty() => {
                    params.retain(|(name, _)| *name != "cursor");
                    params.push(("cursor", cursor.to_owned()));
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    async fn attach(&self, message: &SlackMessage, clearance: &str, root: Option<&str>) -> SendOutcome {
        let found = match self.access.clearance(clearance).await {
            Ok(found) => found,
            Err(error) => return SendOutcome::Store(error.into()),
        };
        let (Some(found), Some(thread)) = (found, root) else {
            return SendOutcome::Sent(None); // removed with its session
        };
        let parts = [found.command, found.diff].into_iter().flatten().filter(|part| !part.is_empty());
        let content = visible(&parts.collect::<Vec<_>>().join("\n\n"));
        let (name, title) = (format!("{clearance}.diff"), clean(&found.title));
        let upload = FileUpload {
            name: &name,
            title: &title,
            content: &content,
            channel: &message.channel,
            thread: Some(thread),
        };
        match self.web.upload(&upload).await {
            Ok(()) => SendOutcome::Sent(None),
            Err(trouble) => SendOutcome::Trouble(trouble),
        }
    }

    async fn react(
        &self,
        message: &SlackMessage,
        of: &str,
        name: &str,
        instead_of: Option<String>,
    ) -> SendOutcome {
        let body = |name: &str| json!({ "channel": message.channel, "timestamp": of, "name": name });
        if let Some(other) = instead_of {
            match self.web.call("reactions.remove", &body(&other)).await {
                Ok(_) | Err(SlackCallError::Refused(_)) => {} // refused: there was none
                Err(trouble) => return SendOutcome::Trouble(trouble),
            }
        }
        match self.web.call("reactions.add", &body(name)).await {
            Ok(_) => SendOutcome::Sent(None),
            Err(SlackCallError::Refused(why)) if why.starts_with("already_reacted") => {
                SendOutcome::Sent(None)
            }
            Err(trouble) => SendOutcome::Trouble(trouble),
        }
    }

    /// Handles a message that Slack refuses: posts it again if a person removed it, else falls back to its plain text.
    /// The messages behind it do not wait.
    async fn refused(&self, message: &SlackMessage, why: &str) -> SendOutcome {
        tracing::error!(key = message.key, why, "Slack refuses a message");
        let gone = ["message_not_found", "thread_not_found"].iter().any(|code| why.starts_with(code));
        if gone {
            // A person removed it. Pending cards and roots of threads are posted again; other messages stay removed.
            let lost = match (&message.ts, &message.thread) {
                (Some(_), _) if message.open || message.thread.is_none() => Some(message.key.clone()),
                (None, Some(root)) if why.starts_with("thread_not_found") => Some(root.clone()),
                _ => None,
            };
            if let Some(key) = lost {
                return match self.store.slack_mark_lost(key).await {
                    Ok(()) => SendOutcome::Trouble(SlackCallError::Later(
                        "the message was removed in Slack and is posted again".to_owned(),
                    )),
                    Err(error) => SendOutcome::Store(error),
                };
            }
            return SendOutcome::Sent(None);
        }
        let Ok(DesiredContent::Message(body)) = serde_json::from_str(&message.wanted) else {
            return self.give_up(message, why);
        };
        if ["cant_update_message", "edit_window_closed"].iter().any(|code| why.starts_with(code)) {
            if !message.open || message.thread.is_none() {
                return SendOutcome::Sent(None); // it stays unchanged
            }
            // A pending card must show the current state. Another app may have posted it; ours can post it again.
            return match self.store.slack_mark_lost(message.key.clone()).await {
                Ok(()) => SendOutcome::Trouble(SlackCallError::Later(
                    "the message cannot be edited and is posted again".to_owned(),
                )),
                Err(error) => SendOutcome::Store(error),
            };
        }
        if body.get("blocks").is_none() {
            return self.give_up(message, why);
        }
        // Slack may refuse the blocks only: the plain text is better than nothing.
        let plain = json!({ "text": body["text"] });
        let root = match &message.thread {
            Some(key) => self.store.slack_message(key.clone()).await.ok().flatten().and_then(|root| root.ts),
            None => None,
        };
        let sent = match &message.ts {
            Some(ts) => self.edit(message, plain, ts).await,
            None => self.post(message, plain, root.as_deref()).await,
        };
        match sent {
            SendOutcome::Trouble(SlackCallError::Refused(why)) => self.give_up(message, &why),
            sent => sent,
        }
    }

    /// Handles a message that Slack refuses in every form. A pending card is retried and reported by the health record;
    /// any other message is given up and counted.
    fn give_up(&self, message: &SlackMessage, why: &str) -> SendOutcome {
        if message.open {
            return SendOutcome::Trouble(SlackCallError::Refused(why.to_owned()));
        }
        tracing::error!(key = message.key, why, "Slack refuses a message in every form; it is given up");
        self.health.gave_up();
        SendOutcome::Sent(None)
    }
}

impl From<SlackMessage> for OutboxRow {
    fn from(message: SlackMessage) -> Self {
        let wanted: Option<DesiredContent> = serde_json::from_str(&message.wanted).ok();
        // In lanes of their own: a reaction is to a person's message, and a file may have to wait for a missing scope,
        // so the thread must not wait for them.
        let alone = matches!(wanted, Some(DesiredContent::Diff { .. } | DesiredContent::Reaction { .. }));
        let reaction = matches!(wanted, Some(DesiredContent::Reaction { .. }));
        let sort = match message.ts {
            None if reaction => SendKind::Edit,
            None => SendKind::Post,
            Some(_) if message.thread.is_none() || message.key.starts_with("talk ") => SendKind::Status,
            Some(_) => SendKind::Edit,
        };
        let lane = message.thread.as_ref().filter(|_| !alone).unwrap_or(&message.key).clone();
        Self {
            place: message.place,
            rooted: message.thread_exists,
            sort,
            key: message.key,
            channel: message.channel,
            lane,
            open: message.open,
        }
    }
}

fn not_stored(error: &StoreError) -> AttemptOutcome {
    tracing::warn!(%error, "the outcome of a message to Slack cannot be stored; retrying");
    AttemptOutcome::Failed
}

fn jitter() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0
}
