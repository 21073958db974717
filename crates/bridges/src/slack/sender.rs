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
use super::link::{Link, Unsent};
use super::outbox::{Attempt, Fate, Outbox, Row, Sort};
use super::web::{Trouble, Upload, Web};
use intercom_store::{SLACK_SKEW_MILLIS, SlackMessage, SlackSent, Store, StoreError};
use intercom_types::Time;
use intercom_types::text::{clean, visible};

/// A message that was posted just now is not further back.
const PAGES: usize = 5;
const BREATHER: Duration = Duration::from_secs(1);

/// A wanted change in Slack. In the store as JSON.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Wanted {
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

impl Wanted {
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("it has string keys only")
    }
}

pub(super) struct Sender {
    pub(super) store: Store,
    pub(super) web: Arc<Web>,
    pub(super) link: Link,
    pub(super) access: SlackAccess,
    /// Rung when something is wanted.
    pub(super) bell: Arc<Notify>,
}

/// The outcome of an attempt, for the store.
enum Ended {
    Sent(Option<String>),
    /// A plain line is there in its place.
    StoodIn(Option<String>),
    Trouble(Trouble),
    /// The message may or may not be there, and it was already in doubt.
    InDoubt(Trouble),
    /// Our own store failed: nothing was sent.
    Store(StoreError),
}

impl Sender {
    pub(super) async fn run(self, closing: CancellationToken) {
        let this = Arc::new(self);
        closing.run_until_cancelled(this.send_all()).await;
    }

