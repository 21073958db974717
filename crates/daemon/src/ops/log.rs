//! The log for readers: pages, a stream, or a file.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::event_follower::EventFollower;
use super::event_frames::{LogView, append_event};
use super::viewer_log::ViewerLog;
use super::{Caller, ErrorKind, LogReader, OpError, OperationKind, Operations, limit};
use intercom_store::{LogCutoff, StoreError};
use intercom_types::summary::Tone;
use intercom_types::text::cut;
use intercom_types::{ErrorAttachment, EventBody, EventKind, EventPage, LoggedEvent, Role, SessionId};

/// The limit on events per read of a file.
const BATCH: usize = 1000;
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

/// The options of a session's log as a file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogFileQuery {
    /// Only events after this seq.
    after: Option<u64>,
    /// As for `/events`, but `false` by default.
    summary: Option<SummaryMode>,
}

/// The selection of events with summaries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
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
    /// Returns an event in English, if it is selected.
    pub(super) fn summary(self, event: &LoggedEvent) -> Option<(String, Tone)> {
        let is_selected = match self {
            Self::True => true,
            Self::Own => !event.known_kind().is_some_and(EventKind::is_said_by_agent),
            Self::False => false,
        };
        is_selected.then(|| {
            let summary = event.event().summary(|time| time.to_string());
            (cut(&summary.sentence(), MAX_SUMMARY), summary.tone)
        })
    }

    pub(super) fn body(self, event: LoggedEvent) -> EventBody {
        let (summary, tone) = self.summary(&event).unzip();
        EventBody {
            summary,
            tone,
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
        let session = self.session_id(query.session).await?;
        let view = LogView { session, is_viewer: caller.role == Role::Viewer, summaries: query.summary };
        let registration = self.tails().register(view);
        let follower = EventFollower::open(self.log(), registration, caller.clone(), query.after, closing);
        follower.await?.map_err(trimmed)
    }

    /// Returns a session's log to now, as a file with one event per line; it is read batch by batch.
    pub async fn session_log(
        &self,
        caller: &Caller,
        typed: &str,
        query: LogFileQuery,
    ) -> Result<SessionLog, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let (log, session) = (self.log(), self.session_record(typed).await?.id);
        let end = log.listen().newest();
        let viewer = (caller.role == Role::Viewer).then(ViewerLog::default);
        let place = Some((query.after.unwrap_or(0), viewer));
        let summaries = query.summary.unwrap_or(SummaryMode::False);
        Ok(SessionLog { log, caller: caller.clone(), session, end, place, summaries })
    }
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
    summaries: SummaryMode,
}

impl SessionLog {
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the next events, one per line; `None` after the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
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
        let mut lines = Vec::new();
        for event in &shown {
            append_event(event, self.summaries, &mut lines);
            lines.push(b'\n');
        }
        Ok(Some(lines.into()))
    }
}
