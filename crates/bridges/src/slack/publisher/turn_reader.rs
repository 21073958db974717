//! The reader of the bulk output of one session: the text of its turn, and the number of its tools.
//!
//! The publisher follows landmarks, which exclude the agent's bulk output. This output matters only when a card shows
//! it: at the end of a turn, and every few seconds while it goes on. Then it is read from the session's log: the
//! newest 1,000 events, or all since the last read if these are fewer. Older ones are skipped, and the summary says so.
//! What was skipped cannot leave half of a secret: a new [`ViewerLog`] looks up the
//! beginning of the message in which it starts.

use std::collections::VecDeque;

use super::turn_summary::{StreamedText, TurnSummary};
use intercom_daemon::ops::{LogReader, ViewerLog};
use intercom_store::StoreError;
use intercom_types::{EventKind, LoggedEvent, SessionId};

/// The number of events per read.
const PAGE: usize = 250;
/// The number of reads, from the newest event backwards, if there are more events than one page.
const MAX_PAGES: usize = 4;
#[derive(Debug)]
pub(super) struct TurnReader {
    session: SessionId,
    /// The last event that was read; `None` before the first read of a session whose turn began earlier.
    seen: Option<u64>,
    /// An earlier daemon streamed the text up to this event.
    streamed_before: u64,
    log: ViewerLog,
    turn: TurnSummary,
    /// Messages of streamed text that are full and have not been taken yet.
    full: Vec<StreamedText>,
    /// The number of events that were read and have not been reported yet.
    events_read: usize,
}

impl TurnReader {
    /// Returns the reader of a turn that begins after this event.
    pub(super) fn after(session: SessionId, seq: u64) -> Self {
        Self { seen: Some(seq), ..Self::of_running_turn(session, 0) }
    }

    /// Returns the reader of a turn that may have begun earlier.
    pub(super) fn of_running_turn(session: SessionId, streamed_before: u64) -> Self {
        Self {
            session,
            seen: None,
            streamed_before,
            log: ViewerLog::default(),
            turn: TurnSummary::default(),
            full: Vec::new(),
            events_read: 0,
        }
    }

    /// Reads the session's events up to `last`, which is one of them if the turn is `over`.
    pub(super) async fn read(&mut self, log: &LogReader, last: u64, over: bool) -> Result<(), StoreError> {
        let (events, complete) = self.new_events(log, last, over).await?;
        // Pieces from both sides of a gap must not be joined: neither as text nor when secrets are looked for.
        if !complete {
            self.turn.skip();
            self.log = ViewerLog::default();
        }
        let mut shown = Vec::new();
        for event in events {
            let seq = event.seq;
            self.log.push(log, event, &mut shown).await?;
            // After each one: a read that fails goes on behind it, and no event is counted twice.
            self.seen = Some(seq);
            for event in shown.drain(..) {
                self.turn.apply_event(event.seq, &event.event(), &mut self.full);
                if event.seq <= self.streamed_before {
                    self.full.clear();
                    self.turn.talk = None;
                }
            }
        }
        Ok(())
    }

    /// Returns the newest unread events up to `last`, oldest first, and whether these are all.
    async fn new_events(
        &mut self,
        log: &LogReader,
        last: u64,
        over: bool,
    ) -> Result<(Vec<LoggedEvent>, bool), StoreError> {
        if let Some(seen) = self.seen {
            let mut page = log.events(Some(seen), Some(self.session), PAGE).await?.unwrap_or_default();
            self.events_read += page.len();
            let reached = page.last().is_some_and(|event| event.seq >= last);
            if reached || (page.len() < PAGE && !over) {
                page.retain(|event| event.seq <= last);
                return Ok((page, true));
            }
        }
        // From the end, because the newest events are what cards show, and there may be very many before them.
        let (mut pages, mut before, mut complete) = (VecDeque::new(), last.saturating_add(1), false);
        while pages.len() < MAX_PAGES && !complete {
            let mut page = log.events_before(before, self.session, PAGE).await?;
            self.events_read += page.len();
            let Some(first) = page.first() else {
                complete = true;
                break;
            };
            before = first.seq;
            let start = page.iter().rposition(|event| self.precedes_unread(event, last));
            if let Some(at) = start {
                complete = true;
                page.drain(..=at);
            }
            pages.push_front(page);
        }
        Ok((pages.into_iter().flatten().collect(), complete))
    }

    /// Returns true for an event that was read, or that ends or begins a turn and is not the end of this one.
    fn precedes_unread(&self, event: &LoggedEvent, last: u64) -> bool {
        match self.seen {
            Some(seen) => event.seq <= seen,
            None => {
                event.seq < last
                    && matches!(event.known_kind(), Some(EventKind::TurnStarted | EventKind::TurnEnded))
            }
        }
    }

    /// Returns true if it has streamed text that was not taken yet.
    pub(super) fn has_unshown_text(&self) -> bool {
        !self.full.is_empty() || self.turn.talk.as_ref().is_some_and(|talk| talk.fresh)
    }

    /// Takes the names and texts of the messages of streamed text that have changed. Text that could be half of a
    /// secret has not arrived here yet: see `viewer_log`.
    pub(super) fn take_streamed(&mut self) -> Vec<(String, String)> {
        let full = std::mem::take(&mut self.full);
        let full = full.iter().map(|talk| (talk.name(), talk.text()));
        full.chain(self.turn.take_streamed()).collect()
    }

    /// Drops text that nobody wants streamed.
    pub(super) fn drop_streamed(&mut self) {
        self.full.clear();
        self.turn.take_streamed();
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    pub(super) fn take_events_read(&mut self) -> usize {
        std::mem::take(&mut self.events_read)
    }

    /// Returns the summary of the turn, which is over.
    pub(super) fn into_summary(self) -> TurnSummary {
        self.turn
    }
}
