//! The ladder of steps against a stall: gentlest first, each checked before the next, none twice.

use serde::{Deserialize, Serialize};

use super::{ActivityTracker, WatchPolicy};
use intercom_types::{AgentCondition, LadderChoice, Rung, Situation, Time};

use std::time::Duration;

/// A stall that comes back within this goes on where the ladder was left.
const RELAPSE: Duration = Duration::from_hours(1);

/// One stall, from when it was noticed until it is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StallEpisode {
    /// Since when nothing had happened.
    pub since: Time,
    /// The number of rungs already taken.
    climbed: usize,
    due: Time,
    last: Option<PerformedStep>,
}

/// A step that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PerformedStep {
    pub rung: Rung,
    /// The how manieth of its kind.
    pub attempt: usize,
    pub at: Time,
}

/// Where the ladder was left when a stall was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StallRelapse {
    at: Time,
    climbed: usize,
}

/// A move that follows from a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LadderMove {
    /// The last step has not helped.
    Failed(PerformedStep),
    /// The next one is due: number, of how many.
    Take(PerformedStep, usize, usize),
}

/// A stall is over, by the agent's own doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StallRecovery {
    pub since: Time,
    /// The step that it followed.
    pub after: PerformedStep,
}

impl PerformedStep {
    /// "nudge 2"
    pub(crate) fn name(&self) -> String {
        match self.rung {
            Rung::Nudge => format!("nudge {}", self.attempt),
            rung => rung.to_string(),
        }
    }
}

impl StallEpisode {
    /// When the next step is due, if there is one.
    pub(super) fn due(&self, rungs: &[Rung]) -> Option<Time> {
        (!self.is_over() && !rungs.is_empty()).then_some(self.due)
    }

    /// People have been told that nothing has helped.
    fn is_over(&self) -> bool {
        self.last.is_some_and(|last| last.rung == Rung::Escalate)
    }
}

/// A process that is stopped reads nothing.
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

    /// Everything was tried.
    pub(super) fn is_exhausted(&self, policy: &WatchPolicy) -> bool {
        self.episode.as_ref().is_some_and(|episode| episode.due(self.rungs(policy)).is_none())
    }

    /// "nudged 1/2"
    pub(super) fn done(&self, policy: &WatchPolicy) -> Option<String> {
        let PerformedStep { rung, attempt, .. } = self.episode.as_ref()?.last?;
        Some(match rung {
            Rung::Alert => "people were told".to_owned(),
            Rung::Nudge => {
                let all = self.rungs(policy).iter().filter(|rung| **rung == Rung::Nudge).count();
                format!("nudged {attempt}/{}", all.max(attempt))
            }
            Rung::Interrupt => "interrupted".to_owned(),
            Rung::Restart => "restarted".to_owned(),
            Rung::Escalate => "nothing has helped: over to you".to_owned(),
        })
    }

    /// Returns the moves that are due against a stall: at most one step, after the report that the one before
    /// has failed.
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
        // A ladder that has become shorter meanwhile still ends with people.
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

    /// It has come back to life: what it followed, if any step was taken.
    pub(crate) fn recover(&mut self, now: Time) -> Option<StallRecovery> {
        let episode = self.episode.take()?;
        self.relapse = Some(StallRelapse { at: now, climbed: episode.climbed });
        let after = episode.last?;
        Some(StallRecovery { since: episode.since, after })
    }

    /// Its processes have come back to work since the last step.
    pub(crate) fn has_stirred(&self) -> bool {
        self.episode
            .as_ref()
            .is_some_and(|episode| self.last_busy > Some(episode.last.map_or(episode.since, |last| last.at)))
    }

    /// A person acts: the ladder begins anew. Whether it had been climbed.
    pub(crate) fn reset(&mut self, now: Time) -> bool {
        self.record_sign_of_life(now);
        self.relapse = None;
        self.episode.take().is_some()
    }

    /// No steps until then, from the first one afterwards. The clock goes on.
    pub(crate) fn snooze(&mut self, until: Option<Time>) {
        self.snoozed_until = until;
        (self.episode, self.relapse) = (None, None);
    }

    pub(crate) fn choose(&mut self, choice: LadderChoice) {
        self.ladder_choice = choice;
        (self.episode, self.relapse) = (None, None);
    }

    /// The stall that is being dealt with.
    pub(crate) fn episode(&self) -> Option<&StallEpisode> {
        self.episode.as_ref()
    }

    /// Its process was started again, and nobody has told it what to do: the last step is taken now, if it is there.
    pub(crate) fn give_up(&mut self, now: Time, policy: &WatchPolicy) -> Option<(PerformedStep, usize)> {
        let of = self.rungs(policy).len();
        let open = self.episode.take().is_some_and(|episode| !episode.is_over());
        // Before the last step comes again, nothing else does.
        self.relapse = Some(StallRelapse { at: now, climbed: of.saturating_sub(1) });
        open.then_some((PerformedStep { rung: Rung::Escalate, attempt: 1, at: now }, of))
    }

    /// The step that was taken does not count before this: it takes its time.
    pub(crate) fn postpone(&mut self, now: Time, policy: &WatchPolicy) {
        if let Some(episode) = &mut self.episode {
            episode.due = now.plus(policy.verify);
        }
    }
}
