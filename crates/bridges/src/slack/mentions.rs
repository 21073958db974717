//! The choice of people to mention, and of the time. Pure.

use std::time::Duration;

use intercom_daemon::config::{Config, OperatorConfig};
use intercom_types::{Role, Time};

/// A pending request, as far as mentions depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnansweredRequest<'a> {
    pub(super) since: Time,
    /// True for a high or critical risk, which is worth a mention at any hour.
    pub(super) is_urgent: bool,
    pub(super) least: Role,
    /// The people whom the rule wants asked, by name or `@role`; empty for anybody.
    pub(super) whom: &'a [String],
}

fn may_decide(operator: &OperatorConfig, request: &UnansweredRequest<'_>) -> bool {
    let asked =
        |who: &String| *who == operator.name || who.strip_prefix('@') == Some(operator.role().as_str());
    operator.role() >= request.least
        && (request.whom.is_empty() || operator.role() == Role::Admin || request.whom.iter().any(asked))
}

/// Returns true during quiet hours, when only requests of high or critical risk mention anybody.
pub(super) fn is_quiet(config: &Config, now: Time) -> bool {
    config.slack.quiet_hours().is_some_and(|hours| hours.contains(now, &config.slack.time_zone))
}

/// Returns the people whom a new card mentions: those in `ping` who may decide it, and those whom the rule names.
pub(super) fn initial_mentions(
    config: &Config,
    ping: &[String],
    request: &UnansweredRequest<'_>,
    now: Time,
) -> Vec<String> {
    if is_quiet(config, now) && !request.is_urgent {
        return Vec::new();
    }
    let named = |operator: &&OperatorConfig| {
        request
            .whom
            .iter()
            .any(|who| *who == operator.name || who.strip_prefix('@') == Some(operator.role().as_str()))
    };
    let known = config.operators.iter().filter(|operator| operator.slack.is_some());
    let called = known.filter(|operator| {
        may_decide(operator, request)
            && (ping.contains(&operator.name) || (!request.whom.is_empty() && named(operator)))
    });
    called.map(|operator| operator.name.clone()).collect()
}

/// Returns the further people to mention by now, one for each escalation interval that has passed. Only people who may
/// decide are among them.
pub(super) fn escalation_mentions(
    config: &Config,
    request: &UnansweredRequest<'_>,
    now: Time,
) -> Vec<String> {
    let Some(after) = config.slack.escalate_after().filter(|after| !after.is_zero()) else {
        return Vec::new();
    };
    if is_quiet(config, now) && !request.is_urgent {
        return Vec::new();
    }
    let steps = now.since(request.since).as_millis() / after.as_millis();
    let able = |name: &&String| {
        config.operators.iter().any(|operator| operator.name == **name && may_decide(operator, request))
    };
    let order = config.slack.escalate_to.iter().filter(able);
    order.take(usize::try_from(steps).unwrap_or(usize::MAX)).cloned().collect()
}

/// Returns the date whose morning digest is due, for a few hours after quiet hours: a daemon that was down all day
/// posts none.
pub(super) fn due_digest_date(config: &Config, now: Time) -> Option<String> {
    const FRESH: Duration = Duration::from_hours(4);
    let hours = config.slack.quiet_hours()?;
    let zone = &config.slack.time_zone;
    let earlier = now.minus_millis(i64::try_from(FRESH.as_millis()).unwrap_or(0));
    let over = !hours.contains(now, zone);
    let fresh = hours.last_end(earlier, zone) != hours.last_end(now, zone) || hours.contains(earlier, zone);
    (over && fresh).then(|| hours.last_end(now, zone).to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use intercom_daemon::config::parse;

    fn config() -> Config {
        let text = "
[slack]
channel = 'C1'
ping = ['ana', 'vic']
escalate_after = '10m'
escalate_to = ['bo', 'vic', 'root']
quiet_hours = '22:00-07:00'
[[operator]]
name = 'ana'
role = 'approver'
slack = 'U1'
[[operator]]
name = 'bo'
role = 'approver'
slack = 'U2'
[[operator]]
name = 'vic'
role = 'viewer'
slack = 'U3'
[[operator]]
name = 'root'
role = 'admin'
slack = 'U4'
";
        parse(text, Path::new("c.toml")).unwrap()
    }

    fn at(text: &str) -> Time {
        Time::parse(&format!("2026-03-02T{text}Z")).unwrap()
    }

    fn waits(since: &str, grave: bool) -> UnansweredRequest<'static> {
        UnansweredRequest { since: at(since), is_urgent: grave, least: Role::Approver, whom: &[] }
    }

    #[test]
    fn only_those_who_may_decide_are_called() {
        let config = config();
        let ping = config.slack.ping.clone();
        let noon = at("12:00:00");
        assert_eq!(initial_mentions(&config, &ping, &waits("12:00:00", false), noon), ["ana"]);
        let whom = ["bo".to_owned()];
        let named = UnansweredRequest { whom: &whom, ..waits("12:00:00", false) };
        assert_eq!(initial_mentions(&config, &ping, &named, noon), ["bo"]);
        let whom = ["@admin".to_owned()];
        let named = UnansweredRequest { whom: &whom, ..waits("12:00:00", false) };
        assert_eq!(initial_mentions(&config, &ping, &named, noon), ["root"]);
    }

    #[test]
    fn at_night_only_what_is_grave_calls() {
        let config = config();
        let ping = config.slack.ping.clone();
        let night = at("23:00:00");
        assert!(initial_mentions(&config, &ping, &waits("23:00:00", false), night).is_empty());
        assert_eq!(initial_mentions(&config, &ping, &waits("23:00:00", true), night), ["ana"]);
        assert!(escalation_mentions(&config, &waits("22:00:00", false), night).is_empty());
        assert_eq!(escalation_mentions(&config, &waits("22:00:00", true), night).len(), 2);
    }

    #[test]
    fn one_more_is_called_each_time_and_never_who_may_not_decide() {
        let config = config();
        let called = |now: &str| escalation_mentions(&config, &waits("12:00:00", false), at(now));
        assert!(called("12:09:59").is_empty());
        assert_eq!(called("12:10:00"), ["bo"]);
        assert_eq!(called("12:25:00"), ["bo", "root"]);
        assert_eq!(called("20:00:00"), ["bo", "root"]);
    }

    #[test]
    fn a_morning_is_told_once_and_only_while_it_is_fresh() {
        let config = config();
        assert_eq!(due_digest_date(&config, at("06:59:00")), None);
        assert_eq!(due_digest_date(&config, at("07:00:00")).as_deref(), Some("2026-03-02"));
        assert_eq!(due_digest_date(&config, at("10:59:00")).as_deref(), Some("2026-03-02"));
        assert_eq!(due_digest_date(&config, at("11:01:00")), None);
        assert_eq!(due_digest_date(&Config::default(), at("07:00:00")), None);
    }
}
