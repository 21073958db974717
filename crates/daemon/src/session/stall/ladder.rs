//! The ladder of steps against a stall: gentlest first, each verified before the next, none taken twice.

use serde::{Deserialize, Serialize};

use super::{ActivityTracker, WatchPolicy};
use intercom_types::{AgentCondition, LadderChoice, Rung, Situation, Time};

use std::time::Duration;

/// The time within which a new stall continues at the rung where the last one ended.
const RELAPSE: Duration = Duration::from_hours(1);

/// One stall, from its detection to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StallEpisode {
    /// The beginning of the quiet time.
    pub(crate) since: Time,
    /// The number of rungs already taken.
    climbed: usize,
    due: Time,
    last: Option<PerformedStep>,
}

/// A step that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PerformedStep {
    pub(crate) rung: Rung,
    /// Its number among the steps of its kind.
    pub(crate) attempt: usize,
    pub(crate) at: Time,
}

/// The position on the ladder at the end of a stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StallRelapse {
    at: Time,
    climbed: usize,
}

/// A move that follows from a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LadderMove {
    /// The last step has had no effect.
    Failed(PerformedStep),
    /// The next step is due: the step, its number, and the number of all steps.
    Take(PerformedStep, usize, usize),
}

/// The end of a stall without the help of people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StallRecovery {
    pub(crate) since: Time,
    /// The last step before it.
    pub(crate) after: PerformedStep,
}

impl PerformedStep {
    /// Returns the name with its number: "nudge 2".
    pub(crate) fn name(&self) -> String {
        match self.rung {
            Rung::Nudge => format!("nudge {}", self.attempt),
            rung => rung.to_string(),
        }
    }
}

impl StallEpisode {
    /// Returns the time of the next step, if there is one.
    pub(super) fn due(&self, rungs: &[Rung]) -> Option<Time> {
        (!self.is_over() && !rungs.is_empty()).then_some(self.due)
    }

    /// Returns true if the last step, which hands over to people, was taken.
    fn is_over(&self) -> bool {
        self.last.is_some_and(|last| last.rung == Rung::Escalate)
    }
}

/// Returns true if the step can have an effect: a stopped process reads nothing.
fn helps(rung: Rung, state: Situation) -> bool {
    state != Situation::Gone || !matches!(rung, Rung::Nudge | Rung::Interrupt)
}

impl ActivityTracker {
    pub(crate) fn rungs<'a>(&'a self, policy: &'a WatchPolicy) -> &'a [Rung] {
        match &self.ladder_choice {
            LadderChoice::Configured => &policy.ladder,
            LadderChoice::Off => &[],
            LadderChoice::Own(rungs) => rungs,
        }
    }

    /// Returns true if every step was taken.
    pub(super) fn is_exhausted(&self, policy: &WatchPolicy) -> bool {
        self.episode.as_ref().is_some_and(|episode| episode.due(self.rungs(policy)).is_none())
    }

    /// Returns the last step in words: "nudged 1/2".
    pub(super) fn done(&self, policy: &WatchPolicy) -> Option<String> {
        let PerformedStep { rung, attempt, .. } = self.episode.as_ref()?.last?;
        Some(match rung {
            Rung::Alert => "people were alerted".to_owned(),
            Rung::Nudge => {
                let all = self.rungs(policy).iter().filter(|rung| **rung == Rung::Nudge).count();
                format!("nudged {attempt}/{}", all.max(attempt))
            }
            Rung::Interrupt => "interrupted".to_owned(),
            Rung::Restart => "restarted".to_owned(),
            Rung::Escalate => "nothing has helped: please take over".to_owned(),
        })
    }

