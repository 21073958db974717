//! The condition of an agent, in words for people, and the steps taken when it is stuck.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantNames};

use super::Time;

/// The text of a nudge, unless the configuration or a person has another one.
pub const NUDGE_TEXT: &str = "You have been silent for a while. Continue, or say what is blocking you.";

/// The activity of an agent, as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Situation {
    /// The agent sends output, or its processes are active.
    Working,
    /// A request waits for a person.
    WaitingForYou,
    /// It has reported a limit of the service that it depends on.
    WaitingForService,
    /// Its turn is over.
    Idle,
    /// In a turn, inactive for a short time.
    Quiet,
    /// In a turn, inactive for too long.
    Stuck,
    /// Its process is stopped.
    Gone,
    /// The agent runs, and the database does not know its history: it can be stopped, but not prompted.
    Orphan,
}

impl Situation {
    /// Reports whether the agent needs help.
    pub const fn is_stall(self) -> bool {
        matches!(self, Self::Stuck | Self::Gone)
    }
}

/// A tool that the agent has reported, or a process below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningWork {
    pub name: String,
    pub since: Time,
}

/// The condition of an agent and its reason, with points in time: durations are computed when it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCondition {
    pub state: Situation,
    pub since: Time,
    /// The reason, as far as it does not change with time: "nothing said, nothing runs".
    pub why: String,
    pub running: Option<RunningWork>,
    /// The steps taken so far: "nudged 1/2".
    pub done: Option<String>,
    /// The time when the condition ends by itself: the end of a service limit.
    pub until: Option<Time>,
    pub snoozed_until: Option<Time>,
    /// The ladder is off: no steps are taken.
    pub ladder_off: bool,
}

impl AgentCondition {
    /// Creates a condition without details.
    pub fn new(state: Situation, since: Time) -> Self {
        Self {
            state,
            since,
            why: String::new(),
            running: None,
            done: None,
            until: None,
            snoozed_until: None,
            ladder_off: false,
        }
    }

    /// Describes the condition: "stuck 7m: cargo test running 6m, no CPU; nudged 1/2".
    pub fn sentence(&self, now: Time) -> String {
        let mut text = match self.state {
            Situation::Working => "working".to_owned(),
            Situation::WaitingForYou => "waiting for you".to_owned(),
            Situation::WaitingForService => "waiting for its service".to_owned(),
            Situation::Idle => "idle".to_owned(),
            Situation::Quiet => format!("quiet {}", span(now.since(self.since))),
            Situation::Stuck => format!("stuck {}", span(now.since(self.since))),
            Situation::Gone => format!("gone {}", span(now.since(self.since))),
            Situation::Orphan => "orphan".to_owned(),
        };
        let running = self.running.as_ref();
        let running =
            running.map(|running| format!("{} running {}", running.name, span(now.since(running.since))));
        let why = Some(self.why.clone()).filter(|why| !why.is_empty());
        let until = self.until.map(|until| match until.since(now) {
            left if left.is_zero() => "due now".to_owned(),
            left => format!("over in {}", span(left)),
        });
        let reasons: Vec<String> = [running, why, until].into_iter().flatten().collect();
        if !reasons.is_empty() {
            text = format!("{text}: {}", reasons.join(", "));
        }
        let snoozed = self.snoozed_until.filter(|until| *until > now);
        let snoozed = snoozed.map(|until| format!("snoozed for {}", span(until.since(now))));
        let off = (self.ladder_off && self.state.is_stall()).then(|| "its ladder is off".to_owned());
        for note in [self.done.clone(), snoozed, off].into_iter().flatten() {
            text = format!("{text}; {note}");
        }
        text
    }
}

