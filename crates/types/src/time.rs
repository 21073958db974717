//! A point in time, to the millisecond.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A time in milliseconds since the Unix epoch; prints as RFC 3339 UTC with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(i64);

impl Time {
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_millisecond())
    }

    /// Parses an RFC 3339 timestamp with its offset: `2026-03-01T18:00:00Z`.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|stamp| Self(stamp.as_millisecond()))
    }

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Returns a later time, at most the latest possible one.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns the time since `earlier`; zero if that is in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    #[must_use]
    pub const fn minus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_sub(millis))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A time outside of the calendar's range is shown as its nearest limit.
        let stamp = jiff::Timestamp::from_millisecond(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        });
        write!(f, "{stamp:.3}")
    }
}

/// Serialization of times as text, for the log and the API: `#[serde(with = "rfc3339")]`. By default a [`Time`]
/// serializes as a number, as in snapshots.
pub(crate) mod rfc3339 {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Time;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(crate) fn serialize<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(time)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        Time::parse(&text).ok_or_else(|| D::Error::custom("not an RFC 3339 time"))
    }

    /// The same for optional times.
    pub(crate) mod optional {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        use super::Time;

        #[expect(clippy::ref_option, reason = "serde calls it with a reference")]
        pub(crate) fn serialize<S: Serializer>(
            time: &Option<Time>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            time.map(|time| time.to_string()).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Time>, D::Error> {
            #[derive(Deserialize)]
            struct Rfc3339Time(#[serde(with = "super")] Time);
            Ok(Option::<Rfc3339Time>::deserialize(deserializer)?.map(|Rfc3339Time(time)| time))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_rfc_3339_with_milliseconds() {
        assert_eq!(Time::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Time::from_millis(1_700_000_000_120).to_string(), "2023-11-14T22:13:20.120Z");
        assert!(Time::from_millis(i64::MAX).to_string().starts_with("9999-12-"));
    }

    #[test]
    fn timestamps_are_read_with_their_offset() {
        assert_eq!(Time::parse("1970-01-01T01:00:00+01:00"), Some(Time::from_millis(0)));
        assert_eq!(Time::parse("1970-01-01T00:00:00"), None);
        assert_eq!(Time::from_millis(1).plus(Duration::MAX), Time::from_millis(i64::MAX));
    }
}
