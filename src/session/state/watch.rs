//! The watch over an agent: what it gives as signs of life, and what is done when there are none.

use crate::domain::event::{
    LadderChanged, LimitOver, LimitReached, SessionStopping, StallRecovered, StallReminder, StallReset,
    StallSnoozed, StallStepFailed, StallStepTaken,
};
use std::time::Duration;

use super::{Effect, Out, Refused, Stage, State};
use crate::domain::{
    Event, Json, LadderChoice, Resets, Rung, Situation, Standing, StopMode, Time, Watched, span,
};
use crate::host::Activity;
use crate::session::stall::{BUSY, Move, Performed, Setting, Vigil};

/// Who does what nobody has asked for.
pub(super) const BY: &str = "intercom";
/// What a stall comes to whose turn is over without a word.
const STRANDED: &str = "its turn is over, and nobody tells it to go on";
/// By so much the snapshot may lag behind the signs of life of an agent that talks…
const TALK_LAG: Duration = Duration::from_secs(1);
/// … and of one that is only busy.
const STIR_LAG: Duration = Duration::from_mins(1);
/// Processes are as old as they were, give or take the system's ticks.
const SAME_START: Duration = Duration::from_secs(5);

impl State {
    /// The agent gives a sign of life.
    pub(super) fn alive(&mut self, by: &str, out: &mut Out<'_, '_>) {
        self.watch.heard(out.now());
        self.back_to_life(by, out);
    }

    /// Heartbeats are signs of life too, but without progress not for ever.
    pub(super) fn beats(&mut self, mark: u64, out: &mut Out<'_, '_>) {
        let now = out.now();
        self.watch.beat(mark, now);
        if self.watch.talk(out.vigil()) == Some(now) {
            self.back_to_life("heartbeat", out);
        }
    }

    fn back_to_life(&mut self, by: &str, out: &mut Out<'_, '_>) {
        let now = out.now();
        if self.stage != Stage::Running {
            return; // its last words are not its recovery
        }
        if let Some(recovered) = self.watch.recover(now) {
            let after = recovered.after;
            let took = span(now.since(after.at));
            out.record(Event::StallRecovered(StallRecovered {
                after: after.name(),
                seconds: now.since(after.at).as_secs(),
                by: by.to_owned(),
                quiet_since: recovered.since,
                summary: format!("recovered after {}, {took} after, by {by}", after.name()),
            }));
            self.dirty = true;
        }
        if self.watch.limit.is_none() && self.standing.take().is_some() {
            self.dirty = true;
        }
        self.dirty |= self.watch.is_stale(now, TALK_LAG);
    }

    /// A person did something.
    pub(super) fn acted(&mut self, by: &str, out: &mut Out<'_, '_>) {
        if self.watch.reset(out.now()) {
            out.record(Event::StallReset(StallReset { by: by.to_owned() }));
        }
        if self.watch.limit.is_none() {
            self.standing = None;
        }
    }

    pub(super) fn turn_over(&mut self) {
        self.watch.turn_over(self.cancelled_by.take().is_some());
        self.interrupts.turn_over();
        // What we say next, or when it is started again, is still about what it was asked.
        let again = matches!(self.stage, Stage::Stopping { again: true, .. });
        if !again && !self.queue.front().is_some_and(|next| next.ours) {
            self.unfinished = None;
        }
    }

    pub(super) fn limited(&mut self, kind: String, resets: Resets, params: Json, out: &mut Out<'_, '_>) {
        let (now, vigil) = (out.now(), out.vigil());
        let until = match resets {
            Resets::At(at) => Some(at),
            Resets::After(wait) => Some(now.plus(wait)),
            Resets::Unknown => None,
        };
        self.watch.limited(&kind, until, now);
        if let Some(limit) = &self.watch.limit {
            let (until, resumes) = (limit.until, self.watch.resumes(limit, vigil));
            out.record(Event::LimitReached(LimitReached { limit: kind, until, resumes, params }));
        }
        self.standing = Some(self.watch.standing(&self.setting(now), vigil));
        self.dirty = true;
    }

