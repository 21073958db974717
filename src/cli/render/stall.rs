//! Stalls, restarts and reminders as people read them.

use super::{Data, Shown};
use crate::cli::terminal::Style;

pub(super) fn event(kind: &str, data: &Data) -> Option<Shown> {
    let by = data.part(" by ", "by", "");
    Some(match kind {
        "stall.step" => {
            let style = match data.get("step")?.as_str() {
                "escalate" | "alert" => Style::Red,
                _ => Style::Yellow,
            };
            let number = data.part(" (step ", "number", "") + &data.part(" of ", "of", ")");
            Shown::new(style, format!("{}{number}{}", data.get("name")?, data.part(": ", "why", "")))
        }
        "stall.failed" => {
            let (name, after) = (data.get("name")?, data.part(" within ", "seconds", " s"));
            Shown::new(Style::Dim, format!("{name} did not help{after}"))
        }
        "stall.recovered" => {
            let summary = data.get("summary").unwrap_or_else(|| "recovered".to_owned());
            Shown::new(Style::Green, summary)
        }
        "stall.reset" => Shown::new(Style::Dim, format!("{} acts: the ladder begins anew", data.get("by")?)),
        "stall.snoozed" => match data.time("until") {
            Some(until) => Shown::new(Style::Dim, format!("left in peace until {until}{by}")),
            None => Shown::new(Style::Dim, format!("watched again{by}")),
        },
        "stall.ladder" => Shown::new(Style::Dim, format!("ladder: {}{by}", data.get("ladder")?)),
        "stall.reminder" => {
            let since = data.time("since").map(|since| format!(" since {since}")).unwrap_or_default();
            let what = data.get("waiting_for")?;
            Shown::new(Style::Yellow, format!("still waiting for you: {what}{since}"))
        }
        "stall.limited" => {
            let until = data.time("until").map(|until| format!(", until {until}")).unwrap_or_default();
            Shown::new(Style::Yellow, format!("waits for its service: {} limit{until}", data.get("limit")?))
        }
        "stall.limit_over" => {
            Shown::new(Style::Plain, format!("the {} limit should be over", data.get("limit")?))
        }
        "agent.restarting" => {
            let wait = data.0.get("wait_ms").and_then(serde_json::Value::as_u64).unwrap_or(0);
            let attempt = data.part(" (attempt ", "attempt", "") + &data.part(" of ", "of", ")");
            let (at, why) = (format!(" in {}.{} s", wait / 1000, wait % 1000 / 100), data.end_in_words());
            Shown::new(Style::Yellow, format!("to be started again{at}{attempt}{why}"))
        }
        "session.parked" => {
            let mut shown = Shown::new(Style::Red, format!("parked{}", data.end_in_words()));
            shown.below = data.block("stderr_tail");
            shown
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::show;

    #[test]
    fn stalls_are_told_for_people() {
        let told = [
            show(
                "stall.step",
                json!({"step": "nudge", "name": "nudge 1", "number": 2, "of": 6, "why": "stuck 5m: no CPU"}),
            ),
            show("stall.failed", json!({"step": "nudge", "name": "nudge 1", "seconds": 120})),
            show("stall.recovered", json!({"summary": "recovered after nudge 1, 40s after, by output"})),
            show("stall.reset", json!({"by": "ana"})),
            show("stall.snoozed", json!({"until": "2026-01-01T00:00:00Z", "by": "ana"})),
            show("stall.snoozed", json!({"until": null, "by": "ana"})),
            show("stall.ladder", json!({"ladder": "off", "by": "ana"})),
            show("stall.reminder", json!({"waiting_for": "1 clearance", "since": "2026-01-01T00:00:00Z"})),
            show("stall.limited", json!({"limit": "usage", "until": "2026-01-01T00:00:00Z"})),
            show("stall.limit_over", json!({"limit": "usage", "resumed": true})),
            show("agent.restarting", json!({"wait_ms": 1500, "attempt": 2, "of": 3, "reason": "exited"})),
            show("session.parked", json!({"reason": "it dies", "stderr_tail": "boom\nbang"})),
        ];
        insta::assert_snapshot!(told.concat(), @r"
        nudge 1 (step 2 of 6): stuck 5m: no CPU
        nudge 1 did not help within 120 s
        recovered after nudge 1, 40s after, by output
        ana acts: the ladder begins anew
        left in peace until 2026-01-01 00:00:00 UTC by ana
        watched again by ana
        ladder: off by ana
        still waiting for you: 1 clearance since 2026-01-01 00:00:00 UTC
        waits for its service: usage limit, until 2026-01-01 00:00:00 UTC
        the usage limit should be over
        to be started again in 1.5 s (attempt 2 of 3): exited
        parked: it dies
            │ boom
            │ bang
        ");
    }
}
