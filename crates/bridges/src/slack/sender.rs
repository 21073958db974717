//! Sends what is wanted: takes it from the store, asks the outbox what may go, tells the store what has arrived.
//!
//! A post is noted before it is made. If how it ended is not known, because an answer did not come or the daemon was
//! killed, it is looked for in the channel before it is made again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::access::SlackAccess;
use super::connection_health::{ConnectionHealth, UnsentMessages};
use super::outbox::{AttemptOutcome, OutboxRow, SendAttempt, SendKind, SlackOutbox};
use super::web_api::{FileUpload, SlackCallError, WebApi};
use intercom_store::{SLACK_SKEW_MILLIS, SlackMessage, SlackSendOutcome, Store, StoreError};
use intercom_types::Time;
use intercom_types::text::{clean, visible};

/// A message that was posted just now is not further back.
const PAGES: usize = 5;
const BREATHER: Duration = Duration::from_secs(1);

/// A wanted change in Slack. In the store as JSON.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DesiredContent {
    Message(Value),
    /// The whole of what a clearance is about, as a file.
    Diff {
        clearance: String,
    },
    /// On a message of somebody else.
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
}

pub(super) struct MessageSender {
    pub(super) store: Store,
    pub(super) web: Arc<WebApi>,
    pub(super) link: ConnectionHealth,
    pub(super) access: SlackAccess,
    /// Rung when something is wanted.
    pub(super) bell: Arc<Notify>,
}

/// The outcome of an attempt, for the store.
enum SendOutcome {
    Sent(Option<String>),
    /// A plain line is there in its place.
    StoodIn(Option<String>),
    Trouble(SlackCallError),
    /// The message may or may not be there, and it was already in doubt.
    InDoubt(SlackCallError),
    /// Our own store failed: nothing was sent.
    Store(StoreError),
}

impl MessageSender {
    pub(super) async fn run(self, closing: CancellationToken) {
        let this = Arc::new(self);
        closing.run_until_cancelled(this.send_all()).await;
    }

