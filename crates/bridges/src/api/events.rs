//! The log over the API: a live stream, or pages.
//!
//! A stream reads the store at its reader's own pace and sleeps until the bell rings. Nothing is queued for a slow
//! reader, so it costs nothing.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use schemars::JsonSchema;
use serde::Deserialize;

use super::ApiBridge;
use super::access::KnownCaller;
use super::error::ApiError;
use super::extract::{NoFields, StrictQuery};
use super::view::{self, SummaryMode};
use crate::viewer_log::ViewerLog;
use intercom_daemon::ops::{Caller, ErrorAttachment, limit};
use intercom_store::LogCutoff;
use intercom_store::bus::BellListener;
use intercom_types::{LoggedEvent, Role, SessionId};

const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The number and interval of retries after a failed read, before the reader has to reconnect.
const MAX_FAILURES: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(250);
/// The limit on events per read.
const BATCH: usize = 500;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    after: Option<u64>,
    /// With `session`: returns the newest events before this one, oldest first; pages only.
    before: Option<u64>,
    session: Option<String>,
    limit: Option<usize>,
    /// `false` omits the summaries; `own` includes only those of intercom's own events.
    #[serde(default)]
    summary: SummaryMode,
}

pub(super) async fn events(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    headers: HeaderMap,
    StrictQuery(query): StrictQuery<EventsQuery>,
) -> Result<Response, ApiError> {
    let session = match &query.session {
        Some(typed) => Some(api.ops().session_record(typed).await?.id),
        None => None,
    };
    let last = match headers.get("last-event-id") {
        None => None,
        Some(value) => {
            let seq = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
            Some(seq.ok_or_else(|| ApiError::bad_request("Last-Event-ID must be a seq"))?)
        }
    };
    let after = last.or(query.after);
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if let Some(before) = query.before {
        let (Some(session), None) = (session, after) else {
            return Err(ApiError::bad_request("`before` needs `session` and excludes `after`"));
        };
        let events = api.store().events_before(before, session, limit(query.limit)?).await?;
        // The position for the page before this one.
        let next = events.first().map(|event| event.seq);
        let events = for_caller(&api, &caller, Some(session), events).await?;
        let items = events.into_iter().map(|event| view::event(event, query.summary)).collect();
        return Ok(Json(view::EventPage { items, next }).into_response());
    }
    if accept.contains("application/json") {
        return page(&api, &caller, after, session, limit(query.limit)?, query.summary).await;
    }
    // A first read shows whether retention has removed the requested events.
    let mut ear = api.bell().listen();
    ear.newest();
    let first = api.store().events(after, session, BATCH).await?.map_err(trimmed)?;
    let follow = EventFollower {
        viewer: viewer_log(&caller),
        shown: VecDeque::new(),
        api,
        caller,
        ear,
        session,
        after: after.unwrap_or(0),
        batch: first.into_iter(),
        failures: 0,
        summaries: query.summary,
    };
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(follow.stream()).keep_alive(keep_alive).into_response())
}

/// Returns the redacting filter; `None` for callers who may see everything.
fn viewer_log(caller: &Caller) -> Option<ViewerLog> {
    (caller.role == Role::Viewer).then(ViewerLog::default)
}

async fn for_caller(
    api: &ApiBridge,
    caller: &Caller,
    session: Option<SessionId>,
    events: Vec<LoggedEvent>,
) -> Result<Vec<LoggedEvent>, ApiError> {
    if caller.role > Role::Viewer {
        return Ok(events);
    }
    Ok(ViewerLog::page(api.store(), session, events).await?)
}

async fn page(
    api: &ApiBridge,
    caller: &Caller,
    after: Option<u64>,
    session: Option<SessionId>,
    limit: usize,
    summaries: SummaryMode,
) -> Result<Response, ApiError> {
    let events = api.store().events(after, session, limit).await?.map_err(trimmed)?;
    let events = for_caller(api, caller, session, events).await?;
    // More events are known only after another read: every page that is not empty has a next one.
    let next = events.last().map(|event| event.seq);
    let items = events.into_iter().map(|event| view::event(event, summaries)).collect();
    Ok(Json(view::EventPage { items, next }).into_response())
}

