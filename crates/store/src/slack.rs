//! Unprocessed payloads from Slack, and our messages there: their desired content, and the version that Slack has.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Store, StoreError};
use intercom_types::{SessionId, Time};

/// The time for which a repeated delivery is recognised.
const REMEMBERED_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// The maximum difference between our clock and Slack's.
pub const SKEW_MILLIS: i64 = 5 * 60 * 1000;

/// One message, card, file or reaction of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackMessage {
    /// The position in the order of messages.
    pub place: i64,
    pub key: String,
    pub session: Option<SessionId>,
    pub channel: String,
    /// The key of the message whose thread it belongs to.
    pub thread: Option<String>,
    /// Slack's id of the message, once it is posted.
    pub ts: Option<String>,
    /// The desired content.
    pub wanted: String,
    /// The version of the desired content; `sent` is the version that Slack has.
    pub version: i64,
    pub(crate) sent: i64,
    /// The time of an attempt to post it whose result is unknown.
    pub tried: Option<Time>,
    /// The message waits for a person: its content may change.
    pub open: bool,
    /// Private data of the component that manages the message.
    pub memo: String,
    /// The thread that it belongs to exists, or it needs none.
    pub thread_exists: bool,
}

/// The desired state of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredMessage {
    pub key: String,
    pub session: Option<SessionId>,
    pub channel: String,
    pub thread: Option<String>,
    pub wanted: String,
    pub open: bool,
    pub memo: String,
    pub upsert_rule: UpsertRule,
}

/// The condition for sending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpsertRule {
    /// Send if the content has changed.
    IfNew,
    /// Send even if the content is the same.
    Again,
    /// Like [`Self::IfNew`], but delete the message if it was never posted.
    OrForget,
}

/// The outcome of sending a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlackSendOutcome {
    /// About to be posted.
    Posting(Time),
    /// Not posted; the result is certain.
    NotPosted,
    /// Posted under this id; an edit keeps the id.
    Done { version: i64, ts: Option<String> },
}

const COLUMNS: &str = "place, key, session, channel, thread, ts, wanted, version, sent, tried, open, memo,
    thread IS NULL OR EXISTS (SELECT 1 FROM slack_messages r WHERE r.key = m.thread AND r.ts IS NOT NULL)
    FROM slack_messages m";
/// The number of messages examined to choose the next one to send.
const LOOKED_AT: usize = 1000;
/// The number of messages of one sort examined in a session; those that may still change are among them.
const NEWEST: usize = 20;

