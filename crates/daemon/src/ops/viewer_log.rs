//! The log as viewers may read it: without secrets, including secrets that an agent streams in pieces.
//!
//! A streamed message is a run of `…_chunk` updates of one kind in one session; updates about other things may come
//! between them. Its events are held until their text is settled (see [`PieceRedactor`]), and released in their order.
//! Other sessions do not wait: a reader of several sessions gets the events of each in order, and resumes from
//! [`ViewerLog::resume_point`]. Any other event of the session ends the message.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::LogReader;
use intercom_redact::{PieceRedactor, redact_json};
use intercom_store::StoreError;
use intercom_types::fold::{FoldEffect, fold};
use intercom_types::{EventKind, Json, LoggedEvent, SessionId};

/// The limit on events per read, around a page or before a stream.
const BATCH: usize = 200;
/// The limit on examined events of a message before or after a page; a private key in tiny pieces has fewer.
const MAX_AROUND: usize = 4000;
/// The limit on remembered sessions. Beyond it, the beginnings of their messages are looked up again.
const MAX_KNOWN: usize = 10_000;

/// Updates that may come between the pieces of a message, besides the asides of `fold`.
const ASIDES: &[&str] = &["plan", "plan_update"];

/// The relation of an event to a streamed message.
#[derive(Debug, PartialEq, Eq)]
enum StreamedPart {
    /// A piece of a message of this kind, with the message's id if the agent gives one.
    Piece { kind: String, id: Option<String>, text: String },
    /// Neither a piece nor the end of a message.
    Aside,
    /// The end of a message.
    Other,
}

/// The message that a session is streaming.
#[derive(Debug, Default)]
struct StreamedMessage {
    kind: String,
    id: Option<String>,
    pieces: PieceRedactor,
    held: VecDeque<(LoggedEvent, bool)>,
}

/// The redacting filter of a log of any number of sessions, event by event.
#[derive(Debug, Default)]
pub struct ViewerLog {
    messages: HashMap<SessionId, StreamedMessage>,
    /// The seqs of held events.
    held: BTreeSet<u64>,
}

impl ViewerLog {
    /// Takes the next event of a session and appends all released events to `out`. A session that is new to this filter
    /// may be in the middle of a message: the beginning is looked up.
    pub async fn push(
        &mut self,
        log: &LogReader,
        event: LoggedEvent,
        out: &mut Vec<LoggedEvent>,
    ) -> Result<(), StoreError> {
        let part = part(&event);
        if let StreamedPart::Piece { kind, id, .. } = &part
            && !self.messages.contains_key(&event.session)
        {
            let earlier = beginning(log, &event, kind, id.as_deref()).await?;
            if self.messages.len() >= MAX_KNOWN {
                self.messages.retain(|_, message| !message.held.is_empty());
            }
            let message = self.messages.entry(event.session).or_default();
            message.kind.clone_from(kind);
            message.id.clone_from(id);
            // Events from before the position of the reader: they only prime the redactor.
            for text in earlier {
                message.pieces.push(&text);
            }
            message.pieces.begin_here();
        }
        self.take(event, part, out);
        Ok(())
    }

    fn take(&mut self, event: LoggedEvent, part: StreamedPart, out: &mut Vec<LoggedEvent>) {
        // An aside does not show whether a message is being streamed: the session stays unknown, so that the beginning
        // of its message is looked up with the next piece.
        if part == StreamedPart::Aside && !self.messages.contains_key(&event.session) {
            return out.push(redacted(event));
        }
        let before = out.len();
        let message = self.messages.entry(event.session).or_default();
        match part {
            StreamedPart::Piece { kind, id, text } => {
                // Text of the next message must not change how the end of this one is redacted.
                if message.kind != kind || differ(message.id.as_deref(), id.as_deref()) {
                    message.finish(out);
                    message.kind = kind;
                }
                message.id = id.or_else(|| message.id.take());
                self.held.insert(event.seq);
                message.held.push_back((event, true));
                let texts = message.pieces.push(&text);
                message.release(texts, out);
            }
            StreamedPart::Aside if !message.held.is_empty() => {
                self.held.insert(event.seq);
                message.held.push_back((event, false));
            }
            StreamedPart::Aside => out.push(redacted(event)),
            StreamedPart::Other => {
                message.finish(out);
                out.push(redacted(event));
            }
        }
        for event in &out[before..] {
            self.held.remove(&event.seq);
        }
    }

    /// Returns the position at which a reader resumes that has received everything up to `seq` except held
    /// events.
    pub(crate) fn resume_point(&self, seq: u64) -> u64 {
        self.held.first().map_or(seq, |first| seq.min(first.saturating_sub(1)))
    }

    pub(super) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Releases held events as far as they are settled, and forgets the rest.
    pub(crate) fn release_all(&mut self, out: &mut Vec<LoggedEvent>) {
        for message in self.messages.values_mut() {
            let texts = message.pieces.release_unsettled();
            message.release(texts, out);
            out.extend(message.held.drain(..).map(|(event, _)| redacted(event)));
        }
        self.held.clear();
    }

    /// Returns a page of the log. Events that are held at its end, because the rest of their message does not exist
    /// yet, are omitted: a reader that continues after the page gets them later.
    pub(super) async fn page(
        reader: &LogReader,
        session: Option<SessionId>,
        events: Vec<LoggedEvent>,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        let Some(last) = events.last().map(|event| event.seq) else { return Ok(events) };
        let (mut log, mut out, mut after) = (Self::default(), Vec::new(), last);
        for event in events {
            log.push(reader, event, &mut out).await?;
        }
        for _ in 0..MAX_AROUND / BATCH {
            if !log.is_held() || log.held.first().is_some_and(|first| *first > last) {
                break;
            }
            let more = reader.events(Some(after), session, BATCH).await?.unwrap_or_default();
            let Some(newest) = more.last().map(|event| event.seq) else { break };
            for event in more {
                if log.messages.contains_key(&event.session) {
                    log.push(reader, event, &mut out).await?;
                }
            }
            after = newest;
        }
        let end = log.resume_point(last);
        out.retain(|event| event.seq <= end);
        out.sort_by_key(|event| event.seq);
        Ok(out)
    }
}

