//! The watch over an agent: its signs of life, and the steps if there are none.

use intercom_types::event::{
    LadderChanged, LimitOver, LimitReached, SessionStopping, StallRecovered, StallReminder, StallReset,
    StallSnoozed, StallStepFailed, StallStepTaken,
};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CommandRefusal, EffectSink, LifeStage, SessionState, StepEffect};
use crate::session::stall::{ActivityTracker, BUSY, LadderMove, PerformedStep, WatchPolicy, WatchSetting};
use intercom_host::ProcessActivity;
use intercom_types::{
    AgentCondition, Event, Json, LadderChoice, LimitResetTime, Rung, Situation, StopMode, Time, WatchState,
    span,
};

/// The author of steps that no person asked for.
pub(super) const DAEMON: &str = "intercom";
/// The reason of a stall whose turn has ended without output.
const STRANDED: &str = "its turn is over, and it waits for a prompt";
/// The maximum age of the snapshot's signs of life while the agent sends output…
const TALK_LAG: Duration = Duration::from_secs(1);
/// … and while it is only busy.
const STIR_LAG: Duration = Duration::from_mins(1);
/// The tolerance for equal process starts, because the system's clock ticks coarsely.
const SAME_START: Duration = Duration::from_secs(5);

/// The watch over an agent, and the condition that people see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AgentOversight {
    pub(super) tracker: ActivityTracker,
    /// The agent's condition, if it says more than the phase.
    pub(super) condition: Option<AgentCondition>,
}

impl SessionState {
    /// Records a sign of life.
    pub(super) fn alive(&mut self, by: &str, out: &mut EffectSink<'_, '_>) {
        self.oversight.mut_unchanged().tracker.record_sign_of_life(out.now());
        self.back_to_life(by, out);
    }

    /// Records a heartbeat: a sign of life, but not for ever without progress.
    pub(super) fn beats(&mut self, mark: u64, out: &mut EffectSink<'_, '_>) {
        let now = out.now();
        self.oversight.mut_unchanged().tracker.beat(mark, now);
        if self.oversight.tracker.talk(out.watch_policy()) == Some(now) {
            self.back_to_life("heartbeat", out);
        }
    }

    fn back_to_life(&mut self, by: &str, out: &mut EffectSink<'_, '_>) {
        let now = out.now();
        if self.life.stage != LifeStage::Running {
            return; // output before the exit is not a recovery
        }
        if let Some(recovered) = self.oversight.mut_unchanged().tracker.recover(now) {
            self.oversight.touch_if(true);
            let after = recovered.after;
            let took = span(now.since(after.at));
            out.record(Event::StallRecovered(StallRecovered {
                after: after.name(),
                seconds: now.since(after.at).as_secs(),
                by: by.to_owned(),
                quiet_since: recovered.since,
                summary: format!("recovered {took} after {}, by {by}", after.name()),
            }));
        }
        if self.oversight.tracker.limit.is_none() && self.oversight.condition.is_some() {
            self.oversight.condition = None;
        }
        let is_stale = self.oversight.mut_unchanged().tracker.is_stale(now, TALK_LAG);
        self.oversight.touch_if(is_stale);
    }

    /// Records a person's act.
    pub(super) fn acted(&mut self, by: &str, out: &mut EffectSink<'_, '_>) {
        if self.oversight.tracker.reset(out.now()) {
            out.record(Event::StallReset(StallReset { by: by.to_owned() }));
        }
        if self.oversight.tracker.limit.is_none() {
            self.oversight.condition = None;
        }
    }

    pub(super) fn turn_over(&mut self) {
        self.oversight.tracker.turn_over(self.turns.cancel_deadline.take().is_some());
        self.turns.interrupts.turn_over();
        // If our own prompt or a restart follows, the prompt is not finished.
        let to_restart = matches!(self.life.stage, LifeStage::Stopping { to_restart: true, .. });
        if !to_restart && !self.turns.queue.front().is_some_and(|next| next.by_daemon) {
            self.turns.unfinished = None;
        }
    }

    pub(super) fn limited(
        &mut self,
        kind: String,
        resets: LimitResetTime,
        params: Json,
        out: &mut EffectSink<'_, '_>,
    ) {
        let (now, policy) = (out.now(), out.watch_policy());
        let until = match resets {
            LimitResetTime::At(at) => Some(at),
            LimitResetTime::After(wait) => Some(now.plus(wait)),
            LimitResetTime::Unknown => None,
        };
        self.oversight.tracker.limited(&kind, until, now);
        if let Some(limit) = &self.oversight.tracker.limit {
            let (until, resumes) = (limit.until, self.oversight.tracker.resumes(limit, policy));
            out.record(Event::LimitReached(LimitReached { limit: kind, until, resumes, params }));
        }
        self.oversight.condition = Some(self.oversight.tracker.condition(&self.setting(now), policy));
    }