impl Store {
    /// Stores a payload from Slack; `false` if it is a repeated delivery.
    pub async fn slack_receive(&self, key: String, frame: String, now: Time) -> Result<bool, StoreError> {
        self.transact(move |connection| {
            connection
                .prepare_cached("DELETE FROM slack_inbox WHERE frame IS NULL AND at <= ?1")?
                .execute([now.minus_millis(REMEMBERED_MILLIS).millis()])?;
            // Ordered after all waiting payloads, even within one millisecond or after the clock was set back: they are
            // processed in order.
            let new = connection
                .prepare_cached(
                    "INSERT INTO slack_inbox VALUES (?1,
                         max(?2, 1 + coalesce((SELECT max(at) FROM slack_inbox WHERE frame IS NOT NULL), 0)), ?3)
                     ON CONFLICT DO NOTHING",
                )?
                .execute(params![key, now.millis(), frame])?;
            Ok(new == 1)
        })
        .await
    }

    /// Returns the unprocessed payloads in the order in which they arrived.
    pub async fn slack_received(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.read(|connection| {
            let mut select = connection.prepare_cached(
                "SELECT key, frame FROM slack_inbox WHERE frame IS NOT NULL ORDER BY at, key",
            )?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Marks a payload as processed: only its key is kept.
    pub async fn slack_mark_processed(&self, key: String) -> Result<(), StoreError> {
        self.transact(move |connection| {
            connection
                .prepare_cached("UPDATE slack_inbox SET frame = NULL WHERE key = ?1")?
                .execute([key])?;
            Ok(())
        })
        .await
    }

    /// Updates desired messages and the position in the log in one transaction. Returns the number of changed messages.
    pub async fn slack_upsert(
        &self,
        messages: Vec<DesiredMessage>,
        seq: Option<u64>,
    ) -> Result<usize, StoreError> {
        self.transact(move |connection| {
            let mut changed = 0;
            for message in &messages {
                changed += apply(connection, message)?;
            }
            if let Some(seq) = seq {
                super::cursor::set(connection, "slack", seq)?;
            }
            Ok(changed)
        })
        .await
    }

    /// Records the outcome of sending; `false` if the message was deleted.
    pub async fn slack_sent(&self, key: String, sent: SlackSendOutcome) -> Result<bool, StoreError> {
        self.transact(move |connection| {
            let rows = match sent {
                SlackSendOutcome::Posting(at) => connection
                    .prepare_cached("UPDATE slack_messages SET tried = ?2 WHERE key = ?1")?
                    .execute(params![key, at.millis()])?,
                SlackSendOutcome::NotPosted => connection
                    .prepare_cached("UPDATE slack_messages SET tried = NULL WHERE key = ?1")?
                    .execute([key])?,
                SlackSendOutcome::Done { version, ts } => connection
                    .prepare_cached(
                        "UPDATE slack_messages SET sent = max(sent, ?2), ts = coalesce(?3, ts), tried = NULL
                         WHERE key = ?1",
                    )?
                    .execute(params![key, version, ts])?,
            };
            Ok(rows > 0)
        })
        .await
    }

    /// Returns the messages whose newest version Slack does not have; if there are too many, the open ones first.
    pub async fn slack_unsent(&self) -> Result<Vec<SlackMessage>, StoreError> {
        let order = format!("ORDER BY open DESC, place LIMIT {LOOKED_AT}");
        self.slack_messages(format!("SELECT {COLUMNS} WHERE sent < version {order}"), Vec::new()).await
    }

    /// Marks a message that was deleted in Slack: it will be posted again.
    pub async fn slack_mark_lost(&self, key: String) -> Result<(), StoreError> {
        self.transact(move |connection| {
            let sql = "UPDATE slack_messages SET ts = NULL, tried = NULL, sent = 0 WHERE key = ?1";
            connection.prepare_cached(sql)?.execute([key])?;
            Ok(())
        })
        .await
    }

    /// Returns our open messages: those that wait for a person.
    pub async fn slack_open(&self) -> Result<Vec<SlackMessage>, StoreError> {
        self.slack_messages(format!("SELECT {COLUMNS} WHERE open ORDER BY place"), Vec::new()).await
    }

    pub async fn slack_message(&self, key: String) -> Result<Option<SlackMessage>, StoreError> {
        let found = self.slack_messages(format!("SELECT {COLUMNS} WHERE key = ?1"), vec![key]).await?;
        Ok(found.into_iter().next())
    }

    /// Returns the newest messages of one session with this key prefix, oldest first: a session may have thousands.
    pub async fn slack_newest(
        &self,
        session: SessionId,
        prefix: &str,
    ) -> Result<Vec<SlackMessage>, StoreError> {
        let mine = "WHERE session = ?1 AND substr(key, 1, length(?2)) = ?2";
        let sql = format!("SELECT {COLUMNS} {mine} ORDER BY place DESC LIMIT {NEWEST}");
        let mut newest = self.slack_messages(sql, vec![session.to_string(), prefix.to_owned()]).await?;
        newest.reverse();
        Ok(newest)
    }

    /// Returns the message with this id in Slack.
    pub async fn slack_at(&self, channel: &str, ts: &str) -> Result<Option<SlackMessage>, StoreError> {
        let sql = format!("SELECT {COLUMNS} WHERE channel = ?1 AND ts = ?2");
        let found = self.slack_messages(sql, vec![channel.to_owned(), ts.to_owned()]).await?;
        Ok(found.into_iter().next())
    }

    /// Reports whether a thread of this channel that began then may be ours although its id is not known yet.
    pub async fn slack_thread_may_be_ours(&self, channel: String, begun: Time) -> Result<bool, StoreError> {
        self.read(move |connection| {
            // A thread that existed long before our attempt to start one is not ours.
            let select = "SELECT EXISTS (SELECT 1 FROM slack_messages
                WHERE sent < version AND channel = ?1 AND thread IS NULL AND ts IS NULL AND tried <= ?2)";
            let latest = begun.millis().saturating_add(SKEW_MILLIS);
            Ok(connection.prepare_cached(select)?.query_row(params![channel, latest], |row| row.get(0))?)
        })
        .await
    }

    async fn slack_messages(
        &self,
        sql: String,
        values: Vec<String>,
    ) -> Result<Vec<SlackMessage>, StoreError> {
        self.read(move |connection| {
            let mut select = connection.prepare_cached(&sql)?;
            let rows = select.query_map(rusqlite::params_from_iter(values), message)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Counts the messages that wait to be sent.
    pub async fn slack_backlog(&self) -> Result<u64, StoreError> {
        self.read(|connection| {
            let count = "SELECT count(*) FROM slack_messages WHERE sent < version";
            let count: i64 = connection.query_row(count, [], |row| row.get(0))?;
            Ok(u64::try_from(count).unwrap_or(0))
        })
        .await
    }

    /// Returns the verbosity that people chose for one thread; `None` means the configured one.
    pub async fn slack_verbosity(&self, session: SessionId) -> Result<Option<String>, StoreError> {
        self.read(move |connection| {
            let select = "SELECT verbosity FROM slack_threads WHERE session = ?1";
            Ok(connection
                .prepare_cached(select)?
                .query_row([session.to_string()], |row| row.get(0))
                .optional()?)
        })
        .await
    }

    pub async fn slack_set_verbosity(&self, session: SessionId, verbosity: &str) -> Result<(), StoreError> {
        let verbosity = verbosity.to_owned();
        self.transact(move |connection| {
            connection
                .prepare_cached("INSERT OR REPLACE INTO slack_threads VALUES (?1, ?2)")?
                .execute(params![session.to_string(), verbosity])?;
            Ok(())
        })
        .await
    }
}

fn apply(connection: &Connection, message: &DesiredMessage) -> Result<usize, StoreError> {
    let DesiredMessage { key, session, channel, thread, wanted, open, memo, upsert_rule: rule } = message;
    if *rule == UpsertRule::OrForget {
        let sql = "DELETE FROM slack_messages WHERE key = ?1 AND ts IS NULL AND tried IS NULL";
        if connection.prepare_cached(sql)?.execute([key])? > 0 {
            // The file below it is deleted with it.
            connection
                .prepare_cached("DELETE FROM slack_messages WHERE key = 'diff ' || ?1")?
                .execute([key])?;
            return Ok(1);
        }
    }
    let again = *rule == UpsertRule::Again;
    let changed = connection
        .prepare_cached(
            "INSERT INTO slack_messages (key, session, channel, thread, wanted, version, sent, open, memo)
             VALUES (?1, ?2, ?3, ?4, ?5, 1, 0, ?6, ?7)
             ON CONFLICT (key) DO UPDATE SET wanted = ?5, version = version + 1, open = ?6, memo = ?7
                 WHERE wanted <> ?5 OR open <> ?6 OR memo <> ?7 OR ?8",
        )?
        .execute(params![
            key,
            session.map(|id| id.to_string()),
            channel,
            thread,
            wanted,
            open,
            memo,
            again
        ])?;
    Ok(changed)
}

/// Deletes the records of messages about a removed session; the messages stay in Slack.
pub(super) fn forget(connection: &Connection, session: &str) -> Result<(), StoreError> {
    connection.execute("DELETE FROM slack_messages WHERE session = ?1", [session])?;
    connection.execute("DELETE FROM slack_threads WHERE session = ?1", [session])?;
    Ok(())
}

fn message(row: &Row<'_>) -> Result<SlackMessage, rusqlite::Error> {
    Ok(SlackMessage {
        place: row.get(0)?,
        key: row.get(1)?,
        session: row.get::<_, Option<String>>(2)?.and_then(|id| id.parse().ok()),
        channel: row.get(3)?,
        thread: row.get(4)?,
        ts: row.get(5)?,
        wanted: row.get(6)?,
        version: row.get(7)?,
        sent: row.get(8)?,
        tried: row.get::<_, Option<i64>>(9)?.map(Time::from_millis),
        open: row.get(10)?,
        memo: row.get(11)?,
        thread_exists: row.get(12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::Bell;

    fn desired(key: &str, wanted: &str) -> DesiredMessage {
        let (key, wanted) = (key.to_owned(), wanted.to_owned());
        let (channel, memo) = ("C1".to_owned(), String::new());
        DesiredMessage {
            key,
            session: None,
            channel,
            thread: None,
            wanted,
            open: true,
            memo,
            upsert_rule: UpsertRule::IfNew,
        }
    }

    #[tokio::test]
    async fn what_came_twice_is_kept_once_also_after_it_was_worked_off() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("intercom.db"), Bell::new()).unwrap();
        let receive = |at: i64| store.slack_receive("Ev1".into(), "{}".into(), Time::from_millis(at));
        assert!(receive(1).await.unwrap() && !receive(2).await.unwrap());
        assert_eq!(store.slack_received().await.unwrap(), [("Ev1".to_owned(), "{}".to_owned())]);
        store.slack_mark_processed("Ev1".into()).await.unwrap();
        assert!(store.slack_received().await.unwrap().is_empty() && !receive(3).await.unwrap());
        assert!(receive(1 + REMEMBERED_MILLIS).await.unwrap(), "keys are not kept for ever");
    }

    #[tokio::test]
    async fn what_came_is_worked_off_in_the_order_in_which_it_came() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("intercom.db"), Bell::new()).unwrap();
        for (key, at) in [("Ev9", 5), ("Ev1", 5), ("Ev5", 3)] {
            store.slack_receive(key.into(), "{}".into(), Time::from_millis(at)).await.unwrap();
        }
        let keys: Vec<String> =
            store.slack_received().await.unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["Ev9", "Ev1", "Ev5"], "one millisecond, and a clock that was set back");
    }

    #[tokio::test]
    async fn of_a_long_session_only_the_newest_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("intercom.db"), Bell::new()).unwrap();
        let session = SessionId::mint();
        let messages = (0..50).flat_map(|n| {
            ["talk", "turn"]
                .map(|sort| DesiredMessage { session: Some(session), ..desired(&format!("{sort} {n}"), "1") })
        });
        store.slack_upsert(messages.collect(), None).await.unwrap();
        let newest = store.slack_newest(session, "talk ").await.unwrap();
        let keys: Vec<&str> = newest.iter().map(|message| message.key.as_str()).collect();
        assert_eq!((keys.len(), keys[0], keys[NEWEST - 1]), (NEWEST, "talk 30", "talk 49"));
    }

    #[tokio::test]
    async fn only_the_latest_wish_counts_and_the_same_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("intercom.db"), Bell::new()).unwrap();
        assert_eq!(store.slack_upsert(vec![desired("a", "1"), desired("b", "1")], Some(7)).await.unwrap(), 2);
        assert_eq!(store.slack_upsert(vec![desired("a", "1")], None).await.unwrap(), 0);
        assert_eq!(
            store
                .slack_upsert(
                    vec![DesiredMessage { upsert_rule: UpsertRule::Again, ..desired("a", "1") }],
                    None
                )
                .await
                .unwrap(),
            1
        );
        store.slack_upsert(vec![desired("a", "2")], None).await.unwrap();
        assert_eq!(store.cursor("slack").await.unwrap(), Some(7));
        store.slack_sent("a".into(), SlackSendOutcome::Posting(Time::from_millis(5))).await.unwrap();
        let done = SlackSendOutcome::Done { version: 1, ts: Some("17.1".to_owned()) };
        store.slack_sent("a".into(), done).await.unwrap();
        let unsent = store.slack_unsent().await.unwrap();
        assert_eq!(
            unsent.iter().map(|row| (row.key.as_str(), row.version, row.sent)).collect::<Vec<_>>(),
            [("a", 3, 1), ("b", 1, 0)]
        );
        assert_eq!((unsent[0].tried, unsent[0].ts.as_deref()), (None, Some("17.1")));
        store.slack_sent("a".into(), SlackSendOutcome::Done { version: 3, ts: None }).await.unwrap();
        assert_eq!(store.slack_at("C1", "17.1").await.unwrap().unwrap().sent, 3);
        assert_eq!((store.slack_backlog().await.unwrap(), store.slack_open().await.unwrap().len()), (1, 2));
    }
}
