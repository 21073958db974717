//! The settings for watching and restarting sessions: `[stall]`, `[restart]`, and the overrides of profiles.

use std::time::Duration;

use serde::Deserialize;

use super::choices::RestartPolicy;
use intercom_types::{NUDGE_TEXT, Rung, parse_duration};

/// A duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct BoundedDuration(pub Duration);

impl TryFrom<String> for BoundedDuration {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let length = parse_duration(&text).filter(|length| !length.is_zero() && *length <= LONGEST);
        length.map(Self).ok_or("must be a time such as \"90s\", \"30m\" or \"2h\", at most a year")
    }
}

/// A duration, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct OptionalDuration(pub Option<Duration>);

impl TryFrom<String> for OptionalDuration {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text == "never" {
            return Ok(Self(None));
        }
        let after = BoundedDuration::try_from(text).map(|BoundedDuration(after)| Self(Some(after)));
        after.map_err(|_| "must be a time such as \"90s\", \"30m\" or \"2h\", at most a year, or \"never\"")
    }
}

const LONGEST: Duration = Duration::from_hours(366 * 24);

/// The steps of the ladder, gentlest first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct LadderSteps(pub Vec<Rung>);

impl TryFrom<Vec<String>> for LadderSteps {
    type Error = String;

    fn try_from(words: Vec<String>) -> Result<Self, String> {
        Rung::ladder(&words).map(Self)
    }
}

/// Defines a section with its defaults, and the same section for profiles, where every key is optional and falls back
/// to the first.
macro_rules! layered {
    (
        $(#[$meta:meta])* $name:ident, $over:ident {
            $($(#[$doc:meta])* $key:ident: $type:ty = $default:expr,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name { $($(#[$doc])* pub $key: $type,)+ }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }

        /// The overrides of a profile.
        #[derive(Debug, Clone, PartialEq, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $over { $(pub $key: Option<$type>,)+ }

        impl $over {
            pub(crate) fn over(&self, general: &$name) -> $name {
                $name { $($key: self.$key.clone().unwrap_or_else(|| general.$key.clone()),)+ }
            }
        }
    };
}

const fn minutes(n: u64) -> Duration {
    Duration::from_mins(n)
}

layered! {
    /// The thresholds at which an agent counts as stuck, and the steps against it.
    Stall, StallOverrides {
        ladder: LadderSteps = LadderSteps(Rung::LADDER.to_vec()),
        /// The threshold without output and without a running tool or process.
        silent_after: OptionalDuration = OptionalDuration(Some(minutes(5))),
        /// The threshold with a running tool or process, but without CPU, I/O or network activity.
        no_cpu_after: OptionalDuration = OptionalDuration(Some(minutes(10))),
        /// The threshold with active processes, but without output.
        busy_after: OptionalDuration = OptionalDuration(Some(minutes(120))),
        heartbeats_count_for: OptionalDuration = OptionalDuration(Some(minutes(30))),
        stopped_after: OptionalDuration = OptionalDuration(Some(minutes(1))),
        /// The time that a step has to take effect before the next one.
        verify: BoundedDuration = BoundedDuration(minutes(2)),
        remind_after: OptionalDuration = OptionalDuration(Some(minutes(30))),
        nudge_text: String = NUDGE_TEXT.to_owned(),
        reprompt_text: String = "You were interrupted because nothing happened. Continue with your task; if something hangs, \
            try another way.".to_owned(),
        resume_after_limit: OptionalDuration = OptionalDuration(None),
        resume_text: String = "The limit that you were waiting for should be over. Continue.".to_owned(),
    }
}

layered! {
    /// The maximum spending, as reported by agents, beyond which no new turn begins; 0 means no limit.
    Spend, SpendOverrides {
        per_session: f64 = 0.0,
        per_day: f64 = 0.0,
    }
}

layered! {
    /// The conditions and delays of automatic restarts.
    Restart, RestartOverrides {
        policy: RestartPolicy = RestartPolicy::Never,
        budget: u32 = 3,
        window: BoundedDuration = BoundedDuration(minutes(10)),
        first_wait: BoundedDuration = BoundedDuration(Duration::from_secs(1)),
        longest_wait: BoundedDuration = BoundedDuration(minutes(1)),
        repeat_prompt: bool = false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_changes_only_what_it_names() {
        let over = StallOverrides { verify: Some(BoundedDuration(minutes(9))), ..StallOverrides::default() };
        let merged = over.over(&Stall::default());
        assert_eq!(merged, Stall { verify: BoundedDuration(minutes(9)), ..Stall::default() });
    }

    #[test]
    fn times_are_times_or_never() {
        assert_eq!(OptionalDuration::try_from("never".to_owned()), Ok(OptionalDuration(None)));
        assert_eq!(OptionalDuration::try_from("5m".to_owned()), Ok(OptionalDuration(Some(minutes(5)))));
        for bad in ["0s", "5", "", "soon", "400d"] {
            assert!(
                OptionalDuration::try_from(bad.to_owned()).is_err()
                    && BoundedDuration::try_from(bad.to_owned()).is_err()
            );
        }
        assert!(BoundedDuration::try_from("never".to_owned()).is_err());
    }
}