    /// Returns the moves that are due: the report that the last step has failed, then at most one new step.
    pub(crate) fn climb(
        &mut self,
        condition: &AgentCondition,
        now: Time,
        policy: &WatchPolicy,
    ) -> Vec<LadderMove> {
        let rungs = self.rungs(policy).to_vec();
        if !condition.state.is_stall() || self.is_snoozed(now) || rungs.is_empty() {
            return Vec::new();
        }
        let before = self.relapse.filter(|relapse| {
            now.since(relapse.at) < RELAPSE && relapse.climbed < rungs.len() && relapse.at <= now
        });
        let climbed = before.map_or(0, |relapse| relapse.climbed);
        let begin = || StallEpisode { since: condition.since, climbed, due: now, last: None };
        let episode = self.episode.get_or_insert_with(begin);
        if episode.due(&rungs).is_none_or(|due| due > now) {
            return Vec::new();
        }
        let mut moves = Vec::new();
        if let Some(last) = episode.last.filter(|last| last.rung != Rung::Alert) {
            moves.push(LadderMove::Failed(last));
        }
        // A ladder that was shortened meanwhile must still end with people.
        let left = rungs.iter().enumerate().skip(episode.climbed.min(rungs.len() - 1));
        let next = left.into_iter().find(|(_, rung)| helps(**rung, condition.state));
        let (at, rung) = next.map_or((rungs.len() - 1, Rung::Escalate), |(at, rung)| (at, *rung));
        let attempt = rungs[..=at].iter().filter(|other| **other == rung).count();
        let performed = PerformedStep { rung, attempt, at: now };
        episode.climbed = at + 1;
        episode.due = now.plus(policy.verify);
        episode.last = Some(performed);
        moves.push(LadderMove::Take(performed, at + 1, rungs.len()));
        moves
    }

    /// Ends the stall; returns the step that it followed, if any was taken.
    pub(crate) fn recover(&mut self, now: Time) -> Option<StallRecovery> {
        let episode = self.episode.take()?;
        self.relapse = Some(StallRelapse { at: now, climbed: episode.climbed });
        let after = episode.last?;
        Some(StallRecovery { since: episode.since, after })
    }

    /// Returns true if its processes were active since the last step.
    pub(crate) fn has_stirred(&self) -> bool {
        self.episode
            .as_ref()
            .is_some_and(|episode| self.last_busy > Some(episode.last.map_or(episode.since, |last| last.at)))
    }

    /// Starts the ladder anew, because a person acts. Returns true if a step had been taken.
    pub(crate) fn reset(&mut self, now: Time) -> bool {
        self.record_sign_of_life(now);
        self.relapse = None;
        self.episode.take().is_some()
    }

    /// Suspends the ladder until then; it continues with its first step. The quiet time continues.
    pub(crate) fn snooze(&mut self, until: Option<Time>) {
        self.snoozed_until = until;
        (self.episode, self.relapse) = (None, None);
    }

    pub(crate) fn choose(&mut self, choice: LadderChoice) {
        self.ladder_choice = choice;
        (self.episode, self.relapse) = (None, None);
    }

    /// Returns the current stall.
    pub(crate) fn episode(&self) -> Option<&StallEpisode> {
        self.episode.as_ref()
    }

    /// Takes the last step at once, if the ladder has it: the process was restarted, and nobody tells it what to do.
    pub(crate) fn give_up(&mut self, now: Time, policy: &WatchPolicy) -> Option<(PerformedStep, usize)> {
        let of = self.rungs(policy).len();
        let open = self.episode.take().is_some_and(|episode| !episode.is_over());
        // A relapse begins with the last step, because the others have failed.
        self.relapse = Some(StallRelapse { at: now, climbed: of.saturating_sub(1) });
        open.then_some((PerformedStep { rung: Rung::Escalate, attempt: 1, at: now }, of))
    }

    /// Moves the next deadline: the step that was taken needs time to take effect.
    pub(crate) fn postpone(&mut self, now: Time, policy: &WatchPolicy) {
        if let Some(episode) = &mut self.episode {
            episode.due = now.plus(policy.verify);
        }
    }
}