    async fn send_all(self: &Arc<Self>) {
        let mut outbox = SlackOutbox::default();
        let mut tasks: JoinSet<(OutboxRow, AttemptOutcome)> = JoinSet::new();
        let mut connected = self.link.connections();
        loop {
            let rows = match self.store.slack_unsent().await {
                Ok(rows) => rows,
                Err(error) => {
                    tracing::warn!(%error, "what is to be sent to Slack cannot be read");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            let rows: Vec<OutboxRow> = rows.into_iter().map(OutboxRow::from).collect();
            let count = self.store.slack_backlog().await.unwrap_or_default();
            let seen = rows.iter().map(|row| (row.key.as_str(), row.is_pending_card())).collect();
            self.link.update_backlog(&UnsentMessages { count, rows: seen });
            outbox.forget(&rows);
            let plan = outbox.plan(&rows, Instant::now());
            for attempt in plan.send {
                let this = Arc::clone(self);
                tasks.spawn(async move {
                    // A bug in one message must not keep its thread for ever.
                    let fate = AssertUnwindSafe(this.attempt(&attempt)).catch_unwind().await;
                    (attempt.row, fate.unwrap_or(AttemptOutcome::Failed))
                });
            }
            let look_again = async {
                match plan.look_again {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.bell.notified() => {}
                Some(landed) = tasks.join_next() => {
                    if let Ok((row, fate)) = landed {
                        outbox.finish_attempt(&row, fate, Instant::now(), jitter());
                    }
                    while let Some(Ok((row, fate))) = tasks.try_join_next() {
                        outbox.finish_attempt(&row, fate, Instant::now(), jitter());
                    }
                }
                // It may be back: no need to wait for the next attempt.
                Ok(()) = connected.changed() => if *connected.borrow_and_update() > 0 { outbox.reset_backoff() },
                () = look_again => {}
            }
        }
    }

    async fn attempt(&self, attempt: &SendAttempt) -> AttemptOutcome {
        let SendAttempt { row: OutboxRow { key, rooted, .. }, stand_in } = attempt;
        let message = match self.store.slack_message(key.to_owned()).await {
            Ok(Some(message)) => message,
            Ok(None) => return AttemptOutcome::Done, // retention was faster
            Err(error) => return not_stored(&error),
        };
        let version = message.version;
        let sent = if *stand_in {
            self.stand_in(&message, *rooted).await
        } else {
            self.send(&message, *rooted).await
        };
        let ended = match sent {
            SendOutcome::Trouble(SlackCallError::Refused(why)) => self.refused(&message, &why).await,
            ended => ended,
        };
        let (fate, sent) = match ended {
            SendOutcome::Sent(ts) => {
                self.link.sent(key);
                (AttemptOutcome::Done, SlackSendOutcome::Done { version, ts })
            }
            SendOutcome::StoodIn(ts) => (AttemptOutcome::StoodIn, SlackSendOutcome::Done { version: 0, ts }),
            SendOutcome::Store(error) => return not_stored(&error),
            SendOutcome::InDoubt(trouble) => {
                tracing::warn!(key, %trouble, "a message cannot be looked for yet");
                self.link.record_failure(key, &trouble);
                return match trouble {
                    SlackCallError::Slow(wait) => AttemptOutcome::Slow(wait),
                    _ => AttemptOutcome::Failed,
                };
            }
            SendOutcome::Trouble(trouble) => {
                tracing::warn!(key, %trouble, "Slack did not take a message; it is sent again");
                self.link.record_failure(key, &trouble);
                match trouble {
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
            Ok(_) => fate,
            // It is found again before it would be posted twice.
            Err(error) => not_stored(&error),
        }
    }

    /// The name of the thread that a message belongs to. Without `rooted` it may go beside a thread that has no root.
    async fn root_of(&self, message: &SlackMessage, rooted: bool) -> Result<Option<String>, SendOutcome> {
        let Some(key) = &message.thread else { return Ok(None) };
        match self.store.slack_message(key.clone()).await {
            Ok(Some(SlackMessage { ts: Some(ts), .. })) => Ok(Some(ts)),
            Ok(_) if !rooted => Ok(None),
            Ok(_) => Err(SendOutcome::Trouble(SlackCallError::Later("its thread is not there".to_owned()))),
            Err(error) => Err(SendOutcome::Store(error)),
        }
    }

    async fn send(&self, message: &SlackMessage, rooted: bool) -> SendOutcome {
        let Ok(wanted) = serde_json::from_str::<DesiredContent>(&message.wanted) else {
            tracing::error!(key = message.key, "it cannot be read and is not sent");
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

    /// A message that Slack did not take several times: its one-line text is posted, and the message follows as an edit.
    async fn stand_in(&self, message: &SlackMessage, rooted: bool) -> SendOutcome {
        let body = match serde_json::from_str(&message.wanted) {
            Ok(DesiredContent::Message(body)) if body.get("blocks").is_some() => body,
            _ => return self.send(message, rooted).await,
        };
        let root = match self.root_of(message, rooted).await {
            Ok(root) => root,
            Err(ended) => return ended,
        };
        // With the id by which it is found again.
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
            // An edit can be made twice.
            Err(SlackCallError::Unsure(why)) => SendOutcome::Trouble(SlackCallError::Later(why)),
            Err(trouble) => SendOutcome::Trouble(trouble),
        }
    }

    async fn post(&self, message: &SlackMessage, mut body: Value, root: Option<&str>) -> SendOutcome {
        if let Some(tried) = message.tried {
            match self.find(message, tried, root).await {
                // As it was when it was tried; what has changed since is an edit.
                Ok(Some(ts)) => {
                    let found = SlackSendOutcome::Done { version: 0, ts: Some(ts.clone()) };
                    if let Err(error) = self.store.slack_sent(message.key.clone(), found).await {
                        return SendOutcome::Store(error);
                    }
                    return self.edit(message, body, &ts).await;
                }
                Ok(None) => {}
                // If we may not look, it is posted again: twice is better than never.
                Err(
                    trouble @ (SlackCallError::Setup(_)
                    | SlackCallError::Refused(_)
                    | SlackCallError::Unknown(_)),
                ) => {
                    tracing::warn!(key = message.key, %trouble, "it may be there twice: it could not be looked for");
                }
                Err(trouble) => return SendOutcome::InDoubt(trouble),
            }
        }
        match self.store.slack_sent(message.key.clone(), SlackSendOutcome::Posting(Time::now())).await {
            Ok(true) => {}
            Ok(false) => return SendOutcome::Sent(None), // nobody needs it any more
            Err(error) => return SendOutcome::Store(error),
        }
        intercom_failpoint::visit("slack.posting");
        body["channel"] = json!(message.channel);
        // Nothing becomes a link or a name by itself.
        body["parse"] = json!("none");
        body["unfurl_links"] = json!(false);
        body["unfurl_media"] = json!(false);
        if let Some(root) = root {
            body["thread_ts"] = json!(root);
        }
        match self.web.call("chat.postMessage", &body).await {
            Ok(answer) => {
                intercom_failpoint::visit("slack.posted");
                SendOutcome::Sent(answer["ts"].as_str().map(str::to_owned))
            }
            Err(trouble) => SendOutcome::Trouble(trouble),
        }
    }

    /// A message of ours that may have been posted, by the name of its first block.
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
            return SendOutcome::Sent(None); // it has gone with its session
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
                Ok(_) | Err(SlackCallError::Refused(_)) => {} // it is not there
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

    /// Something that Slack will not have. Nothing behind it waits for it, and what can be saved is saved.
    async fn refused(&self, message: &SlackMessage, why: &str) -> SendOutcome {
        tracing::error!(key = message.key, why, "Slack refuses a message");
        let gone = ["message_not_found", "thread_not_found"].iter().any(|code| why.starts_with(code));
        if gone {
            // A person has removed it. What waits for somebody is said again, and the root of a thread with it.
            let lost = match (&message.ts, &message.thread) {
                (Some(_), _) if message.open || message.thread.is_none() => Some(message.key.clone()),
                (None, Some(root)) if why.starts_with("thread_not_found") => Some(root.clone()),
                _ => None,
            };
            if let Some(key) = lost {
                return match self.store.slack_mark_lost(key).await {
                    Ok(()) => SendOutcome::Trouble(SlackCallError::Later(
                        "it was removed and is posted again".to_owned(),
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
                return SendOutcome::Sent(None); // it stays as it is
            }
            // Somebody waits for what it shows. Another app may have posted it; ours can post it again.
            return match self.store.slack_mark_lost(message.key.clone()).await {
                Ok(()) => SendOutcome::Trouble(SlackCallError::Later(
                    "it cannot be edited and is posted again".to_owned(),
                )),
                Err(error) => SendOutcome::Store(error),
            };
        }
        if body.get("blocks").is_none() {
            return self.give_up(message, why);
        }
        // Better a plain line than nothing at all.
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

    /// Slack refuses it in every form. What somebody waits for is tried again all the same, and said; the rest is counted.
    fn give_up(&self, message: &SlackMessage, why: &str) -> SendOutcome {
        if message.open {
            return SendOutcome::Trouble(SlackCallError::Refused(why.to_owned()));
        }
        tracing::error!(key = message.key, why, "Slack refuses a message in every form; it is given up");
        self.link.gave_up();
        SendOutcome::Sent(None)
    }
}

impl From<SlackMessage> for OutboxRow {
    fn from(message: SlackMessage) -> Self {
        let wanted: Option<DesiredContent> = serde_json::from_str(&message.wanted).ok();
        // A reaction is on somebody else's message, and a file may have to wait for a scope: nothing waits for them.
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
    tracing::warn!(%error, "what became of a message to Slack cannot be written down yet");
    AttemptOutcome::Failed
}

fn jitter() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0
}
