//! Durations as people type them, and times as people read and type them: in the local zone, unless `--utc` is given.

use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use intercom_types::Time;

/// The zone of all times of one command, chosen before the first time is shown.
static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// Chooses UTC, or the zone of the system: `TZ`, or else the machine's setting.
pub(super) fn choose_zone(utc: bool) {
    let zone = if utc { TimeZone::UTC } else { TimeZone::try_system().unwrap_or(TimeZone::UTC) };
    ZONE.set(zone).ok(); // the first choice stays
}

fn zone() -> TimeZone {
    ZONE.get().cloned().unwrap_or(TimeZone::UTC)
}

/// Parses `90`, `30s`, `5m`, `1h30m`, `2d`, `500ms`. A bare number is seconds.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected seconds, or something like 30s, 5m or 1h30m".to_owned();
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_mins(1),
            "h" => Duration::from_hours(1),
            "d" => Duration::from_hours(24),
            _ => return Err(wrong()),
        };
        let part = u32::try_from(number).ok().and_then(|number| unit.checked_mul(number));
        total = part.and_then(|part| total.checked_add(part)).ok_or("this is too long")?;
        rest = &rest[letters..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

/// Returns an age in one unit: `12s`, `3m`, `5h`, `2d`.
pub(super) fn age(at: Option<Time>, now: Timestamp) -> String {
    let Some(at) = at else { return String::new() };
    match Time::from_millis(now.as_millisecond()).since(at).as_secs() {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Returns `2026-03-04 15:02:11`, for lists with a time on each line.
pub(super) fn date_time(at: &str) -> String {
    format(at, "%Y-%m-%d %H:%M:%S", &zone())
}

/// Returns `2026-03-04 15:02:11 CET`, for a time that stands alone, or that is read elsewhere.
pub(super) fn date_time_zone(at: &str) -> String {
    format(at, "%Y-%m-%d %H:%M:%S %Z", &zone())
}

/// Returns the same for a time in a sentence about an event.
pub(super) fn show_time(at: Time) -> String {
    date_time_zone(&at.to_string())
}

/// Returns `15:02:11`.
pub(super) fn clock(at: &str) -> String {
    format(at, "%H:%M:%S", &zone())
}

/// Returns `15:02:11 CET`.
pub(super) fn clock_zone(at: Timestamp) -> String {
    at.to_zoned(zone()).strftime("%H:%M:%S %Z").to_string()
}

/// Converts the times in a daemon's sentence to the chosen zone: the daemon does not know its reader, and writes UTC.
pub(super) fn local_times(text: &str) -> String {
    let mut words = text.split(' ').map(|word| {
        let time = word.trim_end_matches(['.', ',', ';', ':', ')']);
        let is_time = time.len() >= "2026-03-04T14:02:11Z".len() && time.ends_with('Z');
        match time.parse::<Timestamp>() {
            Ok(_) if is_time => date_time_zone(time) + &word[time.len()..],
            _ => word.to_owned(),
        }
    });
    let first = words.next().unwrap_or_default();
    words.fold(first, |line, word| line + " " + &word)
}

fn format(at: &str, how: &str, zone: &TimeZone) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) => at.to_zoned(zone.clone()).strftime(how).to_string(),
        Err(_) => intercom_types::text::clean(at),
    }
}

/// Parses a time as it is shown: `2026-03-04`, `2026-03-04 15:02`, `2026-03-04 15:02:11`, with or without the zone's
/// name.
pub(super) fn parse_shown(text: &str) -> Option<Timestamp> {
    read_shown(text, &zone())
}

fn read_shown(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let trimmed = text.trim();
    let civil = match trimmed.rsplit_once(' ') {
        Some((time, name)) if !name.contains(':') => {
            let at = read_shown(time, zone)?;
            // Only the zone that we would show: any other one would be converted wrongly.
            let ours = at.to_zoned(zone.clone()).strftime("%Z").to_string();
            return (name == ours).then_some(at);
        }
        _ => trimmed.parse::<DateTime>().ok()?,
    };
    civil.to_zoned(zone.clone()).ok().map(|at| at.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_and_without_units() {
        for (text, milliseconds) in [
            ("0", 0),
            ("90", 90_000),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("500ms", 500),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "s", "-1", "1.5", "5 m", "5x", "5m3", "ä", "5ä", "99999999999d", "4294967295d9d "]
        {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ages_are_in_one_unit() {
        let now: Timestamp = "2026-03-04T12:00:00.000Z".parse().unwrap();
        for (at, expected) in [
            ("2026-03-04T12:00:03.000Z", "0s"),
            ("2026-03-04T11:59:48.100Z", "11s"),
            ("2026-03-04T11:57:00.000Z", "3m"),
            ("2026-03-04T07:00:00.000Z", "5h"),
            ("2026-03-02T11:59:00.000Z", "2d"),
            ("yesterday", ""),
        ] {
            assert_eq!(age(Time::parse(at), now), expected, "{at}");
        }
        assert_eq!(age(None, now), "");
    }

    #[test]
    fn times_are_shown_in_the_chosen_zone_and_read_as_they_are_shown() {
        assert_eq!(date_time("2026-03-04T14:02:11.123Z"), "2026-03-04 14:02:11");
        assert_eq!(date_time_zone("2026-03-04T14:02:11.123Z"), "2026-03-04 14:02:11 UTC");
        assert_eq!(clock("2026-03-04T14:02:11.123+01:00"), "13:02:11");
        assert_eq!(date_time("\x1b"), "<U+001B>");
        assert_eq!(
            local_times("usage limit.  It is lifted at 2026-03-04T14:02:11.123Z. Or later"),
            "usage limit.  It is lifted at 2026-03-04 14:02:11 UTC. Or later"
        );
        let zone = TimeZone::posix("IST-5:30").unwrap();
        let shown = |how: &str| format("2026-03-04T14:02:11.123Z", how, &zone);
        assert_eq!(shown("%Y-%m-%d %H:%M:%S %Z"), "2026-03-04 19:32:11 IST");
        let at: Timestamp = "2026-03-04T14:02:11Z".parse().unwrap();
        for text in ["2026-03-04 19:32:11", "2026-03-04 19:32:11 IST", "2026-03-04T19:32:11"] {
            assert_eq!(read_shown(text, &zone), Some(at), "{text}");
        }
        let day: Timestamp = "2026-03-03T18:30:00Z".parse().unwrap();
        assert_eq!(read_shown("2026-03-04", &zone), Some(day));
        for text in ["2026-03-04 19:32:11 CET", "yesterday", "", "19:32"] {
            assert_eq!(read_shown(text, &zone), None, "{text}");
        }
    }
}