impl StreamedMessage {
    fn finish(&mut self, out: &mut Vec<LoggedEvent>) {
        let texts = self.pieces.finish();
        self.release(texts, out);
        self.kind.clear();
        self.id = None;
    }

    /// Returns the held events with these texts in their pieces, and the events between them unchanged.
    fn release(&mut self, texts: Vec<String>, out: &mut Vec<LoggedEvent>) {
        let mut texts = texts.into_iter();
        while let Some((event, is_piece)) = self.held.pop_front() {
            if !is_piece {
                out.push(redacted(event));
            } else if let Some(text) = texts.next() {
                out.push(with_text(event, &text));
            } else {
                self.held.push_front((event, is_piece));
                return;
            }
        }
    }
}

/// Returns the texts of a message before this event, oldest first.
async fn beginning(
    log: &LogReader,
    event: &LoggedEvent,
    kind: &str,
    id: Option<&str>,
) -> Result<Vec<String>, StoreError> {
    let (mut texts, mut before) = (Vec::new(), event.seq);
    // Pieces without an id belong to the message before them.
    let (mut id, mut own) = (id.map(str::to_owned), 0);
    for _ in 0..MAX_AROUND / BATCH {
        let earlier = log.events_before(before, event.session, BATCH).await?;
        let Some(first) = earlier.first().map(|event| event.seq) else { break };
        for event in earlier.iter().rev() {
            match part(event) {
                StreamedPart::Piece { kind: of, id: given, text } if of == kind => {
                    if differ(id.as_deref(), given.as_deref()) {
                        texts.truncate(own);
                        texts.reverse();
                        return Ok(texts);
                    }
                    texts.push(text);
                    if given.is_some() {
                        (id, own) = (given, texts.len());
                    }
                }
                StreamedPart::Aside => {}
                StreamedPart::Piece { .. } | StreamedPart::Other => {
                    texts.reverse();
                    return Ok(texts);
                }
            }
        }
        before = first;
    }
    texts.reverse();
    Ok(texts)
}

/// Returns true if the ids that the agent gives show two pieces to be of different messages.
fn differ(id: Option<&str>, other: Option<&str>) -> bool {
    id.zip(other).is_some_and(|(id, other)| id != other)
}

#[derive(Deserialize)]
struct StreamedData<'a> {
    #[serde(borrow)]
    update: Option<StreamedUpdate<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StreamedUpdate<'a> {
    #[serde(borrow)]
    session_update: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StreamedContent<'a> {
    #[serde(borrow)]
    text: &'a RawValue,
}

fn part(event: &LoggedEvent) -> StreamedPart {
    if event.known_kind() == Some(EventKind::Heartbeat) {
        return StreamedPart::Aside;
    }
    // Readers join the pieces of a message across the asides of `fold`, so the two sets must be the same: a secret
    // could otherwise be joined that was redacted in two halves.
    let fold = fold(&event.event());
    if fold == FoldEffect::Aside {
        return StreamedPart::Aside;
    }
    let data = serde_json::from_str::<StreamedData<'_>>(event.data.as_str()).ok();
    let update = data.and_then(|data| data.update).filter(|_| event.known_kind() == Some(EventKind::Update));
    let Some(StreamedUpdate { session_update: Some(kind), content }) = update else {
        return StreamedPart::Other;
    };
    if ASIDES.contains(&&*kind) {
        return StreamedPart::Aside;
    }
    let FoldEffect::Chunk(chunk) = fold else { return StreamedPart::Other };
    match content.and_then(text_of).and_then(|raw| serde_json::from_str(raw.get()).ok()) {
        Some(text) => StreamedPart::Piece { kind: kind.into_owned(), id: chunk.message, text },
        // An image or nothing, between two pieces of text.
        None => StreamedPart::Aside,
    }
}

fn text_of(content: &RawValue) -> Option<&RawValue> {
    serde_json::from_str::<StreamedContent<'_>>(content.get()).ok().map(|content| content.text)
}

/// Returns an event redacted on its own.
pub fn redacted(mut event: LoggedEvent) -> LoggedEvent {
    if let Cow::Owned(without) = redact_json(event.data.as_str()).text {
        event.data = Json::trusted(without);
    }
    event
}

/// Returns a piece with its redacted text; its other fields are redacted on their own.
fn with_text(event: LoggedEvent, text: &str) -> LoggedEvent {
    let Some(empty) = put_text(event.data.as_str(), "") else { return redacted(event) };
    let event = redacted(LoggedEvent { data: Json::trusted(empty), ..event });
    match put_text(event.data.as_str(), text) {
        Some(data) => LoggedEvent { data: Json::trusted(data), ..event },
        None => event,
    }
}

/// Returns the same data with another text.
fn put_text(data: &str, text: &str) -> Option<String> {
    let raw = serde_json::from_str::<StreamedData<'_>>(data).ok()?.update?.content.and_then(text_of)?.get();
    let start = (raw.as_ptr() as usize).checked_sub(data.as_ptr() as usize)?;
    let (before, after) = (data.get(..start)?, data.get(start + raw.len()..)?);
    Some(format!("{before}{}{after}", serde_json::Value::from(text)))
}