    async fn send_all(self: &Arc<Self>) {
        let mut outbox = Outbox::default();
        let mut tasks: JoinSet<(Row, Fate)> = JoinSet::new();
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
            let rows: Vec<Row> = rows.into_iter().map(Row::from).collect();
            let count = self.store.slack_backlog().await.unwrap_or_default();
            let seen = rows.iter().map(|row| (row.key.as_str(), row.is_pending_card())).collect();
            self.link.unsent(&Unsent { count, rows: seen });
            outbox.forget(&rows);
            let plan = outbox.plan(&rows, Instant::now());
            for attempt in plan.send {
                let this = Arc::clone(self);
                tasks.spawn(async move {
                    // A bug in one message must not keep its thread for ever.
                    let fate = AssertUnwindSafe(this.attempt(&attempt)).catch_unwind().await;
                    (attempt.row, fate.unwrap_or(Fate::Failed))
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
                        outbox.landed(&row, fate, Instant::now(), jitter());
                    }
                    while let Some(Ok((row, fate))) = tasks.try_join_next() {
                        outbox.landed(&row, fate, Instant::now(), jitter());
                    }
                }
                // It may be back: no need to wait for the next attempt.
                Ok(()) = connected.changed() => if *connected.borrow_and_update() > 0 { outbox.awake() },
                () = look_again => {}
            }
        }
    }

    async fn attempt(&self, attempt: &Attempt) -> Fate {
        let Attempt { row: Row { key, rooted, .. }, stand_in } = attempt;
        let message = match self.store.slack_message(key.to_owned()).await {
            Ok(Some(message)) => message,
            Ok(None) => return Fate::Done, // retention was faster
            Err(error) => return not_stored(&error),
        };
        let version = message.version;
        let sent = if *stand_in {
            self.stand_in(&message, *rooted).await
        } else {
            self.send(&message, *rooted).await
        };
        let ended = match sent {
            Ended::Trouble(Trouble::Refused(why)) => self.refused(&message, &why).await,
            ended => ended,
        };
        let (fate, sent) = match ended {
            Ended::Sent(ts) => {
                self.link.sent(key);
                (Fate::Done, SlackSent::Done { version, ts })
            }
            Ended::StoodIn(ts) => (Fate::StoodIn, SlackSent::Done { version: 0, ts }),
            Ended::Store(error) => return not_stored(&error),
            Ended::InDoubt(trouble) => {
                tracing::warn!(key, %trouble, "a message cannot be looked for yet");
                self.link.trouble(key, &trouble);
                return match trouble {
                    Trouble::Slow(wait) => Fate::Slow(wait),
                    _ => Fate::Failed,
                };
            }
            Ended::Trouble(trouble) => {
                tracing::warn!(key, %trouble, "Slack did not take a message; it is sent again");
                self.link.trouble(key, &trouble);
                match trouble {
                    Trouble::Unsure(_) => return Fate::Failed,
                    Trouble::Slow(wait) => (Fate::Slow(wait), SlackSent::Untried),
                    Trouble::Setup(_) => (Fate::Setup, SlackSent::Untried),
                    Trouble::Later(_) | Trouble::Unknown(_) | Trouble::Refused(_) => {
                        (Fate::Failed, SlackSent::Untried)
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
    async fn root_of(&self, message: &SlackMessage, rooted: bool) -> Result<Option<String>, Ended> {
        let Some(key) = &message.thread else { return Ok(None) };
        match self.store.slack_message(key.clone()).await {
            Ok(Some(SlackMessage { ts: Some(ts), .. })) => Ok(Some(ts)),
            Ok(_) if !rooted => Ok(None),
            Ok(_) => Err(Ended::Trouble(Trouble::Later("its thread is not there".to_owned()))),
            Err(error) => Err(Ended::Store(error)),
        }
    }

    async fn send(&self, message: &SlackMessage, rooted: bool) -> Ended {
        let Ok(wanted) = serde_json::from_str::<Wanted>(&message.wanted) else {
            tracing::error!(key = message.key, "it cannot be read and is not sent");
            return Ended::Sent(None);
        };
        let root = match self.root_of(message, rooted).await {
            Ok(root) => root,
            Err(ended) => return ended,
        };
        let root = root.as_deref();
        match (wanted, &message.ts) {
            (Wanted::Message(body), Some(ts)) => self.edit(message, body, ts).await,
            (Wanted::Message(body), None) => self.post(message, body, root).await,
            (Wanted::Diff { clearance }, _) => self.attach(message, &clearance, root).await,
            (Wanted::Reaction { of, name, instead_of }, _) => {
                self.react(message, &of, &name, instead_of).await
            }
        }
    }

    /// A message that Slack did not take several times: its one-line text is posted, and the message follows as an edit.
    async fn stand_in(&self, message: &SlackMessage, rooted: bool) -> Ended {
        let body = match serde_json::from_str(&message.wanted) {
            Ok(Wanted::Message(body)) if body.get("blocks").is_some() => body,
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
            Ended::Sent(ts) => Ended::StoodIn(ts),
            ended => ended,
        }
    }

    async fn edit(&self, message: &SlackMessage, mut body: Value, ts: &str) -> Ended {
        body["channel"] = json!(message.channel);
        body["ts"] = json!(ts);
        body["parse"] = json!("none");
        match self.web.call("chat.update", &body).await {
            Ok(_) => Ended::Sent(None),
            // An edit can be made twice.
            Err(Trouble::Unsure(why)) => Ended::Trouble(Trouble::Later(why)),
            Err(trouble) => Ended::Trouble(trouble),
        }
    }

    async fn post(&self, message: &SlackMessage, mut body: Value, root: Option<&str>) -> Ended {
        if let Some(tried) = message.tried {
            match self.find(message, tried, root).await {
                // As it was when it was tried; what has changed since is an edit.
                Ok(Some(ts)) => {
                    let found = SlackSent::Done { version: 0, ts: Some(ts.clone()) };
                    if let Err(error) = self.store.slack_sent(message.key.clone(), found).await {
                        return Ended::Store(error);
                    }
                    return self.edit(message, body, &ts).await;
                }
                Ok(None) => {}
                // If we may not look, it is posted again: twice is better than never.
                Err(trouble @ (Trouble::Setup(_) | Trouble::Refused(_) | Trouble::Unknown(_))) => {
                    tracing::warn!(key = message.key, %trouble, "it may be there twice: it could not be looked for");
                }
                Err(trouble) => return Ended::InDoubt(trouble),
            }
        }
        match self.store.slack_sent(message.key.clone(), SlackSent::Trying(Time::now())).await {
            Ok(true) => {}
            Ok(false) => return Ended::Sent(None), // nobody needs it any more
            Err(error) => return Ended::Store(error),
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
                Ended::Sent(answer["ts"].as_str().map(str::to_owned))
            }
            Err(trouble) => Ended::Trouble(trouble),
        }
    }

    /// A message of ours that may have been posted, by the name of its first block.
    async fn find(
        &self,
        message: &SlackMessage,
        tried: Time,
        root: Option<&str>,
    ) -> Result<Option<String>, Trouble> {
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

    async fn attach(&self, message: &SlackMessage, clearance: &str, root: Option<&str>) -> Ended {
        let found = match self.access.clearance(clearance).await {
            Ok(found) => found,
            Err(error) => return Ended::Store(error.into()),
        };
        let (Some(found), Some(thread)) = (found, root) else {
            return Ended::Sent(None); // it has gone with its session
        };
        let parts = [found.command, found.diff].into_iter().flatten().filter(|part| !part.is_empty());
        let content = visible(&parts.collect::<Vec<_>>().join("\n\n"));
        let (name, title) = (format!("{clearance}.diff"), clean(&found.title));
        let upload = Upload {
            name: &name,
            title: &title,
            content: &content,
            channel: &message.channel,
            thread: Some(thread),
        };
        match self.web.upload(&upload).await {
            Ok(()) => Ended::Sent(None),
            Err(trouble) => Ended::Trouble(trouble),
        }
    }

    async fn react(&self, message: &SlackMessage, of: &str, name: &str, instead_of: Option<String>) -> Ended {
        let body = |name: &str| json!({ "channel": message.channel, "timestamp": of, "name": name });
        if let Some(other) = instead_of {
            match self.web.call("reactions.remove", &body(&other)).await {
                Ok(_) | Err(Trouble::Refused(_)) => {} // it is not there
                Err(trouble) => return Ended::Trouble(trouble),
            }
        }
        match self.web.call("reactions.add", &body(name)).await {
            Ok(_) => Ended::Sent(None),
            Err(Trouble::Refused(why)) if why.starts_with("already_reacted") => Ended::Sent(None),
            Err(trouble) => Ended::Trouble(trouble),
        }
    }

    /// Something that Slack will not have. Nothing behind it waits for it, and what can be saved is saved.
    async fn refused(&self, message: &SlackMessage, why: &str) -> Ended {
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
                return match self.store.slack_lost(key).await {
                    Ok(()) => Ended::Trouble(Trouble::Later("it was removed and is posted again".to_owned())),
                    Err(error) => Ended::Store(error),
                };
            }
            return Ended::Sent(None);
        }
        let Ok(Wanted::Message(body)) = serde_json::from_str(&message.wanted) else {
            return self.give_up(message, why);
        };
        if ["cant_update_message", "edit_window_closed"].iter().any(|code| why.starts_with(code)) {
            if !message.open || message.thread.is_none() {
                return Ended::Sent(None); // it stays as it is
            }
            // Somebody waits for what it shows. Another app may have posted it; ours can post it again.
            return match self.store.slack_lost(message.key.clone()).await {
                Ok(()) => {
                    Ended::Trouble(Trouble::Later("it cannot be edited and is posted again".to_owned()))
                }
                Err(error) => Ended::Store(error),
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
            Ended::Trouble(Trouble::Refused(why)) => self.give_up(message, &why),
            sent => sent,
        }
    }

    /// Slack refuses it in every form. What somebody waits for is tried again all the same, and said; the rest is counted.
    fn give_up(&self, message: &SlackMessage, why: &str) -> Ended {
        if message.open {
            return Ended::Trouble(Trouble::Refused(why.to_owned()));
        }
        tracing::error!(key = message.key, why, "Slack refuses a message in every form; it is given up");
        self.link.gave_up();
        Ended::Sent(None)
    }
}

impl From<SlackMessage> for Row {
    fn from(message: SlackMessage) -> Self {
        let wanted: Option<Wanted> = serde_json::from_str(&message.wanted).ok();
        // A reaction is on somebody else's message, and a file may have to wait for a scope: nothing waits for them.
        let alone = matches!(wanted, Some(Wanted::Diff { .. } | Wanted::Reaction { .. }));
        let reaction = matches!(wanted, Some(Wanted::Reaction { .. }));
        let sort = match message.ts {
            None if reaction => Sort::Edit,
            None => Sort::Post,
            Some(_) if message.thread.is_none() || message.key.starts_with("talk ") => Sort::Status,
            Some(_) => Sort::Edit,
        };
        let lane = message.thread.as_ref().filter(|_| !alone).unwrap_or(&message.key).clone();
        Self {
            place: message.place,
            rooted: message.rooted,
            sort,
            key: message.key,
            channel: message.channel,
            lane,
            open: message.open,
        }
    }
}

fn not_stored(error: &StoreError) -> Fate {
    tracing::warn!(%error, "what became of a message to Slack cannot be written down yet");
    Fate::Failed
}

fn jitter() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0
}