    fn setting(&self, now: Time) -> WatchSetting {
        // Prompts that are held back are not work of the agent.
        let waits = self.agent.info.capped.is_some() || self.failures.awaits_log_in;
        WatchSetting {
            now,
            started: self.life.started_at.unwrap_or(self.spec.created_at),
            // Queued prompts of a running agent count as work, too.
            turn: self
                .turns
                .turn
                .as_ref()
                .map(|turn| turn.started_at)
                .or(self.life.started_at.filter(|_| !self.turns.queue.is_empty() && !waits)),
            open: self.has_open(),
        }
    }

    /// Returns the time of the next deadline: a look at the agent, a reminder, a step of the ladder.
    pub(crate) fn next_due(&self, now: Time, policy: &WatchPolicy) -> Option<Time> {
        match self.life.stage {
            LifeStage::Running if self.life.orphan => None,
            LifeStage::Running => {
                let watch = self.oversight.tracker.next(&self.setting(now), policy);
                watch.into_iter().chain(self.turns.cancel_deadline).min()
            }
            LifeStage::Starting => self.life.ready_deadline,
            LifeStage::Resting { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Restarts the deadlines after a pause in reading, because output may have waited for us.
    pub(super) fn restart_deadlines(&mut self, out: &EffectSink<'_, '_>) {
        self.life.ready_deadline = self.life.ready_deadline.map(|_| out.ready_deadline());
        if self.turns.cancel_deadline.is_some() {
            self.await_end(out);
        }
    }

    /// Handles a look at the activity of its processes.
    pub(super) fn observe_activity(
        &mut self,
        activity: Option<ProcessActivity>,
        out: &mut EffectSink<'_, '_>,
    ) {
        let (now, policy) = (out.now(), out.watch_policy());
        if self.life.ready_deadline.is_some_and(|by| by <= now) && self.life.stage == LifeStage::Starting {
            let why = format!("it was not ready within {}", span(out.cx.startup));
            return self.unusable(why, out);
        }
        if self.life.stage != LifeStage::Running {
            return;
        }
        self.end_if_quiet(out);
        self.recheck_spend_cap(out);
        if let Some(since) = self.oversight.mut_unchanged().tracker.reminder(now, policy) {
            self.oversight.touch_if(true);
            let waiting_for = self.open_in_words();
            out.record(Event::StallReminder(StallReminder { waiting_for, since }));
        }
        if !self.has_open()
            && let Some((limit, resume)) = self.oversight.mut_unchanged().tracker.limit_over(now, policy)
        {
            self.oversight.touch_if(true);
            out.record(Event::LimitOver(LimitOver { limit: limit.kind, resumed: resume }));
            if resume {
                self.tell_to_go_on(&policy.resume_text, out);
            }
        }
        self.oversight.mut_unchanged().tracker.look(activity, now, policy);
        self.oversight.mut_unchanged().tracker.mark_classified(now);
        let setting = self.setting(now);
        let condition = self.oversight.tracker.condition(&setting, policy);
        if condition.state.is_stall() {
            for taken in self.oversight.mut_unchanged().tracker.climb(&condition, now, policy) {
                self.oversight.touch_if(true);
                self.take_step(taken, &condition, out);
            }
        } else if condition.state == Situation::Idle {
            self.leave_to_people(STRANDED, out);
        } else if self.oversight.tracker.has_stirred() {
            self.back_to_life("activity", out);
        }
        if self.life.stage == LifeStage::Running {
            self.publish(self.oversight.tracker.condition(&self.setting(now), policy));
        }
        // Without activity there is nothing new to store.
        let tracker = &mut self.oversight.mut_unchanged().tracker;
        let is_stale = tracker.stirs(now) && tracker.is_stale(now, STIR_LAG);
        self.oversight.touch_if(is_stale);
    }

    /// Publishes the condition that people see, if there is something new in it.
    fn publish(&mut self, mut condition: AgentCondition) {
        let says_more = match condition.state {
            Situation::Quiet | Situation::Stuck | Situation::Gone | Situation::WaitingForService => true,
            Situation::Working => condition.why == BUSY,
            Situation::WaitingForYou | Situation::Idle | Situation::Orphan => false,
        };
        let before = self.oversight.condition.as_ref().and_then(|before| before.running.as_ref());
        if let (Some(before), Some(running)) = (before, &mut condition.running) {
            let apart = running.since.since(before.since).max(before.since.since(running.since));
            if before.name == running.name && apart < SAME_START {
                running.since = before.since;
            }
        }
        let condition = says_more.then_some(condition);
        if condition != self.oversight.condition {
            self.oversight.condition = condition;
        }
    }

    fn take_step(&mut self, step: LadderMove, condition: &AgentCondition, out: &mut EffectSink<'_, '_>) {
        let now = out.now();
        match step {
            LadderMove::Failed(last) => {
                out.record(Event::StallStepFailed(StallStepFailed {
                    step: last.rung,
                    name: last.name(),
                    seconds: now.since(last.at).as_secs(),
                    why: condition.sentence(now),
                }));
            }
            LadderMove::Take(step, number, of) => {
                record_step(&step, (number, of), condition, out);
                self.perform(step, condition, out);
            }
        }
    }

    /// Performs a step of the ladder. A step that cannot be sent counts as failed, which is reported when the next one
    /// is due.
    fn perform(&mut self, step: PerformedStep, condition: &AgentCondition, out: &mut EffectSink<'_, '_>) {
        let policy = out.watch_policy();
        match step.rung {
            Rung::Alert | Rung::Escalate => {}
            Rung::Nudge => {
                let message = match step.attempt {
                    1 => policy.nudge_text.clone(),
                    _ => format!("{} ({})", policy.nudge_text, condition.sentence(out.now())),
                };
                self.nudge(message, DAEMON, out).ok(); // without a running process there is nobody to nudge
            }
            Rung::Interrupt => {
                if self.interrupt(condition.sentence(out.now()), DAEMON, out).is_ok() {
                    // With a full queue it has enough to do.
                    self.queue_prompt(policy.reprompt_text.as_str().into(), DAEMON.to_owned(), true, out)
                        .ok();
                }
            }
            Rung::Restart => {
                let (mode, by) = (StopMode::Stop, DAEMON.to_owned());
                out.record(Event::SessionStopping(SessionStopping { mode, by, to_restart: true, why: None }));
                out.effects.push(StepEffect::Stop { mode: StopMode::Stop });
                self.life.stage = LifeStage::Stopping {
                    mode: StopMode::Stop,
                    by: DAEMON.to_owned(),
                    to_restart: true,
                    why: None,
                };
            }
        }
    }

    /// Tells the agent to continue: by a nudge during a turn, otherwise by a prompt.
    fn tell_to_go_on(&mut self, text: &str, out: &mut EffectSink<'_, '_>) {
        if self.turns.turn.is_none() {
            self.queue_prompt(text.into(), DAEMON.to_owned(), true, out).ok(); // a full queue is work enough
        } else {
            self.nudge(text.to_owned(), DAEMON, out).ok(); // an agent that does not read is detected as a stall
        }
    }

    /// Continues after a restart because of a stall: the agent works, or people must prompt it.
    pub(super) fn started_again(&mut self, out: &mut EffectSink<'_, '_>) {
        if self.turns.turn.is_some() || !self.turns.queue.is_empty() {
            return self.oversight.tracker.postpone(out.now(), out.watch_policy());
        }
        self.leave_to_people("restarted, and waits for a prompt", out);
    }

    /// Hands a stall over to people if it has ended without a sign of life and without a prompt.
    fn leave_to_people(&mut self, why: &str, out: &mut EffectSink<'_, '_>) {
        let (now, policy) = (out.now(), out.watch_policy());
        let Some(since) = self.oversight.tracker.episode().map(|episode| episode.since) else { return };
        if let Some((step, of)) = self.oversight.mut_unchanged().tracker.give_up(now, policy) {
            self.oversight.touch_if(true);
            let condition =
                AgentCondition { why: why.to_owned(), ..AgentCondition::new(Situation::Idle, since) };
            record_step(&step, (of, of), &condition, out);
        }
    }

    pub(super) fn snooze(
        &mut self,
        until: Option<Time>,
        by: &str,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.steerable()?;
        out.record(Event::StallSnoozed(StallSnoozed { until, by: by.to_owned() }));
        self.oversight.tracker.snooze(until);
        self.refresh_condition(out);
        Ok(())
    }

    pub(super) fn choose_ladder(
        &mut self,
        choice: LadderChoice,
        by: &str,
        out: &mut EffectSink<'_, '_>,
    ) -> Result<(), CommandRefusal> {
        self.steerable()?;
        out.record(Event::LadderChanged(LadderChanged { ladder: choice.to_string(), by: by.to_owned() }));
        self.oversight.tracker.choose(choice);
        self.refresh_condition(out);
        Ok(())
    }

    /// Updates the condition that people see at once.
    fn refresh_condition(&mut self, out: &EffectSink<'_, '_>) {
        if self.oversight.condition.is_some() {
            self.publish(self.oversight.tracker.condition(&self.setting(out.now()), out.watch_policy()));
        }
    }

    pub(super) fn watched_over(&self) -> WatchState {
        WatchState {
            standing: self.oversight.condition.clone(),
            ladder: self.oversight.tracker.ladder_choice.clone(),
            snoozed_until: self.oversight.tracker.snoozed_until,
            phase_since: self.life.phase_since,
            on_client_left: self.spec.on_client_left,
            left_at: self.life.left_at,
        }
    }
}

fn record_step(
    step: &PerformedStep,
    (number, of): (usize, usize),
    condition: &AgentCondition,
    out: &mut EffectSink<'_, '_>,
) {
    let now = out.now();
    out.record(Event::StallStepTaken(StallStepTaken {
        step: step.rung,
        name: step.name(),
        number,
        of,
        state: condition.state,
        quiet_since: condition.since,
        quiet_seconds: now.since(condition.since).as_secs(),
        why: condition.sentence(now),
    }));
}
