//! Spans of time as people write them: `90s`, `30m`, `2h`, `1h30m`, `30d`.

use std::time::Duration;

/// `None` if it is not one. Units go from large to small, each at most once.
pub fn parse(text: &str) -> Option<Duration> {
    const UNITS: [(char, u64); 4] = [('d', 24 * 60 * 60), ('h', 60 * 60), ('m', 60), ('s', 1)];
    let (mut seconds, mut rest, mut units) = (0u64, text.trim(), UNITS.as_slice());
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: u64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].chars().next()?;
        let at = units.iter().position(|(known, _)| *known == unit)?;
        seconds = seconds.checked_add(count.checked_mul(units[at].1)?)?;
        units = &units[at + 1..];
        rest = &rest[digits + 1..];
    }
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, seconds) in
            [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), (" 30d ", 2_592_000), ("0s", 0)]
        {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "5",
            "h",
            "-1h",
            "1.5h",
            "1m1h",
            "1h1h",
            "2 h",
            "1w",
            "99999999999999999999s",
            "999999999999999999d",
            "1é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