/// Streams a session's log from its beginning to now.
pub(super) async fn download(
    State(api): State<ApiBridge>,
    KnownCaller(caller): KnownCaller,
    Path(id): Path<String>,
    StrictQuery(NoFields {}): StrictQuery<NoFields>,
) -> Result<Response, ApiError> {
    let session = api.ops().session_record(&id).await?.id;
    let end = api.bell().listen().newest();
    let lines = stream::try_unfold(Some((0, viewer_log(&caller))), move |place| {
        let (api, caller) = (api.clone(), caller.clone());
        async move {
            let Some((after, mut viewer)) = place.filter(|_| !caller.is_out()) else {
                return Ok::<_, io::Error>(None);
            };
            let batch = api.store().events(Some(after), Some(session), BATCH).await;
            let batch = batch.map_err(io::Error::other)?.unwrap_or_default();
            let batch: Vec<LoggedEvent> = batch.into_iter().take_while(|event| event.seq <= end).collect();
            let last = batch.last().map(|event| event.seq);
            let mut shown = Vec::with_capacity(batch.len());
            for event in batch {
                match &mut viewer {
                    None => shown.push(event),
                    Some(log) => log.push(api.store(), event, &mut shown).await.map_err(io::Error::other)?,
                }
            }
            if let (None, Some(log)) = (last, &mut viewer) {
                log.release_all(&mut shown);
            }
            let mut text = String::new();
            for event in shown {
                let view = view::event(event, SummaryMode::False);
                text.push_str(&serde_json::to_string(&view).map_err(io::Error::other)?);
                text.push('\n');
            }
            Ok(Some((text, last.map(|last| (last, viewer)))))
        }
    });
    let name = format!("attachment; filename=\"{session}.jsonl\"");
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CONTENT_DISPOSITION, &name)];
    Ok((headers, Body::from_stream(lines)).into_response())
}

fn trimmed(LogCutoff { oldest }: LogCutoff) -> ApiError {
    let message = format!("events before {oldest} were removed by retention");
    ApiError::new(StatusCode::GONE, "trimmed", message)
        .hint(format!("continue with after={}", oldest.saturating_sub(1)))
        .with(ErrorAttachment::Oldest(oldest))
}

struct EventFollower {
    api: ApiBridge,
    caller: Caller,
    ear: BellListener,
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
    fn stream(self) -> impl Stream<Item = Result<SseEvent, Infallible>> {
        stream::unfold(self, |mut follow| async move {
            let event = follow.next().await?;
            let id = follow.resume_point(event.seq).to_string();
            let data = serde_json::to_string(&view::event(event, follow.summaries)).ok()?;
            Some((Ok(SseEvent::default().id(id).data(data)), follow))
        })
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
        log.push(self.api.store(), event, &mut out).await.ok()?;
        self.shown.extend(out);
        Some(())
    }

    /// Returns the next event. `None` ends the stream: the daemon stops, or the store does not answer. The reader
    /// reconnects with its last id.
    async fn next(&mut self) -> Option<LoggedEvent> {
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
            let closing = self.api.0.closing.clone();
            // Events that were recorded before the stop of the daemon are sent before the stream ends.
            let last_look = closing.is_cancelled();
            let batch = match self.api.store().events(Some(self.after), self.session, BATCH).await {
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
                let heard = async {
                    tokio::select! {
                        heard = self.ear.wait_for_ring() => heard,
                        () = self.caller.access_ended() => false,
                    }
                };
                if last_look || closing.run_until_cancelled(heard).await == Some(false) {
                    return None;
                }
            }
            self.batch = batch.into_iter();
        }
    }
}
