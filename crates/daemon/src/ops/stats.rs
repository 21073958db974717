//! Statistics of the human loop: time to decisions, agents' waiting time, number of events.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Caller, OpError, OperationKind, Operations};
use intercom_store::{COUNTED_STRETCH_MILLIS, RequestWait};
use intercom_types::{DecisionStats, StatsInterval, Time};

const DEFAULT_HOURS: u32 = 24;
const MAX_HOURS: u32 = 24 * 31;
/// The number of stretches into which the time is divided.
const STRETCHES: i64 = 48;
const SLOTS: usize = 48;
/// The length that each requested hour adds to each stretch. The store counts events in units of this length.
const STRETCH_PER_HOUR: i64 = 3_600_000 / STRETCHES;
const _: () = assert!(STRETCH_PER_HOUR == COUNTED_STRETCH_MILLIS);

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FiguresQuery")]
pub struct StatsQuery {
    pub(crate) session: Option<String>,
    /// The number of hours; default 24, at most 744.
    pub(crate) hours: Option<u32>,
}

impl Operations {
    pub async fn stats(&self, caller: &Caller, query: StatsQuery) -> Result<DecisionStats, OpError> {
        self.admit(caller, OperationKind::Read)?;
        let hours = query.hours.unwrap_or(DEFAULT_HOURS);
        if !(1..=MAX_HOURS).contains(&hours) {
            return Err(OpError::bad_request(format!("hours must be 1 to {MAX_HOURS}")));
        }
        let session = self.session_id(query.session).await?;
        let stretch = i64::from(hours) * STRETCH_PER_HOUR;
        let now = Time::now();
        let first = now.millis() / stretch - (STRETCHES - 1);
        let since = Time::from_millis(first * stretch);
        let waits = self.store().waits(since, session).await?;
        let counts = self.store().event_counts(since, stretch, session).await?;
        Ok(figures(&waits, &counts, first, stretch, now))
    }
}

fn figures(
    waits: &[RequestWait],
    counts: &[(i64, i64)],
    first: i64,
    stretch: i64,
    now: Time,
) -> DecisionStats {
    let slot = |n: i64| usize::try_from(n - first).ok().filter(|slot| *slot < SLOTS);
    let blocked = blocked(waits, first, stretch, now);
    let mut took: Vec<Vec<i64>> = vec![Vec::new(); SLOTS];
    for wait in waits.iter().filter(|wait| wait.decided) {
        let Some(to) = wait.to.map(Time::millis) else { continue };
        if let Some(slot) = slot(to / stretch) {
            took[slot].push(to - wait.from.millis());
        }
    }
    // The store may count the two parts of one stretch separately.
    let mut counted = [0; SLOTS];
    for (n, count) in counts {
        if let Some(slot) = slot(*n) {
            counted[slot] += count;
        }
    }
    let (mut all, events) = (took.concat(), counted.iter().sum());
    let stretches =
        (first..).zip(&blocked).zip(took.iter_mut().zip(counted)).map(|((n, millis), (took, events))| {
            StatsInterval {
                at: Time::from_millis(n * stretch),
                events,
                decided: took.len(),
                median_seconds: rank(took, 50),
                blocked_seconds: seconds(*millis),
            }
        });
    let stretches: Vec<StatsInterval> = stretches.collect();
    DecisionStats {
        since: Time::from_millis(first * stretch),
        stretch_seconds: stretch / 1000,
        decided: all.len(),
        median_seconds: rank(&mut all, 50),
        ninetieth_seconds: rank(&mut all, 90),
        blocked_seconds: seconds(blocked.iter().sum()),
        stretches,
        events,
    }
}

/// Returns the waiting milliseconds in each stretch. An agent that waits for two answers at the same time waits once.
fn blocked(waits: &[RequestWait], first: i64, stretch: i64, now: Time) -> Vec<i64> {
    let mut by_session: HashMap<i64, Vec<(i64, i64)>> = HashMap::new();
    for wait in waits {
        let span = (wait.from.millis().max(first * stretch), wait.to.unwrap_or(now).millis());
        by_session.entry(wait.session).or_default().push(span);
    }
    let mut blocked = vec![0; SLOTS];
    for spans in by_session.values_mut() {
        spans.sort_unstable();
        let mut until = i64::MIN;
        for (from, to) in spans {
            let mut at = (*from).max(until);
            until = until.max(*to);
            while at < *to {
                let n = at / stretch;
                let end = (*to).min((n + 1) * stretch);
                if let Some(slot) = usize::try_from(n - first).ok().and_then(|n| blocked.get_mut(n)) {
                    *slot += end - at;
                }
                at = end;
            }
        }
    }
    blocked
}

fn rank(took: &mut [i64], percent: usize) -> Option<f64> {
    took.sort_unstable();
    let at = (took.len() * percent).div_ceil(100).saturating_sub(1);
    took.get(at).map(|millis| seconds(*millis))
}

#[expect(clippy::cast_precision_loss, reason = "a chart is not that exact")]
fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(session: i64, from: i64, to: Option<i64>, decided: bool) -> RequestWait {
        let (from, to) = (Time::from_millis(from), to.map(Time::from_millis));
        RequestWait { session, from, to, decided }
    }

    #[test]
    fn an_agent_that_waits_for_two_answers_waits_once() {
        let waits =
            [wait(1, 0, Some(1500), true), wait(1, 500, Some(2000), true), wait(2, 47_500, None, false)];
        let figures = figures(&waits, &[(0, 3), (2, 1), (2, 3)], 0, 1000, Time::from_millis(47_900));
        assert!((figures.blocked_seconds - 2.4).abs() < 1e-9, "{figures:?}");
        assert!((figures.stretches[0].blocked_seconds - 1.0).abs() < 1e-9);
        assert_eq!(
            (figures.decided, figures.median_seconds, figures.ninetieth_seconds),
            (2, Some(1.5), Some(1.5))
        );
        assert_eq!((figures.events, figures.stretches.len(), figures.stretches[2].events), (7, 48, 4));
    }

    #[test]
    fn without_anything_there_is_nothing_to_say() {
        let figures = figures(&[], &[], 0, 1000, Time::from_millis(0));
        assert_eq!((figures.decided, figures.median_seconds, figures.events), (0, None, 0));
    }
}
