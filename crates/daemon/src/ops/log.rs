//! The log for readers: pages, a stream, or a file.
//!
//! A stream reads the store at its reader's own pace and sleeps until the bell rings. Nothing is queued for a slow
//! reader, so it costs nothing.

use std::collections::VecDeque;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::viewer_log::ViewerLog;
use super::{Caller, ErrorKind, LogReader, OpError, OperationKind, Operations, limit};
use intercom_store::bus::BellListener;
use intercom_store::{LogCutoff, StoreError};
use intercom_types::text::cut;
use intercom_types::{ErrorAttachment, EventBody, EventKind, EventPage, LoggedEvent, Role, SessionId};

/// The number and interval of retries after a failed read, before the reader has to reconnect.
const MAX_FAILURES: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(250);
/// The limit on events per read.
const BATCH: usize = 500;
/// The column limit of a summary: an agent's line may have megabytes, which are in the data already.
const MAX_SUMMARY: usize = 1000;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    pub after: Option<u64>,
    /// With `session`: returns the newest events before this one, oldest first; pages only.
    pub before: Option<u64>,
    pub(crate) session: Option<String>,
    pub(crate) limit: Option<usize>,
    /// `false` omits the summaries; `own` includes only those of intercom's own events.
    #[serde(default)]
    pub(crate) summary: SummaryMode,
}

/// The selection of events with summaries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Summaries")]
pub(crate) enum SummaryMode {
    #[default]
    True,
    False,
    /// Only intercom's own events; agent text is in the data.
    Own,
}

impl SummaryMode {
    fn body(self, event: LoggedEvent) -> EventBody {
        let summary = match self {
            Self::True => Some(event.event().summary(|time| time.to_string())),
            Self::Own if event.known_kind().is_some_and(EventKind::is_said_by_agent) => None,
            Self::Own => Some(event.event().summary(|time| time.to_string())),
            Self::False => None,
        };
        EventBody {
            tone: summary.as_ref().map(|summary| summary.tone),
            summary: summary.map(|summary| cut(&summary.sentence(), MAX_SUMMARY)),
            seq: event.seq,
            session: event.session.to_string(),
            at: event.at.to_string(),
            kind: event.kind,
            data: event.data,
        }
    }
}

impl Operations {
    /// Returns a page of the log, with the content that this caller may see.
    pub async fn event_page(&self, caller: &Caller, query: EventsQuery) -> Result<EventPage, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let EventsQuery { after, before, session, limit: most, summary } = query;
        let (log, session) = (self.log(), self.session_id(session).await?);
        let (events, goes_back) = match before {
            None => (log.events(after, session, limit(most)?).await?.map_err(trimmed)?, false),
            Some(before) => {
                let (Some(session), None) = (session, after) else {
                    let message = "`before` needs `session` and excludes `after`";
                    return Err(OpError::bad_request(message));
                };
                (log.events_before(before, session, limit(most)?).await?, true)
            }
        };
        let first = events.first().map(|event| event.seq);
        let events =
            if caller.role > Role::Viewer { events } else { ViewerLog::page(&log, session, events).await? };
        // Backwards, the position for the page before this one. Forwards, more events are known only after another
        // read: every page that is not empty has a next one.
        let next = if goes_back { first } else { events.last().map(|event| event.seq) };
        Ok(EventPage { items: events.into_iter().map(|event| summary.body(event)).collect(), next })
    }

    /// Follows the log from a position, until `closing`.
    pub async fn follow_events(
        &self,
        caller: &Caller,
        query: EventsQuery,
        closing: CancellationToken,
    ) -> Result<EventFollower, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let (log, session) = (self.log(), self.session_id(query.session).await?);
        let mut bell = log.listen();
        bell.newest();
        // A first read shows whether retention has removed the requested events.
        let first = log.events(query.after, session, BATCH).await?.map_err(trimmed)?;
        Ok(EventFollower {
            viewer: viewer_log(caller),
            shown: VecDeque::new(),
            log,
            caller: caller.clone(),
            closing,
            bell,
            session,
            after: query.after.unwrap_or(0),
            batch: first.into_iter(),
            failures: 0,
            summaries: query.summary,
        })
    }

    /// Returns a session's log from its beginning to now; it is read batch by batch.
    pub async fn session_log(&self, caller: &Caller, typed: &str) -> Result<SessionLog, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let (log, session) = (self.log(), self.session_record(typed).await?.id);
        let end = log.listen().newest();
        Ok(SessionLog { log, caller: caller.clone(), session, end, place: Some((0, viewer_log(caller))) })
    }
}

/// Returns the redacting filter; `None` for callers who may see everything.
fn viewer_log(caller: &Caller) -> Option<ViewerLog> {
    (caller.role == Role::Viewer).then(ViewerLog::default)
}

fn trimmed(LogCutoff { oldest }: LogCutoff) -> OpError {
    let message = format!("events before {oldest} were removed by retention");
    OpError::new(ErrorKind::Removed, "trimmed", message)
        .hint(format!("continue with after={}", oldest.saturating_sub(1)))
        .with(ErrorAttachment::Oldest(oldest))
}