    fn setting(&self, now: Time) -> Setting {
        // Prompts that wait for people are no work of the agent's.
        let waits = self.told.capped.is_some() || self.failures.awaits_log_in;
        Setting {
            now,
            started: self.started_at.unwrap_or(self.about.created_at),
            // What waits in the queue of a running agent is work, too.
            turn: self
                .turn
                .as_ref()
                .map(|turn| turn.started_at)
                .or(self.started_at.filter(|_| !self.queue.is_empty() && !waits)),
            open: self.has_open(),
        }
    }

    /// When something is due by the clock: a look at the agent, a reminder, a step, an expiry.
    pub fn next_due(&self, now: Time, vigil: &Vigil) -> Option<Time> {
        match self.stage {
            Stage::Running if self.orphan => None,
            Stage::Running => {
                let watch = self.watch.next(&self.setting(now), vigil);
                watch.into_iter().chain(self.cancelled_by).min()
            }
            Stage::Starting => self.ready_by,
            Stage::Resting { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Whoever was not listened to has not been late.
    pub(super) fn deadlines_anew(&mut self, out: &Out<'_, '_>) {
        self.ready_by = self.ready_by.map(|_| out.ready_by());
        if self.cancelled_by.is_some() {
            self.await_end(out);
        }
    }

    /// A look at what its processes do, and what follows.
    pub(super) fn watched(&mut self, activity: Option<Activity>, out: &mut Out<'_, '_>) {
        let (now, vigil) = (out.now(), out.vigil());
        if self.ready_by.is_some_and(|by| by <= now) && self.stage == Stage::Starting {
            let why = format!("it was not ready within {}", span(out.cx.startup));
            return self.unusable(why, out);
        }
        if self.stage != Stage::Running {
            return;
        }
        self.end_if_quiet(out);
        self.look_at_purse(out);
        if let Some(since) = self.watch.reminder(now, vigil) {
            let waiting_for = self.open_in_words();
            out.record(Event::StallReminder(StallReminder { waiting_for, since }));
            self.dirty = true;
        }
        if !self.has_open()
            && let Some((limit, resume)) = self.watch.limit_over(now, vigil)
        {
            out.record(Event::LimitOver(LimitOver { limit: limit.kind, resumed: resume }));
            if resume {
                self.tell_to_go_on(&vigil.resume_text, out);
            }
            self.dirty = true;
        }
        self.watch.look(activity, now, vigil);
        self.watch.looked(now);
        let setting = self.setting(now);
        let standing = self.watch.standing(&setting, vigil);
        if standing.state.is_stall() {
            for taken in self.watch.climb(&standing, now, vigil) {
                self.take_step(taken, &standing, out);
            }
        } else if standing.state == Situation::Idle {
            self.leave_to_people(STRANDED, out);
        } else if self.watch.has_stirred() {
            self.back_to_life("activity", out);
        }
        if self.stage == Stage::Running {
            self.publish(self.watch.standing(&self.setting(now), vigil));
        }
        // Of an agent that does nothing there is nothing new to be kept.
        self.dirty |= self.watch.stirs(now) && self.watch.is_stale(now, STIR_LAG);
    }

    /// What people see changes only if there is something new in it.
    fn publish(&mut self, mut standing: Standing) {
        let says_more = match standing.state {
            Situation::Quiet | Situation::Stuck | Situation::Gone | Situation::WaitingForService => true,
            Situation::Working => standing.why == BUSY,
            Situation::WaitingForYou | Situation::Idle | Situation::Orphan => false,
        };
        let before = self.standing.as_ref().and_then(|before| before.running.as_ref());
        if let (Some(before), Some(running)) = (before, &mut standing.running) {
            let apart = running.since.since(before.since).max(before.since.since(running.since));
            if before.name == running.name && apart < SAME_START {
                running.since = before.since;
            }
        }
        let standing = says_more.then_some(standing);
        if standing != self.standing {
            self.standing = standing;
            self.dirty = true;
        }
    }

    fn take_step(&mut self, step: Move, standing: &Standing, out: &mut Out<'_, '_>) {
        let now = out.now();
        self.dirty = true;
        match step {
            Move::Failed(last) => {
                out.record(Event::StallStepFailed(StallStepFailed {
                    step: last.rung,
                    name: last.name(),
                    seconds: now.since(last.at).as_secs(),
                    why: standing.sentence(now),
                }));
            }
            Move::Take(step, number, of) => {
                record_step(&step, (number, of), standing, out);
                self.perform(step, standing, out);
            }
        }
    }

    /// What cannot be sent has not helped: that is told when the next step is due.
    fn perform(&mut self, step: Performed, standing: &Standing, out: &mut Out<'_, '_>) {
        let vigil = out.vigil();
        match step.rung {
            Rung::Alert | Rung::Escalate => {}
            Rung::Nudge => {
                let message = match step.attempt {
                    1 => vigil.nudge_text.clone(),
                    _ => format!("{} ({})", vigil.nudge_text, standing.sentence(out.now())),
                };
                self.nudge(message, BY, out).ok(); // as above
            }
            Rung::Interrupt => {
                if self.interrupt(standing.sentence(out.now()), BY, out).is_ok() {
                    self.put(vigil.reprompt_text.as_str().into(), BY.to_owned(), true, out).ok(); // as above
                }
            }
            Rung::Restart => {
                let (how, by) = (StopMode::Stop, BY.to_owned());
                out.record(Event::SessionStopping(SessionStopping { how, by, again: true, why: None }));
                out.effects.push(Effect::Stop { how: StopMode::Stop });
                self.stage =
                    Stage::Stopping { how: StopMode::Stop, by: BY.to_owned(), again: true, why: None };
            }
        }
    }

    /// In a turn it is nudged, otherwise prompted.
    fn tell_to_go_on(&mut self, text: &str, out: &mut Out<'_, '_>) {
        if self.turn.is_none() {
            self.put(text.into(), BY.to_owned(), true, out).ok(); // with a full queue it has enough to do
        } else {
            self.nudge(text.to_owned(), BY, out).ok(); // one that reads nothing is found out
        }
    }

    /// After a restart because of a stall: it works on, or people have to tell it what to do.
    pub(super) fn started_again(&mut self, out: &mut Out<'_, '_>) {
        if self.turn.is_some() || !self.queue.is_empty() {
            return self.watch.postpone(out.now(), out.vigil());
        }
        self.leave_to_people("started again, and waits to be told what to do", out);
    }

    /// A stall that has ended without a sign of life, and nobody works on: people have to.
    fn leave_to_people(&mut self, why: &str, out: &mut Out<'_, '_>) {
        let (now, vigil) = (out.now(), out.vigil());
        let Some(since) = self.watch.episode().map(|episode| episode.since) else { return };
        if let Some((step, of)) = self.watch.give_up(now, vigil) {
            let standing = Standing { why: why.to_owned(), ..Standing::new(Situation::Idle, since) };
            record_step(&step, (of, of), &standing, out);
        }
    }

    pub(super) fn snooze(
        &mut self,
        until: Option<Time>,
        by: &str,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        self.steerable()?;
        out.record(Event::StallSnoozed(StallSnoozed { until, by: by.to_owned() }));
        self.watch.snooze(until);
        self.restand(out);
        Ok(())
    }

    pub(super) fn choose_ladder(
        &mut self,
        choice: LadderChoice,
        by: &str,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Refused> {
        self.steerable()?;
        out.record(Event::LadderChanged(LadderChanged { ladder: choice.to_string(), by: by.to_owned() }));
        self.watch.choose(choice);
        self.restand(out);
        Ok(())
    }

    /// What people see is up to date at once.
    fn restand(&mut self, out: &Out<'_, '_>) {
        if self.standing.is_some() {
            self.publish(self.watch.standing(&self.setting(out.now()), out.vigil()));
        }
    }

    pub(super) fn watched_over(&self) -> Watched {
        Watched {
            standing: self.standing.clone(),
            ladder: self.watch.choice.clone(),
            snoozed_until: self.watch.snoozed_until,
            phase_since: self.phase_since,
            on_client_left: self.about.on_client_left,
            left_at: self.left_at,
        }
    }
}

fn record_step(step: &Performed, (number, of): (usize, usize), standing: &Standing, out: &mut Out<'_, '_>) {
    let now = out.now();
    out.record(Event::StallStepTaken(StallStepTaken {
        step: step.rung,
        name: step.name(),
        number,
        of,
        state: standing.state,
        quiet_since: standing.since,
        quiet_seconds: now.since(standing.since).as_secs(),
        why: standing.sentence(now),
    }));
}
