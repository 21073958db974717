//! The state of the publisher in memory, and what a landmark changes in it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::status_pass::{PassItem, StatusPass};
use super::turn_reader::TurnReader;
use super::{
    CHECK_EVERY, CardUpdate, EndedTurn, HOMES_EVERY, STATUS_EVERY, StallChange, TALK_EVERY, ThreadNote,
};
use intercom_daemon::ops::redacted;
use intercom_store::bus::BellListener;
use intercom_types::event::{SessionEnded, SessionParked};
use intercom_types::{ClearanceId, ClearanceStatus, Event, LoggedEvent, QuestionId, SessionId, VIA_POLICY};

/// The state in memory. All of it may be lost.
#[derive(Default)]
pub(super) struct PublisherState {
    /// The position in the log up to which landmarks are published.
    pub(super) position: u64,
    /// Streamed text up to here was published by an earlier daemon.
    pub(super) streamed_before: u64,
    pub(super) turns: HashMap<SessionId, TurnReader>,
    /// The sessions whose readers the status pass has.
    pub(super) away: HashSet<SessionId>,
    /// The clearances that rules allowed in the running turns.
    pub(super) allowed: HashMap<SessionId, usize>,
    /// The bells of the sessions that may produce bulk output. Nobody waits for them: they are looked at.
    pub(super) bells: HashMap<SessionId, BellListener>,
    /// The time at which a session's status card was last rendered.
    pub(super) shown: HashMap<SessionId, Instant>,
    /// Sessions whose status card may be out of date.
    pub(super) stale: HashSet<SessionId>,
    /// Sessions with streamed text that is not shown yet.
    pub(super) talking: HashSet<SessionId>,
    pub(super) streamed_at: HashMap<SessionId, Instant>,
    pub(super) homes: Option<Instant>,
    pub(super) homes_stale: bool,
    pub(super) escalated_at: Option<Instant>,
    /// The time of the last check that found bulk output, or that a commit of any caused.
    pub(super) bulk_at: Option<Instant>,
    /// The time at which the cursor was last stored.
    pub(super) stored: Option<Instant>,
}

impl PublisherState {
    /// Forgets an ended session, so that the maps do not grow for ever.
    pub(super) fn forget(&mut self, id: SessionId) {
        self.turns.remove(&id);
        self.allowed.remove(&id);
        self.bells.remove(&id);
        self.shown.remove(&id);
        self.talking.remove(&id);
        self.streamed_at.remove(&id);
    }

    /// Returns the time until the next look at cards that are out of date.
    pub(super) fn until_check(&self) -> Duration {
        let stale = self.stale.iter().filter(|id| !self.away.contains(id));
        let stale = stale.map(|id| left(self.shown.get(id), STATUS_EVERY));
        let talks = self.talking.iter().filter(|id| !self.away.contains(id));
        let talks = talks.map(|id| left(self.streamed_at.get(id), TALK_EVERY));
        let homes = self.homes_stale.then(|| left(self.homes.as_ref(), HOMES_EVERY));
        // Until it is due no commit causes a look. Afterwards the next commit does, and no timer is necessary.
        let bulk = Some(left(self.bulk_at.as_ref(), CHECK_EVERY)).filter(|rest| !rest.is_zero());
        let calls = left(self.escalated_at.as_ref(), CHECK_EVERY);
        stale
            .chain(talks)
            .chain(homes)
            .chain(bulk)
            .min()
            .map_or(calls, |due| due.min(calls))
            .max(Duration::from_millis(20)) // a due time in the past must not make the loop spin
    }

    pub(super) fn are_homes_due(&self) -> bool {
        self.homes_stale && is_due(self.homes.as_ref(), HOMES_EVERY)
    }

    pub(super) fn is_bulk_due(&self) -> bool {
        is_due(self.bulk_at.as_ref(), CHECK_EVERY)
    }

    /// Looks for sessions with new output; their status cards may be out of date.
    pub(super) fn look_for_bulk(&mut self) {
        if !self.is_bulk_due() {
            return;
        }
        let bells = self.bells.iter_mut();
        let rung: Vec<SessionId> = bells.filter_map(|(id, bell)| bell.has_rung().then_some(*id)).collect();
        if !rung.is_empty() {
            self.bulk_at = Some(Instant::now());
        }
        self.stale.extend(rung);
    }

