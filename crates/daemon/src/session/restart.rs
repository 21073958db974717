//! The decision to restart a process that has ended, and when. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use intercom_types::{Exit, Time};

/// The condition of an automatic restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RestartCondition {
    #[default]
    Never,
    /// An exit code that is not 0, a signal, or a lost process.
    OnFailure,
    Always,
}

/// The terms on which processes are restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RestartTerms {
    pub(crate) policy: RestartCondition,
    /// The maximum number of restarts within `window`; after that the session is parked.
    pub(crate) budget: u32,
    pub(crate) window: Duration,
    pub(crate) first_wait: Duration,
    pub(crate) longest_wait: Duration,
    /// True if a restarted agent gets its unfinished prompt again.
    pub(crate) repeat_prompt: bool,
}

impl RestartTerms {
    pub(crate) fn never() -> Self {
        Self {
            policy: RestartCondition::Never,
            budget: 0,
            window: Duration::ZERO,
            first_wait: Duration::ZERO,
            longest_wait: Duration::ZERO,
            repeat_prompt: false,
        }
    }
}

/// The cause of a process's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnding<'a> {
    /// The process ended by itself, or was lost (no status).
    Itself(&'a Exit),
    /// We ended the process to restart it.
    ToRestart,
}

/// The decision after an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartDecision {
    End,
    /// Restart at this time; the number counts the restarts within the window.
    Again(Time, u32),
    /// Too many restarts: park the session.
    Park,
}

/// Decides what follows the end of a process, given the times of earlier restarts. `jitter` is any number.
pub(crate) fn next(
    terms: &RestartTerms,
    before: &VecDeque<Time>,
    ended: ProcessEnding<'_>,
    now: Time,
    jitter: u8,
) -> RestartDecision {
    let restarts = match (ended, terms.policy) {
        (ProcessEnding::ToRestart, _) | (_, RestartCondition::Always) => true,
        (ProcessEnding::Itself(exit), RestartCondition::OnFailure) => exit.code != Some(0),
        (ProcessEnding::Itself(_), RestartCondition::Never) => false,
    };
    if !restarts {
        return RestartDecision::End;
    }
    let lately = before.iter().filter(|at| now.since(**at) < terms.window && **at <= now).count();
    let lately = u32::try_from(lately).unwrap_or(u32::MAX);
    if lately >= terms.budget {
        return RestartDecision::Park;
    }
    RestartDecision::Again(now.plus(wait(terms, lately, jitter)), lately + 1)
}

/// Returns the delay: it doubles with each restart, with jitter between half and all of it so that many sessions do not
/// restart at once.
fn wait(terms: &RestartTerms, lately: u32, jitter: u8) -> Duration {
    let doubled = 1_u32.checked_shl(lately).map_or(Duration::MAX, |n| terms.first_wait.saturating_mul(n));
    let full = doubled.min(terms.longest_wait);
    full / 2 + (full / 2).mul_f64(f64::from(jitter) / f64::from(u8::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn terms(policy: RestartCondition) -> RestartTerms {
        RestartTerms {
            policy,
            budget: 3,
            window: Duration::from_mins(10),
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_mins(1),
            repeat_prompt: false,
        }
    }

    #[test]
    fn the_policy_decides_what_is_started_again() {
        let (fine, bad) = (Exit { code: Some(0), signal: None }, Exit { code: Some(1), signal: None });
        let (killed, lost) = (Exit { code: None, signal: Some(9) }, Exit::default());
        for (policy, exit, restarts) in [
            (RestartCondition::Never, &bad, false),
            (RestartCondition::OnFailure, &fine, false),
            (RestartCondition::OnFailure, &bad, true),
            (RestartCondition::OnFailure, &killed, true),
            (RestartCondition::OnFailure, &lost, true),
            (RestartCondition::Always, &fine, true),
        ] {
            let next =
                next(&terms(policy), &VecDeque::new(), ProcessEnding::Itself(exit), Time::from_millis(0), 0);
            assert_eq!(matches!(next, RestartDecision::Again(..)), restarts, "{policy:?} {exit}");
        }
        let forced = next(
            &terms(RestartCondition::Never),
            &VecDeque::new(),
            ProcessEnding::ToRestart,
            Time::from_millis(0),
            255,
        );
        assert_eq!(forced, RestartDecision::Again(Time::from_millis(1000), 1));
    }

    proptest! {
        /// A process that always dies at once is parked, whatever the jitter, and its waits grow.
        #[test]
        fn the_budget_ends_it(jitters in prop::collection::vec(any::<u8>(), 4)) {
            let (terms, mut before, mut now) = (terms(RestartCondition::Always), VecDeque::new(), Time::from_millis(0));
            let mut waits = Vec::new();
            for jitter in jitters {
                match next(&terms, &before, ProcessEnding::ToRestart, now, jitter) {
                    RestartDecision::Again(at, attempt) => {
                        prop_assert_eq!(attempt as usize, before.len() + 1);
                        waits.push(at.since(now));
                        before.push_back(at);
                        now = at;
                    }
                    RestartDecision::Park => break,
                    RestartDecision::End => prop_assert!(false, "it is always started again"),
                }
            }
            prop_assert_eq!(waits.len(), 3);
            for (at, wait) in waits.iter().enumerate() {
                let full = Duration::from_secs(1 << at);
                prop_assert!(*wait >= full / 2 && *wait <= full);
            }
            // Later it may try again.
            let later = now.plus(terms.window);
            prop_assert!(matches!(next(&terms, &before, ProcessEnding::ToRestart, later, 0), RestartDecision::Again(_, 1)));
        }
    }
}
