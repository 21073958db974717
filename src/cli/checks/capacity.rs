//! The number of sessions that fit on this machine, and the limit that is met first.

use serde_json::json;

use super::Check;
use intercom_host::AgentLimit;

/// The number of free sessions below which there is a warning.
const FEW: u64 = 2;

/// Checks the limits of the daemon with this pid and these live sessions, or of one that is started from here.
pub(in crate::cli) fn capacity(daemon: Option<i32>, live: u64, max_sessions: usize) -> Check {
    let most = u64::try_from(max_sessions).unwrap_or(u64::MAX);
    let mut limits = intercom_host::agent_limits(daemon);
    limits.push(AgentLimit {
        name: "max_sessions",
        limit: format!("{most} sessions ([limits] max_sessions)"),
        left: most.saturating_sub(live),
        each: 1,
        kept: 0,
        advice: "stop some, or raise max_sessions under [limits] in the configuration".to_owned(),
    });
    report(&limits)
}

fn report(limits: &[AgentLimit]) -> Check {
    let Some(first) = limits.iter().min_by_key(|limit| limit.agents()) else {
        return Check::ok("sessions", "the limits of this machine are not known");
    };
    let fit = first.agents();
    let others: Vec<String> = limits
        .iter()
        .filter(|limit| limit.name != first.name)
        .map(|limit| format!("{} for {}", limit.name, limit.agents()))
        .collect();
    let detail = format!("about {fit} more fit: {}; {}", first.limit, others.join(", "));
    let check = if fit < FEW {
        Check::warning("sessions", detail, first.advice.clone())
    } else {
        Check::ok("sessions", detail)
    };
    let each =
        |limit: &AgentLimit| json!({ "name": limit.name, "left": limit.left, "sessions": limit.agents() });
    let facts = json!({
        "more_sessions": fit,
        "first_limit": first.name,
        "limits": limits.iter().map(each).collect::<Vec<_>>(),
    });
    Check { facts: Some(facts), ..check }
}

#[cfg(test)]
mod tests {
    use super::super::CheckStatus;
    use super::*;

    fn limit(name: &'static str, left: u64, each: u64) -> AgentLimit {
        let (limit, advice) = (format!("{left} of {name}"), format!("get more {name}"));
        AgentLimit { name, limit, left, each, kept: 0, advice }
    }

    #[test]
    fn the_scarcest_thing_says_how_many_fit() {
        let check = report(&[limit("memory", 5000, 500), limit("descriptors", 4000, 4)]);
        assert_eq!(check.status, CheckStatus::Ok);
        assert_eq!(check.detail, "about 10 more fit: 5000 of memory; descriptors for 1000");
        let facts = check.facts.unwrap();
        assert_eq!((&facts["more_sessions"], &facts["first_limit"]), (&json!(10), &json!("memory")));
        assert_eq!(facts["limits"][1], json!({ "name": "descriptors", "left": 4000, "sessions": 1000 }));
        let check = report(&[limit("memory", 5000, 500), limit("descriptors", 7, 4)]);
        assert_eq!(check.status, CheckStatus::Warning);
        assert_eq!(check.hint.as_deref(), Some("get more descriptors"));
    }
}
