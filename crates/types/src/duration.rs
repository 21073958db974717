//! Durations in the notation of people: `90s`, `2h`, `30d`, `1h30m`.

use std::time::Duration;

/// The units, largest first, in seconds.
const UNITS: &[(char, u64)] = &[('w', 604_800), ('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Parses whole numbers with units, larger units first and none twice. A number without a unit, such as `90`, is
/// invalid because it is ambiguous.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut seconds = 0_u64;
    let mut units = UNITS.iter();
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: u64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].chars().next()?;
        let (_, length) = units.find(|(name, _)| *name == unit)?;
        seconds = seconds.checked_add(count.checked_mul(*length)?)?;
        rest = &rest[digits + unit.len_utf8()..];
    }
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_units() {
        let seconds = |text| parse_duration(text).map(|duration| duration.as_secs());
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds("2h"), Some(7_200));
        assert_eq!(seconds("30d"), Some(2_592_000));
        assert_eq!(seconds("1h30m"), Some(5_400));
        assert_eq!(seconds("1w1d1h1m1s"), Some(604_800 + 86_400 + 3_600 + 61));
        assert_eq!(seconds("0s"), Some(0));
    }

    #[test]
    fn what_is_not_clear_is_not_a_duration() {
        for text in
            ["", "90", "h", "-1h", "1.5h", "1h 30m", " 1h", "1m1h", "1h1h", "1x", "99999999999999999999s"]
        {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!(parse_duration("99999999999999999w"), None);
    }
}
