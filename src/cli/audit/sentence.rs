//! The details of an audit row in words; the console's `auditwords.js` has the same, with the same cases.

use serde_json::Value;

use crate::cli::json_text::list;
use crate::cli::time::date_time_zone;
use intercom_types::EventKind;
use intercom_types::text::{clean, cut, short};

/// The maximum length of a command or a reason; `--json` has all of it.
const LONGEST: usize = 200;

/// Returns the details in words; `None` if the action has none.
pub(super) fn about(action: &str, data: &Value) -> Option<String> {
    let data = AuditRowDetails(data);
    let parts = match EventKind::parse(action) {
        Some(EventKind::ClearanceDecided | EventKind::ClearanceClosed) => {
            vec![data.get("status"), data.part("option ", "option"), data.get("reason"), data.subject()]
        }
        Some(EventKind::ClearanceApproved) => {
            let given = data.get("approvals").zip(data.get("needed"));
            let given = given.map(|(given, needed)| format!("{given} of {needed} approvals"));
            vec![given, data.get("reason"), data.subject()]
        }
        Some(EventKind::QuestionAnswered) => vec![data.get("decision"), data.get("instruction")],
        Some(EventKind::SessionCreated | EventKind::SessionAgentChanged) => data.session(),
        Some(EventKind::SessionPresetChanged) => vec![data.get("preset")],
        Some(EventKind::SessionResumed) => vec![data.part("generation ", "generation")],
        Some(EventKind::SessionStopping) => vec![data.get("how"), data.get("why")],
        Some(EventKind::SessionEnded | EventKind::SessionParked) => {
            vec![data.get("why").or_else(|| data.get("reason"))]
        }
        Some(EventKind::StallSnoozed) => {
            vec![Some(data.time("until ", "until").unwrap_or_else(|| "no longer".to_owned()))]
        }
        Some(EventKind::LadderChanged) => vec![data.get("ladder")],
        _ => about_daemon(action, &data),
    };
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns the details of actions that are not events of a session.
fn about_daemon(action: &str, data: &AuditRowDetails) -> Vec<Option<String>> {
    match action {
        "session.deleted" => data.session(),
        "token.created" | "web.signed_in" => {
            vec![data.get("name"), data.get("role"), data.time("until ", "expires_at")]
        }
        "token.revoked" | "web.signed_out" => vec![data.get("name")],
        "token.used" => vec![data.part("from ", "from")],
        "grant.created" => vec![data.rule(), data.time("until ", "expires_at")],
        "grant.revoked" => vec![data.0.get("grant").and_then(Value::as_str).map(short)],
        "config.reloaded" | "daemon.started" => {
            vec![data.part("version ", "version"), data.part("rules: ", "rules"), data.restart()]
        }
        "audit.broken" | "audit.restored" => vec![data.get("message")],
        "audit.anchor_begun" => vec![data.part("after row ", "after_row")],
        "backup" => vec![data.get("path")],
        "access.refused" => vec![data.part("from ", "from"), data.get("what"), data.get("why")],
        "access.from_agent" => vec![data.get("via")],
        _ => data.everything(),
    }
}

struct AuditRowDetails<'a>(&'a Value);

impl AuditRowDetails<'_> {
    fn get(&self, key: &str) -> Option<String> {
        self.0.get(key).and_then(text)
    }

    fn part(&self, before: &str, key: &str) -> Option<String> {
        self.get(key).map(|value| format!("{before}{value}"))
    }

    fn time(&self, before: &str, key: &str) -> Option<String> {
        self.0.get(key)?.as_str().map(|at| format!("{before}{}", date_time_zone(at)))
    }

    fn session(&self) -> Vec<Option<String>> {
        let agent = self.get("agent").or_else(|| self.get("command"));
        vec![agent, self.part("in ", "workspace"), self.get("preset")]
    }

    /// Returns the command or the files of a clearance, then the agent's title in quotes.
    fn subject(&self) -> Option<String> {
        match (self.get("action"), self.get("title")) {
            (None, None) => None,
            (action, None) => action,
            (action, Some(title)) => Some(intercom_types::action::line(action.as_deref(), &title)),
        }
    }

    /// Returns the name of a rule, or else its conditions without the names of their keys.
    fn rule(&self) -> Option<String> {
        let rule = self.0.get("rule")?.as_object()?;
        if let Some(name) = rule.get("name").and_then(text).filter(|name| !name.is_empty()) {
            return Some(name);
        }
        let values = rule.values().filter_map(text).filter(|value| !value.is_empty());
        Some(values.collect::<Vec<_>>().join(" "))
    }

    fn restart(&self) -> Option<String> {
        list(self.0.get("needs_restart"))
            .filter(|keys| !keys.is_empty())
            .map(|keys| format!("needs a restart: {keys}"))
    }

    /// Returns all fields of an unknown action, with their names as words.
    fn everything(&self) -> Vec<Option<String>> {
        let fields = self.0.as_object().into_iter().flatten();
        let known = fields.filter(|(key, _)| !["by", "session", "via"].contains(&key.as_str()));
        known
            .map(|(key, value)| Some(format!("{} {}", clean(&key.replace('_', " ")), text(value)?)))
            .collect()
    }
}

fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) => clean(text),
        Value::Array(_) => list(Some(value))?,
        other => clean(&other.to_string()),
    };
    Some(cut(&text, LONGEST))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn details_are_words_and_not_keys() {
        let cases: Vec<(String, Value, String)> =
            serde_json::from_str(include_str!("../../../tests/console/audit-cases.json")).unwrap();
        for (action, data, expected) in cases {
            assert_eq!(about(&action, &data).unwrap_or_default(), expected, "{action}");
        }
        let token = json!({"token": "tok_1", "name": "ci", "role": "viewer", "expires_at": "2026-03-04T12:00:00.000Z"});
        let details = about("token.created", &token);
        assert_eq!(details.as_deref(), Some("ci, viewer, until 2026-03-04 12:00:00 UTC"));
        assert_eq!(about("token.revoked", &json!({})), None);
    }
}