/// A session's log up to the newest event at the time of the request.
#[derive(Debug)]
pub struct SessionLog {
    log: LogReader,
    caller: Caller,
    session: SessionId,
    end: u64,
    /// The last event that was read, and the filter that hides secrets from a viewer; `None` after the end.
    place: Option<(u64, Option<ViewerLog>)>,
}

impl SessionLog {
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the next events; `None` after the end.
    pub async fn next(&mut self) -> Result<Option<Vec<EventBody>>, StoreError> {
        let Some((after, mut viewer)) = self.place.take().filter(|_| !self.caller.is_out()) else {
            return Ok(None);
        };
        let batch = self.log.events(Some(after), Some(self.session), BATCH).await?.unwrap_or_default();
        let batch: Vec<LoggedEvent> = batch.into_iter().take_while(|event| event.seq <= self.end).collect();
        let last = batch.last().map(|event| event.seq);
        let mut shown = Vec::with_capacity(batch.len());
        for event in batch {
            match &mut viewer {
                None => shown.push(event),
                Some(viewer) => viewer.push(&self.log, event, &mut shown).await?,
            }
        }
        if let (None, Some(viewer)) = (last, &mut viewer) {
            viewer.release_all(&mut shown);
        }
        self.place = last.map(|last| (last, viewer));
        Ok(Some(shown.into_iter().map(|event| SummaryMode::False.body(event)).collect()))
    }
}

/// A reader that follows the growing log.
#[derive(Debug)]
pub struct EventFollower {
    log: LogReader,
    /// Streams end when the daemon does.
    closing: CancellationToken,
    caller: Caller,
    bell: BellListener,
    session: Option<SessionId>,
    after: u64,
    batch: std::vec::IntoIter<LoggedEvent>,
    /// The filter that hides secrets from a viewer.
    viewer: Option<ViewerLog>,
    /// Events that the filter has released and that are not sent yet.
    shown: VecDeque<LoggedEvent>,
    /// The number of consecutive failed reads.
    failures: u32,
    summaries: SummaryMode,
}

impl EventFollower {
    /// Returns the next event, with the position from which its reader resumes after it. `None` ends the stream.
    pub async fn next(&mut self) -> Option<(u64, EventBody)> {
        let event = self.next_event().await?;
        Some((self.resume_point(event.seq), self.summaries.body(event)))
    }

    /// Returns the position from which a reader resumes after this event: before any event that is still held.
    fn resume_point(&self, seq: u64) -> u64 {
        let held = self.viewer.as_ref().map_or(seq, |log| log.resume_point(seq));
        self.shown.iter().fold(held, |at, event| at.min(event.seq.saturating_sub(1)))
    }

    /// Queues the event with the content that this caller may see. `None` if the store does not answer.
    async fn show(&mut self, event: LoggedEvent) -> Option<()> {
        let Some(log) = &mut self.viewer else {
            self.shown.push_back(event);
            return Some(());
        };
        let mut out = Vec::new();
        log.push(&self.log, event, &mut out).await.ok()?;
        self.shown.extend(out);
        Some(())
    }

    /// Returns the next event. `None` ends the stream: the daemon stops, or the store does not answer. The reader
    /// reconnects with its last id.
    async fn next_event(&mut self) -> Option<LoggedEvent> {
        loop {
            // After the end of its access a caller gets no more events, even in the middle of a batch.
            if self.caller.is_out() {
                return None;
            }
            if let Some(event) = self.shown.pop_front() {
                return Some(event);
            }
            if let Some(event) = self.batch.next() {
                self.after = event.seq;
                self.show(event).await?;
                continue;
            }
            let closing = self.closing.clone();
            // Events that were recorded before the stop of the daemon are sent before the stream ends.
            let last_look = closing.is_cancelled();
            let batch = match self.log.events(Some(self.after), self.session, BATCH).await {
                Ok(Ok(batch)) => batch,
                // A failure may pass in a moment, and a reader need not notice it.
                Err(error) if self.failures < MAX_FAILURES && !closing.is_cancelled() => {
                    self.failures += 1;
                    tracing::warn!(%error, after = self.after, "a stream cannot read the log; retrying");
                    tokio::time::sleep(TRY_AGAIN).await;
                    continue;
                }
                Err(_) => return None,
                // Retention removed events that were not read yet: continue after them.
                Ok(Err(LogCutoff { oldest })) => {
                    self.after = oldest.saturating_sub(1);
                    continue;
                }
            };
            self.failures = 0;
            if batch.is_empty() {
                let rung = async {
                    tokio::select! {
                        rung = self.bell.wait_for_ring() => rung,
                        () = self.caller.access_ended() => false,
                    }
                };
                if last_look || closing.run_until_cancelled(rung).await == Some(false) {
                    return None;
                }
            }
            self.batch = batch.into_iter();
        }
    }
}