    /// Looks for sessions with new output after a commit of some.
    pub(super) fn hear_bulk(&mut self) {
        self.look_for_bulk();
        // Also if none was found: each commit of a flood wakes the publisher otherwise if Slack does not show its
        // session. A look that no commit has caused must not delay the next one, which finds the first output after a
        // pause.
        self.bulk_at = Some(Instant::now());
    }

    /// Takes the sessions whose status card or streamed text is due. `newest` is the newest event of the log.
    pub(super) fn take_due(&mut self, newest: u64) -> Vec<PassItem> {
        // The pass reads up to the position only, and the rings for later events may be consumed.
        let is_behind = newest > self.position;
        let due: HashSet<SessionId> = self
            .stale
            .iter()
            .filter(|id| is_due(self.shown.get(id), STATUS_EVERY))
            .chain(self.talking.iter().filter(|id| is_due(self.streamed_at.get(id), TALK_EVERY)))
            .copied()
            .collect();
        due.into_iter()
            .map(|id| {
                let streamed_before = self.streamed_before;
                let reader = self.turns.remove(&id);
                self.away.insert(id);
                // Before it is rendered: a landmark during the pass makes it out of date again.
                if is_behind {
                    self.stale.insert(id);
                } else {
                    self.stale.remove(&id);
                }
                PassItem {
                    id,
                    shows_text: is_due(self.streamed_at.get(&id), TALK_EVERY),
                    reader: reader.unwrap_or_else(|| TurnReader::of_running_turn(id, streamed_before)),
                }
            })
            .collect()
    }

    /// Takes the result of a pass. Returns the readers of turns that have ended during the pass.
    pub(super) fn finish_pass(&mut self, done: Option<StatusPass>) -> HashMap<SessionId, TurnReader> {
        let away = std::mem::take(&mut self.away);
        // A bug: its readers are lost, and the running turns are read again.
        let Some(StatusPass { rendered, failed, over }) = done else {
            self.stale.extend(away);
            return HashMap::new();
        };
        for item in &rendered {
            self.shown.insert(item.id, Instant::now());
            if item.shows_text {
                self.streamed_at.insert(item.id, Instant::now());
            }
        }
        // Not at once: a read that fails may fail for a while.
        for item in &failed {
            self.stale.insert(item.id);
            self.shown.insert(item.id, Instant::now());
        }
        let mut ended = HashMap::new();
        for PassItem { id, reader, .. } in rendered.into_iter().chain(failed) {
            self.talking.remove(&id);
            match self.turns.entry(id) {
                // Its turn has ended meanwhile, and the next one has a reader of its own.
                Entry::Occupied(_) => {
                    ended.insert(id, reader);
                }
                Entry::Vacant(place) => {
                    if reader.has_unshown_text() {
                        self.talking.insert(id);
                    }
                    place.insert(reader);
                }
            }
        }
        // Last: the loop above has put their readers back.
        for id in over {
            self.forget(id);
        }
        ended
    }

