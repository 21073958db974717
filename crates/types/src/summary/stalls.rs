//! Stalls, restarts and reminders in English.

use super::{Rung, Summary, Time, Tone, by, clean_suffix, exit_suffix, word_or_quote};
use crate::Event;
use crate::text::clean;

pub(super) fn summary(event: &Event, show_time: fn(Time) -> String) -> Option<Summary> {
    Some(match event {
        Event::StallStepTaken(taken) => {
            let tone = match taken.step {
                Rung::Escalate | Rung::Alert => Tone::Bad,
                _ => Tone::Warning,
            };
            let (name, why) = (clean(&taken.name), clean_suffix(": ", &taken.why));
            Summary::new(tone, format!("{name} (step {} of {}){why}", taken.number, taken.of))
        }
        Event::StallStepFailed(failed) => {
            let name = clean(&failed.name);
            Summary::new(Tone::Quiet, format!("{name} did not help within {} s", failed.seconds))
        }
        Event::StallRecovered(recovered) => Summary::new(Tone::Good, clean(&recovered.summary)),
        Event::StallReset(reset) => {
            Summary::new(Tone::Quiet, format!("{} acts: the ladder restarts", clean(&reset.by)))
        }
        Event::StallSnoozed(snoozed) => match snoozed.until {
            Some(until) => {
                Summary::new(Tone::Quiet, format!("snoozed until {}{}", show_time(until), by(&snoozed.by)))
            }
            None => Summary::new(Tone::Quiet, format!("watched again{}", by(&snoozed.by))),
        },
        Event::LadderChanged(changed) => {
            Summary::new(Tone::Quiet, format!("ladder: {}{}", clean(&changed.ladder), by(&changed.by)))
        }
        Event::StallReminder(reminder) => {
            let (what, since) = (clean(&reminder.waiting_for), show_time(reminder.since));
            Summary::new(Tone::Warning, format!("still waiting for you: {what} since {since}"))
        }
        Event::LimitReached(reached) => {
            let (limit, until) = (word_or_quote(&clean(&reached.limit)), show_time(reached.until));
            Summary::new(Tone::Warning, format!("waits for its service: {limit} limit, until {until}"))
        }
        Event::LimitOver(over) => Summary::new(
            Tone::Plain,
            format!("the {} limit should be over", word_or_quote(&clean(&over.limit))),
        ),
        Event::AgentRestarting(restarting) => {
            let wait = restarting.wait_ms;
            let at = format!("in {}.{} s", wait / 1000, wait % 1000 / 100);
            let attempt = format!("(attempt {} of {})", restarting.attempt, restarting.of);
            let why = exit_suffix(restarting.why.as_deref(), &restarting.reason);
            Summary::new(Tone::Warning, format!("restarts {at} {attempt}{why}"))
        }
        Event::SessionParked(parked) => {
            let why = exit_suffix(parked.why.as_deref(), &parked.reason);
            Summary::new(Tone::Bad, format!("parked{why}")).below(&parked.stderr_tail)
        }
        _ => return None,
    })
}
