//! Durations as people type them, times as people read them.

use std::time::Duration;

use jiff::Timestamp;

/// `90`, `30s`, `5m`, `1h30m`, `2d`, `500ms`. A bare number is seconds.
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

/// One unit is enough to judge by: `12s`, `3m`, `5h`, `2d`.
pub(super) fn age(at: Option<&str>, now: Timestamp) -> String {
    let Some(at) = at.and_then(|at| at.parse::<Timestamp>().ok()) else { return String::new() };
    match now.duration_since(at).as_secs().max(0) {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// `2026-03-04 14:02:11`, in UTC.
pub(super) fn date_time(at: &str) -> String {
    format(at, "%Y-%m-%d %H:%M:%S")
}

/// `14:02:11`, in UTC.
pub(super) fn clock(at: &str) -> String {
    format(at, "%H:%M:%S")
}

fn format(at: &str, how: &str) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) => at.strftime(how).to_string(),
        Err(_) => crate::text::clean(at),
    }
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
            assert_eq!(age(Some(at), now), expected, "{at}");
        }
        assert_eq!(age(None, now), "");
    }

    #[test]
    fn times_are_shown_in_utc() {
        assert_eq!(date_time("2026-03-04T14:02:11.123Z"), "2026-03-04 14:02:11");
        assert_eq!(clock("2026-03-04T14:02:11.123+01:00"), "13:02:11");
        assert_eq!(date_time("\x1b"), "<U+001B>");
    }
}