    pub(super) fn apply_landmark(&mut self, logged: &LoggedEvent, updates: &mut Vec<CardUpdate>) {
        let LoggedEvent { session, seq, .. } = *logged;
        self.stale.insert(session);
        // As viewers may see it: some of its words are shown.
        let event = redacted(logged.clone()).event();
        // It changes nothing but the status card, which is stale already.
        if matches!(event, Event::AgentReady(_)) {
            return;
        }
        self.homes_stale = true;
        let note = |what: ThreadNote| CardUpdate::Note { session, seq, what };
        let clearance = |id: ClearanceId| CardUpdate::Clearance(session, id.to_string());
        let question = |id: QuestionId| CardUpdate::Question(session, id.to_string());
        match event {
            // Replaces the reader of a turn whose end never came, such as that of a killed agent.
            Event::TurnStarted(_) => {
                self.turns.insert(session, TurnReader::after(session, seq));
                self.allowed.remove(&session);
            }
            Event::ClearanceRequested(requested) => updates.push(clearance(requested.clearance)),
            Event::ClearanceApproved(approved) => updates.push(clearance(approved.clearance)),
            Event::ClearanceDecided(decided) => {
                if decided.via == VIA_POLICY && decided.status == ClearanceStatus::Approved {
                    *self.allowed.entry(session).or_default() += 1;
                }
                updates.push(clearance(decided.clearance));
            }
            Event::ClearanceDelivered(delivered) => updates.push(clearance(delivered.clearance)),
            Event::ClearanceUndelivered(undelivered) => updates.push(clearance(undelivered.clearance)),
            Event::ClearanceOutcome(outcome) => updates.extend(outcome.clearance.map(clearance)),
            Event::ClearanceClosed(closed) => updates.push(clearance(closed.clearance)),
            Event::QuestionAsked(asked) => updates.push(question(asked.question)),
            Event::QuestionAnswered(answered) => updates.push(question(answered.question)),
            Event::QuestionDelivered(delivered) => updates.push(question(delivered.question)),
            Event::QuestionUndelivered(undelivered) => updates.push(question(undelivered.question)),
            Event::QuestionClosed(closed) => updates.push(question(closed.question)),
            Event::PromptDelivered(delivered) => {
                updates.push(CardUpdate::Prompt { id: delivered.prompt.to_string(), arrived: true });
            }
            Event::PromptUndelivered(undelivered) => {
                updates.push(CardUpdate::Prompt { id: undelivered.prompt.to_string(), arrived: false });
            }
            Event::PromptWithdrawn(withdrawn) => {
                updates.push(CardUpdate::Prompt { id: withdrawn.prompt.to_string(), arrived: false });
            }
            Event::TurnEnded(ended) => {
                let reader = self.turns.insert(session, TurnReader::after(session, seq));
                let streamed_before = self.streamed_before;
                let reader = reader.or_else(|| {
                    let is_away = self.away.contains(&session);
                    (!is_away).then(|| TurnReader::of_running_turn(session, streamed_before))
                });
                let allowed = self.allowed.remove(&session).unwrap_or_default();
                let reason = ended.stop_reason;
                updates.push(CardUpdate::TurnOver(Box::new(EndedTurn {
                    session,
                    seq,
                    reason,
                    allowed,
                    reader,
                    read: None,
                })));
            }
            Event::LimitReached(reached) => updates.push(note(ThreadNote::Limited(reached.limit))),
            Event::LimitOver(_) => updates.push(note(ThreadNote::LimitOver)),
            Event::StallStepTaken(_)
            | Event::StallStepFailed(_)
            | Event::StallSnoozed(_)
            | Event::StallRecovered(_)
            | Event::StallReset(_) => {
                updates.push(CardUpdate::Stall { session, seq, change: StallChange::Event(Box::new(event)) });
            }
            Event::AgentRestarting(restarting) => {
                updates.push(note(ThreadNote::Restarting(restarting.reason)));
            }
            Event::SessionUnenforced(unenforced) => {
                updates.push(note(ThreadNote::Unenforced(unenforced.why)));
            }
            Event::SpendCapped(capped) => updates.push(note(ThreadNote::Capped(capped.why))),
            Event::SessionResumed(resumed) => {
                updates.push(CardUpdate::Resumed { session, by: Some(resumed.by) });
            }
            Event::SessionEnded(SessionEnded { reason, .. })
            | Event::SessionParked(SessionParked { reason, .. }) => {
                self.turns.remove(&session);
                // A person who stopped the session needs no card that offers to restart it.
                updates.push(if by_request(&reason) {
                    note(ThreadNote::StoppedBy(reason))
                } else {
                    CardUpdate::Ended(session)
                });
                updates.push(CardUpdate::Stall { session, seq, change: StallChange::SessionEnded });
            }
            _ => {}
        }
    }
}

/// Returns true if a person ended the session.
fn by_request(reason: &str) -> bool {
    reason.starts_with("stopped by ") || reason.starts_with("killed by ")
}

pub(super) fn is_due(at: Option<&Instant>, every: Duration) -> bool {
    left(at, every).is_zero()
}

fn left(at: Option<&Instant>, every: Duration) -> Duration {
    at.map_or(Duration::ZERO, |at| every.saturating_sub(at.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_a_session_that_slack_does_not_show_wakes_the_publisher_once() {
        let mut state = PublisherState::default();
        state.look_for_bulk();
        assert!(state.is_bulk_due(), "after a look without a commit the next commit wakes it at once");
        state.hear_bulk();
        assert!(!state.is_bulk_due());
        assert!(state.stale.is_empty());
    }

    #[test]
    fn a_pass_that_cannot_read_the_newest_output_is_followed_by_another() {
        let session = SessionId::mint();
        let mut state = PublisherState { position: 5, ..PublisherState::default() };
        state.stale.insert(session);
        assert_eq!(state.take_due(6).len(), 1);
        assert!(state.stale.contains(&session), "6 is not in this pass");
        assert_eq!(state.take_due(5).len(), 1);
        assert!(state.stale.is_empty());
    }
}
