//! A daily window of time, such as the night, in a time zone.

use jiff::civil;
use jiff::tz::TimeZone;

use super::Time;

/// A window from one time of day to another, past midnight if the first is the later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DailyWindow {
    from: civil::Time,
    to: civil::Time,
}

impl DailyWindow {
    /// Parses a window such as `22:00-07:00`.
    pub fn parse(text: &str) -> Option<Self> {
        let (from, to) = text.split_once('-')?;
        let (from, to) = (clock(from)?, clock(to)?);
        (from != to).then_some(Self { from, to })
    }

    pub fn is_zone(name: &str) -> bool {
        TimeZone::get(name).is_ok()
    }

    /// Reports whether the window contains a time. In an unknown zone, UTC applies.
    pub fn contains(&self, now: Time, zone: &str) -> bool {
        let at = local(now, zone).time();
        if self.from < self.to { self.from <= at && at < self.to } else { at >= self.from || at < self.to }
    }

    /// Returns the date on which the window last ended.
    pub fn last_end(&self, now: Time, zone: &str) -> civil::Date {
        let local = local(now, zone);
        let today = local.date();
        if local.time() >= self.to { today } else { today.yesterday().unwrap_or(today) }
    }
}

fn clock(text: &str) -> Option<civil::Time> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number = |text: &str| text.parse::<i8>().ok().filter(|_| text.len() == 2);
    civil::Time::new(number(hours)?, number(minutes)?, 0, 0).ok()
}

fn local(now: Time, zone: &str) -> jiff::Zoned {
    let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
    let stamp = jiff::Timestamp::from_millisecond(now.millis()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    stamp.to_zoned(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time::parse(text).unwrap()
    }

    #[test]
    fn a_night_goes_past_midnight_and_a_nap_does_not() {
        let night = DailyWindow::parse("22:00-07:00").unwrap();
        for (text, expected) in [
            ("22:00:00", true),
            ("23:59:59", true),
            ("00:00:00", true),
            ("06:59:59", true),
            ("07:00:00", false),
        ] {
            assert_eq!(night.contains(at(&format!("2026-03-01T{text}Z")), "UTC"), expected, "{text}");
        }
        let nap = DailyWindow::parse("12:00-13:30").unwrap();
        assert!(
            nap.contains(at("2026-03-01T13:29:00Z"), "UTC")
                && !nap.contains(at("2026-03-01T13:30:00Z"), "UTC")
        );
    }

    #[test]
    fn it_is_the_time_where_people_live() {
        let night = DailyWindow::parse("22:00-07:00").unwrap();
        assert!(night.contains(at("2026-07-01T20:30:00Z"), "Europe/Berlin"));
        assert!(!night.contains(at("2026-07-01T20:30:00Z"), "UTC"));
        assert!(
            !DailyWindow::is_zone("Mars/Olympus")
                && DailyWindow::is_zone("Europe/Berlin")
                && DailyWindow::is_zone("UTC")
        );
    }

    #[test]
    fn a_morning_belongs_to_one_date() {
        let night = DailyWindow::parse("22:00-07:00").unwrap();
        let end = |text: &str| night.last_end(at(text), "UTC").to_string();
        assert_eq!(end("2026-03-02T06:59:00Z"), "2026-03-01");
        assert_eq!(end("2026-03-02T07:00:00Z"), "2026-03-02");
        assert_eq!(end("2026-03-02T23:00:00Z"), "2026-03-02");
    }

    #[test]
    fn nothing_else_is_a_part_of_a_day() {
        for text in ["", "22-7", "22:00", "24:00-07:00", "7:00-8:00", "22:00-22:00", "22:60-07:00", "a:b-c:d"]
        {
            assert_eq!(DailyWindow::parse(text), None, "{text}");
        }
    }
}