/// Formats a duration for people: `40s`, `7m`, `2h5m`, `3d`.
pub fn span(length: Duration) -> String {
    match length.as_secs() {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => match (seconds / 3600, seconds / 60 % 60) {
            (hours, 0) => format!("{hours}h"),
            (hours, minutes) => format!("{hours}h{minutes}m"),
        },
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// One step of the ladder for a stuck agent, gentlest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(EnumString, IntoStaticStr, VariantNames, strum::Display)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Rung {
    /// People are notified; the agent is not.
    Alert,
    /// The agent is asked to continue; the second time with the known details.
    Nudge,
    /// Its turn is interrupted, and it is prompted to continue.
    Interrupt,
    /// Its process is restarted.
    Restart,
    /// People are notified that no step has helped.
    Escalate,
}

impl Rung {
    /// The default ladder.
    pub const LADDER: &[Self] =
        &[Self::Alert, Self::Nudge, Self::Nudge, Self::Interrupt, Self::Restart, Self::Escalate];
    /// The maximum number of steps.
    pub(crate) const MOST: usize = 20;

    /// Parses a ladder. Its last step notifies people, so that no stall stays unseen.
    pub fn ladder(words: &[impl AsRef<str>]) -> Result<Vec<Self>, String> {
        let rungs: Vec<Self> = words
            .iter()
            .map(|word| {
                let word = word.as_ref();
                Self::parse(word)
                    .ok_or_else(|| format!("{word:?} is no step; there is {}", Self::VARIANTS.join(", ")))
            })
            .collect::<Result<_, _>>()?;
        match rungs.last() {
            Some(last) if *last != Self::Escalate => {
                Err("the last step must be \"escalate\", so that people are notified".to_owned())
            }
            _ if rungs.iter().filter(|rung| **rung == Self::Escalate).count() > 1 => {
                Err("\"escalate\" must be the last step and occur only once".to_owned())
            }
            _ if rungs.len() > Self::MOST => Err(format!("at most {} steps are possible", Self::MOST)),
            _ => Ok(rungs),
        }
    }
}

/// The ladder of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LadderChoice {
    /// The ladder of its profile, or the general one.
    #[default]
    Configured,
    /// No ladder.
    Off,
    /// The session's own ladder.
    Own(Vec<Rung>),
}

impl LadderChoice {
    /// Parses `on`, `off`, or steps separated by commas.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Self::Configured),
            "off" => Ok(Self::Off),
            steps => {
                let words: Vec<&str> = steps.split(',').map(str::trim).collect();
                Rung::ladder(&words).map(Self::Own)
            }
        }
    }
}

impl fmt::Display for LadderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str("on"),
            Self::Off => f.write_str("off"),
            Self::Own(rungs) => {
                f.write_str(&rungs.iter().map(|rung| rung.as_str()).collect::<Vec<_>>().join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_is_a_sentence() {
        let now = Time::from_millis(1_000_000_000);
        let ago = |minutes: i64| now.minus_millis(minutes * 60_000);
        let stuck = AgentCondition {
            state: Situation::Stuck,
            since: ago(7),
            why: "no CPU".to_owned(),
            running: Some(RunningWork { name: "cargo test".to_owned(), since: ago(6) }),
            done: Some("nudged 1/2".to_owned()),
            until: None,
            snoozed_until: None,
            ladder_off: false,
        };
        assert_eq!(stuck.sentence(now), "stuck 7m: cargo test running 6m, no CPU; nudged 1/2");
        let snoozed =
            AgentCondition { snoozed_until: Some(now.plus(Duration::from_mins(30))), ..stuck.clone() };
        assert_eq!(
            snoozed.sentence(now),
            "stuck 7m: cargo test running 6m, no CPU; nudged 1/2; snoozed for 30m"
        );
        let limited = AgentCondition {
            state: Situation::WaitingForService,
            why: "usage limit".to_owned(),
            running: None,
            done: None,
            until: Some(now.plus(Duration::from_mins(125))),
            ..stuck
        };
        assert_eq!(limited.sentence(now), "waiting for its service: usage limit, over in 2h5m");
    }

    #[test]
    fn a_ladder_ends_with_people() {
        assert_eq!(Rung::ladder(&["nudge", "escalate"]), Ok(vec![Rung::Nudge, Rung::Escalate]));
        assert_eq!(Rung::ladder(&[""; 0]), Ok(Vec::new()));
        for bad in [&["nudge"][..], &["escalate", "nudge"], &["shout", "escalate"], &["escalate", "escalate"]]
        {
            assert!(Rung::ladder(bad).is_err(), "{bad:?}");
        }
        assert!(
            Rung::ladder(Rung::LADDER.iter().map(|rung| rung.as_str()).collect::<Vec<_>>().as_slice())
                .is_ok()
        );
    }

    #[test]
    fn a_choice_reads_back_as_itself() {
        for text in ["on", "off", "alert,nudge,escalate"] {
            assert_eq!(LadderChoice::parse(text).unwrap().to_string(), text);
        }
        assert!(LadderChoice::parse("").is_err() && LadderChoice::parse("none").is_err());
    }
}
